"""Runs ranks as threads of one process, each with its own client of a real agent."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import numpy as np

import cairn
from cairn._base import wire
from cairn._coordinator import tokens
from cairn._coordinator.channel import coordinator_channel

LIMIT = 120.0


def on_ranks(cluster, work, ranks=None, errors: bool = False, **options) -> list:
    """Calls work(rank, client) on every rank at once, each with a client of its own, which is connected with these
    options. With `errors` it returns exceptions."""
    ranks = range(cluster.ranks) if ranks is None else ranks
    results: dict[int, object] = {}

    def run(rank):
        try:
            with cairn.connect(cluster.agents[rank].address, **options) as client:
                results[rank] = work(rank, client)
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in ranks]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + LIMIT
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = [rank for rank, thread in zip(ranks, threads) if thread.is_alive()]
    assert not late, f"ranks {late} did not end within {LIMIT:g} s"
    answers = [results[rank] for rank in ranks]
    if not errors:
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
    return answers


def reasons(answers) -> list[str]:
    """Returns the reasons of what on_ranks(errors=True) returned; "" for a success. Raises any other exception."""
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, cairn.Error):
            raise answer
    return [answer.reason if isinstance(answer, cairn.Error) else "" for answer in answers]


def noise(shape, dtype=np.float32, seed=0) -> np.ndarray:
    """Returns random bits, which include NaNs, so compare bytes."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array = np.frombuffer(np.random.default_rng(seed).bytes(count), np.uint8)
    return (
        (array & 1).astype(bool).reshape(shape) if np.dtype(dtype) == bool else array.view(dtype).reshape(shape).copy()
    )


def rows(whole: np.ndarray, rank: int, world: int, axis: int = 0) -> cairn.Shard:
    """Returns a rank's part as torch.chunk cuts it: uneven at the end, empty where nothing is left."""
    size = -(-whole.shape[axis] // world)
    begin, end = (min(edge * size, whole.shape[axis]) for edge in (rank, rank + 1))
    index = [slice(None)] * whole.ndim
    index[axis] = slice(begin, end)
    offset = [0] * whole.ndim
    offset[axis] = begin
    return cairn.Shard(whole[tuple(index)].copy(), whole.shape, offset)


def blank(shard: cairn.Shard) -> cairn.Shard:
    """Returns the same shard with zeros."""
    return cairn.Shard(np.zeros_like(shard.array), shard.global_shape, shard.offset, shard.shape, shard.flat_range,
                       shard.dtype)


def command(*arguments: str, expect: int | None = 0, timeout: float = 60) -> subprocess.CompletedProcess:
    """Runs the `cairn` command."""
    done = subprocess.run([str(cairn.local.binary("cairn")), *arguments], capture_output=True, text=True,
                          timeout=timeout, stdin=subprocess.DEVNULL, env={**os.environ, "NO_COLOR": "1"})
    assert expect is None or done.returncode == expect, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def command_json(*arguments: str, expect: int | None = 0, timeout: float = 60):
    return json.loads(command(*arguments, "--format=json", expect=expect, timeout=timeout).stdout)


def call_coordinator(cluster, name: str, **fields):
    """Makes an RPC of CheckpointService, and proves itself by the root's token. Raises grpc.RpcError."""
    method = wire.CHECKPOINTS[name]
    with coordinator_channel(cluster.coordinator.address, tokens.of_root(cluster.root, [])) as channel:
        call = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        return call(method.request(**fields), timeout=30.0)


def files_below(directory: pathlib.Path, ending: str = "") -> list[pathlib.Path]:
    """Returns the files below a directory, sorted. Others may remove them meanwhile: pathlib's glob then ends with an
    error now and then, os.walk passes over what went."""
    return sorted(pathlib.Path(at, name) for at, _, names in os.walk(directory) for name in names
                  if name.endswith(ending))


def open_descriptors(of: str) -> int:
    """Counts this process's descriptors whose link has this text. Other threads close some meanwhile."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += of in os.readlink(f"/proc/self/fd/{name}")
    return found


def ended(pid: int) -> bool:
    """Returns whether a process has ended, although nobody may have waited for it."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second one: it went while its file was open
        return True


def freeze(pid: int) -> None:
    """Stops a process, and returns when none of its threads runs any more: after SIGSTOP alone they may still answer
    for a moment, longer on a busy machine."""
    os.kill(pid, signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{pid}/task")
    until(lambda: all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.glob("*/stat")),
          text=f"process {pid} stands still")


def until(what, limit: float = 30.0, text: str = "it"):
    """Waits for a condition of another process and returns its true value."""
    deadline = time.monotonic() + limit
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, f"{text} did not come true within {limit:g} s"
        time.sleep(0.01)
