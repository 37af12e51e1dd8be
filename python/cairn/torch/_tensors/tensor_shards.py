"""Describes what a rank holds of a tensor, as shards over the tensor's own memory."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import torch

from cairn._base.arrays import Array
from cairn._base.errors import Error
from cairn._gpu.device_array import DeviceArray
from cairn._state.entries import Shard
from cairn.torch._tensors.dtensor_boxes import boxes_of
from cairn.torch._tensors.host_copies import DeviceCopies
from cairn.torch._tensors.subclasses import local_of, plain

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # a torch without distributed
    DTensor = None

_RAW_VIEW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# How arrays of the elements' bits are described, by their width.
RAW_DTYPE: dict[int, numpy.dtype[Any]] = {width: numpy.dtype(name)
                                           for width, name in ((1, "u1"), (2, "i2"), (4, "i4"), (8, "i8"), (16, "c16"))}


def shards_of(tensor: torch.Tensor, name: str, copies: DeviceCopies) -> Shard | list[Shard]:
    """Returns what this rank holds of a tensor.

    Args:
      name: the tensor's, for errors.
      copies: gets the tensor, if its memory is on a device that is not one of CUDA's.

    Raises:
      Error: UNSUPPORTED (sparse, quantized, nested, without a shape, made of other tensors, a ShardedTensor, a lazy
        conjugate or a strange placement), BAD_REQUEST (on the meta device, or a partial sum), BAD_SHAPE (the local
        tensor is not what its placements say), BAD_DTYPE.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    if DTensor is not None and isinstance(tensor, DTensor):
        return _shards_of_dtensor(tensor, dtype, name, copies)
    if type(tensor).__name__ == "ShardedTensor":
        raise Error("UNSUPPORTED", f"{name!r} is a ShardedTensor, which torch has replaced by DTensor",
                    {"tensor": name})
    array = array_of(tensor, name, copies)
    return Shard(array, array.shape, (0,) * array.ndim, dtype=dtype)


def _shards_of_dtensor(tensor: Any, dtype: str, name: str, copies: DeviceCopies) -> Shard | list[Shard]:
    global_shape = tuple(tensor.shape)
    coordinate = tensor.device_mesh.get_coordinate()
    local = local_of(tensor)
    if coordinate is None:  # this rank is not part of the mesh and holds nothing
        empty = array_of(local.new_empty((0,) * len(global_shape)), name, copies)
        return Shard(empty, global_shape, (0,) * len(global_shape), dtype=dtype)
    boxes = boxes_of(global_shape, tuple(tensor.device_mesh.shape), tuple(coordinate), tensor.placements, name)
    array = array_of(local, name, copies)
    expected = tuple(sum(stop - start for start, stop in intervals) for intervals in boxes)
    if array.shape != expected:
        raise Error("BAD_SHAPE", f"{name!r}: this rank holds {array.shape} of {global_shape}, its placements "
                    f"{tensor.placements} say {expected}", {"tensor": name})
    # Each dimension is a list of intervals that follow one another in the local tensor. Their products are the boxes.
    shards = []
    local_spans = [list(itertools.pairwise(itertools.accumulate([stop - start for start, stop in intervals],
                                                                initial=0))) for intervals in boxes]
    pairs = [list(zip(intervals, spans, strict=True)) for intervals, spans in zip(boxes, local_spans, strict=True)]
    for choice in itertools.product(*pairs):
        # numpy would give a number for no dimensions.
        part = array[tuple(slice(*span) for _, span in choice)] if choice else array
        shards.append(Shard(part, global_shape, [start for (start, _), _ in choice], dtype=dtype))
    return shards[0] if len(shards) == 1 else shards


def array_of(tensor: torch.Tensor, name: str, copies: DeviceCopies) -> Array | DeviceArray:
    """Returns a local tensor's memory as an array of raw elements; that of a stand-in on the host if it is on a device
    that is not one of CUDA's."""
    tensor = plain(tensor, name)
    if tensor.is_meta:
        raise Error("BAD_REQUEST", f"{name!r} is on the meta device: it has no data", {"tensor": name})
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise Error("UNSUPPORTED", f"{name!r} is sparse or quantized", {"tensor": name})
    if tensor.is_conj() or tensor.is_neg():
        raise Error("UNSUPPORTED", f"{name!r} is a lazy conjugate or negative: use .resolve_conj() or .resolve_neg()",
                    {"tensor": name})
    width = tensor.element_size()
    if is_cuda(tensor.device) and width in RAW_DTYPE:
        return DeviceArray(tensor.data_ptr(), tuple(tensor.shape), tuple(step * width for step in tensor.stride()),
                           RAW_DTYPE[width], copies.stream_of(tensor.device), tensor)
    if tensor.device.type != "cpu":
        host = torch.empty_like(tensor, device="cpu", memory_format=torch.contiguous_format)
        copies.add(tensor, host)
        tensor = host
    if width == 16:  # no raw element of that width; numpy knows complex128
        whole: Array = tensor.numpy()
        return whole
    try:
        raw: Array = tensor.view(_RAW_VIEW[width]).numpy()
        return raw
    except (KeyError, RuntimeError, TypeError) as error:
        raise Error("BAD_DTYPE", f"{name!r}: {tensor.dtype}: {error}", {"tensor": name}) from None


def is_cuda(device: torch.device) -> bool:
    """ROCm calls its devices the same, and has another driver."""
    return device.type == "cuda" and torch.version.hip is None
