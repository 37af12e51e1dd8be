"""A disk that a power cut may hit: which trees it may hold then, by what POSIX promises and no more.

An fsync of a file makes its bytes durable; an fsync of a directory makes its names durable. What was not synced may be
there or not: of bytes any of the writes, or a part of one; of names any of the changes, each by itself. A rename is one
change. So a name may stand whose bytes are lost, and a name that was removed may stand again.
"""

from __future__ import annotations

import pathlib
import random
from dataclasses import dataclass, field

from sweep import record
from sweep.record import Event

_BLOCK = 512  # a disk writes so many bytes at once


@dataclass
class File:
    """One file: what is durable, and the writes since then: (offset, bytes), or (length, None) for a truncation."""

    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def apply(self, content: bytearray, offset: int, data: bytes | None) -> None:
        if data is None:
            del content[offset:]
            content.extend(bytes(offset - len(content)))
            return
        content.extend(bytes(max(0, offset - len(content))))
        content[offset:offset + len(data)] = data

    def sync(self) -> None:
        content = bytearray(self.durable)
        for offset, data in self.pending:
            self.apply(content, offset, data)
        self.durable, self.pending = bytes(content), []

    def after_cut(self, dice: random.Random, keep: float) -> bytes:
        """What the disk may hold. `keep`: how likely each write that was not synced is there."""
        content = bytearray(self.durable)
        for offset, data in self.pending:
            if dice.random() >= keep:
                continue
            if data is not None and dice.random() < 0.3:
                data = data[:dice.randrange(len(data) // _BLOCK + 1) * _BLOCK]
            self.apply(content, offset, data)
        return bytes(content)


@dataclass
class Directory:
    """One directory. `pending`: changes of names since its last fsync, each a set of (name, what it stands for)."""

    durable: dict[str, File | Directory] = field(default_factory=dict)
    now: dict[str, File | Directory] = field(default_factory=dict)
    pending: list[dict[str, File | Directory | None]] = field(default_factory=list)

    def change(self, names: dict[str, File | Directory | None]) -> None:
        self.pending.append(names)
        _apply(self.now, names)

    def sync(self) -> None:
        self.durable, self.pending = dict(self.now), []

    def after_cut(self, dice: random.Random, keep: float) -> dict[str, File | Directory]:
        names = dict(self.durable)
        for change in self.pending:
            if dice.random() < keep:
                _apply(names, change)
        return names


def _apply(names: dict[str, File | Directory], change: dict[str, File | Directory | None]) -> None:
    for name, stands in change.items():
        if stands is None:
            names.pop(name, None)
        else:
            names[name] = stands


class Disk:
    """Takes in events one by one. It begins with a tree that is durable."""

    def __init__(self, tree: pathlib.Path | None = None) -> None:
        self.root = Directory()
        self._open: dict[int, File | Directory] = {}  # by inode, of what the record speaks of
        if tree is not None:
            self._read(tree, self.root)

    def _read(self, path: pathlib.Path, directory: Directory) -> None:
        self._open[path.stat().st_ino] = directory
        for entry in path.iterdir():
            made: File | Directory
            if entry.is_dir():
                made = Directory()
                self._read(entry, made)
            else:
                made = File(entry.read_bytes())
                self._open[entry.stat().st_ino] = made
            directory.durable[entry.name] = directory.now[entry.name] = made

    def _parent(self, path: str) -> tuple[Directory, str]:
        *above, name = path.split("/")
        at: File | Directory = self.root
        for part in above:
            assert isinstance(at, Directory), path
            at = at.now[part]
        assert isinstance(at, Directory), path
        return at, name

    def take(self, event: Event) -> None:
        if event.kind in (record.CREATE, record.MKDIR):
            made: File | Directory = File() if event.kind == record.CREATE else Directory()
            directory, name = self._parent(event.path)
            directory.change({name: made})
            self._open[event.inode] = made
        elif event.kind in (record.WRITE, record.TRUNCATE):
            file = self._open[event.inode]
            assert isinstance(file, File)
            file.pending.append((event.offset, event.data if event.kind == record.WRITE else None))
        elif event.kind == record.SYNC:
            self.root.sync() if event.path == "" else self._open[event.inode].sync()
        elif event.kind == record.LINK:
            directory, name = self._parent(event.path)
            target, other = self._parent(event.other)
            target.change({other: directory.now[name]})
        elif event.kind == record.RENAME:
            directory, name = self._parent(event.path)
            target, other = self._parent(event.other)
            moved = directory.now[name]
            if target is directory:
                directory.change({name: None, other: moved})
            else:
                directory.change({name: None})
                target.change({other: moved})
        elif event.kind in (record.UNLINK, record.RMDIR):
            directory, name = self._parent(event.path)
            directory.change({name: None})

    def cut(self, to: pathlib.Path, seed: str) -> None:
        """Makes the tree that the disk may hold after a power cut now. Equal seeds make equal trees."""
        dice = random.Random(seed)
        # All that was not synced is lost, or none of it, or each change by chance.
        keep = dice.choice((0.0, 1.0, 0.5, 0.5, 0.85, 0.15))
        files: dict[int, pathlib.Path] = {}
        self._make(to, self.root, dice, keep, files)

    def _make(self, to: pathlib.Path, directory: Directory, dice: random.Random, keep: float,
              files: dict[int, pathlib.Path]) -> None:
        to.mkdir()
        for name, stands in sorted(directory.after_cut(dice, keep).items(), key=lambda entry: entry[0]):
            if isinstance(stands, Directory):
                # A directory that was renamed may stand twice; one of them is made.
                self._make(to / name, stands, dice, keep, files)
            else:
                if id(stands) in files:
                    (to / name).hardlink_to(files[id(stands)])
                    continue
                files[id(stands)] = to / name
                (to / name).write_bytes(stands.after_cut(dice, keep))
                (to / name).chmod(0o600)  # secrets need it, and all is of one user
