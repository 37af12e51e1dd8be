#!/usr/bin/env python3
"""Lets DLIO, the engine of MLPerf Storage, measure saves and loads by Cairn, by torch.distributed.checkpoint, and by
its own torch.save, in turns.

    benchmarks/dlio/run_dlio.py --python VENV/bin/python [--ranks 8] [--size 1GB] [--rounds 3]

DLIO makes the state, a transformer under ZeRO-3 with random numbers, and takes the times: from a barrier of all ranks
to the next one. Each round writes some steps, drops the page cache, restarts the agents, and loads in new processes.
README.md says how the Python is made.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "dist" / "python"), str(HERE.parent / "checkpoint")]
os.environ.setdefault("CAIRN_BIN_DIR", str(ROOT / "dist" / "bin"))

from ranks import drop_caches, plain_transfer, size_of

import cairn

MECHANISMS = {"cairn": "checkpointers.CairnCheckpointing", "dcp": "checkpointers.DcpCheckpointing", "torch.save": None}
FIGURES = ("first save", "later save", "cold load")
_TIMES = {"save": r"Finished saving checkpoint \d+ .* in ([0-9.]+) s",
          "load": r"Finished loading checkpoint \d+ .* in ([0-9.]+) s"}
HIDDEN, VOCABULARY = 1024, 32000
# Weights of 2 bytes; copies and two moments of 4.
_BYTES_OF_PARAMETER = 14


def layers_of(size: int) -> int:
    """Returns how many layers make a state of about this size."""
    of_layer = HIDDEN * (HIDDEN + 2 * HIDDEN) + HIDDEN * HIDDEN + 3 * HIDDEN * 4 * HIDDEN
    return max((size // _BYTES_OF_PARAMETER - 2 * HIDDEN * VOCABULARY) // of_layer, 1)


def run(options, mechanism: str, folder: pathlib.Path, environment: dict[str, str], writes: int,
        reads: int) -> tuple[list[float], int]:
    """Runs DLIO once. Returns the seconds of its saves, or of its loads, and the size of its state."""
    settings = {
        "framework": "pytorch", "workflow.generate_data": False, "workflow.train": False, "workflow.checkpoint": True,
        "model.num_layers": layers_of(options.size), "model.transformer.hidden_size": HIDDEN,
        "model.transformer.ffn_hidden_size": 4 * HIDDEN, "model.transformer.vocab_size": VOCABULARY,
        "checkpoint.checkpoint_folder": folder, "checkpoint.time_between_checkpoints": 0, "checkpoint.fsync": True,
        "checkpoint.rank_sync": True, "checkpoint.num_checkpoints_write": writes,
        "checkpoint.num_checkpoints_read": reads,
    }
    if MECHANISMS[mechanism] is not None:
        settings["checkpoint.checkpoint_mechanism_classname"] = MECHANISMS[mechanism]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**environment, "DLIO_RENDEZVOUS": f"tcp://127.0.0.1:{port}",
                   "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT / "dist" / "python")])}
    command = [str(options.python.parent / "mpirun"), "-n", str(options.ranks), str(options.python), "-m",
               "dlio_benchmark.main", "workload=llama_8b_zero3", f"hydra.run.dir={folder}-log",
               *(f"++workload.{key}={value}" for key, value in settings.items())]
    done = subprocess.run(command, env={**os.environ, **environment}, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=900, check=False)
    times = [float(each) for each in re.findall(_TIMES["save" if writes else "load"], done.stdout)]
    size = re.search(r"Total checkpoint size: ([0-9.]+) GB", done.stdout)
    if done.returncode != 0 or len(times) != writes + reads or size is None:
        raise SystemExit(f"{mechanism}: DLIO ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return times, int(float(size[1]) * 2**30)


def measure(options, mechanism: str, folder: pathlib.Path) -> tuple[dict[str, list[float]], int]:
    """Writes and loads in one new folder. Returns the seconds of each figure, and the size of the state."""
    def agents(work):
        if mechanism != "cairn":
            return work({})
        with cairn.local.Cluster(ranks=options.ranks, root=folder.with_name("root")) as cluster:
            return work({"CAIRN_DLIO_AGENTS": ",".join(agent.address for agent in cluster.agents)})

    saves, size = agents(lambda environment: run(options, mechanism, folder, environment, options.steps, 0))
    drop_caches(folder.parent)
    loads, _ = agents(lambda environment: run(options, mechanism, folder, environment, 0, 1))
    return {"first save": saves[:1], "later save": saves[1:], "cold load": loads}, size


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):7.3f} ({min(values):.3f} .. {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--python", type=pathlib.Path, required=True, help="a Python that has DLIO, mpirun beside it")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--size", type=size_of, default=10**9,
                        help="of the whole state, about; at least 1.1GB (the default)")
    parser.add_argument("--steps", type=int, default=3, help="that are saved in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=pathlib.Path,
                        help="where checkpoints are written (default: a temporary one)")
    options = parser.parse_args()
    measured: dict[str, dict[str, list[float]]] = {name: {figure: [] for figure in FIGURES} for name in MECHANISMS}
    plain: dict[bool, list[float]] = {False: [], True: []}
    for number in range(options.rounds):
        for name in MECHANISMS:
            with tempfile.TemporaryDirectory(prefix="cairn-dlio-", dir=options.directory) as directory:
                times, size = measure(options, name, pathlib.Path(directory, "steps"))
            for figure, values in times.items():
                measured[name][figure] += values
            print(f"round {number + 1}: {name} done", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="cairn-dlio-", dir=options.directory) as directory:
            for read in (False, True):
                begin = time.perf_counter()
                plain_transfer(pathlib.Path(directory, "plain"), size // 4096 * 4096, read)
                plain[read].append(time.perf_counter() - begin)
    print(f"{options.ranks} ranks, {size / 1e9:.2f} GB")
    print(f"{'':11} {'Cairn, s':>27}   {'peer, s':>27}   Cairn / peer")
    for figure in FIGURES:
        ours = measured["cairn"][figure]
        for peer in ("dcp", "torch.save"):
            theirs = measured[peer][figure]
            ratio = statistics.median(ours) / statistics.median(theirs)
            print(f"{figure:11} {shown(ours)}   {shown(theirs)}   {ratio:5.2f}  {peer}")
        theirs = plain[figure == "cold load"]
        ratio = statistics.median(ours) / statistics.median(theirs)
        print(f"{figure:11} {shown(ours)}   {shown(theirs)}   {ratio:5.2f}  "
              f"direct {'reads' if figure == 'cold load' else 'writes'} of as many bytes")


if __name__ == "__main__":
    main()
