"""Declares what a load asks for besides its tensors: a mapping, another source."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from cairn._base import wire
from cairn._base.errors import Error
from cairn._state.layout import DeclaredState

# "s3://bucket/prefix", and what was meant to be such an address.
_ADDRESS = re.compile("[A-Za-z0-9]+:/")

# A mapping is a list of statements, a text with one per line, a file, or an aoa_config.
MappingLike = Sequence[str] | str | os.PathLike[str] | dict[str, Any]


def declare_mapping(declared: DeclaredState, mapping: MappingLike | None,
                    source: str | os.PathLike[str] | None) -> DeclaredState:
    """Returns the layout with what is to be loaded into it. All ranks must ask for the same."""
    wish = wire.Layout()
    if mapping is not None:
        wish.mapping = as_json(mapping)
    if source is not None:
        if not isinstance(source, (str, os.PathLike)):
            raise Error("BAD_REQUEST", f"source is a directory's path, not {source!r}")
        path = os.fspath(source)
        # An address stays as it is; a directory of such a name is "./s3:/...".
        wish.import_directory = path if _ADDRESS.match(path) else os.path.abspath(path)
    extra = wish.SerializeToString(deterministic=True)
    if not extra:
        return declared
    # Bytes of messages that stand behind one another are one message, so these fields can be appended.
    layout = declared.layout + extra
    return dataclasses.replace(declared, layout=layout, digest=hashlib.sha256(layout).digest())


def as_json(mapping: MappingLike) -> str:
    """Returns a mapping in any of its forms as the JSON of an aoa_config."""
    if isinstance(mapping, os.PathLike):
        try:
            mapping = pathlib.Path(mapping).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Error("INPUT_UNREADABLE", f"the mapping {os.fspath(mapping)!r} cannot be read: {error}") from None
    if isinstance(mapping, str):
        if "->" not in mapping and os.path.isfile(mapping):
            raise Error("BAD_REQUEST", f"the mapping {mapping!r} is a file, and a string is a mapping's text: "
                        f"give pathlib.Path({mapping!r})")
        text = mapping.lstrip()
        if "->" not in text and text and not text.startswith(("{", "[", "#")):
            raise Error("INPUT_UNREADABLE", f"the mapping {mapping!r} has no statement such as \"a -> b\", and no file "
                        "is at that path", {"next": "Give statements, or the path of a file as a pathlib.Path."})
        if not text.startswith(("{", "[")):
            mapping = [mapping]
        else:
            try:
                mapping = json.loads(text)
            except ValueError as error:
                raise Error("BAD_REQUEST", f"the mapping is no JSON: {error}") from None
    if isinstance(mapping, dict) and "aoa_config" in mapping and "aoa_statements" not in mapping:
        mapping = mapping["aoa_config"]
    if isinstance(mapping, (list, tuple)):
        mapping = {"aoa_statements": list(mapping)}
    if not isinstance(mapping, dict):
        raise Error("BAD_REQUEST", "a mapping is a list of statements, a text, a path or an aoa_config, not "
                    f"{type(mapping).__name__}")
    statements = mapping.get("aoa_statements")
    if not isinstance(statements, (list, tuple)) or not all(isinstance(text, str) for text in statements):
        raise Error("BAD_REQUEST", "a mapping needs \"aoa_statements\", a list of strings")
    try:
        return json.dumps(mapping, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise Error("BAD_REQUEST", f"the mapping cannot be written as JSON: {error}") from None
