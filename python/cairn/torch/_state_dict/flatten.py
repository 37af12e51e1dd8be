"""Turns a state dict, nested in any way, into the flat state of a client, and back.

A dict or list that holds tensors is taken apart, and each item has a name, which joins the keys by ".". Any other value
is one object, also a dict of values in any depth: a save stores it, and a load replaces it, as a whole. A dict with a
key that names a rank ("rank3", "dp_rank_3") is taken apart as well: each rank has a key of its own there.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy
import torch

from cairn._base.errors import Error
from cairn._base.results import listed as first_names
from cairn._gpu.device_array import is_on_device
from cairn._state import serializers
from cairn._state.entries import Alias, ObjectWish, PerRank, Shard, WantedObject
from cairn._state.opaque import find, without_unwanted
from cairn.torch._state_dict.parameter_names import groups_with_names, is_optimizer_state, listed, numbers_of
from cairn.torch._state_dict.shard_cache import CachedDict, ShardCache
from cairn.torch._state_dict.stored_values import ABSENT, StoredValues, fill, is_empty, plain
from cairn.torch._tensors.host_copies import DeviceCopies
from cairn.torch._tensors.subclasses import inner_tensors_of
from cairn.torch._tensors.tensor_shards import shards_of
from cairn.torch._tensors.tied_weights import Ties

_log = logging.getLogger("cairn")

# Deeper states are refused, among them those that hold themselves.
_MAX_DEPTH = 200
# The key that torch gives to the extra state of a module, after the module's name and a dot.
_EXTRA_STATE = "_extra_state"
# Loaders of torchtitan have such a key for the state of each data-parallel rank, and many programs do the same by hand.
_RANK_KEY = re.compile(r"(?:.*[_-])?rank[_-]?[0-9]+", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Form:
    """A way in which a state dict's tensors have been named and stored.

    Attributes:
      numbered: an optimizer's tensors are named by the numbers of its parameters, also where the state names them.
      extra_as_tensors: the extra state of a module, where it is a tensor, is stored as one.
    """

    numbered: bool = False
    extra_as_tensors: bool = False


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


@dataclasses.dataclass
class _Place:
    """Where a value stands.

    Attributes:
      put: replaces it by a loaded one.
    """

    value: Any
    put: Callable[[Any], None]


class FlatState:
    """A flat state over the memory of a state dict's tensors.

    Attributes:
      state: name -> shards, other tensors and objects, as Client.save takes them; of a load, wishes for objects.
      copies: of the tensors on devices that are none of CUDA's, whose stand-ins are in `state`.
    """

    def __init__(self) -> None:
        self.state = _State()
        self.places: dict[str, _Place] = {}
        # Optimizer states that are loaded by numbers, each with the names of its parameters in their order.
        self.renamed: list[tuple[dict[str, Any], list[str]]] = []
        self.copies = DeviceCopies()

    def put(self, objects: dict[str, Any], missing: Iterable[str] = ()) -> tuple[list[str], list[str]]:
        """Takes over what a load brought: tensors on devices, and the values that are no tensors.

        Args:
          missing: names that the load did not find, of tensors and of objects.

        Returns:
          The names of `missing` that are not there in any other way either, and those of stored values that belong to a
          dict of the state, but whose keys cannot be told.

        Raises:
          Error: UNSUPPORTED (a value that is wanted is, or holds, what only another library's code could make). No
            value is replaced then. What stands under a key that the state lacks is left out, and the log says so.
        """
        self.copies.to_devices()
        stored = StoredValues(objects)
        found: dict[str, Any] = {}
        left_out: list[str] = []
        for name, place in self.places.items():
            own = isinstance(place.value, PerRank)
            value = objects.get(name, ABSENT) if own else stored.find(name, place.value)
            if value is ABSENT:
                continue
            value = without_unwanted(value, place.value, name, left_out)
            opaque = find(value, name)
            if opaque is not None:
                raise Error("UNSUPPORTED", f"{opaque[0]!r} is {opaque[1].description} in the source, which cannot be "
                            "made without running its code: leave it out of the state, or save it as plain values",
                            {"object": name})
            found[name] = value
        if left_out:
            _log.warning("The source has %d values that cannot be made without running another library's code, and for "
                         "which the state has no key. They are left out: %s", len(left_out), first_names(left_out))
        for name, value in found.items():
            self.places[name].put(value)
        for state, names in self.renamed:
            state["param_groups"] = groups_with_names(state["param_groups"], names)
        in_parts = WantedObject(ObjectWish.IN_PARTS)
        absent = {name for name in self.places if name not in found and self.state[name] == in_parts}
        return sorted(absent.union(missing).difference(found)), stored.unplaced


def is_dcp_directory(path: str | os.PathLike[str]) -> bool:
    """Returns whether torch.distributed.checkpoint wrote a directory to its end."""
    return os.path.isfile(os.path.join(os.fspath(path), ".metadata"))


def flatten(state_dict: dict[str, Any], as_dcp: bool = False, cache: ShardCache | None = None, to_load: bool = False,
            form: Form = Form()) -> FlatState:
    """Joins the keys of each leaf by ".".

    Args:
      as_dcp: takes apart what torch.distributed.checkpoint takes apart, so that the names are the same: also dicts and
        lists without tensors; empty dicts then have no name.
      cache: of the state dict of the last save. The flat state may then only be used while the tensors live.
      to_load: the state is the target of a load.
      form: how what is loaded was stored.

    Tensors that are the same memory seen in the same way (tied weights) become one tensor and its aliases. Tensors that
    are made of others (wrapper subclasses) become these, as inner_tensors_of() names them.

    Raises:
      Error: BAD_REQUEST (no dict, or one that holds itself), BAD_NAME (a key is neither text nor a number),
        NAME_COLLISION (two leaves get one name), UNSUPPORTED (a tuple with tensors; the target of a load whose elements
        share memory), and as inner_tensors_of() and shards_of() of each tensor.
    """
    if not isinstance(state_dict, dict):
        raise Error("BAD_REQUEST", f"the state must be a dict, not {type(state_dict).__name__}")
    flat = FlatState()
    ties = Ties()
    walk = _Walk(as_dcp, cache, flat.copies, form)
    for leaf in walk.leaves(state_dict, "", 0):
        value = leaf.value
        if isinstance(value, CachedDict):
            if flat.state.keys().isdisjoint(value.state) and ties.add(value.names, leaf.container.values()):
                flat.state.update(value.state)
                # A tensor may get other memory while copies go on (`p.data = other`), so its memory itself is kept.
                flat.state.kept.extend([each.untyped_storage() for each in leaf.container.values() if not each.is_cpu])
                continue
            for each in dataclasses.replace(walk, cache=None).leaves(leaf.container, leaf.name, 0):
                _add(flat, ties, each, to_load)
        else:
            _add(flat, ties, leaf, to_load)
    if form.numbered:
        flat.renamed = [(container, listed(container)) for container in _dicts(state_dict, 0)
                        if is_optimizer_state(container)
                        and numbers_of(container) is not None]
    if to_load:
        for key, value in state_dict.items():
            if walk.takes_apart(value, str(key)) and str(key) not in flat.state:
                flat.state[str(key)] = WantedObject(ObjectWish.PLACE)
    return flat


class _Leaf(NamedTuple):
    """A value that has a name; or a dict of tensors that is known, without a key."""

    name: str
    container: Any
    key: Any
    value: Any


def _add(flat: FlatState, ties: Ties, leaf: _Leaf, to_load: bool) -> None:
    """Takes one leaf."""
    name, value = leaf.name, leaf.value
    if isinstance(value, torch.Tensor):
        for part_name, part in inner_tensors_of(value, name):
            _check_free(flat, part_name)
            first = ties.first_of(part, part_name)
            flat.state[part_name] = shards_of(part, part_name, flat.copies) if first is None else Alias(first)
            if to_load:
                _check_can_be_filled(part, part_name)
        return
    _check_free(flat, name)
    if isinstance(value, (Shard, Alias, numpy.ndarray)) or is_on_device(value):
        flat.state[name] = value
    else:
        inner = value.value if isinstance(value, Whole) else value
        if isinstance(inner, _ExtraState):
            inner = inner.tensor.detach().cpu()  # an array on a device would be a tensor
        if not to_load:
            flat.state[name] = plain(inner)
        elif isinstance(inner, PerRank):
            flat.state[name] = WantedObject(ObjectWish.WHOLE, per_rank=True)
        else:
            flat.state[name] = WantedObject(ObjectWish.IF_THERE if is_empty(inner) else ObjectWish.IN_PARTS)
        flat.places[name] = _Place(inner, _restorer(leaf))


def _check_free(flat: FlatState, name: str) -> None:
    if name in flat.state:
        raise Error("NAME_COLLISION", f"two entries of the state dict have the name {name!r} when their keys are "
                    "joined by '.'", {"tensor": name})


def _check_can_be_filled(tensor: torch.Tensor, name: str) -> None:
    if 0 in tensor.stride() and tensor.numel() and any(
            stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        raise Error("UNSUPPORTED", f"{name!r} is the target of a load, and its elements share memory (expand())",
                    {"tensor": name, "next": "Give the load a tensor with memory for each element: tensor.clone()."})


def _restorer(leaf: _Leaf) -> Callable[[Any], None]:
    """Returns what puts a loaded value in the place of a leaf. What is wrapped stays wrapped, so that the dict can be
    saved again."""
    container, key, value = leaf.container, leaf.key, leaf.value

    def put(loaded: Any) -> None:
        if isinstance(value, PerRank):
            container[key] = type(value)(loaded)
        elif isinstance(value, Whole):
            container[key] = Whole(type(value.value)(loaded) if isinstance(value.value, PerRank) else loaded)
        elif isinstance(value, _ExtraState):
            container[key] = loaded.to(value.tensor.device) if isinstance(loaded, torch.Tensor) else loaded
        else:
            container[key] = fill(value, loaded)
    return put


class _ExtraState:
    """A tensor that is the extra state of a module: a value of the module's own, which may get another shape."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


@dataclasses.dataclass(frozen=True)
class _Walk:
    """Goes through a state dict; see flatten()."""

    as_dcp: bool
    cache: ShardCache | None
    copies: DeviceCopies
    form: Form

    def takes_apart(self, value: Any, path: str) -> bool:
        """Returns whether the items of a value have names of their own."""
        if isinstance(value, dict) and value and isinstance(next(iter(value.values())), torch.Tensor):
            return True  # as most dicts of a state
        if isinstance(value, torch.Tensor):
            return False
        if self.as_dcp:
            return _is_taken_apart_by_dcp(value, path, 0)
        return isinstance(value, (dict, list)) and _holds_tensor(value, path, 0)

    def leaves(self, container: Any, path: str, depth: int, numbers: dict[Any, int] | None = None) -> Iterator[_Leaf]:
        """Yields all leaves. A dict that `cache` knows is one leaf: its path, itself, no key, its CachedDict.

        Args:
          numbers: take the place of these keys.
        """
        if depth > _MAX_DEPTH:
            raise _too_deep(path)
        prefix = f"{path}." if path else ""
        if self.cache is not None and isinstance(container, dict):
            cached = self.cache.find(path, container, self.copies)
            if cached is not None:
                yield _Leaf(path, container, None, cached)
                return
            if not _has_extra_state(container):
                self.cache.learn(path, prefix, container, self.copies)
        items: Iterable[tuple[Any, Any]] = (container.items() if isinstance(container, Mapping)
                                            else enumerate(container))
        for key, value in items:
            if not isinstance(key, (str, int)):
                raise Error("BAD_NAME", f"the key {key!r} (below {path!r}) is no text and no integer, and stands in a "
                            "dict with tensors, whose keys are parts of names",
                            {"next": "Make it a text, such as str(key), when you save, and look values up by it after "
                                     "a load. Dicts without tensors may have any keys that are values."})
            try:
                name = f"{prefix}{key if numbers is None else numbers.get(key, key)}"
            except ValueError as error:  # an integer that Python does not write
                raise Error("BAD_NAME", f"a key of the state dict below {path!r} cannot be part of a name: {error}",
                            {"object": path[:200]}) from None
            if isinstance(value, torch.Tensor):
                own = _is_extra_state(key, value) and not self.as_dcp and not self.form.extra_as_tensors
                yield _Leaf(name, container, key, _ExtraState(value) if own else value)
            elif self.takes_apart(value, name):
                numbered = self.form.numbered and key == "state" and is_optimizer_state(container)
                yield from self.leaves(value, name, depth + 1,
                                       numbers_of(container) if numbered else None)
            elif isinstance(value, tuple) and _holds_tensor(value, name, 0, arrays=False):
                raise Error("UNSUPPORTED", f"{name!r} is a tuple with tensors, which cannot be filled in place",
                            {"tensor": name, "next": "Make it a list, or wrap it in cairn.per_rank if it is small and "
                                                     "each rank has its own."})
            else:
                yield _Leaf(name, container, key, value)


def forms_of(state_dict: dict[str, Any]) -> list[Form]:
    """Returns the forms in which a state dict may have been stored, the present one first."""
    if not isinstance(state_dict, dict):
        return [Form()]  # flatten() refuses it
    numbered, extra = False, False
    for container in _dicts(state_dict, 0):
        if is_optimizer_state(container):
            numbered = numbered or numbers_of(container) is not None
        elif not extra and _has_extra_state(container):
            extra = any(isinstance(item, torch.Tensor) and _is_extra_state(key, item)
                        for key, item in container.items())
    return [Form(by_number, as_tensor) for as_tensor in ([False, True] if extra else [False])
            for by_number in ([False, True] if numbered else [False])]


def _dicts(value: dict[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    """Yields the dicts of a state, without those within an optimizer's."""
    yield value
    if depth < _MAX_DEPTH and not is_optimizer_state(value):
        for item in value.values():
            if isinstance(item, dict):
                yield from _dicts(item, depth + 1)


def _has_extra_state(container: dict[Any, Any]) -> bool:
    return any(_names_extra_state(key) for key in container)


def _names_extra_state(key: Any) -> bool:
    return isinstance(key, str) and (key == _EXTRA_STATE or key.endswith(f".{_EXTRA_STATE}"))


def _names_ranks(container: dict[Any, Any]) -> bool:
    """Returns whether a dict has an item of one rank. Keys that cannot be parts of names keep it whole."""
    return (any(isinstance(key, str) and "rank" in key and _RANK_KEY.fullmatch(key) for key in container)
            and all(isinstance(key, (str, int)) for key in container))


def _is_extra_state(key: Any, tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is stored as a value. A large one is stored as the tensor that it is."""
    return (_names_extra_state(key) and type(tensor) is torch.Tensor
            and tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_meta
            and not tensor.is_nested
            and tensor.nbytes <= serializers.MAX_ARRAY_BYTES)


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


def _holds_tensor(value: Any, path: str, depth: int, arrays: bool = True) -> bool:
    """Returns whether a container holds what is no object. Arrays of numpy in a tuple can be part of an object.

    A module with an extra state may have a tensor there at another time, and an optimizer gets tensors with its first
    step, so their dicts are taken apart in any case, and so are dicts with keys that name ranks.
    """
    if depth > _MAX_DEPTH:
        raise _too_deep(path)
    if isinstance(value, (dict, list, tuple)):
        items = value.values() if isinstance(value, dict) else value
        for item in items:
            if isinstance(item, torch.Tensor):  # mostly the first one
                return True
        if arrays and isinstance(value, dict) and (_has_extra_state(value) or is_optimizer_state(value)
                                                   or _names_ranks(value)):
            return True
        return any(_holds_tensor(item, path, depth + 1, arrays) for item in items)
    if isinstance(value, numpy.ndarray):
        return arrays
    return isinstance(value, (torch.Tensor, Shard, Alias, PerRank, Whole)) or is_on_device(value)
