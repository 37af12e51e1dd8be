"""Tests the named points at which tests look on."""

import pathlib
import re

import pytest

from cairn._base import probes


def test_At_WithinTheBlock_TheProbeGetsTheFacts():
    seen = []
    with probes.at("lend", lambda rank: seen.append(rank)):
        probes.reach("lend", rank=3)
    probes.reach("lend", rank=4)
    assert seen == [3]


def test_At_TwoProbes_AreBothCalledAndEndApart():
    seen = []

    def first(rank):
        seen.append(("first", rank))

    def second(rank):
        seen.append(("second", rank))

    with probes.at("lend", first):
        with probes.at("lend", second):
            probes.reach("lend", rank=1)
        probes.reach("lend", rank=2)
    assert seen == [("first", 1), ("second", 1), ("first", 2)]


def test_Reach_AProbeRaises_TheWorkRaises():
    def fail(rank):
        raise KeyboardInterrupt

    with probes.at("lend", fail), pytest.raises(KeyboardInterrupt):
        probes.reach("lend", rank=1)


def test_Add_NoSuchPoint_IsRefused():
    with pytest.raises(KeyError), probes.at("nowhere", print):
        pass


def test_Points_ThoseOfTheClient_AreAllListed():
    package = pathlib.Path(probes.__file__).parents[1]
    sources = "".join(path.read_text() for path in package.rglob("*.py"))
    reached = set(re.findall(r'probes\.reach\("(\w+)"', sources))
    assert reached == set(probes.POINTS)
