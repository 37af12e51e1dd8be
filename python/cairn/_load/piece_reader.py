"""Reads parts of files of a load, which the agent has in memory, straight into the trainer's arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType

from cairn._agent import shared_memory
from cairn._base import native, probes, wire
from cairn._base.errors import Error
from cairn._load.target import Target


class PieceReader:
    """The batches of pieces of one load, and the descriptors that they are read by. It must be closed."""

    def __init__(self, owner: int) -> None:
        """`owner` is the user of the agent, who alone may hand over a descriptor."""
        self._owner = owner
        self._descriptors: dict[int, int] = {}
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
            self._read[batch.batch] = self._now(batch, targets, patience)
        return self._read[batch.batch]

    def _now(self, batch: wire.Message, targets: Sequence[Target], patience: float) -> wire.Message:
        descriptors = [self._descriptor(each.file, patience) for each in batch.files]
        pieces = native.PieceList()
        for piece in batch.pieces:
            if piece.target >= len(targets) or piece.file >= len(descriptors) or targets[piece.target].on_device:
                raise Error("INTERNAL", f"the agent's plan reads file {piece.file} of {len(descriptors)} into item "
                            f"{piece.target} of {len(targets)}")
            target = targets[piece.target]
            pieces.add(descriptors[piece.file], batch.files[piece.file].may_wait, piece.offset, piece.bytes,
                       target.address, target.nbytes, piece.target_offset)
        checksums, refusal = pieces.read()
        return wire.message("cairn.v1.ReadBatch")(batch=batch.batch, checksums=checksums, refusal=refusal)

    def _descriptor(self, reference: wire.Message, patience: float) -> int:
        known = self._descriptors.get(reference.descriptor_id)
        if known is None:
            known = self._descriptors[reference.descriptor_id] = shared_memory.receive_descriptor(
                reference.descriptor_socket, reference.descriptor_id,
                shared_memory.lender_of(reference, self._owner), patience)
        return known

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def __enter__(self) -> PieceReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()
