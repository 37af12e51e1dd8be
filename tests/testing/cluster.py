"""A cluster of tools/cluster, and a job in it that is made from the manifests of deploy/kubernetes."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

from testing import manifests, podman

TOOL = manifests.REPOSITORY / "tools/cluster"
COORDINATOR = "app.kubernetes.io/component=coordinator"


def why_not() -> str | None:
    """Returns why no cluster is started here; None if one may be."""
    if not os.environ.get("CAIRN_TEST_CLUSTER"):
        return "it takes minutes, and root: tools/test --cluster runs it"
    if os.geteuid() != 0:
        return "a cluster needs root"
    if manifests.kubectl() is None:
        return "no kubectl with kustomize 5 is on PATH"
    return podman.why_no_image("cluster")


def wait_until(what: str, condition: Callable[[], Any], seconds: float = 240, explain: Callable[[], str] = str) -> Any:
    """Returns the first answer of the condition that is true."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not after {seconds:g} s: {what}\n{explain()}")
        time.sleep(0.3)  # each look starts a kubectl
    return answer


class Cluster:
    """A context manager: a cluster of its own, which ends with it."""

    def __init__(self) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-cluster-"))

    def tool(self, *arguments: str, stdin: str | None = None, check: bool = True,
             timeout: float = 300) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([TOOL, *arguments], input=stdin, capture_output=True, text=True, check=False,
                              timeout=timeout, env=self.environment())
        if check and done.returncode != 0:
            raise AssertionError(f"tools/cluster {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts what the tool does not end by itself. Its output may be read."""
        return subprocess.Popen([TOOL, *arguments], stdout=subprocess.PIPE, text=True, env=self.environment())

    def environment(self) -> dict[str, str]:
        return {**os.environ, "CAIRN_CLUSTER": str(self.directory / "cluster")}

    def __enter__(self) -> Cluster:
        try:
            self.tool("start")
            self.tool("load", podman.IMAGE, podman.TRAINER_IMAGE)
        except BaseException:
            self.end()
            raise
        return self

    def end(self) -> None:
        try:
            self.tool("stop")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self.end()

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True, timeout: float = 300) -> str:
        return self.tool("kubectl", *arguments, stdin=stdin, check=check, timeout=timeout).stdout

    def apply(self, objects: list[dict[str, Any]], *options: str) -> str:
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        return self.kubectl("apply", *options, "-f", "-", stdin=json.dumps(listed))

    def get(self, kind: str, *options: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, *options, "-o", "json"))["items"]
        return items


class Job:
    """The coordinator, and the pods of the job `demo`. Rank 0 is the first one of pod 0.

    Args:
      cluster: where.
      site_packages: the directory of the trainer's Python packages, for the container's Python.
      memory: limit of each container of the job, such as "512Mi".
    """

    def __init__(self, cluster: Cluster, site_packages: pathlib.Path, memory: str) -> None:
        self.cluster = cluster
        self.pods, self.ranks_per_pod = 0, 1
        self.root = cluster.directory / "checkpoints"
        self._site_packages = site_packages
        self._memory = memory
        rendered = manifests.render("kubernetes-1.20", cluster.directory)
        self.base = [one for one in rendered if one["kind"] != "Job"]
        (self._template,) = [one for one in rendered if one["kind"] == "Job"]
        self._address = ""

    def start_coordinator(self) -> None:
        """Applies the base as it is but for the image and the volume, which is a directory of the machine."""
        self.root.mkdir()
        self.cluster.directory.chmod(0o755)
        # A volume of this kind gets the pod's group from the kubelet, as a claim's volume does.
        volume = {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "checkpoints"},
            "spec": {
                "capacity": {"storage": "1Ti"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain", "local": {"path": str(self.root)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "Exists"}]}]}},
            },
        }
        base = copy.deepcopy(self.base)
        for one in base:
            for template in manifests.templates(one):
                template["spec"]["containers"][0]["image"] = podman.IMAGE
        (page,) = [one for one in base if one["metadata"]["name"] == "cairn-page"]
        self.cluster.apply([volume, *[one for one in base if one is not page]])
        self._address = json.loads(self.cluster.kubectl("get", "service", "cairn-coordinator", "-o", "json"))["spec"][
            "clusterIP"]
        page["spec"]["template"]["spec"]["hostAliases"] = self._names()
        self.cluster.apply([page])
        self.await_coordinator()

    def await_coordinator(self) -> None:
        wait_until("the coordinator is ready", lambda: any(ready(pod) for pod in self._pods(COORDINATOR)),
                   explain=self.logs)

    def replace_coordinator(self) -> None:
        (old,) = self._pods(COORDINATOR)
        self.cluster.kubectl("delete", "pod", old["metadata"]["name"])
        self.await_coordinator()

    @property
    def ranks(self) -> int:
        return self.pods * self.ranks_per_pod

    def start(self, pods: int, ranks_per_pod: int) -> None:
        self.pods, self.ranks_per_pod = pods, ranks_per_pod
        self.cluster.apply([self._of(number) for number in range(pods)])

    def _names(self) -> list[dict[str, Any]]:
        """Returns what a pod knows of names, since the cluster has no name service."""
        return [{"ip": self._address, "hostnames": ["cairn-coordinator"]}]

    def _of(self, number: int) -> dict[str, Any]:
        """Returns the Job of a pod."""
        job = copy.deepcopy(self._template)
        (template,) = manifests.templates(job["spec"]["template"])
        pod = template["spec"]
        pod["hostAliases"] = self._names()
        trainer, agent = pod["containers"]
        agent["image"] = podman.IMAGE
        agent["resources"] = {"requests": {"cpu": "100m", "memory": self._memory}, "limits": {"memory": self._memory}}
        trainer["resources"] = {"limits": {"memory": self._memory}, "requests": {"cpu": "100m"}}
        podman.add_trainer(pod, self._site_packages, number, self.pods, self.ranks_per_pod)
        job["metadata"]["name"] = f"demo-{number}"
        job["spec"]["template"]["metadata"]["annotations"] = {
            "cairn/pod": str(number), "cairn/pods": str(self.pods), "cairn/ranks-per-pod": str(self.ranks_per_pod)}
        return job

    def end(self) -> None:
        """Deletes the job, and waits until its pods have ended."""
        self.cluster.kubectl("delete", "job", "-l", "cairn/agent=container")
        wait_until("the job's pods are gone", lambda: not self._pods("cairn/job=demo"), explain=self.logs)

    def _pods(self, selector: str) -> list[dict[str, Any]]:
        return self.cluster.get("pods", "-l", selector)

    def pod(self, number: int) -> dict[str, Any] | None:
        """Returns a pod by its number, unless it is being deleted or has failed; None if there is none."""
        for pod in self._pods("cairn/job=demo"):
            if (pod["metadata"]["annotations"]["cairn/pod"] == str(number)
                    and "deletionTimestamp" not in pod["metadata"]
                    and pod["status"]["phase"] not in ("Failed", "Succeeded")):
                return pod
        return None

    def name(self, number: int) -> str:
        pod = self.pod(number)
        assert pod is not None, f"there is no pod {number}\n{self.logs()}"
        name: str = pod["metadata"]["name"]
        return name

    def run(self, number: int, *command: str) -> str:
        """Runs a command in the container of a pod's agents."""
        return self.cluster.kubectl("exec", self.name(number), "-c", "cairn-agent", "--", *command)

    def said(self, pod: str) -> list[dict[str, Any]]:
        """What the trainer that runs in a pod has printed."""
        lines = self.cluster.kubectl("logs", pod, "-c", "trainer", check=False).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def await_said(self, rank: int, key: str) -> dict[str, Any]:
        """Waits until the rank's trainer has printed the key; the last line that has it."""
        def look() -> dict[str, Any] | None:
            pod = self.pod(rank // self.ranks_per_pod)
            if pod is None:
                return None
            found = [line for line in self.said(pod["metadata"]["name"]) if line["rank"] == rank and key in line]
            return {name: value for name, value in found[-1].items() if name != "rank"} if found else None

        said: dict[str, Any] = wait_until(f"rank {rank} says {key!r}", look, explain=self.logs)
        return said

    def kill_trainers(self) -> None:
        """Kills the trainers' processes, as a machine without memory does. The kubelet starts others."""
        for number in range(self.pods):
            pod = self.pod(number)
            assert pod is not None
            (status,) = [one for one in pod["status"]["containerStatuses"] if one["name"] == "trainer"]
            container = status["containerID"].removeprefix("containerd://")
            self.cluster.tool("run", "ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", container)

            def again(number: int = number, container: str = container) -> bool:
                now = self.pod(number)
                return now is not None and any(
                    one["name"] == "trainer" and "running" in one["state"]
                    and one["containerID"] != f"containerd://{container}"
                    for one in now["status"].get("containerStatuses", []))

            wait_until(f"pod {number} has another trainer", again, explain=self.logs)

    def drain(self) -> dict[int, list[dict[str, Any]]]:
        """Evicts the job's pods from their node by the API of evictions, and lets new ones come when they have ended.
        Returns what the trainers said."""
        names = {number: self.name(number) for number in range(self.pods)}
        followers = {number: subprocess.Popen([TOOL, "kubectl", "logs", "--follow", name, "-c", "trainer"],
                                            stdout=subprocess.PIPE, text=True, env=self.cluster.environment())
                     for number, name in names.items()}
        (node,) = self.cluster.get("nodes")
        self.cluster.kubectl("drain", node["metadata"]["name"], "--pod-selector=cairn/job=demo", "--force",
                             "--delete-emptydir-data", "--timeout=240s")
        said = {}
        for number, follower in followers.items():
            output, _ = follower.communicate(timeout=60)
            said[number] = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        left = {pod["metadata"]["name"] for pod in self._pods("cairn/job=demo")} & set(names.values())
        assert not left, f"{left} are still there"
        self.cluster.kubectl("uncordon", node["metadata"]["name"])
        return said

    def failed_hooks(self) -> list[str]:
        """What kubelet and hook said of each hook that has failed."""
        return [event["message"] for event in self.cluster.get("events") if event["reason"] == "FailedPreStopHook"]

    def logs(self) -> str:
        """What to read when something is not as it should be."""
        texts = [self.cluster.kubectl("get", "pods,jobs,pvc", "-o", "wide", check=False),
                 self.cluster.kubectl("get", "events", "--sort-by=.lastTimestamp", check=False)[-4000:]]
        for pod in self.cluster.get("pods"):
            for container in pod["spec"]["containers"]:
                for options in ([], ["--previous"]):
                    text = self.cluster.kubectl("logs", "--tail=30", pod["metadata"]["name"], "-c", container["name"],
                                                *options, check=False)
                    if text:
                        texts.append(f"== {pod['metadata']['name']} {container['name']} {' '.join(options)}\n{text}")
        return "\n".join(texts)


def ready(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and any(
        one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
