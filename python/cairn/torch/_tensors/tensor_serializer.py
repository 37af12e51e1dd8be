"""Lets small tensors stand in objects, as the state of a random number generator does."""

from __future__ import annotations

import torch

from cairn._base.errors import Error
from cairn._state.serializers import MAX_ARRAY_BYTES, register_serializer, too_large


def register() -> None:
    """Makes plain tensors known as parts of objects. They come back on the host."""
    register_serializer(torch.Tensor, "torch.Tensor", _to_bytes, _from_bytes)


def _to_bytes(tensor: torch.Tensor) -> bytes:
    """The bytes begin with a line: the dtype and the shape."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_nested:
        raise Error("UNSUPPORTED", "a tensor in an object is sparse, quantized, nested or on the meta device")
    if tensor.nbytes > MAX_ARRAY_BYTES:
        raise too_large("a tensor", tensor.nbytes)
    head = " ".join([str(tensor.dtype).removeprefix("torch."), *map(str, tensor.shape)])
    raw = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return head.encode() + b"\n" + bytes(raw.numpy())


def _from_bytes(data: bytes) -> torch.Tensor:
    head, _, raw = data.partition(b"\n")
    name, *shape = head.decode().split(" ")
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype of torch is named {name!r}")
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape([int(size) for size in shape]) if raw else (
        torch.empty([int(size) for size in shape], dtype=dtype))
