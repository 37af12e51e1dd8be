"""Loads and reshards: asking for one, receiving its bytes, ending it together with all ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cairn._agent import connection, shared_memory
from cairn._agent.connection import AgentConnection
from cairn._base import probes, wire
from cairn._base.errors import Error
from cairn._base.results import DeviceReport, LoadReport, listed
from cairn._gpu.device_array import DeviceArray
from cairn._gpu.devices import Devices
from cairn._load import receiver
from cairn._load.offload import to_host
from cairn._session import lineage
from cairn._session.session import Session
from cairn._staging import slab_copies
from cairn._state import layout
from cairn._state.declared_boxes import boxes_of
from cairn._state.entries import PerRankValues
from cairn._state.fingerprint_parts import fingerprint_parts
from cairn._state.layout import DeclaredState
from cairn._state.mapping import MappingLike, declare_mapping
from cairn._state.objects import decode

_log = logging.getLogger("cairn")


def tell_unfilled(report: LoadReport, job: str, rank: int) -> None:
    """Warns of what a load that is not strict left as it was. All ranks have the same names, so one says it."""
    if report.missing and rank == 0:
        _log.warning("%s: the load%s with strict=False did not find %d of the state's names, so these stay as they "
                     "were: %s", job, "" if report.step is None else f" of step {report.step}", len(report.missing),
                     listed(report.missing))


def tell_alarms(report: LoadReport, job: str, rank: int) -> None:
    """Warns of what looked wrong at the commit of the step that was loaded."""
    for warning in report.warnings if rank == 0 else ():
        _log.warning("%s%s looked wrong when it was saved: %s", job, "" if report.step is None else f"@{report.step}",
                     warning)


class Loader:
    """The loads and reshards of one session, one at a time."""

    def __init__(self, session: Session, devices: Devices, checkpoints: lineage.Lineage) -> None:
        self._session = session
        self._lineage = checkpoints
        self._devices = devices
        self._targets = layout.LayoutBuilder()
        self._sources = layout.LayoutBuilder()
        self._numbers = itertools.count(1)

    def load(self, state: dict[str, Any], step: int | None, mapping: MappingLike | None,
             source: str | os.PathLike[str] | None, strict: bool, fallback: bool, timeout: float,
             verify: str | None) -> LoadReport:
        """See Client.load."""
        declared = declare_mapping(self._targets.declare(state, writable=True), mapping, source)
        request = self._request(strict)
        if verify is not None:
            request.verify_fingerprints = True
        request.reads_pieces = not any(isinstance(entry.array, DeviceArray) for entry in declared.shards)
        if step is not None:
            request.step = step
        elif source is None:
            request.fallback = fallback
        begun, ended, data, device = self._run(request, declared, None, timeout)
        if begun.line:
            self._lineage.note_load(begun.line, begun.step)
        objects = _decode(begun, data, self._session.rank, self._session.world_size,
                          begun.world_size or self._session.world_size)
        report = _report(begun.step if source is None else None, objects, begun, ended, device)
        return report if verify is None else dataclasses.replace(report, verified_tensors=ended.verified_tensors)

    def reshard(self, source_state: dict[str, Any], target_state: dict[str, Any] | Callable[[], dict[str, Any]],
                strict: bool, offload: bool, timeout: float) -> LoadReport:
        """See Client.reshard."""
        if offload:
            self._sources.declare(source_state, length_prefix=True)  # refuses what is none before anything is moved
            to_host(source_state, self._devices, time.monotonic() + timeout)
        if callable(target_state):
            target_state = target_state()
        source = self._sources.declare(source_state, length_prefix=True)
        declared = self._targets.declare(target_state, writable=True)
        begun, ended, slots, device = self._run(self._request(strict), declared, source, timeout)
        data = [layout.without_length(slot, entry.name) for entry, slot in zip(begun.objects, slots, strict=True)]
        objects = _decode(begun, data, self._session.rank, self._session.world_size, self._session.world_size)
        return _report(None, objects, begun, ended, device)

    def _request(self, strict: bool) -> wire.Message:
        return wire.LOCAL_AGENT["BeginLoad"].request(trainer_incarnation=self._session.incarnation,
                                                     number=next(self._numbers), strict=strict)

    def _run(self, request: wire.Message, declared: DeclaredState, source: DeclaredState | None,
             timeout: float) -> tuple[wire.Message, wire.Message, list[bytearray], DeviceReport | None]:
        """Makes a load, from its request to its end; or a reshard, if there is a source.

        Returns what the agent said at its begin and at its end, the bytes of its objects, and how arrays on devices
        were filled.
        """
        what = "load" if source is None else "reshard"
        declared.devices = self._devices
        if source is not None:
            source.devices = self._devices
        agent, number = self._session.agent, request.number
        end = wire.LOCAL_AGENT["EndLoad"].request(trainer_incarnation=self._session.incarnation, number=number)
        known = {"step": str(request.step)} if request.HasField("step") else {}
        try:
            begun, _ = self._session.call_with_layout(
                "BeginLoad", request, declared, time.monotonic() + timeout,
                f"no plan for the {what} within {timeout:g} s", source)
            if begun.world_size:  # neither a reshard nor an import
                known["step"] = str(begun.step)
            if source is not None:
                source.deadline = time.monotonic() + timeout
                self.lend(number, source, begun)
            data, device = receiver.receive(agent, self._session.incarnation, number, declared, begun, timeout,
                                            self._session.owner, self._session.lease(),
                                            self._session.agent_incarnation, self._session.straggler_reporter("load"))
            if request.verify_fingerprints:
                end.fingerprint_parts.extend(fingerprint_parts(boxes_of(declared), self._devices,
                                                               time.monotonic() + timeout, declared.kept))
            return begun, self._await_end(end, what, timeout), data, device
        except BaseException as error:
            if isinstance(error, Error):
                for key, value in known.items():
                    error.metadata.setdefault(key, value)
            told = _give_up(agent, end, error)
            if told is not None:
                raise told from None
            raise

    def _await_end(self, end: wire.Message, what: str, timeout: float) -> wire.Message:
        """Returns the answer to EndLoad when all ranks are done."""
        deadline = time.monotonic() + timeout
        reporter = self._session.straggler_reporter("load")
        while True:
            max_wait = receiver.within(deadline, self._session.agent)
            ended = self._session.agent.call("EndLoad", end, max_wait,
                                             self._session.limits.call_timeout(max_wait, deadline - time.monotonic()))
            if not ended.pending:
                return ended
            if time.monotonic() > deadline:
                raise reporter.timeout_error(f"the other ranks did not end the {what} within {timeout:g} s", {})
            reporter.report_if_due(deadline - time.monotonic())

    def lend(self, number: int, source: DeclaredState, begun: wire.Message) -> None:
        """Copies what this rank lends in a reshard to where others can read it, by the deadline of `source`."""
        probes.reach("lend", rank=self._session.rank)
        reference = begun.source_memory
        patience = self._session.limits.call_timeout(0.0, source.deadline - time.monotonic())
        memory = shared_memory.SharedMapping(reference.descriptor_socket, reference.descriptor_id, reference.bytes,
                                             shared_memory.lender_of(reference, self._session.owner), writable=True,
                                             populate=False, patience=patience)
        slab_copies.copy_from_devices(source, begun.source_placements, memory, slab_copies.CopyListCache())
        slab_copies.copy_host_items(source, begun.source_placements, memory)
        self._session.agent.call("CommitSource", wire.LOCAL_AGENT["CommitSource"].request(
            trainer_incarnation=self._session.incarnation, number=number),
            timeout=self._session.limits.call_timeout(0.0, source.deadline - time.monotonic()))


@contextlib.contextmanager
def named(job: str, rank: int) -> Iterator[None]:
    """Adds the names that are known to an error of a load."""
    try:
        yield
    except Error as error:
        error.metadata.setdefault("job", job)
        if "ranks" not in error.metadata:  # those are to blame, which this one need not be
            error.metadata.setdefault("rank", str(rank))
        raise


def _give_up(agent: AgentConnection, end: wire.Message, error: BaseException) -> Error | None:
    """Tells the agent that this trainer is not in the load any more, so that no rank waits for it.

    Returns what all ranks are told about the load: it names the ranks that were waited for and what to do next.
    Returns None if that does not become known soon, or if `error` concerns only this trainer.
    """
    end.error.CopyFrom(wire.status_from_error(error))
    # The job's word comes within a second, unless the coordinator is away. After Ctrl-C it is not waited for as long: a
    # call of another rank that comes meanwhile would meet this one.
    limits = agent.limits
    patience = limits.load_outcome if isinstance(error, Error) else limits.interrupted_outcome
    if isinstance(error, Error) and error.reason == "COORDINATOR_UNREACHABLE":
        patience = 0.0  # the outcome does not come
    # An agent that has just not answered hears of it when it goes on, if it ever does.
    try:
        agent.call("EndLoad", end, patience, timeout=limits.least_grace if connection.is_frozen(error) else None)
    except Error as told:
        if not isinstance(error, Error) or told.reason in ("AGENT_UNREACHABLE", "NOT_REGISTERED", "STALE_INCARNATION"):
            return None
        if told.reason == "BAD_REQUEST" and "phase" not in told.metadata:
            return None  # the agent never heard of the load, or restarted meanwhile
        return told
    return None


def _report(step: int | None, objects: dict[str, Any], begun: wire.Message, ended: wire.Message,
            device: DeviceReport | None) -> LoadReport:
    passed_over = [{"step": each.step, "reason": wire.error_from_status(each.error).reason}
                   for each in begun.passed_over_steps]
    path = wire.enum_text("cairn.v1.IoPath", ended.io_path)
    return LoadReport(step, objects, list(begun.missing_names), list(begun.unexpected_names), ended.bytes_read,
                      ended.total_bytes_read, ended.unique_bytes, ended.storage_bytes, path,
                      begun.mapping_report, passed_over, device, wire.transport_text(ended), begun.mirror,
                      warnings=tuple(wire.error_from_status(each) for each in begun.warnings))


def _decode(begun: wire.Message, data: Sequence[bytes | bytearray], rank: int, world_size: int,
            saved_by: int) -> dict[str, Any]:
    """Returns the objects by name.

    Of objects that each rank has for itself it returns this rank's own, or a PerRankValues of all if `saved_by` is
    another number of ranks."""
    result: dict[str, Any] = {}
    of_ranks: dict[str, dict[int, Any]] = {}
    for entry, content in zip(begun.objects, data, strict=True):
        value = decode(content, entry.name)
        if entry.per_rank:
            of_ranks.setdefault(entry.name, {})[entry.rank] = value
        else:
            result[entry.name] = value
    for name, values in of_ranks.items():
        if saved_by != world_size:
            result[name] = PerRankValues(values.get(each) for each in range(saved_by))
        elif rank in values:
            result[name] = values[rank]
    return result
