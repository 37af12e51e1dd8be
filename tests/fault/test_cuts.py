"""Tests the order of what a job does to its files, by the record of which power cuts are made."""

import re

from sweep import record
from sweep.commands import Commands
from sweep.cuts import Cuts
from sweep.points import CUT, Point


def test_an_outcome_gets_its_name_when_all_that_it_commits_is_durable():
    with Cuts() as cuts:
        events = cuts.recorded.events
        outcomes = [(at, event.other) for at, event in enumerate(events)
                    if event.kind == record.LINK and event.other.endswith(".verdict")]
        assert len(outcomes) >= 4
        for at, outcome in outcomes:
            attempt, step = outcome.removesuffix(".verdict"), outcome.rpartition("/")[0]
            before = events[:at]

            def last(kind, path, before=before):
                found = [i for i, event in enumerate(before) if event.kind == kind and re.fullmatch(path, event.path)]
                return found[-1] if found else -1

            made, named = last(record.MKDIR, attempt), last(record.UNLINK, rf"{attempt}/.*\.partial")
            assert 0 <= made < last(record.SYNC, step), f"{outcome}: the attempt's own name may be lost"
            assert named < last(record.SYNC, attempt), f"{outcome}: the names of its bins may be lost"
            for event in before:
                if event.kind == record.LINK and event.other.startswith(f"{attempt}/"):
                    written = last(record.WRITE, re.escape(event.path))
                    assert 0 <= written < last(record.SYNC, re.escape(event.path)), f"{event.other} may be torn"


def test_a_power_cut_at_each_of_the_last_events_of_an_import_leaves_a_whole_checkpoint_or_none():
    with Commands() as commands:
        events = len(commands.recorded["import"].events)
        assert events > 20
        for event in range(events - 8, events + 2):
            commands.point(Point("import", "commands", "command", event, CUT, event))
