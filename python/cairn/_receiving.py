"""Receives a load: it copies batch after batch from the agent's buffers into the trainer's arrays."""

from __future__ import annotations

import time

import numpy

from cairn import _agent, _layout, _memory, _native, _wire
from cairn._errors import Error
from cairn._state import Array

# A reason is waited for this many leases, but at least and at most this many seconds.
_REASON_LEASES, _REASON_LEAST, _REASON_MOST = 1.5, 5.0, 300.0


def receive(agent: _agent.Agent, incarnation: int, number: int, declared: _layout.Declared, begun: _wire.Message,
            timeout: float, owner: int, lease: float) -> list[bytearray]:
    """Copies batch after batch into the arrays and returns the objects' bytes.

    Args:
      begun: the agent's answer to BeginLoad.
      timeout: seconds without a batch after which it is given up (TIMED_OUT).
      owner: the user of the agents whose memory is read.
      lease: seconds without a word after which an agent counts as lost.
    """
    targets: list[_Target] = [_Target(entry.array) for entry in declared.shards]
    objects = [bytearray(entry.bytes) for entry in begun.objects]
    for data in objects:
        targets.append(_Target(numpy.frombuffer(data, numpy.uint8) if data else numpy.empty(0, numpy.uint8)))
    buffers = _memory.MappingCache(capacity=64)
    released: list[int] = []
    copied: set[int] = set()
    deadline = time.monotonic() + timeout
    while True:
        request = _wire.LOCAL_AGENT["ReceiveLoad"].request(trainer_incarnation=incarnation, number=number,
                                                           released_batches=released)
        response = agent.call("ReceiveLoad", request, within(deadline))
        released = []
        for batch in response.batches:
            if batch.batch not in copied:
                try:
                    buffer = buffers.get(batch.buffer, owner, writable=False)
                except Error as error:
                    if error.reason == "AGENT_UNREACHABLE":
                        _await_reason(agent, request, lease)
                    raise
                _copy_batch(batch, buffer, targets)
                copied.add(batch.batch)
            released.append(batch.batch)
            deadline = time.monotonic() + timeout
        if response.complete and not response.batches:
            break
        if time.monotonic() > deadline:
            raise Error("TIMED_OUT", f"no bytes arrived for {timeout:g} s")
    for target in targets:
        target.finish()
    return objects


def within(deadline: float) -> float:
    """Returns how long the agent may hold a call."""
    return min(_agent.MAX_WAIT, max(deadline - time.monotonic(), 0.05))


def _await_reason(agent: _agent.Agent, request: _wire.Message, lease: float) -> None:
    """Raises the error with which the load has failed, if the agent learns it soon.

    A buffer that is gone belonged to another agent, which was told to end the load, or is dead. This rank's agent is
    about to hear from the coordinator who is to blame, at the latest when the lease of a dead one has ended.
    """
    request.ClearField("released_batches")
    until = time.monotonic() + min(max(_REASON_LEASES * lease, _REASON_LEAST), _REASON_MOST)
    while (left := until - time.monotonic()) > 0:
        agent.call("ReceiveLoad", request, min(left, _agent.MAX_WAIT))


class _Target:
    """Says where one item of a load goes."""

    def __init__(self, array: Array) -> None:
        self._array = array
        # Plans assume packed elements, so an array with another memory order gets a packed copy first.
        self._packed = array if array.flags.c_contiguous else array.copy(order="C")
        self.address = self._packed.__array_interface__["data"][0]
        self.nbytes = self._packed.nbytes

    def finish(self) -> None:
        if self._packed is not self._array:
            self._array[...] = self._packed


def _copy_batch(batch: _wire.Message, buffer: _memory.Mapping, targets: list[_Target]) -> None:
    copies = _native.CopyList()
    for copy in batch.copies:
        if copy.target >= len(targets) or not len(copy.extents) == len(copy.source_strides) == len(copy.target_strides):
            raise Error("INTERNAL", f"the agent's plan copies to item {copy.target} of {len(targets)}")
        target = targets[copy.target]
        copies.add(buffer.address, buffer.size, copy.source_offset, target.address, target.nbytes, copy.target_offset,
                   copy.element_bytes, copy.extents, copy.source_strides, copy.target_strides, copy.casts)
    copies.run()
