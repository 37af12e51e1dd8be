"""What the benchmarks of saves and loads share: their ranks, the state that these have, and what the disk gives."""

from __future__ import annotations

import argparse
import functools
import json
import mmap
import os
import pathlib
import queue
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
# One transfer of plain_transfer().
_CHUNK = 8 << 20


def size_of(text: str) -> int:
    found = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", text)
    if not found or found[2].upper() not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 2GiB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def drop_caches(directory: pathlib.Path) -> None:
    """Drops the page cache, or without the right to do so the pages of the files in a directory."""
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("1\n")
    except OSError:
        for path in directory.rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@functools.cache
def _pages() -> list[mmap.mmap]:
    # These are huge pages, as in buffers of Cairn: the kernel cuts a transfer of small ones into many requests.
    pages = [mmap.mmap(-1, 2 * _CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(4)]
    for page in pages:
        page.madvise(mmap.MADV_HUGEPAGE)
        page.write(os.urandom(_CHUNK))  # a disk may be quick with zeros
    return pages


def plain_transfer(path: pathlib.Path, size: int, read: bool) -> None:
    """Writes or reads a file with O_DIRECT: 8 MiB at once, two threads, fsync. `size` is a multiple of 4096."""
    pages = _pages()
    fd = os.open(path, os.O_DIRECT | (os.O_RDONLY if read else os.O_WRONLY | os.O_CREAT))

    def half(number: int) -> None:
        for at in range(number * _CHUNK, size, 2 * _CHUNK):
            part = memoryview(pages[number])[:min(_CHUNK, size - at)]
            if (os.preadv if read else os.pwritev)(fd, [part], at) != len(part):
                raise OSError("a short transfer")

    threads = [threading.Thread(target=half, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.fsync(fd)
    os.close(fd)


def plain_copy(source: pathlib.Path, target: pathlib.Path, size: int) -> None:
    """Copies a file as plain_transfer() reads and writes: two threads read while two write; fsync."""
    free: queue.SimpleQueue[mmap.mmap] = queue.SimpleQueue()
    full: queue.SimpleQueue[tuple[mmap.mmap, int, int] | None] = queue.SimpleQueue()
    for page in _pages():
        free.put(page)
    reading = os.open(source, os.O_DIRECT | os.O_RDONLY)
    writing = os.open(target, os.O_DIRECT | os.O_WRONLY | os.O_CREAT)
    os.posix_fallocate(writing, 0, size)

    def read(number: int) -> None:
        for at in range(number * _CHUNK, size, 2 * _CHUNK):
            page, length = free.get(timeout=60), min(_CHUNK, size - at)
            if os.preadv(reading, [memoryview(page)[:length]], at) != length:
                raise OSError("a short transfer")
            full.put((page, at, length))
        full.put(None)

    def write() -> None:
        while (item := full.get(timeout=60)) is not None:
            page, at, length = item
            if os.pwritev(writing, [memoryview(page)[:length]], at) != length:
                raise OSError("a short transfer")
            free.put(page)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(2)]
    threads += [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.fsync(writing)
    os.close(writing)
    os.close(reading)


class Rank:
    """One rank of a benchmark, in its process.

    Attributes:
      rank, world: as torch.distributed has them.
      total: bytes of the whole state.
      times: name -> seconds of the slowest rank, call by call.
    """

    def __init__(self, size: int, tensors: int) -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._mesh = init_device_mesh("cpu", (self.world,))
        self._tensors = tensors
        # Tensors of one width; rows and columns divide by the ranks.
        self._width = 1024 * self.world
        self._rows = max(1, round(size / 4 / tensors / self._width / self.world)) * self.world
        self.total = tensors * self._rows * self._width * 4
        self.times: dict[str, list[float]] = {}
        _pages()  # not within a time

    def state(self, axis: int, fill: bool) -> dict[str, Any]:
        """Returns DTensors (fp32) split along `axis`: with values, or filled with -1, as a model's are touched."""
        import numpy as np
        import torch
        from torch.distributed.tensor import DTensor, Shard

        rows, width = self._rows, self._width
        shape = (rows // self.world, width) if axis == 0 else (rows, width // self.world)
        chance = np.random.default_rng(self.rank)
        result = {}
        for number in range(self._tensors):
            local = torch.full(shape, -1.0)
            if fill:
                local.copy_(torch.from_numpy(chance.random(shape, dtype=np.float32)))
            result[f"layers.{number:03}.weight"] = DTensor.from_local(local, self._mesh, [Shard(axis)], run_check=False,
                                                                      shape=(rows, width), stride=(width, 1))
        return result

    def barrier(self) -> None:
        import torch.distributed as dist

        dist.barrier()

    def note(self, name: str, seconds: float) -> None:
        """Takes a time of this rank; that of the slowest counts."""
        import torch
        import torch.distributed as dist

        slowest = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        self.times.setdefault(name, []).append(slowest.item())

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        """All ranks start together."""
        self.barrier()
        started = time.perf_counter()
        answer = work()
        self.note(name, time.perf_counter() - started)
        return answer

    def check(self, source: dict[str, Any], loaded: dict[str, Any]) -> None:
        """The loaded bytes are the saved ones: bit for bit in the same layout, else by the sum of each tensor."""
        import torch
        import torch.distributed as dist

        for name, tensor in loaded.items():
            if tensor.placements == source[name].placements:
                assert torch.equal(tensor.to_local(), source[name].to_local()), name
            else:
                sums = torch.stack([tensor.to_local().double().sum(), source[name].to_local().double().sum()])
                dist.all_reduce(sums)
                assert abs(sums[0] - sums[1]) <= 1e-9 * abs(sums[1]), name


def run_ranks(program: str, options: argparse.Namespace, agent_flags: Sequence[str],
              arguments: Callable[[pathlib.Path], list[str]]) -> dict[str, Any] | None:
    """Starts a cluster, and `program --worker` with these arguments once for each of options.ranks.

    Args:
      arguments: of the directory that is options.directory, or a temporary one.

    Returns:
      The last line of what rank 0 prints, which is JSON; None if a rank failed.
    """
    import cairn

    directory = pathlib.Path(options.directory or tempfile.mkdtemp(prefix="cairn-benchmark-"))
    directory.mkdir(parents=True, exist_ok=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    try:
        with cairn.local.Cluster(ranks=options.ranks, root=directory / "root", job="benchmark",
                                 agent_flags=list(agent_flags)) as cluster:
            workers = []
            for rank in range(options.ranks):
                environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(options.ranks),
                               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                               "GLOO_SOCKET_IFNAME": "lo", "CAIRN_AGENT": cluster.agents[rank].address,
                               "AGENT_PIDS": " ".join(str(agent.pid) for agent in cluster.agents)}
                workers.append(cluster.spawn([sys.executable, program, "--worker", *arguments(directory)],
                                             env=environment, stdin=subprocess.DEVNULL,
                                             stdout=subprocess.PIPE if rank == 0 else None, text=True))
            output = workers[0].communicate()[0]
            if any([process.wait() for process in workers]):
                print("error: a rank failed", file=sys.stderr)
                return None
        return json.loads(output.strip().splitlines()[-1])
    finally:
        if options.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
