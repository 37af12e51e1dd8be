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
from collections.abc import Sequence

import pytest

import cairn
from testing.ranks import freeze, until

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


def children_of(process: int) -> pathlib.Path:
    return pathlib.Path(f"/proc/{process}/task/{process}/children")


class Pod:
    """A sidecar, and what its trainers see of it."""

    def __init__(self, coordinator: str, token: pathlib.Path, root: pathlib.Path, directory: pathlib.Path,
                 words: Sequence[str] = (), **settings):
        self.directory = directory / "agents"
        self.port = free_ports(16)  # of metrics; the agents have those behind it
        self.log = directory / "sidecar.log"
        variables = {"coordinator": coordinator, "token_file": token, "job": "demo", "root": root, "ranks": 2,
                     "run_directory": self.directory, "listen": f"127.0.0.1:{self.port + 1}",
                     "metrics_listen": f"127.0.0.1:{self.port}"} | settings
        environment = os.environ | {f"CAIRN_{name.upper()}": str(value) for name, value in variables.items()}
        self.process = subprocess.Popen([*words, CAIRN, "agents"], env=environment, stderr=self.log.open("w"))

    def get(self, path: str) -> tuple[int, str]:
        """Returns status and body; status 0 if nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    def metric(self, name: str, rank: int | None = None) -> float | None:
        """Returns a metric of the sidecar itself, or of the agent of a rank; None if there is none."""
        series = [re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line) for line in self.get("metrics")[1].splitlines()]
        for found in filter(None, series):
            of = re.match(r'rank="(\d+)"', found[2] or "")
            if found[1] == name and (int(of[1]) if of else None) == rank:
                return float(found[3])
        return None

    def agents(self) -> dict[int, int]:
        """Returns the processes of the agents by their ranks."""
        children = children_of(self.process.pid).read_text().split()
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
        until(lambda: pod.get("serving")[0] == 200, limit=60, text=f"{pod.log}: it serves")
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
        assert [pod.metric("cairn_agent_rank", rank) for rank in range(2)] == [0, 1]
        before = pod.agents()
        os.kill(before[1], signal.SIGKILL)
        until(lambda: pod.metric("cairn_agent_restarts_total") == 1, text="the agent is started again")
        assert finish(*[pod.train(rank, 2, RANK=rank, WORLD_SIZE=2) for rank in range(2)]) == ["0 of 2", "1 of 2"]
        assert [pod.metric("cairn_agent_rank", rank) for rank in range(2)] == [0, 1]
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
    ({"listen": "127.0.0.1:65535"}, "BAD_REQUEST", "--listen=127.0.0.1:65535"),
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
        assert pod.get("metrics") == (0, "")
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


def test_one_endpoint_has_the_metrics_of_all_agents_of_a_large_pod(place):
    with sidecar(place, ranks=12) as pod:
        assert [pod.metric("cairn_agent_rank", rank) for rank in range(12)] == list(range(12))
        text = pod.get("metrics")[1]
        types = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
        assert len(types) == len(set(types)), "each metric comes in one piece"
        assert pod.metric("process_open_fds") and pod.metric("process_open_fds", 11)
        stopped = pod.agents()[3]
        freeze(stopped)
        try:
            assert pod.metric("cairn_agent_rank", 3) is None and pod.metric("cairn_agent_rank", 11) == 11
            assert pod.get("serving")[0] == 200, "a probe does not wait for an agent"
        finally:
            os.kill(stopped, signal.SIGCONT)
        for rank, pid in pod.agents().items():
            socket_file = pod.directory / f"local{rank}/metrics.sock"
            assert socket_file.stat().st_mode & 0o777 == 0o600, "other users of the pod may not ask an agent"
            assert "--metrics-listen" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()


def test_metrics_port_that_is_taken_is_told_before_a_rank_is_served(place):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        pod = Pod(**place | {"metrics_listen": address})
        assert pod.process.wait(60) == 1
    said = pod.log.read_text()
    assert f"error: BAD_REQUEST: --metrics-listen {address} cannot be bound: Address already in use" in said, said
    assert "event=" not in said, "no agent was started"


def test_agent_whose_metrics_port_is_taken_is_no_rank_of_the_job(place):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = subprocess.run(
            [cairn.local.binary("cairn-agent"), "--coordinator", place["coordinator"], "--token-file", place["token"],
             "--job", "demo", "--root", place["root"], "--rank", "0", "--world-size", "1", "--socket-directory",
             place["directory"] / "one", "--metrics-listen", address], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert f"--metrics-listen {address} cannot be bound" in ended.stderr and "event=" not in ended.stderr, ended.stderr


def test_port_of_a_later_agent_that_is_taken_ends_all_and_frees_their_ranks(place):
    """The agents that could start end by SIGTERM, so their ranks wait for no lease."""
    first = free_ports(8)
    with socket.create_server(("127.0.0.1", first + 1)):
        pod = Pod(**place | {"listen": f"127.0.0.1:{first}"})
        assert pod.process.wait(60) != 0
    said = pod.log.read_text()
    assert f"--listen 127.0.0.1:{first + 1} cannot be bound: Address already in use" in said, said
    assert "the agent of rank 1 ended with exit status 1" in said, said
    assert "event=ended job=demo rank=0" in said, said
    with sidecar(place) as again:
        assert "waiting" not in again.log.read_text(), "rank 0 is free at once"
        assert finish(*[again.train(rank, 1, RANK=rank, WORLD_SIZE=2) for rank in range(2)]) == ["0 of 2", "1 of 2"]


SLOW_TRAINER = """
import os
import sys
import numpy as np
import cairn
client = cairn.connect()
try:
    saving = client.save(1, {"w": np.zeros(24 << 20, np.uint8)}, timeout=30)
    os.write(1, b"staged\\n")
    sys.stdin.readline()
    saving.wait(60)
    os.write(1, b"committed\\n")
except cairn.Error as error:
    os.write(1, f"{error.reason}: {error}\\n".encode())
"""


def slow_trainer(pod, stdin=subprocess.DEVNULL):
    environment = os.environ | {"PYTHONPATH": PATHS, "LOCAL_RANK": "0",
                                "CAIRN_AGENT": f"unix:{pod.directory}/local{{local_rank}}/agent.sock"}
    return subprocess.Popen([sys.executable, "-c", SLOW_TRAINER], env=environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, stdin=stdin)


def verified(place) -> bool:
    return subprocess.run([CAIRN, "verify", "demo@1", "--root", place["root"]], capture_output=True,
                          check=False).returncode == 0


def test_staged_save_is_finished_after_sigterm(place):
    with sidecar(place, ranks=1, write_bandwidth="8MiB") as pod:
        trainer = slow_trainer(pod)
        assert trainer.stdout.readline() == "staged\n"
        assert not verified(place)
        pod.process.terminate()
        assert pod.process.wait(60) == 0, pod.log.read_text()
        assert verified(place)
        assert trainer.stdout.readline() == "committed\n", "the trainer is told before the agent ends"
        trainer.communicate(timeout=60)


def test_trainer_that_did_not_hear_yet_how_its_save_ended_is_told_after_sigterm(place):
    with sidecar(place, ranks=1) as pod:
        trainer = slow_trainer(pod, stdin=subprocess.PIPE)
        assert trainer.stdout.readline() == "staged\n"
        until(lambda: pod.metric("cairn_agent_busy", 0) == 0 and verified(place), text="the save is committed")
        pod.process.terminate()
        until(lambda: "event=draining" in pod.log.read_text(), text="SIGTERM has come")
        assert trainer.communicate("\n", timeout=60)[0] == "committed\n"
        assert pod.process.wait(60) == 0, pod.log.read_text()


def test_save_that_does_not_end_in_time_is_named_and_aborted(place):
    with sidecar(place, ranks=1, write_bandwidth="1MiB", drain_timeout="1s") as pod:
        trainer = slow_trainer(pod)
        assert trainer.stdout.readline() == "staged\n"
        pod.process.terminate()
        assert pod.process.wait(60) == 3, pod.log.read_text()
        said = pod.log.read_text()
        assert "error: TIMED_OUT: the agent ends, and the save of step 1 (writing) has no outcome yet" in said, said
        assert "error: TIMED_OUT: the agent of rank 0 ended with exit status 1" in said, said
        assert "--drain-timeout" in said and "terminationGracePeriodSeconds" in said
        told = trainer.communicate(timeout=60)[0]
        assert told.startswith(("RANK_LOST", "AGENT_UNREACHABLE", "SAVE_CANCELLED")), told
    assert not verified(place)
    with sidecar(place, ranks=1) as again:
        trainer = slow_trainer(again)
        assert trainer.communicate(timeout=60)[0] == "staged\ncommitted\n"
    assert verified(place)


def test_sigterm_while_a_rank_waits_for_others_tells_its_trainer(place):
    with sidecar(place) as pod:
        waits = pod.train(0, 1, RANK=0, WORLD_SIZE=2)
        until(lambda: pod.metric("cairn_agent_busy", 0) == 1, text="rank 0 waits for rank 1")
        pod.process.terminate()
        assert pod.process.wait(60) == 0, "nothing was staged"
        said = waits.communicate(timeout=60)[1]
        # The other agent ends first, or its own.
        assert waits.returncode != 0, said
        assert "RANK_LOST: demo@1: rank 1 lost" in said or "AGENT_UNREACHABLE" in said, said


def test_agents_end_with_a_parent_that_is_killed_and_leave_their_sockets_to_the_next(place):
    with sidecar(place) as pod:
        until(lambda: [pod.metric("cairn_agent_registered", rank) for rank in range(2)] == [1, 1],
              text="the next agents can tell that these are gone")
        agents = pod.agents()
        freeze(agents[1])
        pod.process.kill()
        pod.process.wait(30)
        until(lambda: not any(pathlib.Path(f"/proc/{pid}/exe").exists() for pid in agents.values()),
              text="the agents have ended, also one that is stopped")
    with sidecar(place) as again:
        assert finish(*[again.train(rank, 1, RANK=rank, WORLD_SIZE=2) for rank in range(2)]) == ["0 of 2", "1 of 2"]


def unshare(*spaces: str) -> list[str]:
    """Returns the words that run a program in namespaces of its own."""
    words = ["unshare", *spaces, *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces here: {tried.stderr.strip()}")
    return words


def test_first_process_of_a_container_leaves_no_zombies_and_ends_on_sigterm(place):
    if os.geteuid() != 0:
        pytest.skip("only root enters a process namespace")
    words = unshare("--pid", "--fork", "--mount-proc", "--kill-child")
    with sidecar(place, words=words) as pod:
        (first,) = map(int, children_of(pod.process.pid).read_text().split())
        children = children_of(first)
        agents = children.read_text().split()
        assert len(agents) == 2
        # Its parent ends first, so it becomes a child of the first process.
        subprocess.run(["nsenter", f"--target={first}", "--pid", "sh", "-c", "sleep 0.2 & exit 0"], check=True)
        until(lambda: children.read_text().split() == agents, text="an orphan that has ended is waited for")
        os.kill(first, signal.SIGTERM)
        assert pod.process.wait(60) == 0, pod.log.read_text()


SMALL_VOLUMES = {
    "no place for a directory": ("-o nr_inodes=1", "No space left on device", "Make room in the file system of"),
    "no place for a file": ("-o nr_inodes=2", "No space left on device", "Make room in the file system of"),
    "no place for the directory of an agent": ("-o nr_inodes=4", "No space left on device",
                                               "Make room in the file system of"),
    "no place for a socket": ("-o nr_inodes=5", "No space left on device", "Make room in the file system of"),
    "no byte": ("-o size=4k", "No space left on device", "Make room in the file system of"),
    "read-only": ("-o ro", "Read-only file system", "Mount a volume that can be written"),
}


@pytest.mark.parametrize("volume", SMALL_VOLUMES)
def test_volume_of_sockets_that_cannot_be_used_is_named_with_what_to_do(volume, place):
    options, error, advice = SMALL_VOLUMES[volume]
    mounted = place["directory"] / "v"
    mounted.mkdir()
    fill = f"dd if=/dev/zero of={mounted}/filler bs=4k count=1 2>/dev/null; " if volume == "no byte" else ""
    script = f'mount -t tmpfs {options} none {mounted} && {{ {fill}exec "$@"; }}'
    pod = Pod(**place | {"run_directory": mounted / "agents", "ranks": 1},
              words=[*unshare("--mount"), "sh", "-c", script, "-"])
    assert pod.process.wait(60) not in (0, 130)
    said = pod.log.read_text()
    told = next(line for line in said.splitlines() if line.startswith("error: "))
    next_action = next(line for line in said.splitlines() if line.startswith("  next: "))
    assert str(mounted) in told and error in told, said
    assert advice in next_action and str(mounted) in next_action, said
    assert "cairn delete" not in said, "no checkpoint is in the way"


def test_volume_of_sockets_that_is_missing_is_named_with_what_to_do(place):
    missing = place["directory"] / "not/mounted/agents"
    pod = Pod(**place | {"run_directory": missing})
    assert pod.process.wait(60) == 1
    said = pod.log.read_text()
    assert f"error: SOCKET_DIRECTORY: {missing.parent}: it cannot be made: No such file or directory" in said, said
    assert f"Mount or make the directory above {missing.parent}" in said, said
