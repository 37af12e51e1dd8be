"""Tells in the log whom a save or load waits for, when it waits for long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from cairn import _wire
from cairn._errors import Error

_LOG = logging.getLogger("cairn")
# Ranks come to a save or load within a second or two of each other. After this many seconds one is worth a word. The
# pauses between two looks double up to the longest.
_PATIENCE = 3.0
_LONGEST_PAUSE = 60.0
# An answer grows with the job. So that the coordinator of a large job gives a few megabytes of them a second and no
# more, each rank asks later than the one before it, by so many seconds for each rank of the job.
_SPREAD = 1e-5
# No more ranks than these are named.
_MOST = 8

_PHASES = _wire.enum_numbers("cairn.v1.RankProgress.Phase")
_SAVING = {_wire.enum_numbers("cairn.v1.Checkpoint.State")[name] for name in ("PREPARING", "COLLECTING", "WRITING")}
_LOADING = {_wire.enum_numbers("cairn.v1.Load.State")[name] for name in ("COLLECTING", "READING")}


class Teller:
    """Looks at the job while one call waits. Not thread-safe.

    Args:
      ask: returns the job as the coordinator sees it; raises Error.
      what: "save" or "load", which is also a reshard.
      rank: of the trainer that waits.
      world_size: number of ranks of the job.
      clock: seconds that never go back.
    """

    def __init__(self, ask: Callable[[], _wire.Message], what: str, rank: int, world_size: int,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._what = what
        self._rank = rank
        self._clock = clock
        self._begun = clock()
        self._pause = _PATIENCE
        self._next = self._begun + _PATIENCE + rank * world_size * _SPREAD
        self._told = ""

    def wait(self) -> float:
        """Returns after how many seconds look() may have something to tell."""
        return max(self._next - self._clock(), 0.05)

    def look(self) -> None:
        """Tells whom the call waits for, if it waits for long and that is news. Never raises."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        try:
            text = awaited(self._ask(), self._what, self._rank)
        except Error:
            return # the call itself says what is wrong
        if text and text != self._told:
            self._told = text
            _LOG.warning("rank %d has waited %.0f s in %s for %s", self._rank, now - self._begun, self._what, text)


def awaited(job: _wire.Message, what: str, rank: int) -> str:
    """Returns whom a save or load of the job waits for, and what is known of these ranks; "" if it waits for none."""
    saves = [job.checkpoint] if job.HasField("checkpoint") and job.checkpoint.state in _SAVING else []
    loads = [load for load in job.loads if load.state in _LOADING]
    operations, others = (saves, loads) if what == "save" else (loads, saves)
    other = "a load" if what == "save" else "a save"
    waiting = _PHASES["WAITING"]
    members = {member.rank: member for member in job.ranks}
    elsewhere = {progress.rank for one in others for progress in one.ranks if progress.phase > waiting}
    texts = []
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
    more = len(texts) - _MOST
    return ", ".join(texts[:_MOST]) + (f" and {more} more" if more > 0 else "")
