"""What a small job and its operator wait for, and what an idle agent takes.

    tools/build && bazel build //benchmarks/control_plane:load_generator
    PYTHONPATH=dist/python CAIRN_BIN_DIR=dist/bin python benchmarks/operations/operations_benchmark.py

Each line is a figure with its bound or its peer of the same run:

* `cairn run`: the time that it adds to a program that does nothing, with one rank.
* The first save of a job: from the moment in which all agents are ready until the outcome, with a state of 8 MB in two
  ranks; a save of the same state by the same agents is its peer.
* An idle agent: resident memory without the slab's pages, and CPU time of a whole minute, with a lease of 10 s.
* The page of `cairn serve` beside a job of --ranks thin agents that has saved: the job's answer, the list of timelines
  and one timeline, each asked for --rounds times.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np

import cairn
import cairn.local

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# The coordinator of the thin agents starts, and their job saves, within this time.
PATIENCE = 120.0
PARTS = [np.random.default_rng(rank).random((512, 1024)) for rank in range(2)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], epilog="See the head of the file.")
    parser.add_argument("--rounds", type=int, default=9, help="default %(default)s")
    parser.add_argument("--ranks", type=int, default=1000, help="of the job that the page shows (default %(default)s)")
    parser.add_argument("--idle-seconds", type=float, default=60.0, help="default %(default)s")
    parser.add_argument("--load-generator", type=pathlib.Path,
                        default=REPOSITORY / "bazel-bin/benchmarks/control_plane/load_generator")
    return parser.parse_args()


def seconds_of(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def told(name: str, times: list[float], unit: str = "ms", scale: float = 1e3) -> None:
    low, middle, high = (scale * value for value in (min(times), statistics.median(times), max(times)))
    print(f"{name:58} {middle:9.2f} {unit}   ({low:.2f} .. {high:.2f}, {len(times)} times)", flush=True)


def run_adds(rounds: int) -> None:
    program, cairn_program = ["true"], str(cairn.local.binary("cairn"))
    alone, beside = [], []
    with tempfile.TemporaryDirectory() as directory:
        for number in range(rounds):
            command = [cairn_program, "run", f"--root={directory}/{number}", "--ranks=1", f"--job=job{number}", "--"]
            alone.append(seconds_of(lambda: subprocess.run(program, check=True)))
            beside.append(seconds_of(lambda command=command: subprocess.run(
                [*command, *program], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)))
    told("`true`", alone)
    told("`cairn run --ranks 1 -- true`", beside)


def save(clients: list[cairn.Client], step: int) -> None:
    def work(client: cairn.Client) -> None:
        client.save(step, {"w": cairn.Shard(PARTS[client.rank], (1024, 1024), (512 * client.rank, 0))}).wait(60)

    with concurrent.futures.ThreadPoolExecutor(len(clients)) as threads:
        list(threads.map(work, clients))  # raises what a rank's save has raised


def first_saves(rounds: int) -> None:
    first, later = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as root, cairn.local.Cluster(ranks=2, root=root) as cluster:
            begun = time.monotonic()
            clients = [cluster.connect(rank) for rank in range(2)]
            save(clients, 1)
            first.append(time.monotonic() - begun)
            later.append(seconds_of(lambda clients=clients: save(clients, 2)))
            for client in clients:
                client.close()
    told("first save after all agents are ready, with connect()", first)
    told("the next save", later)


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_memory(pid: int) -> float:
    """Returns MiB of memory and of the program's file; the slab is shared memory, which is not counted."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    kib = {name: int(re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)[1]) for name in ("RssAnon", "RssFile")}
    return sum(kib.values()) / 1024


def idle_agent(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as root, cairn.local.Cluster(
            ranks=2, root=root, coordinator_flags=["--lease-ttl=10s"]) as cluster:
        clients = [cluster.connect(rank) for rank in range(2)]
        save(clients, 1)
        pids = [agent.pid for agent in cluster.agents]
        before = [cpu_seconds(pid) for pid in pids]
        time.sleep(seconds)
        told("resident memory of an agent after a save", [own_memory(pid) for pid in pids], "MiB", 1)
        told("CPU of an idle agent, of a core",
             [(cpu_seconds(pid) - was) / seconds for pid, was in zip(pids, before, strict=True)], "%", 100)
        for client in clients:
            client.close()


@contextlib.contextmanager
def thin_job(generator: pathlib.Path, ranks: int) -> Iterator[str]:
    """A coordinator with a job of thin agents that has saved once, and stays idle. Yields its address."""
    with tempfile.TemporaryDirectory() as directory:
        address, program = pathlib.Path(directory, "address"), pathlib.Path(directory, "coordinator")
        real = cairn.local.binary("cairn-coordinator")
        program.write_text(f'#!/bin/sh\nexec "{real}" "$@" --address-file "{address}"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        job = subprocess.Popen([generator, "idle", f"--ranks={ranks}", "--window=3600", f"--directory={directory}",
                                f"--coordinator={program}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
        try:
            deadline = time.monotonic() + PATIENCE
            while not address.exists():
                if job.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the load generator has not started its coordinator")
                time.sleep(0.05)
            yield address.read_text().strip()
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def page(generator: pathlib.Path, ranks: int, rounds: int) -> None:
    with thin_job(generator, ranks) as coordinator:
        serve = subprocess.Popen([cairn.local.binary("cairn"), "serve", f"--coordinator={coordinator}",
                                  "--listen=127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        try:
            assert serve.stdout is not None
            port = int(re.search(r":(\d+)/", serve.stdout.readline())[1])
            token_file = re.search(r"it is in (.*)\.$", serve.stdout.readline().strip())[1]
            token = pathlib.Path(token_file).read_text().split()[0]

            def ask(path: str) -> dict:
                with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
                    answer = connection.getresponse()
                    body = answer.read()
                assert answer.status == 200, body[:300]
                return json.loads(body)

            deadline = time.monotonic() + PATIENCE
            while not (jobs := [job for job in ask("/api/jobs")["jobs"] if job.get("last_committed_step")]):
                if time.monotonic() > deadline:
                    raise SystemExit("the thin agents have not saved")
                time.sleep(0.5)
            name = jobs[0]["job"]
            kept = ask(f"/api/timelines/{name}")["timelines"]
            for title, path in (("the job", f"/api/job/{name}"), ("the list of timelines", f"/api/timelines/{name}"),
                                ("one timeline", f"/api/timeline/{kept[0]['id']}/{name}"),
                                ("the list of checkpoints", f"/api/checkpoints/{name}")):
                told(f"page, {ranks} ranks: {title}", [seconds_of(lambda path=path: ask(path)) for _ in range(rounds)])
        finally:
            serve.send_signal(signal.SIGINT)
            serve.wait()


def main() -> int:
    options = parse()
    run_adds(options.rounds)
    first_saves(options.rounds)
    page(options.load_generator, options.ranks, options.rounds)
    idle_agent(options.idle_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
