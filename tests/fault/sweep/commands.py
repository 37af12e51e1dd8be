"""Commands that need no coordinator, while one of their file calls goes wrong: import, export, repair, and those that
read. Each point runs in a copy of one tree. Power cuts during those that write: what the command does to its files is
recorded once, and each point makes the tree that a cut may leave (disk.py)."""

from __future__ import annotations

import copy
import difflib
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from sweep import record
from sweep.control import Control
from sweep.disk import Disk
from sweep.oracle import Violation, check_message, files_of, leftovers
from sweep.points import CUT, Point, draw
from sweep.record import Event
from sweep.scenarios import Run
from sweep.world import environment, world_in_temporary
from testing.ranks import command, command_json

# What stands in the tree: step 2, step 3, and step 4, whose manifest is damaged.
_VALID, _DAMAGED, _IMPORTED = 3, 4, 7
# A command that hangs ends so late.
_LIMIT = 60.0
# What an error of the system is called, and what it must not be called.
_TROUBLE = re.compile("STORAGE_ERROR|STORAGE_READ_ONLY|NO_SPACE|MEMORY_LIMIT")
_DAMAGE = re.compile("MANIFEST_CORRUPT|FILE_MISSING|FILE_TRUNCATED|CHECKSUM_MISMATCH")
# So many of the points of a command that writes are power cuts.
_CUTS = 0.3
_SECOND_NAME = ".tmp-export-done-"
_ACTIONS = ("kill-before", "kill-middle", "kill-after", "fail", "fail-from", "lie", "short")


@dataclass(frozen=True)
class Case:
    """`arguments` has {swept} in the place of the directory. `check` looks at a tree in which the command has done its
    work; `again` is whether a second run is refused with STEP_COMMITTED after a first one that has worked."""

    name: str
    arguments: str
    check: Callable[[Tree], None] | None = None
    again: bool = False


class Tree:
    """A copy of the tree, and what the command has printed there."""

    def __init__(self, swept: pathlib.Path, golden: Golden) -> None:
        self.swept, self.golden = swept, golden
        self.root = swept / "root"

    def listed(self) -> dict[int, str]:
        entries = command_json("list", "demo", "--root", str(self.root))["checkpoints"]
        return {entry["step"]: entry["state"] for entry in entries}

    def expect_valid(self, step: int) -> None:
        listed = self.listed()
        if listed.get(step) != "COMMITTED":
            raise Violation(f"step {step} is not committed: {listed}")
        done = command("verify", f"demo@{step}", "--root", str(self.root), expect=None)
        if done.returncode != 0:
            raise Violation(f"step {step} is not whole: {done.stdout} {done.stderr}")

    def attempts(self) -> dict[int, int]:
        entries = command_json("list", "demo", "--root", str(self.root))["checkpoints"]
        return {entry["step"]: entry["attempt"] for entry in entries}


@dataclass
class Recorded:
    """What a command has done when nothing goes wrong: the disk before it, and its events."""

    before: Disk
    events: list[Event]


class Golden:
    """What the exported files are when nothing goes wrong, and what reading commands print."""

    def __init__(self) -> None:
        self.exported: dict[str, dict[str, bytes]] = {}
        self.printed: dict[str, str] = {}


def _contents(directory: pathlib.Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in files_of(directory) if (directory / name).is_file()}


def _check_exported(tree: Tree) -> None:
    # After a power cut, second names of files may be left; the next export of the directory removes them.
    found = {name: data for name, data in _contents(tree.swept / "out").items() if not name.startswith(_SECOND_NAME)}
    expected = tree.golden.exported["out"]
    if found != expected:
        raise Violation(f"what was exported differs: {sorted(found)}, expected {sorted(expected)}")


def _check_imported(tree: Tree) -> None:
    tree.expect_valid(_IMPORTED)
    done = command("diff", f"demo@{_VALID}", f"demo@{_IMPORTED}", "--root", str(tree.root), expect=None)
    if done.returncode not in (0, 1) or "differs" in done.stdout.replace("no tensor differs", ""):
        raise Violation(f"what was imported differs: {done.stdout} {done.stderr}")


CASES = {case.name: case for case in (
    Case("export", "export demo@3 --root {swept}/root --to {swept}/out --threads 1", _check_exported, again=True),
    Case("import", "import {swept}/model --to demo@7 --root {swept}/root --threads 1", _check_imported, again=True),
    Case("repair", "repair demo@4 --root {swept}/root", lambda tree: tree.expect_valid(_DAMAGED)),
    Case("list", "list demo --root {swept}/root --check --format=json"),
    Case("verify", "verify demo@3 --root {swept}/root --format=json"),
    Case("show", "show demo@3 --root {swept}/root --tensors --format=json"),
)}


class Commands:
    """A context manager, as a Sweeper is.

    Attributes:
      counts: how many calls each command makes when nothing goes wrong.
      recorded: what each command that writes has done then.
    """

    def __init__(self) -> None:
        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-sweep-")).resolve()
        self._swept = self._directory / "swept"
        self._template = self._directory / "template"
        self._golden = Golden()
        self.counts: dict[str, int] = {}
        self.recorded: dict[str, Recorded] = {}
        self.met: object = None

    def __enter__(self) -> Commands:
        with world_in_temporary(2) as world:
            run = Run(world)
            while run.book.last() < _DAMAGED:
                run.must_save()
            shutil.copytree(world.root, self._template / "root", symlinks=True)
        outcome = self._template / f"root/demo/{_DAMAGED:012}/0001.verdict"
        # The magic and the end of the record stand: whoever repairs it sees that it was a commit.
        damaged = bytearray(outcome.read_bytes())
        damaged[20] ^= 1
        outcome.write_bytes(damaged)
        command("export", f"demo@{_VALID}", "--root", str(self._template / "root"), "--to",
                str(self._template / "model"))
        self._control = Control(self._directory, self._swept, ["command"])
        for case in CASES.values():
            self._fresh()
            before = Disk(self._swept)
            self._control.record_path.write_bytes(b"")
            self._control.record(True)
            self._control.arm()
            done = self._call(case)
            self._control.disarm()
            self._control.record(False)
            if case.check is not None:
                found = record.read_with_ends(self._control.record_path, self._swept)
                self.recorded[case.name] = Recorded(before, [event for event, _ in found])
            if done.returncode != 0 and case.check is not None:
                raise Violation(f"{case.name} fails without a fault: {done.stderr}")
            self.counts[case.name] = self._control.calls("command")
            self._golden.printed[case.name] = f"{done.returncode} {done.stdout}"
            if case.name == "export":
                self._golden.exported["out"] = _contents(self._swept / "out")
        return self

    def __exit__(self, *about: object) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def names(self) -> list[str]:
        return sorted(CASES)

    def draw(self, seed: int, number: int) -> Point:
        names = self.names()
        name = names[number % len(names)]
        dice = random.Random(f"{seed}/cut/{name}/{number}")
        if name in self.recorded and dice.random() < _CUTS:
            # Behind the last event the command has told that its work is done.
            event = 1 + dice.randrange(len(self.recorded[name].events) + 1)
            return Point(name, "commands", "command", event, CUT, dice.randrange(1000))
        return draw(seed, number, name, "commands", {"command": self.counts[name]}, _ACTIONS)

    def _fresh(self) -> Tree:
        shutil.rmtree(self._swept, ignore_errors=True)
        shutil.copytree(self._template, self._swept, symlinks=True)
        return Tree(self._swept, self._golden)

    def _call(self, case: Case, faults: bool = True) -> subprocess.CompletedProcess:
        arguments = case.arguments.format(swept=self._swept).split()
        with environment(self._control.environment() if faults else {}):
            return command(*arguments, expect=None, timeout=_LIMIT)

    def point(self, point: Point) -> bool:
        """Runs a point. Returns whether its call was made. Raises Violation."""
        case = CASES[point.scenario]
        if point.action == CUT:
            self._cut(case, point)
            return True
        tree = self._fresh()
        before = files_of(self._swept)
        self._control.arm(point.process, point.call, point.action, point.choice)
        done = self._call(case)
        self.met = self._control.met(point.process)
        self._control.disarm()
        killed = done.returncode < 0
        if not killed and self.met is not None:
            self._check_told(case, done)
        if case.check is None:
            return self.met is not None
        if done.returncode == 0:
            case.check(tree)
        self._check_afterwards(case, tree, before)
        return self.met is not None

    def _cut(self, case: Case, point: Point) -> None:
        """The power fails before an event, or behind the last one, when the command has told that it is done."""
        recorded = self.recorded[case.name]
        disk = copy.deepcopy(recorded.before)
        for event in recorded.events[:point.call - 1]:
            disk.take(event)
        self.met = None
        shutil.rmtree(self._swept, ignore_errors=True)
        disk.cut(self._swept, str(point))
        tree = Tree(self._swept, self._golden)
        before = files_of(self._template)
        try:
            if point.call > len(recorded.events):
                assert case.check is not None
                case.check(tree)
            self._check_afterwards(case, tree, before)
        except Violation as violation:
            done = "; ".join(map(str, recorded.events[max(0, point.call - 4):point.call - 1]))
            raise Violation(f"{violation}\n  before the cut: {done}") from None

    def _check_afterwards(self, case: Case, tree: Tree, before: set[str]) -> None:
        """Nothing half is listed, and the command does its work when it is run again."""
        assert case.check is not None
        self._check_half(case, tree)
        again = self._call(case, faults=False)
        stood = case.again and ("STEP_COMMITTED" in again.stderr or "OUTPUT_EXISTS" in again.stderr
                                or "is not empty" in again.stderr)
        if again.returncode != 0 and not (stood and self._done_before(case, tree)):
            raise Violation(f"the command does not work afterwards: {again.stderr}")
        case.check(tree)
        self._check_tidy(case, tree, before)

    def _done_before(self, case: Case, tree: Tree) -> bool:
        """Whether the first run has done its work, whatever it told."""
        assert case.check is not None
        try:
            case.check(tree)
        except Violation:
            return False
        return True

    def _check_told(self, case: Case, done: subprocess.CompletedProcess) -> None:
        """A command that did not work says why. One that reads prints what it prints without a fault, or an error."""
        if case.check is not None and done.returncode == 0:
            return
        if case.check is None and f"{done.returncode} {done.stdout}" == self._golden.printed[case.name]:
            return
        said = done.stderr + done.stdout
        if done.returncode == 0 and not (case.name == "list" and _TROUBLE.search(said)):
            parted = self._parted(case, done)
            raise Violation(f"it prints other things than without a fault, and tells no error:\n{parted}")
        if done.returncode != 0:
            check_message(said)
        if case.check is None and _DAMAGE.search(said.replace(f"{_DAMAGED:012}", "")) and case.name != "list":
            raise Violation(f"an error of the system is called damage: {said}")

    def _parted(self, case: Case, done: subprocess.CompletedProcess) -> str:
        """The lines that are other than without a fault."""
        lines = difflib.unified_diff(self._golden.printed[case.name].splitlines(),
                                     f"{done.returncode} {done.stdout}".splitlines(), n=0, lineterm="")
        return "\n".join(list(lines)[2:30])

    def _check_half(self, case: Case, tree: Tree) -> None:
        """Nothing half is listed."""
        if case.name == "import":
            listed = tree.listed()
            if _IMPORTED in listed:
                _check_imported(tree)
        if case.name == "repair" and tree.listed().get(_DAMAGED) == "COMMITTED":
            tree.expect_valid(_DAMAGED)
        tree.expect_valid(_VALID)

    def _check_tidy(self, case: Case, tree: Tree, before: set[str]) -> None:
        left = leftovers(tree.root, tree.attempts())
        allowed = {f"root/{name}" for name in left} & before
        new = {name for name in files_of(self._swept) - before if not name.startswith("root/") and name != "out"
               and not (name.startswith("out/") and name[4:] in self._golden.exported["out"])}
        new |= {f"root/{name}" for name in left if f"root/{name}" not in allowed}
        if new:
            raise Violation(f"left behind: {sorted(new)}")
