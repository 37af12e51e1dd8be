"""Turns values that are no tensors into bytes, and back. Nothing is pickled.

The stored bytes begin with one byte that says what follows: 0 raw bytes, 1 JSON text in UTF-8, 2 JSON text in which
what JSON lacks (tuples, bytes, dicts with keys that are no strings, small arrays, values with a registered serializer)
stands as {"$cairn": kind, "value": ...}, 3 the same with dicts of the classes of `collections`, which earlier versions
did not know. What begins as a zip archive was written by torch.save, and what begins as a JSON object by torchsnapshot:
a source of a load that Cairn did not write.
"""

from __future__ import annotations

import base64
import collections
import json
from typing import Any

from cairn._base import native
from cairn._base.errors import Error
from cairn._state import serializers
from cairn._state.opaque import Opaque

_BYTES, _JSON, _TAGGED, _CLASSES = 0, 1, 2, 3
_FOREIGN = (b"PK\x03\x04", b"{")
_TAG = "$cairn"
_PLAIN = (str, int, float, bool, type(None))
_MAX_DEPTH = 200
# By default Python neither writes nor reads longer ones as text.
_MAX_DIGITS = 4300
_INTEGER_LIMIT = 10**_MAX_DIGITS
# These classes of dicts come back as they were; any other one is refused, because it would come back as a plain dict.
_MAPPINGS: dict[type, str] = {kind: f"collections.{kind.__name__}" for kind in (
    collections.OrderedDict, collections.Counter, collections.defaultdict)}
_BY_NAME: dict[str, Any] = {name: kind for kind, name in _MAPPINGS.items()}
_FACTORIES: dict[str, Any] = {kind.__name__: kind for kind in (int, float, bool, str, bytes, list, tuple, dict, set)}


def keeps_class(value: dict[Any, Any]) -> bool:
    """Returns whether a dict comes back as one of its own class."""
    return type(value) is dict or type(value) in _MAPPINGS or serializers.knows(type(value))


def encode(value: Any, name: str) -> bytes:
    """Returns the bytes of a value. Raises BAD_REQUEST with the path of what cannot be stored."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"\x00" + bytes(value)
    tagged = _Tagged()
    document = _to_json(value, name, tagged, 0)
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=True)
    try:
        return bytes([tagged.encoding]) + text.encode()
    except UnicodeEncodeError:
        raise Error("BAD_REQUEST", f"{name!r} holds text with lone surrogates, which UTF-8 cannot say") from None


class _Tagged:
    """The encoding that a value needs."""

    encoding = _JSON

    def need(self, encoding: int) -> None:
        self.encoding = max(self.encoding, encoding)


def _to_json(value: Any, path: str, tagged: _Tagged, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise Error("BAD_REQUEST", f"{path[:200]!r}: nested more than {_MAX_DEPTH} levels deep (or in a circle)")
    if type(value) is int and not -_INTEGER_LIMIT < value < _INTEGER_LIMIT:
        raise Error("BAD_REQUEST", f"{path[:200]!r} is an integer of more than {_MAX_DIGITS} digits, which Python does "
                    "not write as text", {"object": path[:200], "next": "Give its to_bytes(), which are bytes."})
    # Types must match exactly: an enum or numpy scalar is a str or float by inheritance, but would come back as another
    # type.
    if type(value) in _PLAIN:
        return value
    if type(value) is list:
        return [_to_json(item, f"{path}[{i}]", tagged, depth + 1) for i, item in enumerate(value)]
    if type(value) is tuple:
        tagged.need(_TAGGED)
        return {_TAG: "tuple", "value": [_to_json(v, f"{path}[{i}]", tagged, depth + 1) for i, v in enumerate(value)]}
    if type(value) is dict:
        if all(type(key) is str for key in value) and _TAG not in value:
            return {key: _to_json(item, f"{path}[{key!r}]", tagged, depth + 1) for key, item in value.items()}
        tagged.need(_TAGGED)
        return {_TAG: "dict", "value": _pairs(value, path, tagged, depth)}
    if type(value) in _MAPPINGS:
        tagged.need(_CLASSES)
        return {_TAG: "mapping", "value": [_MAPPINGS[type(value)], _factory_of(value, path),
                                           _pairs(value, path, tagged, depth)]}
    if type(value) in (bytes, bytearray):
        tagged.need(_TAGGED)
        return {_TAG: "bytes", "value": base64.b64encode(value).decode()}
    encoded = serializers.encode(value, path)
    if encoded is not None:
        tagged.need(_TAGGED)
        return {_TAG: encoded[0], "value": encoded[1]}
    raise _refusal(value, path)


def _pairs(value: dict[Any, Any], path: str, tagged: _Tagged, depth: int) -> list[Any]:
    return [[_to_json(key, path, tagged, depth + 1), _to_json(item, f"{path}[{key!r}]", tagged, depth + 1)]
            for key, item in value.items()]


def _factory_of(value: Any, path: str) -> str | None:
    """Returns the name of what makes the values that a defaultdict lacks; None if it has none, or is another dict."""
    factory = getattr(value, "default_factory", None)
    for name, known in _FACTORIES.items():
        if factory is known:
            return name
    if factory is None:
        return None
    raise Error("BAD_REQUEST", f"{path!r} is a collections.defaultdict whose default_factory is {factory!r}, which "
                "cannot be stored", {"object": path[:200], "next": f"Give dict(value), or a factory that is one of "
                                     f"{', '.join(_FACTORIES)}."})


def _refusal(value: Any, path: str) -> Error:
    """Returns the error for a value that no object may hold; it says what to give in its place."""
    kind = type(value)
    if isinstance(value, dict):
        action = "Give dict(value), or make the class known by cairn.register_serializer."
    elif callable(getattr(value, "state_dict", None)):
        action = "Give its state_dict(). cairn.torch.CheckpointManager asks for it where it stands in a dict."
    elif callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        action = "Give its .item()."
    elif callable(getattr(value, "data_ptr", None)):
        action = "Use cairn.torch.save and cairn.torch.load, which take tensors of PyTorch."
    else:
        action = "Give plain values, or make the class known by cairn.register_serializer."
    return Error("BAD_REQUEST", f"{path!r} is a {kind.__module__}.{kind.__qualname__}; a state holds tensors, bytes "
                 "and JSON values", {"object": path[:200], "next": action})


def decode(data: bytes | bytearray, name: str) -> Any:
    """Returns the value of these bytes. Raises CHECKSUM_MISMATCH, FORMAT_TOO_NEW, and as native.torch_value()."""
    if data.startswith(_FOREIGN):
        data = native.torch_value(bytes(data), name)
    kind = data[0] if data else None
    try:
        if kind == _BYTES:
            return bytes(data[1:])
        if kind == _JSON:
            return json.loads(bytes(data[1:]))
        if kind in (_TAGGED, _CLASSES):
            return json.loads(bytes(data[1:]), object_hook=_untag)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Error("CHECKSUM_MISMATCH", f"object {name!r} cannot be decoded: {error}", {"object": name}) from None
    raise Error("FORMAT_TOO_NEW", f"object {name!r} has an encoding that this version does not know ({kind})",
                {"object": name})


def _untag(document: dict[str, Any]) -> Any:
    if _TAG not in document:
        return document
    kind, value = document[_TAG], document["value"]
    if kind == "tuple":
        return tuple(value)
    if kind == "bytes":
        return base64.b64decode(value)
    if kind == "opaque":
        return Opaque(value)
    if kind in ("array", "user"):
        return serializers.decode(kind, value)
    if kind == "dict":
        return {key: item for key, item in value}
    if kind == "mapping":
        name, factory, pairs = value
        if name == "collections.defaultdict":
            return collections.defaultdict(None if factory is None else _FACTORIES[factory], pairs)
        return _BY_NAME[name]({key: item for key, item in pairs})
    raise ValueError(f"unknown kind {kind!r}")
