"""Runs points, one after the other, in one job that lives on from point to point."""

from __future__ import annotations

import time
from collections.abc import Callable

from sweep.oracle import Suspects, Violation, leftovers
from sweep.points import Point
from sweep.scenarios import SCENARIOS, WORLDS, Run, Scenario
from sweep.world import LEASE, World, world_in_temporary

# By then a coordinator that has started removes what its predecessor left, and a save has come after it.
_TIDY_AFTER = 2 * LEASE + 3
_TIDY_LIMIT = 40.0


class Sweeper:
    """A context manager: a job in one of WORLDS.

    Args:
      name: of the world.
      report: is called with (point, what is violated).
    """

    def __init__(self, name: str, report: Callable[[str, str], None]) -> None:
        self.name = name
        self._report = report
        self._suspects = Suspects()
        self.fired = 0

    def __enter__(self) -> Sweeper:
        ranks, flags = WORLDS[self.name]
        self._context = world_in_temporary(ranks, agent_flags=flags)
        self.world: World = self._context.__enter__()
        self.run = Run(self.world)
        self.run.must_save()
        return self

    def __exit__(self, *about: object) -> None:
        self._context.__exit__(*about)

    def counts(self, scenario: Scenario) -> dict[str, int]:
        """How many calls each process makes in the scenario when nothing goes wrong."""
        before = scenario.prepare(self.run)
        self.world.control.arm(sends=scenario.sends)
        try:
            scenario.act(self.run, before)
        finally:
            self.world.control.disarm()
        if scenario.restore is not None:
            scenario.restore(self.run)
        self._check_after(set())
        return {name: self.world.control.calls(name) for name in self.world.control.processes}

    def point(self, point: Point) -> bool:
        """Runs a point. Returns whether its call was made. Raises Violation."""
        scenario, control = SCENARIOS[point.scenario], self.world.control
        self.run.touched.clear()
        before = scenario.prepare(self.run)
        self.run.touched.clear()
        control.arm(point.process, point.call, point.action, point.choice, scenario.sends)
        self.world.thaw_after(point.process, 1.5 * LEASE if point.action == "freeze" else None)
        try:
            scenario.act(self.run, before)
        finally:
            met = control.met(point.process)
            control.disarm()
            self.world.resume()
        if scenario.restore is not None:
            scenario.restore(self.run)
        self._check_after(set(self.run.touched))
        self._look(str(point))
        if met is not None:
            self.fired += 1
            self.met = met
        return met is not None

    def _check_after(self, touched: set[int]) -> None:
        """The job is whole again, what was told stands, and the next save works."""
        run = self.run
        problem = self.world.settle()
        if problem:
            raise Violation(problem)
        committed = self.world.committed()
        run.book.check_listed(committed, self.world.listed())
        for step in sorted(touched):
            if step in committed:
                run.must_load(step)
            else:
                run.book.found(step, None)
        if touched:
            run.must_load(run.must_save())

    def _look(self, point: str) -> None:
        self._suspects.look(point, leftovers(self.world.root, self.world.committed()))
        if self._suspects.waiting(_TIDY_AFTER):
            self.tidy()

    def tidy(self) -> None:
        """What is not gone after a while must be gone after the next coordinator's start and a save."""
        for restart in (False, True):
            if restart:
                self.world.cluster.coordinator.kill()
                problem = self.world.settle()
                if problem:
                    raise Violation(problem)
            deadline = time.monotonic() + (_TIDY_LIMIT if restart else _TIDY_AFTER)
            while time.monotonic() < deadline:
                self.run.must_save()
                self._suspects.look("tidy", leftovers(self.world.root, self.world.committed()))
                if not self._suspects.found():
                    self.run.keep_steps(4)
                    return
                time.sleep(0.5)
        for point, name in self._suspects.found():
            self._report(point, f"{name} is left behind")
        self._suspects.forget()
