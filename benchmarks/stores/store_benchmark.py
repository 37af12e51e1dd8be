"""Saves and loads in an object store by Cairn, by its peers and by clients that only move bytes, on the same server.

    tools/build && python=$(tools/python_env run torch test stores-peers)
    PYTHONPATH=dist/python CAIRN_BIN_DIR=dist/bin $python benchmarks/stores/store_benchmark.py --size 1GB

It starts the store (--server rgw is the gateway of a Ceph in memory, from tools/install_packages stores). Every rank is
a process with CPU tensors (fp32, DTensors split by rows). Each round takes these sides in turns, in the order of the
round before turned around, and each phase of a side in new processes:

  cairn                  a coordinator and an agent for each rank, all new; loads take nothing from the agents' memory
  dcp-s3fs               torch.distributed.checkpoint (DCP) with FsspecWriter over s3fs
  dcp-s3torchconnector   DCP with S3StorageWriter of Amazon's connector
  boto3, awscrt, curl    limits: as many bytes from and to memory, in as many processes, with parts of the same size:
                         s3transfer, Amazon's client in C, libcurl with requests that were signed before. Each is tried
                         with several settings before the rounds, on at most 256 MB and for --tuning seconds, and has
                         its best ones in them

  save       blocked: until save() returns; durable: until the commit is known. The second save of the processes counts
  load       into the same split: the first thing that new processes do
  reshard    into tensors split by columns instead of rows, likewise

Then, in each round: the removal of a step of 64 files, and listings of a job of --steps steps, beside Amazon's client.

A time is that of the slowest rank. A ratio is that of the same round; the table gives medians and ranges over the
rounds. Requests and bytes are those of the store's log. CPU is that of the ranks and the services; the store's stands
apart. Memory is what ranks and services hold besides what they held when the operation began, so without the prepared
staging buffers.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import multiprocessing
import os
import pathlib
import socket
import subprocess
import sys
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "checkpoint"))

import coordinator_work
from checkpointers import CHECKPOINTERS
from ranks import size_of
from served_store import BUCKET, MemoryWatch, ServedStore, served_store
from store_rank import Work, run
from store_table import print_table
from transfers import TRANSFERS

import cairn

SIDES = [*CHECKPOINTERS, *TRANSFERS]
# What they need.
MODULES = {**{name: kind.modules for name, kind in CHECKPOINTERS.items()},
           "boto3": ("boto3",), "awscrt": ("awscrt",), "curl": ("pycurl",)}


# The longest phase of a side, in seconds. A store that is full does not answer at all.
_PATIENCE = 300.0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="See the head of the file.")
    parser.add_argument("--server", choices=["rgw", "moto"], default="rgw", help="default %(default)s")
    parser.add_argument("--frontend", default="", metavar="SETTINGS",
                        help="of the gateway's connections: with tcp_nodelay=1 no answer waits for an ACK")
    parser.add_argument("--size", type=size_of, default=size_of("1GB"), help="of the whole state (default 1GB)")
    parser.add_argument("--ranks", type=int, default=4, help="default %(default)s")
    parser.add_argument("--tensors", type=int, default=100, help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    parser.add_argument("--part-size", type=size_of, default=size_of("8MiB"),
                        help="of the peers (default 8MiB, as Cairn's)")
    parser.add_argument("--steps", type=int, default=200, help="that are listed; 0: no listing (default %(default)s)")
    parser.add_argument("--files", type=int, default=64, help="of a removed step; 0: no removal (default %(default)s)")
    parser.add_argument("--sides", default=",".join(SIDES), help="default %(default)s")
    parser.add_argument("--tuning", type=float, default=30.0, metavar="SECONDS",
                        help="after which no further setting of a limit is tried (default %(default)s)")
    parser.add_argument("--agent-flag", action="append", default=[], metavar="FLAG", help="for each agent")
    parser.add_argument("--json", action="store_true", help="print everything that was measured instead of the table")
    options = parser.parse_args()
    options.sides = options.sides.split(",")
    if wrong := set(options.sides) - set(SIDES):
        parser.error(f"no such side: {', '.join(sorted(wrong))}")
    if options.files % options.ranks:
        parser.error("--files must be a multiple of --ranks")
    return options


class Benchmark:
    """The sides on one store. `settings` are the best ones of each limit, by phase."""

    _TRIAL = 64 << 20  # more than one part for each rank
    _TUNED = 256 << 20  # enough parts for as many connections as a setting has

    def __init__(self, store: ServedStore, options: argparse.Namespace) -> None:
        # Ranks are new processes each time, from one that has imported what takes seconds, and has done nothing else.
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([
            "store_rank", "torch.distributed.checkpoint", "torch.distributed.tensor", "cairn.torch", "boto3",
            "s3transfer.manager"])
        self._store, self._options = store, options
        self.settings: dict[str, dict[str, Any]] = {}
        self.tried: dict[str, str] = {}  # how many settings of each limit
        self.bytes = 0

    def _ranks(self, side: str, phase: str, settings: list[Any], cluster: Any,
               size: int | None = None) -> dict[str, Any]:
        """Runs a phase of a side; returns its operations, with what only an onlooker sees of them."""
        options, store = self._options, self._store
        services = [] if cluster is None else [cluster.coordinator.pid, *(agent.pid for agent in cluster.agents)]
        work = Work(side, phase, size or options.size, options.tensors, options.part_size, settings, services,
                    store.described())
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        ours, theirs = self._processes.Pipe(duplex=False)
        workers = []
        for rank in range(options.ranks):
            environment = {"RANK": str(rank), "WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1",
                           "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
            if cluster is not None:
                environment["CAIRN_AGENT"] = cluster.agents[rank].address
            workers.append(self._processes.Process(target=run, args=(work, environment, theirs), daemon=True))
        end = time.monotonic() + _PATIENCE
        for worker in workers:
            worker.start()
        with MemoryWatch([worker.pid for worker in workers], services) as memory:
            for worker in workers:
                worker.join(max(0.0, end - time.monotonic()))
        failed = [rank for rank, worker in enumerate(workers) if worker.exitcode != 0]
        for worker in workers:
            worker.kill()
        if failed:
            raise RuntimeError(f"{side}, {phase}: the ranks {failed} failed, or did not end within {_PATIENCE:g} s")
        self.bytes, operations = ours.recv()
        for operation in operations.values():
            if "log" not in operation:  # nothing was measured
                continue
            requests = store.requests(*operation.pop("log"))
            operation["requests"] = dict(collections.Counter(request.kind for request in requests))
            operation["memory"] = memory.added(operation.pop("began"), operation.pop("ended"))
            read = [request.bytes for request in requests if request.kind == "GET"]
            if phase != "save" and read and None not in read:
                operation["got / unique"] = sum(read) / self.bytes
            last = max((at for at, request in enumerate(requests) if "-bin" in request.path), default=None)
            if side == "cairn" and phase == "save" and last is not None:
                verdict = next(at for at, request in enumerate(requests)
                               if request.method == "PUT" and request.path.endswith(".verdict"))
                operation["commit requests"] = verdict - last
        return operations

    def phase(self, side: str, phase: str) -> dict[str, Any]:
        """Runs a phase of a side, with a cluster of its own if it needs one."""
        if side != "cairn":
            settings = [self.settings[side][phase]] if side in TRANSFERS else []
            operations = self._ranks(side, phase, settings, None)
            return next(iter(operations.values()))
        with cairn.local.Cluster(ranks=self._options.ranks, root=f"s3://{BUCKET}/cairn", job="benchmark",
                                 agent_flags=["--slab-loads=never", *self._options.agent_flag]) as cluster:
            operation = self._ranks(side, phase, [], cluster)[phase]
            if phase == "save":
                command = [str(cairn.local.binary("cairn")), "timeline", "benchmark@2", "--coordinator",
                           cluster.coordinator.address]
                operation["commit"] = coordinator_work.commit(
                    json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            return operation

    def why_not(self, side: str) -> str | None:
        """Says why a checkpointer cannot use this store; None if it can."""
        error = self._ranks(side, "try", [], None, size=self._TRIAL)["try"]["error"]
        self._store.clean()
        return error

    def tune(self, side: str) -> None:
        """Tries the settings of a limit, as far as the time reaches, and keeps the best of each phase."""
        settings = TRANSFERS[side].settings
        taken: dict[str, list[float]] = {"save": [], "load": []}
        end = time.monotonic() + self._options.tuning
        for setting in settings:
            operations = self._ranks(side, "tune", [setting], None, size=min(self._options.size, self._TUNED))
            # What is replaced keeps its room until the store collects it, and a store that is full stands still.
            self._store.clean()
            for phase, seconds in taken.items():
                seconds.append(operations[f"{phase} 0"]["seconds"])
            if time.monotonic() > end:
                break
        self.settings[side] = {phase: settings[seconds.index(min(seconds))] for phase, seconds in taken.items()}
        self.tried[side] = f"{len(taken['save'])} of {len(settings)}"

    def round(self, sides: list[str]) -> dict[str, Any]:
        """Returns what one round has measured: side -> phase -> operation, and the work of the coordinator."""
        result: dict[str, Any] = {"sides": {}}
        for side in sides:
            phases = ["save", "load", *(["reshard"] if side in CHECKPOINTERS else [])]
            result["sides"][side] = {phase: self.phase(side, phase) for phase in phases}
            self._store.clean()
        result["small"] = coordinator_work.small_requests(self._store)
        if self._options.files:
            result["removal"] = coordinator_work.removal(self._store, self._options.ranks, self._options.files)
        if self._options.steps:
            result["listing"] = coordinator_work.listing(self._store, self._options.steps)
        self._store.clean()
        return result


def main() -> int:
    options = parse()
    absent = {name: f"{', '.join(MODULES[name])} is not installed" for name in options.sides
              if any(importlib.util.find_spec(module) is None for module in MODULES[name])}
    # What a round keeps at a time: two saves of one side.
    with served_store(options.server, max(4 << 30, 4 * options.size), options.frontend) as store:
        # The process from which ranks come has to find the modules, too.
        os.environ |= {**store.environment(), "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        benchmark = Benchmark(store, options)
        for name in options.sides:
            if name in absent or name == "cairn":
                continue
            print(f"trying {name}", file=sys.stderr, flush=True)
            if name in TRANSFERS:
                benchmark.tune(name)
            elif (error := benchmark.why_not(name)) is not None:
                absent[name] = f"it does not work with this store: {error}"
        for name, reason in absent.items():
            print(f"{name} is absent: {reason}", file=sys.stderr)
        sides = [name for name in options.sides if name not in absent]
        rounds = []
        for number in range(options.rounds):
            rounds.append(benchmark.round(sides if number % 2 == 0 else sides[::-1]))
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        answer = {"server": options.server, "frontend": options.frontend, "bytes": benchmark.bytes,
                  "ranks": options.ranks, "tensors": options.tensors, "part": options.part_size,
                  "cores": os.cpu_count(), "absent": absent, "settings": benchmark.settings,
                  "tried": benchmark.tried, "rounds": rounds}
    if options.json:
        print(json.dumps(answer))
    else:
        print_table(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
