"""A job under the file layer: a coordinator, agents, and trainers that are threads of this process."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cairn
import cairn.local
from cairn._base import wire
from sweep import state
from sweep.control import Control
from testing.ranks import call_coordinator, command

JOB = "demo"
COMMITTED = ("COMMITTED", "SUPERSEDED")
# Short times: what waits for a process that was killed waits for its lease. A busy machine must still keep them.
LEASE = 2.0
_COORDINATOR_FLAGS = ["--phase-timeout=10s", "--storage-timeout=4s", "--bins-per-rank=1",
                      "--drain-timeout=1s", "--lock-timeout=20s"]
_AGENT_FLAGS = ["--io-threads=1", "--memory-budget=64MiB", "--drain-timeout=1s", "--register-timeout=60s"]
# A rank gives up after these seconds: longer than any deadline of the coordinator.
PATIENCE = 60.0


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class World:
    """A context manager. The programs run below `directory`/swept, whose file calls the page of `control` counts if
    `layer` is set.

    Attributes:
      ranks: number of ranks.
      root: the root of the checkpoints.
      control: the page.
    """

    def __init__(self, ranks: int, directory: pathlib.Path, agent_flags: Iterable[str] = (),
                 lease: float = LEASE, layer: bool = True, root: pathlib.Path | None = None,
                 share_locks: bool = False):
        self.ranks = ranks
        self.directory = directory
        self.root = root or directory / "swept/root"
        self.swept = self.root.parent
        self.patience = PATIENCE
        self.root.mkdir(parents=True, exist_ok=True)
        self.agents = [f"agent-{rank}" for rank in range(ranks)]
        self.control = Control(directory, self.swept, ["coordinator", "command", *self.agents])
        self.control.share_locks(share_locks)
        self._cluster = cairn.local.Cluster(ranks, self.root, JOB,
                                           [f"--lease-ttl={lease:g}s", *_COORDINATOR_FLAGS],
                                           [*_AGENT_FLAGS, *agent_flags])
        self._layer = layer
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._stack = contextlib.ExitStack()
        self.starts_refused: list[str] = []  # why a process did not start again
        self._frozen: tuple[str, float] | None = None

    def __enter__(self) -> World:
        # The services inherit the environment of this process when they start, and when they start again.
        if self._layer:
            self._stack.enter_context(environment(self.control.environment()))
        self.cluster = self._stack.enter_context(self._cluster)
        self._keeper.start()
        return self

    def __exit__(self, *about: Any) -> None:
        self.stop_keeping()
        self._stack.__exit__(*about)

    def _services(self) -> list[cairn.local.Service]:
        return [self.cluster.coordinator, *self.cluster.agents]

    def _keep(self) -> None:
        """Starts a process again when it has ended, as its supervisor would."""
        while not self._stop.wait(0.02):
            if self._frozen is not None and self.control.met(self._frozen[0]) is not None:
                seconds, self._frozen = self._frozen[1], None
                self._stop.wait(seconds)
                self.resume()
            for service in self._services():
                if not service.alive():
                    self._start(service)

    def _start(self, service: cairn.local.Service) -> None:
        try:
            service.restart()
        except cairn.Error as error:
            self.starts_refused.append(str(error))

    def stop_keeping(self) -> None:
        """Lets processes that end stay ended."""
        self._stop.set()
        self._keeper.join()

    def service(self, process: str) -> cairn.local.Service:
        if process == "coordinator":
            return self.cluster.coordinator
        return self.cluster.agents[int(process.removeprefix("agent-"))]

    def thaw_after(self, process: str, seconds: float | None) -> None:
        """When the fault has stopped the process, it goes on after so many seconds. None: no fault stops it."""
        self._frozen = None if seconds is None else (process, seconds)

    def resume(self) -> None:
        """Lets processes that stopped themselves go on."""
        for service in self._services():
            service.kill(signal.SIGCONT)

    def replace_coordinator(self) -> None:
        """Lets the coordinator end by itself, and waits for the next one and for its agents."""
        before = self.cluster.coordinator.pid
        self.cluster.coordinator.kill(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while self.cluster.coordinator.pid == before and time.monotonic() < deadline:
            time.sleep(0.02)
        self.settle()

    def settle(self, seconds: float = 60.0) -> str:
        """Waits until all processes run and know each other. Returns what is wrong, or ""."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if call_coordinator(self.cluster, "GetJob", job=JOB).agents == self.ranks:
                    return ""
                problem = "not all agents are registered"
            except Exception as error:  # gRPC's own errors while the coordinator starts
                problem = str(error)
            if time.monotonic() > deadline:
                refused = self.starts_refused[-1] if self.starts_refused else ""
                return f"the job was not whole after {seconds:g} s: {problem} {refused}"
            time.sleep(0.01)

    def on_ranks(self, work: Callable[[int, Any], Any], ranks: range | None = None) -> list[Any]:
        """What work(rank, client) returned or raised on each rank, called on all at once."""
        ranks = range(self.ranks) if ranks is None else ranks
        answers: dict[int, Any] = {rank: TimeoutError("the call did not return") for rank in ranks}

        def call(rank: int) -> None:
            try:
                with cairn.connect(self.cluster.agents[rank].address) as client:
                    answers[rank] = work(rank, client)
            except BaseException as error:
                answers[rank] = error

        threads = [threading.Thread(target=call, args=(rank,), daemon=True) for rank in ranks]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 2 * PATIENCE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [answers[rank] for rank in ranks]

    def save(self, step: int, version: int, **options: Any) -> list[Any]:
        return self.on_ranks(lambda rank, client: client.save(
            step, state.state(rank, self.ranks, version), timeout=self.patience, **options).wait(self.patience))

    def load(self, step: int | None, crosswise: bool = False) -> list[Any]:
        """(step, version) of each rank, or its error. A rank whose bytes are no version's gets version None."""
        def work(rank: int, client: Any) -> tuple[int, int | None]:
            filled = state.target(rank, self.ranks, crosswise)
            report = client.load(filled, step, timeout=self.patience)
            version = report.objects["version"]
            whole = report.objects["mine"] == [rank, version] or crosswise
            return report.step, version if whole and state.same(rank, self.ranks, filled, version, crosswise) else None
        return self.on_ranks(work)

    def listed(self) -> dict[int, tuple[str, int]]:
        """The state and the attempt of each step that the coordinator lists."""
        answer = call_coordinator(self.cluster, "ListCheckpoints", job=JOB)
        return {entry.step: (wire.enum_name("cairn.v1.Phase.Value", entry.state), entry.attempt)
                for entry in answer.checkpoints}

    def committed(self) -> dict[int, int]:
        """The attempt of each committed step."""
        return {step: attempt for step, (state, attempt) in self.listed().items() if state in COMMITTED}

    def command(self, *arguments: str) -> subprocess.CompletedProcess:
        return command(*arguments, expect=None, timeout=2 * PATIENCE)


@contextlib.contextmanager
def world_in_temporary(ranks: int, **options: Any) -> Iterator[World]:
    """A world whose files go with it. They lie in a directory of the system's temporary one."""
    with tempfile.TemporaryDirectory(prefix="cairn-sweep-", ignore_cleanup_errors=True) as directory:
        with World(ranks, pathlib.Path(directory).resolve(), **options) as world:
            yield world
