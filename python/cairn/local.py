"""Starts a coordinator and agents on this machine, for tests, examples and notebooks."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import shutil
import signal as signals
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import grpc

from cairn._agent import connection
from cairn._base import wire
from cairn._base.errors import Error, shown
from cairn._base.limits import DEFAULT, Limits
from cairn._coordinator.channel import coordinator_channel
from cairn._coordinator.tokens import of_root
from cairn.client import Client, connect

_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 5.0


def binary(name: str) -> pathlib.Path:
    """Finds a program of Cairn.

    Args:
      name: "cairn", "cairn-coordinator" or "cairn-agent".

    Returns:
      Its path: in CAIRN_BIN_DIR, if that is set; else the installed package's own, the checkout's in dist/bin, or the
      one on PATH.

    Raises:
      Error: INPUT_UNREADABLE, if it is at none of them.
    """
    places = []
    if os.environ.get("CAIRN_BIN_DIR"):
        places.append(pathlib.Path(os.environ["CAIRN_BIN_DIR"]) / name)
    else:
        package = pathlib.Path(__file__).resolve().parent
        places += [package / "_bin" / name, package.parents[1] / "bin" / name]
        found = shutil.which(name)
        if found:
            places.append(pathlib.Path(found))
    for place in places:
        if os.access(place, os.X_OK):
            return place
    raise Error("INPUT_UNREADABLE", f"{name} is not at {', '.join(map(str, places))}: install the "
                "wheel, run tools/build in a checkout, or set CAIRN_BIN_DIR")


_JOIN_GROUP = "import os, sys; os.setpgid(0, int(sys.argv[1])); os.execvp(sys.argv[2], sys.argv[2:])"


def _start_in_group(group: int, command: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Starts a process in a process group; 0: in one that it leads. Raises OSError."""
    if sys.version_info >= (3, 11):
        return subprocess.Popen(command, process_group=group, **options)
    # Before it, a program in between: with preexec_fn the child would run what gRPC does in a forked process.
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", _JOIN_GROUP, str(group), *command], **options)


class Service:
    """A process of the cluster.

    Attributes:
      address: where it listens; the same after restart().
      pid: of the running process, or of the last one.
      log: path of its output (of all its incarnations).
      flags: command-line flags of the next process that is started.
    """

    def __init__(self, name: str, program: str, flags: list[str], directory: pathlib.Path, group: int):
        self.name = name
        self.log = directory / f"{name}.log"
        self.address = ""
        self._program = program
        self.flags = flags
        self._address_file = directory / f"{name}.address"
        self._group = group
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process's number; after its end that of the last one.

        Raises:
          Error: BAD_REQUEST (it was never started).
        """
        if self._process is None:
            raise Error("BAD_REQUEST", f"{self.name} was never started")
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status of the process, or minus the signal that has ended it; None while it runs, or before."""
        return None if self._process is None else self._process.poll()

    def alive(self) -> bool:
        """Returns whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self, signal: int = signals.SIGKILL) -> None:
        """Sends a signal, if the process runs. After SIGKILL it is gone when this returns."""
        if self._process is None or not self.alive():
            return
        self._process.send_signal(signal)
        if signal == signals.SIGKILL:
            self._process.wait()

    def restart(self) -> None:
        """Starts a new process with the same address and flags. It kills the old one if that still runs.

        Raises:
          Error: TIMED_OUT (it does not listen after 30 seconds), or why it ended at its start.
        """
        self.kill()
        self._address_file.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            self._process = _start_in_group(
                self._group, [str(binary(self._program)), *self.flags, f"--address-file={self._address_file}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment())
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            try:
                text = self._address_file.read_text().strip()
            except OSError:
                text = ""
            if text:
                self.address = text
                return
            if not self.alive():
                raise self.why_ended()
            if time.monotonic() > deadline:
                raise Error("TIMED_OUT", f"{self.name} did not start within {_START_TIMEOUT:g} s; its log is "
                            f"{self.log}")
            time.sleep(0.01)

    def why_ended(self) -> Error:
        """Returns why the process ended at its start, in its own words."""
        text = self.log.read_text(errors="replace")[-4000:]
        metadata = {"log": str(self.log)}
        found = re.findall(r"^error: ([A-Z_]+): (.*)(?:\n  next: (.*))?$", text, re.MULTILINE)
        if found:
            reason, message, action = found[-1]
            if action:
                metadata["next"] = action
            return Error(reason, f"{self.name}: {message}", metadata)
        if self.returncode == 2:  # usage
            return Error("BAD_REQUEST", f"{self.name}: {text.strip()}", metadata)
        return Error("INTERNAL", f"{self.name} ended with status {self.returncode} at its start: "
                     f"{text[-500:].strip()}", metadata)

    def __repr__(self) -> str:
        return f"<{self.name} {self.address} pid {self._process.pid if self._process else None}>"


def _reserve_port() -> socket.socket:
    """Returns a free loopback port that nobody else gets by chance while the socket is open, also while no process
    listens there between two that do. Linux lets these bind the port, because the socket here is bound and does not
    listen."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


def _environment() -> dict[str, str]:
    """Returns this process's environment without variables that would set flags of the services."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}


class Cluster:
    """A coordinator and one agent for each rank, as real processes on free loopback ports.

    Use it as a context manager. Its processes end with the block, and also when this process is killed.

    Args:
      ranks: number of ranks.
      root: directory of the checkpoints, or "s3://bucket/prefix" or "gs://bucket/prefix"; stays.
      job: the job's name.
      coordinator_flags, agent_flags: strings such as "--phase-timeout=5s".

    Raises:
      Error: RANK_OUT_OF_RANGE (less than one rank), BAD_REQUEST (flags that are one string). Entering the block raises
        INPUT_UNREADABLE (the programs are not found), WORLD_INCOMPLETE (not all agents registered within 30 seconds),
        and what a process says of why it ended at its start.

    Attributes:
      coordinator: the coordinator's Service; its address serves the CLI.
      agents: the agents' Services by rank; cairn.connect(address) works from any process of this user.
      directory: where the logs and sockets are, within the block.
    """

    def __init__(self, ranks: int, root: str | os.PathLike[str], job: str = "demo",
                 coordinator_flags: Iterable[str] = (), agent_flags: Iterable[str] = ()) -> None:
        if ranks < 1:
            raise Error("RANK_OUT_OF_RANGE", f"a cluster of {ranks} ranks")
        if isinstance(coordinator_flags, str) or isinstance(agent_flags, str):
            raise Error("BAD_REQUEST", "flags are a list of strings, not a string")
        self.ranks = ranks
        self.root: pathlib.Path | str = pathlib.Path(root).absolute()
        if isinstance(root, str) and root.startswith(("s3://", "gs://")):
            self.root = root
        self.job = job
        self.coordinator: Service
        self.agents: list[Service] = []
        self._coordinator_flags = list(coordinator_flags)
        self._agent_flags = list(agent_flags)
        self._clients: list[Client] = []
        self._spawned: list[subprocess.Popen[Any]] = []
        self._reaper: subprocess.Popen[bytes] | None = None
        self.directory: pathlib.Path | None = None
        self._port: socket.socket | None = None

    def __enter__(self) -> Cluster:
        binary("cairn-coordinator"), binary("cairn-agent")
        if isinstance(self.root, pathlib.Path):
            self.root.mkdir(parents=True, exist_ok=True)
        # Paths of Unix sockets must be short, so they are not below the test's own directory.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-"))
        # This process leads the process group of all services, and kills the group when our process ends in whatever
        # way, because its standard input is then closed.
        self._reaper = _start_in_group(0, ["/bin/sh", "-c", "echo; exec >/dev/null; read _; kill -KILL 0"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._reaper.stdout is not None
        with self._reaper.stdout as ready:
            ready.readline()  # from now on there is a group
        try:
            self._start()
        except BaseException:
            self._end(keep_logs=True)
            raise
        return self

    def _entered(self) -> tuple[pathlib.Path, subprocess.Popen[bytes]]:
        """Returns the directory of logs and sockets, and the leader of the process group."""
        if self.directory is None or self._reaper is None:
            raise Error("BAD_REQUEST", "this cluster has no processes yet: use it as `with cairn.local.Cluster(...)`")
        return self.directory, self._reaper

    def _start(self) -> None:
        directory, reaper = self._entered()
        group = reaper.pid
        self._port = _reserve_port()  # agents and commands know the coordinator by it, whatever becomes of the process
        self.coordinator = Service(
            "coordinator", "cairn-coordinator",
            [f"--listen=127.0.0.1:{self._port.getsockname()[1]}", f"--root={self.root}", *self._coordinator_flags],
            directory, group)
        self.coordinator.restart()
        for rank in range(self.ranks):
            self.agents.append(Service(
                f"agent-{rank}", "cairn-agent",
                [f"--coordinator={self.coordinator.address}", f"--job={self.job}", f"--rank={rank}",
                 f"--world-size={self.ranks}", f"--root={self.root}",
                 f"--socket-directory={directory}/sockets-{rank}", *self._agent_flags], directory, group))
        with concurrent.futures.ThreadPoolExecutor(self.ranks) as starting:
            list(starting.map(Service.restart, self.agents))
        self.await_agents()

    def await_agents(self) -> None:
        """Waits until the coordinator knows all agents. Before that, a save asked for over RPC would find no job.

        Raises:
          Error: WORLD_INCOMPLETE (after 30 seconds), BAD_TOKEN, or why an agent has ended.
        """
        deadline = time.monotonic() + _START_TIMEOUT
        method = wire.CHECKPOINTS["GetJob"]
        tokens = of_root(self.root, self._coordinator_flags, self.coordinator.address)
        with coordinator_channel(self.coordinator.address, tokens) as channel:
            call = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            while True:
                try:
                    if call(method.request(job=self.job), timeout=5.0).agents == self.ranks:
                        return
                except grpc.RpcError as error:
                    refused = connection.error_from_rpc(error, "coordinator")
                    if refused.reason == "BAD_TOKEN":
                        raise refused from None
                for agent in self.agents:
                    if not agent.alive():
                        raise agent.why_ended()
                if time.monotonic() > deadline:
                    raise Error("WORLD_INCOMPLETE", f"not all {self.ranks} agents registered within "
                                f"{_START_TIMEOUT:g} s; their logs are in {self.directory}")
                time.sleep(0.01)

    def connect(self, rank: int, *, share_gpu_memory: bool = False, limits: Limits = DEFAULT) -> Client:
        """Returns a client of this rank's agent, which is closed with the cluster.

        Args:
          share_gpu_memory, limits: as in cairn.connect().

        Raises:
          Error: RANK_OUT_OF_RANGE, and as cairn.connect().
        """
        if not 0 <= rank < self.ranks:
            raise Error("RANK_OUT_OF_RANGE", f"rank {shown(rank)} of a cluster of {self.ranks}")
        client = connect(self.agents[rank].address, share_gpu_memory=share_gpu_memory, rank=rank,
                         world_size=self.ranks, limits=limits)
        self._clients.append(client)
        return client

    def spawn(self, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a process for the caller (a trainer), which ends with the cluster at the latest.

        Args:
          command: program and arguments.
          options: those of subprocess.Popen, except `process_group`.

        Raises:
          Error: BAD_REQUEST (outside of the cluster's `with` block).
          OSError: the program cannot be started. (Before Python 3.11 the process ends at once.)
        """
        _, reaper = self._entered()
        process = _start_in_group(reaper.pid, command, **options)
        self._spawned.append(process)
        return process

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._end(keep_logs=error is not None)
        if error is not None:
            note = f"The cluster's logs are in {self.directory}."
            if sys.version_info >= (3, 11):
                error.add_note(note)
            else:
                print(note, file=sys.stderr)

    def _end(self, keep_logs: bool) -> None:
        directory, reaper = self._entered()
        for client in self._clients:
            client.close()
        for process in self._spawned:
            process.kill()
            process.wait()
        services = [*self.agents, *([self.coordinator] if hasattr(self, "coordinator") else [])]
        for service in services:
            service.kill(signals.SIGTERM)
            service.kill(signals.SIGCONT)
        deadline = time.monotonic() + _STOP_TIMEOUT
        while time.monotonic() < deadline and any(service.alive() for service in services):
            time.sleep(0.01)
        for service in services:
            service.kill()
        if self._port is not None:
            self._port.close()
        if reaper.stdin is not None:
            reaper.stdin.close()
        reaper.wait()
        if not keep_logs:
            shutil.rmtree(directory, ignore_errors=True)
