"""Runs the sweep of faults.

  usage: python -m sweep [--points N] [--seed N] [--workers N] [--lane NAME]... [--state FILE]
         python -m sweep --point NAME

It prints each violation with the command that runs its point alone. With --state it goes on where it stopped. Exit
status: 0 nothing is violated, 1 something is.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from sweep.lanes import LANES, lane_of

_BATCH = 100  # points of one process; the state is written behind each


class State:
    """What is done of each lane: how many points, how many of their faults were met, and the violations."""

    def __init__(self, path: pathlib.Path | None, seed: int) -> None:
        self._path, self.seed = path, seed
        self.done: dict[str, int] = {}
        self.met = 0
        self.seconds = 0.0
        self.violations: list[list[str]] = []
        if path is not None and path.exists():
            kept = json.loads(path.read_text())
            if kept["seed"] == seed:
                self.done, self.met, self.seconds = kept["done"], kept["met"], kept["seconds"]
                self.violations = kept["violations"]

    def write(self) -> None:
        if self._path is None:
            return
        text = json.dumps({"seed": self.seed, "done": self.done, "met": self.met, "seconds": self.seconds,
                           "violations": self.violations}, indent=1)
        new = self._path.with_suffix(".new")
        new.write_text(text + "\n")
        new.replace(self._path)


def _say(name: str, what: str) -> None:
    print(f"VIOLATION {name}: {what}\n  alone: tools/test --faults --point {name}", flush=True)


def _run_batch(lane: str, seed: int, first: int, count: int) -> None:
    """The work of a child: a line of JSON for each point, and for what was found later."""
    def report(name: str, what: str, met: bool) -> None:
        print(json.dumps([name, what, met]), flush=True)

    LANES[lane][0].run(seed, first, count, report)


def _text(file: IO[str]) -> str:
    with file:
        file.seek(0)
        return file.read()


class _Child:
    def __init__(self, lane: str, seed: int, first: int, count: int) -> None:
        self.lane, self.first, self.count = lane, first, count
        # Files, because a pipe that nobody reads would stop the child. _text() closes them.
        self._output: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sweep", "--batch", lane, str(first), str(count), "--seed", str(seed)],
            stdout=self._output, stderr=self._errors, process_group=0)

    def end(self, state: State) -> None:
        names = set()
        for line in _text(self._output).splitlines():
            name, what, met = json.loads(line)
            state.met += met and name not in names
            names.add(name)
            if what:
                state.violations.append([name, what])
                _say(name, what)
        if self.process.returncode != 0:
            what = f"the sweep itself failed: {_text(self._errors)[-3000:]}"
            state.violations.append([f"{self.lane}/{self.first}", what])
            print(f"VIOLATION {self.lane}, points {self.first} to {self.first + self.count}: {what}", flush=True)
        state.done[self.lane] = max(state.done.get(self.lane, 0), self.first + self.count)
        state.write()


def _sweep(lanes: list[str], wanted: int, seed: int, workers: int, state: State) -> None:
    shares = sum(LANES[lane][1] for lane in lanes)
    work = []
    for lane in lanes:
        limit = -(-wanted * LANES[lane][1] // shares)
        work += [(first / limit, lane, first, min(_BATCH, limit - first))
                 for first in range(state.done.get(lane, 0), limit, _BATCH)]
    work.sort()  # all lanes go on at the same pace
    begun, before, running = time.monotonic(), state.seconds, []
    try:
        while work or running:
            for child in [child for child in running if child.process.poll() is not None]:
                running.remove(child)
                state.seconds = before + time.monotonic() - begun
                child.end(state)
            # The batches of one lane come one after the other, so that the state can say how many are done.
            ready = [item for item in work if item[1] not in {child.lane for child in running}]
            if ready and len(running) < workers:
                work.remove(ready[0])
                running.append(_Child(ready[0][1], seed, *ready[0][2:]))
                print(f"{ready[0][1]}: from point {ready[0][2]}", file=sys.stderr, flush=True)
            else:
                time.sleep(0.1)
    finally:
        for child in running:
            os.killpg(child.process.pid, signal.SIGTERM)
            child.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/test --faults", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=max(1, os.cpu_count() or 1))
    parser.add_argument("--lane", action="append", choices=sorted(LANES))
    parser.add_argument("--state", type=pathlib.Path)
    parser.add_argument("--point")
    parser.add_argument("--batch", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch:
        lane, first, count = arguments.batch
        _run_batch(lane, arguments.seed, int(first), int(count))
        return 0
    state = State(arguments.state, arguments.seed)
    if arguments.point:
        found: list[Any] = []

        def report(name: str, what: str, met: bool) -> None:
            print(f"{name}: {'the call was made' if met else 'the call was not made'}")
            if what:
                found.append(name)
                _say(name, what)

        lane_of(arguments.point).replay(arguments.point, report)
        return 1 if found else 0
    _sweep(arguments.lane or list(LANES), arguments.points, arguments.seed, arguments.workers, state)
    points = sum(state.done.values())
    print(f"{points} points, {state.met} faults met, {len(state.violations)} violations, {state.seconds:.0f} s")
    return 1 if state.violations else 0


if __name__ == "__main__":
    sys.exit(main())
