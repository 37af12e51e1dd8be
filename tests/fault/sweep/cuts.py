"""Power cuts: what a job has done to its files is recorded once, and at each event of the record the disk is made as a
cut may leave it (disk.py). Then a fresh job starts on that disk."""

from __future__ import annotations

import copy
import pathlib
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cairn
from sweep import record
from sweep.disk import Disk
from sweep.oracle import Book, Violation, leftovers
from sweep.record import Event
from sweep.scenarios import Run
from sweep.world import World

# A fresh coordinator removes what its predecessor left when two leases have passed.
_LEASE = 1.0
_TIDY_LIMIT = 30.0
# So many cuts are looked at at once: most of the time each waits for its leases.
AT_ONCE = 4


@dataclass
class Told:
    """A change of one step: it began, and was told, after so many bytes of the record. `version` None: a deletion."""

    begun: int
    told: int
    step: int
    version: int | None


@dataclass
class Recorded:
    """What a job has done: the disk before, the events with the bytes of the record behind each, and what was told."""

    before: Disk
    events: list[Event]
    ends: list[int]
    told: list[Told]
    book: Book  # before

    def at(self, event: int) -> tuple[Disk, Book]:
        """The disk before this event, and what may stand then."""
        disk, book = copy.deepcopy(self.before), copy.deepcopy(self.book)
        for one in self.events[:event]:
            disk.take(one)
        end = self.ends[event - 1] if event > 0 else 0
        for told in self.told:
            if told.told <= end:
                book.found(told.step, told.version)
            elif told.begun <= end:
                book.began(told.step, told.version)
        return disk, book


def _quiet(world: World) -> Disk:
    """Begins the record, and returns the disk as it is then."""
    size = world.control.record_path
    size.touch()
    world.control.record(True)
    while True:
        before = size.stat().st_size
        disk = Disk(world.root)
        time.sleep(0.3)  # nothing tells when a coordinator has nothing more to write; what it writes begins anew
        if size.stat().st_size == before:
            size.write_bytes(b"")
            return disk


def record_job(directory: pathlib.Path) -> Recorded:
    """Saves, overwrites, deletes, and saves under rules."""
    with World(2, directory) as world:
        run = Run(world)
        for _ in range(3):
            run.must_save()
        disk = _quiet(world)
        book, told = copy.deepcopy(run.book), []

        def size() -> int:
            return world.control.record_path.stat().st_size

        def change(step: int, act: Callable[[], Any]) -> None:
            begun = size()
            act()
            told.append(Told(begun, size(), step, next(iter(run.book.may(step)))))

        for _ in range(2):
            step = run.next_step()
            change(step, lambda step=step: run.must_save(step))
        change(step, lambda: run.must_save(step, overwrite=True))
        # The next coordinator writes its own records. It ends by itself: what a kill cuts off is in no record.
        world.replace_coordinator()
        oldest = run.book.steps()[0]
        change(oldest, lambda: run.must_delete(oldest))
        begun = size()
        world.on_ranks(lambda rank, client: client.set_retention(keep_last=2), range(1))
        doomed = run.book.steps()[:-1]
        step = run.next_step()
        change(step, lambda: run.must_save(step))
        world.settle()
        deadline = time.monotonic() + 20
        while len(world.committed()) > 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        # Nobody is told when the rules delete.
        told += [Told(begun, 1 << 62, each, None) for each in doomed]
        time.sleep(0.5)  # the files of what was deleted go after it
        world.control.record(False)
        events, ends, end = [], [], 0
        for event, end in record.read_with_ends(world.control.record_path, world.root):
            events.append(event)
            ends.append(end)
        return Recorded(disk, events, ends, told, book)


class Cuts:
    """A context manager. Its points may run in several threads at once."""

    def __init__(self) -> None:

        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-sweep-")).resolve()
        self._numbers = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Cuts:
        self.recorded = record_job(self._directory / "recorded")
        return self

    def __exit__(self, *about: object) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def draw(self, seed: int, number: int) -> str:
        """cut/job/EVENT/CHOICE: the power fails before this event of the record."""
        dice = random.Random(f"{seed}/cut/{number}")
        return f"cut/job/{1 + dice.randrange(len(self.recorded.events))}/{dice.randrange(1000)}"

    def point(self, name: str) -> None:
        """Raises Violation."""
        _, _, event, choice = name.split("/")
        disk, book = self.recorded.at(min(int(event), len(self.recorded.events)))
        with self._lock:
            self._numbers += 1
            directory = self._directory / f"{self._numbers}"
        (directory / "swept").mkdir(parents=True)
        disk.cut(directory / "swept/root", f"{event}/{choice}")
        try:
            with World(2, directory, lease=_LEASE, layer=False) as world:
                _check(world, book)
        except (Violation, cairn.Error) as violation:  # cairn.Error: a process does not start
            done = self.recorded.events[max(0, int(event) - 3):int(event)]
            raise Violation(f"{violation}\n  before the cut: {'; '.join(map(str, done))}") from None
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _check(world: World, book: Book) -> None:
    run = Run(world)
    run.book = book
    run.begin_above(book.last())
    problem = world.settle()
    if problem:
        raise Violation(problem)
    committed = world.committed()
    book.check_listed(committed, world.listed())
    for step in sorted(committed):
        run.must_load(step)
    run.must_load(run.must_save(), True)
    deadline = time.monotonic() + _TIDY_LIMIT
    while left := leftovers(world.root, world.committed()):
        if time.monotonic() > deadline:
            raise Violation(f"left behind: {sorted(left)}")
        time.sleep(0.1)
    for step in book.steps():
        if step in world.committed():
            run.must_load(step)
