"""Measures fingerprints of arrays on a GPU, beside a copy of the same bytes to the host, and loads that verify them.

It prints one line of JSON, as figures.py does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time

from figures import GB, Gpu, GpuBytes

import cairn
from cairn._gpu import devices

ROUNDS = 5


class Columns:
    """A shard of columns of a matrix of bytes: each row of it is a run of its own."""

    def __init__(self, array: GpuBytes, width: int) -> None:
        rows = array.size // width
        self.shape = (rows, width)
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | {"shape": self.shape}

    def shard(self) -> cairn.Shard:
        rows, width = self.shape
        return cairn.Shard(self, (rows, 4 * width), (0, width))


def seconds_of(work) -> list[float]:
    found = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return found


def fingerprint(gpu: Gpu, size: int) -> dict[str, object]:
    count = 100
    arrays = {f"w{i:03}": GpuBytes(gpu, size // count, i) for i in range(count)}
    size = size // count * count
    host, first = gpu.pinned(size // count), arrays["w000"]
    copy = gpu.seconds_of_copy(True, first.address, host, first.size) * count
    whole = seconds_of(lambda: cairn.fingerprint(arrays))
    found = {"bytes": size, "fingerprint_s": whole, "gb_s": size / GB / statistics.median(whole),
             "over_pinned_copy": statistics.median(whole) / copy}
    on_host = {name: gpu.read(array.address, array.size) for name, array in list(arrays.items())[:3]}
    there = cairn.fingerprint(arrays)
    found["equal_to_host"] = all(str(there[name]) == str(one) for name, one in cairn.fingerprint(on_host).items())
    for width in (4096, 512, 64):
        columns = Columns(first, width)
        took = seconds_of(lambda columns=columns: cairn.fingerprint({"w": columns.shard()}))
        values = gpu.read(first.address, first.size)[:columns.shape[0] * width].reshape(columns.shape)
        expected = cairn.fingerprint({"w": cairn.Shard(values, (columns.shape[0], 4 * width), (0, width))})["w"]
        equal = cairn.fingerprint({"w": columns.shard()})["w"] == expected
        found |= {f"rows_of_{width}_gb_s": values.nbytes / GB / statistics.median(took),
                  f"rows_of_{width}_equal": equal}
    return found | loads(gpu, arrays)


def loads(gpu: Gpu, arrays: dict[str, GpuBytes]) -> dict[str, object]:
    """Times of loads from the agent's memory, in turns with such that verify."""
    times: dict[str | None, list[float]] = {None: [], "fingerprint": []}
    targets = {name: GpuBytes(gpu, array.size, 7) for name, array in arrays.items()}
    with tempfile.TemporaryDirectory() as root, cairn.local.Cluster(ranks=1, root=root) as cluster:
        with cluster.connect(0) as client:
            client.save(1, arrays).wait()
            for _ in range(ROUNDS):
                for verify, took in times.items():
                    begun = time.perf_counter()
                    report = client.load(targets, verify=verify)
                    took.append(time.perf_counter() - begun)
    plain, verified = (statistics.median(times[each]) for each in (None, "fingerprint"))
    return {"load_s": times[None], "verified_load_s": times["fingerprint"], "verified_over_plain": verified / plain,
            "verified_tensors": report.verified_tensors, "load_from": report.path}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("fingerprint",))
    parser.add_argument("--libcuda", default=devices.driver_library())
    parser.add_argument("--bytes", type=int, default=2 * GB)
    options = parser.parse_args()
    os.environ["CAIRN_LIBCUDA"] = options.libcuda
    print(json.dumps(fingerprint(Gpu(options.libcuda), options.bytes)), flush=True)


if __name__ == "__main__":
    main()
