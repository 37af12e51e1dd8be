"""Copies what a rank holds to memory that is shared with its agent."""

from __future__ import annotations

import time
from collections.abc import Iterable

from cairn import _device, _layout, _memory, _native, _overlap, _wire
from cairn._device_array import DeviceArray
from cairn._errors import Error
from cairn._results import DeviceReport


def copy_out(declared: _layout.Declared, placement: Iterable[_wire.Message], memory: _memory.Mapping) -> None:
    """Copies items of the layout that are on the host to their places in shared memory."""
    copies = _native.CopyList()
    shards = len(declared.shards)
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
    copies.run()


def copy_from_devices(declared: _layout.Declared, placement: Iterable[_wire.Message], memory: _memory.Mapping,
                      done: frozenset[int] = frozenset()) -> DeviceReport | None:
    """Copies items of the layout that are on devices to their places in shared memory. None if there are none.

    Args:
      done: items that are there already.

    Raises Error as Devices.to_host.
    """
    copies, _ = _copies_of(declared, [place for place in placement if place.item not in done], memory)
    if not len(copies):
        return None
    assert declared.devices is not None
    return declared.devices.to_host(copies, memory, max(declared.deadline - time.monotonic(), 0.0))


def begin_overlap(declared: _layout.Declared, placement: Iterable[_wire.Message], memory: _memory.Mapping,
                  covered: _overlap.Covered, check: bool) -> _device.Overlap | str:
    """As copy_from_devices(), but what is in `covered` may be copied after it has returned.

    Returns and raises as Devices.begin_overlap.
    """
    copies, arrays = _copies_of(declared, placement, memory)
    if not len(copies):
        return "this rank copies no arrays on GPUs"
    assert declared.devices is not None
    behind = [array.flags.c_contiguous and covered.holds(array) for array in arrays]
    if not any(behind):
        return "overlap= covers none of the arrays on GPUs that this rank copies, of those that are contiguous"
    return declared.devices.begin_overlap(copies, behind, check, memory, declared.deadline)


def _copies_of(declared: _layout.Declared, placement: Iterable[_wire.Message],
               memory: _memory.Mapping) -> tuple[_device.DeviceCopyList, list[DeviceArray]]:
    copies = _device.DeviceCopyList()
    arrays = []
    for place in placement:
        if place.item < len(declared.shards):
            entry = declared.shards[place.item]
            if isinstance(entry.array, DeviceArray):
                copies.add_device_array(entry.name, entry.array, memory.address, memory.size, place.slab_offset)
                arrays.append(entry.array)
    return copies, arrays
