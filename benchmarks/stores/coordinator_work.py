"""What the coordinator and the commands ask of a store without moving state: removals and listings, each beside what
Amazon's own client needs for the same."""

from __future__ import annotations

import concurrent.futures
import contextlib
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from served_store import BUCKET, ServedStore

import cairn

_PATIENCE = 120.0
_JOB = "benchmark"
# Connections of the peer, as many as Amazon's client has by default.
_THREADS = 10


@contextlib.contextmanager
def _cluster(store: ServedStore, name: str, ranks: int, bins: int) -> Iterator[tuple[cairn.local.Cluster, Any]]:
    """Yields a cluster with a root of its own, and save(STEP), which saves a few kB in `bins` files a rank."""
    with cairn.local.Cluster(ranks=ranks, root=f"s3://{BUCKET}/{name}", job=_JOB,
                             coordinator_flags=[f"--bins-per-rank={bins}", "--lease-ttl=3s"]) as cluster:
        clients = [cluster.connect(rank) for rank in range(ranks)]
        states = [{f"rank{rank}.{number}": np.full(1024, number, np.float32) for number in range(bins)}
                  for rank in range(ranks)]

        def save(step: int) -> None:
            # The ranks of a save wait for each other.
            with concurrent.futures.ThreadPoolExecutor(ranks) as threads:
                for saving in [threads.submit(client.save, step, state) for client, state in zip(clients, states)]:
                    saving.result().wait()

        yield cluster, save


def _cairn(cluster: cairn.local.Cluster, *arguments: str) -> str:
    command = [str(cairn.local.binary("cairn")), *arguments, "--coordinator", cluster.coordinator.address]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _counted(store: ServedStore, work: Callable[[], Any]) -> tuple[float, int, Any]:
    """Does the work; returns its seconds, the number of requests that the store had meanwhile, and the answer."""
    begin = store.position()
    began = time.monotonic()
    answer = work()
    seconds = time.monotonic() - began
    return seconds, len(store.requests(begin, store.position())), answer


def _keys(client: Any, prefix: str) -> list[str]:
    return [found["Key"] for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
            for found in page.get("Contents", [])]


def removal(store: ServedStore, ranks: int, files: int) -> dict[str, Any]:
    """Deletes one step of so many files, and as many keys by one request of Amazon's client.

    Returns:
      Seconds until the command has returned, and until the files are gone; the requests from the command until then;
      the peer's seconds, and its requests.
    """
    client = store.client()
    with _cluster(store, "removal", ranks, files // ranks) as (cluster, save):
        started = time.monotonic()
        for step in (1, 2):
            save(step)
        bins = [key for key in _keys(client, f"removal/{_JOB}/{1:012}/") if key.endswith(".safetensors")]
        assert len(bins) == files, f"{len(bins)} files instead of {files}"
        # Before two leases are over, files wait for agents that an earlier coordinator may have had.
        time.sleep(max(0.0, started + 7 - time.monotonic()))
        begin = store.position()
        began = time.monotonic()
        _cairn(cluster, "delete", f"{_JOB}@1")
        returned = time.monotonic()
        looks = 0
        while True:
            looks += 1
            left = _keys(client, f"removal/{_JOB}/{1:012}/0001/rank")
            if not left:
                break
            if time.monotonic() - began > _PATIENCE:
                raise TimeoutError(f"{len(left)} files of a deleted step are still there after {_PATIENCE} s")
            time.sleep(0.01)
        gone = time.monotonic()
        requests = len(store.requests(begin, store.position())) - looks
    names = [f"removal-peer/{number}" for number in range(files)]
    for name in names:
        client.put_object(Bucket=BUCKET, Key=name, Body=bytes(8192))
    seconds, peer_requests, answer = _counted(store, lambda: client.delete_objects(
        Bucket=BUCKET, Delete={"Objects": [{"Key": name} for name in names], "Quiet": True}))
    assert not answer.get("Errors") and not _keys(client, "removal-peer/")
    return {"files": files, "returned": returned - began, "gone": gone - began, "requests": requests, "peer": seconds,
            "peer_requests": peer_requests}


def listing(store: ServedStore, steps: int) -> dict[str, Any]:
    """Lists a job of many steps, by `cairn list` of a coordinator and of the root, and by Amazon's client: all names,
    and each step's verdict, by several threads.

    Returns:
      Seconds and requests of the three, and the seconds of a command that asks for nothing.
    """
    client = store.client()
    with _cluster(store, "listing", 1, 1) as (cluster, save):
        for step in range(1, steps + 1):
            save(step)
        asked, asked_requests, text = _counted(store, lambda: _cairn(cluster, "list", _JOB))
        assert text.count("COMMITTED") >= steps, text
        command = [str(cairn.local.binary("cairn")), "list", _JOB, "--root", f"s3://{BUCKET}/listing"]
        read, read_requests, done = _counted(store, lambda: subprocess.run(command, check=True, capture_output=True,
                                                                           text=True))
        assert done.stdout.count("COMMITTED") >= steps, done.stdout
    nothing, _, _ = _counted(store, lambda: subprocess.run([command[0], "--version"], check=True, capture_output=True))

    def peer() -> int:
        verdicts = [key for key in _keys(client, f"listing/{_JOB}/") if key.endswith(".verdict")]
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as threads:
            return len(list(threads.map(
                lambda key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read(), verdicts)))

    seconds, peer_requests, found = _counted(store, peer)
    assert found == steps, f"{found} verdicts of {steps} steps"
    return {"steps": steps, "asked": asked, "asked_requests": asked_requests, "read": read,
            "read_requests": read_requests, "command": nothing, "peer": seconds, "peer_requests": peer_requests}


def small_requests(store: ServedStore, times: int = 20) -> dict[str, float]:
    """Returns the median seconds of a PUT of 400 bytes, and of a LIST of them, by Amazon's client on one connection:
    the unit in which a commit, which does such requests one after the other, can be counted."""
    client = store.client()
    client.list_objects_v2(Bucket=BUCKET)
    taken: dict[str, list[float]] = {"put": [], "list": []}
    for number in range(times):
        began = time.monotonic()
        client.put_object(Bucket=BUCKET, Key=f"small/{number}", Body=bytes(400))
        put = time.monotonic()
        client.list_objects_v2(Bucket=BUCKET, Prefix="small/")
        taken["put"].append(put - began)
        taken["list"].append(time.monotonic() - put)
    return {name: statistics.median(values) for name, values in taken.items()}


def commit(trace: dict[str, Any]) -> float:
    """Returns the seconds of a save's phase "commit" in the trace that `cairn timeline` prints."""
    (microseconds,) = [event["dur"] for event in trace["traceEvents"] if event["ph"] == "X"
                       and (event["name"], event.get("cat"), event["tid"]) == ("commit", "save", 0)]
    return microseconds / 1e6
