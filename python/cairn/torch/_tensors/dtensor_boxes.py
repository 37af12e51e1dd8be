"""Finds which part of a tensor a rank holds under DTensor's placements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cairn._base.errors import Error

Intervals = list[tuple[int, int]]


def boxes_of(global_shape: Sequence[int], mesh_shape: Sequence[int], coordinate: Sequence[int],
             placements: Sequence[Any], name: str = "tensor") -> list[Intervals]:
    """Returns the indices of each dimension that a rank holds under DTensor's placements, in its local tensor's order.

    Shard cuts as torch.chunk does, mesh dimension by mesh dimension. _StridedShard(dim, split_factor=k), which FSDP2
    over tensor parallelism makes, cuts what is there into k chunks first and takes its chunk of each: several
    intervals, until the Shard that follows picks one of them.

    Args:
      global_shape: of the whole tensor, in elements.
      mesh_shape: ranks along each dimension of the device mesh.
      coordinate: this rank's in the mesh.
      placements: one for each dimension of the mesh, as DTensor.placements gives them.
      name: the tensor's, for errors.

    Returns:
      For each dimension of the tensor the intervals [start, stop) of its indices; one empty interval for none.

    Raises:
      Error: BAD_REQUEST (a partial sum has no box), UNSUPPORTED (a placement that is none of torch's).
    """
    dimensions: list[Intervals] = [[(0, size)] for size in global_shape]
    for mesh_dim, placement in enumerate(placements):
        if placement.is_replicate():
            continue
        if placement.is_partial():
            raise Error(
                "BAD_REQUEST",
                f"{name!r} is a partial sum ({placement}); redistribute it to Shard or Replicate first",
                {"tensor": name},
            )
        dim = placement.dim
        split_factor = getattr(placement, "split_factor", None)
        if split_factor is None and not placement.is_shard():
            raise Error("UNSUPPORTED", f"{name!r} has the placement {placement}", {"tensor": name})
        chunks, index = mesh_shape[mesh_dim], coordinate[mesh_dim]
        pieces = [dimensions[dim]] if split_factor is None else _chunks(dimensions[dim], int(split_factor))
        dimensions[dim] = _merged([interval for piece in pieces for interval in _chunks(piece, chunks)[index]])
    return [intervals or [(size, size)] for intervals, size in zip(dimensions, global_shape, strict=True)]


def _chunks(intervals: Intervals, count: int) -> list[Intervals]:
    """Cuts as torch.chunk does, with empty chunks at the end if there are too few elements."""
    total = sum(stop - start for start, stop in intervals)
    size = -(-total // count)
    result = []
    for i in range(count):
        low, high = min(i * size, total), min((i + 1) * size, total)
        part, at = [], 0
        for start, stop in intervals:
            a, b = max(low - at, 0), min(high - at, stop - start)
            if a < b:
                part.append((start + a, start + b))
            at += stop - start
        result.append(part)
    return result


def _merged(intervals: Intervals) -> Intervals:
    result: Intervals = []
    for start, stop in intervals:
        if result and result[-1][1] == start:
            result[-1] = (result[-1][0], stop)
        elif start < stop:
            result.append((start, stop))
    return result
