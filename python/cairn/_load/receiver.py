"""Receives a load: it copies batch after batch from the agent's buffers into the trainer's arrays."""

from __future__ import annotations

import time

import numpy

from cairn._agent import connection, shared_memory
from cairn._agent.connection import AgentConnection
from cairn._agent.shared_memory import SharedMapping
from cairn._base import native, probes, wire
from cairn._base.arrays import Array
from cairn._base.errors import Error
from cairn._base.results import DeviceReport
from cairn._gpu import devices
from cairn._gpu.device_array import DeviceArray
from cairn._session.stragglers import StragglerReporter
from cairn._state.layout import DeclaredState


def receive(agent: AgentConnection, incarnation: int, number: int, declared: DeclaredState, begun: wire.Message,
            timeout: float, owner: int, lease: float, own: int,
            reporter: StragglerReporter) -> tuple[list[bytearray], DeviceReport | None]:
    """Copies batch after batch into the arrays. Returns the objects' bytes, and how arrays on devices were filled.

    Args:
      begun: the agent's answer to BeginLoad.
      timeout: seconds without a batch after which it is given up (TIMED_OUT).
      owner: the user of the agents whose memory is read.
      lease: seconds without a word after which an agent counts as lost.
      own: the incarnation of `agent`.
      reporter: says for whom it waits.
    """
    targets: list[_Target] = [_Target(entry.array, entry.name) for entry in declared.shards]
    report: DeviceReport | None = None
    try:
        objects = [bytearray(entry.bytes) for entry in begun.objects]
    except (MemoryError, OverflowError):
        largest = max(begun.objects, key=lambda entry: entry.bytes)
        raise Error("MEMORY_LIMIT", f"there is no memory for the objects of the load; {largest.name!r} alone has "
                    f"{largest.bytes} bytes") from None
    for data in objects:
        targets.append(_Target(numpy.frombuffer(data, numpy.uint8) if data else numpy.empty(0, numpy.uint8), ""))
    buffers = shared_memory.MappingCache(capacity=64)
    released: list[int] = []
    copied: set[int] = set()
    deadline = time.monotonic() + timeout
    while True:
        request = wire.LOCAL_AGENT["ReceiveLoad"].request(trainer_incarnation=incarnation, number=number,
                                                          released_batches=released)
        max_wait = within(deadline, agent)
        response = agent.call("ReceiveLoad", request, max_wait,
                              agent.limits.call_timeout(max_wait, deadline - time.monotonic()))
        released = []
        for batch in response.batches:
            if batch.batch not in copied:
                try:
                    buffer = buffers.get(batch.buffer, owner, writable=False,
                                         patience=agent.limits.call_timeout(0.0, deadline - time.monotonic()))
                except Error as error:
                    if batch.buffer.agent_incarnation != own:
                        error.metadata.pop("detail", None)  # this rank's agent is not frozen for that
                    if error.reason == "AGENT_UNREACHABLE" and not connection.is_frozen(error):
                        _await_reason(agent, request, lease)
                    raise
                _copy_batch(batch, buffer, targets)
                on_devices = _copies_to_devices(batch, buffer, targets)
                if len(on_devices):
                    assert declared.devices is not None
                    report = declared.devices.to_devices(on_devices, buffer, timeout).plus(report)
                copied.add(batch.batch)
            released.append(batch.batch)
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
    limits = agent.limits
    until = time.monotonic() + min(max(limits.blame_leases * lease, limits.blame_least), limits.blame_most)
    while (left := until - time.monotonic()) > 0:
        agent.call("ReceiveLoad", request, min(left, agent.limits.held_call))


class _Target:
    """Says where one item of a load goes. `on_device` is set if that is a device's memory."""

    def __init__(self, array: Array | DeviceArray, name: str) -> None:
        self._array = array
        self.name = name
        self.on_device: DeviceArray | None = None
        # Plans assume packed elements, so an array with another memory order gets a packed copy first.
        self._packed: Array | None = None
        if isinstance(array, DeviceArray):
            if array.flags.c_contiguous:
                self.on_device = array
                self.address = array.address
            else:
                self._packed = numpy.empty(array.nbytes, numpy.uint8)
        else:
            self._packed = array if array.flags.c_contiguous else array.copy(order="C")
        if self._packed is not None:
            self.address = self._packed.__array_interface__["data"][0]
        self.nbytes = array.nbytes

    def finish(self, last: devices.DeviceCopyList) -> None:
        """Fills the array from its packed copy; if it is on a device, by a copy that is added to `last`."""
        if isinstance(self._array, DeviceArray):
            if self._packed is not None:
                last.add_filling(self.name, self._array, self.address)
        elif self._packed is not self._array:
            self._array[...] = self._packed


def _copy_batch(batch: wire.Message, buffer: SharedMapping, targets: list[_Target]) -> None:
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
                       targets: list[_Target]) -> devices.DeviceCopyList:
    """Returns the copies that _copy_batch() leaves out, whose plan it has checked."""
    copies = devices.DeviceCopyList()
    for copy in batch.copies:
        target = targets[copy.target]
        if target.on_device is not None:
            _add(copies, copy, buffer, target)
            copies.about(target.name, target.on_device)
    return copies


def _add(copies: native.CopyList, copy: wire.Message, buffer: SharedMapping, target: _Target) -> None:
    copies.add(buffer.address, buffer.size, copy.source_offset, target.address, target.nbytes, copy.target_offset,
               copy.element_bytes, copy.extents, copy.source_strides, copy.target_strides, copy.casts)
