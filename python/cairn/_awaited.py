"""Tells in the log whom a save, load or prepare waits for, when it waits for long."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from cairn import _wire
from cairn._errors import Error

_LOG = logging.getLogger("cairn")
# Ranks come to a save or load within a second or two of each other. After this many seconds one is worth a word. The
# pauses between two looks double up to the longest.
_PATIENCE = 3.0
_LONGEST_PAUSE = 60.0
# All ranks of a job wait together, and the coordinator has better to do than to answer them: they ask no more often
# than so many times a second together. The first ranks ask first, so that somebody's log tells soon.
_RATE = 20.0
# Pauses differ by this part, so that ranks do not come to ask all at once.
_JITTER = 0.25
# Seconds for which an answer is waited for: it is only a word more.
ANSWER = 3.0
# No more ranks than these are named.
_MOST = 8

_PHASES = _wire.enum_numbers("cairn.v1.RankProgress.Phase")
_SAVING = {_wire.enum_numbers("cairn.v1.Checkpoint.State")[name] for name in ("PREPARING", "COLLECTING", "WRITING")}
_LOADING = {_wire.enum_numbers("cairn.v1.Load.State")[name] for name in ("COLLECTING", "READING")}


class Teller:
    """Looks at the job while one call waits. Not thread-safe.

    Args:
      ask: returns the job as the coordinator sees it; raises Error.
      what: "save", "prepare", or "load", which is also a reshard.
      rank: of the trainer that waits.
      world_size: number of ranks of the job.
      clock: seconds that never go back.
      chance: gives numbers from 0 to 1.
    """

    def __init__(self, ask: Callable[[], _wire.Message], what: str, rank: int, world_size: int,
                 clock: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random) -> None:
        self._ask = ask
        self._what = what
        self._rank = rank
        self._clock = clock
        self._chance = chance
        self._begun = clock()
        self._pause = _PATIENCE
        self._shortest_pause = world_size / _RATE
        self._next = self._begun + _PATIENCE + rank / _RATE
        self._told = ""

    def wait(self) -> float:
        """Returns after how many seconds look() may have something to tell."""
        return max(self._next - self._clock(), 0.05)

    def look(self) -> None:
        """Tells whom the call waits for, if it waits for long and that is news. Never raises."""
        now = self._clock()
        if now < self._next:
            return
        pause = max(self._pause, self._shortest_pause)
        self._next = now + pause * (1 + _JITTER * (2 * self._chance() - 1))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        try:
            text = awaited(self._ask(), self._what, self._rank)
        except Error:
            return # the call itself says what is wrong
        if text and text != self._told:
            self._told = text
            _LOG.warning("rank %d has waited %.0f s in %s for %s", self._rank, now - self._begun, self._what, text)


    def named(self) -> tuple[str, str]:
        """Returns whom a prepare waits for, and the numbers of these ranks; empty if it is not known. Never raises."""
        try:
            job = self._ask()
        except Error:
            return "", ""
        return awaited(job, "prepare", self._rank), ", ".join(map(str, job.layout_awaited_ranks))


def awaited(job: _wire.Message, what: str, rank: int) -> str:
    """Returns whom a save, load or prepare of the job waits for, and what is known of these ranks; "" if for none."""
    if what == "prepare":
        return _awaited_layouts(job)
    saves = [job.checkpoint] if job.HasField("checkpoint") and job.checkpoint.state in _SAVING else []
    loads = [load for load in job.loads if load.state in _LOADING]
    operations, others = (saves, loads) if what == "save" else (loads, saves)
    other = "a load" if what == "save" else "a save"
    waiting = _PHASES["WAITING"]
    members = {member.rank: member for member in job.ranks}
    elsewhere = {progress.rank for one in others for progress in one.ranks if progress.phase > waiting}
    texts = []
    left_out = sum(_left_out(one, rank) for one in operations) if job.ranks_left_out else 0
    for progress in (progress for one in operations for progress in one.ranks):
        if progress.rank == rank or progress.phase > waiting:
            continue
        if progress.rank in elsewhere:
            note = f"which is in {other}"
        elif progress.rank not in members:
            note = "no agent is registered"
        elif not members[progress.rank].trainer_attached:
            note = "no trainer is attached"
        else:
            note = progress.note or f"which has not called {what}"
        texts.append(f"rank {progress.rank} ({note})")
    more = max(len(texts) - _MOST, 0) + left_out
    return ", ".join(texts[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _awaited_layouts(job: _wire.Message) -> str:
    members = {member.rank: member for member in job.ranks}
    texts = []
    for rank in job.layout_awaited_ranks:
        if rank in members and not members[rank].trainer_attached:
            note = "no trainer is attached"
        elif rank in members or job.ranks_left_out:
            note = "which has not called prepare"
        else:
            note = "no agent is registered"
        texts.append(f"rank {rank} ({note})")
    more = job.layouts_awaited - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")


def _left_out(operation: _wire.Message, rank: int) -> int:
    """Returns how many ranks that have not begun are counted and not shown; `rank` itself waits for none."""
    waiting = _PHASES["WAITING"]
    counted = sum(count.ranks for count in operation.phase_counts if count.phase <= waiting)
    shown = sum(progress.phase <= waiting for progress in operation.ranks if progress.rank != rank)
    return max(int(counted - shown), 0)
