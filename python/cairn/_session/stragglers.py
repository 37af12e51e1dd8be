"""Names the stragglers, the ranks that a save, load or prepare waits for: in the log when it waits for long, and in the
error that ends it."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Sequence

from cairn._base import wire
from cairn._base.errors import Error

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
ANSWER = 2.0
# A wait that is shorter than so many seconds is a look, at which nobody is asked for names.
LOOK = 1.0
# An agent that goes on is heard three times in a lease.
_SILENT_PART = 2 / 3
# Agents report progress this often at least, by seconds for each rank of the job (ProgressInterval of agent/runtime).
_REPORT_SECONDS = 0.0004
# No more ranks than these are named.
_MOST = 8

_PHASES = wire.enum_numbers("cairn.v1.RankProgress.Phase")
_SAVING = {wire.enum_numbers("cairn.v1.Checkpoint.State")[name] for name in ("PREPARING", "COLLECTING", "WRITING")}
_COMMITTING = wire.enum_numbers("cairn.v1.Checkpoint.State")["COMMITTING"]
_LOADING = {wire.enum_numbers("cairn.v1.Load.State")[name] for name in ("COLLECTING", "READING")}


class StragglerReporter:
    """Says for which ranks one call waits. It asks for the job's state now and then. Not thread-safe.

    Args:
      ask: returns the job as the coordinator sees it; raises Error.
      what: "save", "prepare", or "load", which is also a reshard.
      rank: of the trainer that waits.
      world_size: number of ranks of the job.
      step: that is saved; None for a load or prepare.
      lease: seconds of silence after which the coordinator takes an agent for lost.
      clock: seconds that never go back.
      chance: gives numbers from 0 to 1.
    """

    def __init__(self, ask: Callable[[], wire.Message], what: str, rank: int, world_size: int,
                 step: int | None = None, lease: float = math.inf, clock: Callable[[], float] = time.monotonic,
                 chance: Callable[[], float] = random.random) -> None:
        self._ask = ask
        self._what = what
        self._rank = rank
        self._step = step
        self._lease = lease
        self._clock = clock
        self._chance = chance
        self._begun = clock()
        self._pause = _PATIENCE
        self._shortest_pause = world_size / _RATE
        self._next = self._begun + _PATIENCE + rank / _RATE
        self._reported = ""

    def seconds_until_report(self) -> float:
        """Returns after how many seconds report_if_due() may have something to tell."""
        return max(self._next - self._clock(), 0.05)

    def report_if_due(self, remaining: float = math.inf, stalled: Error | None = None) -> None:
        """Tells whom or what the call waits for, if it waits for long and that is news. Never raises.

        A call that has fewer than ANSWER seconds left is not kept by this beyond its end: its error tells.

        Args:
          stalled: what keeps the call from its end, if the agent has said that.
        """
        now = self._clock()
        if now < self._next:
            return
        if remaining < ANSWER:
            self._next = math.inf
            return
        pause = max(self._pause, self._shortest_pause)
        self._next = now + pause * (1 + _JITTER * (2 * self._chance() - 1))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        if stalled is not None:  # nobody else knows more, and the coordinator may be away
            if stalled.reason != self._reported:
                self._reported = stalled.reason
                _LOG.warning("rank %d has waited %.0f s in %s: %s: %s", self._rank, now - self._begun, self._what,
                             stalled.reason, stalled.message)
            return
        try:
            job = self._ask()
        except Error:
            return # the call itself says what is wrong
        text = (describe_stragglers(job, self._what, self._rank, self._step, self._lease)
                or str(_not_moving(job, self._what, self._step)))
        if text and text != self._reported:
            self._reported = text
            _LOG.warning("rank %d has waited %.0f s in %s for %s", self._rank, now - self._begun, self._what, text)

    def timeout_error(self, what: str, metadata: dict[str, str], goes_on: str = "it") -> Error:
        """Returns the error of the call that ends now, within ANSWER seconds: whom it has waited for. Never raises.

        Args:
          what: has not come in which time.
          metadata: of the error; more is added.
          goes_on: what the call does, before "waits for ...".
        """
        try:
            job = self._ask()
        except Error as error:
            if error.reason == "COORDINATOR_UNREACHABLE":  # no more can be expected of any rank
                return Error(error.reason, f"{what}: {error.message}", {**metadata, **error.metadata})
            return Error("TIMED_OUT", f"{what}; {goes_on} waits for ranks that nobody can name now ({error.reason})",
                         metadata)
        text, named = self._named(job)
        return Error("TIMED_OUT", f"{what}; {goes_on} waits for {text}", {**metadata, **named})

    def with_stragglers(self, error: Error) -> Error:
        """Returns the error of a save that an earlier one has held up, with the ranks for which that one waits, if the
        coordinator says them within ANSWER seconds. Never raises."""
        if "ranks" in error.metadata:
            return error
        try:
            text, named = self._named(self._ask())
        except Error:
            return error
        if not named:
            return error
        return Error(error.reason, f"{error.message}; that save waits for {text}", {**error.metadata, **named})

    def _named(self, job: wire.Message) -> tuple[str, dict[str, str]]:
        """Returns whom the call waits for, as text and as metadata."""
        waited = _waited_for(job, self._what, self._rank, self._step, self._lease)
        phase = "waiting"
        if not str(waited) and self._what != "prepare":
            waited, phase = _behind(job, self._what, self._step)
        if not str(waited):
            return f"no rank that the coordinator knows of; `cairn status {job.job}` shows the job", {}
        ranks = ", ".join(str(rank) for rank, _ in waited.notes[:_MOST])
        return str(waited), {"ranks": ranks, "phase": phase} if ranks else {}


class _Stragglers:
    """The ranks that are waited for.

    Attributes:
      notes: (rank, what is known of it).
      more: so many ranks are counted and not shown.
      whole: what is waited for, if no rank is.
    """

    def __init__(self, notes: Sequence[tuple[int, str]] = (), more: int = 0, whole: str = "") -> None:
        self.notes = list(notes)
        self.more = more
        self.whole = whole

    def __str__(self) -> str:
        more = max(len(self.notes) - _MOST, 0) + self.more
        texts = [f"rank {rank} ({note})" for rank, note in self.notes[:_MOST]]
        if not texts and more:
            return f"{more} {'rank' if more == 1 else 'ranks'}"
        return ", ".join(texts) + (f" and {more} more" if more > 0 else "") or self.whole


def describe_stragglers(job: wire.Message, what: str, rank: int, step: int | None = None,
                        lease: float = math.inf) -> str:
    """Returns whom a save, load or prepare of the job waits for, and what is known of these ranks; "" if for none."""
    return str(_waited_for(job, what, rank, step, lease))


def _operations(job: wire.Message, what: str) -> list[wire.Message]:
    if what == "save":
        return [job.checkpoint] if job.HasField("checkpoint") and job.checkpoint.state in _SAVING else []
    return [load for load in job.loads if load.state in _LOADING]


def _silence(member: wire.Message, lease: float) -> str:
    """Says so if the agent was not heard for most of its lease: what its trainer does is then not known. Else ""."""
    unheard = member.last_heard.seconds + member.last_heard.nanos / 1e9
    return f"whose agent has not answered for {unheard:.0f} s" if unheard >= _SILENT_PART * lease else ""


def _waited_for(job: wire.Message, what: str, rank: int, step: int | None, lease: float) -> _Stragglers:
    """Returns the ranks that have not begun."""
    if what == "prepare":
        return _awaited_layouts(job, lease)
    waiting = _PHASES["WAITING"]
    operations, others = _operations(job, what), _operations(job, "load" if what == "save" else "save")
    members = {member.rank: member for member in job.ranks}
    elsewhere = {progress.rank for one in others for progress in one.ranks if progress.phase > waiting}
    notes = []
    for progress in (progress for one in operations for progress in one.ranks):
        if progress.rank == rank or progress.phase > waiting:
            continue
        if progress.rank in elsewhere:
            note = "which is in a load" if what == "save" else "which is in a save"
        elif progress.rank not in members:
            note = "no agent is registered"
        elif not members[progress.rank].trainer_attached:
            note = progress.note or "no trainer is attached"
        else:
            note = _silence(members[progress.rank], lease) or progress.note or f"which has not called {what}"
        notes.append((progress.rank, note))
    left_out = sum(_left_out(one, rank) for one in operations) if job.ranks_left_out else 0
    for one in operations:
        if step is not None and one.HasField("step") and one.step != step and _has_not_begun(one, rank):
            # The job shows the save that began first. This rank saves another step, and those of the first have not
            # come to it.
            return _in_another_save(one, job.ranks_left_out)
    return _Stragglers(notes, left_out)


def _has_not_begun(operation: wire.Message, rank: int) -> bool:
    return any(progress.rank == rank and progress.phase <= _PHASES["WAITING"] for progress in operation.ranks)


def _in_another_save(save: wire.Message, left_out: bool) -> _Stragglers:
    waiting = _PHASES["WAITING"]
    notes = [(progress.rank, f"saves step {save.step}") for progress in save.ranks if progress.phase > waiting]
    counted = sum(count.ranks for count in save.phase_counts if count.phase > waiting) if left_out else 0
    return _Stragglers(notes, max(int(counted) - len(notes), 0))


def _behind(job: wire.Message, what: str, step: int | None) -> tuple[_Stragglers, str]:
    """Returns the ranks that are farthest behind in what all have begun, and their phase."""
    last = _PHASES["WRITTEN" if what == "save" else "DONE"]
    for one in _operations(job, what):
        about = f"saves step {one.step} first, " if step is not None and one.step != step else ""
        phase = min((count.phase for count in one.phase_counts if count.ranks), default=last)
        if phase >= last:
            continue
        name = _phase_name(phase)
        notes = [(progress.rank, about + (progress.note or f"{name}, {_done(progress)}"))
                 for progress in one.ranks if progress.phase == phase]
        counted = sum(count.ranks for count in one.phase_counts if count.phase == phase)
        return _Stragglers(notes, max(int(counted) - len(notes), 0)), name
    if what == "save" and job.HasField("checkpoint") and job.checkpoint.state in (*_SAVING, _COMMITTING):
        return _Stragglers(whole=f"storage to commit step {job.checkpoint.step}, which all ranks have written"), ""
    return _Stragglers(), ""


# What a rank does in the phases in which storage may hold it up.
_AT_STORAGE = {_PHASES["WRITING"]: "writes to storage", _PHASES["READING"]: "reads from storage"}


def _not_moving(job: wire.Message, what: str, step: int | None) -> _Stragglers:
    """Returns the ranks that are farthest behind in what all have begun, if they make no progress: else the wait is
    only long. Of a save it may be storage, of the coordinator, that is waited for."""
    if what == "prepare":
        return _Stragglers()
    waited, _ = _behind(job, what, step)
    if waited.whole:
        return waited
    stuck = []
    still = max(_PATIENCE, 2 * _REPORT_SECONDS * job.world_size)
    for one in _operations(job, what):
        phase = min((count.phase for count in one.phase_counts if count.ranks), default=_PHASES["DONE"])
        if phase <= _PHASES["WAITING"]:
            continue  # ranks that have not begun are named already
        behind = [progress for progress in one.ranks if progress.phase == phase and _idle(progress) >= still]
        if what == "save" and phase == _PHASES["STAGED"] and one.attempt == 0:
            # All have staged, and no rank is at fault.
            return _Stragglers(whole=f"the coordinator, which plans step {one.step} and makes its directory in storage"
                               if behind else "")
        stuck += [(progress.rank, f"{_AT_STORAGE.get(phase, _phase_name(phase))}, {_done(progress)}, no progress for "
                   f"{_idle(progress):.0f} s") for progress in behind]
    return _Stragglers(stuck)


def _idle(progress: wire.Message) -> float:
    return float(progress.idle.seconds + progress.idle.nanos / 1e9)


def _phase_name(phase: int) -> str:
    return wire.enum_text("cairn.v1.RankProgress.Phase", phase)


def _done(progress: wire.Message) -> str:
    return f"{progress.bytes_done} of {progress.bytes_total} bytes"


def _awaited_layouts(job: wire.Message, lease: float) -> _Stragglers:
    members = {member.rank: member for member in job.ranks}
    notes = []
    for rank in job.layout_awaited_ranks:
        if rank in members and not members[rank].trainer_attached:
            note = "no trainer is attached"
        elif rank in members:
            note = _silence(members[rank], lease) or "which has not called prepare"
        elif job.ranks_left_out:
            note = "which has not called prepare"
        else:
            note = "no agent is registered"
        notes.append((rank, note))
    return _Stragglers(notes, job.layouts_awaited - len(notes))


def _left_out(operation: wire.Message, rank: int) -> int:
    """Returns how many ranks that have not begun are counted and not shown; `rank` itself waits for none."""
    waiting = _PHASES["WAITING"]
    counted = sum(count.ranks for count in operation.phase_counts if count.phase <= waiting)
    shown = sum(progress.phase <= waiting for progress in operation.ranks if progress.rank != rank)
    return max(int(counted - shown), 0)
