"""Saves before this process is taken away: an eviction, a preemption, the end of a job's time.

    with cairn.eviction.Watch(client) as eviction:
        for step in range(first, last):
            train(state)
            client.report_step(step)
            if client.save_requested() is not None:
                client.save(step, state)
            if eviction.over():
                break
"""

from __future__ import annotations

import logging
import secrets
import signal
import threading
import time
from types import FrameType, TracebackType

from cairn._base import timeouts, wire
from cairn._base.errors import Error
from cairn._base.signals import Handlers
from cairn.client import Client

_LOG = logging.getLogger("cairn")
# The save is asked about this often, and each answer is waited for this long, in seconds.
_INTERVAL = 0.1
# The coordinator's own outcome comes so long before the grace period ends.
_MARGIN = 0.1


class Watch:
    """Turns SIGTERM into a save of the whole job.

    At the signal, this rank asks for the save, and all ranks agree on one of their next steps: save_requested() then
    answers it, in this process and in all others. If several ranks are evicted together, they join one save.

    Use it as a context manager, in the main thread. While it is entered, SIGTERM does not end the process. A second
    SIGTERM does what the first one would have done without a watch.

    Attributes:
      signalled: whether SIGTERM has come.
      step: that the save has committed; None before, and if there is none.
      error: why there is no save; None before.
    """

    def __init__(self, client: Client, grace: float = 30.0, signals: tuple[signal.Signals, ...] = (signal.SIGTERM,)):
        """
        Args:
          client: this rank's.
          grace: seconds from the signal until the process is killed, as terminationGracePeriodSeconds of a pod. The
            save is given up by its reason a tenth of that before.
          signals: that announce the eviction.

        Raises:
          Error: BAD_REQUEST (the grace is no number of seconds above 0).
        """
        self.signalled = False
        self.step: int | None = None
        self.error: Error | None = None
        self._client = client
        self._grace = timeouts.seconds(grace, "eviction")
        self._signals = signals
        self._handlers = Handlers()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Watch:
        try:
            for number in self._signals:
                self._handlers.set(number, self._on_signal)
        except BaseException:
            self._handlers.restore()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._handlers.restore()

    def over(self) -> bool:
        """Returns whether the process should end now: SIGTERM came, and the save is durable or has failed."""
        return self._ended.is_set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signalled:  # the second one came before this was taken off
            self._handlers.pass_on(number, frame)
            return
        self.signalled = True
        self._handlers.restore()
        # A handler interrupts the main thread anywhere, also where that holds a lock, so it makes no call itself.
        self._thread = threading.Thread(target=self._save, name="cairn-eviction", daemon=True)
        self._thread.start()

    def _save(self) -> None:
        deadline = time.monotonic() + self._grace * (1 - _MARGIN)
        try:
            self.step = self._await_outcome(deadline)
            _LOG.warning("rank %d is evicted: step %d is saved", self._client.rank, self.step)
        except Error as error:
            self.error = error
            _LOG.error("rank %d is evicted, and there is no save: %s: %s", self._client.rank, error.reason,
                       error.message)
        finally:
            self._ended.set()

    def _await_outcome(self, deadline: float) -> int:
        """Returns the step that is committed."""
        session = self._client._session
        request = wire.CHECKPOINTS["CreateCheckpoint"].request(
            job=session.job, request_id=secrets.token_hex(16), reason="eviction")
        late = Error("TIMED_OUT", f"the save had no outcome {self._grace * (1 - _MARGIN):g} s after the signal",
                     {"job": self._client.job, "rank": str(self._client.rank)})
        while (left := deadline - time.monotonic()) > 0:
            wire.set_duration(request.timeout, max(left - self._grace * _MARGIN, 0.1))
            try:
                checkpoint = session.call("CreateCheckpoint", request)
            except Error as error:
                if error.reason not in ("COORDINATOR_UNREACHABLE", "AGENT_UNREACHABLE", "SAVE_IN_PROGRESS"):
                    raise
                late = error
            else:
                state = wire.enum_name("cairn.v1.Phase.Value", checkpoint.state)
                if state == "COMMITTED":
                    return int(checkpoint.step)
                if checkpoint.HasField("error"):
                    late = wire.error_from_status(checkpoint.error)
                    if state in ("ABORTED", "DAMAGED", "DELETED"):
                        raise late
            time.sleep(_INTERVAL)
        raise late
