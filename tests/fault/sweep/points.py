"""Points of the sweep: which call of which process goes wrong, in which scenario, and how.

A point has a name, such as save/2/agent-1/57/fail.3: the 57th file call of agent 1 fails with the third of the errnos
that it can give, while a job of 2 ranks saves. Whoever has the name can run the point alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

# How often each action is drawn. A process that freezes costs seconds.
CUT = "cut"  # the power fails before an event of the record, which is no call of a process
_WEIGHTS = {"kill-before": 12, "kill-middle": 8, "kill-after": 12, "fail": 30, "fail-from": 12, "lie": 14, "short": 8,
            "freeze": 2}
_WITH_CHOICE = ("fail", "fail-from", "lie", CUT)
_CHOICES = 7  # no call can give more different errnos


@dataclass(frozen=True)
class Point:
    scenario: str
    world: str
    process: str
    call: int
    action: str
    choice: int = 0

    def __str__(self) -> str:
        action = f"{self.action}.{self.choice}" if self.action in _WITH_CHOICE else self.action
        return f"{self.scenario}/{self.world}/{self.process}/{self.call}/{action}"

    @staticmethod
    def parse(name: str) -> Point:
        scenario, world, process, call, action = name.split("/")
        action, _, choice = action.partition(".")
        if action not in (*_WEIGHTS, CUT) or not call.isdigit():
            raise ValueError(f"{name} is no point: SCENARIO/WORLD/PROCESS/CALL/ACTION[.CHOICE]")
        return Point(scenario, world, process, int(call), action, int(choice or 0))


def draw(seed: int, number: int, scenario: str, world: str, counts: dict[str, int],
         actions: Sequence[str] | None = None) -> Point:
    """The point of this number. `counts`: how many calls each process makes when nothing goes wrong."""
    dice = random.Random(f"{seed}/{scenario}/{world}/{number}")
    processes = sorted(name for name, calls in counts.items() if calls > 0)
    # The roots of the counts: the calls of a process with few are as telling as those of one with many.
    process = dice.choices(processes, [counts[name] ** 0.5 for name in processes])[0]
    weights = {action: weight for action, weight in _WEIGHTS.items() if actions is None or action in actions}
    action = dice.choices(list(weights), list(weights.values()))[0]
    # Some calls come only after something else went wrong, so a few points lie beyond the count.
    call = 1 + dice.randrange(counts[process] + max(2, counts[process] // 10))
    return Point(scenario, world, process, call, action, dice.randrange(_CHOICES) if action in _WITH_CHOICE else 0)
