"""Finds tensors of a state dict that are one: tied weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from cairn.torch._tensors.subclasses import local_of

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # a torch without distributed
    DTensor = None


class Ties:
    """Remembers tensors by the memory that they are. Lives no longer than they do."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._tensors: dict[Any, torch.Tensor] = {}

    def first_of(self, tensor: torch.Tensor, name: str) -> str | None:
        """Returns the name of the earlier tensor that this one is; None if there is none, and remembers it then.

        Two are one if they are the same elements of the same memory in the same shape. All ranks must see the same
        ties, so a DTensor of which this rank holds nothing is known by its storage, which is there all the same.
        """
        local = local_of(tensor) if DTensor is not None and isinstance(tensor, DTensor) else tensor
        if local.layout != torch.strided or local.is_meta or local.is_quantized:
            return None
        key: Any = local.data_ptr()
        if not key:  # no elements
            if local is tensor:
                return None
            key = ("empty", local.untyped_storage()._cdata, local.storage_offset())
        first = self._names.setdefault(key, name)
        other = self._tensors.setdefault(key, tensor)
        if other is tensor and first == name:
            return None
        return first if _is_same(tensor, other) else None


    def add(self, names: Mapping[int, str], tensors: Iterable[torch.Tensor]) -> bool:
        """Remembers tensors that are distinct, by where their memory begins. False, with nothing done, if another one
        begins at one of these places."""
        if not self._names.keys().isdisjoint(names):
            return False
        self._names.update(names)
        self._tensors.update(zip(names, tensors, strict=True))
        return True


def _is_same(one: Any, other: Any) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape or one.stride() != other.stride():
        return False
    # A lazy conjugate or negative has the memory of its base, and other values.
    if one.is_conj() != other.is_conj() or one.is_neg() != other.is_neg():
        return False
    if DTensor is None or not isinstance(one, DTensor):
        return DTensor is None or not isinstance(other, DTensor)
    if not isinstance(other, DTensor):
        return False
    return bool(one.placements == other.placements and one.device_mesh == other.device_mesh
                and local_of(one).stride() == local_of(other).stride())
