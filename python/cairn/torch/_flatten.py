"""Turns a state dict, nested in any way, into the flat state of a client, and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy
import torch

from cairn import _opaque
from cairn._device_array import is_on_device
from cairn._errors import Error
from cairn._state import Alias, PerRank, Shard
from cairn.torch._copies import DeviceCopies
from cairn.torch._shards import shards_of


class FlatState:
    """A flat state over the memory of a state dict's tensors.

    Attributes:
      state: name -> shards, other tensors and objects, as Client.save takes them.
      objects: where a loaded object goes, by name.
      copies: of the tensors on devices that are none of CUDA's, whose stand-ins are in `state`.
    """

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.objects: dict[str, Callable[[Any], None]] = {}
        self.copies = DeviceCopies()

    def put(self, objects: dict[str, Any]) -> None:
        """Takes over what a load brought: tensors on devices, and the values that are no tensors.

        Raises:
          Error: UNSUPPORTED (a value that is wanted is, or holds, what only another library's code could make).
        """
        self.copies.to_devices()
        for name in self.objects.keys() & objects.keys():
            found = _opaque.find(objects[name], name)
            if found is not None:
                raise Error("UNSUPPORTED", f"{found[0]!r} is {found[1].description} in the source, which cannot be "
                            "made without running its code: leave it out of the state, or save it as plain values",
                            {"object": name})
        for name, put in self.objects.items():
            if name in objects:
                put(objects[name])


def is_dcp_directory(path: str | os.PathLike[str]) -> bool:
    """Returns whether torch.distributed.checkpoint wrote a directory to its end."""
    return os.path.isfile(os.path.join(os.fspath(path), ".metadata"))


def flatten(state_dict: dict[str, Any], as_dcp: bool = False) -> FlatState:
    """Joins the keys of each leaf by ".".

    Args:
      as_dcp: takes apart what torch.distributed.checkpoint takes apart, so that the names are the same: also lists of
        dicts, and empty dicts, which then have no name.

    Raises:
      Error: BAD_REQUEST (no dict), BAD_NAME (a key is neither text nor a number), NAME_COLLISION (two leaves get one
        name), UNSUPPORTED (a tuple with tensors), and as shards_of() of each tensor.
    """
    if not isinstance(state_dict, dict):
        raise Error("BAD_REQUEST", f"the state must be a dict, not {type(state_dict).__name__}")
    flat = FlatState()
    for name, value, put in _leaves(state_dict, "", as_dcp):
        if name in flat.state:
            raise Error("NAME_COLLISION", f"two entries of the state dict have the name {name!r} when their keys are "
                        "joined by '.'", {"tensor": name})
        if isinstance(value, torch.Tensor):
            flat.state[name] = shards_of(value, name, flat.copies)
        elif isinstance(value, (Shard, Alias, numpy.ndarray)) or is_on_device(value):
            flat.state[name] = value
        else:
            flat.state[name] = value
            flat.objects[name] = _restorer(value, put)
    return flat


def _restorer(value: Any, put: Callable[[Any], None]) -> Callable[[Any], None]:
    """Keeps a wrapped value wrapped, so that the dict can be saved again."""
    if isinstance(value, PerRank):
        return lambda loaded: put(PerRank(loaded))
    return put


def _leaves(container: Any, path: str, as_dcp: bool) -> Iterator[tuple[str, Any, Callable[[Any], None]]]:
    """Yields name, value and setter of all leaves. Lists without tensors, and empty containers, are leaves."""
    items: Iterable[tuple[Any, Any]] = container.items() if isinstance(container, Mapping) else enumerate(container)
    for key, value in items:
        if not isinstance(key, (str, int)):
            raise Error("BAD_NAME", f"the keys of a state dict are strings or integers, not {key!r} (below {path!r})")
        name = f"{path}.{key}" if path else str(key)
        if _is_taken_apart_by_dcp(value) if as_dcp else (
                (isinstance(value, dict) and value) or (isinstance(value, list) and _holds_tensor(value))):
            yield from _leaves(value, name, as_dcp)
        elif isinstance(value, tuple) and _holds_tensor(value):
            raise Error("UNSUPPORTED", f"{name!r} is a tuple with tensors, which cannot be filled in place: use a list")
        else:
            yield name, value, _setter(container, key)


def _is_taken_apart_by_dcp(value: Any) -> bool:
    """Follows traverse_state_dict of torch.distributed.checkpoint."""
    if isinstance(value, list):
        return any(isinstance(item, torch.Tensor) or _is_taken_apart_by_dcp(item) for item in value)
    return isinstance(value, Mapping)


def _setter(container: Any, key: str | int) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        container[key] = value
    return put


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_tensor(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_tensor(item) for item in value)
    return isinstance(value, (torch.Tensor, Shard, PerRank, numpy.ndarray)) or is_on_device(value)
