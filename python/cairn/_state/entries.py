"""Defines what a trainer may put into a state."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy

from cairn._base.arrays import Array
from cairn._base.errors import Error, shown
from cairn._gpu import device_array
from cairn._gpu.device_array import DeviceArray


class Shard:
    """A part of a global tensor that this rank holds.

    Args:
      array: the elements, in this process's memory or on a GPU (anything that has `__cuda_array_interface__`, which is
        asked anew at each save, load and reshard). Need not be contiguous.
      global_shape: of the whole tensor, in elements.
      offset: where this shard's box begins in it.
      shape: of the box; that of the array unless `flat_range` is given.
      flat_range: (a, b): the array is 1-d and holds only the elements [a, b) of the row-major flattening of the box.
      dtype: torch name of the elements, for what numpy lacks ("bfloat16"); as wide as the array's.

    Raises:
      Error: BAD_REQUEST (the array is none of numpy's, and on no GPU), BAD_SHAPE (a shape, offset or range is no
        sequence of integers), SHAPE_OVERFLOW (a number leaves 64 bits).

    What else a shard says is checked when it is saved or loaded, together with what all other ranks say.
    """

    __slots__ = ("_dtype", "_known", "_lasting", "_value", "flat_range", "global_shape", "offset", "shape")

    def __init__(self, array: Any, global_shape: Iterable[SupportsIndex], offset: Iterable[SupportsIndex],
                 shape: Iterable[SupportsIndex] | None = None, flat_range: Iterable[SupportsIndex] | None = None,
                 dtype: str | None = None) -> None:
        found = array if isinstance(array, numpy.ndarray) else device_array.find(array)
        if found is None:
            raise Error("BAD_REQUEST", f"a shard's array must be a numpy array, not {type(array).__name__} "
                        "(for torch tensors use cairn.torch)")
        self._value = array
        self.global_shape: tuple[int, ...] = _integers(global_shape, "global_shape")
        self.offset: tuple[int, ...] = _integers(offset, "offset")
        self.shape: tuple[int, ...] = found.shape if shape is None else _integers(shape, "shape")
        self.flat_range: tuple[int, ...] | None = None if flat_range is None else _integers(flat_range, "flat_range")
        self._dtype = dtype
        # The first says whether nobody can describe the array anew. If so, the other keeps what a layout has said of
        # it, and under which name.
        self._lasting = False
        self._known: tuple[str, Any, Any] | None = None

    @classmethod
    def _of_lasting(cls, array: Array | DeviceArray, dtype: str) -> Shard:
        """Returns a whole tensor, over an array that nobody else has, so that what it says need be read but once."""
        shard = cls(array, array.shape, (0,) * array.ndim, dtype=dtype)
        shard._lasting = True
        return shard

    @property
    def array(self) -> Array | DeviceArray:
        """The elements; of an array on a GPU where they are now, because its memory and its stream may change."""
        return self.read()

    def read(self, name: str = "") -> Array | DeviceArray:
        """Returns `array`. Raises as device_array.of(), with the tensor's name."""
        return self._value if isinstance(self._value, numpy.ndarray) else device_array.of(self._value, name)

    @property
    def dtype(self) -> str:
        return self._dtype or str(self.array.dtype.name)

    def __repr__(self) -> str:
        flat = "" if self.flat_range is None else f", flat_range={self.flat_range}"
        return (f"Shard(global_shape={self.global_shape}, offset={self.offset}, shape={self.shape}{flat}, "
                f"dtype={self.dtype!r})")


def _integers(values: Iterable[SupportsIndex], what: str) -> tuple[int, ...]:
    try:
        given = tuple(values)
    except TypeError:
        raise Error("BAD_SHAPE", f"a shard's {what} must be a sequence of integers, not {shown(values)}") from None
    try:
        result = tuple(value if type(value) is int else value.__index__() for value in given)
    except AttributeError:
        raise Error("BAD_SHAPE", f"a shard's {what} must hold integers: {shown(values)}") from None
    if any(not -(2**63) <= value < 2**63 for value in result):
        raise Error("SHAPE_OVERFLOW", f"a shard's {what} {shown(result)} leaves 64 bits")
    return result


@dataclasses.dataclass(frozen=True)
class Alias:
    """A second name of another tensor of the state; see alias()."""

    target: str


@dataclasses.dataclass(frozen=True)
class PerRank:
    """A value of which each rank has its own; see per_rank()."""

    value: Any


class ObjectWish(enum.IntEnum):
    """What a load asks for under the name of a value, as ObjectWish of the wire contract says it."""

    WHOLE = 0
    IN_PARTS = 1
    IF_THERE = 2
    PLACE = 3


@dataclasses.dataclass(frozen=True)
class WantedObject:
    """Stands in the target of a load for a value, of which nothing but the wish for it counts there."""

    wish: ObjectWish
    per_rank: bool = False


class PerRankValues(list[Any]):
    """The values of all ranks, in order of rank, that a load gives for a per_rank() value of another number of ranks.

    It is a list of its own type, because a rank's own value may be a list, too.
    """


def alias(name: str) -> Alias:
    """Declares that this entry of the state is the tensor `name` under a second name (tied weights).

    Raises:
      Error: BAD_NAME (`name` is no string). That the state has such a tensor is checked when it is saved.
    """
    if not isinstance(name, str):
        raise Error("BAD_NAME", f"an alias names its tensor by a string, not {shown(name)}")
    return Alias(name)


def per_rank(value: Any) -> PerRank:
    """Marks a value that differs between ranks, so that every rank's value is kept.

    A load gives back this rank's own value, or a PerRankValues, the list of all, if the number of ranks has changed.
    """
    return PerRank(value)
