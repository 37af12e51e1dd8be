"""Shares memory of GPUs with the agent, which then copies a save's arrays itself."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import os
import time
from collections.abc import Iterable, Sequence

from cairn._agent import shared_memory
from cairn._base import wire
from cairn._base.errors import Error
from cairn._base.results import DeviceReport
from cairn._gpu.blocks import FABRIC, PATHS, WITH_HANDLE, Block
from cairn._gpu.device_array import DeviceArray
from cairn._gpu.devices import DeviceCopyList, Devices
from cairn._session.session import AgentRestarted, Session
from cairn._state.layout import DeclaredState

# As many descriptors as one message may carry.
_OFFERED_TOGETHER = 64
# After a refusal so many saves at most are made without asking again.
_MOST_SKIPPED = 63


class _Refused(Exception):
    """Says why the agent cannot copy from here."""


@dataclasses.dataclass
class _Part:
    """Bytes of an item that are in one block."""

    item: int
    item_offset: int
    size: int
    block: Block
    offset: int


@dataclasses.dataclass
class _Found:
    """Where arrays are.

    Attributes:
      parts: of the arrays that can be shared.
      items: their numbers.
      why: why others cannot be; "" if all can.
    """

    parts: list[_Part] = dataclasses.field(default_factory=list)
    items: list[int] = dataclasses.field(default_factory=list)
    why: str = ""

    def with_handle(self) -> list[Block]:
        """Returns the blocks of the parts that are given to the agent once."""
        return [part.block for part in self.parts if part.block.kind in WITH_HANDLE]


@dataclasses.dataclass(frozen=True)
class AgentCopies:
    """What the agent has copied for one save.

    Attributes:
      items: that need no further copying.
      fallback: why these are not all arrays on devices, or why their copies were slower; "" if all is well.
      report: how; None if it has copied nothing.
    """

    items: frozenset[int] = frozenset()
    fallback: str = ""
    report: DeviceReport | None = None

    def with_others(self, others: DeviceReport | None) -> DeviceReport | None:
        """Returns the report of a save of which the trainer has copied the other arrays itself."""
        if self.report is None and others is None:
            return None
        fallback = _joined(self.fallback, others.fallback if others else "")
        if self.report is None or others is None:
            only = self.report or others
            assert only is not None
            return dataclasses.replace(only, fallback=fallback)
        own = self.report
        return dataclasses.replace(
            own, path=others.path, fallback=fallback, bytes=own.bytes + others.bytes, copies=own.copies + others.copies,
            seconds=own.seconds + others.seconds, pinned_bytes=others.pinned_bytes,
            bytes_by_path={**own.bytes_by_path, **others.bytes_by_path})


class GpuMemorySharing:
    """What one client shares with its agent. Not thread-safe."""

    def __init__(self, session: Session, devices: Devices) -> None:
        self._session = session
        self._devices = devices
        self._agent = 0  # the incarnation that has the blocks
        self._known: dict[tuple[int, int], int] = {}  # (handle, bytes) -> the agent's number of the block
        self._dropped: list[int] = []  # numbers of blocks that the agent is to give back
        self._offers = 0
        self._copies = 0
        self._refused = ""  # the last time
        self._refusals = 0  # in a row
        self._skip = 0  # saves that are made without asking

    def prepare(self, declared: DeclaredState, slab: wire.Message, deadline: float) -> None:
        """Gives the agent part in the memory of arrays ahead of the first save, so that it starts its process now.

        Memory that is shared by CUDA IPC cannot be given ahead. What stands in the way shows in the save.

        Args:
          slab: in which this rank's saves will be staged.

        Raises:
          Error: as copy().
        """
        self._meet(slab.agent_incarnation)
        arrays, _, _ = _shareable(declared, range(len(declared.shards)))
        if not arrays or self._skip:
            return
        try:
            found = self._find(arrays, deadline, declared.kept)
            self._offer(found.with_handle(), slab, deadline)
        except _Refused as refusal:
            self._note(refusal)
        except AgentRestarted:
            pass
        except BaseException:
            self._give_up()
            raise

    def copy(self, declared: DeclaredState, begun: wire.Message) -> AgentCopies:
        """Lets the agent copy the arrays of a save to its slab, and returns when that is done.

        Args:
          begun: the agent's answer to BeginSave, with a slab.

        Raises:
          Error: as Devices.to_host(); DEVICE_ERROR and DEVICE_STALLED also of the agent's own copies. Nothing is shared
            any more then. The agent stops what it copies when the save is cancelled.
        """
        self._meet(begun.slab.agent_incarnation)
        if self._skip:
            self._skip -= 1
            return AgentCopies(fallback=self._refused)
        try:
            shared = self._copy(declared, begun)
            self._refusals = 0
            return shared
        except _Refused as refusal:
            self._note(refusal)
            return AgentCopies(fallback=self._refused)
        except AgentRestarted:
            raise
        except BaseException:
            self._give_up()
            raise

    def _meet(self, agent: int) -> None:
        """Goes on with this incarnation of the agent."""
        if self._agent != agent:  # what was shared went with the last one's process
            self._forget()
            self._agent = agent
            self._refusals = self._skip = 0

    def _note(self, refusal: _Refused) -> None:
        """Gives everything back, and does not ask again for some saves."""
        self._refused = f"the agent cannot read this GPU memory: {refusal}"
        self._skip = min(2**self._refusals - 1, _MOST_SKIPPED)
        self._refusals = min(self._refusals + 1, 16)
        self._give_up()

    def _copy(self, declared: DeclaredState, begun: wire.Message) -> AgentCopies:
        started = time.monotonic()
        arrays, empty, why = _shareable(declared, [place.item for place in begun.placements])
        if not arrays:
            if self._known:  # what was freed is given back, though there is nothing to copy
                self._find([], declared.deadline, None)
                self._offer([], begun.slab, declared.deadline)
            return AgentCopies(fallback=why)
        for _ in range(2):
            held = self._held()
            found = self._find(arrays, declared.deadline, declared.kept)
            freed = held - self._held()
            if not found.parts:
                raise _Refused(found.why)
            self._offer(found.with_handle(), begun.slab, declared.deadline)
            response = self._let_copy(found.parts, begun, declared.deadline)
            if response.refused:
                raise _Refused(response.refused)
            if response.blocks_lost:
                self._forget()
                continue
            sizes: dict[str, int] = {}
            for part in found.parts:
                path = PATHS[part.block.kind]
                sizes[path] = sizes.get(path, 0) + part.size
            unpinned = f"the agent's copies go to pageable memory: {response.unpinned}" if response.unpinned else ""
            fallback = _joined(why, found.why, unpinned)
            report = DeviceReport(max(sizes, key=[*PATHS.values()].index), fallback, sum(sizes.values()),
                                  len(found.parts), time.monotonic() - started, 0, response.checked_items,
                                  response.unchecked, sizes, self._held(), freed)
            return AgentCopies(frozenset([*found.items, *empty]), fallback, report)
        raise _Refused("the process of the agent that reads it has ended twice")

    def _held(self) -> int:
        """Returns the bytes that the agent has part in."""
        return sum(size for _, size in self._known)

    def _find(self, arrays: Sequence[tuple[int, str, DeviceArray]], deadline: float, kept: object) -> _Found:
        """Finds the blocks that arrays are in. Those that the agent has and no array is in any more are to be dropped.

        The helper keeps the handles that it has found, until it is asked again: so a handle tells whether memory is the
        same as before, though its address is not enough.
        """
        copies = DeviceCopyList()
        for _, name, array in arrays:
            copies.add_device_array(name, array, 0, -1, 0)
        try:
            blocks = self._devices.find_blocks(copies, deadline, kept)
        except Error as error:
            if error.reason != "DEVICE_ERROR":
                raise
            raise _Refused(error.message) from None
        present = {(block.handle, block.size) for block in blocks if block.kind in WITH_HANDLE}
        for key in [key for key in self._known if key not in present]:
            self._dropped.append(self._known.pop(key))
        begins = [block.begin for block in blocks]
        found = _Found()
        for item, name, array in arrays:
            parts: list[_Part] = []
            at = array.address
            end = at + array.nbytes
            while at < end:
                block = blocks[bisect.bisect_right(begins, at) - 1]
                if block.kind not in PATHS:
                    found.why = found.why or f"{name!r}: {block.why}"
                    break
                size = min(end, block.begin + block.size) - at
                parts.append(_Part(item, at - array.address, size, block, at - block.begin))
                at += size
            else:
                found.parts += parts
                found.items.append(item)
        return found

    def _offer(self, blocks: Iterable[Block], slab: wire.Message, deadline: float) -> None:
        """Gives the agent part in blocks that it does not have yet."""
        new = list({(block.handle, block.size): block for block in blocks
                    if (block.handle, block.size) not in self._known}.values())
        while new or self._dropped:
            some, new = new[:_OFFERED_TOGETHER], new[_OFFERED_TOGETHER:]
            self._offers += 1
            request = wire.LOCAL_AGENT["OfferDeviceMemory"].request(
                trainer_incarnation=self._session.incarnation, number=self._offers,
                block_bytes=[block.size for block in some], dropped_blocks=self._dropped,
                fabric_blocks=[i for i, block in enumerate(some) if block.kind == FABRIC])
            response = self._call("OfferDeviceMemory", request, deadline)
            if response.refused:
                raise _Refused(response.refused)
            self._dropped.clear()
            if not some:
                return
            try:
                files = self._devices.export_blocks([block.handle for block in some], deadline)
            except Error as error:
                if error.reason != "DEVICE_ERROR":
                    raise
                raise _Refused(error.message) from None
            try:
                shared_memory.send_descriptors(slab.descriptor_socket, response.descriptor_id, files,
                                               shared_memory.lender_of(slab, self._session.owner),
                                               self._session.limits.call_timeout(0.0, deadline - time.monotonic()))
            except Error as error:
                raise _Refused(f"its descriptors could not be sent: {error.message}") from None
            finally:
                for file in files:
                    os.close(file)
            for block, number in zip(some, response.blocks, strict=True):
                self._known[(block.handle, block.size)] = number

    def _let_copy(self, parts: Sequence[_Part], begun: wire.Message, deadline: float) -> wire.Message:
        self._copies += 1
        request = wire.LOCAL_AGENT["CopyFromDevice"].request(
            trainer_incarnation=self._session.incarnation, save=begun.save, number=self._copies)
        ipc: dict[int, int] = {}  # begin of the block -> position in the request
        for part in parts:
            copy = request.copies.add(item=part.item, item_offset=part.item_offset, bytes=part.size,
                                      memory_offset=part.offset)
            if part.block.kind in WITH_HANDLE:
                copy.block = self._known[(part.block.handle, part.block.size)]
                continue
            if part.block.begin not in ipc:
                ipc[part.block.begin] = len(ipc)
                request.ipc_handles.add(handle=part.block.ipc, device_uuid=part.block.uuid, bytes=part.block.size)
            copy.ipc = ipc[part.block.begin]
        return self._call("CopyFromDevice", request, deadline)

    def _call(self, name: str, request: wire.Message, deadline: float) -> wire.Message:
        """Repeats a call until it is no longer pending. Raises DEVICE_STALLED by the deadline."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Error("DEVICE_STALLED", "the agent has not copied from the GPU within the save's timeout")
            max_wait = min(self._session.limits.held_call, max(left, 0.05))
            response = self._session.call(name, request, max_wait, held_by=self._agent)
            if not response.pending:
                return response

    def _forget(self) -> None:
        self._known.clear()
        self._dropped.clear()

    def _give_up(self) -> None:
        """Lets the agent give everything back. It does so anyway when this trainer detaches."""
        self._forget()
        request = wire.LOCAL_AGENT["OfferDeviceMemory"].request(trainer_incarnation=self._session.incarnation,
                                                                end=True)
        with contextlib.suppress(Error):  # the error that there is already says more
            self._session.agent.call("OfferDeviceMemory", request, 0.0)


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)


def _shareable(declared: DeclaredState,
               items: Iterable[int]) -> tuple[list[tuple[int, str, DeviceArray]], list[int], str]:
    """Returns number, name and array of those items that the agent may copy, those without bytes, and why there are
    others."""
    result = []
    empty = []
    why = ""
    for item in items:
        if item >= len(declared.shards):
            continue
        entry = declared.shards[item]
        if not isinstance(entry.array, DeviceArray):
            continue
        if not entry.array.nbytes:
            empty.append(item)
        elif entry.array.flags.c_contiguous:
            result.append((item, entry.name, entry.array))
        else:
            why = why or f"{entry.name!r} is not contiguous on the device, so the trainer copies it"
    return result, empty, why
