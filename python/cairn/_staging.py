"""Copies what a rank holds to memory that is shared with its agent."""

from __future__ import annotations

from collections.abc import Iterable

from cairn import _layout, _memory, _native, _wire
from cairn._errors import Error


def copy_out(declared: _layout.Declared, placement: Iterable[_wire.Message], memory: _memory.Mapping) -> None:
    """Copies items of the layout to their places in shared memory."""
    copies = _native.CopyList()
    shards = len(declared.shards)
    for place in placement:
        if place.item < shards:
            copies.add_array(declared.shards[place.item].array, memory.address, memory.size, place.slab_offset)
        else:
            entry = declared.objects[place.item - shards]
            end = place.slab_offset + place.bytes
            if len(entry.data) > place.bytes or end > memory.size:
                raise Error("INTERNAL", f"object {entry.name!r} does not fit its place in shared memory")
            memory.bytes[place.slab_offset:place.slab_offset + len(entry.data)] = memoryview(entry.data)
            memory.bytes[place.slab_offset + len(entry.data):end] = 0
    copies.run()
