"""Tests that ranks which wait for each other are told so within seconds, long before any timeout."""

import logging
import threading

import numpy as np

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
