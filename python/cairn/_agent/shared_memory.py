"""Maps memory that the agent shares, whose descriptors come from its socket and are checked; the control page."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import errno
import fcntl
import mmap
import os
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from typing import NoReturn

import numpy

from cairn._agent import connection
from cairn._agent.descriptor import Descriptor
from cairn._base import native, probes, wire
from cairn._base.errors import Error

_MAGIC = 0x314E524941430001
_ARMED, _AGREED = 1, 2
_SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_FUTURE_WRITE = 0x0010  # F_SEAL_FUTURE_WRITE, which Python names since 3.13
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid
_SOCKET_OWNER = struct.Struct("<QII")  # incarnation, rank, length of the job's name
_MAX_JOB_BYTES = 1024


def owner_of(address: str) -> int:
    """Returns the user of the agent that listens at this address, who alone may hand memory to its trainer."""
    path = address.removeprefix("unix:")
    try:
        return os.stat(path).st_uid
    except OSError as error:
        raise Error("AGENT_UNREACHABLE", f"the agent's socket {path}: {error}") from None


@dataclasses.dataclass(frozen=True)
class Lender:
    """The agent that must answer at a descriptor socket: its user, its rank, and its process."""

    user: int
    rank: int
    incarnation: int  # 0: an agent of an older version, which says it of nobody

    def check(self, path: str, channel: socket.socket) -> None:
        """Asks who listens at `path`: in another container, another agent may have the same path.

        Raises RANK_CONFLICT for the agent of another rank, AGENT_UNREACHABLE for another process of this one.
        """
        if not self.incarnation:
            return
        channel.sendall(struct.pack("<Q", 0))
        status = channel.recv(1)
        if status == bytes([errno.ENOENT]):
            return  # an agent of an older version, which knows the question no more than a wrong id
        if status != b"\x00":
            _refuse(path, "did not say whose it is", 0, status)
        incarnation, rank, length = _SOCKET_OWNER.unpack(_receive_exactly(channel, _SOCKET_OWNER.size))
        job = _receive_exactly(channel, min(length, _MAX_JOB_BYTES)).decode(errors="replace")
        if incarnation == self.incarnation:
            return
        found = f"the descriptor socket {path} is that of the agent of rank {rank} of job {job}"
        if rank == self.rank:
            raise Error("AGENT_UNREACHABLE", f"{found}, but of another process than the one that lends the memory")
        raise Error("RANK_CONFLICT", f"{found}, and not of rank {self.rank}, which lends the memory",
                    {"rank": str(self.rank), "next": "Give each agent of a machine a --socket-directory of its own, "
                     "and each trainer's container the directory of its own agent."})


def _receive_exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = channel.recv(size - len(data))
        if not part:
            raise ConnectionResetError(connection.CLOSES_AT_ONCE)
        data += part
    return data


def _refuse(path: str, what: str, descriptor_id: int, answer: bytes) -> NoReturn:
    code = answer[0] if answer else 0
    raise Error("AGENT_UNREACHABLE", f"the agent of the descriptor socket {path} {what}"
                f"{f' {descriptor_id:#x}' if descriptor_id else ''}: "
                f"{os.strerror(code) if code else connection.CLOSES_AT_ONCE}")


def receive_descriptor(path: str, descriptor_id: int, lender: Lender, patience: float) -> Descriptor:
    """Asks the descriptor socket of `lender` for a descriptor. Raises AGENT_UNREACHABLE, PEER_UID, RANK_CONFLICT,
    MEMORY_LIMIT (this process has no descriptor left).

    Args:
      patience: seconds for which it may leave an answer owing.
    """
    def receive() -> int:
        answer, descriptors, _, _ = socket.recv_fds(channel, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if answer == b"\x00" and len(descriptors) == 1:
            return descriptors[0]
        for each in descriptors:
            os.close(each)
        if answer == b"\x00":  # the agent has sent it
            raise _no_descriptor_left(path)
        _refuse(path, "gave no memory for descriptor", descriptor_id, answer)

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            _reach(path, channel, lender, patience)
            channel.sendall(struct.pack("<Q", descriptor_id))
            channel.recv(1, socket.MSG_PEEK)  # so that nobody who forks waits for the agent
            return Descriptor(receive)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise _no_descriptor_left(path) from None
        raise _unreachable(path, error) from None


def _no_descriptor_left(path: str) -> Error:
    return Error("MEMORY_LIMIT", f"this process cannot take a descriptor from {path}: it has none left",
                 {"errno": str(errno.EMFILE), "next": "Raise the trainer's limit of open files (ulimit -n), or close "
                  "what it does not need."})


def send_descriptors(path: str, descriptor_id: int, files: list[int], lender: Lender, patience: float) -> None:
    """Gives the agent at a descriptor socket descriptors that it awaits. `patience` and errors are those of
    receive_descriptor()."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            _reach(path, channel, lender, patience)
            socket.send_fds(channel, [struct.pack("<Q", descriptor_id)], files)
            answer = channel.recv(1)
    except OSError as error:
        raise _unreachable(path, error) from None
    if answer != b"\x00":
        _refuse(path, "does not take descriptors for", descriptor_id, answer)


def _unreachable(path: str, error: OSError) -> Error:
    """Returns an error of which connection.is_frozen() knows whether the agent is there."""
    if isinstance(error, TimeoutError):
        return Error("AGENT_UNREACHABLE", f"the agent's descriptor socket {path}: it did not answer in time: it is "
                     "stopped, frozen or very busy, or it has no file descriptor left",
                     {"detail": f"DEADLINE_EXCEEDED: {error}"})
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return Error("AGENT_UNREACHABLE", f"the agent's descriptor socket {path}: {connection.CLOSES_AT_ONCE}")
    return Error("AGENT_UNREACHABLE", f"the agent's descriptor socket {path}: {error}")


def _reach(path: str, channel: socket.socket, lender: Lender, patience: float) -> None:
    """Connects to the descriptor socket of `lender`. Raises PEER_UID, RANK_CONFLICT, AGENT_UNREACHABLE, OSError."""
    channel.settimeout(patience)
    channel.connect(path)
    _, user, _ = _CREDENTIALS.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user != lender.user:
        raise Error("PEER_UID", f"a process of user {user} listens at {path}, not one of the agent's user "
                    f"{lender.user}", {"uid": str(user)})
    lender.check(path, channel)


def _check_seals(memory: int, path: str, writable: bool) -> None:
    """Checks that nobody can cut the memory off, which would end this process, or change what is read."""
    try:
        seals = fcntl.fcntl(memory, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if seals & _SIZE_SEALS != _SIZE_SEALS or not (writable or seals & (fcntl.F_SEAL_WRITE | _FUTURE_WRITE)):
        raise Error("MEMORY_UNSEALED", f"the memory that {path} gives is not sealed against "
                    f"{'being cut off' if writable else 'writing'}")


class _Region:
    """One mapping, from mmap to munmap. numpy arrays over it keep it alive; forked children do not have it.

    Python's own mmap object will not do: it keeps a duplicate of the descriptor, by which every forked child would
    hold the memory long after the agent has given it up.
    """

    def __init__(self, memory: int, size: int, writable: bool, populate: bool):
        self._end: weakref.finalize[..., _Region] | None = None
        flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if populate else 0)
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = _LIBC.mmap(None, size, protection, flags, memory, 0)
        if address == _MAP_FAILED:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        _LIBC.madvise(address, size, mmap.MADV_DONTFORK)
        self._place = address, size
        self.end_by(unmap)
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, not writable)}

    def end_by(self, end: Callable[[int, int], None]) -> None:
        """Lets `end` (address, size) unmap it, when nobody uses it any more."""
        if self._end is not None:
            self._end.detach()
        self._end = weakref.finalize(self, _end, end, *self._place, os.getpid())
        self._end.atexit = False  # a thread may be copying still


def _end(end: Callable[[int, int], None], address: int, size: int, process: int) -> None:
    if os.getpid() == process:  # in a forked child something else may be there
        end(address, size)


def unmap(address: int, size: int) -> None:
    _LIBC.munmap(address, size)


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value


class MappedMemory:
    """The memory of a descriptor. It stays mapped as long as the object (or a view of it) lives.

    Attributes:
      address, size: of the mapping, in bytes.
      bytes: its array.
    """

    def __init__(self, memory: int, size: int, writable: bool, populate: bool):
        """`memory` is a descriptor of it, which it does not keep. Raises OSError."""
        self._region = _Region(memory, size, writable, populate)
        self.size = size
        self.bytes = numpy.asarray(self._region)
        self.address = self.bytes.__array_interface__["data"][0]

    @classmethod
    def new(cls, size: int) -> MappedMemory:
        """Returns memory of this process's own, which is zero. Raises MEMORY_LIMIT."""
        try:
            with Descriptor(lambda: os.memfd_create("cairn-buffer")) as memory:
                os.ftruncate(memory.number(), size)
                return MappedMemory(memory.number(), size, writable=True, populate=False)
        except OSError as error:
            raise Error("MEMORY_LIMIT", f"{size} bytes of memory cannot be mapped: {error}") from None

    def end_by(self, end: Callable[[int, int], None]) -> None:
        """Lets `end` (address, size) unmap the memory, instead of the system's call, when nobody uses it any more."""
        self._region.end_by(end)


class SharedMapping(MappedMemory):
    """Shared memory of the agent `lender`.

    Raises AGENT_UNREACHABLE, PEER_UID, RANK_CONFLICT, MEMORY_UNSEALED, MEMORY_LIMIT.
    """

    def __init__(self, path: str, descriptor_id: int, size: int, lender: Lender, writable: bool, populate: bool,
                 patience: float):
        """`patience` is that of receive_descriptor()."""
        probes.reach("map", path=path, descriptor_id=descriptor_id, size=size, writable=writable)
        with receive_descriptor(path, descriptor_id, lender, patience) as memory:
            _check_seals(memory.number(), path, writable)
            actual = os.fstat(memory.number()).st_size
            if size <= 0 or actual < size:
                raise Error("INTERNAL", f"the agent announced {size} bytes of memory and gave {actual}")
            try:
                super().__init__(memory.number(), size, writable, populate)
            except OSError as error:
                raise Error("MEMORY_LIMIT", f"{size} bytes of the agent's memory cannot be mapped: {error}") from None


def lender_of(reference: wire.Message, owner: int) -> Lender:
    """Returns who lends what a SlabReference names; agents whose memory is mapped here run as the user `owner`."""
    return Lender(owner, reference.agent_rank, reference.agent_incarnation)


class MappingCache:
    """Keeps the newest mappings by descriptor, so that a slab is not mapped for each save. Thread-safe."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._lock = threading.Lock()
        self._entries: collections.OrderedDict[tuple[object, ...], SharedMapping] = collections.OrderedDict()
        # All that was ever mapped here and still is, whoever holds it.
        self._regions: weakref.WeakSet[_Region] = weakref.WeakSet()

    def get(self, reference: wire.Message, owner: int, writable: bool, patience: float) -> SharedMapping:
        """Returns the mapping that a SlabReference names. `patience` and errors are those of SharedMapping."""
        key = (reference.descriptor_socket, reference.descriptor_id, reference.bytes, writable)
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
            # This comes first, so that the memory of a slab that was given up is free before there is another one.
            while len(self._entries) >= self._capacity:
                self._entries.popitem(last=False)
            mapping = SharedMapping(reference.descriptor_socket, reference.descriptor_id, reference.bytes,
                                    lender_of(reference, owner), writable, populate=True, patience=patience)
            self._regions.add(mapping._region)
            self._entries[key] = mapping
            return mapping

    def count(self) -> tuple[int, int]:
        """Returns how many mappings are kept, and how many are mapped, whoever holds them."""
        with self._lock:
            return len(self._entries), len(self._regions)

    def clear(self) -> bool:
        """Lets go of all mappings and returns whether none of them is left."""
        with self._lock:
            self._entries.clear()
            return not self._regions


class ControlPage:
    """The words that trainer and agent exchange without a call. local_agent_service.proto has the rules.

    Only one thread at a time may report and ask.
    """

    _REPORTED, _ORDER, _GAVE_UP, _REPLACED, _STAGING, _STAGED_BYTES = 1, 2, 3, 4, 5, 6  # 64-bit words

    def __init__(self, mapping: SharedMapping, agreement: float):
        """`agreement` is how many seconds agreed() waits for what is being decided."""
        self._agreement = agreement
        self._mapping = mapping
        self._words = mapping.bytes[:4096].view(numpy.uint64)
        if int(self._words[0]) != _MAGIC:
            raise Error("INTERNAL", "the agent's control page is not one")
        self._address = mapping.address

    def _exchange(self, word: int, value: int) -> int:
        """Stores a word and, behind a full fence, reads the agent's order."""
        return int(native.store_then_load(self._address + 8 * word, value, self._address + 8 * self._ORDER))

    def begin_staging(self, staging: int) -> int:
        """Says what is copied to the slab from now on, by the number that the agent has given; 0: nothing.

        Returns the address of the word that says how far that is (native.CopyList.run).
        """
        self._exchange(self._STAGING, 0)
        self._exchange(self._STAGED_BYTES, 0)
        self._exchange(self._STAGING, staging)
        return int(self._address + 8 * self._STAGED_BYTES)

    def replaced(self) -> bool:
        """Returns whether another trainer has taken the rank."""
        return int(self._words[self._REPLACED]) != 0

    def report(self, step: int) -> None:
        self._exchange(self._REPORTED, step + 1)

    def agreed(self, step: int) -> bool:
        """Returns whether the job saves at this step, which was just reported. Waits only while that is being
        decided."""
        order = int(self._words[self._ORDER])
        if order >> 2 != step or order & 3 == 0:
            return False
        deadline = time.monotonic() + self._agreement
        pause = 20e-6
        while order >> 2 == step and order & 3 == _ARMED:
            if time.monotonic() > deadline:
                order = self._exchange(self._GAVE_UP, step + 1)
                break
            time.sleep(pause)
            pause = min(2 * pause, 2e-3)
            order = int(self._words[self._ORDER])
        return order >> 2 == step and order & 3 == _AGREED
