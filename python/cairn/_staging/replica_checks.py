"""Computes checksums of what other ranks hold too, by which the coordinator sees whether replicas are equal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy

from cairn._base import native, probes
from cairn._gpu.device_array import DeviceArray
from cairn._state.layout import DeclaredState

# The part of the time for which saves block a trainer that samples may take. Training waits for the slowest rank, which
# on a busy machine is one that was held up while it checked: half of the 5 % that the whole may cost is left for that.
_SHARE = 0.025
# The speed of a checksum before one was timed, in bytes and items per second: slower than any machine that runs this.
_SLOWEST = 1e9
_PER_ITEM = 10e-6
# The clock is read each time this many bytes are done.
_BATCH_BYTES = 4 << 20


def checksums(declared: DeclaredState, items: Iterable[int]) -> list[int]:
    """Returns the CRC32C of items of the layout: arrays in row-major order, objects over their true length.

    Raises Error as Devices.checksums, by the deadline of `declared`.
    """
    probes.reach("checksums", declared=declared, items=items)
    shards = len(declared.shards)
    keep = []
    checks = native.CopyList()
    on_devices: list[tuple[str, DeviceArray]] = []
    order: list[bool] = []  # of each item whether it is on a device
    for item in items:
        array = declared.shards[item].array if item < shards else None
        order.append(isinstance(array, DeviceArray))
        if isinstance(array, DeviceArray):
            on_devices.append((declared.shards[item].name, array))
        elif array is not None:
            checks.add_array(array, 0, -1, 0)
        else:
            data = numpy.frombuffer(declared.objects[item - shards].data, numpy.uint8)
            keep.append(data)
            checks.add_array(data, 0, -1, 0)
    if not on_devices:
        return checks.checksums()
    assert declared.devices is not None
    there = iter(declared.devices.checksums(on_devices, declared.deadline, declared.kept))
    here = iter(checks.checksums())
    return [next(there if on_device else here) for on_device in order]


class ReplicaSampler:
    """Spends a share of the time for which saves block on checking some replicas. Not thread-safe.

    Each save puts its share aside, and each check takes from it what it really took, by the clock: however wrong an
    estimate was, the mean is kept. What an item is expected to cost only says whether to begin it. One that costs more
    than is there is waited for, first in line, until enough has been put aside over several saves: a checksum cannot
    be taken in parts, since its writer has one of the whole item. So the most that one save pays is one large item.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter,
                 compute: Callable[[DeclaredState, list[int]], list[int]] = checksums) -> None:
        """`compute` does what checksums() does; `clock` tells seconds."""
        self._clock = clock
        self._compute = compute
        self._aside = 0.0  # seconds; below zero after a check that took longer than expected
        self._rate = _SLOWEST

    def sample(self, declared: DeclaredState, items: Iterable[int], blocked: float) -> list[int]:
        """Returns checksums of the first of `items`, as many as a save that blocked for this many seconds allows."""
        share = _SHARE * blocked
        self._aside += share
        spent = 0.0
        items = list(items)
        result: list[int] = []
        before = self._clock()
        while len(result) < len(items):
            # The time that was put aside is for an item that costs more than one save allows.
            batch, size = self._next_batch(declared, items, len(result),
                                           min(self._aside, share - spent) if result else self._aside)
            if not batch:
                break
            result += self._compute(declared, batch)
            now = self._clock()
            took, before = now - before, now
            spent += took
            self._aside -= took
            if size >= _BATCH_BYTES // 4:
                self._rate = size / max(took, 1e-9)
        else:
            self._aside = min(self._aside, 0.0)  # all was checked: there is nothing to put aside for
        # A check that was held up (a stopped process) does not end all sampling.
        self._aside = max(self._aside, -blocked)
        return result

    def _next_batch(self, declared: DeclaredState, items: list[int], begin: int,
                    budget: float) -> tuple[list[int], int]:
        batch: list[int] = []
        size = 0
        cost = 0.0
        for position in range(begin, len(items)):
            nbytes = declared.shards[items[position]].nbytes
            cost += _PER_ITEM + nbytes / self._rate
            if cost > budget or (batch and size + nbytes > _BATCH_BYTES):
                break
            batch.append(items[position])
            size += nbytes
        return batch, size
