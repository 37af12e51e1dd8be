"""What fingerprints and alarms cost a save: clusters with --alarms=warn and --alarms=off save in turns.

Each rank changes its state between saves. A save's blocked time is that of its slowest rank, from the call to its
return; its durable time is until wait() returns. The processor's time is that of all agents of a cluster.

    tools/build && python=$(tools/python_env run)
    PYTHONPATH=dist/python $python benchmarks/checkpoint/alarm_benchmark.py --size 2GB --ranks 4 --saves 9
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
DTYPES = {"float32": np.float32, "bfloat16": np.uint16}


def size_of(text: str) -> int:
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    raise argparse.ArgumentTypeError(f"{text!r} is no size such as 400MB")


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rank_of(rank: int, address: str, options, steps, answers) -> None:
    """Saves whenever it is told a step, and answers how long that took."""
    import cairn

    dtype = DTYPES[options.dtype]
    rows = options.size // options.ranks // options.tensors // (1024 * dtype().itemsize)
    arrays = [np.random.default_rng(rank * 1000 + i).standard_normal((rows, 1024), np.float32)
              for i in range(options.tensors)]
    if options.dtype == "bfloat16":
        arrays = [(array.view(np.uint32) >> 16).astype(np.uint16) for array in arrays]
    whole = (rows * options.ranks, 1024)
    state = {f"layers.{i}.weight": cairn.Shard(array, whole, (rows * rank, 0), dtype=options.dtype)
             for i, array in enumerate(arrays)}
    with cairn.connect(address) as client:
        while (step := steps.get()) is not None:
            for array in arrays:
                array[::64] = array[1::64][:len(array[::64])]
            begin = time.perf_counter()
            saving = client.save(step, state)
            blocked = time.perf_counter() - begin
            saving.wait()
            answers.put((blocked, time.perf_counter() - begin))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=size_of, default=size_of("2GB"), help="of the state of all ranks")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--tensors", type=int, default=24)
    parser.add_argument("--saves", type=int, default=9)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    options = parser.parse_args()

    import cairn

    spawn = multiprocessing.get_context("spawn")
    root = pathlib.Path(tempfile.mkdtemp(dir=options.directory))
    times: dict[str, list[tuple[float, float]]] = {"off": [], "warn": []}
    try:
        clusters, queues, answers, processes = {}, {}, {}, []
        for level in times:
            clusters[level] = cairn.local.Cluster(options.ranks, root / level,
                                                  coordinator_flags=[f"--alarms={level}"]).__enter__()
            answers[level] = spawn.Queue()
            queues[level] = [spawn.Queue() for _ in range(options.ranks)]
            for rank in range(options.ranks):
                process = spawn.Process(target=rank_of, args=(rank, clusters[level].agents[rank].address, options,
                                                              queues[level][rank], answers[level]))
                process.start()
                processes.append(process)
        used = dict.fromkeys(times, 0.0)
        for step in range(1, options.saves + 3):
            for level in times if step % 2 else reversed(times):
                before = sum(cpu_seconds(agent.pid) for agent in clusters[level].agents)
                for queue in queues[level]:
                    queue.put(step)
                told = [answers[level].get() for _ in range(options.ranks)]
                if step > 2:  # the first ones make buffers
                    used[level] += sum(cpu_seconds(agent.pid) for agent in clusters[level].agents) - before
                    times[level].append((max(each[0] for each in told), max(each[1] for each in told)))
                shutil.rmtree(root / level / "demo" / f"{step - 1:012}", ignore_errors=True)
        for queue in [queue for level in times for queue in queues[level]]:
            queue.put(None)
        for process in processes:
            process.join()
    finally:
        for cluster in clusters.values():
            cluster.__exit__(None, None, None)
        shutil.rmtree(root, ignore_errors=True)
    gigabytes = options.saves * options.size / 1e9
    print(f"agents: {used['off'] / gigabytes:.3f} s of a core per GB without alarms, "
          f"{used['warn'] / gigabytes:.3f} s with")
    for number, what in enumerate(("blocked", "durable")):
        medians = {level: statistics.median(each[number] for each in found) for level, found in times.items()}
        ratios = sorted(warn[number] / off[number] for warn, off in zip(times["warn"], times["off"], strict=True))
        print(f"{what}: {medians['off']:.3f} s without alarms, {medians['warn']:.3f} s with; "
              f"ratio {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")


if __name__ == "__main__":
    main()
