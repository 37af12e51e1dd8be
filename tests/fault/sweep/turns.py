"""Two coordinators of one root in turn: the first stops in the middle of a save, and another one works meanwhile.

In the world "shared" locks keep nobody out, as where they are local to a machine; then the first wakes up again. In the
world "locked" the second waits for the lock until the first is killed.
"""

from __future__ import annotations

import pathlib
import tempfile
import threading
import time
from typing import Any

from sweep.oracle import Book, Violation, leftovers
from sweep.points import Point
from sweep.scenarios import Run
from sweep.world import World

_STEP, _FIRST, _SECOND = 5, 50, 51
_LEASE = 1.0
_LIMIT = 30.0
_PATIENCE = 5.0  # of the trainers of a coordinator that has lost its root


def count() -> int:
    """How many file calls the coordinator makes in a save when it has just started."""
    with tempfile.TemporaryDirectory(prefix="cairn-sweep-") as directory:
        with World(2, pathlib.Path(directory).resolve()) as world:
            Run(world).must_save()
            world.control.arm()
            world.save(_STEP, _FIRST)
            return world.control.calls("coordinator")


def point(point: Point) -> bool:
    """Runs a point. Returns whether the coordinator has stopped. Raises Violation."""
    shared = point.world == "shared"
    with tempfile.TemporaryDirectory(prefix="cairn-sweep-", ignore_cleanup_errors=True) as name:
        directory = pathlib.Path(name).resolve()
        (directory / "second").mkdir()
        with World(2, directory, lease=_LEASE) as first:
            first.patience = _PATIENCE
            book = Run(first).book
            Run(first).must_save(1)
            first.control.share_locks(shared)
            answers: list[Any] = []
            first.control.arm("coordinator", point.call, "freeze")
            saving = threading.Thread(target=lambda: answers.extend(first.save(_STEP, _FIRST)), daemon=True)
            saving.start()
            while first.control.met("coordinator") is None and saving.is_alive():
                time.sleep(0.01)
            frozen = first.control.met("coordinator") is not None
            first.stop_keeping()
            if not shared:
                killer = threading.Timer(0.5, first.cluster.coordinator.kill)
                killer.start()
            with World(2, directory / "second", lease=_LEASE, root=first.root, share_locks=shared) as second:
                run = Run(second)
                run.begin_above(_STEP)
                theirs = second.save(_STEP, _SECOND)
                first.control.disarm()
                first.resume()
                saving.join(3 * _PATIENCE)
                if saving.is_alive():
                    raise Violation("a save of the coordinator that was stopped has no end")
                _take(book, answers, theirs)
                run.book = book
                _check(second, run)
            return frozen


def _take(book: Book, first: list[Any], second: list[Any]) -> None:
    """The two saves of one step do not both stand."""
    told = [any(not isinstance(answer, BaseException) for answer in answers) for answers in (first, second)]
    if all(told):
        raise Violation(f"both coordinators have told that step {_STEP} is committed: {first} {second}")
    for version, answers in ((_FIRST, first), (_SECOND, second)):
        standing = [answer for answer in answers if getattr(answer, "reason", "") == "STEP_COMMITTED"]
        book.began(_STEP, version)
        if not standing:
            book.saved(_STEP, version, answers)
        elif any(told):
            continue
        else:  # it stands by the other coordinator, which could not tell it
            book.found(_STEP, _FIRST if version == _SECOND else _SECOND)
    for version, was_told in zip((_FIRST, _SECOND), told):
        if was_told:
            book.found(_STEP, version)


def _check(world: World, run: Run) -> None:
    book = run.book
    book.found(1, 1)
    problem = world.settle()
    if problem:
        raise Violation(problem)
    committed = world.committed()
    book.check_listed(committed, world.listed())
    for step in sorted(committed):
        run.must_load(step)
    run.must_load(run.must_save())
    # What the first one has begun after it woke up is removed by the next coordinator.
    for restart in (False, True):
        if restart:
            world.cluster.coordinator.kill()
            problem = world.settle()
            if problem:
                raise Violation(problem)
        deadline = time.monotonic() + (_LIMIT if restart else 3 * _LEASE)
        while left := leftovers(world.root, world.committed()):
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        if not left:
            return
    raise Violation(f"left behind: {sorted(left)}")
