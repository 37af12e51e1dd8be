"""Reads what the file layer has written down (tests/fault/file_layer/record.h)."""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<4I3Q")
CREATE, WRITE, TRUNCATE, SYNC, LINK, RENAME, UNLINK, MKDIR, RMDIR = range(9)
NAMES = ("create", "write", "truncate", "sync", "link", "rename", "unlink", "mkdir", "rmdir")


@dataclass(frozen=True)
class Event:
    kind: int
    inode: int
    path: str
    other: str = ""
    offset: int = 0
    data: bytes = b""

    def __str__(self) -> str:
        return f"{NAMES[self.kind]} {self.path} {self.other} {self.offset} {len(self.data)} bytes"


def read_with_ends(path: pathlib.Path, root: pathlib.Path) -> Iterator[tuple[Event, int]]:
    """The events below `root`, in their order, with paths below it. Behind each: where its record ends in the file."""
    content = path.read_bytes()
    at, prefix = 0, f"{root}/"

    def below(name: str) -> str:
        return name.removeprefix(prefix) if name.startswith(prefix) else ""

    while at < len(content):
        kind, path_size, other_size, _, inode, offset, size = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        name = content[at:at + path_size].decode()
        other = content[at + path_size:at + path_size + other_size].decode()
        at += path_size + other_size
        data = content[at:at + size]
        at += size
        if name == str(root) or name.startswith(prefix):
            yield Event(kind, inode, below(name), below(other), offset, data), at
