"""What must hold after each point, whatever has failed: an answer that was given stands, nothing half is listed, and
nothing is left behind."""

from __future__ import annotations

import os
import pathlib
import re
import time
from collections.abc import Iterable
from typing import Any

import cairn
from cairn._reasons import NEXT_ACTIONS

# With these the caller does not know what became of what it asked for.
_UNKNOWN = ("AGENT_UNREACHABLE", "COORDINATOR_UNREACHABLE", "STORAGE_STALLED", "TIMED_OUT")
# An error names what it is about: a rank, a file, a step, or an address.
_NAMED = re.compile(r"\branks? \d|/|demo@\d|\bstep \d|\bstep=\d|\d+\.\d+\.\d+\.\d+:\d+|\bslab\b")


class Violation(Exception):
    """Something that must hold does not."""


def is_unknown(error: BaseException) -> bool:
    """Whether the error leaves open what became of the save or the deletion."""
    return isinstance(error, cairn.Error) and (
        error.reason in _UNKNOWN or error.metadata.get("outcome") == "unknown")


def check_error(error: BaseException) -> None:
    """An error has a reason of the table, and names something."""
    if not isinstance(error, cairn.Error):
        raise Violation(f"no error of Cairn: {error!r}")
    if error.reason not in NEXT_ACTIONS or error.reason == "INTERNAL":
        raise Violation(f"an error without a reason of the table: {error}")
    if not _NAMED.search(error.message):
        raise Violation(f"an error that names nothing: {error}")


def check_message(text: str) -> None:
    """What a command prints when it fails has a reason of the table, and names something."""
    found = re.search(r"error: ([A-Z_]+): (.*)", text) or re.search(r'"reason": ?"([A-Z_]+)"(.*)', text, re.DOTALL)
    if found is None:
        raise Violation(f"no error of Cairn: {text!r}")
    check_error(cairn.Error(found[1], found[2]))


class Book:
    """Which versions each step may have, by what was told: None stands for no checkpoint."""

    def __init__(self) -> None:
        self._may: dict[int, set[int | None]] = {}

    def may(self, step: int) -> set[int | None]:
        return self._may.get(step, {None})

    def steps(self) -> list[int]:
        """The steps that certainly stand."""
        return sorted(step for step, versions in self._may.items() if None not in versions)

    def last(self) -> int:
        return max(self._may, default=0)

    def found(self, step: int, version: int | None) -> None:
        self._may[step] = {version}

    def began(self, step: int, version: int | None) -> None:
        """A change of the step has begun, and nobody knows whether it was done."""
        self._may[step] = self.may(step) | {version}

    def saved(self, step: int, version: int, answers: list[Any]) -> None:
        """Takes in what the ranks were told of a save."""
        committed = [not isinstance(answer, BaseException) for answer in answers]
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        for error in errors:
            check_error(error)
        known = [error for error in errors if not is_unknown(error)]
        # A rank whose call came after the commit is told that the step stands.
        standing = [error for error in known if isinstance(error, cairn.Error) and error.reason == "STEP_COMMITTED"]
        aborted = [error for error in known if error not in standing]
        if any(committed) and aborted:
            raise Violation(f"step {step}: some ranks were told COMMITTED, and one: {aborted[0]}")
        if any(committed) or standing:
            self._may[step] = {version}
        elif not aborted:
            self.began(step, version)

    def check_listed(self, committed: Iterable[int], listed: object) -> None:
        """The committed steps are those that were told. `listed` is for the violation: what is said of all steps."""
        stand = set(committed)
        if "DAMAGED" in str(listed):
            raise Violation(f"a step is listed as damaged: {listed}")
        for step in stand:
            if self.may(step) == {None}:
                raise Violation(f"step {step} is listed, and was never told as committed, or was deleted")
        missing = [step for step in self.steps() if step not in stand]
        if missing:
            raise Violation(f"steps {missing} were told as committed, and are not listed: {listed}")

    def check_loaded(self, step: int, answers: list[Any]) -> None:
        """All ranks have loaded one version of the step, byte for byte, and it is one that it may have."""
        for answer in answers:
            if isinstance(answer, BaseException):
                raise Violation(f"step {step} does not load: {answer}")
        if len(set(answers)) != 1:
            raise Violation(f"step {step} loads differently on its ranks: {answers}")
        loaded, version = answers[0]
        if loaded != step or version is None or version not in self.may(step):
            raise Violation(f"step {step} loads as {answers[0]}, it may be one of {self.may(step)}")
        self.found(step, version)


def files_of(directory: pathlib.Path) -> set[str]:
    """All files and directories below a directory."""
    found = set()
    for at, directories, names in os.walk(directory):
        found |= {os.path.relpath(os.path.join(at, name), directory) for name in (*names, *directories)}
    return found


_EXPECTED = re.compile(
    r"\.cairn(/(epoch|address|root-proof|token|tombstone-room|transfer\.secret|plans(/[0-9a-f]+\.plan)?))?"
    r"|demo|demo/\.retention|demo/\d{12}|demo/\d{12}/(\d{4}\.(verdict|deleted|repaired)|pinned|[a-z]+\.tag)")
_ATTEMPT = re.compile(r"demo/(\d{12})/(\d{4})(/(\.owner|rank\d{5}-bin\d{2}(-part\d+)?\.safetensors))?")


def leftovers(root: pathlib.Path, attempts: dict[int, int]) -> set[str]:
    """What stands below the root, and is nothing of a committed step and no record. `attempts`: that of each committed
    step."""
    left = set()
    for name in files_of(root):
        attempt = _ATTEMPT.fullmatch(name)
        expected = attempts.get(int(attempt[1])) == int(attempt[2]) if attempt else _EXPECTED.fullmatch(name)
        if not expected:
            left.add(name)
    return left


class Suspects:
    """What a point has left behind. It must go by itself, if only at the start of the next coordinator."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, float]] = {}  # by name: the point, the time

    def look(self, point: str, left: set[str]) -> None:
        self._seen = {name: seen for name, seen in self._seen.items() if name in left}
        for name in left:
            self._seen.setdefault(name, (point, time.monotonic()))

    def waiting(self, seconds: float) -> bool:
        """Whether something has stood for so long."""
        return any(time.monotonic() - begun > seconds for _, begun in self._seen.values())

    def found(self) -> list[tuple[str, str]]:
        """(point, name) of what is there."""
        return sorted((point, name) for name, (point, _) in self._seen.items())

    def forget(self) -> None:
        self._seen.clear()
