"""Copies what a rank holds to memory that is shared with its agent."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable

from cairn._agent.shared_memory import SharedMapping
from cairn._base import native, probes, wire
from cairn._base.errors import Error
from cairn._base.results import DeviceReport
from cairn._gpu import devices
from cairn._gpu.device_array import DeviceArray
from cairn._gpu.devices import OverlappedCopies
from cairn._gpu.overlap import GuardedMemory
from cairn._state.layout import DeclaredState


class CopyListCache:
    """The copies from devices of the last save. If all arrays are where they were, and go where they went, as in most
    steps of a training, their table need not be made anew. Keeps no memory of arrays alive."""

    def __init__(self) -> None:
        self._places: object = None
        self._by_place: list[DeviceArray | None] = []  # None: what has the place is on no device
        self._copies = devices.DeviceCopyList()
        self._arrays: list[DeviceArray] = []

    def of(self, declared: DeclaredState, placement: Iterable[wire.Message],
           memory: SharedMapping) -> tuple[devices.DeviceCopyList, list[DeviceArray]]:
        """Returns copies of all arrays on devices that have a place in the memory, and these arrays."""
        shards = declared.shards
        pairs = [(place.item, place.slab_offset) for place in placement]
        places = (memory.address, memory.size, pairs)
        by_place = [array if item < len(shards) and isinstance(array := shards[item].array, DeviceArray) else None
                    for item, _ in pairs]
        # An array that is described anew is another object, also if it says the same.
        if places == self._places and all(map(operator.is_, by_place, self._by_place)):
            return self._copies, self._arrays
        copies = devices.DeviceCopyList()
        for (item, offset), array in zip(pairs, by_place, strict=True):
            if array is not None:
                copies.add_device_array(shards[item].name, array, memory.address, memory.size, offset)
        arrays = [array for array in by_place if array is not None]
        if not any(array.owner is not None for array in arrays):
            self._places, self._by_place, self._copies, self._arrays = places, by_place, copies, arrays
        return copies, arrays


def copy_host_items(declared: DeclaredState, placement: Iterable[wire.Message], memory: SharedMapping,
                    written: int | None = None) -> None:
    """Copies items of the layout that are on the host to their places in shared memory.

    Args:
      written: address of the word that tells the agent how far this is; None if other items are copied after this.
    """
    probes.reach("copy", declared=declared, placement=placement, memory=memory)
    copies = native.CopyList()
    shards = len(declared.shards)
    if written is not None: # the agent writes files from their beginning
        placement = sorted(placement, key=operator.attrgetter("slab_offset"))
    for place in placement:
        if place.item < shards:
            array = declared.shards[place.item].array
            if not isinstance(array, DeviceArray):
                copies.add_array(array, memory.address, memory.size, place.slab_offset)
        else:
            entry = declared.objects[place.item - shards]
            end = place.slab_offset + place.bytes
            if len(entry.data) > place.bytes or end > memory.size:
                raise Error("INTERNAL", f"object {entry.name!r} does not fit its place in shared memory")
            memory.bytes[place.slab_offset:place.slab_offset + len(entry.data)] = memoryview(entry.data)
            memory.bytes[place.slab_offset + len(entry.data):end] = 0
    copies.run(memory.address, written)
    probes.reach("copied", declared=declared, placement=placement, memory=memory)


def copy_from_devices(declared: DeclaredState, placement: Iterable[wire.Message], memory: SharedMapping,
                      last: CopyListCache, done: frozenset[int] = frozenset()) -> DeviceReport | None:
    """Copies items of the layout that are on devices to their places in shared memory. None if there are none.

    Args:
      last: what was copied so before.
      done: items that are there already.

    Raises Error as Devices.to_host.
    """
    copies, _ = last.of(declared, [place for place in placement if place.item not in done] if done else placement,
                        memory)
    if not len(copies):
        return None
    assert declared.devices is not None
    return declared.devices.to_host(copies, memory, max(declared.deadline - time.monotonic(), 0.0), declared.kept)


def begin_overlap(declared: DeclaredState, placement: Iterable[wire.Message], memory: SharedMapping,
                  last: CopyListCache, guarded: GuardedMemory, check: bool) -> OverlappedCopies | str:
    """As copy_from_devices(), but what is in `guarded` may be copied after it has returned.

    Returns and raises as Devices.begin_overlap.
    """
    copies, arrays = last.of(declared, placement, memory)
    if not len(copies):
        return "this rank copies no arrays on GPUs"
    assert declared.devices is not None
    late = [array.flags.c_contiguous and guarded.holds(array) for array in arrays]
    if not any(late):
        return "overlap= covers none of the arrays on GPUs that this rank copies, of those that are contiguous"
    return declared.devices.begin_overlap(copies, late, check, memory, declared.kept, declared.deadline)
