"""Tests that ranks which wait for each other are told so within seconds, long before any timeout."""

import logging
import threading

import numpy as np
import pytest

import cairn
from testing.ranks import on_ranks, reasons, until


def test_save_and_load_that_wait_for_each_other_name_the_other_rank(tmp_path, caplog):

    def work(rank, client):
        client.save(1, {"w": np.arange(1000.0)}).wait()
        # As after a pod was replaced: rank 1 begins with a load, while rank 0 goes on training.
        if rank == 1:
            client.load({"w": np.zeros(1000)})
        else:
            client.save(2, {"w": np.arange(1000.0)}).wait()

    def told() -> set[str]:
        return {record.getMessage().partition(" s in ")[2] for record in caplog.records}

    expected = {"save for rank 1 (which is in a load)", "load for rank 0 (which is in a save)"}
    with cairn.local.Cluster(ranks=2, root=tmp_path, coordinator_flags=["--phase-timeout=15s"]) as cluster, \
            caplog.at_level(logging.WARNING, "cairn"):
        answers = []
        ranks = threading.Thread(target=lambda: answers.extend(on_ranks(cluster, work, errors=True)))
        ranks.start()
        until(lambda: expected <= told())
        ranks.join(60)
    assert set(reasons(answers)) == {"RANK_LATE"}


def test_wait_that_times_out_names_the_rank_that_never_calls_save(tmp_path):
    state = {"w": np.arange(1000.0)}
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, state).wait())  # later saves return when they are staged
        client, other = cluster.connect(0), cluster.connect(1)
        other.report_step(1)
        saving = client.save(9, state)
        with pytest.raises(cairn.Error, match=r"step 9 was not committed within 1 s; it goes on and waits for rank 1 "
                           r"\(which has not called save\)") as caught:
            saving.wait(timeout=1)
        assert caught.value.reason == "TIMED_OUT"
        assert caught.value.metadata["ranks"] == "1" and caught.value.metadata["phase"] == "waiting"


def test_prepare_that_may_not_wait_names_the_ranks_all_the_same(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        client, _ = cluster.connect(0), cluster.connect(1)
        with pytest.raises(cairn.Error, match=r"waits for rank 1 \(which has not called prepare\)") as caught:
            client.prepare({"w": np.arange(1000.0)}, timeout=0)
        assert caught.value.reason == "TIMED_OUT" and caught.value.metadata["ranks"] == "1"


def test_ranks_that_save_different_steps_name_each_other_and_end(tmp_path):

    def work(rank, client):
        client.save(1, {"w": np.arange(1000.0)}).wait()
        saving = client.save(6 + rank, {"w": np.arange(1000.0)})
        with pytest.raises(cairn.Error, match="TIMED_OUT") as caught:
            saving.wait(timeout=4)
        assert ("rank 1 (saves step 7)", "rank 0 (saves step 6)")[rank] in caught.value.message
        saving.wait()

    with cairn.local.Cluster(ranks=2, root=tmp_path, coordinator_flags=["--phase-timeout=10s"]) as cluster:
        answers = on_ranks(cluster, work, errors=True)
    assert reasons(answers) == ["RANK_LATE"] * 2, answers
    assert "its trainer saves step 7" in answers[0].message
