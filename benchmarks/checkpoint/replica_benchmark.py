"""What comparing replicas costs the training: ranks that hold the same state, as in data parallelism.

Saves with and without samples take turns, in the same processes; a save's time is that of its slowest rank, from the
call to its return. The first saves of the layout, which compare everything, come from clusters of their own, in turns
with ones that compare nothing (--check-replicas=never).

    tools/build && python=$(tools/python_env run)
    PYTHONPATH=dist/python $python benchmarks/checkpoint/replica_benchmark.py --size 400MB --saves 60
"""

import argparse
import multiprocessing
import os
import pathlib
import shutil
import statistics
import tempfile
import time

import numpy as np

UNITS = {"MB": 10**6, "GB": 10**9}


def size_of(text: str) -> int:
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    raise argparse.ArgumentTypeError(f"{text!r} is no size such as 400MB")


class NoSamples:
    def sample(self, declared, items, blocked) -> list[int]:
        return []


class Timed:
    """A sampler with the time that it took in the last save."""

    def __init__(self, sampler):
        self.sampler = sampler
        self.took = 0.0
        self.sampled = 0

    def sample(self, declared, items, blocked) -> list[int]:
        started = time.perf_counter()
        sums = self.sampler.sample(declared, items, blocked)
        self.took = time.perf_counter() - started
        self.sampled = sum(declared.shards[item].nbytes for item in items[:len(sums)])
        return sums


def rank_of(address, options, saves, barrier, queue, root) -> None:
    import cairn

    state = {f"layer{i:03}.weight": np.random.default_rng(i).random(options.size // 8 // options.tensors)
             for i in range(options.tensors)}
    with cairn.connect(address) as client:
        client.prepare(state)
        timed = Timed(client._stager.sampler)
        for step in range(1, saves + 1):
            with_samples = step % 2 == 0
            client._stager.sampler = timed if with_samples else NoSamples()
            barrier.wait()
            started, cpu = time.perf_counter(), time.process_time()
            saving = client.save(step, state)
            blocked, cpu = time.perf_counter() - started, time.process_time() - cpu
            assert saving.wait().warnings == ()
            queue.put((step, with_samples, blocked, timed.took if with_samples else 0.0, timed.sampled, cpu))
            barrier.wait()
            if client.rank == 0 and step > 2:
                for path in pathlib.Path(root).glob(f"*/{step - 2:012}/0001"):
                    shutil.rmtree(path)


def run(options, check: str, saves: int) -> list[list[tuple]]:
    """For each save the lines of its ranks, the slowest last: (step, with samples, blocked, in samples, sampled bytes,
    CPU)."""
    import cairn

    directory = tempfile.mkdtemp(prefix="cairn-benchmark-", dir=options.directory)
    try:
        with cairn.local.Cluster(ranks=options.ranks, root=directory,
                                 coordinator_flags=[f"--check-replicas={check}"]) as cluster:
            context = multiprocessing.get_context("spawn")
            barrier, queue = context.Barrier(options.ranks), context.Queue()
            workers = [context.Process(target=rank_of, daemon=True,
                                       args=(agent.address, options, saves, barrier, queue, directory))
                       for agent in cluster.agents]
            for worker in workers:
                worker.start()
            lines: dict[int, list[tuple]] = {}
            for _ in range(options.ranks * saves):
                line = queue.get(timeout=600)
                lines.setdefault(line[0], []).append(line)
            for worker in workers:
                worker.join()
            return [sorted(lines[step], key=lambda line: line[2]) for step in sorted(lines)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def spread(values: list[float]) -> str:
    values = sorted(values)
    quarter = len(values) // 4
    return f"{statistics.median(values):.4f} s (middle half {values[quarter]:.4f} .. {values[-1 - quarter]:.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=size_of, default=size_of("400MB"), help="of the state, which every rank holds")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--saves", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5, help="pairs of first saves")
    parser.add_argument("--directory", help="where checkpoints are written (default: a temporary directory)")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the start")
    lines = run(options, "first", options.saves + 4)[4:]
    without, with_samples = ([ranks[-1][2] for ranks in lines if ranks[0][1] is sampled] for sampled in (False, True))
    ratios = [b / a for a, b in zip(without, with_samples)]
    took = [line for ranks in lines for line in ranks if line[1]]
    print(f"later saves, without samples: {spread(without)}")
    print(f"later saves, with samples:    {spread(with_samples)}")
    print(f"ratio of medians {statistics.median(with_samples) / statistics.median(without):.3f}, "
          f"median of the pairs' ratios {statistics.median(ratios):.3f}")
    print(
        "in samples, mean of the ranks: "
        f"{100 * sum(line[3] for line in took) / sum(line[2] for line in took):.2f} % of the blocked time; "
        f"{sum(line[4] for line in took) / len(took) / 1e6:.1f} MB a save and rank"
    )
    cpu = [statistics.median(sum(line[5] for line in ranks) for ranks in lines if ranks[0][1] is sampled)
           for sampled in (False, True)]
    print(f"CPU time of all ranks' saves: {cpu[0]:.4f} s without samples, {cpu[1]:.4f} s with ({cpu[1] / cpu[0]:.3f})")
    compared, not_compared = [], []
    for _ in range(options.rounds):
        compared.append(run(options, "first", 1)[0][-1][2])
        not_compared.append(run(options, "never", 1)[0][-1][2])
    print(f"first save, all compared:     {spread(compared)}")
    print(f"first save, nothing compared: {spread(not_compared)}")
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
