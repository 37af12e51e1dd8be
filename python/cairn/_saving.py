"""Makes saves: it begins one, stages its state, commits that to the agent, and waits for the verdict."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from cairn import (
    _agent,
    _awaited,
    _device,
    _layout,
    _line,
    _memory,
    _overlap,
    _replicas,
    _session,
    _staging,
    _timeouts,
    _wire,
)
from cairn._errors import Error
from cairn._results import Checkpoint, DeviceReport, StagingReport

# An agent itself ends an attempt and says who was late. The client gives up only if the agent does not.
_TIMEOUT_GRACE = 5.0
# So many overlapped saves of a client prove that nothing was torn, if save() is not told otherwise.
_CHECKED_SAVES = 3


@dataclasses.dataclass(frozen=True)
class Wish:
    """What is asked of a save; see Client.save.

    Attributes:
      resumed_from: the checkpoint from which the training has gone on; None if it has loaded none.
      metrics: what was measured at the step.
    """

    step: int
    allow_dropped_names: bool
    overwrite: bool
    resumed_from: _line.ResumePoint | None
    metrics: dict[str, float]


class Saver:
    """The saves of one session, one at a time.

    Attributes:
      sampler: chooses the replicas that are checked besides those that the coordinator asks for.
    """

    def __init__(self, session: _session.Session, slabs: _memory.MappingCache, devices: _device.Devices) -> None:
        """`slabs` has room for one slab. What is mapped there is given to nobody else."""
        self.sampler = _replicas.Sampler()
        self._session = session
        self._slabs = slabs
        self._builder = _layout.LayoutBuilder()
        self._devices = devices
        self._hanging: int | None = None  # a save whose copies from devices did not end in time
        self._guards = _overlap.Guards()
        self._behind: _overlap.Behind | None = None  # the last overlapped save
        self._overlapped = 0  # saves

    def prepare(self, state: dict[str, Any], timeout: float) -> int:
        """See Client.prepare."""
        deadline = time.monotonic() + timeout
        self.settle(deadline)
        declared = self._declare(state)
        request = _wire.LOCAL_AGENT["Prepare"].request(trainer_incarnation=self._session.incarnation)
        try:
            response, _ = self._session.call_with_layout(
                "Prepare", request, declared, deadline,
                f"no plan within {timeout:g} s: have all ranks called prepare?")
        except Error as error:
            self._give_up_slab(error)
            raise
        on_devices = declared.device_arrays()
        if on_devices and response.HasField("slab"):
            slab = self._slabs.get(response.slab, self._session.owner, writable=True)
            self._devices.pin(slab, on_devices, max(deadline - time.monotonic(), 0.0))
        return int(response.slab_bytes)

    def _declare(self, state: dict[str, Any]) -> _layout.Declared:
        """Raises DEVICE_STALLED while the copies of an earlier save hang, since they may still write to the slab."""
        declared = self._builder.declare(state)
        declared.devices = self._devices
        if self._devices.busy():
            raise Error("DEVICE_STALLED", "the GPU's driver has still not ended what an earlier call asked of it",
                        {"job": self._session.job, "rank": str(self._session.rank)})
        if self._hanging is not None:
            self._cancel(self._hanging, Error("DEVICE_STALLED", "the GPU's driver did not copy the state in time"))
            self._hanging = None
        return declared

    def settle(self, deadline: float) -> None:
        """Waits until an overlapped save has staged everything. Its own error is its Saving's.

        Raises:
          Error: DEVICE_STALLED (not by the deadline), and as Session.check.
        """
        self._session.check()
        if self._behind is not None and not self._behind.ended.wait(max(deadline - time.monotonic(), 0.0)):
            raise Error("DEVICE_STALLED", f"the overlapped save of step {self._behind.step} still copies",
                        self._about(self._behind.step))
        self._behind = None

    def finish(self) -> None:
        """Waits until an overlapped save is staged or given up, which it is by its deadline."""
        if self._behind is not None:
            try:
                self._session.check()
            except Error:
                return
            self._behind.ended.wait()

    def save(self, wish: Wish, state: dict[str, Any], started: float, timeout: float, holder: object,
             overlap: Iterable[Any] | None = None, check: bool | None = None) -> Saving:
        """See Client.save.

        Args:
          started: time.monotonic() of the call; it has `timeout` seconds from then.
          holder: lives as long as the Saving: the client, whose session that asks.
        """
        step = wish.step
        self.settle(started + timeout)
        declared = self._declare(state)
        deadline = declared.deadline = started + timeout
        while True:
            begun, agent = self._begin(wish, declared, deadline, timeout)
            try:
                why = ""
                if overlap is not None and begun.placements and declared.device_arrays():
                    behind = self._stage_behind(step, declared, begun, agent, overlap, check)
                    if isinstance(behind, _overlap.Behind):
                        return Saving(self, step, begun.save, agent, holder, None,
                                      behind.staging(time.monotonic() - started), behind)
                    why = behind
                report = self.stage(declared, begun)
                self._commit(declared, begun, agent, started)
                return Saving(self, step, begun.save, agent, holder, report,
                              _synchronous(report, time.monotonic() - started, why))
            except _session.Restarted:
                pass
            except BaseException as error:
                if isinstance(error, Error) and error.reason == "DEVICE_STALLED":
                    error.metadata.update(self._about(step))
                if self._devices.busy():  # what is copied still goes to the slab
                    self._hanging = begun.save
                    raise
                unreachable = isinstance(error, Error) and error.reason == "AGENT_UNREACHABLE"
                if not unreachable or not self._session.restarted_since(agent):
                    self._cancel(begun.save, error)
                    raise
                # The memory could not be mapped any more.
            # The call goes on with the agent's next process. If the coordinator knew of it, the attempt has ended
            # and its verdict comes; else this begins it.
            if time.monotonic() >= deadline:
                raise self._restarted(step)

    def _restarted(self, step: int) -> Error:
        return Error("RANK_LOST", f"{self._session.job}@{step}: the agent of rank {self._session.rank} restarted "
                     f"during the save of step {step}; save again", self._about(step))

    def _begin(self, wish: Wish, declared: _layout.Declared, deadline: float,
               timeout: float) -> tuple[_wire.Message, int]:
        """Returns where the state goes, and the incarnation of the agent that said so."""
        request = _wire.LOCAL_AGENT["BeginSave"].request(
            trainer_incarnation=self._session.incarnation, step=wish.step,
            allow_dropped_names=wish.allow_dropped_names, overwrite=wish.overwrite)
        if wish.resumed_from is not None:
            request.resumed_from.line = wish.resumed_from.line
            request.resumed_from.step = wish.resumed_from.step
        if self._session.rank == 0:  # those of the other ranks count for nothing
            for name, value in wish.metrics.items():
                request.metrics.add(name=name, value=value)
        _wire.set_duration(request.timeout, max(deadline - time.monotonic(), 0.0))
        pause = 0.02
        while True:
            try:
                return self._session.call_with_layout(
                    "BeginSave", request, declared, deadline + _TIMEOUT_GRACE,
                    f"step {wish.step}: staging could not begin within {timeout:g} s")
            except Error as error:
                self._give_up_slab(error)
                # The agent's memory holds an earlier step, and is free when that is written.
                if error.reason != "SAVE_IN_PROGRESS" or time.monotonic() + pause > deadline:
                    raise
            except BaseException as error: # Ctrl-C: no other rank may wait for this one
                self._cancel(0, error, wish.step)
                raise
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def stage(self, declared: _layout.Declared, begun: _wire.Message) -> DeviceReport | None:
        """Copies everything to its place in the slab. Returns how arrays on devices were copied, if there are any."""
        if not begun.placements:
            return None
        slab = self._slabs.get(begun.slab, self._session.owner, writable=True)
        on_devices = declared.device_arrays()
        report = None
        if on_devices:
            # Without prepare() this is where the slab is pinned.
            self._devices.pin(slab, on_devices, max(declared.deadline - time.monotonic(), 0.0))
            report = _staging.copy_from_devices(declared, begun.placements, slab)
        _staging.copy_out(declared, begun.placements, slab)
        return report

    def _stage_behind(self, step: int, declared: _layout.Declared, begun: _wire.Message, agent: int,
                      overlap: Iterable[Any], check: bool | None) -> _overlap.Behind | str:
        """Begins to copy arrays on devices, and stages all others. Returns why not, if the save must be synchronous."""
        covered = self._guards.cover(overlap)
        if isinstance(covered, str):
            return covered
        slab = self._slabs.get(begun.slab, self._session.owner, writable=True)
        self._devices.pin(slab, declared.device_arrays(), max(declared.deadline - time.monotonic(), 0.0))
        # The devices' thread is busy from the beginning of the copies on, so what else it is needed for comes first.
        _staging.copy_out(declared, begun.placements, slab)
        request = self._commit_request(declared, begun)
        if check is None:
            check = self._overlapped < _CHECKED_SAVES
        copies = _staging.begin_overlap(declared, begun.placements, slab, covered, check)
        if isinstance(copies, str):
            return copies
        self._overlapped += 1
        self._guards.set(copies)
        self._behind = _overlap.Behind(step, copies, lambda: self._end_behind(copies, step, request, agent))
        return self._behind

    def _end_behind(self, copies: _device.Overlap, step: int, request: _wire.Message, agent: int) -> DeviceReport:
        """Waits for the copies of an overlapped save, and commits that to the agent.

        Raises:
          Error: why it was given up.
        """
        try:
            report = copies.wait()
            self._session.call("CommitStaging", request, held_by=agent)
            return report
        except _session.Restarted:
            raise self._restarted(step) from None
        except Error as error:
            error.metadata.update(self._about(step))
            if error.reason == "DEVICE_STALLED" and self._devices.busy():
                self._hanging = request.save  # what is copied still goes to the slab
            else:
                self._cancel(request.save, error)
            raise

    def before_update(self, streams: Mapping[int, int] | None) -> None:
        self._guards.before_update(streams)

    def _commit_request(self, declared: _layout.Declared, begun: _wire.Message) -> _wire.Message:
        """Has the checksums of what other ranks hold too, as far as the coordinator asks for them."""
        return _wire.LOCAL_AGENT["CommitStaging"].request(
            trainer_incarnation=self._session.incarnation, save=begun.save,
            object_sizes=[len(entry.data) for entry in declared.objects],
            check_checksums=_replicas.checksums(declared, begun.check_items))

    def _commit(self, declared: _layout.Declared, begun: _wire.Message, agent: int, started: float) -> None:
        """Tells the agent that all is staged, and gives it the checksums of what other ranks hold too."""
        request = self._commit_request(declared, begun)
        request.sampled_checksums.extend(self.sampler.sample(declared, begun.may_check_items,
                                                             time.monotonic() - started))
        self._session.call("CommitStaging", request, held_by=agent)

    def _cancel(self, save: int, error: BaseException, step: int = 0) -> None:
        """Gives a save up; 0: the one of `step` that the agent has not answered yet.

        Must be called only when nothing copies for it any more, which the agent then assumes.
        """
        request = _wire.LOCAL_AGENT["CancelSave"].request(trainer_incarnation=self._session.incarnation, save=save,
                                                          step=step, error=_wire.status_from_error(error))
        try:
            self._session.agent.call("CancelSave", request)
        except Error:
            pass # the first error is the one to report; the agent's own deadline ends the attempt

    def _give_up_slab(self, error: Error) -> None:
        """Gives up the slab here too, because an agent gives up its slab before it makes a larger one."""
        if error.reason == "MEMORY_LIMIT" and error.metadata.get("rank") == str(self._session.rank):
            self._slabs.clear()

    def _about(self, step: int) -> dict[str, str]:
        rank = str(self._session.rank)
        return {"job": self._session.job, "step": str(step), "rank": rank, "ranks": rank}

    @property
    def job(self) -> str:
        return self._session.job

    def teller(self) -> _awaited.Teller:
        return self._session.teller("save")

    def verdict(self, step: int, save: int, agent: int, attempt: int,
                max_wait: float) -> tuple[Checkpoint | Error | None, Error | None, int]:
        """Returns the verdict, if there is one; why there may be none for long, if that is known; and the attempt's
        number.

        Args:
          agent: the incarnation that began the save.
          attempt: what the last answer told, 0 for nothing. An agent that restarted asks the coordinator about it.
        """
        request = _wire.LOCAL_AGENT["WaitSave"].request(trainer_incarnation=self._session.incarnation, step=step,
                                                        save=save, attempt=attempt)
        try:
            response = self._session.call("WaitSave", request, max_wait)
        except Error as error:
            if error.reason == "STALE_INCARNATION":
                raise Error(error.reason, f"{error.message}; whether step {step} was committed is not known here",
                            {**error.metadata, "step": str(step), "outcome": "unknown"}) from None
            if error.reason != "NOT_COMMITTED":
                raise
            return self._forgotten(step, agent, error), None, attempt
        if response.pending:
            stalled = _wire.error_from_status(response.stalled) if response.HasField("stalled") else None
            return None, stalled, response.attempt or attempt
        if response.checkpoint.state == _wire.CHECKPOINT_STATES["COMMITTED"]:
            return Checkpoint.from_wire(response.checkpoint), None, attempt
        return _wire.error_from_status(response.checkpoint.error), None, attempt

    def _forgotten(self, step: int, agent: int, error: Error) -> Error:
        """Returns the error of a save that the agent does not know and that never got its attempt's number.

        Another attempt of the step is another save, so what is committed says nothing about this one.
        """
        unknown = {**self._about(step), "outcome": "unknown"}
        if self._session.agent_incarnation == agent:
            return Error(error.reason, f"{error.message} any more; client.checkpoints() tells which steps are "
                         "committed", unknown)
        return Error("RANK_LOST", f"{self._session.job}@{step}: the agent of rank {self._session.rank} restarted "
                     f"during the save of step {step}, and nobody can say for this save whether it was committed; "
                     "client.checkpoints() tells which steps are. If this one is not, save again", unknown)


def _synchronous(report: DeviceReport | None, blocked_seconds: float, why: str) -> StagingReport:
    if report is None:
        return StagingReport("host", blocked_seconds, 0)
    return StagingReport(report.path, blocked_seconds, report.pinned_bytes, report.fallback, synchronous_because=why)


class Saving:
    """A save whose state is staged: it goes on without the trainer. Made by Client.save(). Thread-safe.

    Of an overlapped save, arrays on GPUs may still be copied; the optimizers it was told of wait for that.

    Attributes:
      step: the step that is saved.
      staging: the way of all arrays, and for how long save() kept its caller.
    """

    def __init__(self, saver: Saver, step: int, number: int, agent: int, holder: object,
                 device: DeviceReport | None, staging: StagingReport, behind: _overlap.Behind | None = None) -> None:
        self.step = step
        self.staging = staging
        self._device = device
        self._behind = behind
        self._saver = saver
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
        return self._device if self._behind is None else self._behind.report

    def before_update(self, streams: Mapping[int, int] | None = None) -> None:
        """Call it before arrays change that an overlapped save may still copy, outside of their optimizer's step.

        A moving average is such a change, or the replay of a CUDA graph, or a write to a tensor's `.data`. The GPU
        waits until the copies have ended, and the caller only until the driver knows that. Without an overlapped save,
        and after its copies, this costs next to nothing.

        Args:
          streams: device -> number of the CUDA stream of the change. By default those that torch has current.
        """
        if self._behind is not None:
            self._saver.before_update(streams)

    def wait(self, timeout: float = 600) -> Checkpoint:
        """Waits for the verdict.

        Args:
          timeout: seconds; the save goes on also when they have passed.

        Returns:
          The committed checkpoint; look at its `warning`.

        Raises:
          Error: the one that ended the save, such as RANK_LATE, RANK_LOST or NO_SPACE. With `outcome` "unknown" in its
            metadata it says nothing about the save. Of TIMED_OUT, and of what keeps the verdict away
            (STORAGE_STALLED, COORDINATOR_UNREACHABLE ...), waiting again gives the verdict when there is one. Of
            STALE_INCARNATION (another trainer has this one's rank), of NOT_COMMITTED, and of RANK_LOST (the agent
            restarted before it had told which attempt this is), client.checkpoints() of the trainer that goes on
            tells. BAD_REQUEST: the timeout is no number of seconds.
        """
        timeout = _timeouts.seconds(timeout, "wait")
        deadline = time.monotonic() + timeout
        teller = self._saver.teller()
        while True:
            with self._lock:
                if isinstance(self._outcome, Error):
                    raise Error(self._outcome.reason, self._outcome.message, self._outcome.metadata)
                if self._outcome is not None:
                    return self._outcome
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise self._late(timeout)
            self._poll(min(_agent.MAX_WAIT, remaining, teller.wait()))
            teller.look()

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

    def _late(self, timeout: float) -> Error:
        """Returns the error of a wait that ends without a verdict."""
        about = {"step": str(self.step), "job": self._saver.job}
        if self._stalled is not None:
            return Error(self._stalled.reason, self._stalled.message,
                         {**about, **self._stalled.metadata, "outcome": "unknown"})
        return Error("TIMED_OUT", f"step {self.step} was not committed within {timeout:g} s; it goes on",
                     {**about, "outcome": "unknown"})

    def _poll(self, max_wait: float) -> None:
        if self._behind is not None:
            if not self._behind.ended.wait(max_wait):
                return
            if self._behind.error is not None:
                with self._lock:
                    self._outcome = self._outcome or self._behind.error
                return
        try:
            outcome, stalled, attempt = self._saver.verdict(self.step, self._number, self._agent, self._attempt,
                                                            max_wait)
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
                     {**why.metadata, "step": str(self.step), "job": self._saver.job, "outcome": "unknown"})

    def __repr__(self) -> str:
        return f"Saving(step={self.step})"
