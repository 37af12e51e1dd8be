"""Says of each array of a declared state which part of which tensor it holds."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

from cairn._base import wire
from cairn._base.arrays import Array
from cairn._base.errors import Error
from cairn._gpu.device_array import DeviceArray
from cairn._state import dtypes
from cairn._state.layout import DeclaredState

_NAMES = {number: name for name, number in dtypes.NUMBER.items()}


class DeclaredBox(NamedTuple):
    """A part of a tensor, and the array that holds it.

    Attributes:
      dtype: torch name of the elements.
      global_shape: of the whole tensor.
      offset, shape: of the box.
      begin, end: of the range of the flattened box that the array holds.
      flat: the array has one axis, whatever the box has.
    """

    name: str
    dtype: str
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    begin: int
    end: int
    flat: bool
    array: Array | DeviceArray


def boxes_of(declared: DeclaredState) -> Iterator[DeclaredBox]:
    """Yields the boxes of all shards, in their order. Raises BAD_SHAPE for one that does not lie in its tensor."""
    layout = wire.Layout.FromString(declared.layout)
    schema = wire.TensorSchema.FromString(layout.tensor_schema)
    ranges = {position: (begin, end) for position, begin, end in
              zip(layout.flat_shards, layout.flat_begins, layout.flat_ends, strict=True)}
    sizes, offsets, extents = iter(schema.global_dims), iter(layout.shard_offsets), iter(layout.shard_shapes)
    shapes = [_take(sizes, count) for count in schema.ndims]
    for position, (shard, tensor) in enumerate(zip(declared.shards, layout.shard_tensors, strict=True)):
        offset, shape = _take(offsets, len(shapes[tensor])), _take(extents, len(shapes[tensor]))
        begin, end = ranges.get(position, (0, math.prod(shape)))
        ends = [at + size for at, size in zip(offset, shape, strict=True)]
        if begin < 0 or end > math.prod(shape) or any(map(operator.gt, ends, shapes[tensor])):
            raise Error("BAD_SHAPE", f"{shard.name!r}: a shard at {offset} of {shape}, elements {begin} to {end}, "
                        f"does not lie in a tensor of shape {shapes[tensor]}", {"tensor": shard.name})
        yield DeclaredBox(shard.name, _NAMES[schema.dtypes[tensor]], shapes[tensor], offset, shape, begin, end,
                          position in ranges, shard.array)


def _take(numbers: Any, count: int) -> tuple[int, ...]:
    return tuple(next(numbers) for _ in range(count))
