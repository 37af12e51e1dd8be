"""Tests a trainer's session against an agent in this process: another trainer replaces it, its agent restarts, or
its coordinator is not reached."""

import struct
import threading
import time

import grpc
import numpy as np
import pytest

import cairn
from cairn._base import probes, timeouts
from testing.fake_agent import Refusal
from testing.ranks import until

STATE = {"w": np.arange(8)}
REPLACED = Refusal(grpc.StatusCode.ABORTED, "STALE_INCARNATION", "another trainer has taken this one's place")
UNREACHABLE = Refusal(grpc.StatusCode.UNAVAILABLE, "COORDINATOR_UNREACHABLE", "10.0.0.1:7400 does not answer",
                      {"address": "10.0.0.1:7400"})


def refusal(call, *arguments, **options) -> cairn.Error:
    with pytest.raises(cairn.Error) as caught:
        call(*arguments, **options)
    return caught.value


def restart(agent):
    agent.close()
    agent.start()


def say_replaced(agent):
    """Writes into the control page of a trainer that was replaced, as the agent does."""
    struct.pack_into("<Q", agent.page, 32, 1)


def watches():
    return [thread for thread in threading.enumerate() if thread.name == "cairn-watch"]


# Another trainer has the rank.


def test_it_says_which_agent_it_was_attached_to(agent, client):
    first = agent.incarnation
    restart(agent)
    client.checkpoints()
    assert agent.previous_agents == [0, first]


def test_replaced_client_stays_replaced_in_every_call(agent, client):
    saving, learnt = client.save(1, STATE), client.save(2, STATE)
    assert learnt.wait().step == 2
    restart(agent)
    agent.refuse["Attach"] = [REPLACED]
    calls = [
        lambda: client.save(3, STATE),
        lambda: client.prepare(STATE),
        lambda: client.load(STATE),
        client.checkpoints,
        lambda: client.reshard(STATE, STATE),
        lambda: client.report_step(5),
        client.save_requested,
    ]
    for call in calls:
        error = refusal(call)
        assert error.reason == "STALE_INCARNATION"
        assert (error.metadata["job"], error.metadata["rank"]) == ("demo", "0")
        assert "stop this process" in error.message
    begun = time.monotonic()
    error = refusal(saving.wait, timeout=60)
    assert error.reason == "STALE_INCARNATION" and time.monotonic() - begun < 5
    assert (error.metadata["outcome"], error.metadata["step"]) == ("unknown", "1")
    assert saving.done() and learnt.done() and learnt.wait().step == 2


def test_control_page_says_that_it_is_replaced_also_when_the_agent_is_gone(agent, client):
    client.report_step(1)
    say_replaced(agent)
    agent.close()
    try:
        assert refusal(client.report_step, 2).reason == "STALE_INCARNATION"
        assert refusal(client.save_requested).reason == "STALE_INCARNATION"
    finally:
        agent.start()
    assert refusal(client.save, 2, STATE).reason == "STALE_INCARNATION"
    assert agent.previous_agents == [0], "the next agent process was not asked for the rank"


def test_replaced_client_gives_its_memory_up_without_a_call(agent):
    before = len(watches())
    with cairn.connect(agent.address) as client:
        client.save(1, STATE).wait()
        say_replaced(agent)
        until(lambda: agent.unmapped == [True], 20, "giving the memory up")
        until(lambda: len(watches()) == before, 20, "the end of the watch")
        assert client.status().mapped_slabs == 0


def test_client_that_is_replaced_while_it_copies_gives_its_memory_up_afterwards(agent, client):
    client.save(1, STATE).wait()
    copying, go_on = threading.Event(), threading.Event()

    def slow(**_):
        copying.set()
        assert go_on.wait(60)

    answers = []
    thread = threading.Thread(target=lambda: answers.append(refusal(client.save, 2, STATE)))
    with probes.at("copy", slow):
        thread.start()
        assert copying.wait(60)
        say_replaced(agent)
        assert refusal(client.report_step, 1).reason == "STALE_INCARNATION"
        assert agent.unmapped == [], "it copies yet"
        go_on.set()
        thread.join(60)
    assert [error.reason for error in answers] == ["STALE_INCARNATION"]
    until(lambda: agent.unmapped == [True], 20, "giving the memory up")


def test_another_ranks_stale_incarnation_does_not_end_the_session(agent, client):
    other = Refusal(grpc.StatusCode.ABORTED, "STALE_INCARNATION", "rank 3's agent is another process now")
    agent.refuse["BeginSave"] = [other]
    error = refusal(client.save, 1, STATE)
    assert error.reason == "STALE_INCARNATION" and "rank 3" in error.message
    assert client.save(1, STATE).wait().step == 1


# The agent restarted.


def test_save_that_waits_for_others_goes_on_with_the_next_agent(agent, client):
    """The coordinator says whether the call belongs to an attempt that has ended."""
    agent.pending_calls = 10**9
    answers = []
    thread = threading.Thread(target=lambda: answers.append(client.save(7, STATE).wait()))
    thread.start()
    until(lambda: agent.calls.count("BeginSave") >= 2, text="a pending save")
    restart(agent)
    agent.pending_calls = 0
    thread.join(60)
    assert [checkpoint.step for checkpoint in answers] == [7]


def test_save_that_no_agent_has_heard_of_begins_with_the_next_one(agent, client):
    restart(agent)
    assert client.save(7, STATE).wait().step == 7


@pytest.mark.limits(least_grace=60.0)
def test_save_goes_on_when_the_watch_is_just_attaching_to_the_agents_next_process(agent, client):
    """The next process knows the trainer then, but not its save, and says so before the watch is done."""
    attaching, answered = threading.Event(), threading.Event()
    once = iter([True])

    def restarted(**_):
        if next(once, False):
            restart(agent)
            assert attaching.wait(60)

    def committed(name, **_):
        if name == "CommitStaging":
            answered.set()

    def slow(**_):
        if threading.current_thread().name == "cairn-watch":
            attaching.set()
            assert answered.wait(60)
            time.sleep(0.1)  # so that a save which does not wait for this sees the process before

    with probes.at("copied", restarted), probes.at("answered", committed), probes.at("attach", slow):
        saving = client.save(7, STATE, timeout=60)
    assert saving.wait(60).step == 7
    assert [one for one in agent.calls if one in ("BeginSave", "CommitStaging")] == ["BeginSave", "CommitStaging"] * 2


@pytest.mark.parametrize("known", [False, True], ids=["unknown", "known"])
@pytest.mark.parametrize("when", ["mapping", "copying", "committing"])
def test_save_whose_agent_restarts_before_it_is_staged_goes_on(agent, client, when, known):
    """The coordinator either never heard of it, or answers with the outcome of the attempt that the restart has
    ended."""
    once = iter([True])

    def restarted(**_):
        if next(once, False):
            restart(agent)
            if known:
                agent.refuse["BeginSave"] = [
                    Refusal(grpc.StatusCode.UNAVAILABLE, "RANK_LOST", "rank 0's agent restarted")
                ]

    def committing(**_):
        restarted()
        client.checkpoints()  # the thread of the watch may have attached already

    point, probe = {"mapping": ("map", restarted), "copying": ("copied", restarted),
                    "committing": ("checksums", committing)}[when]
    with probes.at(point, probe):
        if known:
            error = refusal(client.save, 7, STATE)
            assert error.reason == "RANK_LOST" and error.message == "rank 0's agent restarted"
            assert client.save(7, STATE).wait().step == 7
        else:
            assert client.save(7, STATE).wait().step == 7


def test_outcome_of_the_attempt_is_asked_of_the_next_agent(agent, client):
    committed, aborted = client.save(1, STATE), client.save(2, STATE)
    for saving in (committed, aborted):
        agent.pending_calls = 1
        assert not saving.done()
    assert agent.asked_waits == [0.0, 0.0], "whoever only looks does not wait"
    agent.asked_attempts.clear()
    restart(agent)
    agent.outcomes = {1: None}
    agent.pending_calls = 2
    assert committed.wait(timeout=60).attempt == 1
    assert set(agent.asked_attempts) == {1}
    agent.outcomes = {1: Refusal(grpc.StatusCode.UNAVAILABLE, "RANK_LOST", "rank 0 is lost")}
    assert refusal(aborted.wait, timeout=60).reason == "RANK_LOST"


def test_save_of_an_unknown_attempt_is_lost_and_its_outcome_unknown(agent, client):
    saving = client.save(1, STATE)
    restart(agent)
    # Its coordinator is away, which makes no difference, because it could not say more.
    agent.refuse["ListCheckpoints"] = [Refusal(grpc.StatusCode.UNAVAILABLE, "COORDINATOR_UNREACHABLE", "away")]
    error = refusal(saving.wait, timeout=60)
    assert error.reason == "RANK_LOST" and "restarted during the save of step 1" in error.message
    assert error.metadata["outcome"] == "unknown"


# The coordinator is not reached.


@pytest.mark.parametrize("call", [
    lambda client: client.prepare(STATE, timeout=0.1),
    lambda client: client.save(1, STATE, timeout=0.1),
    lambda client: client.load(STATE, timeout=0.1),
])
@pytest.mark.limits(save_grace=0.1, least_grace=60.0)  # a busy machine is no agent that does not answer
def test_what_keeps_the_agent_from_its_coordinator_is_told_at_the_timeout(agent, client, call):
    agent.pending_calls = 10**9
    agent.stalled = UNREACHABLE
    error = refusal(call, client)
    assert error.reason == "COORDINATOR_UNREACHABLE" and "10.0.0.1:7400 does not answer" in error.message
    assert error.metadata["address"] == "10.0.0.1:7400" and error.metadata["rank"] == "0"
    assert "outcome" not in error.metadata
    agent.stalled = None
    assert refusal(call, client).reason == "TIMED_OUT", "what is over is not blamed"


def test_what_keeps_the_outcome_away_is_told_and_the_outcome_unknown(agent, client):
    saving = client.save(1, STATE)
    agent.pending_calls = 10**9
    agent.stalled = UNREACHABLE
    error = refusal(saving.wait, timeout=0.1)
    assert error.reason == "COORDINATOR_UNREACHABLE" and error.metadata["outcome"] == "unknown"
    agent.pending_calls = 0
    assert saving.wait().step == 1


@pytest.mark.parametrize("stalled, reason", [(None, "AGENT_UNREACHABLE"), (UNREACHABLE, "COORDINATOR_UNREACHABLE")])
@pytest.mark.limits(agent_return=0.1)
def test_outcome_of_a_save_whose_agent_is_gone_is_unknown(agent, client, stalled, reason):
    saving = client.save(1, STATE)
    agent.pending_calls = 10**9
    agent.stalled = stalled
    assert not saving.done()
    agent.close()
    error = refusal(saving.wait)
    assert error.reason == reason and "step 1" in error.message
    assert error.metadata["outcome"] == "unknown" and error.metadata["step"] == "1"


# Timeouts.


@pytest.mark.parametrize("timeout", [float("nan"), -1, -0.001, float("-inf"), -10**400, "5", None, True, [1], 1j],
                         ids=lambda timeout: repr(timeout)[:9])
def test_timeouts_that_are_none_are_refused(agent, client, timeout):
    saving = client.save(1, STATE)
    for call in (lambda: cairn.connect(agent.address, timeout=timeout), lambda: client.prepare(STATE, timeout=timeout),
                 lambda: client.save(2, STATE, timeout=timeout), lambda: saving.wait(timeout=timeout),
                 lambda: client.load(STATE, timeout=timeout), lambda: client.reshard(STATE, STATE, timeout=timeout)):
        error = refusal(call)
        assert error.reason == "BAD_REQUEST" and "timeout=" in error.message
    assert saving.wait().step == 1


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 10**400, 10**12, np.float32(60), np.int64(60)],
                         ids=lambda timeout: repr(timeout)[:9])
def test_long_timeouts_are_long(agent, client, timeout):
    client.prepare(STATE, timeout=timeout)
    assert client.save(1, STATE, timeout=timeout).wait(timeout=timeout).step == 1
    client.load({"w": np.zeros_like(STATE["w"])}, timeout=timeout)
    with cairn.connect(agent.address, timeout=timeout) as other:
        other.checkpoints()


def test_a_timeout_is_a_year_at_most():
    assert timeouts.seconds(float("inf"), "it") == timeouts.LONGEST == timeouts.seconds(10**400, "it")
    assert timeouts.seconds(0, "it") == 0.0 and timeouts.seconds(2.5, "it") == 2.5
