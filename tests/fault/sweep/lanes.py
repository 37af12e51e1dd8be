"""The lanes of the sweep: each runs points of one kind, one after the other, by their numbers."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sweep import cuts, points, turns
from sweep.commands import CASES, Commands
from sweep.control import Met
from sweep.cuts import Cuts
from sweep.oracle import Violation
from sweep.points import Point
from sweep.scenarios import SCENARIOS, WORLDS, Scenario
from sweep.sweeper import Sweeper

# Is called with a point's name, what is violated ("" if nothing is), and whether the point's call was made.
Report = Callable[[str, str, bool], None]


def _in_words(error: Exception, met: Met | None) -> str:
    what = str(error) if isinstance(error, Violation) else f"{error!r}\n{traceback.format_exc()}"
    return what if met is None else f"{what}\n  after {met.text}"


class JobLane:
    """Points of the scenarios that run in one of WORLDS."""

    def __init__(self, world: str) -> None:
        self._world = world
        self._scenarios: list[Scenario] = [one for one in SCENARIOS.values() if world in one.worlds]

    def run(self, seed: int, first: int, count: int, report: Report) -> None:
        counts: dict[str, dict[str, int]] = {}
        number = first
        while number < first + count:
            with Sweeper(self._world, lambda point, what: report(point, what, True)) as sweeper:
                for scenario in self._scenarios if not counts else ():
                    counts[scenario.name] = sweeper.counts(scenario)
                # After a violation the job is a new one: what follows must not be of the same cause.
                whole = True
                while whole and number < first + count:
                    scenario = self._scenarios[number % len(self._scenarios)]
                    point = points.draw(seed, number, scenario.name, self._world, counts[scenario.name])
                    whole = self._one(sweeper, point, report)
                    number += 1
                if whole:
                    sweeper.tidy()

    def _one(self, sweeper: Sweeper, point: Point, report: Report) -> bool:
        try:
            report(str(point), "", sweeper.point(point))
        except Exception as error:
            report(str(point), _in_words(error, sweeper.world.control.met(point.process)), True)
            return False
        return True

    def replay(self, name: str, report: Report) -> None:
        with Sweeper(self._world, lambda point, what: report(point, what, True)) as sweeper:
            if self._one(sweeper, Point.parse(name), report):
                sweeper.tidy()


class CommandLane:
    """Points of commands that need no coordinator."""

    def run(self, seed: int, first: int, count: int, report: Report) -> None:
        with Commands() as commands:
            for number in range(first, first + count):
                self._one(commands, commands.draw(seed, number), report)

    def _one(self, commands: Commands, point: Point, report: Report) -> None:
        try:
            report(str(point), "", commands.point(point))
        except Exception as error:
            report(str(point), _in_words(error, commands.met), True)

    def replay(self, name: str, report: Report) -> None:
        with Commands() as commands:
            self._one(commands, Point.parse(name), report)


class CutLane:
    """Power cuts."""

    def run(self, seed: int, first: int, count: int, report: Report) -> None:
        with Cuts() as made, ThreadPoolExecutor(cuts.AT_ONCE) as pool:
            names = (made.draw(seed, number) for number in range(first, first + count))
            for _ in pool.map(self._one, itertools.repeat(made), names, itertools.repeat(report)):
                pass

    def _one(self, made: Cuts, name: str, report: Report) -> None:
        try:
            made.point(name)
            report(name, "", True)
        except Exception as error:
            report(name, _in_words(error, None), True)

    def replay(self, name: str, report: Report) -> None:
        with Cuts() as made:
            self._one(made, name, report)


class TurnLane:
    """Two coordinators of one root in turn."""

    def run(self, seed: int, first: int, count: int, report: Report) -> None:
        calls = turns.count()
        for number in range(first, first + count):
            world = ("shared", "locked")[number % 2]
            self._one(points.draw(seed, number, "turns", world, {"coordinator": calls}, ("freeze",)), report)

    def _one(self, point: Point, report: Report) -> None:
        try:
            report(str(point), "", turns.point(point))
        except Exception as error:
            report(str(point), _in_words(error, None), True)

    def replay(self, name: str, report: Report) -> None:
        self._one(Point.parse(name), report)


# Each with its part of all points, in percent.
LANES: dict[str, tuple[Any, int]] = {
    "job-2": (JobLane("2"), 32), "job-2-files": (JobLane("2-files"), 10), "job-5": (JobLane("5"), 12),
    "job-5-files": (JobLane("5-files"), 5), "job-8": (JobLane("8"), 5), "commands": (CommandLane(), 15),
    "cuts": (CutLane(), 20), "turns": (TurnLane(), 1)}


def lane_of(name: str) -> Any:
    """The lane of a point's name. Raises ValueError."""
    scenario, _, rest = name.partition("/")
    if scenario == "cut":
        return LANES["cuts"][0]
    point = Point.parse(name)
    if scenario == "turns":
        return LANES["turns"][0]
    if scenario in CASES and point.world == "commands":
        return LANES["commands"][0]
    if scenario in SCENARIOS and point.world in WORLDS:
        return JobLane(point.world)
    raise ValueError(f"there is no scenario {scenario} in {rest}")
