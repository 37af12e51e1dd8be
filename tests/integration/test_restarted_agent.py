"""Tests an agent that is killed and started again in the middle of a save."""

import threading
import time

import numpy as np
import pytest

import cairn
from cairn._base import wire
from testing.ranks import noise, rows, until

WHOLE = noise((64, 16), np.float32, 1)
# Nothing here may need a timeout to end, so each timeout is longer than the test.
FLAGS = ["--phase-timeout=10m", "--lease-ttl=5m"]


def state(rank):
    return {"w": rows(WHOLE, rank, 2)}


def test_rank_whose_agent_was_killed_while_it_wrote_hears_the_outcome_of_the_others(root, probe):
    with cairn.local.Cluster(ranks=3, root=root, coordinator_flags=FLAGS) as cluster:
        clients = [cluster.connect(rank) for rank in range(3)]
        go_on = threading.Event()

        def slow(rank, **_):
            if rank == 2:
                assert go_on.wait(60)

        probe("stage", slow)
        outcomes = {}

        def save(rank):
            try:
                saving = clients[rank].save(1, {"w": rows(WHOLE, rank, 3)}, timeout=60)
                outcomes[rank] = saving.wait(timeout=60) if rank != 1 else saving
            except cairn.Error as error:
                outcomes[rank] = error

        threads = [threading.Thread(target=save, args=(rank,)) for rank in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: "event=numbered job=demo step=1 attempt=1" in cluster.coordinator.log.read_text(),
              text="an attempt")
        until(lambda: 1 in outcomes, text="the state of rank 1 is staged")
        # Rank 1 trains on and has asked nothing: its client does not know the attempt.
        cluster.agents[1].kill()
        cluster.agents[2].kill()
        for rank in (1, 2):
            cluster.agents[rank].restart()
        go_on.set()
        for thread in threads:
            thread.join()
        with pytest.raises(cairn.Error) as told:
            outcomes[1].wait(timeout=60)
        assert isinstance(outcomes[0], cairn.Error) and outcomes[0].reason == "RANK_LOST", outcomes
        assert "outcome" not in told.value.metadata, told.value
        assert (told.value.reason, told.value.message) == (outcomes[0].reason, outcomes[0].message)


def test_attempt_ends_at_once_and_its_outcome_is_told_by_the_next_agent(root, probe):
    with cairn.local.Cluster(ranks=2, root=root, coordinator_flags=FLAGS) as cluster:
        client, other = cluster.connect(0), cluster.connect(1)
        copying, go_on = threading.Event(), threading.Event()

        def slow(rank, **_):
            if rank == 1:
                copying.set()
                assert go_on.wait(60)

        probe("stage", slow)
        failed = []

        def save_other():
            with pytest.raises(cairn.Error) as raised:
                other.save(1, state(1), timeout=60)
            failed.append(raised.value.reason)

        thread = threading.Thread(target=save_other)
        thread.start()
        saving = client.save(1, state(0), timeout=60)
        assert copying.wait(60)
        until(lambda: "event=numbered job=demo step=1 attempt=1" in cluster.coordinator.log.read_text(),
              text="an attempt")
        killed = time.monotonic()
        cluster.agents[1].kill()
        cluster.agents[1].restart()
        with pytest.raises(cairn.Error) as lost:
            saving.wait(timeout=60)
        assert lost.value.reason == "RANK_LOST" and lost.value.metadata["ranks"] == "1", lost.value
        assert time.monotonic() - killed < 50
        go_on.set()
        thread.join()
        assert failed
        # Rank 1's agent knows nothing of the save, and asks.
        request = wire.LOCAL_AGENT["WaitSave"].request(trainer_incarnation=other._session.incarnation, step=1,
                                                       save=12345, attempt=1)
        answer = other._session.call("WaitSave", request, 20.0)
        assert not answer.pending and answer.checkpoint.attempt == 1
        assert wire.error_from_status(answer.checkpoint.error).message == lost.value.message
