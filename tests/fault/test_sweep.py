"""Runs some points of each lane of the sweep of faults. `tools/test --faults` runs thousands of them."""

import pytest

from sweep.commands import Commands
from sweep.lanes import LANES, lane_of
from sweep.points import Point

# Each part is a job of its own, so that several processes share the work.
PARTS = [("job-2", 0, 24), ("job-2", 1000, 24), ("job-2-files", 0, 16), ("job-5", 0, 12), ("commands", 0, 36),
         ("commands", 1000, 36), ("cuts", 0, 24), ("turns", 0, 2)]


@pytest.mark.parametrize("lane, first, count", PARTS)
def test_what_was_told_stands_whatever_call_goes_wrong(lane, first, count):
    points, met, violations = set(), 0, []

    def report(name, what, was_met):
        nonlocal met
        met += was_met and name not in points
        points.add(name)
        if what:
            violations.append(f"{name}: {what}\n  alone: tools/test --faults --point {name}")

    LANES[lane][0].run(seed=7, first=first, count=count, report=report)
    assert not violations, "\n".join(violations)
    assert len(points) > count / 2 and met > count / 3, "too few calls went wrong to prove anything"


def test_show_leaves_nothing_out_whatever_call_fails():
    with Commands() as commands:
        met = 0
        for call in range(1, commands.counts["show"] + 1):
            met += commands.point(Point("show", "commands", "command", call, "fail", 0))
        assert met == commands.counts["show"]


@pytest.mark.parametrize("name", ["nothing/2/coordinator/5/kill-after", "save/9/coordinator/5/kill-after", "save/2"])
def test_a_name_that_is_no_point_is_refused(name):
    with pytest.raises(ValueError):
        lane_of(name)
