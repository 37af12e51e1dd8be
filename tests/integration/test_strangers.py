"""Strangers flood the ports of a coordinator and of an agent: neither takes memory for them, and saves go on."""

from __future__ import annotations

import resource
import threading
import time

import numpy as np
import pytest

import cairn.local
from testing import floods
from testing.ranks import noise, on_ranks, rows, until

RANKS = 2
STATE = noise((3000, 64), np.float32, 7)
MOST_GROWTH = 16 << 20
SECONDS = 1.5


def save(cluster, step: int) -> None:
    on_ranks(cluster, lambda rank, client: client.save(step, {"w": rows(STATE, rank, RANKS)}).wait(60))


def transfer_address(agent) -> str:
    serving = next(line for line in agent.log.read_text().splitlines() if "event=serving" in line)
    return next(word.partition("=")[2] for word in serving.split() if word.startswith("transfer=")).strip('"')


@pytest.fixture(scope="module", autouse=True)
def descriptors():
    """This process holds the connections of the floods."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 65536), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with cairn.local.Cluster(RANKS, tmp_path_factory.mktemp("strangers") / "root") as cluster:
        for step in range(3):  # what saves need is there before the first measurement
            save(cluster, step)
        cluster.steps = iter(range(3, 1000))
        yield cluster


@pytest.mark.parametrize("target", ["coordinator", "agent"])
@pytest.mark.parametrize("kind", floods.KINDS, ids=lambda kind: kind.__name__)
def test_a_flood_takes_no_memory_and_saves_go_on(cluster, kind, target, record_property):
    process = cluster.coordinator if target == "coordinator" else cluster.agents[0]
    address = process.address if target == "coordinator" else transfer_address(process)
    highest, saves = 0, []
    with floods.growth(process.pid) as grown, floods.Flood(address, SECONDS) as flood:
        thread = threading.Thread(target=kind, args=(flood,), daemon=True)
        thread.start()
        while thread.is_alive():
            began = time.monotonic()
            save(cluster, next(cluster.steps))
            saves.append(time.monotonic() - began)
            highest = max(highest, grown())
        thread.join()
        highest = max(highest, grown())
        assert flood.made > 0, "the port takes connections"
    record_property("growth_mib", round(highest / (1 << 20), 1))
    record_property("longest_save_s", round(max(saves, default=0), 2))
    print(f"{kind.__name__} {target}: {highest / (1 << 20):.1f} MiB, {flood.made} connections, "
          f"saves of {max(saves, default=0):.2f} s at most")
    assert highest <= MOST_GROWTH


def test_connections_of_strangers_leave_descriptors_for_files(tmp_path):
    with cairn.local.Cluster(RANKS, tmp_path / "root", coordinator_flags=["--lease-ttl=4s"]) as cluster:
        save(cluster, 0)
        few = (300, resource.prlimit(cluster.coordinator.pid, resource.RLIMIT_NOFILE)[1])
        resource.prlimit(cluster.coordinator.pid, resource.RLIMIT_NOFILE, few)
        with floods.Flood(cluster.coordinator.address, 30) as flood:
            for _ in range(600):
                flood.connect()
            save(cluster, 1)
            with cairn.connect(cluster.agents[0].address) as client:
                assert client.checkpoints() == [0, 1]


def test_silent_connections_end_by_themselves(tmp_path):
    with cairn.local.Cluster(1, tmp_path / "root") as cluster:
        with floods.Flood(cluster.coordinator.address, 60) as flood:
            silent = flood.connect()
            silent.settimeout(60)
            assert silent.recv(1) == b"", "the coordinator closes it"
            until(lambda: "event=strangers_refused" in cluster.coordinator.log.read_text())
