"""Describes arrays in a GPU's memory."""

from __future__ import annotations

import math
import operator
import sys
from typing import Any, NamedTuple

import numpy

from cairn._errors import Error

# What __cuda_array_interface__ calls the default streams.
_LEGACY_STREAM, _PER_THREAD_STREAM = 1, 2
# As many as a layout may have.
_MOST_DIMENSIONS = 64


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
    return isinstance(value, DeviceArray) or _interface_of(value) is not None


def find(value: Any, name: str = "") -> DeviceArray | None:
    """Returns the array that a value with `__cuda_array_interface__` describes now; None if it has none.

    Args:
      name: the value's in the state, for errors; "" if it has none yet.

    Raises:
      Error: BAD_REQUEST (the description is not sound), SHAPE_OVERFLOW (it has more bytes than 64 bits hold),
        UNSUPPORTED (it has a mask, or the stream is that of each thread, which only the thread itself can wait for).
    """
    if isinstance(value, DeviceArray):
        return value
    about = _interface_of(value)
    return None if about is None else _Description(value, name).read(about)


def of(value: Any, name: str = "") -> DeviceArray:
    """As find(), of a value that was on a GPU before. Raises also BAD_REQUEST, if it is on none any more."""
    found = find(value, name)
    if found is None:
        raise _Description(value, name).error("BAD_REQUEST", "is not on a GPU any more, or cannot be shared",
                                              "Save the array that is there now; of a tensor of torch, detach().")
    return found


def _interface_of(value: Any) -> dict[str, Any] | None:
    try:
        about = value.__cuda_array_interface__
    except Exception:  # torch's tensors raise several kinds where the memory is not on a GPU, or has a gradient
        return None
    return about if isinstance(about, dict) else None


class _Description:
    """Reads what one value says about itself."""

    def __init__(self, value: Any, name: str) -> None:
        self._value = value
        self._name = name

    def error(self, reason: str, what: str, then: str) -> Error:
        about = {"tensor": self._name} if self._name else {}
        subject = repr(self._name) if self._name else f"an array ({type(self._value).__name__})"
        return Error(reason, f"{subject} {what}", {**about, "next": then})

    def _unsound(self, what: str) -> Error:
        return self.error("BAD_REQUEST", f"has a __cuda_array_interface__ with {what}",
                          "Look at the library, or the class, that the array is of; a contiguous copy may do.")

    def read(self, about: dict[str, Any]) -> DeviceArray:
        missing = [key for key in ("shape", "typestr", "data") if key not in about]
        if missing:
            raise self._unsound(f"no {', no '.join(missing)}")
        dtype = self._dtype(about["typestr"])
        shape = self._integers(about["shape"], "shape")
        if len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0:
            raise self._unsound(f"{len(shape)} dimensions, of which there may be {_MOST_DIMENSIONS}"
                                if len(shape) > _MOST_DIMENSIONS else f"the shape {shape}")
        if max(math.prod(shape) * dtype.itemsize, *shape, 0) >= 2**63:
            raise self.error("SHAPE_OVERFLOW", f"has the shape {shape} of {dtype}, whose bytes leave 64 bits",
                             "Look at the shape that the array says it has.")
        address, writeable = self._data(about["data"])
        strides = self._strides(about.get("strides"), shape, dtype.itemsize)
        if 0 not in shape:
            reach = sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True)) + dtype.itemsize
            if address + reach >= 2**63:
                raise self._unsound(f"the shape {shape} and the strides {strides}, which leave the address space")
        if about.get("mask") is not None:
            raise self.error("UNSUPPORTED", "has a mask", "Save the mask and the elements as two arrays.")
        return DeviceArray(address, shape, strides, dtype, self._stream(about.get("stream")), self._value, writeable)

    def _integers(self, values: Any, what: str) -> tuple[int, ...]:
        try:
            return tuple(map(operator.index, values))
        except TypeError:
            raise self._unsound(f"the {what} {values!r:.100}, which is no sequence of integers") from None

    def _dtype(self, typestr: Any) -> numpy.dtype[Any]:
        try:
            if isinstance(typestr, str):
                return numpy.dtype(typestr)
        except (TypeError, ValueError, SyntaxError):
            pass
        raise self._unsound(f"the typestr {typestr!r:.100}")

    def _data(self, data: Any) -> tuple[int, bool]:
        try:
            address, read_only = data
            address = 0 if address is None else operator.index(address)
        except (TypeError, ValueError):
            raise self._unsound(f"the data {data!r:.100}, which is no address and flag") from None
        if not 0 <= address < 2**63:
            raise self._unsound(f"the address {address:#x}")
        return address, not read_only

    def _strides(self, given: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
        if given is None:
            strides, step = [0] * len(shape), itemsize
            for i in range(len(shape) - 1, -1, -1):
                strides[i] = step
                step *= shape[i]
            return tuple(strides)
        result = self._integers(given, "strides")
        if len(result) != len(shape):
            raise self._unsound(f"the shape {shape} and the strides {result}")
        # What is never walked may have any stride.
        result = tuple(step if extent > 1 else itemsize for extent, step in zip(shape, result, strict=True))
        if min(result, default=0) < 0:
            raise self.error("BAD_REQUEST", f"has strides on the device that are negative: {result}",
                             "Save a contiguous copy of it.")
        if max(result, default=0) >= 2**63 and 0 not in shape:
            raise self._unsound(f"the strides {result}, which leave 64 bits")
        return result if 0 not in shape else (itemsize,) * len(shape)

    def _stream(self, stream: Any) -> int:
        if stream is None:
            return _default_stream_of(self._value)
        try:
            number = operator.index(stream)
        except TypeError:
            raise self._unsound(f"the stream {stream!r:.100}, which is no integer") from None
        if number == _PER_THREAD_STREAM:
            raise self.error("UNSUPPORTED", "names the default stream of its thread (2)",
                             "Give it the number of a real stream.")
        if not 0 <= number < 2**64:
            raise self._unsound(f"the stream {number}")
        return number


def _default_stream_of(value: object) -> int:
    """Returns the stream that torch has current for one of its tensors, which do not name one; else the default one."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return _LEGACY_STREAM
    return int(torch.cuda.current_stream(value.device).cuda_stream)
