"""Tests what the log says of whom a save or load waits for."""

import collections
import datetime
import logging
import random

from cairn._base import wire
from cairn._base.errors import Error
from cairn._session import stragglers
from cairn._session.stragglers import StragglerReporter, describe_stragglers

Job = wire.message("cairn.v1.Job")
PHASES = wire.enum_numbers("cairn.v1.Phase.Value")


def job(trainers=(0, 1), agents=(0, 1), save=None, load=None):
    """A job of two ranks whose save and load are in these phases by rank."""
    view = Job(job="demo", world_size=2)
    for rank in agents:
        view.ranks.add(rank=rank, trainer_attached=rank in trainers)
    if save is not None:
        view.checkpoint.state = PHASES["COLLECTING"]
        for rank, phase in enumerate(save):
            view.checkpoint.ranks.add(rank=rank, phase=PHASES[phase])
    if load is not None:
        added = view.loads.add(state=PHASES["COLLECTING"])
        for rank, phase in enumerate(load):
            added.ranks.add(rank=rank, phase=PHASES[phase])
    return view


def test_save_names_the_rank_that_has_not_called():
    assert describe_stragglers(job(save=("STAGED", "WAITING")), "save", 0) == "rank 1 (which has not called save)"


def test_save_and_load_that_wait_for_each_other_say_so():
    both = job(save=("STAGED", "WAITING"), load=("WAITING", "PLANNING"))
    assert describe_stragglers(both, "save", 0) == "rank 1 (which is in a load)"
    assert describe_stragglers(both, "load", 1) == "rank 0 (which is in a save)"


def test_prepare_names_the_ranks_whose_layouts_are_missing():
    view = job(trainers=(0,))
    assert describe_stragglers(view, "prepare", 0) == ""
    view.layout_awaited_ranks.extend([1, 2])
    view.layouts_awaited = 5
    assert (describe_stragglers(view, "prepare", 0) ==
            "rank 1 (no trainer is attached), rank 2 (no agent is registered) and 3 more")
    view.ranks[1].trainer_attached = True
    assert describe_stragglers(view, "prepare", 0).startswith("rank 1 (which has not called prepare), ")


def test_rank_without_trainer_or_agent_is_named_so():
    assert describe_stragglers(job(trainers=(0,), load=("PLANNING", "WAITING")), "load",
                               0) == "rank 1 (no trainer is attached)"
    assert describe_stragglers(job(agents=(0,), load=("PLANNING", "WAITING")), "load",
                               0) == "rank 1 (no agent is registered)"


def test_rank_whose_agent_is_silent_may_have_called_for_all_that_is_known():
    for what, view in (("save", job(save=("STAGED", "WAITING"))), ("load", job(load=("PLANNING", "WAITING"))),
                       ("prepare", job())):
        if what == "prepare":
            view.layout_awaited_ranks.append(1)
            view.layouts_awaited = 1
        view.ranks[1].last_heard.seconds = 8
        assert describe_stragglers(view, what, 0, lease=10) == "rank 1 (whose agent has not answered for 8 s)"
        assert describe_stragglers(view, what, 0, lease=30) == f"rank 1 (which has not called {what})", \
            "an agent with such a lease speaks every ten seconds"


def test_many_ranks_are_counted():
    view = job()
    view.loads.add(state=PHASES["COLLECTING"])
    for rank in range(20):
        view.ranks.add(rank=rank, trainer_attached=True)
        view.loads[0].ranks.add(rank=rank, phase=PHASES["WAITING"])
    text = describe_stragglers(view, "load", 0)
    assert text.startswith("rank 1 (which has not called load), rank 2") and text.endswith(" and 11 more")


def test_ended_operations_wait_for_nobody():
    view = job(save=("STAGED", "WAITING"))
    view.checkpoint.state = PHASES["COMMITTED"]
    assert describe_stragglers(view, "save", 0) == ""


def test_teller_asks_late_and_tells_only_news(caplog):
    now, answers = [100.0], []
    reporter = StragglerReporter(lambda: answers.append(1) or job(save=("STAGED", "WAITING")), "save", 0, 2,
                                 clock=lambda: now[0])
    with caplog.at_level(logging.WARNING, "cairn"):
        for _ in range(5):
            reporter.report_if_due()
            now[0] += reporter.seconds_until_report()
    assert len(answers) == 4
    assert [record.getMessage() for record in caplog.records] == [
        "rank 0 has waited 3 s in save for rank 1 (which has not called save)"]


def questions_a_second(world_size, seconds, ranks):
    """How often the tellers of these ranks ask together while they wait for so long, by the second."""
    chances = random.Random(7)
    asked = collections.Counter()
    for rank in ranks:
        now = [0.0]
        reporter = StragglerReporter(lambda: asked.update([int(now[0])]) or Job(), "save", rank, world_size,
                                     clock=lambda: now[0], chance=chances.random)
        while now[0] < seconds:
            now[0] += reporter.seconds_until_report()
            reporter.report_if_due()
    return [asked[second] for second in range(seconds)]


def test_tellers_of_a_large_job_ask_together_as_often_as_those_of_a_small_one():
    every = questions_a_second(4096, 1200, range(4096))
    assert sum(every[:4]) >= 1, "somebody's log tells soon"
    assert max(sum(every[begin:begin + 60]) for begin in range(0, 1140, 60)) <= 60 * 30
    assert sum(every[600:]) > 600 * 10, "they go on"


def test_tellers_that_begin_together_come_apart():
    every = questions_a_second(64, 900, range(64))
    assert max(every[300:]) < 16, "64 that ask once a minute"


def test_many_ranks_that_are_not_shown_are_counted():
    view = job(save=("STAGED", "WAITING"))
    view.ranks_left_out = True
    view.world_size = 16384
    view.checkpoint.phase_counts.add(phase=PHASES["WAITING"], ranks=1000)
    view.checkpoint.phase_counts.add(phase=PHASES["STAGED"], ranks=15384)
    text = describe_stragglers(view, "save", 0)
    assert text == "rank 1 (which has not called save) and 999 more"


def named(view, what="save", step=None, rank=0):
    """Whom the error of a call that ends now names: text and metadata."""
    reporter = StragglerReporter(lambda: view, what, rank, 2, step)
    error = reporter.timeout_error("no plan within 3 s", {"rank": str(rank)})
    assert error.reason == "TIMED_OUT" and error.metadata.pop("rank") == str(rank)
    return error.message.removeprefix("no plan within 3 s; it "), error.metadata


def test_call_that_ends_names_the_ranks_that_have_not_begun():
    assert named(job(save=("STAGED", "WAITING"))) == ("waits for rank 1 (which has not called save)",
                                                      {"ranks": "1", "phase": "waiting"})


def test_call_that_ends_names_the_ranks_that_are_farthest_behind():
    view = job(save=("WRITTEN", "STAGING"))
    view.checkpoint.step = 9
    view.checkpoint.ranks[1].bytes_done, view.checkpoint.ranks[1].bytes_total = 3, 8
    for phase in ("STAGING", "WRITTEN"):
        view.checkpoint.phase_counts.add(phase=PHASES[phase], ranks=1)
    assert named(view, step=9) == ("waits for rank 1 (staging, 3 of 8 bytes)", {"ranks": "1", "phase": "staging"})
    assert named(view, step=12) == ("waits for rank 1 (saves step 9 first, staging, 3 of 8 bytes)",
                                    {"ranks": "1", "phase": "staging"})
    view.checkpoint.state = PHASES["COMMITTING"]
    assert named(view, step=9) == ("waits for storage to commit step 9, which all ranks have written", {})


def test_call_that_ends_says_so_if_nobody_can_be_named():
    text, metadata = named(job())
    assert "no rank that the coordinator knows of; `cairn status demo`" in text and not metadata

    def refuse():
        raise Error("AGENT_UNREACHABLE", "nobody answers")

    error = StragglerReporter(refuse, "save", 0, 2).timeout_error("step 9 was not committed within 3 s", {"step": "9"},
                                                                  "it goes on and")
    assert (error.reason, error.metadata) == ("TIMED_OUT", {"step": "9"})
    assert error.message == ("step 9 was not committed within 3 s; it goes on and waits for ranks that nobody can name "
                             "now (AGENT_UNREACHABLE)")


def test_call_that_ends_beside_a_silent_coordinator_blames_that_and_no_rank():
    def refuse():
        raise Error("COORDINATOR_UNREACHABLE", "the coordinator did not answer in time", {"address": "c:7070"})

    error = StragglerReporter(refuse, "load", 0, 2).timeout_error("no plan for the load within 3 s", {"rank": "0"})
    assert (error.reason, error.metadata) == ("COORDINATOR_UNREACHABLE", {"rank": "0", "address": "c:7070"})
    assert error.message == "no plan for the load within 3 s: the coordinator did not answer in time"


def test_look_does_not_keep_a_call_that_is_about_to_end():
    now, asked = [0.0], []
    reporter = StragglerReporter(lambda: asked.append(1) or Job(), "save", 0, 2, clock=lambda: now[0])
    now[0] += 10
    reporter.report_if_due(remaining=stragglers.ANSWER - 0.1)
    assert not asked and reporter.seconds_until_report() > 1e6, "nor is it woken for another look"


def test_ranks_that_save_different_steps_are_told_each_others_step():
    view = job(save=("STAGED", "WAITING"))
    view.checkpoint.step = 6
    view.checkpoint.ranks[1].note = "saves step 7"
    assert describe_stragglers(view, "save", 0, 6) == "rank 1 (saves step 7)"
    assert describe_stragglers(view, "save", 1, 7) == "rank 0 (saves step 6)"
    assert describe_stragglers(view, "save", 1, 6) == "", "it is in the save itself"
    view.ranks_left_out = True
    view.checkpoint.phase_counts.add(phase=PHASES["WAITING"], ranks=1)
    view.checkpoint.phase_counts.add(phase=PHASES["STAGED"], ranks=4095)
    assert describe_stragglers(view, "save", 1, 7) == "rank 0 (saves step 6) and 4094 more"


def test_teller_leaves_errors_to_the_call(caplog):
    now = [0.0]

    def refuse():
        raise Error("COORDINATOR_UNREACHABLE", "nobody answers")

    reporter = StragglerReporter(refuse, "save", 0, 2, clock=lambda: now[0])
    now[0] += 10
    reporter.report_if_due()
    assert not caplog.records


def stuck(phase, idle, attempt=1, what="save"):
    """What the log says of a job in which rank 1 is in a phase and has made no progress for so many seconds."""
    view = job(save=("WRITTEN", phase)) if what == "save" else job(load=("DONE", phase))
    operation = view.checkpoint if what == "save" else view.loads[0]
    if what == "save":
        operation.state, operation.step, operation.attempt = PHASES["WRITING"], 9, attempt
    operation.ranks[1].bytes_done, operation.ranks[1].bytes_total = 3, 8
    operation.ranks[1].idle.FromTimedelta(datetime.timedelta(seconds=idle))
    operation.phase_counts.add(phase=PHASES[phase], ranks=1)
    operation.phase_counts.add(phase=PHASES["WRITTEN" if what == "save" else "DONE"], ranks=1)
    return view


def told(view, what="save", stalled=None, caplog=None, seconds=8, ask=None):
    """What the log says within so many seconds of waiting."""
    now = [100.0]
    reporter = StragglerReporter(ask or (lambda: view), what, 0, 2, 9 if what == "save" else None, clock=lambda: now[0],
                                 chance=lambda: 1.0)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "cairn"):
        while now[0] <= 100.0 + seconds:
            reporter.report_if_due(stalled=stalled)
            now[0] += reporter.seconds_until_report()
    return [record.getMessage() for record in caplog.records]


def test_commit_that_storage_does_not_answer_is_told_within_seconds(caplog):
    view = job(save=("WRITTEN", "WRITTEN"))
    view.checkpoint.state, view.checkpoint.step = PHASES["COMMITTING"], 9
    assert told(view, caplog=caplog) == [
        "rank 0 has waited 3 s in save for storage to commit step 9, which all ranks have written"]


def test_rank_whose_storage_does_not_move_is_told_and_one_that_moves_is_not(caplog):
    assert told(stuck("WRITING", 4), caplog=caplog) == [
        "rank 0 has waited 3 s in save for rank 1 (writes to storage, 3 of 8 bytes, no progress for 4 s)"]
    assert told(stuck("WRITING", 1), caplog=caplog) == []
    assert told(stuck("READING", 4, what="load"), "load", caplog=caplog) == [
        "rank 0 has waited 3 s in load for rank 1 (reads from storage, 3 of 8 bytes, no progress for 4 s)"]
    large = stuck("WRITING", 10)
    large.world_size = 16384
    assert told(large, caplog=caplog) == [], "its agents report their progress less often than that"
    unnumbered = stuck("STAGED", 4, attempt=0)
    assert told(unnumbered, caplog=caplog) == ["rank 0 has waited 3 s in save for the coordinator, which plans step 9 "
                                               "and makes its directory in storage"]


def test_what_the_agent_knows_of_a_stall_is_told_once(caplog):
    def ask():
        raise AssertionError("the coordinator knows no more")
    stalled = Error("STORAGE_STALLED", "storage has not said for 3s whether the commit stands")
    assert told(None, stalled=stalled, caplog=caplog, seconds=30, ask=ask) == [
        "rank 0 has waited 3 s in save: STORAGE_STALLED: storage has not said for 3s whether the commit stands"]


def test_save_that_an_earlier_one_holds_up_blames_the_rank_that_one_waits_for():
    view = job(save=("STAGED", "WAITING"))
    view.checkpoint.step = 8
    held = Error("SAVE_IN_PROGRESS", "rank 0: the slab was held by the save of step 8", {"rank": "0", "step": "9"})
    blamed = StragglerReporter(lambda: view, "save", 0, 2, 9).with_stragglers(held)
    assert blamed.reason == "SAVE_IN_PROGRESS"
    assert blamed.message == f"{held.message}; that save waits for rank 1 (which has not called save)"
    assert blamed.metadata == {"rank": "0", "step": "9", "ranks": "1", "phase": "waiting"}
    named = Error("SAVE_IN_PROGRESS", "rank 3 holds up the save", {"ranks": "3"})
    reporter = StragglerReporter(lambda: view, "save", 0, 2, 9)
    assert reporter.with_stragglers(named) is named, "the coordinator has said it"

    def away():
        raise Error("COORDINATOR_UNREACHABLE", "it is not there")
    assert StragglerReporter(away, "save", 0, 2, 9).with_stragglers(held) is held


def test_note_of_a_rank_whose_trainer_has_ended_says_how_long_the_next_one_has():
    view = job(trainers=(0,), save=("STAGED", "WAITING"))
    view.checkpoint.ranks[1].note = "its trainer ended 3s ago, and the next one has 7s left to attach"
    assert describe_stragglers(view, "save", 0) == f"rank 1 ({view.checkpoint.ranks[1].note})"
