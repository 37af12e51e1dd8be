"""Holds a trainer's session with its agent: it begins, goes on with the agent's next process, and may lose the rank."""

from __future__ import annotations

import collections
import math
import os
import secrets
import threading
import time
from collections.abc import Callable

from cairn._agent import connection, discovery, shared_memory
from cairn._agent.connection import AgentConnection
from cairn._base import probes, wire
from cairn._base.errors import Error
from cairn._session import stragglers
from cairn._session.stragglers import StragglerReporter
from cairn._state.layout import DeclaredState

_PROTOCOL = 1
_VERSION = "0.1"
_DEFAULT_LEASE = 10.0


class AgentRestarted(Exception):
    """Says that the agent's process which held what a call is about is gone. The session goes on with the next one."""


class KnownLayouts:
    """Remembers the last layouts that the agent got."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._digests: collections.OrderedDict[bytes, None] = collections.OrderedDict()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def add(self, digest: bytes) -> None:
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        while len(self._digests) > self._capacity:
            self._digests.popitem(last=False)

    def forget(self, digest: bytes) -> None:
        self._digests.pop(digest, None)

    def clear(self) -> None:
        self._digests.clear()


class Session:
    """A session that attaches to one agent process after the other, until another trainer takes the rank. Thread-safe.

    Attributes:
      agent: the connection to it.
      limits: of that connection.
      incarnation: this trainer's number.
      agent_incarnation: that of the agent's process that it is attached to; 0 before it is.
      job, rank, world_size: as the agent says.
      owner: the user of the agent.
      page: the control page; None before it is attached.
    """

    def __init__(self, agent: AgentConnection, on_new_agent: Callable[[], None], on_replaced: Callable[[], None],
                 found: discovery.AgentPlace | None = None):
        """
        Args:
          found: says which rank this trainer is, where somebody says it.
          on_new_agent: called whenever it is attached to another process than before, which knows nothing of the last.
          on_replaced: called once, when another trainer has taken the rank.
        """
        self.incarnation = secrets.randbits(64) or 1
        self.agent_incarnation = 0
        self.job = ""
        self.rank = 0
        self.world_size = 0
        self.owner = 0
        self.page: shared_memory.ControlPage | None = None
        self.agent = agent
        self.limits = agent.limits
        self._found = found
        self._on_new_agent = on_new_agent
        self._on_replaced = on_replaced
        self._path = connection.target_of(agent.address).removeprefix("unix:")
        self._lock = threading.Lock()  # of attaching
        self._known_layouts = KnownLayouts(agent.limits.known_layouts)
        self._page_descriptor = 0
        self._lease_ttl = 0.0
        self._reported: int | None = None
        self._socket: tuple[int, int] | None = None
        self._closed: str | None = None  # why
        self._replaced = False

    # These begin the session, and let it go on.

    def attach(self, patience: float) -> None:
        """Makes sure that the session is attached to the agent's current process, for which it waits.

        Raises AGENT_UNREACHABLE, RANK_CONFLICT, WORLD_SIZE_MISMATCH, STALE_INCARNATION.
        """
        with self._lock:
            self.check()
            socket = self._look_at_socket() # comes first, so that the next look finds an agent that restarts meanwhile
            answer = self._attach(patience)
            try:
                self._take(answer)
            except Error as error:
                if error.reason != "AGENT_UNREACHABLE":
                    raise
                # The page went after the answer: another trainer has taken the rank, which the agent says when it is
                # asked again, or the agent is another process by now.
                answer = self._attach(patience)
                self._take(answer)
            self._socket = socket
            self._lease_ttl = _seconds(answer.lease_ttl)

    def _take(self, answer: wire.Message) -> None:
        """Begins with the agent's process that gave this answer, unless it is the same as before."""
        probes.reach("attach", address=self.agent.address)
        if (answer.agent_incarnation, answer.control_page_descriptor) == (self.agent_incarnation,
                                                                          self._page_descriptor):
            return
        if self.agent_incarnation and (answer.job, answer.rank, answer.world_size) != (
                self.job, self.rank, self.world_size):
            raise Error("RANK_CONFLICT", f"the agent at {self.agent.address} was that of rank {self.rank} of "
                        f"{self.world_size} of {self.job}, and is now that of rank {answer.rank} of "
                        f"{answer.world_size} of {answer.job}")
        owner = shared_memory.owner_of(self.agent.address)
        lender = shared_memory.Lender(owner, answer.rank, answer.agent_incarnation)
        mapping = shared_memory.SharedMapping(answer.descriptor_socket, answer.control_page_descriptor, 4096, lender,
                                              writable=True, populate=False, patience=self.limits.answer_grace)
        page = shared_memory.ControlPage(mapping, self.limits.agreement)
        self.job = answer.job
        self.rank = answer.rank
        self.world_size = answer.world_size
        self.owner = owner
        self._known_layouts.clear()
        self._on_new_agent()
        self.agent_incarnation = answer.agent_incarnation
        self._page_descriptor = answer.control_page_descriptor
        if self._reported is not None:
            page.report(self._reported)
        self.page = page

    def _attach(self, patience: float) -> wire.Message:
        request = wire.LOCAL_AGENT["Attach"].request(
            trainer_incarnation=self.incarnation, pid=os.getpid(), client_version=_VERSION, protocol=_PROTOCOL,
            previous_agent=self.agent_incarnation)
        found = self._found
        if found is not None and found.rank is not None:
            # The agent checks it, before another trainer loses the rank.
            request.place.rank = found.rank
            request.place.world_size = found.world or 0
            request.place.may_be_alone = found.given
        try:
            return self.agent.call_until_there("Attach", request, patience)
        except Error as error:
            if found is not None:
                refused = found.refused(error)
                if refused is not error:
                    raise refused from None
            if error.reason == "STALE_INCARNATION" and self.agent_incarnation:
                self._lose_rank()
                self.check()
            raise

    def lease(self) -> float:
        """After this many seconds without a word the coordinator takes an agent for lost."""
        if not self._lease_ttl: # the agent did not know it yet when this client attached
            self.attach(0.0)
        return self._lease_ttl or _DEFAULT_LEASE

    # These are for a session that loses the rank.

    def check(self) -> None:
        """Raises BAD_REQUEST, or STALE_INCARNATION for good, if the session has ended, as every call does then."""
        if self._closed is not None:
            raise Error("BAD_REQUEST", self._closed)
        if not self._replaced and self.page is not None and self.page.replaced():
            self._lose_rank()
        if self._replaced:
            raise Error(
                "STALE_INCARNATION",
                f"rank {self.rank} of job {self.job}: another trainer has taken this one's "
                f"place at the agent {self.agent.address}; stop this process",
                {"job": self.job, "rank": str(self.rank)},
            )

    def _lose_rank(self) -> None:
        if not self._replaced:
            self._replaced = True
            self._on_replaced()

    @property
    def replaced(self) -> bool:
        return self._replaced

    # Calls.

    def call(self, name: str, request: wire.Message, max_wait: float | None = None,
             held_by: int | None = None, timeout: float | None = None,
             renew: Callable[[], None] = lambda: None) -> wire.Message:
        """Makes a call, which may have to go on with the agent's next process.

        Args:
          held_by: the agent_incarnation that holds what the call is about. Raises AgentRestarted if that process is
            gone.
          timeout: as of AgentConnection.call. An agent that is gone is waited for no longer either.
          renew: called before `request` is given to the agent's next process.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        for last in (False, True):
            self.check()
            self._check_held(held_by)
            try:
                return self.agent.call(name, request, max_wait, timeout=timeout)
            except Error as error:
                self.check()
                if held_by is not None and error.reason != "AGENT_UNREACHABLE":
                    self._await_attach()
                self._check_held(held_by) # the error says only that another thread has attached meanwhile
                if error.reason == "STALE_INCARNATION":
                    self.attach(0.0)  # raises if it speaks of this trainer, and not of another rank's agent
                    raise
                # Either the agent is a new process that does not know this trainer, or it is just coming up again.
                if last or error.reason not in ("NOT_REGISTERED", "AGENT_UNREACHABLE"):
                    raise
                if connection.is_frozen(error):
                    raise
                self.attach(min(self.limits.agent_return, max(until - time.monotonic(), 0.0)))
                if timeout is not None:  # what is left of it, and the next process may hold the call less than that
                    timeout = max(until - time.monotonic(), self.limits.least_grace)
                    max_wait = None if max_wait is None else min(max_wait, timeout - self.limits.least_grace)
                renew()
        raise AssertionError("not reached")

    def _await_attach(self) -> None:
        """Waits for another thread that has told an agent's process of this trainer and does not know it yet itself."""
        if self._lock.acquire(timeout=self.limits.least_grace):
            self._lock.release()

    def _check_held(self, held_by: int | None) -> None:
        if held_by is not None and held_by != self.agent_incarnation:
            raise AgentRestarted

    def restarted_since(self, agent_incarnation: int, deadline: float) -> bool:
        """Returns whether the agent is another process by now. Waits for one that is gone; False if none comes by the
        deadline, or soon after one that is over."""
        try:
            self.attach(min(self.limits.agent_return, max(deadline - time.monotonic(), self.limits.least_grace)))
        except Error as error:
            if error.reason == "STALE_INCARNATION":
                raise
        return self.agent_incarnation != agent_incarnation

    def call_with_layout(self, name: str, request: wire.Message, declared: DeclaredState, deadline: float,
                         late: str, source: DeclaredState | None = None,
                         grace: float = 0.0) -> tuple[wire.Message, int]:
        """Repeats a call that carries a layout, or two, until it is no longer pending.

        Returns the answer and the incarnation of the agent that gave it. A call that is pending when the agent restarts
        goes on with the next process: the coordinator knows whether it belongs to an attempt that has ended by that
        (docs/failure_model.md). By the deadline it raises what keeps the agent from its coordinator, if the agent says
        that, else TIMED_OUT with the text `late`, which also names the ranks for which it waited. An agent that goes on
        is asked for `grace` seconds more: it knows the deadline of a save, and may know better what was missing.
        """
        def renew() -> None:
            if name == "BeginSave":  # each of the agent's processes counts from when it is asked
                wire.set_duration(request.timeout, max(deadline - time.monotonic(), 0.0))

        uploads = 0
        asked = False
        stalled: Error | None = None
        what = {"BeginLoad": "load", "Prepare": "prepare"}.get(name, "save")
        reporter = self.straggler_reporter(what, request.step if what == "save" else None)
        while True:
            request.layout.digest = declared.digest
            request.layout.layout = b"" if declared.digest in self._known_layouts else declared.layout
            if source is not None:
                request.source.digest = source.digest
                request.source.layout = b"" if source.digest in self._known_layouts else source.layout
            remaining = deadline - time.monotonic()
            # A call that may take no time is made all the same: else nobody would know that this rank waits, and for
            # whom.
            if remaining + grace <= 0 and asked:
                raise self._late(late, stalled, reporter)
            asked = True
            agent = self.agent_incarnation
            max_wait = min(self.limits.held_call, max(remaining, 0.05), reporter.seconds_until_report())
            renew()
            try:
                response = self.call(name, request, max_wait, timeout=self.limits.call_timeout(max_wait, remaining),
                                     renew=renew)
            except Error as error:
                if error.reason == "SAVE_IN_PROGRESS":
                    raise reporter.with_stragglers(error) from None
                raise
            if agent != self.agent_incarnation:
                continue # nobody knows which of two processes has answered, so the current one is asked again
            wanted = [declared] if response.need_layout else []
            if source is not None and response.need_source:
                wanted.append(source)
            if wanted:
                # The agent restarted, or made room. If this happens more than a few times in one call, it is something
                # else.
                uploads += 1
                if uploads > 5:
                    raise Error("INTERNAL", f"the agent asked for the layout {uploads} times")
                for layout in wanted:
                    self._known_layouts.forget(layout.digest)
                continue
            self._known_layouts.add(declared.digest)
            if source is not None:
                self._known_layouts.add(source.digest)
            if not response.pending:
                return response, agent
            stalled = wire.error_from_status(response.stalled) if response.HasField("stalled") else None
            reporter.report_if_due(deadline - time.monotonic(), stalled)

    def straggler_reporter(self, what: str, step: int | None = None) -> StragglerReporter:
        """Returns who tells whom a "save" of `step`, a "load" or a "prepare" waits for that begins now."""
        return StragglerReporter(self._job, what, self.rank, self.world_size, step, self._lease_ttl or _DEFAULT_LEASE)

    def _job(self) -> wire.Message:
        request = wire.CHECKPOINTS["GetJob"].request(job=self.job)
        return self.agent.call("GetJob", request, timeout=stragglers.ANSWER)

    def _late(self, late: str, stalled: Error | None, reporter: StragglerReporter) -> Error:
        """`reporter` says for which ranks the call has waited."""
        metadata = {"job": self.job, "rank": str(self.rank)}
        if stalled is None:
            return reporter.timeout_error(late, metadata)
        return Error(stalled.reason, f"{late.partition(':')[0]}: {stalled.message}", {**metadata, **stalled.metadata})

    # Steps.

    def report(self, step: int) -> None:
        self.check()
        self._reported = step
        assert self.page is not None  # since the first attach()
        self.page.report(step)

    def agreed(self) -> int | None:
        """Returns the step reported last, if the job has agreed to save at it."""
        self.check()
        if self._reported is None or self.page is None:
            return None
        return self._reported if self.page.agreed(self._reported) else None

    # Watching.

    def _look_at_socket(self) -> tuple[int, int] | None:
        """Returns the identity of the socket's file. If it changes, the agent may be another process; attaching
        tells."""
        try:
            status = os.stat(self._path)
            return status.st_ino, status.st_ctime_ns  # a number alone may be used again
        except OSError:
            return None

    def look(self) -> bool:
        """Goes on with the agent's next process if there is one. Returns False if there is nothing more to look for."""
        try:
            self.check()
            socket = self._look_at_socket()
            if socket is not None and socket != self._socket:
                self.attach(0.0)
        except Error:
            pass # it may not serve yet, and is looked at again; if it stays wrong, the trainer's next call raises that
        return self._closed is None and not self._replaced

    # Ending.

    def close(self, why: str) -> bool:
        """Makes every later call fail. Returns False if the session was closed before."""
        if self._closed is not None:
            return False
        # A signal's handler may have interrupted the thread that attaches, so it must not wait for that thread without
        # end.
        alone = self._lock.acquire(timeout=self.limits.other_thread)
        try:
            if self._closed is not None:
                return False
            self._closed = why
        finally:
            if alone:
                self._lock.release()
        return True

    def forked(self, why: str) -> None:
        """Closes the session in a forked child, where a thread that is not there may hold a lock."""
        self._closed = why

    def detach(self, unmapped: bool) -> None:
        """Tells the agent that this trainer is gone, and whether it still has a slab mapped."""
        request = wire.LOCAL_AGENT["Detach"].request(trainer_incarnation=self.incarnation, unmapped=unmapped)
        try:
            self.agent.call("Detach", request, timeout=1.0)
        except Exception:  # the agent notices by itself
            pass


def _seconds(duration: wire.Message) -> float:
    return float(duration.seconds + duration.nanos / 1e9)
