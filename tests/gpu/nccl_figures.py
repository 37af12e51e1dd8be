"""Measures what goes from rank to rank over NCCL, with two ranks on one GPU. As figures.py, and with the same Gpu.

NCCL refuses two ranks on one GPU unless they seem to be on two hosts. So each agent gets a host id of its own, and the
bytes go through sockets of the loopback device: only ratios of one run mean something.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

import numpy
from figures import GB, Gpu, GpuBytes, free_bytes

import cairn
from cairn._gpu import devices
from cairn.local import binary
from testing.ranks import on_ranks

FLAGS = ["--shared-memory=never", "--round-bytes=256MiB"]
LIMIT = 60.0


SUCCESS, IN_PROGRESS = 0, 7


class Config(ctypes.Structure):
    """The beginning of ncclConfig_t, as gpu/driver/nccl_api.h has it."""

    _fields_ = (("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("blocking", ctypes.c_int), ("unset", ctypes.c_int * 3), ("network", ctypes.c_char_p))


class UniqueId(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = (("internal", ctypes.c_char * 128),)


def hosts_of_their_own(directory: pathlib.Path) -> None:
    """Makes every agent that starts from now on one of another host, as NCCL sees it."""
    for name in ("cairn-agent", "cairn-coordinator"):
        script = directory / name
        script.write_text(f'#!/bin/sh\nNCCL_HOSTID=rank-$$ exec "{binary(name).resolve()}" "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    os.environ["CAIRN_BIN_DIR"] = str(directory)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")


def peer(options: argparse.Namespace) -> None:
    """One rank of plain NCCL: it sends and receives the bytes of an exchange in one group, and prints the best time."""
    gpu, nccl = Gpu(options.libcuda), ctypes.CDLL(str(options.libnccl))

    comm, stream = ctypes.c_void_p(), ctypes.c_void_p()

    def check(function: str, *arguments: object) -> None:
        result = ctypes.c_int(nccl[function](*arguments))
        while result.value == IN_PROGRESS:
            nccl.ncclCommGetAsyncError(comm, ctypes.byref(result))
        if result.value != SUCCESS:
            raise RuntimeError(f"{function}: {result.value}")

    unique = UniqueId()
    if options.rank == 0:
        check("ncclGetUniqueId", ctypes.byref(unique))
        print(bytes(unique).hex(), flush=True)
    else:
        ctypes.memmove(ctypes.byref(unique), bytes.fromhex(sys.stdin.readline().strip()), ctypes.sizeof(unique))
    unset = -2 ** 31
    config = Config(ctypes.sizeof(Config), 0xcafebeef, 21700, 0, (unset, unset, unset), None)
    check("ncclCommInitRankConfig", ctypes.byref(comm), 2, unique, options.rank, ctypes.byref(config))
    gpu.check("cuStreamCreate", ctypes.byref(stream), 1)
    size = options.bytes
    seconds = {}
    for kind in ("host", "device"):
        memory = [gpu.pinned(size) if kind == "host" else ctypes.c_void_p(gpu.allocate(size)) for _ in range(2)]
        best = float("inf")
        for _ in range(4):
            begun = time.perf_counter()
            nccl.ncclGroupStart()
            nccl.ncclSend(memory[0], ctypes.c_size_t(size), 1, 1 - options.rank, comm, stream)
            nccl.ncclRecv(memory[1], ctypes.c_size_t(size), 1, 1 - options.rank, comm, stream)
            check("ncclGroupEnd")
            gpu.check("cuStreamSynchronize", stream)
            best = min(best, time.perf_counter() - begun)
        seconds[kind] = best
    print(json.dumps(seconds), flush=True)
    sys.stdin.readline()  # until the other rank has printed too
    os._exit(0)


def seconds_of_plain_nccl(options: argparse.Namespace, size: int) -> dict[str, float]:
    ranks = []
    for rank in range(2):
        ranks.append(subprocess.Popen(
            [sys.executable, __file__, "peer", f"--libcuda={options.libcuda}", f"--libnccl={options.libnccl}",
             f"--bytes={size}", f"--rank={rank}"], env={**os.environ, "NCCL_HOSTID": f"peer-{rank}"}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    timer = threading.Timer(LIMIT, lambda: [each.kill() for each in ranks])
    timer.start()
    try:
        ranks[1].stdin.write(ranks[0].stdout.readline())
        ranks[1].stdin.flush()
        lines = [each.stdout.readline() for each in ranks]
    finally:
        timer.cancel()
        for each in ranks:
            each.kill()
            each.wait()
    took = [json.loads(line) for line in lines]
    return {kind: max(each[kind] for each in took) for kind in took[0]}


class Halves:
    """A matrix on the GPU, of which each of two ranks has half of the rows, and takes half of the columns."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        self.gpu = gpu
        self.side = max(int(size ** 0.5) // 256 * 256, 256)
        self.shape = (self.side, self.side)
        half = self.side // 2
        self.source = [GpuBytes(gpu, half * self.side, rank) for rank in range(2)]
        self.target = [GpuBytes(gpu, self.side * half, 9) for _ in range(2)]
        for each in self.source:
            each.__cuda_array_interface__["shape"] = (half, self.side)
        for each in self.target:
            each.__cuda_array_interface__["shape"] = (self.side, half)

    def rows(self, rank: int) -> dict[str, cairn.Shard]:
        return {"w": cairn.Shard(self.source[rank], self.shape, (rank * self.side // 2, 0))}

    def columns(self, rank: int) -> dict[str, cairn.Shard]:
        return {"w": cairn.Shard(self.target[rank], self.shape, (0, rank * self.side // 2))}

    def equal(self) -> bool:
        half = self.side // 2
        whole = numpy.concatenate([self.gpu.read(each.address, each.size).reshape(half, self.side)
                                   for each in self.source])
        return all((self.gpu.read(each.address, each.size).reshape(self.side, half)
                    == whole[:, rank * half:(rank + 1) * half]).all() for rank, each in enumerate(self.target))

    def blank(self) -> None:
        for each in self.target:
            each.fill(77)


def timed(work) -> tuple[float, object]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def newest_exchanges(cluster: cairn.local.Cluster) -> list[tuple[float, float]]:
    """Of each rank: seconds until its memory was ready and the peers had told what they take, and seconds in all."""
    return [tuple(map(float, re.findall(r"event=exchanged .*?prepared_seconds=(\S+) seconds=(\S+)",
                                        agent.log.read_text())[-1])) for agent in cluster.agents]


def nccl(gpu: Gpu, options: argparse.Namespace) -> dict[str, object]:
    """Reshards, loads and uneven saves over NCCL, plain NCCL beside them, and what a stopped peer does."""
    halves = Halves(gpu, options.bytes)
    moved = halves.side * halves.side // 4  # of each rank, in each direction
    figures: dict[str, object] = {"state_bytes": halves.side ** 2, "moved_bytes_each_way": moved}
    plain = seconds_of_plain_nccl(options, moved)
    figures |= {f"plain_nccl_{kind}_s": seconds for kind, seconds in plain.items()}

    def reshard(cluster: cairn.local.Cluster) -> tuple[float, list]:
        halves.blank()
        return timed(lambda: on_ranks(cluster, lambda rank, client: client.reshard(
            halves.rows(rank), halves.columns(rank), timeout=LIMIT)))

    libraries = [f"--libcuda={options.libcuda}", f"--libnccl={options.libnccl}"]
    free = free_bytes(gpu)
    with tempfile.TemporaryDirectory() as root:
        with cairn.local.Cluster(ranks=2, root=f"{root}/host", agent_flags=[*FLAGS, "--nccl=never"]) as cluster:
            took = [reshard(cluster)[0] for _ in range(3)]
            figures["host_reshard_s"] = min(took)
            figures["host_uneven_save_s"] = uneven_save(gpu, cluster, halves)["uneven_save_s"]
        flags = [*FLAGS, "--nccl=require", "--nccl-saves=require", *libraries]
        with cairn.local.Cluster(ranks=2, root=f"{root}/nccl", agent_flags=flags) as cluster:
            took, prepared, exchanged = [], [], []
            for _ in range(4):
                seconds, reports = reshard(cluster)
                took.append(seconds)
                ready, ended = map(max, zip(*newest_exchanges(cluster), strict=True))
                prepared.append(ready)
                exchanged.append(ended)
            figures |= {"reshard_s": took, "transport": reports[0].transport, "equal": halves.equal(),
                        "exchange_prepared_s": prepared, "exchange_s": exchanged,
                        "exchange_over_plain_host": plain["host"] / min(exchanged),
                        "workers_device_bytes": free - free_bytes(gpu),
                        "group_device_bytes": [int(n) for n in re.findall(
                            r"event=group_ready .*?device_bytes=(\d+)", cluster.agents[0].log.read_text())]}
            print(json.dumps(figures), file=sys.stderr, flush=True)
            on_ranks(cluster, lambda rank, client: client.save(1, halves.rows(rank), timeout=LIMIT).wait(LIMIT))
            halves.blank()
            seconds, reports = timed(lambda: on_ranks(
                cluster, lambda rank, client: client.load(halves.columns(rank), timeout=LIMIT)))
            figures |= {"load_s": seconds, "load_transport": reports[0].transport, "load_equal": halves.equal()}
            print(json.dumps(figures), file=sys.stderr, flush=True)  # should what follows be late
            figures |= uneven_save(gpu, cluster, halves)
            figures |= broken_peer(cluster, halves, signal.SIGSTOP)
            figures |= broken_peer(cluster, halves, signal.SIGKILL)
    figures["device_bytes_kept"] = free - free_bytes(gpu)
    return figures


def uneven_save(gpu: Gpu, cluster: cairn.local.Cluster, halves: Halves) -> dict[str, object]:
    """Rank 0 has all of the state, so that rank 1 writes some of it."""
    state = {f"part{rank}": each for rank, each in enumerate(halves.source)}
    saved = timed(lambda: on_ranks(cluster, lambda rank, client: client.save(
        2, state if rank == 0 else {}, timeout=LIMIT, allow_dropped_names=True).wait(LIMIT)))[0]
    logs = "".join(agent.log.read_text() for agent in cluster.agents)
    target = {name: numpy.zeros((halves.side // 2, halves.side), numpy.uint8) for name in state}
    on_ranks(cluster, lambda rank, client: client.load(target if rank == 0 else {}, timeout=LIMIT, strict=False))
    return {"uneven_save_s": saved,
            "uneven_save_exchanges": re.findall(r"event=shards_exchanged (.*)", logs)[-2:],
            "uneven_equal": all((target[name].reshape(-1) == gpu.read(each.address, each.size)).all()
                                for name, each in state.items())}


def broken_peer(cluster: cairn.local.Cluster, halves: Halves, number: signal.Signals) -> dict[str, object]:
    """What the ranks hear when the worker of rank 1 is stopped or killed in an exchange, and whether the next one
    works."""
    name = number.name.lower()
    pid = int(re.findall(r"gpu_worker_started.* pid=(\d+)", cluster.agents[1].log.read_text())[-1])

    def reshard(errors: bool) -> tuple[float, list]:
        return timed(lambda: on_ranks(cluster, lambda rank, client: client.reshard(
            halves.rows(rank), halves.columns(rank), timeout=LIMIT), errors=errors))

    timer = threading.Timer(0.5, os.kill, (pid, number))
    timer.start()
    seconds, answers = reshard(True)
    timer.join()
    figures: dict[str, object] = {f"{name}_s": seconds, name: [str(answer)[:160] for answer in answers]}
    for agent in cluster.agents:  # --nccl=require would refuse what follows for a minute
        agent.restart()
    halves.blank()
    seconds, _ = reshard(False)
    return figures | {f"after_{name}_s": seconds, f"after_{name}_equal": halves.equal()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("nccl", "peer"))
    parser.add_argument("--libcuda", default=devices.driver_library())
    parser.add_argument("--libnccl", default="libnccl.so.2")
    parser.add_argument("--bytes", type=int, default=2 * GB)
    parser.add_argument("--rank", type=int, default=0, help="of the part peer")
    options = parser.parse_args()
    os.environ["CAIRN_LIBCUDA"] = options.libcuda
    if options.part == "peer":
        peer(options)
        return
    with tempfile.TemporaryDirectory() as directory:
        hosts_of_their_own(pathlib.Path(directory))
        print(json.dumps(nccl(Gpu(options.libcuda), options)), flush=True)


if __name__ == "__main__":
    main()
