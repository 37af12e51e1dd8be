"""Values that are neither JSON nor bytes, of types whose serializers are known: bytes in, bytes out."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy

from cairn._base.errors import Error
from cairn._state.opaque import Opaque

# Arrays in an object are stored as text, which takes a third more and is not sharded.
MAX_ARRAY_BYTES = 1 << 20
_PLAIN_KINDS = "biufc"  # booleans and numbers


@dataclasses.dataclass(frozen=True)
class _Serializer:
    name: str
    to_bytes: Callable[[Any], bytes]
    from_bytes: Callable[[bytes], Any]


_by_type: dict[type, _Serializer] = {}
_by_name: dict[str, _Serializer] = {}


def register_serializer(kind: type, name: str, to_bytes: Callable[[Any], bytes],
                        from_bytes: Callable[[bytes], Any]) -> None:
    """Lets values of a class stand in a state, as part of an object.

    It must be registered wherever such a value is saved or loaded. Where it is not, a load gives `cairn.Opaque`.

    Args:
      kind: the class itself. Classes derived from it need serializers of their own.
      name: what the checkpoint calls the class, such as "my_project.Vocabulary"; it must stay the same for good.
      to_bytes: makes the bytes of a value; the same bytes for the same value, because replicas are compared.
      from_bytes: makes the value of the bytes. It gets what the checkpoint holds, so it should not trust it more than
        you trust the checkpoint.

    Raises:
      Error: BAD_REQUEST (no class, an empty name, or one that another class has).
    """
    if not isinstance(kind, type) or not isinstance(name, str) or not name:
        raise Error("BAD_REQUEST", f"a serializer is for a class and has a name, not {kind!r} and {name!r}")
    held = [other for other, serializer in _by_type.items() if serializer.name == name and other is not kind]
    if held:
        raise Error("BAD_REQUEST", f"the serializer {name!r} is that of {held[0].__module__}.{held[0].__qualname__}")
    serializer = _Serializer(name, to_bytes, from_bytes)
    _by_type[kind] = _by_name[name] = serializer


def knows(kind: type) -> bool:
    """Returns whether values of a class have a registered serializer."""
    return kind in _by_type


def encode(value: Any, path: str) -> tuple[str, Any] | None:
    """Returns the kind and the JSON value of what has a serializer; None of what has none. Raises BAD_REQUEST."""
    serializer = _by_type.get(type(value))
    if serializer is not None:
        try:
            data = serializer.to_bytes(value)
        except Error as error:
            raise _at(path, error) from None
        if not isinstance(data, bytes):
            raise Error("BAD_REQUEST", f"{path!r}: the serializer {serializer.name!r} made a {type(data).__name__}, "
                        "not bytes", {"object": path[:200]})
        return "user", [serializer.name, base64.b64encode(data).decode()]
    # A masked array or a matrix would come back as another type.
    if type(value) is numpy.ndarray and value.dtype.kind in _PLAIN_KINDS:
        if value.nbytes > MAX_ARRAY_BYTES:
            raise _at(path, too_large("an array", value.nbytes))
        array = value.astype(value.dtype.newbyteorder("<"), copy=False)
        return "array", [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode()]
    return None


def _at(path: str, error: Error) -> Error:
    """Returns the error of a part of a value with the part's place."""
    return Error(error.reason, f"{path!r}: {error.message}", {"object": path[:200], **error.metadata})


def too_large(what: str, size: int) -> Error:
    """Returns the error for an array or tensor that is no part of a value because it is too large."""
    return Error("BAD_REQUEST", f"{what} of {size} bytes is within a value (a tuple, or cairn.per_rank), which takes "
                 f"{MAX_ARRAY_BYTES} at most",
                 {"next": "Store it as a tensor: as an entry of the state's own dicts and lists if all ranks have the "
                          "same. If each rank has its own, give it a name for each rank, such as "
                          "{f'replay.rank{client.rank}': tensor}, without cairn.per_rank."})


def decode(kind: str, value: Any) -> Any:
    """Returns the value of what encode() returned. Raises ValueError, TypeError, KeyError."""
    if kind == "array":
        name, shape, data = value
        dtype = numpy.dtype(name)
        if dtype.kind not in _PLAIN_KINDS:
            raise ValueError(f"an array of {name!r}")
        return numpy.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
    name, data = value
    serializer = _by_name.get(name)
    if serializer is None:
        return Opaque(f"{name} (cairn.register_serializer makes it known)")
    return serializer.from_bytes(base64.b64decode(data))
