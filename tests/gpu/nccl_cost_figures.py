"""Measures what exchanges over NCCL cost others: the first one after a change of the ranks waits for a group, and saves
share the GPU with training steps. As nccl_figures.py, with two ranks on one GPU that seem to be on two hosts.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import numpy
from figures import GB, Gpu, GpuBytes
from nccl_figures import FLAGS, LIMIT, Halves, hosts_of_their_own, timed
from overlap_figures import BLOCK_BYTES, PTX, THREADS, WARPS, percentiles

import cairn
from cairn._gpu import devices
from testing.ranks import on_ranks

SAVES = 3


class Training:
    """Steps in a thread of its own, each of which sums the same bytes of the GPU once, and is waited for."""

    def __init__(self, libcuda: str, size: int) -> None:
        self._libcuda, self._size = libcuda, size
        self._lock = threading.Lock()
        self._took: list[float] | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def meanwhile(self, took: list[float]) -> Iterator[None]:
        """Puts the seconds of the steps that begin meanwhile into `took`."""
        with self._lock:
            self._took = took
        try:
            yield
        finally:
            with self._lock:
                self._took = None

    def end(self) -> None:
        self._ended = True
        self._thread.join()

    def _run(self) -> None:
        gpu = Gpu(self._libcuda)
        module, kernel, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        gpu.check("cuModuleLoadData", ctypes.byref(module), PTX.read_bytes() + b"\0")
        gpu.check("cuModuleGetFunction", ctypes.byref(kernel), module, b"cairn_crc32c")
        gpu.check("cuStreamCreate", ctypes.byref(stream), 1)
        data = GpuBytes(gpu, self._size, 1)
        blocks = -(-self._size // BLOCK_BYTES)
        ranges, sums = gpu.allocate(32), gpu.allocate(4 * blocks)
        gpu.write(ranges, numpy.array([data.address, self._size, 0, BLOCK_BYTES], numpy.uint64))
        arguments = [ctypes.c_uint64(ranges), ctypes.c_uint32(1), ctypes.c_uint64(blocks), ctypes.c_uint64(sums)]
        pointers = (ctypes.c_void_p * 4)(*[ctypes.addressof(argument) for argument in arguments])
        while not self._ended:
            with self._lock:
                took = self._took
            begun = time.perf_counter()
            gpu.check("cuLaunchKernel", kernel, -(-blocks // WARPS), 1, 1, THREADS, 1, 1, 0, stream, pointers, None)
            gpu.check("cuStreamSynchronize", stream)
            if took is not None:
                took.append(time.perf_counter() - begun)


def regroup(cluster: cairn.local.Cluster, halves: Halves) -> dict[str, object]:
    """Reshards with the group that is there, and right after one agent was replaced, so that a group must be built."""
    def reshard() -> float:
        halves.blank()
        return timed(lambda: on_ranks(cluster, lambda rank, client: client.reshard(
            halves.rows(rank), halves.columns(rank), timeout=LIMIT)))[0]

    first = reshard()
    usual = [reshard() for _ in range(3)]
    changed = []
    for _ in range(3):
        cluster.agents[1].restart()
        changed.append(reshard())
    return {"first_reshard_s": first, "reshard_s": statistics.median(usual), "after_change_s": changed,
            "wait_for_group_s": statistics.median(changed) - statistics.median(usual),
            "groups_built_s": seconds_of_groups(cluster.agents[0]), "equal": halves.equal()}


def seconds_of_groups(agent: cairn.local.Service) -> list[float]:
    """How long each group took to build, with the start of the worker."""
    times = {event: [datetime.datetime.fromisoformat(line.split(" ", 1)[0]) for line in
                     agent.log.read_text().splitlines() if f"event={event} " in line and " group=" in line]
             for event in ("gpu_worker_started", "group_ready")}
    return [(ready - started).total_seconds()
            for started, ready in zip(times["gpu_worker_started"], times["group_ready"], strict=True)]


def save_with_steps(cluster: cairn.local.Cluster, halves: Halves, training: Training, name: str) -> dict[str, object]:
    """Uneven saves: rank 0 has all of the state, so that rank 1 writes some of it. Steps count once it is staged."""
    state = {f"part{rank}": each for rank, each in enumerate(halves.source)}
    steps: list[float] = []
    seconds = []

    def save(step: int, rank: int, client: cairn.Client) -> None:
        saving = client.save(step, state if rank == 0 else {}, timeout=LIMIT)
        begun = time.perf_counter()
        with training.meanwhile(steps) if rank == 0 and step > 1 else contextlib.nullcontext():
            saving.wait(LIMIT)
        if rank == 0:
            seconds.append(time.perf_counter() - begun)

    for step in range(1, SAVES + 2):  # the first one builds the group
        on_ranks(cluster, lambda rank, client, step=step: save(step, rank, client))
    target = {key: numpy.zeros((halves.side // 2, halves.side), numpy.uint8) for key in state}
    on_ranks(cluster, lambda rank, client: client.load(target if rank == 0 else {}, timeout=LIMIT, strict=False))
    equal = all((target[key].reshape(-1) == halves.gpu.read(each.address, each.size)).all()
                for key, each in state.items())
    return {f"{name}_durable_s": seconds[1:], f"{name}_equal": equal, f"{name}_steps": len(steps),
            **percentiles(steps, f"{name}_step")}


def cost(gpu: Gpu, options: argparse.Namespace) -> dict[str, object]:
    halves = Halves(gpu, options.bytes)
    libraries = [f"--libcuda={options.libcuda}", f"--libnccl={options.libnccl}"]
    figures: dict[str, object] = {"state_bytes": halves.side ** 2}
    training = Training(options.libcuda, options.step_bytes)
    alone: list[float] = []
    with training.meanwhile(alone):
        time.sleep(2)
    figures |= percentiles(alone, "alone_step")
    with tempfile.TemporaryDirectory() as root:
        for name, policy in (("grpc", ["--nccl=never"]), ("nccl", ["--nccl=require", "--nccl-saves=require"])):
            flags = [*FLAGS, *policy, *libraries]
            with cairn.local.Cluster(ranks=2, root=f"{root}/{name}", agent_flags=flags) as cluster:
                figures |= save_with_steps(cluster, halves, training, name)
                print(json.dumps(figures), file=sys.stderr, flush=True)  # should what follows be late
        training.end()
        flags = [*FLAGS, "--nccl=require", *libraries]
        with cairn.local.Cluster(ranks=2, root=f"{root}/groups", agent_flags=flags) as cluster:
            figures |= regroup(cluster, halves)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("nccl_cost",))
    parser.add_argument("--libcuda", default=devices.driver_library())
    parser.add_argument("--libnccl", default="libnccl.so.2")
    parser.add_argument("--bytes", type=int, default=2 * GB)
    parser.add_argument("--step-bytes", type=int, default=2 * GB, help="of the GPU, that one training step reads")
    options = parser.parse_args()
    os.environ["CAIRN_LIBCUDA"] = options.libcuda
    with tempfile.TemporaryDirectory() as directory:
        hosts_of_their_own(pathlib.Path(directory))
        print(json.dumps(cost(Gpu(options.libcuda), options)), flush=True)


if __name__ == "__main__":
    main()
