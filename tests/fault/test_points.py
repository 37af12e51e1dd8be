"""Tests how points are drawn and named."""

import pytest

from sweep.points import Point, draw

COUNTS = {"coordinator": 100, "agent-0": 25, "agent-1": 0}


def test_a_name_tells_the_whole_point():
    points = {draw(1, number, "save", "2", COUNTS) for number in range(300)}
    assert all(Point.parse(str(point)) == point for point in points)
    assert {point.process for point in points} == {"coordinator", "agent-0"}
    assert {point.action for point in points} == {
        "kill-before", "kill-middle", "kill-after", "fail", "fail-from", "lie", "short", "freeze"}
    assert len(points) > 250


def test_equal_numbers_are_equal_points():
    assert [draw(3, number, "save", "2", COUNTS) for number in range(50)] == [
        draw(3, number, "save", "2", COUNTS) for number in range(50)]
    assert draw(3, 1, "save", "2", COUNTS) != draw(4, 1, "save", "2", COUNTS)


def test_only_wanted_actions_are_drawn():
    assert {draw(1, number, "turns", "shared", COUNTS, ("freeze",)).action for number in range(20)} == {"freeze"}


@pytest.mark.parametrize("name", ["save/2/agent-0/x/fail.1", "save/2/agent-0/5/explode", "save/2/agent-0/5"])
def test_what_is_no_point_is_refused(name):
    with pytest.raises(ValueError):
        Point.parse(name)
