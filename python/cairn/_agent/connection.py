"""Calls to one agent: deadlines on every call, errors with reasons."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pathlib
import time
from collections.abc import Iterator

import grpc

from cairn._base import native, probes, wire
from cairn._base.errors import Error
from cairn._base.limits import DEFAULT, Limits

_MAX_MESSAGE = 64 << 20
_OPTIONS = [
    ("grpc.max_send_message_length", _MAX_MESSAGE),
    ("grpc.max_receive_message_length", _MAX_MESSAGE),
    ("grpc.max_metadata_size", 64 << 10),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # An attempt to connect gets this time, handshake included. With less, a busy machine never connects.
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    # If the kernel does not say that a trainer has ended, the agent takes the end of its connection for that. So a
    # trainer that computes for long must keep it.
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
    # Two clients of one process are two sessions: they must not share a connection.
    ("grpc.use_local_subchannel_pool", 1),
]


def target_of(address: str) -> str:
    """Returns gRPC's name for an address as people write it: unix:/path, unix:///path, /path or host:port."""
    if address.startswith("/"):
        return "unix:" + address
    return address


# These are texts of gRPC and of the system, from most to least telling, and what they mean for a person.
# common/rpc/peer_dial.cc says the same of the connections that commands and agents make.
_SOMETHING_ELSE = "it is not there: something else answers at that address"
_WHY = (
    ("Failed parsing HTTP/2", _SOMETHING_ELSE),
    ("Too many open files", "it cannot be reached: the caller has no file descriptor left (ulimit -n)"),
    ("Connection refused", "it is not there: nothing listens at that address"),
    ("No such file or directory", "it is not there: there is no such socket"),
    ("Permission denied", "it cannot be reached: this user may not open its socket"),
    ("resolution", "it cannot be found: its name has no address"),
    ("No route to host", "it cannot be reached: the network does not lead there"),
    ("Network is unreachable", "it cannot be reached: the network does not lead there"),
    ("Ping timeout", "it does not answer any more: it is stopped or frozen, or the network lost it"),
    ("keepalive", "it does not answer any more: it is stopped or frozen, or the network lost it"),
    ("timed out", "it does not answer: it is stopped or frozen, or the network does not lead there"),
    ("imeout", "it does not answer: it is stopped or frozen, or the network does not lead there"),
    ("Deadline Exceeded", "it does not answer: it is stopped or frozen, or the network does not lead there"),
    ("Socket closed", "it has closed the connection: it has ended, or ends"),
    ("Connection reset", "it has closed the connection: it has ended, or ends"),
    ("Broken pipe", "it has closed the connection: it has ended, or ends"),
    ("GOAWAY", "it has closed the connection: it has ended, or ends"),
)


_NO_DESCRIPTOR = (str(errno.EMFILE), str(errno.ENFILE))
# A connection that ends before the agent has answered anything on it.
CLOSES_AT_ONCE = "it closes each new connection at once: it has no file descriptor left (its log says so), or it ends"
_CLOSED = ("Socket closed", "Connection reset", "Broken pipe", "GOAWAY")


def _why_unreachable(code: grpc.StatusCode, details: str, answered: bool = True) -> str:
    """Says in words why an agent could not be called. `answered`: it has answered a call on this channel before."""
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return "it did not answer in time: it is stopped, frozen or very busy"
    if code == grpc.StatusCode.CANCELLED:
        return "the call was given up"
    # gRPC says only at times that it was still connecting.
    if (not answered or "failed to connect" in details) and any(text in details for text in _CLOSED):
        return CLOSES_AT_ONCE
    return next((why for part, why in _WHY if part in details), "it cannot be reached")


def error_from_rpc(call_error: grpc.RpcError, what: str, answered: bool = True) -> Error:
    """Returns the Error that a failed call carries; an error of the connection itself becomes AGENT_UNREACHABLE.
    `answered`: the agent has answered a call on this channel before."""
    details = dict(call_error.trailing_metadata() or ()).get("grpc-status-details-bin")
    if details:
        try:
            status = wire.Status.FromString(details)
        except Exception:  # protobuf's DecodeError has no stable home
            status = None
        if status is not None and status.details:
            return wire.error_from_status(status)
    code = call_error.code()
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return Error("AGENT_UNREACHABLE", f"{what}: {_why_unreachable(code, call_error.details() or '', answered)}",
                     {"detail": f"{code.name}: {call_error.details()}"})
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Error("MESSAGE_TOO_LARGE", f"{what}: {call_error.details()}")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return Error("UNSUPPORTED", f"{what}: the other side does not know this call: {call_error.details()}")
    # Every error of our own servers has a reason, so this is none of theirs.
    return Error("AGENT_UNREACHABLE", f"{what}: {_SOMETHING_ELSE}", {"detail": f"{code.name}: {call_error.details()}"})


def _as_unreachable(error: Error, what: str) -> Error:
    """Returns the error; AGENT_UNREACHABLE in place of what an agent says that took its last descriptor for this
    connection: whether it has that one decides chance, and it cannot be used either way."""
    if error.reason != "MEMORY_LIMIT" or error.metadata.get("errno") not in _NO_DESCRIPTOR:
        return error
    return Error("AGENT_UNREACHABLE", f"{what}: {error.message}", error.metadata)


# The calls that threads of this process are in, and whether it was forked while another thread was in one. Then gRPC's
# state was copied in the midst of a change, so that whatever uses it may abort the process, or hang.
_under_way: set[object] = set()
_forked_in_a_call = False


@contextlib.contextmanager
def calling() -> Iterator[None]:
    """Must be around every call of gRPC."""
    call = object()
    _under_way.add(call)
    try:
        yield
    finally:
        _under_way.discard(call)


def _after_fork() -> None:
    global _forked_in_a_call
    _forked_in_a_call = _forked_in_a_call or bool(_under_way)
    if _under_way:
        # What the parent has not collected yet may have objects of gRPC, whose end uses it as well.
        gc.freeze()
    _under_way.clear()


os.register_at_fork(after_in_child=_after_fork)


def make_channel(address: str) -> grpc.Channel:
    """Raises BAD_REQUEST in a process in which gRPC cannot be used."""
    if _forked_in_a_call:
        raise Error("BAD_REQUEST", "this process was forked while another thread of its parent was in a call, which "
                    "leaves gRPC unusable in it: it can connect to nobody",
                    {"next": "Start the process by multiprocessing's \"spawn\" or \"forkserver\", or fork it while no "
                             "thread saves, loads or waits."})
    return grpc.insecure_channel(target_of(address), options=_OPTIONS)


def is_frozen(error: BaseException) -> bool:
    """Returns whether this error of a call says that the agent is there, but has not answered in time."""
    return isinstance(error, Error) and error.metadata.get("detail", "").startswith("DEADLINE_EXCEEDED")


class AgentConnection:
    """The connection to one agent. Thread-safe.

    Attributes:
      address: the agent's.
      limits: for how long an answer is waited for.
    """

    def __init__(self, address: str, limits: Limits = DEFAULT):
        self.address = address
        self.limits = limits
        # The connections to coordinators live for a call, so they are not worth it.
        if (target := target_of(address)).startswith("unix:"):
            native.keep_from_children(pathlib.Path(target.removeprefix("unix:")))
        self.channel = make_channel(address)
        self._process = os.getpid()
        self._answered = False
        self.trainer = 0  # whose calls these are; 0 while nobody says it
        self._calls = {
            name: self.channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            for name, method in (wire.LOCAL_AGENT | wire.CHECKPOINTS).items()
        }

    def call(self, name: str, request: wire.Message, max_wait: float | None = None,
             timeout: float | None = None) -> wire.Message:
        """One call of LocalAgentService, or of CheckpointService, which the agent passes on. Raises Error.

        Args:
          max_wait: what the request lets the agent wait; None for a request without it.
          timeout: seconds after which the agent is taken for dead; by default `answer_grace` of the limits beyond
            what it may wait.
        """
        if os.getpid() != self._process:
            raise Error("BAD_REQUEST", "this client was made before a fork; call cairn.connect in the new process")
        if max_wait is not None:
            wire.set_duration(request.max_wait, max_wait)
        if timeout is None:
            timeout = (max_wait or 0.0) + self.limits.answer_grace
        probes.reach("call", address=self.address, name=name, request=request)
        answer = None
        try:
            metadata = (("cairn-trainer", str(self.trainer)),) if self.trainer and name in wire.CHECKPOINTS else None
            with calling():
                answer = self._calls[name](request, metadata=metadata, timeout=timeout)
            self._answered = True
            return answer
        except grpc.RpcError as error:
            raise error_from_rpc(error, f"agent {self.address}, {name}", self._answered) from None
        except ValueError as error:  # the channel was closed, in this or another thread
            raise Error("AGENT_UNREACHABLE", f"agent {self.address}, {name}: {error}") from None
        finally:
            probes.reach("answered", address=self.address, name=name, request=request, answer=answer)

    def call_until_there(self, name: str, request: wire.Message, patience: float) -> wire.Message:
        """Does what call does, but waits for an agent that is not there (yet)."""
        deadline = time.monotonic() + patience
        pause = 0.05
        while True:
            try:
                return self.call(name, request)
            except Error as refused:
                error = _as_unreachable(refused, f"agent {self.address}, {name}")
                if error.reason != "AGENT_UNREACHABLE" or time.monotonic() + pause > deadline:
                    raise error from None
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def close(self) -> None:
        if os.getpid() == self._process:
            self.channel.close()
