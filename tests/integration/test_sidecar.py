"""Tests `cairn agents`, which keeps the agents of all ranks of a pod running."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import pytest

import cairn
from testing.ranks import until

CAIRN = str(cairn.local.binary("cairn"))
PATHS = os.pathsep.join([str(pathlib.Path(cairn.__file__).parents[1]), str(pathlib.Path(__file__).parents[1])])

TRAINER = """
import os
import sys
import numpy as np
import cairn
client = cairn.connect()
rows = 1024 * client.rank
client.save(int(sys.argv[1]), {"w": cairn.Shard(np.full(1024, client.rank), (2048,), (rows,))}).wait(60)
os.write(1, f"{client.rank} of {client.world_size}\\n".encode())
"""


def free_ports(count: int) -> int:
    """Returns the first of so many ports in a row that nobody has now."""
    while True:
        with contextlib.ExitStack() as taken:
            first = taken.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            try:
                for port in range(first + 1, first + count):
                    taken.enter_context(socket.create_server(("127.0.0.1", port)))
            except (OSError, OverflowError):
                continue
            return first


class Pod:
    """A sidecar, and what its trainers see of it."""

    def __init__(self, coordinator: str, token: pathlib.Path, root: pathlib.Path, directory: pathlib.Path, **settings):
        self.directory = directory / "agents"
        self.port = free_ports(8)
        self.log = directory / "sidecar.log"
        variables = {"coordinator": coordinator, "token_file": token, "job": "demo", "root": root, "ranks": 2,
                     "run_directory": self.directory, "listen": f"127.0.0.1:{self.port}",
                     "metrics_listen": f"127.0.0.1:{self.port + 4}"} | settings
        environment = os.environ | {f"CAIRN_{name.upper()}": str(value) for name, value in variables.items()}
        self.process = subprocess.Popen([CAIRN, "agents"], env=environment, stderr=self.log.open("w"))

    def metric(self, number: int, name: str) -> float | None:
        """Returns a metric of the sidecar (0), or of an agent (its number in the pod, from 1); None if none serves."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port + 4 + number}/metrics", timeout=10) as answer:
                found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", answer.read().decode(), re.MULTILINE)
        except (OSError, urllib.error.URLError):
            return None
        return float(found[1]) if found else None

    def agents(self) -> dict[int, int]:
        """Returns the processes of the agents by their ranks."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        words = {int(pid): pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children}
        return {int(line[line.index(b"--rank") + 1]): pid for pid, line in words.items() if b"--rank" in line}

    def train(self, local: int, step: int, **variables: int) -> subprocess.Popen[str]:
        places = {"LOCAL_RANK": local} | variables
        environment = os.environ | {name: str(value) for name, value in places.items()} | {
            "PYTHONPATH": PATHS, "CAIRN_AGENT": f"unix:{self.directory}/local{{local_rank}}/agent.sock"}
        return subprocess.Popen([sys.executable, "-c", TRAINER, str(step)], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture
def place(tmp_path):
    with tempfile.TemporaryDirectory(prefix="cairn-") as directory:  # a short path, for sockets
        (root := tmp_path / "checkpoints").mkdir()
        token = tmp_path / "token"
        token.write_text("a secret of coordinator and agents\n")
        token.chmod(0o600)
        address = tmp_path / "coordinator.address"
        process = subprocess.Popen([cairn.local.binary("cairn-coordinator"), "--root", root, "--listen", "127.0.0.1:0",
                                    "--token-file", token, "--address-file", address], stderr=subprocess.DEVNULL)
        until(lambda: address.exists() and address.read_text().strip(), text="the coordinator serves")
        try:
            yield {"coordinator": address.read_text().strip(), "token": token, "root": root,
                   "directory": pathlib.Path(directory)}
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def sidecar(place, **settings):
    pod = Pod(**place | settings)
    try:
        until(lambda: pod.metric(0, "cairn_agents_running") is not None, limit=60, text=f"{pod.log}: it serves")
        yield pod
    finally:
        pod.process.kill()
        pod.process.wait(30)


def finish(*trainers: subprocess.Popen[str]) -> list[str]:
    answers = [trainer.communicate(timeout=120) for trainer in trainers]
    assert all(trainer.returncode == 0 for trainer in trainers), answers
    return [output.strip() for output, _ in answers]


def test_ranks_of_a_pod_find_their_agents_and_one_that_dies_takes_no_other_along(place):
    with sidecar(place) as pod:
        assert finish(*[pod.train(rank, 1, RANK=rank, WORLD_SIZE=2) for rank in range(2)]) == ["0 of 2", "1 of 2"]
        assert [pod.metric(1 + rank, "cairn_agent_rank") for rank in range(2)] == [0, 1]
        before = pod.agents()
        os.kill(before[1], signal.SIGKILL)
        until(lambda: pod.metric(0, "cairn_agent_restarts_total") == 1, text="the agent is started again")
        assert finish(*[pod.train(rank, 2, RANK=rank, WORLD_SIZE=2) for rank in range(2)]) == ["0 of 2", "1 of 2"]
        after = pod.agents()
        assert after[0] == before[0] and after[1] != before[1]
        pod.process.terminate()
        assert pod.process.wait(60) == 0, pod.log.read_text()
        text = pod.log.read_text()
        assert "the agent of rank 1 ended with signal 9; it is started again" in text
        assert all(f"event=ended job=demo rank={rank}" in text for rank in range(2)), "each has drained"


def test_trainer_that_is_numbered_otherwise_is_refused_by_name(place):
    with sidecar(place, nodes=2, node_rank=1) as pod:
        assert set(pod.agents()) == {2, 3}
        trainer = pod.train(0, 1, RANK=0, WORLD_SIZE=4)
        _, said = trainer.communicate(timeout=120)
        assert trainer.returncode != 0
        assert "RANK_CONFLICT" in said and "is that of rank 2 of job demo" in said and "RANK=0" in said, said


@pytest.mark.parametrize(("settings", "reason", "text"), [
    ({"root": "/nowhere/at/all"}, "AGENT_UNREACHABLE", "ended with exit status"),
    ({"node_rank": 1}, "RANK_OUT_OF_RANGE", "--node-rank 1 of --nodes 1"),
    ({"metrics_listen": "127.0.0.1:65535"}, "BAD_REQUEST", "--metrics-listen=127.0.0.1:65535"),
])
def test_sidecar_that_cannot_serve_ends_and_says_why(place, settings, reason, text):
    pod = Pod(**place | settings)
    begun = time.monotonic()
    assert pod.process.wait(60) not in (0, 130)
    assert time.monotonic() - begun < 60
    said = pod.log.read_text()
    assert f"error: {reason}" in said and text in said, said


def test_without_an_address_for_metrics_there_are_none(place):
    pod = Pod(**place | {"metrics_listen": ""})
    try:
        until(lambda: "serve: CAIRN_AGENT=" in pod.log.read_text(), limit=60, text=f"{pod.log} says that it serves")
        assert pod.metric(0, "cairn_agents_running") is None
        assert finish(*[pod.train(rank, 1, RANK=rank, WORLD_SIZE=2) for rank in range(2)]) == ["0 of 2", "1 of 2"]
    finally:
        pod.process.kill()
        pod.process.wait(30)


@pytest.mark.parametrize("missing", ["CAIRN_RANKS", "CAIRN_NODES", "CAIRN_NODE_RANK"])
def test_a_pod_that_does_not_say_its_place_is_no_job_of_its_own(place, missing):
    """An annotation that is not there makes an empty variable."""
    told = {"CAIRN_RANKS": "1", "CAIRN_NODES": "2", "CAIRN_NODE_RANK": "0", "CAIRN_JOB": "demo", missing: "",
            "CAIRN_ROOT": str(place["root"]), "CAIRN_COORDINATOR": place["coordinator"],
            "CAIRN_TOKEN_FILE": str(place["token"]), "CAIRN_RUN_DIRECTORY": str(place["directory"])}
    ended = subprocess.run([CAIRN, "agents"], env=os.environ | told, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0 and f"{missing} is empty" in ended.stderr, ended.stderr
