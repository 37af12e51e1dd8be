"""Describes arrays in a GPU's memory."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy

from cairn._errors import Error

# What __cuda_array_interface__ calls the default streams.
_LEGACY_STREAM, _PER_THREAD_STREAM = 1, 2


class _Flags(NamedTuple):
    """What numpy's arrays say under the same names."""

    c_contiguous: bool
    writeable: bool


class DeviceArray:
    """An array in a device's memory, as numpy's array is one in the host's. Nothing here touches its elements.

    Attributes:
      address: of the first element.
      shape, strides, dtype, ndim, nbytes, itemsize, flags: as numpy's.
      stream: number of the CUDA stream after whose work the elements are there.
      owner: what keeps the memory alive.
    """

    __slots__ = ("address", "dtype", "flags", "owner", "shape", "stream", "strides")

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: numpy.dtype[Any],
                 stream: int, owner: object, writeable: bool = True) -> None:
        self.address = address
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.stream = stream
        self.owner = owner
        packed, contiguous = dtype.itemsize, True
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
            contiguous = contiguous and (extent == 1 or stride == packed)
            packed *= extent
        self.flags = _Flags(contiguous or 0 in shape, writeable)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, index: tuple[slice, ...]) -> DeviceArray:
        """Returns a part of it. The slices have a start, a stop, and no step."""
        starts = [part.start for part in index]
        shape = tuple(part.stop - part.start for part in index)
        address = self.address + sum(start * stride for start, stride in zip(starts, self.strides, strict=True))
        return DeviceArray(address, shape, self.strides, self.dtype, self.stream, self.owner, self.flags.writeable)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, address={self.address:#x})"


def is_on_device(value: object) -> bool:
    """Returns whether a value has the protocol of CUDA arrays: torch's, CuPy's, Numba's."""
    if isinstance(value, DeviceArray):
        return True
    try:
        return isinstance(value.__cuda_array_interface__, dict)  # type: ignore[attr-defined]
    except Exception:  # torch's tensors raise several kinds where the memory is not on a GPU, or has a gradient
        return False


def of(value: Any) -> DeviceArray:
    """Returns the array that a value with `__cuda_array_interface__` describes.

    Raises:
      Error: BAD_REQUEST (the description is not sound), UNSUPPORTED (it has a mask, or the stream is that of each
        thread, which only the thread itself can wait for).
    """
    if isinstance(value, DeviceArray):
        return value
    about = value.__cuda_array_interface__
    try:
        dtype = numpy.dtype(about["typestr"])
        shape = tuple(map(int, about["shape"]))
        address, read_only = about["data"]
        given = about.get("strides")
        stream = about.get("stream")
    except (KeyError, TypeError, ValueError) as error:
        raise Error("BAD_REQUEST", f"the __cuda_array_interface__ of a {type(value).__name__} cannot be read: {error!r}"
                    ) from None
    if about.get("mask") is not None:
        raise Error("UNSUPPORTED", f"a {type(value).__name__} on a device has a mask")
    if stream == _PER_THREAD_STREAM:
        raise Error("UNSUPPORTED", "an array on a device names the default stream of its thread (2); give it the "
                    "number of a real stream")
    if given is None:
        strides, step = [0] * len(shape), dtype.itemsize
        for i in range(len(shape) - 1, -1, -1):
            strides[i] = step
            step *= shape[i]
        given = strides
    if len(given) != len(shape) or min(shape, default=0) < 0:
        raise Error("BAD_REQUEST", f"an array on a device has the shape {shape} and the strides {tuple(given)}")
    return DeviceArray(int(address or 0), shape, tuple(map(int, given)), dtype,
                       _LEGACY_STREAM if stream is None else int(stream), value, not read_only)
