"""What a stranger may send to a port, to take memory and descriptors from the process behind it.

Each flood works for some seconds at most, and ends earlier when it has sent what it would send. It holds its newest
connections until the end, and makes new ones where they are closed.
"""

from __future__ import annotations

import collections
import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Kinds and flags of frames: RFC 9113, section 6.
_DATA, _HEADERS, _SETTINGS, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 4, 8, 9
_END_STREAM, _END_HEADERS = 1, 4
_SAVE = b"/cairn.v1.CheckpointService/CreateCheckpoint"
_LIST = b"/cairn.v1.CheckpointService/ListCheckpoints"
_CHECK, _WATCH = b"/grpc.health.v1.Health/Check", b"/grpc.health.v1.Health/Watch"
# The first message of a proof: its magic, a nonce, and two addresses with their ports.
_HELLO = b"CAIRN-P1" + b"n" * 32 + b"v" * 36

# More connections than a port holds for strangers.
_MOST_OPEN = 4000


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def _header(name: bytes, value: bytes) -> bytes:
    """A header as RFC 7541 has it: literal, without indexing, with a new name."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def _call_headers(path: bytes) -> bytes:
    return b"".join(_header(name, value) for name, value in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"me"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers")))


def _call(stream: int, path: bytes, message: bytes | None = b"") -> bytes:
    """A whole call with one message; without a message it is left open."""
    frames = _frame(_HEADERS, _END_HEADERS, stream, _call_headers(path))
    if message is not None:
        frames += _frame(_DATA, _END_STREAM, stream, b"\0" + struct.pack(">I", len(message)) + message)
    return frames


class Flood:
    """The connections of a flood to host:port, for `seconds`."""

    def __init__(self, address: str, seconds: float):
        host, _, port = address.rpartition(":")
        self._address = (host.strip("[]"), int(port))
        self._end = time.monotonic() + seconds
        self._open: collections.deque[socket.socket] = collections.deque()
        self.made = 0

    def __enter__(self) -> Flood:
        return self

    def __exit__(self, *failure) -> None:
        for connection in self._open:
            connection.close()

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self._end

    def connect(self) -> socket.socket | None:
        """Returns a new connection, or None if none is taken now."""
        try:
            connection = socket.create_connection(self._address, timeout=1)
        except OSError:
            return None
        connection.settimeout(0.2)
        self._open.append(connection)
        self.made += 1
        if len(self._open) > _MOST_OPEN:
            self._open.popleft().close()
        return connection

    def calling(self) -> socket.socket | None:
        """Returns a new connection that has begun to speak HTTP/2."""
        connection = self.connect()
        return connection if connection is not None and say(connection, _PREFACE + _frame(_SETTINGS, 0, 0)) else None


def say(connection: socket.socket, words: bytes) -> bool:
    """Returns whether the other side has taken all of it, or may still do so."""
    try:
        connection.sendall(words)
    except OSError:
        return False
    return True


def headers_without_an_end(flood: Flood) -> None:
    """CONTINUATION frames of one call, whose headers never end."""
    part = _frame(_CONTINUATION, 0, 1, _header(b"x", b"y" * 120) * 128)
    for _ in range(64):
        connection = flood.calling()
        if connection is None or not say(connection, _frame(_HEADERS, 0, 1, _call_headers(_SAVE))):
            continue
        for _ in range(4096):
            if not flood.goes_on:
                return
            if not say(connection, part):
                break


def _grant(connection: socket.socket, wait: float) -> int:
    """Returns how many bytes more the other side allows to send on the connection."""
    granted = 0
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while poll.poll(wait * 1000):
        wait = 0.0
        try:
            heard = connection.recv(1 << 16)
        except OSError:
            break
        if not heard:
            break
        at = 0
        while at + 9 <= len(heard):
            length, kind = int.from_bytes(heard[at:at + 3]), heard[at + 3]
            if kind == _WINDOW_UPDATE and heard[at + 5:at + 9] == b"\0\0\0\0":
                granted += int.from_bytes(heard[at + 9:at + 13])
            at += 9 + length
    return granted


def messages_without_an_end(flood: Flood) -> None:
    """Many calls whose messages of 4 MiB are never finished, each as long as the windows allow."""
    while flood.goes_on:
        connections = [(connection, [1], [65535]) for connection in (flood.calling() for _ in range(8)) if connection]
        if not connections:
            time.sleep(0.05)
        while connections and flood.goes_on:
            for entry in list(connections):
                connection, stream, window = entry
                window[0] += _grant(connection, 0.01)
                if window[0] < 65000:
                    # Where no window grows, the flood goes on with another connection.
                    connections.remove(entry)
                    continue
                words = _frame(_HEADERS, _END_HEADERS, stream[0], _call_headers(_SAVE))
                body = b"\0" + struct.pack(">I", 4 << 20) + b"x" * 64_900
                for at in range(0, len(body), 16384):
                    words += _frame(_DATA, 0, stream[0], body[at:at + 16384])
                window[0] -= len(body)
                stream[0] += 2
                if not say(connection, words):
                    connections.remove(entry)


def many_calls(flood: Flood) -> None:
    """Thousands of calls that are begun and never ended."""
    while flood.goes_on:
        connection, stream = flood.calling(), 1
        if connection is None:
            time.sleep(0.05)
            continue
        while flood.goes_on and stream < 10_000:
            words = b"".join(_call(each, _SAVE, None) for each in range(stream, stream + 200, 2))
            stream += 200
            if not say(connection, words):
                break


def _unread(flood: Flood, path: bytes, message: bytes) -> None:
    while flood.goes_on:
        connection, stream = flood.calling(), 1
        if connection is None:
            time.sleep(0.05)
            continue
        # The windows of the caller are as large as they can be, so that only its reading holds the answers up.
        say(connection, _frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31 - 1)) +
            _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**30)))
        while flood.goes_on and stream < 20_000:
            words = b"".join(_call(each, path, message) for each in range(stream, stream + 200, 2))
            stream += 200
            if not say(connection, words):
                break


def unread_answers(flood: Flood) -> None:
    """Calls whose answers nobody reads."""
    _unread(flood, _LIST, b"")


def unread_health(flood: Flood) -> None:
    """Questions for the health whose answers nobody reads."""
    _unread(flood, _CHECK, b"")


def health_watches(flood: Flood) -> None:
    """Thousands of watches of the health."""
    while flood.goes_on:
        connection, stream = flood.calling(), 1
        if connection is None:
            time.sleep(0.05)
            continue
        while flood.goes_on and stream < 20_000:
            words = b"".join(_call(each, _WATCH, b"\x0a\x03abc") for each in range(stream, stream + 200, 2))
            stream += 200
            _grant(connection, 0)
            if not say(connection, words):
                break


def half_proofs(flood: Flood) -> None:
    """Connections that begin to prove themselves, and do not go on."""
    while flood.goes_on:
        connection = flood.connect()
        if connection is None or not say(connection, _HELLO):
            time.sleep(0.01)


def silent_connections(flood: Flood) -> None:
    """Connections that say nothing."""
    while flood.goes_on:
        if flood.connect() is None:
            time.sleep(0.01)


def slow_trickles(flood: Flood) -> None:
    """Connections that say one byte now and then, of a proof and of HTTP/2 in turn."""
    trickles: list[tuple[socket.socket, bytes, list[int]]] = []
    while flood.goes_on:
        for _ in range(50):
            connection = flood.connect()
            if connection is not None:
                trickles.append((connection, _HELLO if len(trickles) % 2 else _PREFACE + _call(1, _WATCH) * 50, [0]))
        for connection, words, said in list(trickles[-2000:]):
            at = said[0] % len(words)
            said[0] += 1
            if not say(connection, words[at:at + 1]):
                trickles.remove((connection, words, said))


KINDS: tuple[Callable[[Flood], None], ...] = (
    headers_without_an_end, messages_without_an_end, many_calls, unread_answers, unread_health, health_watches,
    half_proofs, silent_connections, slow_trickles)


def anonymous_memory(pid: int) -> int:
    """Returns the bytes that a process has resident, without what it shares."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:"))


@contextlib.contextmanager
def growth(pid: int) -> Iterator[Callable[[], int]]:
    """Gives a function that returns how much more memory a process has now than at the beginning."""
    before = anonymous_memory(pid)
    yield lambda: anonymous_memory(pid) - before
