"""What the native helper says of the allocations that arrays on GPUs are in."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

# By the numbers of SharedBlock::Kind in gpu/copy/shared_blocks.h.
NOT_SHAREABLE, FILE, IPC, FABRIC = 0, 1, 2, 3
# Blocks of these kinds are given to the agent once. PATHS has what reports call the way of each kind, the best first.
WITH_HANDLE = (FILE, FABRIC)
PATHS = {FILE: "device-vmm", FABRIC: "device-fabric", IPC: "device-ipc"}


class Block(NamedTuple):
    """One allocation.

    Attributes:
      kind: FILE (it can be exported as a descriptor), FABRIC (it can be exported as a fabric handle alone), IPC (there
        is a handle of CUDA IPC) or NOT_SHAREABLE, and `why` says why.
      begin: its address; `size` in bytes.
      handle: of FILE and FABRIC: the driver's. Two blocks with the same one are the same memory.
      ipc, uuid: of IPC: the handle, and the device.
    """

    kind: int
    begin: int
    size: int
    handle: int
    ipc: bytes
    uuid: bytes
    why: str


class _Row(ctypes.Structure):
    """struct CairnDeviceBlock."""

    _fields_ = (("kind", ctypes.c_int64), ("begin", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
                ("handle", ctypes.c_uint64), ("ipc", ctypes.c_ubyte * 64), ("uuid", ctypes.c_ubyte * 16),
                ("why", ctypes.c_char * 112))


def read(address: int, count: int) -> list[Block]:
    """Returns the blocks of a table of the native helper."""
    rows = (_Row * count).from_address(address) if count else ()
    return [Block(row.kind, row.begin, row.bytes, row.handle, bytes(row.ipc), bytes(row.uuid),
                  row.why.decode(errors="replace")) for row in rows]
