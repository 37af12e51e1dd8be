"""Tests jobs whose ranks live as in pods: each agent has mounts of its own, with its sockets at the same path as all
others, and the processes of agents and trainers do not see each other."""

import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap

import pytest

import cairn
from testing.ranks import until

NAMESPACES = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True,
                            check=False)
pytestmark = pytest.mark.skipif(NAMESPACES.returncode != 0,
                                reason=f"no namespaces here: {NAMESPACES.stderr.strip()}")

# Makes a program believe that the kernel is older than Linux 6.5: getsockopt(SO_PEERPIDFD) fails.
OLDER_KERNEL = """
import ctypes, os, struct, sys
GETSOCKOPT, SO_PEERPIDFD, ENOPROTOOPT = 55, 77, 92
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7fff0000, 0x00050000 | ENOPROTOOPT
program = b"".join(struct.pack("HBBI", *step) for step in [
    (LOAD, 0, 0, 0), (EQUAL, 0, 3, GETSOCKOPT), (LOAD, 0, 0, 32), (EQUAL, 0, 1, SO_PEERPIDFD), (RETURN, 0, 0, FAIL),
    (RETURN, 0, 0, ALLOW)])
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
NO_NEW_PRIVILEGES, SECCOMP, BY_FILTER = 38, 22, 2
assert libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
assert libc.prctl(SECCOMP, BY_FILTER, ctypes.byref(Filter(6, program)), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"""

TRAINER = """
import sys
import numpy as np
import cairn
client = cairn.connect(sys.argv[1])
print("attached", flush=True)
"""


class Pods:
    """Two ranks, each agent in a pod of its own; trainers join the pod of their rank."""

    def __init__(self, directory: pathlib.Path, sockets: pathlib.Path, monkeypatch, agent: str = ""):
        real = cairn.local.binary("cairn").parent
        programs = directory / "bin"
        programs.mkdir()
        for name in ("cairn", "cairn-coordinator"):
            (programs / name).symlink_to(real / name)
        (directory / "older_kernel.py").write_text(OLDER_KERNEL)
        within = f"""mount -t tmpfs none {sockets} || exit
            for flag; do
              shift
              case $flag in --socket-directory=*) flag=--socket-directory={sockets}/run ;; esac
              set -- "$@" "$flag"
            done
            exec {agent} {real}/cairn-agent "$@" """
        (programs / "cairn-agent").write_text(
            f"#!/bin/sh\nexec unshare --mount --pid --fork --kill-child sh -c {shlex.quote(within)} sh \"$@\"\n")
        (programs / "cairn-agent").chmod(0o755)
        monkeypatch.setenv("CAIRN_BIN_DIR", str(programs))
        self.cluster = cairn.local.Cluster(ranks=2, root=directory / "checkpoints")

    def trainer(self, rank: int, code: str) -> subprocess.Popen:
        """Starts a trainer, which ends when its Popen is killed."""
        agent = self.cluster.agents[rank]
        paths = os.pathsep.join([str(pathlib.Path(cairn.__file__).parents[1]), str(pathlib.Path(__file__).parents[1])])
        return self.cluster.spawn(
            ["nsenter", "--mount", f"--target={agent.pid}", "unshare", "--pid", "--fork", "--kill-child",
             sys.executable, "-c", TRAINER + textwrap.dedent(code), agent.address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": paths})


@pytest.fixture
def sockets():
    """A directory whose path is short enough for sockets."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-pod-"))
    yield directory
    directory.rmdir()


def ended(trainer: subprocess.Popen) -> str:
    output, errors = trainer.communicate(timeout=120)
    assert trainer.returncode == 0, errors
    return output


def test_load_between_pods_with_equal_socket_paths_goes_over_the_network(tmp_path, sockets, monkeypatch):
    pods = Pods(tmp_path, sockets, monkeypatch)
    code = """
        whole = np.arange(1 << 18, dtype=np.int64)
        rank = client.rank
        half = whole.size // 2
        client.save(1, {"w": cairn.Shard(whole[rank * half:][:half].copy(), whole.shape, [rank * half])}).wait()
        target = {"w": np.zeros_like(whole)}
        client.load(target)
        assert (target["w"] == whole).all()
        print("loaded")
    """
    with pods.cluster as cluster:
        assert cluster.agents[0].address == cluster.agents[1].address
        trainers = [pods.trainer(rank, code) for rank in range(2)]
        assert all("loaded" in ended(trainer) for trainer in trainers)
        for agent in cluster.agents:
            log = agent.log.read_text()
            assert "event=load_source" in log and "transport=shared-memory" not in log


@pytest.mark.parametrize("kernel", ["pidfd", "connection"])
def test_trainer_that_dies_in_another_pid_namespace_is_lost_at_once(tmp_path, sockets, monkeypatch, kernel):
    if kernel == "connection" and platform.machine() != "x86_64":
        pytest.skip("the filter that hides the pidfd is for x86_64")
    pods = Pods(tmp_path, sockets, monkeypatch,
                f"{sys.executable} {tmp_path}/older_kernel.py" if kernel == "connection" else "")
    with pods.cluster as cluster:
        trainers = [pods.trainer(rank, "sys.stdin.read()") for rank in range(2)]
        for trainer in trainers:
            assert trainer.stdout.readline() == "attached\n"
        attached = re.search(r"event=trainer_attached.*", cluster.agents[0].log.read_text()).group()
        assert "pid=0" in attached
        if kernel == "connection":
            assert "watched=connection" in attached
        elif "watched=connection" in attached:
            pytest.skip("this kernel has no SO_PEERPIDFD")
        # A save of the whole job waits for steps that the trainers do not report, for minutes.
        save = cluster.spawn([str(cairn.local.binary("cairn")), f"--coordinator={cluster.coordinator.address}", "save",
                              "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: "state=PREPARING" in cluster.coordinator.log.read_text())
        trainers[0].kill()
        _, errors = save.communicate(timeout=60)
        assert save.returncode == 1 and "TRAINER_LOST" in errors and "rank 0" in errors
