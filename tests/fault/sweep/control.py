"""The page by which the sweep tells the file layer what goes wrong (tests/fault/file_layer/control.h)."""

from __future__ import annotations

import mmap
import os
import pathlib
import struct
from dataclasses import dataclass

LIBRARY = pathlib.Path(os.environ.get(
    "CAIRN_FILE_LAYER", pathlib.Path(__file__).resolve().parents[3] / "bazel-bin/tests/fault/libfile_layer.so"))

_MAGIC = 0x43464C31
_HEADER = struct.Struct("<5I44x")  # magic, armed, locks_for_all, record, record_turn
_SLOT = struct.Struct("<32s6I468s")  # name, calls, at, action, choice, fired, sends, met
_SLOTS = 16
_ARMED, _LOCKS, _RECORD = 4, 8, 12

KINDS = ("open", "create", "read", "write", "sync", "link", "rename", "unlink", "mkdir", "rmdir", "truncate",
         "allocate", "list", "look", "close", "send")
# The names of actions, by their numbers.
ACTIONS = ("nothing", "kill-before", "kill-middle", "kill-after", "fail", "fail-from", "lie", "short", "freeze")


@dataclass(frozen=True)
class Met:
    """What the fault of a process has met: the kind of the call, and the call in words."""

    kind: str
    text: str


class Control:
    """The page of one cluster. Processes that are started with environment() look at it.

    Args:
      directory: where the page and the record lie; not below `root`.
      root: the directory whose files are swept.
      processes: their names on the page: "coordinator", "agent-3", "command".
    """

    def __init__(self, directory: pathlib.Path, root: pathlib.Path, processes: list[str]):
        if not LIBRARY.exists():
            raise FileNotFoundError(f"{LIBRARY}: run bazel build //tests/fault:libfile_layer.so")
        assert len(processes) <= _SLOTS
        self.path, self.record_path, self.root = directory / "page", directory / "record", root
        self.processes = processes
        page = bytearray(_HEADER.pack(_MAGIC, 0, 0, 0, 0))
        for name in processes:
            page += _SLOT.pack(name.encode(), 0, 0, 0, 0, 0, 0, b"")
        self.path.write_bytes(page.ljust(_HEADER.size + _SLOTS * _SLOT.size, b"\0"))
        with open(self.path, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), 0)

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(LIBRARY), "FAULTS_PAGE": str(self.path), "FAULTS_ROOT": str(self.root),
                "FAULTS_RECORD": str(self.record_path)}

    def _flag(self, at: int, value: int) -> None:
        struct.pack_into("<I", self._page, at, value)

    def _place(self, process: str) -> int:
        return _HEADER.size + self.processes.index(process) * _SLOT.size

    def arm(self, process: str | None = None, at: int = 0, action: str = "nothing", choice: int = 0,
            sends: bool = False) -> None:
        """Counts the calls of all processes from here on; call `at` of `process` goes wrong."""
        self.disarm()
        for name in self.processes:
            mine = name == process
            _SLOT.pack_into(self._page, self._place(name), name.encode(), 0, at if mine else 0,
                            ACTIONS.index(action) if mine else 0, choice, 0, int(sends), b"")
        self._flag(_ARMED, 1)

    def disarm(self) -> None:
        self._flag(_ARMED, 0)

    def share_locks(self, shared: bool) -> None:
        """Makes flock succeed for everybody, as where locks are local to a machine."""
        self._flag(_LOCKS, int(shared))

    def record(self, on: bool) -> None:
        self._flag(_RECORD, int(on))

    def calls(self, process: str) -> int:
        return int(_SLOT.unpack_from(self._page, self._place(process))[1])

    def met(self, process: str) -> Met | None:
        """What has gone wrong; None if the process has not come to that call."""
        fields = _SLOT.unpack_from(self._page, self._place(process))
        fired, text = fields[5], fields[7]
        if fired == 0:
            return None
        return Met(KINDS[fired - 1], text.split(b"\0")[0].decode(errors="replace"))
