"""Saves and loads of one state by Cairn and by torch.distributed.checkpoint, side by side in the same run.

    PYTHONPATH=dist/python python benchmarks/checkpoint/checkpoint_benchmark.py --size 2GiB --ranks 4

Every rank is a process with CPU tensors (fp32, DTensors split by rows). Each round does, one after the other and with
all ranks starting together:

  memcpy     each rank copies its state into memory that is there already: the floor of "blocked"
  disk       each rank writes a file of its state's size with O_DIRECT (8 MiB at once, two threads, fsync), and reads
             it: what this disk gives to anyone
  save       Cairn: blocked = until save() returns; durable = until the commit is known (all bytes and names fsynced)
             DCP: dcp.save with FileSystemWriter(sync_files=True): blocked all the time; it fsyncs its files, not their
             directory
  cold load  after the page cache was dropped (as root; otherwise the files' pages are, by fadvise)
  warm load  again
  reshard    cold, into tensors split by columns instead of rows

Agents read files in these (--slab-loads=never). With --slab, loads take from the agents' slabs what was just saved, and
are compared with memcpy instead of DCP:

  slab load     into the same layout
  slab reshard  into tensors split by columns instead of rows

A time is that of the slowest rank. The table gives the median and the range over the rounds, and Cairn as a ratio of
DCP. "read / unique" is bytes read from storage over bytes needed: as planned, and by the agents' own counters in /proc.
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

from ranks import Rank, drop_caches, plain_transfer, run_ranks, size_of


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="See the head of the file.")
    parser.add_argument("--size", type=size_of, default=size_of("2GiB"), help="of the whole state (default 2GiB)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--tensors", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", help="where checkpoints are written (default: a temporary directory)")
    parser.add_argument(
        "--agent-flag",
        action="append",
        default=[],
        metavar="FLAG",
        help="for each agent, e.g. --agent-flag=--io=buffered",
    )
    parser.add_argument("--slab", action="store_true", help="measure loads from slabs, without DCP")
    parser.add_argument("--only", choices=["cairn", "dcp"], help="leave the other out")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# One rank.

def io_of(pid: int) -> dict[str, int]:
    return {key: int(value) for key, value in
            (line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())}


def worker(options: argparse.Namespace) -> None:
    import numpy as np
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    import cairn
    import cairn.torch

    ranks = Rank(options.size, options.tensors)
    rank, timed = ranks.rank, ranks.timed
    directory = pathlib.Path(options.directory)
    agents = [int(pid) for pid in os.environ.get("AGENT_PIDS", "").split()]
    source = ranks.state(0, fill=True)

    def cold() -> None:
        dist.barrier()
        if rank == 0:
            drop_caches(directory)
        dist.barrier()

    buffers = [torch.empty_like(tensor.to_local()).fill_(1.0) for tensor in source.values()]

    def memcpy() -> None:
        for buffer, tensor in zip(buffers, source.values()):
            np.copyto(buffer.numpy(), tensor.to_local().numpy())

    def disk(read: bool) -> None:
        plain_transfer(directory / f"plain-{rank}", ranks.total // ranks.world // 4096 * 4096, read)

    client = None
    if options.only != "dcp":
        client = cairn.connect()
        cairn.torch.prepare(client, source)

    ratios: dict[str, list[float]] = {}

    def cairn_load(name: str, target: dict) -> None:
        before = [io_of(pid) for pid in agents] if rank == 0 else []
        dist.barrier()
        report = timed(name, lambda: cairn.torch.load(client, target))
        dist.barrier()
        if rank == 0:
            after = [io_of(pid) for pid in agents]
            ratios.setdefault(f"{name}: planned", []).append(report.total_bytes_read / report.unique_bytes)
            ratios.setdefault(f"{name}: storage, as reported ({report.path})", []).append(
                report.storage_bytes / report.unique_bytes)
            for key in ("rchar", "read_bytes"):
                ratios.setdefault(f"{name}: agents' {key} in /proc", []).append(
                    sum(a[key] - b[key] for a, b in zip(after, before)) / report.unique_bytes)
        ranks.check(source, target)

    target = ranks.state(0, fill=False)
    other = ranks.state(1, fill=False)
    for step in range(1, options.rounds + 2):  # the first round warms up and is not counted
        timed("plain memcpy", memcpy)
        timed("plain write", lambda: disk(read=False))
        if client:
            started = time.perf_counter()
            saving = timed("cairn blocked", lambda: cairn.torch.save(client, step, source))
            checkpoint = saving.wait()
            ranks.note("cairn durable", time.perf_counter() - started)
        place = directory / f"dcp-{step}"
        if options.only != "cairn":
            timed("dcp durable", lambda: dcp.save(source, storage_writer=dcp.FileSystemWriter(place, sync_files=True)))
        timed("plain read", lambda: disk(read=True))
        (directory / f"plain-{rank}").unlink()
        kinds = [("cold load", target), ("warm load", target), ("reshard", other)]
        for kind, into in [("slab load", target), ("slab reshard", other)] if options.slab else kinds:
            if options.slab:
                timed("plain memcpy", memcpy)
            elif client:
                if kind == "warm load":
                    cairn.torch.load(client, into)
                else:
                    cold()
            if client:
                cairn_load(f"cairn {kind}", into)
            if options.only != "cairn":
                if kind != "warm load":
                    cold()
                else:
                    dcp.load(into, storage_reader=dcp.FileSystemReader(place))
                timed(f"dcp {kind}", lambda: dcp.load(into, storage_reader=dcp.FileSystemReader(place)))
                ranks.check(source, into)
        dist.barrier()
        if rank == 0:
            print(f"round {step - 1} of {options.rounds}", file=sys.stderr, flush=True)
            shutil.rmtree(place, ignore_errors=True)
            if client and step > 1:
                shutil.rmtree(
                    (directory / checkpoint.data_directory).parent.parent / f"{step - 1:012}", ignore_errors=True
                )
        dist.barrier()
    if rank == 0:
        print(json.dumps({"bytes": ranks.total, "times": {name: values[1:] for name, values in ranks.times.items()},
                          "ratios": {name: values[1:] for name, values in ratios.items()}}))
    if client:
        client.close()
    dist.destroy_process_group()


# The table.

def report(answer: dict, options: argparse.Namespace) -> None:
    times = answer["times"]

    def text(name: str) -> str:
        if name not in times:
            return ""
        values = times[name]
        return f"{statistics.median(values):7.3f} s  ({min(values):.3f} .. {max(values):.3f})"

    def ratio(a: str, b: str) -> str:
        return f"{statistics.median(times[a]) / statistics.median(times[b]):.2f}" if a in times and b in times else ""

    print(f"{answer['bytes'] / 1e9:.3f} GB in {options.tensors} fp32 tensors over {options.ranks} ranks, "
          f"{options.rounds} rounds, {os.cpu_count()} cores")
    print(f"{'':14}{'Cairn':32}{'peer':32}{'ratio':8}peer is")
    rows = [("blocked", "cairn blocked", "plain memcpy", "plain memcpy"),
            ("blocked", "cairn blocked", "dcp durable", "dcp.save"),
            ("durable save", "cairn durable", "dcp durable", "dcp.save"),
            ("durable save", "cairn durable", "plain write", "plain write, O_DIRECT, fsync"),
            ("cold load", "cairn cold load", "dcp cold load", "dcp.load"),
            ("cold load", "cairn cold load", "plain read", "plain read, O_DIRECT"),
            ("warm load", "cairn warm load", "dcp warm load", "dcp.load"),
            ("reshard, cold", "cairn reshard", "dcp reshard", "dcp.load"),
            ("reshard, cold", "cairn reshard", "plain read", "plain read, O_DIRECT"),
            ("slab load", "cairn slab load", "plain memcpy", "plain memcpy"),
            ("slab reshard", "cairn slab reshard", "plain memcpy", "plain memcpy")]
    for title, ours, peer, name in rows:
        if ours in times or (peer in times and peer.startswith("dcp")):
            print(f"{title:14}{text(ours):32}{text(peer):32}{ratio(ours, peer):8}{name}")
    if answer["ratios"]:
        print("read / unique:")
        for name, values in answer["ratios"].items():
            print(f"  {name:60}{statistics.median(values):.4f}")


def main() -> int:
    options = parse()
    if options.slab:
        options.only = "cairn"
    if options.worker:
        worker(options)
        return 0
    answer = run_ranks(
        __file__, options, [*([] if options.slab else ["--slab-loads=never"]), *options.agent_flag],
        lambda directory: [f"--size={options.size}", f"--tensors={options.tensors}", f"--rounds={options.rounds}",
                           f"--directory={directory / 'root'}", *(["--slab"] if options.slab else []),
                           *([f"--only={options.only}"] if options.only else [])])
    if answer is None:
        return 1
    report(answer, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
