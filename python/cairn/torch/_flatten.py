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
from cairn.torch._blocks import Block, Blocks
from cairn.torch._copies import DeviceCopies
from cairn.torch._parts import parts_of
from cairn.torch._shards import shards_of
from cairn.torch._ties import Ties

# Deeper states are refused, among them those that hold themselves.
_MAX_DEPTH = 200


class Whole:
    """A value of a state dict that is one object, though it may be a dict. It is replaced as a whole by a load."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _State(dict[str, Any]):
    """A flat state, and what its arrays need.

    Attributes:
      kept: memory on devices that no array of the state keeps alive.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[torch.UntypedStorage] = []


class FlatState:
    """A flat state over the memory of a state dict's tensors.

    Attributes:
      state: name -> shards, other tensors and objects, as Client.save takes them.
      objects: where a loaded object goes, by name.
      copies: of the tensors on devices that are none of CUDA's, whose stand-ins are in `state`.
    """

    def __init__(self) -> None:
        self.state = _State()
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


def flatten(state_dict: dict[str, Any], as_dcp: bool = False, blocks: Blocks | None = None) -> FlatState:
    """Joins the keys of each leaf by ".".

    Args:
      as_dcp: takes apart what torch.distributed.checkpoint takes apart, so that the names are the same: also lists of
        dicts, and empty dicts, which then have no name.
      blocks: of the state dict of the last save. The flat state may then only be used while the tensors live.

    Tensors that are the same memory seen in the same way (tied weights) become one tensor and its aliases. Tensors that
    are made of others (wrapper subclasses) become these, as parts_of() names them.

    Raises:
      Error: BAD_REQUEST (no dict, or one that holds itself), BAD_NAME (a key is neither text nor a number),
        NAME_COLLISION (two leaves get one name), UNSUPPORTED (a tuple with tensors), and as parts_of() and
        shards_of() of each tensor.
    """
    if not isinstance(state_dict, dict):
        raise Error("BAD_REQUEST", f"the state must be a dict, not {type(state_dict).__name__}")
    flat = FlatState()
    ties = Ties()
    for name, container, key, value in _leaves(state_dict, "", as_dcp, blocks, flat.copies, 0):
        if isinstance(value, Block):
            if flat.state.keys().isdisjoint(value.state) and ties.add(value.names, container.values()):
                flat.state.update(value.state)
                # A tensor may get other memory while copies go on (`p.data = other`), so its memory itself is kept.
                flat.state.kept.extend([each.untyped_storage() for each in container.values() if not each.is_cpu])
                continue
            leaves = _leaves(container, name, as_dcp, None, flat.copies, 0)
        else:
            leaves = iter([(name, container, key, value)])
        for leaf in leaves:
            _add(flat, ties, *leaf)
    return flat


def _add(flat: FlatState, ties: Ties, name: str, container: Any, key: Any, value: Any) -> None:
    """Takes one leaf."""
    if isinstance(value, torch.Tensor):
        for part_name, part in parts_of(value, name):
            _check_free(flat, part_name)
            first = ties.first_of(part, part_name)
            flat.state[part_name] = shards_of(part, part_name, flat.copies) if first is None else Alias(first)
        return
    _check_free(flat, name)
    if isinstance(value, (Shard, Alias, numpy.ndarray)) or is_on_device(value):
        flat.state[name] = value
    else:
        flat.state[name] = value.value if isinstance(value, Whole) else value
        flat.objects[name] = _restorer(value, _setter(container, key))


def _check_free(flat: FlatState, name: str) -> None:
    if name in flat.state:
        raise Error("NAME_COLLISION", f"two entries of the state dict have the name {name!r} when their keys are "
                    "joined by '.'", {"tensor": name})


def _restorer(value: Any, put: Callable[[Any], None]) -> Callable[[Any], None]:
    """Keeps a wrapped value wrapped, so that the dict can be saved again."""
    if isinstance(value, PerRank):
        return lambda loaded: put(PerRank(loaded))
    if isinstance(value, Whole):
        return lambda loaded: put(Whole(PerRank(loaded) if isinstance(value.value, PerRank) else loaded))
    return put


def _leaves(container: Any, path: str, as_dcp: bool, blocks: Blocks | None, copies: DeviceCopies,
            depth: int) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yields name, container, key and value of all leaves. Lists without tensors, and empty containers, are leaves.

    A dict that `blocks` knows is one leaf: its path, itself, no key, its Block.
    """
    if depth > _MAX_DEPTH:
        raise _too_deep(path)
    if blocks is not None and isinstance(container, dict):
        block = blocks.find(path, container, copies)
        if block is not None:
            yield path, container, None, block
            return
        blocks.learn(path, f"{path}." if path else "", container, copies)
    items: Iterable[tuple[Any, Any]] = container.items() if isinstance(container, Mapping) else enumerate(container)
    prefix = f"{path}." if path else ""
    for key, value in items:
        if not isinstance(key, (str, int)):
            raise Error("BAD_NAME", f"the keys of a state dict are strings or integers, not {key!r} (below {path!r})")
        try:
            name = f"{prefix}{key}"
        except ValueError as error:  # an integer that Python does not write
            raise Error("BAD_NAME", f"a key of the state dict below {path!r} cannot be part of a name: {error}",
                        {"object": path[:200]}) from None
        if isinstance(value, torch.Tensor):
            yield name, container, key, value
        elif _is_taken_apart_by_dcp(value, name, 0) if as_dcp else (
                (isinstance(value, dict) and value) or (isinstance(value, list) and _holds_tensor(value, name, 0))):
            yield from _leaves(value, name, as_dcp, blocks, copies, depth + 1)
        elif isinstance(value, tuple) and _holds_tensor(value, name, 0, arrays=False):
            raise Error("UNSUPPORTED", f"{name!r} is a tuple with tensors, which cannot be filled in place",
                        {"tensor": name, "next": "Make it a list, or wrap it in cairn.per_rank if it is small and each "
                                                 "rank has its own."})
        else:
            yield name, container, key, value


def _too_deep(path: str) -> Error:
    return Error("BAD_REQUEST", f"{path[:200]!r}: nested more than {_MAX_DEPTH} levels deep (or in a circle)",
                 {"object": path[:200]})


def _is_taken_apart_by_dcp(value: Any, path: str, depth: int) -> bool:
    """Follows traverse_state_dict of torch.distributed.checkpoint."""
    if depth > _MAX_DEPTH:
        raise _too_deep(path)
    if isinstance(value, list):
        return any(isinstance(item, torch.Tensor) or _is_taken_apart_by_dcp(item, path, depth + 1) for item in value)
    return isinstance(value, Mapping)


def _setter(container: Any, key: str | int) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        container[key] = value
    return put


def _holds_tensor(value: Any, path: str, depth: int, arrays: bool = True) -> bool:
    """Returns whether a list or tuple holds what is no object. Arrays of numpy in a tuple can be part of an object."""
    if depth > _MAX_DEPTH:
        raise _too_deep(path)
    if isinstance(value, (dict, list, tuple)):
        items = value.values() if isinstance(value, dict) else value
        return any(_holds_tensor(item, path, depth + 1, arrays) for item in items)
    if isinstance(value, numpy.ndarray):
        return arrays
    return isinstance(value, (torch.Tensor, Shard, PerRank)) or is_on_device(value)
