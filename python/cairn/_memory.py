"""Memory shared with the agent: descriptors from its socket, mapped; the control page."""

from __future__ import annotations

import collections
import mmap
import os
import socket
import struct
import threading
import time

import numpy

from cairn import _native
from cairn._errors import Error

_SOCKET_TIMEOUT = 10.0
_MAGIC = 0x314E524941430001
_ARMED, _AGREED = 1, 2
# Longer than the agents need to answer and the coordinator to decide; a rank that is frozen meanwhile costs this once.
_AGREEMENT_WAIT = 5.0


def receive_descriptor(path: str, descriptor_id: int) -> int:
    """Asks the agent's descriptor socket for a descriptor. Raises AGENT_UNREACHABLE."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(_SOCKET_TIMEOUT)
            channel.connect(path)
            channel.sendall(struct.pack("<Q", descriptor_id))
            data, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    except OSError as error:
        raise Error("AGENT_UNREACHABLE", f"the agent's descriptor socket {path}: {error}") from None
    if data == b"\x00" and len(descriptors) == 1:
        os.set_inheritable(descriptors[0], False)
        return descriptors[0]
    for descriptor in descriptors:
        os.close(descriptor)
    code = data[0] if data else 0
    raise Error("AGENT_UNREACHABLE", f"the agent gave no memory for descriptor {descriptor_id:#x}: "
                f"{os.strerror(code) if code else 'the connection was closed'}")


class Mapping:
    """Shared memory of the agent. Stays mapped as long as the object (or a view of it) lives."""

    def __init__(self, path: str, descriptor_id: int, size: int, writable: bool, populate: bool):
        descriptor = receive_descriptor(path, descriptor_id)
        try:
            actual = os.fstat(descriptor).st_size
            if size <= 0 or actual < size:
                raise Error("INTERNAL", f"the agent announced {size} bytes of memory and gave {actual}")
            flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if populate else 0)
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            try:
                self._map = mmap.mmap(descriptor, size, flags, protection)
            except OSError as error:
                raise Error("MEMORY_LIMIT", f"{size} bytes of the agent's memory cannot be mapped: {error}") from None
        finally:
            os.close(descriptor)
        self.size = size
        # The array holds the mapping open: while it lives the address is valid.
        self.bytes = numpy.frombuffer(self._map, numpy.uint8)
        self.address = self.bytes.__array_interface__["data"][0]


class MappingCache:
    """The newest mappings by descriptor: a slab is mapped once, not for each save. Thread-safe."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._lock = threading.Lock()
        self._entries: collections.OrderedDict[tuple, Mapping] = collections.OrderedDict()

    def get(self, reference, writable: bool) -> Mapping:
        """Of a SlabReference."""
        key = (reference.descriptor_socket, reference.descriptor_id, reference.bytes, writable)
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        mapping = Mapping(reference.descriptor_socket, reference.descriptor_id, reference.bytes, writable,
                          populate=True)
        with self._lock:
            self._entries[key] = mapping
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
        return mapping

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()


class ControlPage:
    """The words that trainer and agent exchange without a call; the rules stand in local_agent_service.proto.

    One thread at a time reports and asks.
    """

    _REPORTED, _ORDER, _GAVE_UP = 1, 2, 3  # 64-bit words

    def __init__(self, mapping: Mapping):
        self._mapping = mapping
        self._words = mapping.bytes[:4096].view(numpy.uint64)
        if int(self._words[0]) != _MAGIC:
            raise Error("INTERNAL", "the agent's control page is not one")
        self._address = mapping.address

    def _exchange(self, word: int, value: int) -> int:
        """Stores a word and reads the agent's order behind a full fence."""
        return _native.store_then_load(self._address + 8 * word, value, self._address + 8 * self._ORDER)

    def report(self, step: int) -> None:
        self._exchange(self._REPORTED, step + 1)

    def agreed(self, step: int) -> bool:
        """Whether the job saves at this step, which was just reported. Waits only while that is being decided."""
        order = int(self._words[self._ORDER])
        if order >> 2 != step or order & 3 == 0:
            return False
        deadline = time.monotonic() + _AGREEMENT_WAIT
        pause = 20e-6
        while order >> 2 == step and order & 3 == _ARMED:
            if time.monotonic() > deadline:
                order = self._exchange(self._GAVE_UP, step + 1)
                break
            time.sleep(pause)
            pause = min(2 * pause, 2e-3)
            order = int(self._words[self._ORDER])
        return order >> 2 == step and order & 3 == _AGREED
