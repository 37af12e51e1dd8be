"""Makes and checks the targets of a load: which part of which stored tensor goes into which array."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy

from cairn._base.arrays import Array
from cairn._base.errors import Error, shown
from cairn._base.results import listed
from cairn._gpu import device_array
from cairn._safetensors.directory import SafetensorsIndex, StoredTensor
from cairn._state import dtypes
from cairn._state.declared_boxes import DeclaredBox, boxes_of
from cairn._state.entries import Alias, Shard
from cairn._state.layout import LayoutBuilder

# Maps a name in the files to that in the state; None leaves the tensor out.
Renaming = Mapping[str, str] | Callable[[str], str | None]
# Says of a stored tensor (its name in the state, shape, dtype) what is wanted of it.
Placement = Callable[[str, tuple[int, ...], str], Any]

# Arrays of so many bytes and more begin where direct reads need no copy.
_PLACED_BYTES = 64 << 10
_BLOCK = 4096
# How arrays of the elements' bits are made, by their width.
_RAW = {1: "u1", 2: "i2", 4: "i4", 8: "i8", 16: "c16"}


class Tensors:
    """The stored tensors under the names of the state.

    Attributes:
      stored: name -> tensor, in the order of the files.
    """

    def __init__(self, index: SafetensorsIndex, names: Renaming | None) -> None:
        """Raises NAME_COLLISION, if two tensors get one name; BAD_NAME, if one gets none that is a text."""
        renamed = _renaming(names)
        self.stored: dict[str, StoredTensor] = {}
        self._directory = index.directory
        for tensor in index.values():
            name = renamed(tensor.name)
            if name is None:
                continue
            if not isinstance(name, str) or not name:
                raise Error("BAD_NAME", f"names gives {shown(name)} for {tensor.name!r}, which is no text",
                            {"tensor": tensor.name})
            if name in self.stored:
                raise Error("NAME_COLLISION", f"{self.stored[name].name!r} and {tensor.name!r} both get the name "
                            f"{name!r}", {"tensor": name})
            self.stored[name] = tensor
        self._ties = {name: index[target] for tied, target in index.ties.items()
                      if (name := renamed(tied)) is not None and name not in self.stored}

    def find(self, name: str) -> StoredTensor | None:
        return self.stored.get(name) or self._ties.get(name)

    def match(self, state: Mapping[str, Any], strict: bool) -> tuple[dict[str, Any], list[str], list[str]]:
        """Returns what of the state can be filled, and the names that only the state, only the files have.

        With `strict` both of the latter are refused, with MISSING_NAMES or UNEXPECTED_NAMES.
        """
        found, missing = dict[str, Any](), list[str]()
        used_names, used_tensors = set[str](), set[str]()
        second_names: dict[str, list[str]] = {}
        for name, value in state.items():
            if isinstance(value, Alias):
                second_names.setdefault(value.target, []).append(name)
        missing += [name for target, names in second_names.items() if target not in state for name in names]
        for name, value in state.items():
            if isinstance(value, Alias):
                continue
            own = [name, *second_names.get(name, ())]
            tensor = next((tensor for each in own if (tensor := self.find(each)) is not None), None)
            if tensor is None or not _is_tensor(value):
                missing += own
                continue
            found[name] = value
            used_names.update(own)
            used_tensors.add(tensor.name)
        unexpected = [name for name, tensor in self.stored.items()
                      if name not in used_names and tensor.name not in used_tensors]
        if strict and (missing or unexpected):
            raise self._names_error(missing, unexpected)
        return found, missing, unexpected

    def source_of(self, name: str, state: Mapping[str, Any]) -> StoredTensor:
        """Returns the tensor for a name that match() found."""
        tensor = self.find(name)
        if tensor is None:
            tensor = next(other for second, value in state.items() if isinstance(value, Alias)
                          and value.target == name and (other := self.find(second)) is not None)
        return tensor

    def _names_error(self, missing: list[str], unexpected: list[str]) -> Error:
        parts = [f"lacks {len(missing)} names that the state wants: {listed(missing)}"] if missing else []
        parts += [f"has {len(unexpected)} tensors that the state does not want: {listed(unexpected)}"] if (
            unexpected) else []
        names = missing or unexpected
        return Error("MISSING_NAMES" if missing else "UNEXPECTED_NAMES", f"{self._directory} {'; it '.join(parts)}",
                     {"names": listed(names), "count": str(len(names)),
                      "next": "Give `names`, if the files have other names for the same tensors (None leaves a tensor "
                      "out), or strict=False, if what both have is enough."})


def _renaming(names: Renaming | None) -> Callable[[str], str | None]:
    if names is None:
        return lambda name: name
    if isinstance(names, Mapping):
        return lambda name: names.get(name, name)
    if callable(names):
        return names
    raise Error("BAD_REQUEST", f"load_safetensors: names is a dict or a function, not {shown(names)}")


def _is_tensor(value: Any) -> bool:
    return (isinstance(value, (Shard, numpy.ndarray)) or device_array.is_on_device(value)
            or (isinstance(value, (list, tuple)) and any(isinstance(part, Shard) for part in value)))


def place(tensors: Tensors, placement: Placement) -> tuple[dict[str, Any], dict[str, Array]]:
    """Makes a state for what a placement wants. Returns it, and the arrays of raw elements that were made.

    Args:
      placement: returns None (not wanted), slices (a slice, or a tuple of slices; () or ... for the whole tensor), an
        array and slices, which the array is to hold; or what else a state may have under the name.

    Raises:
      Error: BAD_REQUEST (it returns something else), MEMORY_LIMIT.
    """
    state: dict[str, Any] = {}
    made: dict[str, Array] = {}
    for name, tensor in tensors.stored.items():
        wanted = placement(name, tensor.shape, tensor.dtype)
        if wanted is None:
            continue
        if _is_slices(wanted):
            state[name], made[name] = _placed(name, tensor, wanted)
        elif isinstance(wanted, tuple) and len(wanted) == 2 and _is_tensor(wanted[0]) and _is_slices(wanted[1]):
            offset, shape = _box_of(name, tensor, wanted[1])
            held = wanted[0] if isinstance(wanted[0], Shard) else Shard(wanted[0], (), ())
            state[name] = Shard(held._value, tensor.shape, offset, shape, dtype=held._dtype)
        elif _is_tensor(wanted):
            state[name] = wanted
        else:
            raise Error("BAD_REQUEST", f"the placement of {name!r} is neither None, slices, nor an array: "
                        f"{shown(wanted)}", {"tensor": name})
    return state, made


def _is_slices(wanted: Any) -> bool:
    return wanted is ... or isinstance(wanted, slice) or (
        isinstance(wanted, tuple) and all(isinstance(part, slice) for part in wanted))


def _box_of(name: str, tensor: StoredTensor, wanted: Any) -> tuple[list[int], tuple[int, ...]]:
    """Returns offset and shape of the box that slices mean."""
    slices = () if wanted is ... else wanted if isinstance(wanted, tuple) else (wanted,)
    if len(slices) > len(tensor.shape) or any(part.step not in (None, 1) for part in slices):
        raise Error("BAD_REQUEST", f"the placement of {name!r}, a tensor of shape {tensor.shape}, has more slices than "
                    f"axes, or a step: {slices}", {"tensor": name})
    spans = [part.indices(size)[:2] for part, size in zip(slices, tensor.shape, strict=False)]
    spans += [(0, size) for size in tensor.shape[len(slices):]]
    return [begin for begin, _ in spans], tuple(max(end - begin, 0) for begin, end in spans)


def _placed(name: str, tensor: StoredTensor, wanted: Any) -> tuple[Shard, Array]:
    """Returns a shard over a new array, and the array."""
    offset, shape = _box_of(name, tensor, wanted)
    itemsize = dtypes.ITEMSIZE[tensor.dtype]
    first = 0
    for begin, size in zip(offset, tensor.shape, strict=True):
        first = first * size + begin
    try:
        array = _empty(shape, itemsize, tensor.position + first * itemsize)
    except MemoryError:
        raise Error("MEMORY_LIMIT", f"there is no memory for {name!r} ({math.prod(shape) * itemsize} bytes)",
                    {"tensor": name}) from None
    return Shard(array, tensor.shape, offset, dtype=tensor.dtype), array


def _empty(shape: tuple[int, ...], itemsize: int, position: int) -> Array:
    """Returns an array of raw elements. A large one lies in its block of memory as `position` lies in its block of the
    file, where elements allow it: then direct reads go straight into it."""
    raw = numpy.dtype(_RAW[itemsize])
    nbytes = math.prod(shape) * itemsize
    if nbytes < _PLACED_BYTES or position % itemsize:
        return numpy.empty(shape, raw)
    room = numpy.empty(nbytes + _BLOCK, numpy.uint8)
    begin = (position - room.ctypes.data) % _BLOCK
    whole: Array = room[begin:begin + nbytes].view(raw).reshape(shape)
    return whole


def boxes_to_fill(tensors: Tensors, state: dict[str, Any],
                  found: dict[str, Any]) -> list[tuple[DeclaredBox, StoredTensor]]:
    """Returns the arrays that are filled, each with its tensor. All that do not fit are told together.

    Args:
      state: all that the caller gave; `found` is what of it match() found.

    Raises:
      Error: DTYPE_MISMATCH, SHAPE_MISMATCH, and as Client.load of what a state holds.
    """
    boxes = [(box, tensors.source_of(box.name, state))
             for box in boxes_of(LayoutBuilder().declare(found, writable=True))]
    of_shape = {box.name: f"{box.name!r} has the shape {tensor.shape}, the state's {box.global_shape}"
                for box, tensor in boxes if tensor.shape != box.global_shape}
    of_dtype = {box.name: f"{box.name!r} is {tensor.dtype}, the state's {box.dtype}"
                for box, tensor in boxes if tensor.dtype != box.dtype}
    if of_shape or of_dtype:
        faults = [*of_shape.values(), *of_dtype.values()]
        raise Error("SHAPE_MISMATCH" if of_shape else "DTYPE_MISMATCH",
                    "; ".join(faults[:8]) + (f"; and {len(faults) - 8} more" if faults[8:] else ""),
                    {"tensor": next(iter(of_shape or of_dtype)),
                     "next": "Make the arrays as cairn.safetensors_index(directory) says; a load casts nothing."})
    return boxes
