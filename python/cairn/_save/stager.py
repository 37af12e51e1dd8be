"""Stages saves: copies a state to the agent's memory, so that the trainer may change it again."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any

from cairn._agent import connection, shared_memory
from cairn._agent.shared_memory import SharedMapping
from cairn._base import probes, wire
from cairn._base.errors import Error
from cairn._base.results import DeviceReport, StagingReport
from cairn._gpu.device_array import DeviceArray
from cairn._gpu.devices import Devices, OverlappedCopies
from cairn._gpu.overlap import BackgroundStaging, GuardedMemory, UpdateGuards, parts_of
from cairn._save.save_handle import Outcomes, Saving
from cairn._session import lineage
from cairn._session.session import AgentRestarted, Session
from cairn._staging import gpu_sharing, replica_checks, slab_copies
from cairn._state import layout
from cairn._state.layout import DeclaredState


@dataclasses.dataclass(frozen=True)
class SaveRequest:
    """What a trainer asks of one save; see Client.save.

    Attributes:
      resumed_from: the checkpoint from which the training has gone on; None if it has loaded none.
      metrics: what was measured at the step.
    """

    step: int
    allow_dropped_names: bool
    overwrite: bool
    resumed_from: lineage.ResumePoint | None
    metrics: dict[str, float]


class Stager:
    """Stages the saves of one session, one at a time.

    It begins a save with the agent, copies the state to the agent's memory (the slab), and tells the agent that all is
    there. From then on the save goes on without the trainer.

    Attributes:
      sampler: chooses the replicas that are checked besides those that the coordinator asks for.
    """

    def __init__(self, session: Session, slabs: shared_memory.MappingCache, devices: Devices,
                 sharing: gpu_sharing.GpuMemorySharing | None = None) -> None:
        """
        Args:
          slabs: has room for one slab. Memory that is mapped there is given to nobody else.
          sharing: lets the agent copy from devices; None if it is not to.
        """
        self.sampler = replica_checks.ReplicaSampler()
        self._session = session
        self._limits = session.limits
        self._outcomes = Outcomes(session)
        self._slabs = slabs
        self._builder = layout.LayoutBuilder()
        self._devices = devices
        self._sharing = sharing
        self._hanging: int | None = None  # a save whose copies from devices did not end in time
        self._guards = UpdateGuards()
        self._last_copies = slab_copies.CopyListCache()
        self._background: BackgroundStaging | None = None  # the last overlapped save
        self._overlapped = 0  # saves
        self._prepares = 0  # calls

    def prepare(self, state: dict[str, Any], timeout: float) -> int:
        """See Client.prepare."""
        deadline = time.monotonic() + timeout
        self.settle(deadline)
        declared = self._declare(state)
        self._prepares += 1
        request = wire.LOCAL_AGENT["Prepare"].request(trainer_incarnation=self._session.incarnation,
                                                      number=self._prepares)
        try:
            response, _ = self._session.call_with_layout(
                "Prepare", request, declared, deadline,
                f"prepare has waited {timeout:g} s for the other ranks")
        except BaseException as error:
            self._leave_prepare(error)
            if isinstance(error, Error):
                self._give_up_slab(error)
            raise
        on_devices = declared.device_arrays()
        if not on_devices or not response.HasField("slab"):
            return int(response.slab_bytes)
        # An agent that copies from devices itself pins its own mapping of the slab.
        if self._sharing is not None:
            self._sharing.prepare(declared, response.slab, deadline)
        else:
            slab = self._slab(response.slab, deadline)
            self._devices.pin(slab, on_devices, max(deadline - time.monotonic(), 0.0))
        return int(response.slab_bytes)

    def _slab(self, reference: wire.Message, deadline: float) -> SharedMapping:
        return self._slabs.get(reference, self._session.owner, writable=True,
                               patience=self._limits.call_timeout(0.0, deadline - time.monotonic()))

    def _leave_prepare(self, error: BaseException) -> None:
        """Tells the agent that this rank waits no more, so that its layout is not held against that of others."""
        if isinstance(error, Error) and error.reason in ("AGENT_UNREACHABLE", "STALE_INCARNATION"):
            return
        request = wire.LOCAL_AGENT["Prepare"].request(trainer_incarnation=self._session.incarnation,
                                                      number=self._prepares, end=True)
        with contextlib.suppress(Error):
            self._session.agent.call("Prepare", request, 0.0, timeout=self._limits.end_of_prepare)

    def _declare(self, state: dict[str, Any]) -> DeclaredState:
        """Raises DEVICE_STALLED while the copies of an earlier save hang, since they may still write to the slab."""
        declared = self._builder.declare(state)
        declared.devices = self._devices
        if self._devices.busy():
            raise Error("DEVICE_STALLED", "the GPU's driver has still not ended what an earlier call asked of it: "
                        f"{self._devices.waiting()}", {"job": self._session.job, "rank": str(self._session.rank)})
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
        if self._background is not None and not self._background.ended.wait(max(deadline - time.monotonic(), 0.0)):
            raise Error("DEVICE_STALLED", f"the overlapped save of step {self._background.step} still copies: "
                        f"{self._devices.waiting()}", self._about(self._background.step))
        self._background = None

    def finish(self) -> None:
        """Waits until an overlapped save is staged or given up, which it is by its deadline."""
        if self._background is not None:
            try:
                self._session.check()
            except Error:
                return
            self._background.ended.wait()

    def save(self, asked: SaveRequest, state: dict[str, Any], started: float, timeout: float, holder: object,
             overlap: Any = None, check: bool | None = None) -> Saving:
        """See Client.save.

        Args:
          started: time.monotonic() of the call; it has `timeout` seconds from then.
          overlap: parts, each an optimizer or arrays; None for a save that is not overlapped.
          holder: lives as long as the Saving: the client, whose session that asks.
        """
        step = asked.step
        self.settle(started + timeout)
        declared = self._declare(state)
        deadline = declared.deadline = started + timeout
        # A fault in it must not end an attempt that other ranks have begun.
        guarded = None if overlap is None else self._guards.cover(parts_of(overlap))
        while True:
            begun, agent = self._begin(asked, declared, deadline, timeout)
            try:
                why = ""
                if guarded is not None and not declared.device_arrays():
                    why = "no array of the state is on a GPU, so there is no copy that training could go on beside"
                elif guarded is not None and not begun.placements:
                    why = "this rank copies none of its arrays: other ranks write what it holds"
                elif guarded is not None:
                    background = self._stage_in_background(step, declared, begun, agent, guarded, check)
                    if isinstance(background, BackgroundStaging):
                        staging = self._staging_of(background, time.monotonic() - started)
                        return Saving(self._outcomes, step, begun.save, agent, holder, None, staging, background,
                                      self._guards)
                    why = background
                report = self.stage(declared, begun)
                self._commit(declared, begun, agent, started, deadline)
                return Saving(self._outcomes, step, begun.save, agent, holder, report,
                              _synchronous(report, time.monotonic() - started, why))
            except AgentRestarted:
                pass
            except BaseException as error:
                if isinstance(error, Error) and error.reason == "DEVICE_STALLED":
                    error.metadata.update(self._about(step))
                if self._devices.busy():  # what is copied still goes to the slab
                    self._hanging = begun.save
                    raise
                gone = (isinstance(error, Error) and error.reason == "AGENT_UNREACHABLE"
                        and not connection.is_frozen(error))
                if not gone or not self._session.restarted_since(agent, deadline):
                    self._cancel(begun.save, error)
                    raise
                # The memory could not be mapped any more.
            # The call goes on with the agent's next process. If the coordinator knew of it, the attempt has ended
            # and its outcome comes; else this begins it.
            if time.monotonic() >= deadline:
                raise self._restarted(step)

    def _restarted(self, step: int) -> Error:
        return Error("RANK_LOST", f"{self._session.job}@{step}: the agent of rank {self._session.rank} restarted "
                     f"during the save of step {step}; save again", self._about(step))

    def _begin(self, asked: SaveRequest, declared: DeclaredState, deadline: float,
               timeout: float) -> tuple[wire.Message, int]:
        """Returns where the state goes, and the incarnation of the agent that said so."""
        request = wire.LOCAL_AGENT["BeginSave"].request(
            trainer_incarnation=self._session.incarnation, step=asked.step,
            allow_dropped_names=asked.allow_dropped_names, overwrite=asked.overwrite)
        if asked.resumed_from is not None:
            request.resumed_from.line = asked.resumed_from.line
            request.resumed_from.step = asked.resumed_from.step
        if self._session.rank == 0:  # those of the other ranks count for nothing
            for name, value in asked.metrics.items():
                request.metrics.add(name=name, value=value)
        try:
            return self._session.call_with_layout(
                "BeginSave", request, declared, deadline,
                f"step {asked.step}: staging could not begin within {timeout:g} s", grace=self._limits.save_grace)
        except Error as error:
            self._give_up_slab(error)
            raise
        except BaseException as error: # Ctrl-C: no other rank may wait for this one
            self._cancel(0, error, asked.step)
            raise

    def stage(self, declared: DeclaredState, begun: wire.Message) -> DeviceReport | None:
        """Copies everything to its place in the slab. Returns how arrays on devices were copied, if there are any."""
        probes.reach("stage", rank=self._session.rank, declared=declared)
        if not begun.placements:
            return None
        slab = self._slab(begun.slab, declared.deadline)
        on_devices = declared.device_arrays()
        report = None
        if not on_devices and self._sharing is not None:
            self._sharing.copy(declared, begun)  # there is nothing to copy; what was freed is given back
        if on_devices:
            shared = gpu_sharing.AgentCopies()
            if self._sharing is not None:
                shared = self._sharing.copy(declared, begun)
            if any(isinstance(declared.shards[place.item].array, DeviceArray) and place.item not in shared.items
                   for place in begun.placements if place.item < len(declared.shards)):
                # Without prepare() this is where the slab is pinned.
                self._devices.pin(slab, on_devices, max(declared.deadline - time.monotonic(), 0.0))
            report = shared.with_others(slab_copies.copy_from_devices(declared, begun.placements, slab,
                                                                         self._last_copies, shared.items))
        page = self._session.page
        written = page.begin_staging(begun.staging) if page is not None and begun.staging else None
        slab_copies.copy_host_items(declared, begun.placements, slab, written)
        return report

    def _staging_of(self, background: BackgroundStaging, blocked_seconds: float) -> StagingReport:
        staging = background.staging(blocked_seconds)
        if self._sharing is None or staging.fallback:
            return staging
        return dataclasses.replace(staging, fallback="the trainer copies the arrays of an overlapped save itself")

    def _stage_in_background(self, step: int, declared: DeclaredState, begun: wire.Message, agent: int,
                             guarded: GuardedMemory | str, check: bool | None) -> BackgroundStaging | str:
        """Begins to copy arrays on devices, and stages all others. Returns why not, if the save must be synchronous."""
        if isinstance(guarded, str):
            return guarded
        slab = self._slab(begun.slab, declared.deadline)
        self._devices.pin(slab, declared.device_arrays(), max(declared.deadline - time.monotonic(), 0.0))
        # The devices' thread is busy from the beginning of the copies on, so what else it is needed for comes first.
        slab_copies.copy_host_items(declared, begun.placements, slab)
        request = self._commit_request(declared, begun)
        if check is None:
            check = self._overlapped < self._limits.checked_overlaps
        copies = slab_copies.begin_overlap(declared, begun.placements, slab, self._last_copies, guarded, check)
        if isinstance(copies, str):
            return copies
        self._overlapped += 1
        self._guards.set(copies)
        self._background = BackgroundStaging(
            step, copies, lambda: self._finish_in_background(copies, step, request, agent))
        return self._background

    def _finish_in_background(self, copies: OverlappedCopies, step: int, request: wire.Message,
                              agent: int) -> DeviceReport:
        """Waits for the copies of an overlapped save, and commits that to the agent.

        Raises:
          Error: why it was given up.
        """
        try:
            report = copies.wait()
            self._session.call("CommitStaging", request, held_by=agent)
            return report
        except AgentRestarted:
            raise self._restarted(step) from None
        except Error as error:
            error.metadata.update(self._about(step))
            if error.reason == "DEVICE_STALLED" and self._devices.busy():
                self._hanging = request.save  # what is copied still goes to the slab
            else:
                self._cancel(request.save, error)
            raise

    def _commit_request(self, declared: DeclaredState, begun: wire.Message) -> wire.Message:
        """Has the checksums of what other ranks hold too, as far as the coordinator asks for them."""
        probes.reach("commit", rank=self._session.rank)
        return wire.LOCAL_AGENT["CommitStaging"].request(
            trainer_incarnation=self._session.incarnation, save=begun.save,
            object_sizes=[len(entry.data) for entry in declared.objects],
            check_checksums=replica_checks.checksums(declared, begun.check_items))

    def _commit(self, declared: DeclaredState, begun: wire.Message, agent: int, started: float,
                deadline: float) -> None:
        """Tells the agent that all is staged, and gives it the checksums of what other ranks hold too."""
        request = self._commit_request(declared, begun)
        request.sampled_checksums.extend(self.sampler.sample(declared, begun.may_check_items,
                                                             time.monotonic() - started))
        self._session.call("CommitStaging", request, held_by=agent,
                           timeout=self._limits.call_timeout(0.0, deadline - time.monotonic()))

    def _cancel(self, save: int, error: BaseException, step: int = 0) -> None:
        """Gives a save up; 0: the one of `step` that the agent has not answered yet.

        Must be called only when nothing copies for it any more, which the agent then assumes.
        """
        request = wire.LOCAL_AGENT["CancelSave"].request(trainer_incarnation=self._session.incarnation, save=save,
                                                         step=step, error=wire.status_from_error(error))
        try:
            # An agent that has just not answered hears of it when it goes on, if it ever does.
            self._session.agent.call("CancelSave", request,
                                     timeout=self._limits.least_grace if connection.is_frozen(error) else None)
        except Error:
            pass # the first error is the one to report; the agent's own deadline ends the attempt

    def _give_up_slab(self, error: Error) -> None:
        """Gives up the slab here too, because an agent gives up its slab before it makes a larger one."""
        if error.reason == "MEMORY_LIMIT" and error.metadata.get("rank") == str(self._session.rank):
            self._slabs.clear()

    def _about(self, step: int) -> dict[str, str]:
        rank = str(self._session.rank)
        return {"job": self._session.job, "step": str(step), "rank": rank, "ranks": rank}


def _synchronous(report: DeviceReport | None, blocked_seconds: float, why: str) -> StagingReport:
    if report is None:
        return StagingReport("host", blocked_seconds, 0, synchronous_because=why)
    return StagingReport(report.path, blocked_seconds, report.pinned_bytes, report.fallback, synchronous_because=why)
