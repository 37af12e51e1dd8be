"""Calls to a coordinator, which proves first that it knows the token. The token itself is never sent.

The proof is that of common/rpc/peer_proof.h; it says what is sent, and why it is safe. gRPC's own connections know
nothing of it, so a relay of this process makes them: gRPC connects to a Unix socket that this user alone can reach, and
the relay hands the bytes to a connection that has been proven.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import os
import pathlib
import secrets
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from cairn._agent.connection import make_channel
from cairn._base.errors import Error

_HELLO = b"CAIRN-P1"
_NONCE = _MAC = 32
_VIEW = 36
_ANSWER = 1 + _NONCE + _VIEW + 2 * _MAC
# The first byte of an answer, and the outcome.
_PROOF, _NO_TOKEN, _OTHER_VERSION = 1, 2, 3
_TAKEN = 1
# An attempt to connect and to prove takes so many seconds at most.
_PATIENCE = 5.0


@contextlib.contextmanager
def coordinator_channel(address: str, tokens: Sequence[str]) -> Iterator[grpc.Channel]:
    """Gives a channel to the coordinator at host:port, which has proven that it knows one of the tokens.

    Without a token the channel is plain, and a coordinator that has one refuses its calls.

    Raises:
      Error: COORDINATOR_UNREACHABLE; BAD_TOKEN: what listens there does not prove itself.
    """
    if not tokens:
        with make_channel(address) as channel:
            yield channel
        return
    with _Relay(address, tokens) as relay, make_channel(f"unix:{relay.path}") as channel:
        yield channel


def dial(address: str, tokens: Sequence[str]) -> socket.socket:
    """Returns a proven connection to a coordinator; see coordinator_channel for the errors."""
    deadline = time.monotonic() + _PATIENCE
    host, port = _host_and_port(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _unreachable(address, f"it cannot be found: its name has no address ({error.strerror})") from None
    told: Error | None = None
    for left, (family, kind, protocol, _, where) in zip(range(len(found), 0, -1), found, strict=True):
        connection = socket.socket(family, kind, protocol)
        try:
            # A stranger who is silent must leave time for the addresses that follow.
            connection.settimeout(max(0.1, (deadline - time.monotonic()) / left))
            connection.connect(where)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _prove(connection, address, tokens)
            connection.settimeout(None)
            return connection
        except Error as error:
            connection.close()
            told = error
        except OSError as error:
            connection.close()
            # A server that answers wrongly says more than an address where nothing is.
            told = told or _unreachable(address, f"it is not there: {error.strerror or 'it does not answer in time'}")
    assert told is not None  # getaddrinfo finds one at least, or fails
    raise told


def _host_and_port(address: str) -> tuple[str, str]:
    for scheme in ("dns:///", "dns:", "ipv4:", "ipv6:"):
        address = address.removeprefix(scheme)
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port


def _unreachable(address: str, why: str) -> Error:
    return Error("COORDINATOR_UNREACHABLE", f"coordinator {address}: {why}", {"address": address})


def _unproven(address: str, why: str) -> Error:
    return Error("BAD_TOKEN", f"what listens at the address of coordinator {address} {why}", {"address": address})


def _prove(connection: socket.socket, address: str, tokens: Sequence[str]) -> None:
    own, peer = connection.getsockname(), connection.getpeername()
    view = _end(own) + _end(peer)
    said = _HELLO + secrets.token_bytes(_NONCE) + view
    connection.sendall(said)
    first = _receive(connection, 1)
    if first[0] == _NO_TOKEN:
        raise _unproven(address, "asks for no token: it was started with --insecure")
    if first[0] == _OTHER_VERSION:
        raise _unproven(address, "proves itself in another way: it is of another version")
    if first[0] != _PROOF:
        raise _unproven(address, "does not prove that it knows the token: it is something else")
    answer = first + _receive(connection, _ANSWER - 1)
    said, macs = said + answer[:-2 * _MAC], answer[-2 * _MAC:]
    shared = next((token for token in tokens for at in (0, _MAC)
                   if hmac.compare_digest(_mac(token, "server", said), macs[at:at + _MAC])), None)
    if shared is None:
        raise _unproven(address, "does not prove that it knows the token: it has another one, or is something else")
    seen = answer[1 + _NONCE:1 + _NONCE + _VIEW]
    if seen != _end(peer) + _end(own) and _of_this_machine(peer[0]):
        raise _unproven(address, "is reached through another process of this machine, which could read everything")
    connection.sendall(_mac(shared, "client", said + macs))
    if _receive(connection, 1)[0] != _TAKEN:
        raise _unproven(address, "refuses the proof of the token")


def _mac(token: str, side: str, said: bytes) -> bytes:
    key = hmac.digest(token.encode(), f"cairn peer proof 1, {side}, to a coordinator".encode(), hashlib.sha256)
    return hmac.digest(key, said, hashlib.sha256)


def _end(where: tuple[Any, ...]) -> bytes:
    """Returns what is sent of an address: IPv4 as IPv6, and the port."""
    ip = ipaddress.ip_address(where[0].partition("%")[0])
    packed = b"\0" * 10 + b"\xff\xff" + ip.packed if ip.version == 4 else ip.packed
    return packed + struct.pack("!H", where[1])


def _of_this_machine(host: str) -> bool:
    """Says whether another process of this machine may listen at the address: a socket can be bound to it."""
    if ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        return True
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def _receive(connection: socket.socket, size: int) -> bytes:
    """Reads no byte more, since what follows the proof is gRPC's."""
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionResetError(0, "it closes the connection")
        received += part
    return received


class _Relay:
    """Connects gRPC to a coordinator by proven connections."""

    def __init__(self, address: str, tokens: Sequence[str]) -> None:
        self._address, self._tokens = address, tokens
        self._first: socket.socket | None = dial(address, tokens)  # so that its error is told, and not gRPC's
        self._ends: set[socket.socket] = {self._first}
        self._lock = threading.Lock()
        self._closed = False
        self._directory = tempfile.TemporaryDirectory(prefix="cairn-")
        self.path = pathlib.Path(self._directory.name, "relay")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()

    def __enter__(self) -> _Relay:
        threading.Thread(target=self._serve, name="cairn-relay", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            ends = list(self._ends)
        for end in (self._listener, *ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._directory.cleanup()

    def _serve(self) -> None:
        while True:
            try:
                local, _ = self._listener.accept()
            except OSError:
                return
            user = struct.unpack("3i", local.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            remote, self._first = self._first, None
            try:
                if user != os.geteuid():
                    raise PermissionError(0, "another user")
                remote = remote or dial(self._address, self._tokens)
            except (Error, OSError):
                local.close()  # gRPC tries again
                continue
            with self._lock:
                if self._closed:
                    local.close()
                    remote.close()
                    return
                self._ends |= {local, remote}
            for source, target in ((local, remote), (remote, local)):
                threading.Thread(target=self._pump, args=(source, target), name="cairn-relay", daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(65536):
                target.sendall(part)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            gone = {source, target} & self._ends
            self._ends -= gone
        for end in gone:
            end.close()
