"""Processes whose limit of open files is reached: they say so, and work again when they have descriptors."""

from __future__ import annotations

import concurrent.futures
import os
import resource

import numpy as np
import pytest

import cairn.local
from testing.errors import raises_error
from testing.ranks import LIMIT, blank, noise, on_ranks, reasons, rows, until

RANKS = 2
STATE = noise((3000, 256), np.float32, 7)


class FewDescriptors:
    """Leaves a process so few descriptors beyond those that it has, for the block."""

    def __init__(self, process, more=0):
        self._pid = process.pid
        self._more = more

    def __enter__(self):
        self._before = resource.prlimit(self._pid, resource.RLIMIT_NOFILE)
        # The limit is one of numbers, and the lowest free ones are taken first.
        taken = {int(name) for name in os.listdir(f"/proc/{self._pid}/fd")}
        free = [number for number in range(len(taken) + self._more + 1) if number not in taken]
        resource.prlimit(self._pid, resource.RLIMIT_NOFILE, (free[self._more], self._before[1]))

    def __exit__(self, *failure):
        resource.prlimit(self._pid, resource.RLIMIT_NOFILE, self._before)


def exchanged(rank, client) -> None:
    """Moves the rows of one rank to columns, so ranks need each other's bytes."""
    wanted = rows(STATE, rank, RANKS, 1)
    target = {"w": blank(wanted)}
    client.reshard({"w": rows(STATE, rank, RANKS)}, target, timeout=20)
    assert target["w"].array.tobytes() == wanted.array.tobytes()


def everywhere(clients) -> list:
    """Lets all ranks exchange at once. Returns what each has raised, or None."""
    with concurrent.futures.ThreadPoolExecutor(RANKS) as threads:
        calls = [threads.submit(exchanged, rank, client) for rank, client in enumerate(clients)]
        return [call.exception(LIMIT) for call in calls]


@pytest.mark.parametrize("more", [0, 2, 4, 6, 7, 8])
def test_an_agent_without_descriptors_says_so_and_is_reached_again_when_it_has_some(tmp_path, more):
    flags = ["--shared-memory=never", "--nccl=never"]
    with cairn.local.Cluster(RANKS, tmp_path / "root", agent_flags=flags,
                             coordinator_flags=["--phase-timeout=10s", "--lease-ttl=2s"]) as cluster:
        clients = [cairn.connect(agent.address) for agent in cluster.agents]
        try:
            first = cluster.agents[0]
            with FewDescriptors(first, more):
                for answer in everywhere(clients):
                    assert answer is None or "frozen" not in answer.message, answer
            until(lambda: not any(reasons(everywhere(clients))), 60, "an exchange with descriptors")
        finally:
            for client in clients:
                client.close()


@pytest.mark.parametrize("more", [0, 1, 2, 3, 4])
def test_an_agent_without_descriptors_is_told_in_one_way_whatever_meets_it_first(tmp_path, more):
    kept: list[cairn.Client] = []
    with cairn.local.Cluster(1, tmp_path / "root") as cluster:
        agent = cluster.agents[0]
        with FewDescriptors(agent, more):
            # The accept loop, what watches the trainer, its page of memory, or the descriptor socket is the first.
            with raises_error("AGENT_UNREACHABLE"):
                for _ in range(more + 2):
                    kept.append(cairn.connect(agent.address, timeout=1))
            until(lambda: "event=no_descriptors" in agent.log.read_text())
        assert "prlimit" in agent.log.read_text(), "it says what to do"
        for client in kept:
            client.close()
        cairn.connect(agent.address, timeout=30).close()
        until(lambda: "event=descriptors_free" in agent.log.read_text())


def test_a_coordinator_without_descriptors_says_so_and_takes_agents_again_when_it_has_some(tmp_path):
    with cairn.local.Cluster(RANKS, tmp_path / "root", coordinator_flags=["--lease-ttl=2s"]) as cluster:
        cluster.agents[1].kill()
        until(lambda: "cause=lease-ended" in cluster.coordinator.log.read_text(), text="the end of its connection")
        with FewDescriptors(cluster.coordinator):
            cluster.agents[1].restart()
            until(lambda: "event=no_descriptors" in cluster.coordinator.log.read_text())
            until(lambda: "no file descriptor left" in cluster.agents[1].log.read_text())
        on_ranks(cluster, lambda rank, client: client.save(1, {"w": rows(STATE, rank, RANKS)}).wait(60))
