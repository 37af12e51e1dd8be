"""Element types under their torch names."""

from __future__ import annotations

from typing import Any

import numpy

from cairn._base import wire
from cairn._base.arrays import Array
from cairn._base.errors import Error
from cairn._gpu.device_array import DeviceArray

# One element has so many bytes.
ITEMSIZE = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex32": 4, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
}
NUMBER = {name: wire.DTYPE_NUMBERS["DTYPE_" + name.upper()] for name in ITEMSIZE}
_NATIVE_KINDS = "biufcV"


_KNOWN: dict[tuple[object, ...], str] = {}


def of_array(array: Array | DeviceArray, dtype: str | None, name: str) -> str:
    """Returns the torch name of an array's elements, or `dtype` if the caller gave one. Raises BAD_DTYPE."""
    key = (array.dtype, dtype)
    known = _KNOWN.get(key)  # numpy takes microseconds to say a dtype's name
    if known is None:
        known = _KNOWN[key] = _checked(array.dtype, dtype, name)
    return known


def _checked(own: numpy.dtype[Any], dtype: str | None, name: str) -> str:
    if own.byteorder == ">":
        raise Error("BAD_DTYPE", f"{name!r} is a big-endian array ({own.str}); convert it with "
                    "array.astype(array.dtype.newbyteorder('='))", {"tensor": name})
    if dtype is None:
        dtype = own.name
        if dtype not in NUMBER or own.kind not in _NATIVE_KINDS:
            raise Error("BAD_DTYPE", f"{name!r} has numpy dtype {own}, which Cairn cannot store; a raw view with "
                        "dtype=\"<torch name>\" can", {"tensor": name})
    elif dtype not in NUMBER:
        raise Error("BAD_DTYPE", f"{name!r}: dtype {dtype!r} is none of {', '.join(NUMBER)}", {"tensor": name})
    if ITEMSIZE[dtype] != own.itemsize or own.hasobject:
        raise Error("BAD_DTYPE", f"{name!r}: dtype {dtype} has {ITEMSIZE[dtype]} bytes an element, the array "
                    f"({own}) {own.itemsize}", {"tensor": name})
    return dtype
