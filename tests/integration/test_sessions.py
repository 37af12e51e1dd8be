"""Tests two trainers of one rank, and an agent that is killed and started again during a save."""

import concurrent.futures
import threading
import time

import numpy as np
import pytest

import cairn
from cairn._base import probes
from testing.ranks import command_json, noise, rows, until

FLAGS = ["--phase-timeout=60s", "--lease-ttl=2s"]
WHOLE = noise((64, 16), np.float32, 1)
# This is far below the timeouts of saves and of the coordinator's phases, so whatever takes longer waited for one.
QUICK = 30.0


@pytest.fixture
def cluster(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path, coordinator_flags=FLAGS) as cluster:
        yield cluster


@pytest.fixture
def threads():
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        yield threads


def state(rank):
    """Rank 0 holds more than its share, so rank 1 writes a shard of it."""
    more = {name: cairn.Shard(WHOLE.copy(), WHOLE.shape, (0, 0)) for name in ("a", "b")} if rank == 0 else {}
    return {"w": rows(WHOLE, rank, 2), "o": {"step": 1}, **more}


def save(client, step):
    return client.save(step, state(client.rank), timeout=120).wait(timeout=120)


def outcome(work, *arguments) -> str:
    """Returns how the save ended: a reason, or "COMMITTED"."""
    try:
        work(*arguments)
        return "COMMITTED"
    except cairn.Error as error:
        return error.reason


def restart(agent):
    agent.kill()
    agent.restart()


def saves_commit(threads, clients, step):
    assert list(threads.map(lambda client: outcome(save, client, step), clients)) == ["COMMITTED"] * len(clients)


def phase_of(cluster, rank) -> str:
    shown = command_json("status", "demo", f"--coordinator={cluster.coordinator.address}")
    return next((each["phase"] for each in shown["ranks"] if each["rank"] == rank), "")


def is_replaced(client):
    try:
        client.report_step(1)
    except cairn.Error as error:
        assert error.reason == "STALE_INCARNATION", error
        assert (error.metadata["job"], error.metadata["rank"]) == ("demo", str(client.rank))
        return True
    return False


def test_trainer_that_was_replaced_stays_replaced(cluster, threads):
    old, other = cluster.connect(0), cluster.connect(1)
    saves_commit(threads, [old, other], 1)
    staged = old.save(2, state(0), timeout=120)
    new = cluster.connect(0)
    assert outcome(old.save, 2, state(0)) == "STALE_INCARNATION"
    begun = time.monotonic()
    assert outcome(staged.wait, 120) == "STALE_INCARNATION"
    assert time.monotonic() - begun < QUICK
    until(lambda: not old._slabs._regions, text="giving up the slab")
    # The new trainer has nothing to do with what the old one staged.
    until(lambda: "step=2 attempt=0 state=ABORTED" in cluster.coordinator.log.read_text(), text="the end of the save")
    assert outcome(save, other, 2) == "TRAINER_LOST"
    for step in (3, 4):
        saves_commit(threads, [new, other], step)
        assert outcome(old.checkpoints) == outcome(old.load, state(0)) == "STALE_INCARNATION"
    new.close()
    assert outcome(old.checkpoints) == "STALE_INCARNATION"


def test_restarted_agent_is_its_last_trainers(cluster, threads):
    """The old trainer lives and makes no call. Its watch would attach it to the new agent as soon as the new
    trainer's would."""
    old = cluster.connect(0)
    new, other = cluster.connect(0), cluster.connect(1)
    for step in (1, 2):
        restart(cluster.agents[0])
        saves_commit(threads, [new, other], step)
        assert is_replaced(old)
    assert not is_replaced(new)


def test_trainer_that_comes_back_after_its_agents_restart_finds_a_new_one(cluster, threads):
    """The new trainer attached before the old one noticed the restart."""
    old = cluster.connect(0, limits=cairn.Limits(watch_period=3600.0))
    restart(cluster.agents[0])
    new, other = cluster.connect(0), cluster.connect(1)
    assert outcome(old.checkpoints) == "STALE_INCARNATION"
    saves_commit(threads, [new, other], 1)
    assert is_replaced(old)


def test_trainer_whose_rank_is_taken_while_it_attaches_hears_so(cluster):
    """The control page of the first one goes between the agent's answer and the first one's request for it."""
    others, once = [], iter([True])

    def taken(**_):
        if next(once, False):
            others.append(cluster.connect(0))

    with probes.at("map", taken):
        assert outcome(cluster.connect, 0) == "STALE_INCARNATION"
    assert not is_replaced(others[0])


def test_agent_restarts_while_its_rank_waits_for_another(cluster, threads):
    clients = [cluster.connect(rank) for rank in range(2)]
    first = threads.submit(outcome, save, clients[0], 1)
    until(lambda: "step=1 state=COLLECTING" in cluster.coordinator.log.read_text(), text="its save")
    begun = time.monotonic()
    restart(cluster.agents[0])
    assert first.result(60) == "RANK_LOST"
    assert outcome(save, clients[1], 1) == "RANK_LOST"
    assert time.monotonic() - begun < QUICK
    saves_commit(threads, clients, 2)


def test_agent_restarts_while_its_trainer_copies(cluster, threads):
    clients = [cluster.connect(rank) for rank in range(2)]
    saves_commit(threads, clients, 1)
    own = threading.local()

    def killed_first(**_):
        if getattr(own, "rank", None) == 0:
            own.rank = None
            restart(cluster.agents[0])

    def work(client):
        own.rank = client.rank
        return outcome(save, client, 2)

    begun = time.monotonic()
    with probes.at("copy", killed_first):
        ends = list(threads.map(work, clients))
    # If the first agent died before it told the coordinator of the save, its next process begins the save.
    assert ends in (["RANK_LOST", "RANK_LOST"], ["COMMITTED", "COMMITTED"])
    assert time.monotonic() - begun < QUICK
    if ends[0] != "COMMITTED":
        saves_commit(threads, clients, 2)
    saves_commit(threads, clients, 3)


@pytest.mark.parametrize("killed", [0, 1])
def test_agent_restarts_while_its_trainer_waits_for_the_outcome(cluster, threads, killed):
    """Rank 0's part is durable then. Rank 1's is not, because it writes a shard of rank 0, which has not staged."""
    clients = [cluster.connect(rank) for rank in range(2)]
    saves_commit(threads, clients, 1)
    copying, go_on = threading.Event(), threading.Event()
    own, attempts = threading.local(), []

    def held_up(**_):
        if getattr(own, "held_up", False):
            copying.set()
            assert go_on.wait(60)

    def told(name, answer, **_):
        if name == "WaitSave" and answer is not None:
            attempts.append(answer.attempt)

    def late(client):
        own.held_up = True
        return outcome(save, client, 2)

    with probes.at("copy", held_up), probes.at("answered", told):
        other = threads.submit(late, clients[1 - killed])
        assert copying.wait(60)
        saving = clients[killed].save(2, state(killed), timeout=120)
        # The attempt gets a number when both ranks have begun it.
        until(lambda: not saving.done() and any(attempts), text="the attempt's number")
        until(lambda: phase_of(cluster, killed) == ("written" if killed == 0 else "writing"), text="its part")
        begun = time.monotonic()
        cluster.agents[killed].kill()
        waiting = threads.submit(outcome, saving.wait, 120)
        cluster.agents[killed].restart()
        if killed == 1:
            assert waiting.result(60) == "RANK_LOST", "at once: the other one still copies"
        go_on.set()
        ends = [waiting.result(60), other.result(60)]
    # What rank 0 lent and rank 1 had not yet got is gone with rank 0's agent. Rank 1 may notice that first.
    expected = ("COMMITTED", "RANK_LOST", "TRANSPORT_FAILED") if killed == 0 else ("RANK_LOST",)
    assert ends[0] == ends[1] and ends[0] in expected, ends
    assert time.monotonic() - begun < QUICK
    saves_commit(threads, clients, 3)
