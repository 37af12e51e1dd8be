"""Exports, imports and loads of other libraries' files, beside Cairn's own saves and loads of the same bytes.

    PYTHONPATH=dist/python python benchmarks/checkpoint/foreign_benchmark.py --size 2GB

Every rank is a process with CPU tensors (fp32, DTensors split by rows). Each round does, one after the other:

  disk          one process writes a file of the state's size with O_DIRECT (8 MiB at once, two threads, fsync), and
                reads it: what this disk gives to anyone. "disk copy" does both at once, as exports and imports must
  save          Cairn's own, until it is durable
  load          Cairn's own, into the same layout
  export        `cairn export`, for Hugging Face and for torch.distributed.checkpoint (DCP), until it is durable. It
                reads and writes all bytes, so it is compared with the load and with the save
  import        `cairn import` of these two directories into another root; likewise
  source        cairn.torch.load(source=...) of the two directories, into the same layout
  reshard       the DCP directory into tensors split by columns: by Cairn, and by dcp.load of torch

What reads files is measured with the page cache dropped ("cold"; as root, otherwise the files' own pages are dropped by
fadvise), and again when all files were read just before ("warm"). A time is that of the slowest rank. The table gives
the median and the range over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

from ranks import Rank, drop_caches, plain_copy, plain_transfer, run_ranks, size_of


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="See the head of the file.")
    parser.add_argument("--size", type=size_of, default=size_of("2GB"), help="of the whole state (default 2GB)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", help="where files are written (default: a temporary directory)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def warm(*directories: pathlib.Path) -> None:
    """Brings all files into the page cache."""
    buffer = bytearray(8 << 20)
    for directory in directories:
        for path in directory.rglob("*"):
            if path.is_file():
                with open(path, "rb", buffering=0) as file:
                    while file.readinto(buffer):
                        pass


def worker(options: argparse.Namespace) -> None:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    import cairn
    import cairn.torch

    ranks = Rank(options.size, options.tensors)
    rank, timed = ranks.rank, ranks.timed
    directory = pathlib.Path(options.directory)
    root, other_root, hf, torch_dcp = (directory / name for name in ("root", "other-root", "hf", "dcp"))
    source, target, columns = ranks.state(0, fill=True), ranks.state(0, fill=False), ranks.state(1, fill=False)

    def check(tensors: dict) -> None:
        """Compares what was loaded, and clears it."""
        ranks.check(source, tensors)
        for tensor in tensors.values():
            tensor.to_local().fill_(-1.0)

    def on_rank_0(work) -> None:
        if rank == 0:
            work()
        dist.barrier()

    def run(*arguments: str) -> None:
        """Runs the command on rank 0; the others wait for it."""
        if rank == 0:
            subprocess.run([str(cairn.local.binary("cairn")), *arguments], check=True, stdout=subprocess.DEVNULL)
        dist.barrier()

    with cairn.connect() as client:
        cairn.torch.prepare(client, source)
        for step in range(1, options.rounds + 2):  # the first round warms up and is not counted
            name = f"benchmark@{step}"
            plain, size = directory / "plain", ranks.total // 4096 * 4096
            timed("disk write", lambda: on_rank_0(lambda: plain_transfer(plain, size, read=False)))
            timed("disk read", lambda: on_rank_0(lambda: plain_transfer(plain, size, read=True)))
            on_rank_0(lambda: drop_caches(directory))
            copied = directory / "copied"
            timed("disk copy", lambda: on_rank_0(lambda: plain_copy(plain, copied, size)))
            on_rank_0(plain.unlink)
            on_rank_0(copied.unlink)
            timed("save", lambda: cairn.torch.save(client, step, source).wait())

            for kind in ("cold", "warm"):
                def prepare(*directories: pathlib.Path) -> None:
                    on_rank_0(lambda: drop_caches(directory) if kind == "cold" else warm(*directories))

                prepare(root)
                timed(f"load, {kind}", lambda: cairn.torch.load(client, target, step))
                check(target)
                for form, output in (("huggingface", hf), ("dcp", torch_dcp)):
                    on_rank_0(lambda: shutil.rmtree(output, ignore_errors=True))
                    prepare(root)
                    timed(f"export {form}, {kind}",
                          lambda: run("export", name, "--root", str(root), "--to", str(output), "--as", form))
                for form, output in (("huggingface", hf), ("dcp", torch_dcp)):
                    on_rank_0(lambda: shutil.rmtree(other_root, ignore_errors=True))
                    on_rank_0(other_root.mkdir)
                    prepare(output)
                    timed(f"import {form}, {kind}",
                          lambda: run("import", str(output), "--to", name, "--root", str(other_root)))
                on_rank_0(lambda: shutil.rmtree(other_root))
                for form, output in (("huggingface", hf), ("dcp", torch_dcp)):
                    prepare(output)
                    timed(f"source {form}, {kind}", lambda: cairn.torch.load(client, target, source=output))
                    check(target)
                prepare(torch_dcp)
                timed(f"reshard by cairn, {kind}", lambda: cairn.torch.load(client, columns, source=torch_dcp))
                check(columns)
                prepare(torch_dcp)
                timed(f"reshard by torch, {kind}", lambda: dcp.load(columns, checkpoint_id=torch_dcp))
                check(columns)
            if step > 1:
                on_rank_0(lambda: client.delete(step - 1))
            if rank == 0:
                print(f"round {step - 1} of {options.rounds}", file=sys.stderr, flush=True)
    if rank == 0:
        print(json.dumps({"bytes": ranks.total, "times": {name: values[1:] for name, values in ranks.times.items()}}))
    dist.destroy_process_group()


def report(answer: dict, options: argparse.Namespace) -> None:
    times = answer["times"]

    def text(name: str) -> str:
        values = times[name]
        rate = answer["bytes"] / 1e9 / statistics.median(values)
        return f"{statistics.median(values):6.3f} s ({min(values):.3f} .. {max(values):.3f})  {rate:5.2f} GB/s"

    def rate_of(ours: str, peer: str) -> float:
        """As a fraction of the peer's rate."""
        return statistics.median(times[peer]) / statistics.median(times[ours])

    print(f"{answer['bytes'] / 1e9:.3f} GB in {options.tensors} fp32 tensors over {options.ranks} ranks, "
          f"{options.rounds} rounds, {os.cpu_count()} cores")
    for name in ("disk write", "disk read", "disk copy", "save"):
        print(f"{name:28}{text(name)}")
    for kind in ("cold", "warm"):
        print(f"{f'load, {kind}':28}{text(f'load, {kind}')}")
        for what in ("export", "import", "source"):
            for form in ("huggingface", "dcp"):
                name = f"{what} {form}, {kind}"
                peers = [f"load, {kind}"] if what == "source" else [f"load, {kind}", "save", "disk copy"]
                print(f"{name:28}{text(name)}   rate / rate of: "
                      + ", ".join(f"{peer.removesuffix(f', {kind}')} {rate_of(name, peer):.2f}" for peer in peers))
        ours, peer = f"reshard by cairn, {kind}", f"reshard by torch, {kind}"
        print(f"{ours:28}{text(ours)}\n{peer:28}{text(peer)}   Cairn is {rate_of(ours, peer):.2f} x as fast")


def main() -> int:
    options = parse()
    if options.worker:
        worker(options)
        return 0
    # The agents' loads read files, as exports do.
    answer = run_ranks(__file__, options, ["--slab-loads=never"],
                       lambda directory: [f"--size={options.size}", f"--tensors={options.tensors}",
                                          f"--rounds={options.rounds}", f"--directory={directory}"])
    if answer is None:
        return 1
    report(answer, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
