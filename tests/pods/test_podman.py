"""Tests a job in real pods, played by podman from the manifests of deploy/kubernetes: agents and trainers are users of
their own in containers with own process ids, 64 MB of /dev/shm, a memory limit, and sockets at one path."""

import json
import os
import pathlib
import subprocess

import numpy
import pytest

import cairn
from testing import podman

REASON = podman.why_not()
if REASON is not None and os.environ.get("CAIRN_TEST_PODS"):  # tools/test --pods
    raise RuntimeError(f"no pods can be played here: {REASON}")
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"not run: {REASON}")

MIB = 1 << 20


def save(pods: podman.Pods) -> int:
    """Saves as people do, by the command in a pod; the step."""
    answer = json.loads(pods.podman("exec", pods.agent(0), "/usr/bin/cairn", "save", "demo", "--timeout", "60s",
                                    "--format=json"))
    assert answer["state"] == "COMMITTED"
    return answer["step"]


def evict(pods: podman.Pods) -> int:
    """Does to all pods what the kubelet does to one: hook and SIGTERM, the sidecar last; the step that was saved."""
    hooks = [pods.start("exec", pods.agent(rank), *podman.EVICTION) for rank in range(pods.ranks)]
    for rank in range(pods.ranks):
        pods.podman("kill", "--signal", "TERM", pods.trainer(rank))
    for rank in range(pods.ranks):
        assert pods.podman("wait", pods.trainer(rank)).strip() == "0", pods.logs()
    for hook in hooks:
        output, errors = hook.communicate(timeout=60)
        # The hook that comes last may find that there is nobody left to save.
        assert hook.returncode == 0 or "TRAINER_LOST" in errors or "STEP_REFUSED" in errors, output + errors
    for rank in range(pods.ranks):
        pods.podman("kill", "--signal", "TERM", pods.agent(rank))
    for rank in range(pods.ranks):
        assert pods.podman("wait", pods.agent(rank)).strip() == "0", pods.logs()
    steps = {pods.await_said(rank, "evicted")["evicted"] for rank in range(pods.ranks)}
    assert len(steps) == 1, steps
    return steps.pop()


def resumed(pods: podman.Pods, step: int, times: int) -> None:
    """Checks that all ranks have loaded the step and resharded it, byte for byte."""
    for rank in range(pods.ranks):
        assert pods.await_said(rank, "resumed", times) == {"resumed": step, "loaded": True, "resharded": True}


def test_job_in_pods_survives_a_kill_and_an_eviction():
    with podman.Pods(ranks=2, site_packages=pathlib.Path(numpy.__file__).parents[1], memory="384Mi") as pods:
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
        verified = subprocess.run([cairn.local.binary("cairn"), "verify", f"demo@{second}", "--root", pods.root],
                                  capture_output=True, text=True, check=False)
        assert verified.returncode == 0, verified.stdout + verified.stderr

        for rank in range(2):
            pods.replace(rank)
        resumed(pods, second, 1)
