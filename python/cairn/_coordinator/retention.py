"""Changes what is kept of a job's checkpoints: deletions, rules, pins, tags and metrics."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, SupportsIndex

from cairn._base import wire
from cairn._base.errors import Error, shown

_MAX_STEP = 999_999_999_999
_METRIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,99}")
_MAX_METRICS = 64

# "loss:min", "accuracy:max", or the two words.
BestRule = str | tuple[str, str]


@dataclasses.dataclass(frozen=True)
class PruneChoice:
    """Says what a prune does with a checkpoint.

    Attributes:
      pruned: it is deleted; in a dry run, it would be.
      why: it stays; "" if it does not.
    """

    step: int
    pruned: bool
    why: str


def checked_step(step: SupportsIndex) -> int:
    """Raises BAD_STEP."""
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise Error("BAD_STEP", f"a step is an integer, not {shown(step)}")
    number = step.__index__()
    if not 0 <= number <= _MAX_STEP:
        text = shown(number)
        raise Error("BAD_STEP", f"step {text} is not between 0 and {_MAX_STEP}", {"step": text})
    return number


def checked_metrics(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """Returns them as floats. Values may be numbers and arrays of one number. Raises BAD_REQUEST."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise Error("BAD_REQUEST", f"metrics are a dict of numbers by name, not {type(metrics).__name__}")
    if len(metrics) > _MAX_METRICS:
        raise Error("BAD_REQUEST", f"a step has up to {_MAX_METRICS} metrics, not {len(metrics)}")
    checked = {}
    for name, value in metrics.items():
        if not isinstance(name, str) or not _METRIC_NAME.fullmatch(name):
            raise Error("BAD_REQUEST", f"the metric's name {name!r} is not up to 100 letters, digits, and characters "
                        "of \"._/-\"")
        try:
            checked[name] = float(value)
        except (TypeError, ValueError, OverflowError):
            raise Error("BAD_REQUEST", f"the metric {name!r} is no number: {shown(value)[:80]}") from None
    return checked


def storable_metrics(metrics: Mapping[str, Any] | None) -> tuple[dict[str, float], dict[str, str]]:
    """Returns those that checked_metrics takes, and why it refuses the others, by their names.

    A trainer's own dict may hold other things too.
    """
    found: dict[str, float] = {}
    refused: dict[str, str] = {}
    for name, value in (metrics or {}).items():
        try:
            one = checked_metrics({name: value})
        except Error as error:
            refused[str(name)] = error.message
            continue
        if len(found) < _MAX_METRICS:
            found.update(one)
        else:
            refused[str(name)] = f"a step has up to {_MAX_METRICS} metrics, and {name!r} is one too many"
    return found, refused


def set_retention_rules(policy: wire.Message, keep_last: SupportsIndex | None, keep_every: SupportsIndex | None,
                        keep_best: BestRule | None) -> None:
    """Puts rules into a RetentionPolicy. Raises BAD_REQUEST."""
    for name, value in (("keep_last", keep_last), ("keep_every", keep_every)):
        if value is None:
            continue
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 1 <= value.__index__() < 2**63:
            raise Error("BAD_REQUEST", f"{name} is an integer from 1, not {shown(value)}")
        setattr(policy, name, value.__index__())
    if keep_best is None:
        return
    if isinstance(keep_best, str):
        words = keep_best.rsplit(":", 1)
    else:
        words = list(keep_best) if isinstance(keep_best, (tuple, list)) else []
    if len(words) != 2 or not _METRIC_NAME.fullmatch(str(words[0])) or words[1] not in ("min", "max"):
        raise Error("BAD_REQUEST", f"keep_best is a metric and \"min\" or \"max\", as in \"loss:min\", not "
                    f"{shown(keep_best)}")
    policy.keep_best.metric, policy.keep_best.highest = str(words[0]), words[1] == "max"


class RetentionCalls:
    """The calls that change which checkpoints a job keeps, whoever makes them.

    A change is durable when its method returns.
    """

    def _change(self, name: str, request: wire.Message) -> wire.Message:
        """Makes a call of CheckpointService, whose request lacks the job, and returns the answer."""
        raise NotImplementedError

    def delete(self, step: SupportsIndex, cause: str = "") -> None:
        """Deletes a checkpoint of the job (docs/retention.md). One rank's call is enough.

        A step that was deleted before is no error. Its files may stay for a while, if a load reads them.

        Args:
          step: from 0 to 999999999999.
          cause: why, for people who look for it later.

        Raises:
          Error: BAD_STEP; NOT_COMMITTED (the step has no checkpoint); LAST_CHECKPOINT (the job has no other valid one);
            CHECKPOINT_IN_USE (it is being loaded); CHECKPOINT_PINNED (it has a pin or a tag);
            COORDINATOR_UNREACHABLE, STORAGE_STALLED (whether it is deleted is not known).
        """
        self._change("DeleteCheckpoint", wire.CHECKPOINTS["DeleteCheckpoint"].request(
            step=checked_step(step), cause=cause))

    def prune(self, keep_last: SupportsIndex | None = None, keep_every: SupportsIndex | None = None,
              keep_best: BestRule | None = None, *, dry_run: bool = False) -> list[PruneChoice]:
        """Deletes the checkpoints of the job that no rule keeps. One rank's call is enough.

        The newest valid one, damaged ones, those with a pin or a tag, and one that is being loaded always stay.
        It returns when all are deleted; other changes of the job need not wait for that.

        Args:
          keep_last, keep_every, keep_best: as for set_retention. Without any of them the job's own rules hold.
          dry_run: only say what would be deleted.

        Returns:
          What became of each checkpoint, by ascending step.

        Raises:
          Error: BAD_REQUEST (a rule is none, or there is no rule), RETENTION_UNREADABLE (the job's rules cannot be
            read), COORDINATOR_UNREACHABLE, STORAGE_STALLED. If some checkpoints were deleted before, its
            metadata says how many (`deleted`); calling it again goes on.
        """
        request = wire.CHECKPOINTS["PruneCheckpoints"].request(dry_run=dry_run)
        if any(rule is not None for rule in (keep_last, keep_every, keep_best)):
            set_retention_rules(request.policy, keep_last, keep_every, keep_best)
        choices: dict[int, PruneChoice] = {}
        left = 0
        while True:
            try:
                response = self._change("PruneCheckpoints", request)
            except Error as error:
                if not left:
                    raise
                pruned = sum(choice.pruned for choice in choices.values())
                done = "looked at" if dry_run else "deleted"
                raise Error(error.reason, f"after {pruned - left} of {pruned} checkpoints were {done}: "
                            f"{error.message}",
                            error.metadata | ({} if dry_run else {"deleted": str(pruned - left)})) from error
            # A later answer says what became of the steps that it names. The others are deleted by then.
            choices.update((choice.step, PruneChoice(choice.step, choice.prune, choice.why))
                           for choice in response.choices)
            left = response.steps_left
            if left == 0:
                return [choices[step] for step in sorted(choices)]

    def pin(self, step: SupportsIndex, note: str = "") -> None:
        """Keeps a checkpoint from being deleted and overwritten. One rank's call is enough. Idempotent.

        Args:
          step: from 0 to 999999999999.
          note: why, for people who look at the pin.

        Raises:
          Error: BAD_STEP, NOT_COMMITTED; COORDINATOR_UNREACHABLE, STORAGE_STALLED (whether the pin holds is not known:
            call it again).
        """
        self._change("PinCheckpoint", wire.CHECKPOINTS["PinCheckpoint"].request(
            step=checked_step(step), pinned=True, note=note))

    def unpin(self, step: SupportsIndex) -> None:
        """Lets a pinned checkpoint be deleted again. Idempotent. Arguments and errors as pin()."""
        self._change("PinCheckpoint", wire.CHECKPOINTS["PinCheckpoint"].request(step=checked_step(step), pinned=False))

    def tag(self, step: SupportsIndex, name: str) -> None:
        """Gives a checkpoint a name, which also keeps it as a pin does. One rank's call is enough. Idempotent.

        "JOB@NAME" then names it in every command, and load(step=NAME) loads it.

        Args:
          step: from 0 to 999999999999.
          name: up to 64 letters, digits, and characters of "._-", of which the first is a letter; not "latest".

        Raises:
          Error: BAD_STEP; BAD_REQUEST (it is no name, or another step has it); NOT_COMMITTED;
            COORDINATOR_UNREACHABLE, STORAGE_STALLED (whether the step has the name is not known: call it again).
        """
        self._change("TagCheckpoint", wire.CHECKPOINTS["TagCheckpoint"].request(
            step=checked_step(step), name=name, tagged=True))

    def untag(self, name: str) -> None:
        """Takes a name away from the checkpoint that has it. Does nothing if none has it. Errors as tag()."""
        self._change("TagCheckpoint", wire.CHECKPOINTS["TagCheckpoint"].request(name=name, tagged=False))

    def set_retention(self, keep_last: SupportsIndex | None = None, keep_every: SupportsIndex | None = None,
                      keep_best: BestRule | None = None) -> None:
        """Sets which checkpoints of the job are kept; the coordinator deletes the others (docs/retention.md).

        The rules hold until others are set. One rank's call is enough. Without rules all checkpoints are kept.

        Args:
          keep_last: so many of the newest valid checkpoints.
          keep_every: those whose step is a multiple of this.
          keep_best: the one whose metric is the lowest or the highest: "loss:min", "accuracy:max", or the two words in
            a tuple. save(metrics=...) says what the metrics are.

        Raises:
          Error: BAD_REQUEST (a rule is none), COORDINATOR_UNREACHABLE.
        """
        request = wire.CHECKPOINTS["SetRetention"].request()
        set_retention_rules(request.policy, keep_last, keep_every, keep_best)
        self._change("SetRetention", request)
