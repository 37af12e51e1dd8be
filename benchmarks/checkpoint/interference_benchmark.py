"""What a save costs a training that goes on: steps lost, by Cairn, by DCP's async_save, and by a copy in memory.

    PYTHONPATH=dist/python python benchmarks/checkpoint/interference_benchmark.py --size 1GiB --ranks 2

Every rank is a process that trains: matrix products on its share of the cores (all cores are busy), an optimizer's
step over the state that is saved, and a barrier, as data parallel training has one. A window begins with a save and has
as many steps as training makes in --window seconds. Windows of these kinds follow one another, in turns:

  none   nothing is saved: what a step costs
  copy   each rank copies its state into memory that is there already: the least that an asynchronous save costs
  cairn  cairn.torch.save(); the window ends after the save is durable
  dcp    dcp.async_save() with FileSystemWriter(sync_files=True), and its threads' default; the same

"Steps lost" is the time by which a window is longer than one of "none", in steps, and so has the time for which the
save blocked. A save that is not durable at the end of its window makes the window longer; a window must be long enough
that this does not happen (the table says so). The state changes between saves.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import time

from ranks import Rank, run_ranks, size_of

KINDS = ("none", "copy", "cairn", "dcp")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="See the head of the file.")
    parser.add_argument("--size", type=size_of, default=size_of("1GiB"), help="of the whole state (default 1GiB)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--window", type=float, default=6.0, help="seconds of training for each save (default 6)")
    parser.add_argument("--directory", help="where checkpoints are written (default: a temporary directory)")
    parser.add_argument("--agent-flag", action="append", default=[], metavar="FLAG", help="for each agent")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


class Training:
    """A loop that keeps this rank's cores busy and changes the state."""

    def __init__(self, ranks: Rank, state: dict) -> None:
        import torch

        self._ranks = ranks
        self._tensors = [tensor.to_local() for tensor in state.values()]
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks.world))
        self._left, self._right = torch.rand(512, 512), torch.rand(512, 512)
        self._next = 0

    def step(self) -> None:
        import torch

        for _ in range(8):
            torch.mm(self._left, self._right)
        # An optimizer touches all of the state in each step; a tenth of it makes steps short enough to count.
        for _ in range(max(1, len(self._tensors) // 10)):
            self._tensors[self._next % len(self._tensors)].mul_(1.0001)
            self._next += 1
        self._ranks.barrier()


def worker(options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    import cairn
    import cairn.torch

    ranks = Rank(options.size, options.tensors)
    directory = pathlib.Path(options.directory)
    state = ranks.state(0, fill=True)
    training = Training(ranks, state)
    buffers = [torch.empty_like(tensor.to_local()).fill_(1.0) for tensor in state.values()]
    client = cairn.connect()
    cairn.torch.prepare(client, state)
    apart = dist.new_group(backend="gloo")  # DCP's threads use it while training uses the other one

    started = time.perf_counter()
    for _ in range(20):
        training.step()
    seconds = torch.tensor((time.perf_counter() - started) / 20, dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    steps = max(10, int(options.window / seconds.item()))

    windows: dict[str, list[float]] = {kind: [] for kind in KINDS}
    blocked: dict[str, list[float]] = {kind: [] for kind in KINDS}
    late = dict.fromkeys(KINDS, 0)
    for number in range(1, options.rounds + 2):  # the first round warms up and is not counted
        for kind in KINDS:
            place = directory / f"dcp-{number}"
            saving = future = None
            ranks.barrier()
            begun = time.perf_counter()
            if kind == "copy":
                for buffer, tensor in zip(buffers, state.values()):
                    buffer.copy_(tensor.to_local())
            elif kind == "cairn":
                saving = cairn.torch.save(client, number, state)
            elif kind == "dcp":
                future = dcp.async_save(state, storage_writer=dcp.FileSystemWriter(place, sync_files=True),
                                        process_group=apart)
            stopped = time.perf_counter() - begun
            for _ in range(steps):
                training.step()
            durable = torch.tensor(float((saving is None or saving.done()) and (future is None or future.done())))
            dist.all_reduce(durable, dist.ReduceOp.MIN)
            if saving is not None:
                saving.wait()
            if future is not None:
                future.result()
            ranks.barrier()
            took = time.perf_counter() - begun
            if number > 1:
                windows[kind].append(took)
                blocked[kind].append(stopped)
                late[kind] += durable.item() == 0
            if ranks.rank == 0:
                shutil.rmtree(place, ignore_errors=True)
            ranks.barrier()
        if ranks.rank == 0:
            print(f"round {number - 1} of {options.rounds}", file=sys.stderr, flush=True)
            shutil.rmtree(directory / "benchmark" / f"{number - 1:012}", ignore_errors=True)
    if ranks.rank == 0:
        print(json.dumps({"bytes": ranks.total, "steps": steps, "windows": windows, "blocked": blocked, "late": late}))
    client.close()
    dist.destroy_process_group()


def report(answer: dict, options: argparse.Namespace) -> None:
    plain = statistics.median(answer["windows"]["none"])
    step = plain / answer["steps"]
    print(f"{answer['bytes'] / 1e9:.3f} GB over {options.ranks} ranks, {os.cpu_count()} cores, windows of "
          f"{answer['steps']} steps of {1e3 * step:.1f} ms, {options.rounds} rounds")
    print(f"{'':8}{'window':>10}{'steps lost':>26}{'blocked':>10}{'not durable in time':>22}")
    for kind in KINDS:
        lost = [(took - base) / step
                for took, base in zip(answer["windows"][kind], answer["windows"]["none"], strict=True)]
        print(f"{kind:8}{statistics.median(answer['windows'][kind]):9.2f}s"
              f"{statistics.median(lost):12.1f} ({min(lost):.1f} .. {max(lost):.1f})".ljust(46)
              + f"{statistics.median(answer['blocked'][kind]):8.3f}s{answer['late'][kind]:18} of {options.rounds}")


def main() -> int:
    options = parse()
    if options.worker:
        worker(options)
        return 0
    answer = run_ranks(
        __file__, options, options.agent_flag,
        lambda directory: [f"--size={options.size}", f"--tensors={options.tensors}", f"--rounds={options.rounds}",
                           f"--window={options.window}", f"--ranks={options.ranks}",
                           f"--directory={directory / 'root'}"])
    if answer is None:
        return 1
    report(answer, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
