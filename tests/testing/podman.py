"""Plays the manifests of deploy/kubernetes/overlays/podman: a coordinator and the pods of a job."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import pathlib
import resource
import secrets
import shutil
import subprocess
import tempfile
import time
from typing import Any

import yaml

from testing import manifests

IMAGE = "localhost/cairn:test"
TRAINER_IMAGE = "localhost/cairn-trainer:test"
AGENT_USER, TRAINER_USER = 7421, 1000
# The kubelet runs this in the agent's container when the pod is evicted, as the manifests say.
EVICTION = ["/usr/bin/cairn", "save", "--reason", "eviction", "--timeout", "100s"]


def why_not() -> str | None:
    """Returns why no pods can be played here; None if they can."""
    if os.geteuid() != 0:
        return "podman is played as root only"
    for program in ("podman", "runc", "netavark"):
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/lib/podman") is None:
            return f"{program} is not installed (tools/install_packages containers)"
    if manifests.kubectl() is None:
        return "no kubectl with kustomize 5 is on PATH"
    return why_no_image("pods")


def why_no_image(kind: str) -> str | None:
    """Returns why this build's images are not here; None if they are. tools/test --KIND makes them."""
    images = subprocess.run(["podman", "images", "--format", "{{.Repository}}:{{.Tag}}"], capture_output=True,
                            text=True, check=False).stdout.split()
    for image in (IMAGE, TRAINER_IMAGE):
        if image not in images:
            return f"there is no image {image} (tools/test --{kind} makes it)"
    programs = hashlib.sha256(b"".join(
        path.read_bytes() for path in sorted((manifests.REPOSITORY / "dist/bin").glob("cairn*"))))
    label = subprocess.run(["podman", "image", "inspect", "--format", '{{index .Labels "cairn.programs"}}', IMAGE],
                           capture_output=True, text=True, check=False).stdout.strip()
    if label != programs.hexdigest()[:32]:
        return f"the image {IMAGE} is of another build (tools/test --{kind} makes it anew)"
    return None


def add_trainer(pod: dict[str, Any], site_packages: pathlib.Path, number: int, pods: int, ranks: int) -> None:
    """Makes tests/pods/trainer.py the program of a pod's trainer, with the Python packages of a directory. A pod of
    several ranks has tests/pods/launcher.py, as others have torchrun; a pod of one rank has no launcher."""
    trainer = pod["containers"][0]
    trainer["image"] = TRAINER_IMAGE
    trainer["env"].append({"name": "PYTHONPATH", "value": "/python/cairn:/python/site-packages"})
    trainer["env"].append({"name": "PYTHONDONTWRITEBYTECODE", "value": "1"})
    for name, path, source in (("program", "/app", manifests.REPOSITORY / "tests/pods"),
                               ("package", "/python/cairn", manifests.REPOSITORY / "dist/python"),
                               ("libraries", "/python/site-packages", site_packages)):
        pod["volumes"].append({"name": name, "hostPath": {"path": str(source)}})
        trainer["volumeMounts"].append({"name": name, "mountPath": path, "readOnly": True})
    launcher = ["/app/launcher.py", str(pods), str(ranks)] if ranks > 1 else []
    trainer["env"].append({"name": "NODE_RANK", "value": str(number)})
    trainer["command"] = ["python3", *launcher, "/app/trainer.py"]


def write_settings(path: pathlib.Path) -> None:
    """Writes settings of podman that choose runc, because others refuse machines with both versions of cgroups, and
    limits that are allowed."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    path.write_text(f"""[containers]
default_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
""")


class Pods:
    """The coordinator's pod and the pods of a job. A context manager.

    Args:
      pods: how many.
      ranks_per_pod: how many ranks each has. Rank 0 is the first one of pod 0.
      site_packages: the directory of the trainer's Python packages, for the container's Python.
      memory: limit of each container, such as "512Mi".
    """

    def __init__(self, pods: int, ranks_per_pod: int, site_packages: pathlib.Path, memory: str) -> None:
        self.pods, self.ranks_per_pod = pods, ranks_per_pod
        self.name = "cairn-" + secrets.token_hex(3)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-pods-"))
        self.root = self.directory / "checkpoints"
        self._site_packages = site_packages
        self._memory = memory
        self._manifest: dict[str, Any] = {}
        self._subnet: ipaddress.IPv4Network | ipaddress.IPv6Network = ipaddress.ip_network("10.0.0.0/24")
        self._addresses = 50
        self._coordinator_address = ""
        settings = self.directory / "containers.conf"
        write_settings(settings)
        self._environment = {**os.environ, "CONTAINERS_CONF": str(settings)}

    def podman(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False,
                              env=self._environment, timeout=120)
        if check and done.returncode != 0:
            raise AssertionError(f"podman {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(["podman", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self._environment)

    def __enter__(self) -> Pods:
        self.directory.chmod(0o755)
        self.root.mkdir()
        os.chown(self.root, AGENT_USER, AGENT_USER)
        try:
            coordinator, self._manifest = manifests.render("podman", self.directory)
            token = self.directory / "token"
            token.mkdir()
            shutil.copy(self.directory / "kubernetes/base/token", token / "token")
            (token / "token").chmod(0o400)
            os.chown(token / "token", AGENT_USER, AGENT_USER)
            self.podman("network", "create", self.name)
            network = json.loads(self.podman("network", "inspect", self.name))[0]
            self._subnet = ipaddress.ip_network(network["subnets"][0]["subnet"])
            self._coordinator_address = self._new_address()
            self._play(self._coordinator(coordinator), self._coordinator_address)
            for number in range(self.pods):
                self._play_pod(number)
        except BaseException:
            self._end()
            raise
        return self

    @property
    def ranks(self) -> int:
        return self.pods * self.ranks_per_pod

    def replace(self, number: int) -> None:
        """Removes a pod and plays a new one of the same name, as a controller does after an eviction."""
        self.podman("pod", "rm", "--force", "--time", "0", self.pod(number))
        self._play_pod(number)

    def resize(self, pods: int, ranks_per_pod: int) -> None:
        """Removes all pods of the job at once, as a machine that fails does, and plays those of another form."""
        self.podman("pod", "rm", "--force", "--time", "0", *map(self.pod, range(self.pods)))
        self.pods, self.ranks_per_pod = pods, ranks_per_pod
        for number in range(pods):
            self._play_pod(number)

    def _new_address(self) -> str:
        """Returns an address that no pod has had. podman's names are not used: for a second after a pod has come or
        gone they lead to nobody or to the pod before, where a cluster hands out addresses."""
        self._addresses += 1
        return str(self._subnet[self._addresses])

    def _play(self, manifest: dict[str, Any], address: str) -> None:
        path = self.directory / f"{manifest['metadata']['name']}.yaml"
        path.write_text(yaml.safe_dump(manifest))
        self.podman("kube", "play", "--network", self.name, "--ip", address, str(path))

    def _play_pod(self, number: int) -> None:
        sockets = self.directory / f"sockets-{number}"
        shutil.rmtree(sockets, ignore_errors=True)
        sockets.mkdir()
        sockets.chmod(0o1777)
        address = self._new_address()
        self._play(self._pod(number, address), address)

    def _here(self, value: Any) -> Any:
        """Replaces the paths, images and names of the manifest by those of this test."""
        if isinstance(value, dict):
            return {key: self._here(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._here(one) for one in value]
        if not isinstance(value, str):
            return value
        if value == "localhost/cairn:dev":
            return IMAGE
        return value.replace("/var/lib/cairn/", f"{self.directory}/")

    def _coordinator(self, manifest: dict[str, Any]) -> dict[str, Any]:
        manifest = self._here(manifest)
        manifest["metadata"]["name"] = f"{self.name}-coordinator"
        return manifest

    def _pod(self, number: int, address: str) -> dict[str, Any]:
        manifest = self._here(self._manifest)
        manifest["metadata"]["name"] = self.pod(number)
        manifest["metadata"]["annotations"] = {"cairn/pod": str(number), "cairn/pods": str(self.pods),
                                               "cairn/ranks-per-pod": str(self.ranks_per_pod)}
        pod = manifest["spec"]
        pod["volumes"][0]["hostPath"]["path"] = f"{self.directory}/sockets-{number}"
        trainer, agent = pod["containers"]
        agent["resources"]["limits"]["memory"] = self._memory
        for variable in agent["env"]:
            if variable["name"] == "CAIRN_COORDINATOR":
                variable["value"] = f"{self._coordinator_address}:7420"
        agent["env"].append({"name": "CAIRN_ADVERTISE", "value": f"{address}:7421"})
        trainer["resources"] = {"limits": {"memory": self._memory}}
        add_trainer(pod, self._site_packages, number, self.pods, self.ranks_per_pod)
        return manifest

    def pod(self, number: int) -> str:
        return f"{self.name}-{number}"

    def trainer(self, number: int) -> str:
        return f"{self.pod(number)}-trainer"

    def agent(self, number: int) -> str:
        """The sidecar of a pod, which has all its agents."""
        return f"{self.pod(number)}-cairn-agent"

    def processes(self, container: str) -> dict[int, str]:
        """The processes of a container: their numbers on this machine, and their command lines."""
        lines = [line.split(maxsplit=1) for line in self.podman("top", container, "hpid", "args").splitlines()[1:]]
        # One that ends meanwhile has no number any more.
        return {int(number): arguments for number, arguments in lines if number.isdigit()}

    def said(self, rank: int) -> list[dict[str, Any]]:
        """What the processes of a rank have printed in the pod that it has now."""
        lines = self.podman("logs", self.trainer(rank // self.ranks_per_pod), check=False).splitlines()
        return [one for one in (json.loads(line) for line in lines if line.startswith("{")) if one.pop("rank") == rank]

    def await_said(self, rank: int, key: str, times: int = 1) -> dict[str, Any]:
        """Waits until the rank has printed the key so often; the last line that has it."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            found = [line for line in self.said(rank) if key in line]
            if len(found) >= times:
                return found[-1]
            time.sleep(0.4)  # each look starts a podman
        raise AssertionError(f"rank {rank} has not said {key!r} {times} times: {self.logs()}")

    def logs(self) -> str:
        names = self.podman("ps", "--all", "--format", "{{.Names}}", "--filter", f"name={self.name}").split()
        texts = []
        for name in names:
            if name.endswith("-infra"):
                continue
            done = subprocess.run(["podman", "logs", "--tail", "30", name], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False, env=self._environment)
            texts.append(f"== {name}\n{done.stdout}")
        return "\n".join(texts)

    def _end(self) -> None:
        for pod in self.podman("pod", "ps", "--format", "{{.Name}}", "--filter", f"name={self.name}").split():
            self.podman("pod", "rm", "--force", "--time", "0", pod, check=False)
        self.podman("network", "rm", "--force", self.name, check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self._end()
