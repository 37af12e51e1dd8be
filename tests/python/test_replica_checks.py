"""Tests the share of time that samples of replicas take, on a clock that only checks move; and what is summed."""

import types

import numpy as np
import pytest

from cairn._staging import replica_checks
from cairn._state import layout

MB = 1_000_000


class Machine:
    """Sums `rate` bytes per second, and knows what was summed in each save."""

    def __init__(self, sizes, rate=10e9, per_call=20e-6):
        self.now, self.rate, self.per_call = 100.0, rate, per_call
        self.declared = types.SimpleNamespace(shards=[types.SimpleNamespace(nbytes=size) for size in sizes])
        self.sampler = replica_checks.ReplicaSampler(clock=lambda: self.now, compute=self._checksums)
        self.next = 0
        self.summed = []
        self.took = []

    def _checksums(self, declared, items):
        self.summed += items
        self.now += self.per_call + sum(declared.shards[item].nbytes for item in items) / self.rate
        return [10 * item for item in items]

    def save(self, blocked):
        """Makes one save with the agent's rotation and returns the items that were checked."""
        count = len(self.declared.shards)
        offered = [(self.next + i) % count for i in range(min(count, 256))]
        before = self.now
        sums = self.sampler.sample(self.declared, offered, blocked)
        assert sums == [10 * item for item in offered[:len(sums)]]
        self.next = (self.next + len(sums)) % count
        self.took.append(self.now - before)
        return offered[:len(sums)]


@pytest.mark.parametrize("sizes, rate, blocked", [
    ([4 * MB] * 150, 10e9, 0.1),
    ([4 * MB] * 150, 0.2e9, 0.1),       # far slower than is assumed at first
    ([100] * 3000, 10e9, 0.02),
    ([2000 * MB], 10e9, 0.3),           # one item costs most of a save
    ([1, 500 * MB, 1000, 3 * MB], 5e9, 0.05),
    ([MB], 10e9, 1e-4),                 # saves that take no time
])
def test_all_is_checked_in_turn_within_the_share(sizes, rate, blocked):
    machine = Machine(sizes, rate)
    rounds, saves = 3, 0
    while len(machine.summed) < rounds * len(sizes):
        machine.save(blocked)
        saves += 1
        assert saves < 100_000, "it does not come around"
    assert set(machine.summed) == set(range(len(sizes)))
    # The share is exceeded at most by what the last save began before its clock was known.
    largest = max(sizes) / rate
    assert sum(machine.took) <= 0.05 * saves * blocked + largest + machine.per_call
    assert max(machine.took) <= 0.05 * blocked + largest + 2 * replica_checks._BATCH_BYTES / rate + machine.per_call


def test_nothing_is_put_aside_while_nothing_waits():
    machine = Machine([1000] * 4)
    for _ in range(1000):
        machine.save(1.0)
    machine.declared.shards += [types.SimpleNamespace(nbytes=100 * MB) for _ in range(200)]
    machine.save(1.0)
    assert machine.took[-1] <= 0.05


def test_a_check_that_was_held_up_is_paid_back_and_then_forgotten():
    machine = Machine([1000] * 10)
    machine.per_call = 3600.0  # the process was stopped meanwhile
    assert machine.save(0.1)
    machine.per_call = 20e-6
    saves = 1
    while not machine.save(0.1):
        saves += 1
    assert 20 < saves < 60


def test_no_replicas_cost_nothing():
    machine = Machine([1])
    assert machine.sampler.sample(machine.declared, [], 1.0) == []
    assert machine.took == [] and machine.now == 100.0


def test_sums_are_over_true_lengths_and_in_row_major_order():
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    declared = layout.LayoutBuilder().declare({"a": array, "t": np.asfortranarray(array), "o": b"123456788"})
    sums = replica_checks.checksums(declared, [1, 0, 2])
    assert sums[0] == sums[1] == crc32c(array.tobytes())
    assert sums[2] == crc32c(b"\x00" + b"123456788")


def crc32c(data: bytes) -> int:
    """Computes the checksum bit by bit, from its definition."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff
