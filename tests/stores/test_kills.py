"""Processes are killed while a store is disturbed. What was said to be committed must stand whole, and nothing else."""

import contextlib
import json
import os
import random
import subprocess
import threading

import numpy as np
import pytest

import cairn
from stores.fault_proxy import FAULTS, FaultProxy
from stores.google_store import GoogleStore
from stores.server import ACCESS, SECRET
from testing.ranks import blank, noise, rows

RANKS = 2
# More than one part of an upload for each rank.
WHOLE = {"large": noise((4096, 2048), np.float32, 1), "small": noise((33, 17), np.float16, 2)}


def state_of(step: int, rank: int) -> dict:
    return {**{name: rows(array + step, rank, RANKS) for name, array in WHOLE.items()}, "progress": {"step": step}}


@pytest.mark.skipif("CAIRN_TEST_STORES" not in os.environ, reason="takes minutes (tools/test --stores)")
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_half_or_lost(endpoint, monkeypatch, seed):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    kill_and_look(endpoint, "AWS_ENDPOINT_URL", f"s3://models/kills-{seed}", monkeypatch, seed)


@pytest.mark.skipif("CAIRN_TEST_STORES" not in os.environ, reason="takes minutes (tools/test --stores)")
def test_nothing_is_half_or_lost_in_a_store_as_googles(monkeypatch):
    monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN", "the-token")
    with contextlib.closing(GoogleStore()) as store:
        kill_and_look(store.endpoint, "STORAGE_EMULATOR_HOST", "gs://models/kills", monkeypatch, seed=2)
        assert store.refused == []


def kill_and_look(endpoint, variable, root, monkeypatch, seed):
    """`variable` is the one of the environment that says where the store is."""
    random_ = random.Random(seed)
    proxy = FaultProxy(endpoint, seed, probability=0.05, silence=1, kinds=tuple(FAULTS))
    monkeypatch.setenv(variable, proxy.endpoint)
    durable = set()
    with contextlib.closing(proxy), cairn.local.Cluster(
            ranks=RANKS, root=root, coordinator_flags=["--phase-timeout=15s"]) as cluster:
        services = [cluster.coordinator, *cluster.agents]
        for step in range(1, 9):
            victim = random_.choice([*services, None])
            delay = random_.uniform(0, 1.5)
            killer = threading.Timer(delay, victim.kill) if victim is not None else None
            told = []

            def work(rank, step=step, told=told):
                with contextlib.suppress(cairn.Error), cluster.connect(rank) as client:
                    told.append(client.save(step, state_of(step, rank)).wait(60))

            threads = [threading.Thread(target=work, args=(rank,)) for rank in range(RANKS)]
            for thread in [*threads, *([killer] if killer else [])]:
                thread.start()
            for thread in [*threads, *([killer] if killer else [])]:
                thread.join()
            if told:
                durable.add(step)
            if victim is not None:
                victim.restart()
                cluster.await_agents()
    monkeypatch.setenv(variable, endpoint)
    listed = json.loads(command("list", "demo", "--root", root, "--format=json"))
    steps = {one["step"] for one in listed["checkpoints"] if one["state"] == "COMMITTED"}
    assert durable <= steps and durable
    for step in steps:
        command("verify", f"demo@{step}", "--root", root)
    with cairn.local.Cluster(ranks=RANKS, root=root) as cluster:
        for step in steps:
            loaded = [{name: blank(array) for name, array in state_of(step, rank).items() if name != "progress"}
                      for rank in range(RANKS)]
            load(cluster, step, loaded)
            for rank in range(RANKS):
                for name, wanted in state_of(step, rank).items():
                    if name != "progress":
                        assert loaded[rank][name].array.tobytes() == wanted.array.tobytes(), (step, rank, name)


def command(*arguments: str) -> str:
    result = subprocess.run([f"{os.environ['CAIRN_BIN_DIR']}/cairn", *arguments], capture_output=True, text=True)
    assert result.returncode == 0, (arguments, result.stdout, result.stderr)
    return result.stdout


def load(cluster: cairn.local.Cluster, step: int, targets: list[dict]) -> None:
    def work(rank: int) -> None:
        cluster.connect(rank).load(targets[rank], step=step)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
