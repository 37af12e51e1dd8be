"""Tests that ranks prepare a changed layout one after the other."""

import concurrent.futures
import logging

import numpy as np

import cairn
from testing.errors import raises_error
from testing.ranks import on_ranks, until


def state(dtype) -> dict:
    return {"w": np.zeros(64, dtype)}


def waits_for(caplog, ranks: str):
    return lambda: any(f"in prepare for {ranks}" in record.getMessage() for record in caplog.records)


def test_changed_layout_that_ranks_prepare_one_after_the_other_is_no_error(tmp_path, caplog):
    with cairn.local.Cluster(ranks=3, root=tmp_path) as cluster, caplog.at_level(logging.WARNING, "cairn"), \
            concurrent.futures.ThreadPoolExecutor(3) as threads:
        clients = [cluster.connect(rank) for rank in range(3)]

        def on_all(work):
            return [future.result(60) for future in [threads.submit(work, client) for client in clients]]

        on_all(lambda client: client.prepare(state("float32"), timeout=60))
        on_all(lambda client: client.save(1, state("float32"), timeout=60).wait(60))
        first = threads.submit(clients[0].prepare, state("int64"), 60)
        until(waits_for(caplog, "rank 1 (which has not called prepare), rank 2 (which has not called prepare)"))
        second = threads.submit(clients[2].prepare, state("int64"), 60)
        clients[1].prepare(state("int64"), timeout=60)
        first.result(60)
        second.result(60)
        assert [done.step for done in on_all(lambda client: client.save(2, state("int64"), timeout=60).wait(60))] == [
            2, 2, 2]
        # These contradict each other for good.
        wrong = [threads.submit(client.prepare, state(dtype), 60)
                 for client, dtype in zip(clients, ("float64", "float64", "int32"))]
        for call in wrong:
            with raises_error("DTYPE_MISMATCH"):
                call.result(60)
        on_all(lambda client: client.prepare(state("int32"), timeout=60))
        for client in clients:
            client.close()


def test_prepare_that_waits_in_vain_names_the_ranks_that_have_not_called_it(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, state("float32"), timeout=60).wait(60))
        with cluster.connect(0) as client, cluster.connect(1) as other:
            other.report_step(1)
            with raises_error("TIMED_OUT", ranks="1", phase="waiting"):
                client.prepare(state("int64"), timeout=0.5)
