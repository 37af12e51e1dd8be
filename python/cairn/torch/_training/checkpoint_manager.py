"""Saves a training job when it is due, keeps what is to be kept, and resumes it."""

from __future__ import annotations

import collections
import dataclasses
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, SupportsIndex

from cairn._base import timeouts
from cairn._base.errors import Error, printable
from cairn._base.results import Checkpoint, LoadReport
from cairn._coordinator import retention
from cairn.client import Client, Saving
from cairn.torch._state_dict import save_load
from cairn.torch._training.schedule import Schedule
from cairn.torch._training.stateful import Gathered, ModuleNames, is_described, is_stateful
from cairn.torch._training.termination import DeferredTermination

_log = logging.getLogger("cairn")
# The program's own mistakes: they are the same at every save, so training does not go on after them.
_MISTAKES = frozenset({
    "ALIAS_UNRESOLVED", "BAD_DTYPE", "BAD_NAME", "BAD_REQUEST", "BAD_SHAPE", "BAD_STEP", "DTYPE_MISMATCH",
    "LAYOUT_LIMIT", "NAMES_DROPPED", "NAME_COLLISION", "SHAPE_MISMATCH", "SHAPE_OVERFLOW", "SHARD_GAP",
    "SHARD_OVERLAP", "STALE_INCARNATION", "UNSUPPORTED",
})
# A request for a save is asked about so often, in seconds.
_ASK_AGAIN = 1.0
# A process that is to end waits so long for its last save.
_LAST_SAVE_SECONDS = 600.0

State = dict[str, Any] | Callable[[], dict[str, Any]]
# A step, its checkpoint if it is committed, the error of its save, and the metrics.
_Ended = tuple[int, Checkpoint | None, Error | None, Mapping[str, float] | None]


class CheckpointManager:
    """Saves a job's state while it trains. Every rank makes one, with the same arguments, and calls the same methods.

        with CheckpointManager(client, every_steps=1000, keep_last=3) as manager:
            state = {"model": model, "optimizer": optimizer, "rng": cairn.torch.rng_state()}
            start = manager.restore_or_initialize(state)
            for step in range(0 if start is None else start + 1, steps):
                train(step)
                manager.step(step, state)

    A state is as for cairn.torch.save, and may hold objects with state_dict() and load_state_dict(): they are asked for
    their states. cairn.per_rank(object) has a state of its own on each rank; torchdata's StatefulDataLoader always has.

    A save that fails ends neither step() nor the training. It is told in the next step(): to on_failure, and as an
    error in the log of the name "cairn". Rank 0 logs it for all ranks; the others log it in one line at the level
    DEBUG, or at ERROR if their own call of save failed. If the error names rank 0, which may be gone then, every rank
    logs it whole. A failure with the reason of the one before it takes one line. Only the program's own mistakes are
    raised, such as a state that cannot be stored. Not thread-safe.

    Attributes:
      should_stop: this process got SIGTERM, and a save that began after it has ended.
    """

    def __init__(self, client: Client, *, every_steps: int | None = None, every_minutes: float | None = None,
                 keep_last: int | None = None, keep_every: int | None = None,
                 keep_best: str | tuple[str, str] | None = None,
                 on_commit: Callable[[Checkpoint, Mapping[str, float] | None], None] | None = None,
                 on_failure: Callable[[Error], None] | None = None, handle_sigterm: bool = True,
                 chain_sigterm: bool = True, save_timeout: float = 60, allow_dropped_names: bool = False,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
          client: this rank's. It stays open after close().
          every_steps: save at the steps that are multiples of this.
          every_minutes: ask for a save when so much time has passed since the last one began; the ranks agree on the
            step. Without it and every_steps, step() saves only on request (`cairn save JOB`) and on SIGTERM, which its
            first call says as a warning.
          keep_last, keep_every, keep_best: the rules by which the coordinator deletes older checkpoints of the job, as
            Client.set_retention. Without any of them, the job's rules stay as they are. For keep_best, such as
            "loss:min", rank 0 must give that metric to step().
          on_commit: called with each committed checkpoint and the metrics that its step() was given, by the next step()
            or close().
          on_failure: called likewise with the error of each save that failed; also, after on_commit, with that of a
            committed one whose alarm the coordinator's --alarms makes an error. What it raises, step() raises.
          handle_sigterm: when the process gets SIGTERM, ask for a save, go on training until the ranks have agreed on
            its step, wait for its end, and end the process as the signal would have. If the program had a handler of
            its own, that is called at once, and the process is not ended. Only in the main thread.
          chain_sigterm: call the program's own handler. Without it, only should_stop tells of the signal.
          save_timeout: as `timeout` of Client.save.
          allow_dropped_names: as for Client.save, of every save: a state that lacks names of the last committed step is
            no mistake of this program.
          clock: seconds since any moment, never backwards.

        Raises:
          Error: BAD_REQUEST, COORDINATOR_UNREACHABLE (the rules cannot be set now).
        """
        self.should_stop = False
        self._client = client
        self._schedule = Schedule(every_steps, every_minutes, clock)
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._allow_dropped_names = allow_dropped_names
        # The step that was restored has other names for modules' tensors, until one with the new names is committed.
        self._names_change = False
        self._save_timeout = timeouts.seconds(save_timeout, "CheckpointManager")
        self._ended: collections.deque[_Ended] = collections.deque()
        self._waiting: list[threading.Thread] = []
        # These are the steps of the saves that _waiting waits for. A thread whose join() was interrupted does not say
        # whether it is alive.
        self._under_way: set[int] = set()
        self._failed_in_a_row: list[int] = []  # steps whose failures were told, since the last commit
        self._began_not: set[int] = set()  # steps whose saves this rank could not begin
        self._last_reason = ""  # of the newest of these failures
        # A thing that every step repeats is told once.
        self._told_schedule = client.rank != 0 or every_steps is not None or every_minutes is not None
        self._told_metrics: set[str] = set()  # names that are no metrics
        self._newest: tuple[int, Error | None] | None = None  # the newest step whose end was told, and its error
        self._saved: int | None = None  # the newest step that this run has committed
        self._request: _Request | None = None
        self._closed = False
        if client.rank == 0 and any(rule is not None for rule in (keep_last, keep_every, keep_best)):
            client.set_retention(keep_last, keep_every, keep_best)
        self._best_metric: str | None = None
        if client.rank == 0 and keep_best is not None:
            self._best_metric = keep_best.rsplit(":", 1)[0] if isinstance(keep_best, str) else keep_best[0]
        self._termination = DeferredTermination(chain_sigterm)
        if handle_sigterm:
            self.watch_sigterm()

    def watch_sigterm(self) -> None:
        """Begins to handle SIGTERM, if that did not begin with the manager. Does nothing outside of the main thread."""
        if not self._termination.start():
            _log.info("%s: SIGTERM is not handled, because this is not the main thread", self._client.job)

    # Training.

    def step(self, step: SupportsIndex, state: State, metrics: Mapping[str, float] | None = None) -> Saving | None:
        """Says that this rank has done `step`, and saves if that is due. Costs microseconds if it is not.

        Args:
          step: from 0 to 999999999999, ascending.
          state: what is saved, or a function that returns it, which is called only if it is saved.
          metrics: of this step, handed to on_commit. Those of rank 0 that Client.save takes are saved with it; of any
            other one, the first save says as a warning why it is not.

        Returns:
          The save that has begun; None if none has, or if it failed at once, which is told as any failure.

        Raises:
          Error: the program's own mistakes (BAD_REQUEST, BAD_NAME, NAME_COLLISION, NAMES_DROPPED, SHARD_OVERLAP ...),
            and STALE_INCARNATION: another trainer has taken this one's rank.
        """
        self._begin_call()
        self._client.report_step(step)
        number = step.__index__()
        if not self._told_schedule:
            self._told_schedule = True
            _log.warning("%s: neither every_steps nor every_minutes is given, so step() saves only on request "
                         "(`cairn save %s`) and on SIGTERM", self._client.job, self._client.job)
        saving = None
        if self._client.save_requested() == number or self._schedule.step_is_due(number):
            saving = self._begin_save(number, state, metrics)
        elif self._client.rank == 0 and self._schedule.time_is_due():
            self._schedule.restart()
            self._ask()
        if self._termination.asked and not self.should_stop:
            self._terminate(saving)
        return saving

    def schedule_is_elsewhere(self) -> None:
        """Says that the program calls save() by a schedule of its own, so step() does not warn that it has none."""
        self._told_schedule = True

    def save(self, step: SupportsIndex, state: State, metrics: Mapping[str, float] | None = None) -> Saving | None:
        """Saves whether or not it is due. Every rank must call it for the same step. Arguments and errors as step()."""
        self._begin_call()
        return self._begin_save(step.__index__(), state, metrics)

    def wait(self, timeout: float = 600) -> None:
        """Waits for the saves that are under way, and tells how they ended.

        Raises:
          Error: TIMED_OUT (one goes on), BAD_REQUEST (the timeout is no number of seconds).
        """
        self._join(timeouts.seconds(timeout, "wait"))
        self._tell()
        if any(thread.is_alive() for thread in self._waiting):
            raise Error("TIMED_OUT", f"a save of {self._client.job} has not ended within {timeout:g} s; it goes on",
                        {"job": self._client.job, "outcome": "unknown"})

    def restore_or_initialize(self, state: dict[str, Any], *, step: SupportsIndex | str | None = None,
                              strict: bool = True, mapping: Any = None, source: Any = None, fallback: bool = True,
                              verify: str | None = None, timeout: float = 1800) -> int | None:
        """Loads the job's latest checkpoint, or that of `step`, into the state. Every rank must call it.

        If the latest one turns out to be damaged, the next older one is loaded, and a warning names both.

        Objects of the state get what they saved; tensors are filled in place; other values are replaced in its dicts.
        Optimizers get the states that were saved, of the parameters that had one, without a step. The iterators of
        torchdata's loaders are made, and then, last of all, the generators of an rng_state() are put back, because
        making an iterator draws from them.

        Args:
          state: as for step(), but no function.
          step: the committed step to go back to, or its tag. The training goes on from it, and later steps are
            superseded (docs/retention.md); a warning names them.
          strict, mapping, source, verify, timeout: as for Client.load.
          fallback: False: a damaged checkpoint is an error. It is one in any case with `step`, with a mapping, and
            without `strict`, because a tensor that the older one lacks would keep values of the damaged one.

        Returns:
          The step that was loaded; None if the job has no checkpoint yet, and the state is as it was. None also if
          `source` was loaded.

        Raises:
          Error: as cairn.torch.load; NOT_COMMITTED only if `step` is given.
        """
        def load(step: SupportsIndex | str | None) -> tuple[Gathered, LoadReport]:
            stored: dict[str, Any] = {}
            passed_over: list[dict[str, Any]] = []
            if isinstance(state, dict) and is_described(state):
                # It wants no tensor, and brings the values of the checkpoint.
                values = self._client._load({}, step, None, False, source, fallback, timeout)
                if source is None:
                    step, passed_over = values.step, values.passed_over
                if mapping is None:  # which may give what was described other names
                    stored = values.objects
            gathered, report = fill(step, stored, make=True)
            return gathered, dataclasses.replace(report, passed_over=passed_over or report.passed_over)

        def fill(step: SupportsIndex | str | None, stored: dict[str, Any],
                 make: bool) -> tuple[Gathered, LoadReport]:
            gathered = Gathered(state, to_load=True, make=make, stored=stored)
            try:
                # A mapping says the names of the checkpoint by itself.
                names, report = _fill(gathered, several_names=mapping is None and gathered.has_modules(), strict=strict,
                                      attempt=lambda strict: save_load.load(
                                          self._client, gathered.state, step, mapping, strict, source=source,
                                          fallback=fallback, verify=verify, timeout=timeout))
            except Error as error:
                if gathered.has_made() and error.reason == "MISSING_NAMES":
                    return fill(step, stored, make=False)  # all ranks have this error
                raise
            gathered.forget(report.missing)
            if names != ModuleNames.WITHIN_WRAPPERS and source is None and (strict or not report.unexpected):
                # The state has a place for all that is in that checkpoint, which the new names do not show.
                self._names_change = True
                _log.info("%s@%s has the names of the wrappers around a module; saves from now on leave them out",
                          self._client.job, report.step)
            return gathered, report

        falls_back = fallback and strict and step is None and mapping is None and source is None
        at, copies = step, set[str]()
        while True:
            try:
                gathered, report = load(at)
                break
            except Error as error:
                if error.reason == "NOT_COMMITTED" and at is None and source is None:
                    return None
                if source is None and "copy" in error.metadata and error.metadata["step"] not in copies:
                    at = int(error.metadata["step"])
                    copies.add(error.metadata["step"])
                    _log.warning("%s: %s; it is loaded from there", error.reason, error.message)
                    continue
                # All ranks are told the same. The older step fills every tensor that the damaged one may have filled.
                if not falls_back or "older_step" not in error.metadata:
                    raise
                at = int(error.metadata["older_step"])
                _log.warning("%s: %s; step %s is loaded in its place", error.reason, error.message, at)
        for passed in report.passed_over:
            _log.warning("%s@%s is damaged (%s) and was passed over", self._client.job, passed["step"],
                         passed["reason"])
        if report.mirror and self._client.rank == 0:
            _log.warning("%s@%s was read from the mirror %s: the root does not have it, or has it damaged",
                         self._client.job, report.step, report.mirror)
        for name in gathered.restore():
            _log.warning("%s@%s: %r was saved by another number of ranks, and begins anew", self._client.job,
                         report.step, name)
        if step is not None and report.step is not None and source is None and self._client.rank == 0:
            self._tell_going_back(report.step)
        self._schedule.restart()
        return report.step

    def _tell_going_back(self, step: int) -> None:
        """Says which checkpoints are left behind by a run that goes on from an older one."""
        try:
            newer = [one for one in self._client.checkpoints() if one > step]
        except Error as error:  # the state is loaded, and this is for people alone
            _log.warning("%s goes on from step %s; whether it has newer checkpoints could not be asked: %s",
                         self._client.job, step, error)
            return
        if newer:
            _log.warning("%s goes on from step %s: its newer checkpoints (%s) are superseded, and each is replaced "
                         "when its step is saved again. Leave step= out to go on from the latest one",
                         self._client.job, step, _steps_text(newer))

    # Ending.

    def close(self, timeout: float = 600) -> None:
        """Waits for the saves that are under way, tells how they ended, and gives SIGTERM back. Idempotent.

        Ctrl-C ends the waiting. It does not end the saves: what is staged goes on in the agents.

        Raises:
          Error: that of the newest save, if it failed: the run ends with an older checkpoint than it should, which its
            exit status then says; TIMED_OUT (it has not ended in time and goes on); BAD_REQUEST (the timeout is no
            number of seconds).
        """
        seconds = timeouts.seconds(timeout, "close")
        if self._closed:
            return
        self._closed = True
        if self._request is not None:
            self._request.stop()
        try:
            self._join(seconds)
        except KeyboardInterrupt:
            self._leave_saves()
            self._termination.stop()
            raise
        try:
            self.wait(0.0)
        finally:
            if self._termination.asked:
                self._end_by_sigterm(refused=False)
            self._termination.stop()
        if len(self._failed_in_a_row) > 1:
            _log.error("%s: the last %d saves of this run failed (%s)", self._client.job, len(self._failed_in_a_row),
                       _steps_text(self._failed_in_a_row))
        if self._newest is not None and self._newest[1] is not None:
            raise self._newest[1]

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        try:
            if isinstance(error, KeyboardInterrupt):
                # Whoever pressed Ctrl-C would press it again if this waited, and a second one would hide the first.
                self._leave_saves()
                self.close(0.0)
            else:
                self.close()
        except Error as failure:
            if error is None:
                raise
            if not isinstance(error, KeyboardInterrupt) or failure.reason != "TIMED_OUT":
                _log.error("%s", failure)  # the exception that ends the block is not to be replaced by it
        except KeyboardInterrupt:
            if not isinstance(error, KeyboardInterrupt):
                raise

    # Saves.

    def _begin_call(self) -> None:
        if self._closed:
            raise Error("BAD_REQUEST", "this CheckpointManager was closed", {"job": self._client.job})
        self._tell()

    def _leave_saves(self) -> None:
        """Says that saves go on which nobody waits for, because Ctrl-C ends this process."""
        for step in sorted(self._under_way):
            _log.warning("interrupted: the save of %s@%s is staged and goes on without this process; `cairn status %s` "
                         "shows it", self._client.job, step, self._client.job)

    def _join(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for thread in self._waiting:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def _begin_save(self, step: int, state: State, metrics: Mapping[str, float] | None) -> Saving | None:
        self._schedule.restart()
        given: Any = state() if callable(state) and not is_stateful(state) else state
        gathered = Gathered(given)
        measured, refused = retention.storable_metrics(metrics)
        if self._client.rank == 0:
            for name in refused.keys() - self._told_metrics:
                _log.warning("%s@%s is saved without the metric %r: %s", self._client.job, step, name, refused[name])
            self._told_metrics |= refused.keys()
        if self._best_metric is not None and self._best_metric not in measured:
            _log.warning("%s@%s is saved without the metric %r, so it cannot be the best one", self._client.job, step,
                         self._best_metric)
        try:
            saving = save_load.save(self._client, step, gathered.state, self._save_timeout, metrics=measured,
                                    allow_dropped_names=self._allow_dropped_names or self._names_change)
        except Error as error:
            if error.reason in _MISTAKES:
                raise
            error.metadata.setdefault("step", str(step))
            self._began_not.add(step)
            self._ended.append((step, None, error, metrics))
            return None
        self._under_way.add(saving.step)
        thread = threading.Thread(target=self._await, args=(saving, metrics), name="cairn-save", daemon=True)
        self._waiting = [other for other in self._waiting if other.is_alive()] + [thread]
        thread.start()
        return saving

    def _await(self, saving: Saving, metrics: Mapping[str, float] | None) -> None:
        try:
            self._ended.append((saving.step, saving.wait(timeouts.LONGEST), None, metrics))
        except Error as error:
            self._ended.append((saving.step, saving.committed, error, metrics))
        finally:
            self._under_way.discard(saving.step)

    def _tell(self) -> None:
        """Tells how saves have ended since the last call."""
        while self._ended:
            step, checkpoint, error, metrics = self._ended.popleft()
            if self._newest is None or step >= self._newest[0]:
                self._newest = (step, error)
            if checkpoint is not None:
                self._saved = step if self._saved is None else max(step, self._saved)
                self._failed_in_a_row.clear()
                self._names_change = False
                # All ranks are told, but one log is enough.
                for warning in checkpoint.warnings if self._client.rank == 0 else ():
                    _log.warning("%s@%s is committed, and looks wrong: %s", self._client.job, step, warning)
                if self._on_commit is not None:
                    self._on_commit(checkpoint, metrics)
            elif error is not None:
                repeated = bool(self._failed_in_a_row) and self._last_reason == error.reason
                self._failed_in_a_row.append(step)
                self._last_reason = error.reason
                self._log_failure(step, error, repeated)
            if error is not None and self._on_failure is not None:
                self._on_failure(error)

    def _log_failure(self, step: int, error: Error, repeated: bool) -> None:
        # All ranks are told of a failure, but one log of it is enough. Rank 0 may be gone if the error names it.
        tells = self._client.rank == 0 or "0" in re.findall(r"\d+", error.metadata.get("ranks", ""))
        level = logging.ERROR if tells or step in self._began_not else logging.DEBUG
        self._began_not.discard(step)
        if tells and not repeated:
            _log.log(level, "the save of %s@%s failed, training goes on: %s", self._client.job, step, error)
        else:
            _log.log(level, "the save of %s@%s failed%s: %s: %s", self._client.job, step, " again" if repeated else "",
                     error.reason, printable(error.message))

    # Requests.

    def _ask(self) -> None:
        """Asks the job for a save, unless the last call for one hangs."""
        if self._request is None or not self._request.alive():
            self._request = _Request(self._client, "every_minutes", follow=False)

    def _terminate(self, saving: Saving | None) -> None:
        """Does what is next to be done after SIGTERM."""
        if saving is None:
            if self._request is None or not self._request.follow:
                self._request = _Request(self._client, "SIGTERM", follow=True)
            if self._request.alive():
                return
        self._join(_LAST_SAVE_SECONDS)
        self._tell()
        self._end_by_sigterm(refused=saving is None)

    def _end_by_sigterm(self, refused: bool) -> None:
        """Says which step is saved, and ends the process unless the program does that.

        Args:
          refused: the save that was asked for at the signal could not be made.
        """
        rank, job = self._client.rank, self._client.job
        if self.should_stop:
            pass  # it was told
        elif self._under_way:
            _log.warning("rank %d got SIGTERM: the save of %s@%d goes on without it; `cairn status %s` shows it", rank,
                         job, max(self._under_way), job)
        elif self._saved is None:
            _log.error("rank %d got SIGTERM, and no step of this run of %s is saved", rank, job)
        elif refused or self._newest is None or self._newest[0] != self._saved:
            _log.error("rank %d got SIGTERM, and what came after %s@%d is not saved", rank, job, self._saved)
        else:
            _log.warning("rank %d got SIGTERM: %s@%d is saved", rank, job, self._saved)
        self.should_stop = True
        self._termination.end_process()


def _steps_text(steps: list[int]) -> str:
    """Returns for example "steps 15, 20 and 30": at most the first three and the last one."""
    shown = [str(step) for step in (steps if len(steps) <= 4 else steps[:3])]
    if len(steps) > 4:
        return f"steps {', '.join(shown)} ... {steps[-1]}, {len(steps)} in all"
    return f"step {shown[0]}" if len(shown) == 1 else f"steps {', '.join(shown[:-1])} and {shown[-1]}"


class _Request:
    """A request for a save. A thread of its own makes it, so that training goes on meanwhile.

    Attributes:
      follow: the thread lives until the request has failed, or stop() is called.
    """

    def __init__(self, client: Client, cause: str, follow: bool) -> None:
        """
        Args:
          cause: why, for people.
        """
        self.follow = follow
        self._client = client
        self._cause = cause
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cairn-request", daemon=True)
        self._thread.start()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        try:
            number = self._client.request_save()
            while self.follow and not self._stopped.wait(_ASK_AGAIN):
                self._client.request_save(request_id=number)
        except Error as error:
            if not self._stopped.is_set():
                _log.error("%s: the save that was asked for (%s) cannot be made: %s", self._client.job, self._cause,
                           error)


def _fill(gathered: Gathered, several_names: bool, strict: bool,
          attempt: Callable[[bool], LoadReport]) -> tuple[ModuleNames, LoadReport]:
    """Loads under the names that modules have; if the checkpoint lacks some, under those of earlier versions.

    Every rank makes the same attempts, because all are told the same errors.

    Args:
      attempt: loads what is gathered; strictly if it is told so.
    """
    if not several_names:
        return ModuleNames.WITHIN_WRAPPERS, attempt(strict)
    refused: list[tuple[ModuleNames, Error]] = []
    for names in ModuleNames:
        gathered.take_names(names)
        try:
            return names, attempt(True)
        except Error as error:
            if error.reason not in ("MISSING_NAMES", "UNEXPECTED_NAMES"):
                raise
            refused.append((names, error))
            if error.reason == "UNEXPECTED_NAMES":
                break  # all that the state wants is there under these names
    nearest, refusal = min(refused, key=lambda each: save_load.distance(each[1]))
    if strict:
        raise refusal
    gathered.take_names(nearest)
    return nearest, attempt(False)
