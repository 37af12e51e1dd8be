"""A save that is staged, and its outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from cairn._base import timeouts, wire
from cairn._base.errors import Error
from cairn._base.limits import Limits
from cairn._base.results import Checkpoint, DeviceReport, StagingReport
from cairn._gpu.overlap import BackgroundStaging, UpdateGuards
from cairn._session import stragglers
from cairn._session.session import Session
from cairn._session.stragglers import StragglerReporter


class Outcomes:
    """Asks the agent what has become of the saves of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def job(self) -> str:
        return self._session.job

    @property
    def limits(self) -> Limits:
        return self._session.limits

    def check(self) -> None:
        """Raises as Session.check."""
        self._session.check()

    def straggler_reporter(self, step: int) -> StragglerReporter:
        return self._session.straggler_reporter("save", step)

    def outcome(self, step: int, save: int, agent: int, attempt: int,
                max_wait: float, timeout: float | None = None) -> tuple[Checkpoint | Error | None, Error | None, int]:
        """Returns the outcome, if there is one; why there may be none for long, if that is known; and the attempt's
        number.

        Args:
          agent: the incarnation that began the save.
          attempt: what the last answer told, 0 for nothing. An agent that restarted asks the coordinator about it, or
            about the save's number.
          timeout: as of AgentConnection.call.
        """
        request = wire.LOCAL_AGENT["WaitSave"].request(trainer_incarnation=self._session.incarnation, step=step,
                                                       save=save, attempt=attempt)
        try:
            response = self._session.call("WaitSave", request, max_wait, timeout=timeout)
        except Error as error:
            if error.reason == "STALE_INCARNATION":
                raise Error(error.reason, f"{error.message}; whether step {step} was committed is not known here",
                            {**error.metadata, "step": str(step), "outcome": "unknown"}) from None
            if error.reason != "NOT_COMMITTED":
                raise
            return self._forgotten(step, agent, error), None, attempt
        if response.pending:
            stalled = wire.error_from_status(response.stalled) if response.HasField("stalled") else None
            return None, stalled, response.attempt or attempt
        if response.checkpoint.state == wire.PHASES["COMMITTED"]:
            return Checkpoint.from_wire(response.checkpoint), None, attempt
        return wire.error_from_status(response.checkpoint.error), None, attempt

    def _forgotten(self, step: int, agent: int, error: Error) -> Error:
        """Returns the error of a save that neither the agent nor the coordinator knows, nor its attempt's number.

        Another attempt of the step is another save, so what is committed says nothing about this one.
        """
        rank = str(self._session.rank)
        unknown = {"job": self.job, "step": str(step), "rank": rank, "ranks": rank, "outcome": "unknown"}
        if self._session.agent_incarnation == agent:
            return Error(error.reason, f"{error.message} any more; client.checkpoints() tells which steps are "
                         "committed", unknown)
        return Error("RANK_LOST", f"{self._session.job}@{step}: the agent of rank {self._session.rank} restarted "
                     f"during the save of step {step}, and nobody can say for this save whether it was committed; "
                     "client.checkpoints() tells which steps are. If this one is not, save again", unknown)


class Saving:
    """A save whose state is staged: it goes on without the trainer. Made by Client.save(). Thread-safe.

    Of an overlapped save, arrays on GPUs may still be copied; the optimizers it was told of wait for that.

    Attributes:
      step: the step that is saved.
      staging: the way of all arrays, and for how long save() kept its caller.
    """

    def __init__(self, outcomes: Outcomes, step: int, number: int, agent: int, holder: object,
                 device: DeviceReport | None, staging: StagingReport, background: BackgroundStaging | None = None,
                 guards: UpdateGuards | None = None) -> None:
        self.step = step
        self.staging = staging
        self._device = device
        self._background = background
        self._guards = guards  # of an overlapped save
        self._outcomes = outcomes
        self._number = number
        self._agent = agent  # the incarnation that holds it
        self._holder = holder
        self._outcome: Checkpoint | Error | None = None
        self._stalled: Error | None = None
        self._attempt = 0  # as the agent told it
        self._lock = threading.Lock()

    @property
    def device(self) -> DeviceReport | None:
        """How arrays on GPUs were copied; None if this rank had none to copy, or has not copied all of them yet."""
        return self._device if self._background is None else self._background.report

    @property
    def committed(self) -> Checkpoint | None:
        """The committed checkpoint, as soon as wait() or done() has heard of it; also if wait() raises for what looks
        wrong in it."""
        with self._lock:
            return self._outcome if isinstance(self._outcome, Checkpoint) else None

    def before_update(self, streams: Mapping[int, int] | None = None) -> None:
        """Call it before arrays change that an overlapped save may still copy, outside of their optimizer's step.

        A moving average is such a change, or the replay of a CUDA graph, or a write to a tensor's `.data`. The GPU
        waits until the copies have ended, and the caller only until the driver knows that. Without an overlapped save,
        and after its copies, this costs next to nothing.

        Args:
          streams: device -> number of the CUDA stream of the change. By default those that torch has current.
        """
        if self._guards is not None:
            self._guards.before_update(streams)

    def wait(self, timeout: float = 600) -> Checkpoint:
        """Waits for the outcome.

        Args:
          timeout: seconds; the save goes on also when they have passed.

        Returns:
          The committed checkpoint; look at its `warnings`.

        Raises:
          Error: STATE_ALARM or REPLICA_MISMATCH (the checkpoint is committed, and the coordinator's --alarms makes what
            looks wrong in it an error; the metadata have `outcome` "committed"). Else the one that ended the save, such
            as RANK_LATE, RANK_LOST or NO_SPACE. With `outcome` "unknown" in its metadata it says nothing about the
            save. Of TIMED_OUT, which names the ranks that are waited for if the coordinator says that within two
            seconds, and of what keeps the outcome away (STORAGE_STALLED, COORDINATOR_UNREACHABLE ...), waiting again
            gives the outcome when there is one. Of
            STALE_INCARNATION (another trainer has this one's rank), of NOT_COMMITTED, and of RANK_LOST (agent and
            coordinator restarted before this client was told which attempt this is), client.checkpoints() of the
            trainer that goes on tells. BAD_REQUEST: the timeout is no number of seconds.
        """
        timeout = timeouts.seconds(timeout, "wait")
        deadline = time.monotonic() + timeout
        reporter = self._outcomes.straggler_reporter(self.step)
        limits = self._outcomes.limits
        while True:
            with self._lock:
                if isinstance(self._outcome, Error):
                    raise Error(self._outcome.reason, self._outcome.message, self._outcome.metadata)
                if self._outcome is not None:
                    return _without_failure(self._outcome)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise self._late(timeout, reporter)
            max_wait = min(limits.held_call, remaining, reporter.seconds_until_report())
            self._poll(max_wait, limits.call_timeout(max_wait, remaining))
            reporter.report_if_due(deadline - time.monotonic(), self._stalled)

    def done(self) -> bool:
        """Returns whether wait() would return at once.

        Returns:
          Also True when wait() would raise: the save was aborted, or another trainer has taken the rank.

        Raises:
          Error: AGENT_UNREACHABLE, if nobody can be asked.
        """
        if self._outcome is None:
            try:
                self._poll(0.0)
            except Error as error:
                if error.reason != "STALE_INCARNATION":
                    raise
                return True
        return self._outcome is not None

    def _late(self, timeout: float, reporter: StragglerReporter) -> Error:
        """Returns the error of a wait that ends without an outcome. `reporter` says for whom it has waited."""
        about = {"step": str(self.step), "job": self._outcomes.job}
        if self._stalled is not None:
            return Error(self._stalled.reason, self._stalled.message,
                         {**about, **self._stalled.metadata, "outcome": "unknown"})
        late = f"step {self.step} was not committed within {timeout:g} s"
        about["outcome"] = "unknown"
        if timeout < stragglers.LOOK:
            return Error("TIMED_OUT", f"{late}; it goes on", about)
        return reporter.timeout_error(late, about, "it goes on and")

    def _poll(self, max_wait: float, timeout: float | None = None) -> None:
        if self._background is not None:
            if self._background.is_of_parent():
                self._outcomes.check()
            if not self._background.ended.wait(max_wait):
                return
            if self._background.error is not None:
                with self._lock:
                    self._outcome = self._outcome or self._background.error
                return
        try:
            outcome, stalled, attempt = self._outcomes.outcome(self.step, self._number, self._agent, self._attempt,
                                                            max_wait, timeout)
        except Error as error:
            if error.reason != "AGENT_UNREACHABLE":
                raise
            raise self._without_agent(error) from None
        with self._lock:
            self._stalled = stalled
            self._attempt = attempt
            if self._outcome is None:
                self._outcome = outcome

    def _without_agent(self, error: Error) -> Error:
        """Returns the error for an agent that is gone. The save may be committed all the same.

        An agent that was refused by its coordinator has said why before it ended.
        """
        why = self._stalled or error
        ended = "" if why is error else "its agent has ended, and "
        return Error(why.reason, f"{why.message}; {ended}whether step {self.step} was committed is not known here",
                     {**why.metadata, "step": str(self.step), "job": self._outcomes.job, "outcome": "unknown"})

    def __repr__(self) -> str:
        return f"Saving(step={self.step})"


def _without_failure(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint, unless the operator wants one of its warnings to be an error."""
    for warning in checkpoint.warnings:
        if "fail" in warning.metadata:
            raise Error(warning.reason, f"{checkpoint.job}@{checkpoint.step} is committed, and looks wrong: "
                        f"{warning.message}", {**warning.metadata, "outcome": "committed"})
    return checkpoint
