"""Tests a job in a real Kubernetes of one node, from the manifests of deploy/kubernetes: its controllers, scheduler and
kubelet start, evict and replace the pods."""

import base64
import copy
import json
import os
import pathlib
import subprocess
import sys

import numpy
import pytest

import cairn
from testing import cluster, manifests, podman

REASON = cluster.why_not()
if REASON is not None and os.environ.get("CAIRN_TEST_CLUSTER"):  # tools/test --cluster
    raise RuntimeError(f"no cluster can be started here: {REASON}")
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"not run: {REASON}")

MIB = 1 << 20
OVERLAYS = sorted(path.name for path in (manifests.DEPLOY / "overlays").iterdir())


@pytest.fixture(scope="module")
def kubernetes():
    with cluster.Cluster() as one:
        yield one


def as_of_1_20(value):
    """Returns an object without what Kubernetes 1.20 does not know. The comments say since when it is known."""
    value = copy.deepcopy(value)
    if value["kind"] == "PodDisruptionBudget":
        value["apiVersion"] = "policy/v1beta1"  # policy/v1: 1.21
        value["spec"].pop("unhealthyPodEvictionPolicy", None)  # 1.26
    if value["kind"] == "Job":
        # 1.21, 1.21, 1.25, 1.28
        for field in ("suspend", "completionMode", "podFailurePolicy", "podReplacementPolicy"):
            value["spec"].pop(field, None)
    for template in manifests.templates(value):
        for container in template["spec"].get("initContainers", []):
            # Only a sidecar may have these: 1.29.
            for field in ("restartPolicy", "startupProbe", "readinessProbe", "lifecycle"):
                container.pop(field, None)
        for container in template["spec"]["containers"]:
            for probe in ("startupProbe", "readinessProbe"):
                if "grpc" in container.get(probe, {}):  # 1.24
                    container[probe]["tcpSocket"] = {"port": container[probe].pop("grpc")["port"]}
    return value


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_server_takes_every_object(kubernetes, overlay, tmp_path):
    objects = [as_of_1_20(one) for one in manifests.checkable(manifests.render(overlay, tmp_path))]
    answer = kubernetes.apply(objects, "--dry-run=server", "--validate=true")
    assert len(answer.splitlines()) == len(objects)


@pytest.mark.parametrize(("change", "complaint"), [
    (lambda pod: pod["securityContext"].update(runAsUsr=1000), "runAsUsr"),
    (lambda pod: pod["securityContext"].update(runAsUser=-5), "runAsUser"),
    (lambda pod: pod["containers"][0]["volumeMounts"][0].update(name="elsewhere"), "elsewhere"),
])
def test_server_refuses_a_fault(kubernetes, change, complaint, tmp_path):
    objects = [as_of_1_20(one) for one in manifests.render("one-node", tmp_path)]
    (template,) = [template for one in objects if one["kind"] == "Deployment" for template in manifests.templates(one)]
    change(template["spec"])
    with pytest.raises(AssertionError, match=complaint):
        kubernetes.apply(objects, "--dry-run=server", "--validate=true")


def save(job: cluster.Job) -> int:
    """Saves as people do, by the command in a pod; the step."""
    answer = json.loads(job.run(0, "/usr/bin/cairn", "save", "demo", "--timeout", "60s", "--format=json"))
    assert answer["state"] == "COMMITTED"
    return answer["step"]


def verify(job: cluster.Job, step: int) -> None:
    done = subprocess.run([cairn.local.binary("cairn"), "verify", f"demo@{step}", "--root", job.root],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def resumed(job: cluster.Job, step: int) -> None:
    """Checks that all ranks have loaded the step and resharded it, byte for byte."""
    for rank in range(job.ranks):
        assert job.await_said(rank, "resumed") == {"resumed": step, "loaded": True, "resharded": True}


def look(job: cluster.Job, step: int) -> None:
    """Looks at the job as docs/kubernetes.md says: by a command in the coordinator's pod, and by the page."""
    status = job.cluster.kubectl("exec", "deployment/cairn-coordinator", "--", "cairn", "status", "demo")
    assert "demo" in status and str(step) in status, status
    secret = job.cluster.kubectl("get", "secret", "cairn-page-token", "-o", "jsonpath={.data.page-token}")
    forward = job.cluster.start("kubectl", "port-forward", "deployment/cairn-page", "7430")
    try:
        assert forward.stdout is not None
        assert "Forwarding from" in forward.stdout.readline(), job.logs()
        ask = ("import sys, urllib.request as u; print(u.urlopen(u.Request('http://localhost:7430/api/jobs', headers="
               "{'Authorization': 'Bearer ' + sys.argv[1]}), timeout=60).read().decode())")
        token = base64.b64decode(secret).decode().strip()
        assert '"demo"' in job.cluster.tool("run", sys.executable, "-c", ask, token).stdout
    finally:
        forward.terminate()
        forward.wait(30)


def test_job_survives_a_kill_an_eviction_a_new_coordinator_and_a_new_size(kubernetes):
    job = cluster.Job(kubernetes, pathlib.Path(numpy.__file__).parents[1], memory="1536Mi")
    job.start_coordinator()
    job.start(pods=2, ranks_per_pod=1)
    for rank in range(2):
        told = job.await_said(rank, "training")
        assert told["uid"] == podman.TRAINER_USER and told["pid"] == 1
        assert told["shared_memory"] <= 64 * 1000 * 1000 + 4 * MIB

    first = save(job)
    verify(job, first)
    job.kill_trainers()
    resumed(job, first)

    for rank in range(2):
        job.await_said(rank, "training")
    said = job.drain()
    evicted = {line["evicted"] for lines in said.values() for line in lines if "evicted" in line}
    assert len(evicted) == 1 and all("evicted" in lines[-1] for lines in said.values()), said
    for message in job.failed_hooks():
        # The hook that comes last may find that there is nobody left to save.
        assert "TRAINER_LOST" in message or "STEP_REFUSED" in message, message
    assert not [one["status"] for one in kubernetes.get("jobs") if "succeeded" in one["status"]]
    (second,) = evicted
    assert second > first
    verify(job, second)
    resumed(job, second)

    job.replace_coordinator()
    for rank in range(2):
        job.await_said(rank, "training")
    third = save(job)
    assert third > second

    look(job, third)

    job.end()
    job.start(pods=1, ranks_per_pod=8)
    last = job.await_said(0, "resumed")["resumed"]
    assert last > third  # the deletion of the job was an eviction of its pods
    verify(job, last)
    resumed(job, last)
