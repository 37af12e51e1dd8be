"""One rank of one side of the benchmark of stores.

An operation is its seconds (those of the slowest rank), what the ranks, the services and the store used of the CPU,
when it began and ended, and where the store's log stood then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import random
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checkpoint"))

from checkpointers import CHECKPOINTERS
from ranks import Rank
from served_store import ServedStore, cpu_of
from transfers import TRANSFERS

# As many as Cairn's files of a rank.
OBJECTS = 2


@dataclasses.dataclass
class Work:
    """What a rank is asked for: a phase of a side, on a state of so many bytes."""

    side: str
    phase: str
    size: int
    tensors: int
    part: int
    settings: list[dict[str, Any]]  # of a limit: those to take
    services: list[int]
    store: dict[str, Any]  # as ServedStore.described() has it


class Meter:
    """Measures operations that all ranks begin together."""

    def __init__(self, ranks: Rank, store: ServedStore, services: list[int]) -> None:
        self._ranks, self._store, self._services = ranks, store, services
        self.operations: dict[str, dict[str, Any]] = {}

    def _cpu(self) -> tuple[float, float, float]:
        """Returns what the ranks, the services and the store have used."""
        import torch
        import torch.distributed as dist

        used = torch.tensor(time.process_time(), dtype=torch.float64)
        dist.all_reduce(used)
        return used.item(), cpu_of(self._services), cpu_of(self._store.pids)

    def measure(self, name: str, work: Callable[[], Any]) -> Any:
        """Does the work, and returns what it returns."""
        self._ranks.barrier()  # what the other ranks did before is none of it
        log = self._store.position()
        before = self._cpu()
        began = time.monotonic()
        answer = self._ranks.timed(name, work)
        ended = time.monotonic()
        after = self._cpu()
        self.operations[name] = {
            "seconds": self._ranks.times[name][-1],
            **{f"cpu_{who}": b - a for who, a, b in zip(("ranks", "services", "store"), before, after)},
            "began": began, "ended": ended, "log": [log, self._store.position()],
        }
        self._ranks.barrier()
        return answer


def failure_of(work: Callable[[], Any]) -> str | None:
    """Does the work; returns the last line of the error with which it fails."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        work()
    except (Exception, CheckpointException) as error:  # the latter is no Exception
        return ([line for line in str(error).splitlines() if line.strip()] or [type(error).__name__])[-1].strip()
    return None


def checkpoint(work: Work, ranks: Rank, store: ServedStore, meter: Meter) -> None:
    """The phases "save", "load" and "reshard" of a checkpointer, and "try", which finds out whether it works at all."""
    side, phase = work.side, work.phase
    source = ranks.state(0, fill=True)
    target = None if phase in ("try", "save") else ranks.state(int(phase == "reshard"), fill=False)
    with contextlib.closing(CHECKPOINTERS[side](ranks, store, work.side, work.part)) as checkpointer:
        if phase == "try":
            meter.operations["try"] = {"error": failure_of(lambda: checkpointer.save(1, source))
                                       or failure_of(lambda: checkpointer.load(1, source))}
            return
        if target is not None:
            meter.measure(phase, lambda: checkpointer.load(2, target))
            meter.operations[phase] |= checkpointer.facts
            ranks.check(source, target)
            return
        # The first save plans, and makes connections; those that follow are what a training job waits for.
        checkpointer.prepare(source)
        checkpointer.save(1, source)
        blocked = meter.measure("save", lambda: checkpointer.save(2, source))
        ranks.note("blocked", blocked)
        meter.operations["save"]["blocked"] = ranks.times["blocked"][-1]


def transfer(work: Work, ranks: Rank, store: ServedStore, meter: Meter) -> None:
    """The phases "save" (an upload), "load" (a download), and "tune", which does both with all settings."""
    side, phase = work.side, work.phase
    size = ranks.total // ranks.world // OBJECTS
    chance = random.Random(ranks.rank)
    source = {f"{work.side}/{ranks.rank}-{number}": bytearray(chance.randbytes(size)) for number in range(OBJECTS)}

    def move(name: str, kind: Any, objects: dict[str, bytearray], upload: bool, times: int = 1) -> None:
        for number in range(times):
            kind.objects = objects
            kind.begin(upload)
            if phase == "tune":
                ranks.timed(name, lambda: kind.transfer(upload))
                meter.operations[name] = {"seconds": ranks.times[name][-1]}
            elif number == times - 1:
                meter.measure(name, lambda: kind.transfer(upload))
            else:
                kind.transfer(upload)

    # A download begins in processes that have made no connection; an upload follows one, as a later save does.
    for number, setting in enumerate(work.settings):
        if phase in ("save", "tune"):
            move(f"save {number}", TRANSFERS[side](store, source, work.part, setting), source, True, 2)
        if phase in ("load", "tune"):
            target = {name: bytearray(size) for name in source}
            move(f"load {number}", TRANSFERS[side](store, target, work.part, setting), target, False)
            assert target == source, f"{side} has brought other bytes"


def run(work: Work, environment: dict[str, str], answer: Connection) -> None:
    """Is the main function of a rank's process. Rank 0 sends the bytes of the state and the operations, by name."""
    os.environ |= environment
    ranks = Rank(work.size, work.tensors)
    store = ServedStore.of(work.store)
    meter = Meter(ranks, store, work.services)
    (checkpoint if work.side in CHECKPOINTERS else transfer)(work, ranks, store, meter)
    ranks.barrier()
    if ranks.rank == 0:
        answer.send((ranks.total, meter.operations))
