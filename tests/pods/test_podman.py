"""Tests a job in real pods, played by podman from the manifests of deploy/kubernetes: agents and trainers are users of
their own in containers with own process ids, 64 MB of /dev/shm, a memory limit, and sockets at one path."""

import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request

import numpy
import pytest

import cairn
from testing import podman

REASON = podman.why_not()
if REASON is not None and os.environ.get("CAIRN_TEST_PODS"):  # tools/test --pods
    raise RuntimeError(f"no pods can be played here: {REASON}")
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"not run: {REASON}")

MIB = 1 << 20
PACKAGES = pathlib.Path(numpy.__file__).parents[1]


def save(pods: podman.Pods) -> int:
    """Saves as people do, by the command in a pod; the step."""
    answer = json.loads(pods.podman("exec", pods.agent(0), "/usr/bin/cairn", "save", "demo", "--timeout", "60s",
                                    "--format=json"))
    assert answer["state"] == "COMMITTED"
    return answer["step"]


def evict(pods: podman.Pods) -> int:
    """Does to all pods what the kubelet does to one: hook and SIGTERM, the sidecar last; the step that was saved."""
    hooks = [pods.start("exec", pods.agent(number), *podman.EVICTION) for number in range(pods.pods)]
    for number in range(pods.pods):
        pods.podman("kill", "--signal", "TERM", pods.trainer(number))
    for number in range(pods.pods):
        assert pods.podman("wait", pods.trainer(number)).strip() == "143", pods.logs()
    for hook in hooks:
        output, errors = hook.communicate(timeout=120)
        # The hook that comes last may find that there is nobody left to save.
        assert hook.returncode == 0 or "TRAINER_LOST" in errors or "STEP_REFUSED" in errors, output + errors
    for number in range(pods.pods):
        pods.podman("kill", "--signal", "TERM", pods.agent(number))
    for number in range(pods.pods):
        assert pods.podman("wait", pods.agent(number)).strip() == "0", pods.logs()
    steps = {pods.await_said(rank, "evicted")["evicted"] for rank in range(pods.ranks)}
    assert len(steps) == 1, steps
    return steps.pop()


def resumed(pods: podman.Pods, step: int, times: int) -> None:
    """Checks that all ranks have loaded the step and resharded it, byte for byte."""
    for rank in range(pods.ranks):
        assert pods.await_said(rank, "resumed", times) == {"resumed": step, "loaded": True, "resharded": True}


def verify(pods: podman.Pods, step: int) -> None:
    verified = subprocess.run([cairn.local.binary("cairn"), "verify", f"demo@{step}", "--root", pods.root],
                              capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def agents_of(pods: podman.Pods, number: int) -> dict[int, int]:
    """Returns the processes of the agents in a sidecar by their ranks."""
    return {int(words[words.index("--rank") + 1]): pid for pid, line in pods.processes(pods.agent(number)).items()
            if (words := line.split())[0].endswith("cairn-agent")}


def metrics(pods: podman.Pods, number: int) -> dict[str, float]:
    """Returns what a sidecar tells Prometheus: series and values."""
    address = json.loads(pods.podman("pod", "inspect", pods.pod(number)))["InfraContainerID"]
    networks = json.loads(pods.podman("inspect", address))[0]["NetworkSettings"]["Networks"]
    (found,) = [one["IPAddress"] for one in networks.values()]
    with urllib.request.urlopen(f"http://{found}:9420/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_one_sidecar_serves_eight_ranks_and_their_pod_becomes_two_of_four():
    with podman.Pods(pods=1, ranks_per_pod=8, site_packages=PACKAGES, memory="2Gi") as pods:
        for rank in range(8):
            pods.await_said(rank, "training")
        before = agents_of(pods, 0)
        assert set(before) == set(range(8))
        assert [metrics(pods, 0)[f'cairn_agent_rank{{rank="{rank}",job_name="demo"}}'] for rank in (0, 7)] == [0, 7]
        first = save(pods)
        verify(pods, first)

        # An agent that dies takes no other along, and its trainer goes on with the next one.
        os.kill(before[3], signal.SIGKILL)
        deadline = time.monotonic() + 120
        while agents_of(pods, 0).get(3, before[3]) == before[3]:
            assert time.monotonic() < deadline, pods.logs()
        second = save(pods)
        assert second > first
        verify(pods, second)
        after = agents_of(pods, 0)
        assert {rank for rank in range(8) if after[rank] != before[rank]} == {3}
        assert metrics(pods, 0)['cairn_agent_restarts_total{job_name="demo"}'] == 1

        pods.resize(pods=2, ranks_per_pod=4)
        resumed(pods, second, 1)
        for rank in range(8):
            pods.await_said(rank, "training")
        assert [set(agents_of(pods, number)) for number in range(2)] == [{0, 1, 2, 3}, {4, 5, 6, 7}]
        third = evict(pods)
        assert third > second
        verify(pods, third)


def test_trainer_of_another_rank_than_its_agent_is_refused_by_name():
    with podman.Pods(pods=1, ranks_per_pod=2, site_packages=PACKAGES, memory="1Gi") as pods:
        for rank in range(2):
            pods.await_said(rank, "training")
        # As a launcher says that counts other ranks, or numbers pods by the order in which they came.
        for place, reason in (({"RANK": 2, "WORLD_SIZE": 4}, "WORLD_SIZE_MISMATCH"),
                              ({"RANK": 1, "WORLD_SIZE": 2}, "RANK_CONFLICT")):
            variables = [f"--env={name}={value}" for name, value in ({"LOCAL_RANK": 0} | place).items()]
            trainer = pods.start("exec", *variables, pods.trainer(0), "python3", "/app/trainer.py")
            _, said = trainer.communicate(timeout=240)
            assert trainer.returncode != 0
            assert reason in said and "that of rank 0" in said and f"RANK={place['RANK']}" in said, said
        assert save(pods) > 0


def test_job_in_pods_survives_a_kill_and_an_eviction():
    with podman.Pods(pods=2, ranks_per_pod=1, site_packages=PACKAGES, memory="384Mi") as pods:
        for rank in range(2):
            told = pods.await_said(rank, "training")
            assert told["uid"] == podman.TRAINER_USER and told["pid"] == 1
            assert told["shared_memory"] <= 64 * 1000 * 1000 + 4 * MIB

        first = save(pods)
        for rank in range(2):
            pods.podman("kill", "--signal", "KILL", pods.trainer(rank))
            pods.podman("wait", pods.trainer(rank))
        for rank in range(2):
            pods.podman("start", pods.trainer(rank))
        resumed(pods, first, 1)

        for rank in range(2):
            pods.await_said(rank, "training", 2)
        second = evict(pods)
        assert second > first
        verify(pods, second)

        for number in range(2):
            pods.replace(number)
        resumed(pods, second, 1)
