"""Loads meet by what is open on the ranks, not by how often each has called: with real processes and real clients."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import cairn
import cairn.local
from cairn._base import probes
from testing.ranks import command_json, noise, on_ranks, rows, until

WHOLE = noise((64, 16), np.float32, 3)


@pytest.fixture
def cluster(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path,
                             coordinator_flags=["--phase-timeout=60s", "--lease-ttl=3s"]) as made:
        on_ranks(made, lambda rank, client: client.save(3, {"w": rows(WHOLE, rank, 2)}).wait(60))
        yield made


def load_on(clients, **options) -> list:
    """Returns each client's report of a load, or the Error that it raises. The bytes must be those that were saved."""
    def load(client):
        target = rows(np.zeros_like(WHOLE), client.rank, 2)
        try:
            report = client.load({"w": target}, **options)
        except cairn.Error as error:
            return error
        assert target.array.tobytes() == rows(WHOLE, client.rank, 2).array.tobytes()
        return report

    with concurrent.futures.ThreadPoolExecutor(len(clients)) as threads:
        return list(threads.map(load, clients))


def succeed(clients, **options) -> None:
    for answer in load_on(clients, timeout=60, **options):
        assert isinstance(answer, cairn.LoadReport), answer
        assert answer.step == 3


def test_load_that_one_rank_called_alone_leaves_no_trace(cluster):
    with cluster.connect(0) as zero, cluster.connect(1) as one:
        for client, other in ((zero, "1"), (zero, "1"), (one, "0")):
            begun = time.monotonic()
            (error,) = load_on([client], timeout=1)
            assert time.monotonic() - begun < 30
            assert isinstance(error, cairn.Error) and error.reason == "RANK_LATE", error
            assert error.metadata["ranks"] == other and error.metadata["phase"] == "waiting", error.metadata
            assert error.metadata["job"] == zero.job
        succeed([zero, one])
        succeed([zero, one], step=3)


def test_call_that_comes_while_the_others_timed_out_waits_for_their_next(cluster):
    with cluster.connect(0) as zero, cluster.connect(1) as one:
        load_on([zero], timeout=0.5)
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(load_on, [one], timeout=60)
            loads = lambda: command_json("status", "demo", f"--coordinator={cluster.coordinator.address}")["loads"]
            until(lambda: any((load["state"], load["step"]) == ("COLLECTING", None) for load in loads()), 60,
                  "a load that waits")
            succeed([zero])
            (report,) = waiting.result(60)
            assert isinstance(report, cairn.LoadReport), report


def test_restarted_trainer_counts_from_one_and_meets_the_others(cluster):
    code = ("import sys, threading, numpy as np, cairn\n"
            "client = cairn.connect(sys.argv[1])\n"
            "if len(sys.argv) > 2:\n"
            "    print('waiting', flush=True)\n"
            "    client.load({}, timeout=60)\n"
            "    threading.Event().wait()\n")
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])}
    with cluster.connect(0) as zero:
        with cluster.connect(1) as one:
            for _ in range(3):
                succeed([zero, one])
        with cluster.connect(1) as one:  # a new trainer of the rank
            succeed([zero, one])
        # This trainer is killed while it waits in a load alone.
        process = subprocess.Popen([sys.executable, "-c", code, cluster.agents[1].address, "load"],
                                   stdout=subprocess.PIPE, env=environment)
        assert process.stdout.readline() == b"waiting\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
        with cluster.connect(1) as one:
            succeed([zero, one])


def test_load_given_up_while_it_waits_is_told_to_the_agent(cluster):
    with cluster.connect(0, limits=cairn.Limits(held_call=0.05)) as zero, cluster.connect(1) as one:
        def interrupted(name, answer, **_):
            if name == "BeginLoad" and answer.pending:
                raise KeyboardInterrupt

        with probes.at("answered", interrupted), pytest.raises(KeyboardInterrupt):
            zero.load({})
        succeed([zero, one])


def test_one_loads_and_another_reshards(cluster):
    with cluster.connect(0) as zero, cluster.connect(1) as one:
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            def reshard():
                with pytest.raises(cairn.Error) as caught:
                    one.reshard({"w": WHOLE.copy()}, {"w": np.zeros_like(WHOLE)}, timeout=60)
                return caught.value
            other = threads.submit(reshard)
            (error,) = load_on([zero], timeout=60)
        for each in (error, other.result(60)):
            assert each.reason == "BAD_REQUEST" and each.metadata["ranks"] == "0, 1", each
            assert "rank 0 called load" in each.message and "rank 1 called reshard" in each.message
        succeed([zero, one])
