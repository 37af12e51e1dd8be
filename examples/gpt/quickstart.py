"""The main story, end to end: train on 4 ranks, save over RPC, lose the whole job, resume on 2 under another layout.

Losses are compared with a run that is never killed: equal to the last bit where the arithmetic is the same (before the
kill, and resumed under the same layout), within a bound where another layout adds in another order.

tools/quickstart runs it, and builds what it needs first. It prints what it does and what came of it; the last line
says what was proven. Exit status 0 only if all of it held.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from own_store import is_wanted, own_store

import cairn

HERE = pathlib.Path(__file__).resolve().parent
JOB = "gpt"
# Two layouts add the same products in another order, which changes the loss by some 1e-6 over the steps compared here.
LOSS_BOUND = 1e-4
TIMEOUT = 300.0


class Failure(Exception):
    pass


class Display:
    """Headings and a live line on a terminal; plain lines otherwise."""

    def __init__(self):
        self._live = sys.stdout.isatty()
        self._started = time.monotonic()
        self._pending = False

    def head(self, text: str) -> None:
        self._end_line()
        print(f"\n[{time.monotonic() - self._started:5.1f} s] {text}", flush=True)

    def line(self, text: str) -> None:
        self._end_line()
        print(f"          {text}", flush=True)

    def progress(self, text: str) -> None:
        if self._live:
            print(f"\r          {text}\033[K", end="", flush=True)
            self._pending = True

    def _end_line(self) -> None:
        if self._pending:
            print()
            self._pending = False


class Run:
    """The processes of one training run and what rank 0 logs."""

    def __init__(self, cluster, name: str, ranks: int, layout: str, directory: pathlib.Path, steps: int, agents: bool,
                 options=()):
        self.name, self.steps = name, steps
        self.log = directory / f"{name}.log"
        self.log.touch()
        self._outputs = [directory / f"{name}-rank{rank}.out" for rank in range(ranks)]
        port = free_port()
        self.processes = []
        for rank in range(ranks):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                           "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
            environment.pop("CAIRN_AGENT", None)
            if agents:
                environment["CAIRN_AGENT"] = cluster.agents[rank].address
            with open(self._outputs[rank], "wb") as output:
                self.processes.append(cluster.spawn(
                    [sys.executable, str(HERE / "train.py"), f"--steps={steps}", f"--layout={layout}",
                     f"--log={self.log}", "--digests", *options],
                    env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT))

    def losses(self) -> dict[int, float]:
        return {int(step): float(loss) for step, loss in
                re.findall(r"^step (\d+) loss (\S+)$", self.log.read_text(), re.MULTILINE)}

    def digests(self) -> dict[int, str]:
        return {int(step): digest for step, digest in
                re.findall(r"^state (\d+) ([0-9a-f]{64})$", self.log.read_text(), re.MULTILINE)}

    def check(self) -> None:
        for rank, process in enumerate(self.processes):
            if process.poll() not in (None, 0):
                tail = self._outputs[rank].read_text(errors="replace")[-1500:]
                raise Failure(f"{self.name}: rank {rank} ended with status {process.returncode}:\n{tail}")

    def wait_for(self, what, display: Display) -> None:
        """Waits until what() is true."""
        deadline = time.monotonic() + TIMEOUT
        while not what():
            self.check()
            if time.monotonic() > deadline:
                raise Failure(f"{self.name}: no end after {TIMEOUT:g} s; its output is in {self.log.parent}")
            losses = self.losses()
            last = max(losses, default=0)
            display.progress(f"step {last} of {self.steps}" + (f", loss {losses[last]:.4f}" if last else " (starting)"))
            time.sleep(0.05)

    def finish(self, display: Display) -> None:
        self.wait_for(lambda: all(process.poll() is not None for process in self.processes), display)
        self.check()

    def kill(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def cairn_command(*arguments: str, expect: int = 0) -> str:
    """Runs the command and returns its standard output."""
    done = subprocess.run(
        [str(cairn.local.binary("cairn")), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != expect:
        raise Failure(f"`cairn {' '.join(arguments)}` ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def show(display: Display, *arguments: str) -> None:
    display.line(f"$ cairn {' '.join(arguments)}")
    for line in cairn_command(*arguments).splitlines()[:12]:
        display.line(f"  {line}")


def story(directory: pathlib.Path, root: str, steps: int, display: Display) -> str:
    with cairn.local.Cluster(ranks=4, root=root, job=JOB) as cluster:
        display.head(f"A run that is never killed: {steps} steps on 4 ranks (FSDP2)")
        reference = Run(cluster, "reference", 4, "fsdp", directory, steps, agents=False)
        reference.finish(display)
        expected = reference.losses()
        display.line(f"loss {expected[1]:.4f} at step 1, {expected[steps]:.4f} at step {steps}")

        display.head("The same run with a coordinator and 4 agents; a save is asked for over RPC while it trains")
        first = Run(cluster, "first", 4, "fsdp", directory, 10 * steps, agents=True)
        first.wait_for(lambda: max(first.losses(), default=0) >= steps // 4, display)
        display.line(f"$ cairn save {JOB}")
        saved = json.loads(cairn_command("save", JOB, f"--coordinator={cluster.coordinator.address}", "--timeout=120s",
                                         "--format=json"))
        step = saved["step"]
        if saved["state"] != "COMMITTED":
            raise Failure(f"the save ended {saved['state']}: {saved['error']}")
        if step >= steps:
            raise Failure(f"the ranks agreed on step {step}, too late to compare: this machine is very busy")
        display.line(f"step {step} is committed; training went on meanwhile")
        first.wait_for(lambda: max(first.losses()) > step and step in first.digests(), display)

        display.head("SIGKILL of the whole job: 4 trainers, 4 agents, the coordinator")
        first.kill()
        for service in (*cluster.agents, cluster.coordinator):
            service.kill()
        lost = max(first.losses())
        display.line(f"gone after step {lost}; what is left is the committed step {step}")

    display.head("A new job on 2 ranks, with tensor parallelism instead of FSDP2, resumes")
    with cairn.local.Cluster(ranks=2, root=root, job=JOB) as cluster:
        second = Run(cluster, "second", 2, "tensor", directory, steps, agents=True, options=["--resume"])
        second.finish(display)
        for line in second.log.read_text().splitlines():
            if line.startswith("resumed"):
                display.line(line)
        show(display, "list", JOB, f"--coordinator={cluster.coordinator.address}")
        show(display, "show", f"{JOB}@{step}", f"--coordinator={cluster.coordinator.address}")
    show(display, "verify", f"{JOB}@{step}", f"--root={root}")

    display.head("Another new job, on 4 ranks with FSDP2 as before, resumes from the same step")
    short = min(step + 8, steps)
    with cairn.local.Cluster(ranks=4, root=root, job=JOB) as cluster:
        third = Run(cluster, "third", 4, "fsdp", directory, short, agents=True, options=["--resume"])
        third.finish(display)

    display.head("Comparing")
    before = {number: loss for number, loss in first.losses().items() if number in expected}
    different = [number for number in sorted(before) if before[number] != expected[number]]
    if different:
        raise Failure(f"before the kill the loss of step {different[0]} is {before[different[0]]!r}, the never-killed "
                      f"run has {expected[different[0]]!r}")
    display.line(f"steps 1..{max(before)} before the kill: every loss equal to the last bit")
    if second.digests().get(step) != first.digests()[step]:
        raise Failure(f"the state loaded at step {step} is not the state saved")
    display.line(f"state of step {step}, saved by 4 and loaded by 2: equal bit for bit (SHA-256 "
                 f"{first.digests()[step][:16]}...)")
    same = third.losses()
    if sorted(same) != list(range(step + 1, short + 1)):
        raise Failure(f"the run resumed on 4 ranks did steps {sorted(same)}, not {step + 1}..{short}")
    different = [number for number in sorted(same) if same[number] != expected[number]]
    if different:
        raise Failure(f"resumed under the same layout the loss of step {different[0]} is {same[different[0]]!r}, the "
                      f"never-killed run has {expected[different[0]]!r}")
    display.line(f"steps {step + 1}..{short} resumed under the same layout: every loss equal to the last bit")
    after = second.losses()
    if sorted(after) != list(range(step + 1, steps + 1)):
        raise Failure(f"the resumed run did steps {sorted(after)}, not {step + 1}..{steps}")
    worst = max(abs(after[number] - expected[number]) for number in after)
    if not worst <= LOSS_BOUND:
        raise Failure(f"after the resume the loss differs by {worst:.2e}, more than {LOSS_BOUND:g}")
    display.line(
        f"steps {step + 1}..{steps} resumed under the other layout: losses within {worst:.1e} of the never-killed run "
        f"(bound {LOSS_BOUND:g}; the layouts add in another order)"
    )
    return (
        f"Proven: step {step} of a 4-rank FSDP2 job, saved over RPC, survived SIGKILL of everything and was loaded bit "
        f"for bit by 2 ranks with tensor parallelism; against a run never killed, training went on with equal losses "
        f"under the same layout and within {worst:.1e} under the other."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=48, help="length of the run that is compared with")
    parser.add_argument("--root", help="where the checkpoints go: a directory, s3://BUCKET/PREFIX or "
                        "gs://BUCKET/PREFIX; if nothing in the environment names a store for s3://, one is started for "
                        "this run (default: a new directory)")
    parser.add_argument("--keep", action="store_true", help="keep the logs and checkpoints, and say where they are")
    arguments = parser.parse_args()
    display = Display()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is started and written here ends and goes then, too
    directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-quickstart-"))
    keep = arguments.keep
    root = arguments.root or str(directory / "checkpoints")
    try:
        with contextlib.ExitStack() as stack:
            if is_wanted(root):
                display.line(f"an object store of its own serves {root}: {stack.enter_context(own_store(root))}")
            proven = story(directory, root, arguments.steps, display)
    except (Failure, cairn.Error) as error:
        keep = True
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    finally:
        if keep:
            print(f"Logs and checkpoints are in {directory}.", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"\n{proven}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
