"""Loads directories of safetensors files into tensors of PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, SupportsIndex

import torch

from cairn._base.arrays import Array
from cairn._base.errors import Error
from cairn._safetensors.targets import Renaming
from cairn._state.entries import ObjectWish, WantedObject
from cairn.safetensors import LoadedFiles, Source, load_with
from cairn.torch._state_dict.flatten import flatten
from cairn.torch._tensors.host_copies import DeviceCopies
from cairn.torch._tensors.tensor_shards import shards_of

# As cairn.safetensors.Placement, with torch's dtypes.
TorchPlacement = Callable[[str, tuple[int, ...], Any], Any]


def load_safetensors(directory: Source, state_dict: dict[str, Any] | TorchPlacement, *, names: Renaming | None = None,
                     strict: bool = True, shared: bool | None = None, threads: SupportsIndex | None = None,
                     timeout: float = 1800) -> LoadedFiles:
    """Fills tensors from a directory of safetensors files, without an agent: cairn.load_safetensors for PyTorch.

    Args:
      state_dict: as for load(): model.state_dict(), with tensors on any device and DTensors, which are filled in place.
        Or a placement, which is called with name, shape and torch's dtype of each tensor, and returns None (not
        wanted), a slice or a tuple of slices, ... for the whole (a tensor is made, on the host), a tensor and such
        slices, or a tensor.
      directory, names, strict, shared, threads, timeout: as for cairn.load_safetensors. Copies to devices that are none
        of CUDA's come after, and are not counted.

    Returns:
      What was loaded, and how. Its `tensors` are those that a placement made or gave; else the state dict.

    Raises:
      Error: as save() of what the state dict holds, and as cairn.load_safetensors.
    """
    if callable(state_dict):
        return _load_placed(directory, state_dict, names=names, shared=shared, threads=threads, timeout=timeout)
    flat = flatten(state_dict, to_load=True)
    state = {name: value for name, value in flat.state.items()
             if not (isinstance(value, WantedObject) and value.wish == ObjectWish.PLACE)}
    files = load_with(directory, state, _to_tensor, names=names, strict=strict, shared=shared, threads=threads,
                      timeout=timeout)
    flat.copies.to_devices()
    return dataclasses.replace(files, tensors=state_dict)


def _load_placed(directory: Source, placement: TorchPlacement, **options: Any) -> LoadedFiles:
    given: dict[str, torch.Tensor] = {}
    copies = DeviceCopies()

    def place(name: str, shape: tuple[int, ...], dtype: str) -> Any:
        wanted = placement(name, shape, getattr(torch, dtype, dtype))
        if isinstance(wanted, torch.Tensor):
            given[name] = wanted
            return shards_of(wanted, name, copies)
        if isinstance(wanted, tuple) and len(wanted) == 2 and isinstance(wanted[0], torch.Tensor):
            given[name] = wanted[0]
            return shards_of(wanted[0], name, copies), wanted[1]
        return wanted

    files = load_with(directory, place, _to_tensor, strict=True, **options)
    copies.to_devices()
    return dataclasses.replace(files, tensors={**files.tensors, **given})


def _to_tensor(name: str, array: Array, dtype: str) -> torch.Tensor:
    """Returns a tensor over an array of raw elements. Raises BAD_DTYPE."""
    known = getattr(torch, dtype, None)
    if known is None:
        raise Error("BAD_DTYPE", f"this torch has no {dtype}, which {name!r} is",
                    {"tensor": name, "next": "Take a newer torch."})
    if array.size == 0:  # torch gives it strides of zero
        return torch.empty(array.shape, dtype=known)
    return torch.from_numpy(array).view(known)
