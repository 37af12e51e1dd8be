"""Reads parts of files of a load, which the agent has in memory, straight into the trainer's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from cairn._agent import shared_memory
from cairn._agent.descriptor import Descriptor
from cairn._base import native, probes, wire
from cairn._base.errors import Error
from cairn._load.target import Target


class PieceReader:
    """The batches of pieces of one load, and the descriptors that they are read by. It must be closed."""

    def __init__(self, owner: int) -> None:
        """`owner` is the user of the agent, who alone may hand over a descriptor."""
        self._owner = owner
        self._files: dict[int, Descriptor] = {}  # by descriptor id, those of the newest batch
        self._read: dict[int, wire.Message] = {}

    def read(self, batch: wire.Message, targets: Sequence[Target], patience: float) -> wire.Message:
        """Reads a batch of pieces. Returns what the agent is told of it (ReadBatch).

        Args:
          patience: seconds for which the agent may leave a descriptor owing.

        Raises:
          Error: AGENT_UNREACHABLE, PEER_UID, RANK_CONFLICT (the agent does not give a descriptor).
        """
        probes.reach("pieces", batch=batch)
        if batch.batch not in self._read:  # the agent repeats what was lost on the way
            checksums, refusal = self._now(batch, targets, patience)
            self._read[batch.batch] = wire.message("cairn.v1.ReadBatch")(batch=batch.batch, checksums=checksums,
                                                                         refusal=refusal)
        return self._read[batch.batch]

    def _now(self, batch: wire.Message, targets: Sequence[Target], patience: float) -> tuple[list[int], str]:
        try:
            descriptors = self._open([each.file for each in batch.files], patience)
        except Error as error:
            if error.reason != "MEMORY_LIMIT":
                raise
            return [], error.message  # a buffer needs fewer descriptors
        pieces = native.PieceList()
        for piece in batch.pieces:
            if piece.target >= len(targets) or piece.file >= len(descriptors) or targets[piece.target].on_device:
                raise Error("INTERNAL", f"the agent's plan reads file {piece.file} of {len(descriptors)} into item "
                            f"{piece.target} of {len(targets)}")
            target = targets[piece.target]
            try:
                pieces.add(descriptors[piece.file], batch.files[piece.file].may_wait, piece.offset, piece.bytes,
                           target.address, target.nbytes, piece.target_offset)
            except OverflowError:
                raise Error("INTERNAL", f"the agent's plan reads {piece.bytes} bytes at {piece.offset} of a file into "
                            f"{piece.target_offset} of {target.nbytes} bytes") from None
        return pieces.read()

    def _open(self, references: Sequence[wire.Message], patience: float) -> list[int]:
        """Returns a descriptor of each file, and closes all others."""
        needed = {reference.descriptor_id for reference in references}
        for number in [number for number in self._files if number not in needed]:
            self._files.pop(number).close()
        for reference in references:
            if reference.descriptor_id not in self._files:
                self._files[reference.descriptor_id] = shared_memory.receive_descriptor(
                    reference.descriptor_socket, reference.descriptor_id,
                    shared_memory.lender_of(reference, self._owner), patience)
        return [self._files[reference.descriptor_id].number() for reference in references]

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def __enter__(self) -> PieceReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()
