"""Receives a load: it takes batch after batch from the agent into the trainer's arrays."""

from __future__ import annotations

import time

import numpy

from cairn._agent import connection, shared_memory
from cairn._agent.connection import AgentConnection
from cairn._agent.shared_memory import SharedMapping
from cairn._base import native, probes, wire
from cairn._base.errors import Error
from cairn._base.results import DeviceReport
from cairn._gpu import devices
from cairn._load.piece_reader import PieceReader
from cairn._load.target import Target
from cairn._session.stragglers import StragglerReporter
from cairn._state.layout import DeclaredState


def receive(agent: AgentConnection, incarnation: int, number: int, declared: DeclaredState, begun: wire.Message,
            timeout: float, owner: int, lease: float, own: int,
            reporter: StragglerReporter) -> tuple[list[bytearray], DeviceReport | None]:
    """Takes batch after batch into the arrays. Returns the objects' bytes, and how arrays on devices were filled.

    Args:
      begun: the agent's answer to BeginLoad.
      timeout: seconds without a batch after which it is given up (TIMED_OUT).
      owner: the user of the agents whose memory is read.
      lease: seconds without a word after which an agent counts as lost.
      own: the incarnation of `agent`.
      reporter: says for whom it waits.
    """
    targets: list[Target] = [Target(entry.array, entry.name) for entry in declared.shards]
    report: DeviceReport | None = None
    try:
        objects = [bytearray(entry.bytes) for entry in begun.objects]
    except (MemoryError, OverflowError):
        largest = max(begun.objects, key=lambda entry: entry.bytes)
        raise Error("MEMORY_LIMIT", f"there is no memory for the objects of the load; {largest.name!r} alone has "
                    f"{largest.bytes} bytes") from None
    for data in objects:
        targets.append(Target(numpy.frombuffer(data, numpy.uint8) if data else numpy.empty(0, numpy.uint8), ""))
    buffers = shared_memory.MappingCache(capacity=64)
    copied: set[int] = set()
    request = wire.LOCAL_AGENT["ReceiveLoad"].request(trainer_incarnation=incarnation, number=number)
    with PieceReader(owner) as reader:
        deadline = time.monotonic() + timeout
        while True:
            max_wait = within(deadline, agent)
            response = agent.call("ReceiveLoad", request, max_wait,
                                  agent.limits.call_timeout(max_wait, deadline - time.monotonic()))
            request.ClearField("released_batches")
            request.ClearField("read_batches")
            for batch in response.batches:
                patience = agent.limits.call_timeout(0.0, deadline - time.monotonic())
                try:
                    if batch.pieces:
                        request.read_batches.append(reader.read(batch, targets, patience))
                        deadline = time.monotonic() + timeout
                        continue
                    if batch.batch not in copied:
                        buffer = buffers.get(batch.buffer, owner, writable=False, patience=patience)
                except Error as error:
                    if not batch.pieces and batch.buffer.agent_incarnation != own:
                        error.metadata.pop("detail", None)  # this rank's agent is not frozen for that
                    if error.reason == "AGENT_UNREACHABLE" and not connection.is_frozen(error):
                        _await_reason(agent, request, lease)
                    raise
                if batch.batch not in copied:
                    _copy_batch(batch, buffer, targets)
                    on_devices = _copies_to_devices(batch, buffer, targets)
                    if len(on_devices):
                        assert declared.devices is not None
                        report = declared.devices.to_devices(on_devices, buffer, timeout).plus(report)
                    copied.add(batch.batch)
                request.released_batches.append(batch.batch)
                deadline = time.monotonic() + timeout
            if response.complete and not response.batches:
                break
            if time.monotonic() > deadline:
                raise Error("TIMED_OUT", f"no bytes arrived for {timeout:g} s")
            if not response.batches:
                reporter.report_if_due(deadline - time.monotonic())
    last = devices.DeviceCopyList()
    for target in targets:
        target.finish(last)
    if len(last):
        assert declared.devices is not None
        report = declared.devices.to_devices(last, targets, timeout).plus(report)
    return objects, report


def within(deadline: float, agent: AgentConnection) -> float:
    """Returns how long the agent may hold a call."""
    return min(agent.limits.held_call, max(deadline - time.monotonic(), 0.05))


def _await_reason(agent: AgentConnection, request: wire.Message, lease: float) -> None:
    """Raises the error with which the load has failed, if the agent learns it soon.

    A buffer that is gone belonged to another agent, which was told to end the load, or is dead. This rank's agent is
    about to hear from the coordinator who is to blame, at the latest when the lease of a dead one has ended.
    """
    probes.reach("blame", lease=lease)
    request.ClearField("released_batches")
    request.ClearField("read_batches")
    limits = agent.limits
    until = time.monotonic() + min(max(limits.blame_leases * lease, limits.blame_least), limits.blame_most)
    while (left := until - time.monotonic()) > 0:
        agent.call("ReceiveLoad", request, min(left, agent.limits.held_call))


def _copy_batch(batch: wire.Message, buffer: SharedMapping, targets: list[Target]) -> None:
    """Makes the copies to the host."""
    probes.reach("receive", batch=batch, buffer=buffer)
    copies = native.CopyList()
    for copy in batch.copies:
        if copy.target >= len(targets) or not len(copy.extents) == len(copy.source_strides) == len(copy.target_strides):
            raise Error("INTERNAL", f"the agent's plan copies to item {copy.target} of {len(targets)}")
        if targets[copy.target].on_device is None:
            _add(copies, copy, buffer, targets[copy.target])
    copies.run()


def _copies_to_devices(batch: wire.Message, buffer: SharedMapping,
                       targets: list[Target]) -> devices.DeviceCopyList:
    """Returns the copies that _copy_batch() leaves out, whose plan it has checked."""
    copies = devices.DeviceCopyList()
    for copy in batch.copies:
        target = targets[copy.target]
        if target.on_device is not None:
            _add(copies, copy, buffer, target)
            copies.about(target.name, target.on_device)
    return copies


def _add(copies: native.CopyList, copy: wire.Message, buffer: SharedMapping, target: Target) -> None:
    copies.add(buffer.address, buffer.size, copy.source_offset, target.address, target.nbytes, copy.target_offset,
               copy.element_bytes, copy.extents, copy.source_strides, copy.target_strides, copy.casts)
