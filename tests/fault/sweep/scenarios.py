"""What a job does while a call goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sweep import state
from sweep.oracle import Book, Violation, check_error
from sweep.world import World


class Run:
    """One job that goes through many points: what it has saved, and what may stand.

    Attributes:
      touched: the steps that the point under way may have changed.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.book = Book()
        self._version = 0
        self._next = 1
        self.touched: set[int] = set()

    def begin_above(self, step: int) -> None:
        """Later steps and versions lie above this one."""
        self._next = max(self._next, step)
        self._version = 1000 + max(self._version, step)

    def next_step(self) -> int:
        self._next += 1
        return self._next

    def save(self, step: int, **options: Any) -> list[Any]:
        """Saves a new version of the step, and takes in what was told."""
        self._version += 1
        version = self._version
        self.touched.add(step)
        answers = self.world.save(step, version, **options)
        self.book.saved(step, version, answers)
        return answers

    def must_save(self, step: int | None = None, **options: Any) -> int:
        """Saves while nothing goes wrong. Tries once more after an error of a lease that a busy machine has missed."""
        step = self.next_step() if step is None else step
        for attempt in (1, 2):
            answers = self.save(step, **options)
            errors = [answer for answer in answers if isinstance(answer, BaseException)]
            if not errors:
                return step
            late = all(getattr(error, "reason", "") in ("RANK_LATE", "RANK_LOST") for error in errors)
            if attempt == 2 or not late:
                raise Violation(f"a save without a fault fails: {errors[0]}")
        raise AssertionError

    def must_load(self, step: int, crosswise: bool = False) -> None:
        self.book.check_loaded(step, self.world.load(step, crosswise))

    def keep_steps(self, count: int) -> None:
        """Deletes the oldest steps, so that the job does not grow."""
        steps = self.book.steps()
        for step in steps[:-count]:
            self.must_delete(step)

    def must_delete(self, step: int) -> None:
        answer = self.delete(step)
        if answer is not None:
            raise Violation(f"step {step} is not deleted without a fault: {answer}")

    def delete(self, step: int) -> BaseException | None:
        """Deletes a step; returns the error."""
        self.touched.add(step)
        [answer] = self.world.on_ranks(lambda rank, client: client.delete(step, "a test"), range(1))
        if not isinstance(answer, BaseException):
            self.book.found(step, None)
            return None
        check_error(answer)
        # A refusal says that nothing was deleted; after an error of storage nobody knows.
        self.book.began(step, None)
        return answer


@dataclass(frozen=True)
class Scenario:
    """`prepare` runs without faults and returns what `act` needs; `act` runs while a call goes wrong; then `restore`
    runs without faults.

    Attributes:
      worlds: in which it runs; see WORLDS.
      sends: a process may also be killed when it sends a message to another one.
    """

    name: str
    prepare: Callable[[Run], Any]
    act: Callable[[Run, Any], None]
    worlds: tuple[str, ...]
    sends: bool = False
    restore: Callable[[Run], None] | None = None


# Ranks, and flags of the agents. In "files" no load takes bytes from the slab of an agent.
WORLDS: dict[str, tuple[int, list[str]]] = {
    "2": (2, []), "2-files": (2, ["--slab-loads=never"]), "5": (5, []),
    "5-files": (5, ["--slab-loads=never"]), "8": (8, [])}


def _two_steps(run: Run) -> None:
    """At least two steps stand, so that one may be deleted."""
    while len(run.book.steps()) < 2:
        run.must_save()
    run.keep_steps(4)


def _save(run: Run, _: Any) -> None:
    run.save(run.next_step())


def _newest(run: Run) -> int:
    _two_steps(run)
    return run.book.steps()[-1]


def _overwrite(run: Run, step: int) -> None:
    run.save(step, overwrite=True)


def _take_load(run: Run, step: int, answers: list[Any]) -> None:
    """A load under faults fills every byte, or says what went wrong."""
    for rank, answer in enumerate(answers):
        if isinstance(answer, BaseException):
            check_error(answer)
        elif answer[0] != step or answer[1] not in run.book.may(step):
            raise Violation(f"rank {rank} has loaded {answer}, step {step} may be one of {run.book.may(step)}")


def _load(run: Run, step: int) -> None:
    _take_load(run, step, run.world.load(step))


def _load_crosswise(run: Run, step: int) -> None:
    _take_load(run, step, run.world.load(step, True))


def _fresh(run: Run) -> int:
    """The slabs hold the newest step."""
    run.keep_steps(4)
    return run.must_save()


def _oldest(run: Run) -> int:
    while len(run.book.steps()) < 3:
        run.must_save()
    run.keep_steps(4)
    return run.book.steps()[0]


def _delete(run: Run, step: int) -> None:
    run.delete(step)


def _five_steps(run: Run) -> None:
    while len(run.book.steps()) < 4:
        run.must_save()


def _prune(run: Run, _: Any) -> None:
    steps = run.book.steps()
    [answer] = run.world.on_ranks(lambda rank, client: client.prune(keep_last=2), range(1))
    run.touched |= set(steps)
    if isinstance(answer, BaseException):
        check_error(answer)
        for step in steps[:-2]:
            run.book.began(step, None)
        return
    for choice in answer:
        if choice.pruned:
            if choice.step in steps[-2:]:
                raise Violation(f"step {choice.step} was pruned, one of the two newest of {steps}")
            run.book.found(choice.step, None)


def _with_rules(run: Run) -> None:
    """Rules of the job stand, by which each commit deletes something."""
    _five_steps(run)
    steps = run.book.steps()
    [answer] = run.world.on_ranks(lambda rank, client: client.set_retention(keep_last=3), range(1))
    if isinstance(answer, BaseException):
        raise Violation(f"the rules are not set without a fault: {answer}")
    for step in steps[:-3]:
        run.book.began(step, None)


def _save_with_rules(run: Run, _: Any) -> None:
    steps = run.book.steps()
    run.save(run.next_step())
    # Only what the rules do not keep may go, and it may go late.
    for step in steps[:-2]:
        run.book.began(step, None)
        run.touched.add(step)


def _without_rules(run: Run) -> None:
    run.world.settle()
    [answer] = run.world.on_ranks(lambda rank, client: client.set_retention(), range(1))
    if isinstance(answer, BaseException):
        raise Violation(f"the rules are not taken away without a fault: {answer}")


def _reshard(run: Run, _: Any) -> None:
    world = run.world

    def work(rank: int, client: Any) -> bool:
        wanted = state.target(rank, world.ranks, True)
        held = {name: value for name, value in state.state(rank, world.ranks, 7).items() if name not in ("mine",)}
        client.reshard(held, wanted, timeout=60)
        return state.same(rank, world.ranks, wanted, 7, True)

    for rank, answer in enumerate(world.on_ranks(work)):
        if isinstance(answer, BaseException):
            check_error(answer)
        elif answer is not True:
            raise Violation(f"rank {rank} has other bytes after a reshard")


def _nothing(run: Run) -> None:
    pass


SCENARIOS = {scenario.name: scenario for scenario in (
    Scenario("save", lambda run: run.keep_steps(4), _save, ("2", "5", "8"), sends=True),
    Scenario("overwrite", _newest, _overwrite, ("2", "5")),
    Scenario("load", _newest, _load, ("2-files", "5-files")),
    Scenario("load-crosswise", _newest, _load_crosswise, ("2-files", "5-files"), sends=True),
    Scenario("load-slab", _fresh, _load, ("2", "8"), sends=True),
    Scenario("delete", _oldest, _delete, ("2", "5")),
    Scenario("prune", _five_steps, _prune, ("2",)),
    Scenario("rules", _with_rules, _save_with_rules, ("2",), restore=_without_rules),
    Scenario("reshard", _nothing, _reshard, ("2", "5", "8"), sends=True),
)}


