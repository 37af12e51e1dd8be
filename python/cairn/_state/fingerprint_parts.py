"""Computes the parts of fingerprints that a rank's shards make (docs/storage_format.md)."""

from __future__ import annotations

import math
import operator
from typing import Any

from cairn._base import wire
from cairn._base.arrays import Array
from cairn._base.errors import Error
from cairn._base.native import CopyList
from cairn._gpu.device_array import DeviceArray
from cairn._state.layout import DeclaredState


def fingerprint_parts(declared: DeclaredState) -> list[int]:
    """Returns the part of each declared shard, in the layout's order. It reads the arrays once.

    Raises:
      Error: as check_on_host(); BAD_SHAPE (a shard does not lie in its tensor).
    """
    layout = wire.Layout.FromString(declared.layout)
    ranges = {position: (begin, end) for position, begin, end in
              zip(layout.flat_shards, layout.flat_begins, layout.flat_ends, strict=True)}
    offsets, extents = iter(layout.shard_offsets), iter(layout.shard_shapes)
    shapes = global_shapes(wire.TensorSchema.FromString(layout.tensor_schema))
    copies, boxes = CopyList(), list[int]()
    for position, (shard, tensor) in enumerate(zip(declared.shards, layout.shard_tensors, strict=True)):
        array = on_host(shard.name, shard.array)
        offset, shape = _take(offsets, len(shapes[tensor])), _take(extents, len(shapes[tensor]))
        begin, end = ranges.get(position, (0, math.prod(shape)))
        ends = [at + size for at, size in zip(offset, shape, strict=True)]
        if end > math.prod(shape) or any(map(operator.gt, ends, shapes[tensor])):
            raise Error("BAD_SHAPE", f"{shard.name!r}: a shard at {offset} of {shape}, elements {begin} to {end}, "
                        f"does not lie in a tensor of shape {shapes[tensor]}", {"tensor": shard.name})
        copies.add_array(array, 0, -1, 0)
        boxes += (array.itemsize, len(shape), *shapes[tensor], *offset, *shape, begin, end)
    return copies.fingerprints(boxes)


def check_on_host(declared: DeclaredState) -> None:
    """Refuses arrays whose fingerprints cannot be computed.

    Raises:
      Error: UNSUPPORTED (an array is on a GPU).
    """
    for shard in declared.shards:
        on_host(shard.name, shard.array)


def on_host(name: str, array: Array | DeviceArray) -> Array:
    """Returns the array if it is in the host's memory; see check_on_host()."""
    if isinstance(array, DeviceArray):
        raise Error("UNSUPPORTED", f"{name!r} is on a GPU, and its fingerprint is computed on the host",
                    {"tensor": name, "next": "Copy it to the host first."})
    return array


def global_shapes(schema: wire.Message) -> list[tuple[int, ...]]:
    """Returns the shape of each tensor of a schema."""
    sizes = iter(schema.global_dims)
    return [_take(sizes, count) for count in schema.ndims]


def _take(numbers: Any, count: int) -> tuple[int, ...]:
    return tuple(next(numbers) for _ in range(count))
