"""Describes arrays in a GPU's memory."""

from __future__ import annotations

import math
import operator
import sys
from typing import Any, NamedTuple

import numpy

from cairn._base.errors import Error

# __cuda_array_interface__ calls the default streams by these numbers.
_LEGACY_STREAM, _PER_THREAD_STREAM = 1, 2
# A layout may have as many.
_MOST_DIMENSIONS = 64
# So many layouts are remembered, of arrays that described themselves so before.
_MOST_LAYOUTS = 4096


class _Flags(NamedTuple):
    """Says what numpy's arrays say under the same names."""

    c_contiguous: bool
    writeable: bool


class _Layout(NamedTuple):
    """How the elements of an array lie, wherever they are. Many arrays of a model have the same.

    Attributes:
      reach: bytes from the first element's begin to the last one's end; 0 if there are none.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: numpy.dtype[Any]
    nbytes: int
    reach: int
    flags: _Flags
    read_only_flags: _Flags

    @classmethod
    def of(cls, shape: tuple[int, ...], strides: tuple[int, ...], dtype: numpy.dtype[Any]) -> _Layout:
        key = (shape, strides, dtype)
        known = _KNOWN.get(key)
        if known is None:
            known = cls._made(*key)
            if len(_KNOWN) < _MOST_LAYOUTS:
                _KNOWN[key] = known
        return known

    @classmethod
    def _made(cls, shape: tuple[int, ...], strides: tuple[int, ...], dtype: numpy.dtype[Any]) -> _Layout:
        packed, contiguous, reach = dtype.itemsize, True, dtype.itemsize
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
            contiguous = contiguous and (extent == 1 or stride == packed)
            packed *= extent
            reach += (extent - 1) * stride
        contiguous = contiguous or packed == 0
        return cls(shape, strides, dtype, packed, reach if packed else 0, _Flags(contiguous, True),
                   _Flags(contiguous, False))


_KNOWN: dict[tuple[Any, ...], _Layout] = {}


class DeviceArray:
    """An array in a device's memory, as numpy's array is one in the host's. Nothing here touches its elements.

    Attributes:
      address: of the first element.
      shape, strides, dtype, ndim, nbytes, itemsize, flags: as numpy's.
      stream: number of the CUDA stream after whose work the elements are there.
      owner: what keeps the memory alive.
    """

    __slots__ = ("_layout", "address", "dtype", "flags", "nbytes", "owner", "shape", "stream", "strides")

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: numpy.dtype[Any],
                 stream: int, owner: object, writeable: bool = True) -> None:
        self._lie(address, _Layout.of(shape, strides, dtype), stream, owner, writeable)

    def _lie(self, address: int, layout: _Layout, stream: int, owner: object, writeable: bool) -> DeviceArray:
        self._layout = layout
        self.address = address
        self.shape = layout.shape
        self.strides = layout.strides
        self.dtype = layout.dtype
        self.nbytes = layout.nbytes
        self.flags = layout.flags if writeable else layout.read_only_flags
        self.stream = stream
        self.owner = owner
        return self

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def end(self) -> int:
        """The address behind the last element."""
        return self.address + self._layout.reach

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
      Error: BAD_REQUEST (the description is not valid), SHAPE_OVERFLOW (it has more bytes than 64 bits hold),
        UNSUPPORTED (it has a mask, or the stream is that of each thread, which only the thread itself can wait for).
    """
    if isinstance(value, DeviceArray):
        return value
    about = _interface_of(value)
    if about is None:
        return None
    return _read_known(value, about) or _Description(value, name).read(about)


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


def _read_known(value: Any, about: dict[str, Any]) -> DeviceArray | None:
    """Reads a valid description whose layout an earlier one had, as nearly all are that a save meets. None: another."""
    try:
        layout = _LAYOUTS.get((about["typestr"], about["shape"], about.get("strides")))
        address, read_only = about["data"]
    except (KeyError, TypeError, ValueError):
        return None
    stream = about.get("stream")
    if stream is None:
        stream = _default_stream_of(value)
    if (layout is None or type(address) is not int or not 0 <= address < 2**63 - layout.reach
            or about.get("mask") is not None or type(stream) is not int or not 0 <= stream < 2**64
            or stream == _PER_THREAD_STREAM):
        return None
    return DeviceArray.__new__(DeviceArray)._lie(address, layout, stream, value, not read_only)


class _Description:
    """Reads what one value says about itself."""

    def __init__(self, value: Any, name: str) -> None:
        self._value = value
        self._name = name

    def error(self, reason: str, what: str, then: str) -> Error:
        about = {"tensor": self._name} if self._name else {}
        subject = repr(self._name) if self._name else f"an array ({type(self._value).__name__})"
        return Error(reason, f"{subject} {what}", {**about, "next": then})

    def _invalid(self, what: str) -> Error:
        return self.error("BAD_REQUEST", f"has a __cuda_array_interface__ with {what}",
                          "Look at the library, or the class, that the array is of; a contiguous copy may do.")

    def read(self, about: dict[str, Any]) -> DeviceArray:
        missing = [key for key in ("shape", "typestr", "data") if key not in about]
        if missing:
            raise self._invalid(f"no {', no '.join(missing)}")
        key = (about["typestr"], about["shape"], about.get("strides"))
        try:
            layout = _LAYOUTS.get(key)
        except TypeError:  # it has a list
            layout = None
        if layout is None:
            layout = self._layout(*key)
            if len(_LAYOUTS) < _MOST_LAYOUTS and isinstance(key[1], tuple) and isinstance(key[2], tuple | None):
                _LAYOUTS[key] = layout
        address, writeable = self._data(about["data"])
        if address + layout.reach >= 2**63:
            raise self._invalid(f"the shape {layout.shape} and the strides {layout.strides}, which leave the address "
                                "space")
        if about.get("mask") is not None:
            raise self.error("UNSUPPORTED", "has a mask", "Save the mask and the elements as two arrays.")
        array = DeviceArray.__new__(DeviceArray)
        return array._lie(address, layout, self._stream(about.get("stream")), self._value, writeable)

    def _layout(self, typestr: Any, extents: Any, steps: Any) -> _Layout:
        dtype = self._dtype(typestr)
        shape = self._integers(extents, "shape")
        if len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0:
            raise self._invalid(f"{len(shape)} dimensions, of which there may be {_MOST_DIMENSIONS}"
                                if len(shape) > _MOST_DIMENSIONS else f"the shape {shape}")
        if max(math.prod(shape) * dtype.itemsize, *shape, 0) >= 2**63:
            raise self.error("SHAPE_OVERFLOW", f"has the shape {shape} of {dtype}, whose bytes leave 64 bits",
                             "Look at the shape that the array says it has.")
        return _Layout.of(shape, self._strides(steps, shape, dtype.itemsize), dtype)

    def _integers(self, values: Any, what: str) -> tuple[int, ...]:
        try:
            return tuple(map(operator.index, values))
        except TypeError:
            raise self._invalid(f"the {what} {values!r:.100}, which is no sequence of integers") from None

    def _dtype(self, typestr: Any) -> numpy.dtype[Any]:
        try:
            if isinstance(typestr, str):
                return numpy.dtype(typestr)
        except (TypeError, ValueError, SyntaxError):
            pass
        raise self._invalid(f"the typestr {typestr!r:.100}")

    def _data(self, data: Any) -> tuple[int, bool]:
        try:
            address, read_only = data
            address = 0 if address is None else operator.index(address)
        except (TypeError, ValueError):
            raise self._invalid(f"the data {data!r:.100}, which is no address and flag") from None
        if not 0 <= address < 2**63:
            raise self._invalid(f"the address {address:#x}")
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
            raise self._invalid(f"the shape {shape} and the strides {result}")
        # A dimension that is never walked may have any stride.
        result = tuple(step if extent > 1 else itemsize for extent, step in zip(shape, result, strict=True))
        if min(result, default=0) < 0:
            raise self.error("BAD_REQUEST", f"has strides on the device that are negative: {result}",
                             "Save a contiguous copy of it.")
        if max(result, default=0) >= 2**63 and 0 not in shape:
            raise self._invalid(f"the strides {result}, which leave 64 bits")
        return result if 0 not in shape else (itemsize,) * len(shape)

    def _stream(self, stream: Any) -> int:
        if stream is None:
            return _default_stream_of(self._value)
        try:
            number = operator.index(stream)
        except TypeError:
            raise self._invalid(f"the stream {stream!r:.100}, which is no integer") from None
        if number == _PER_THREAD_STREAM:
            raise self.error("UNSUPPORTED", "names the default stream of its thread (2)",
                             "Give it the number of a real stream.")
        if not 0 <= number < 2**64:
            raise self._invalid(f"the stream {number}")
        return number


# (typestr, shape, strides) as arrays give them -> what they mean, of those that are valid.
_LAYOUTS: dict[tuple[Any, ...], _Layout] = {}


def _default_stream_of(value: object) -> int:
    """Returns the stream that torch has current for one of its tensors, which do not name one; else the default one."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return _LEGACY_STREAM
    return int(torch.cuda.current_stream(value.device).cuda_stream)
