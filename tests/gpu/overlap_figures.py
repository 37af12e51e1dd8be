"""Measures overlapped saves, their proof and what they cost others. As figures.py, and with the same Gpu."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import random
import shutil
import statistics
import tempfile
import time

import numpy
from figures import GB, Gpu, GpuBytes

import cairn
from cairn._gpu import devices

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "gpu/copy"
PTX = KERNELS / "crc32c_kernel.ptx"
BLOCK_BYTES, WARPS, THREADS = 1 << 16, 16, 512  # of gpu/copy/crc_lanes.h


class Optimizer:
    """What Client.save wants of one. A step writes to all its arrays, in the default stream."""

    def __init__(self, gpu: Gpu, arrays: list[GpuBytes]) -> None:
        self.param_groups = [{"params": arrays}]
        self._gpu = gpu
        self._hooks: list = []
        self._steps = 0
        # The values of two steps that follow one another differ, and are never written to again.
        self._values = [gpu.pinned(max(array.size for array in arrays)) for _ in range(2)]
        for fill, values in enumerate(self._values):
            ctypes.memset(values, fill + 1, max(array.size for array in arrays))

    def register_step_pre_hook(self, hook) -> None:
        self._hooks.append(hook)

    def step(self, guarded: bool = True) -> None:
        for hook in self._hooks if guarded else []:
            hook(self, (), {})
        values = self._values[self._steps % len(self._values)]
        self._steps += 1
        # From the last one on: in the order of the copies, updates would always come behind them.
        for array in reversed(self.param_groups[0]["params"]):
            self._gpu.check("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(array.address), values,
                            ctypes.c_size_t(array.size), None)


def small_copies(gpu: Gpu, device: int, until, least: int) -> list[float]:
    """Seconds of copies of 4 bytes to the host, as loss.item() makes them."""
    host, stream = gpu.pinned(4), ctypes.c_void_p()
    gpu.check("cuStreamCreate", ctypes.byref(stream), 1)
    took = []
    while len(took) < least or not until():
        begun = time.perf_counter()
        gpu.check("cuMemcpyDtoHAsync_v2", host, ctypes.c_uint64(device), ctypes.c_size_t(4), stream)
        gpu.check("cuStreamSynchronize", stream)
        took.append(time.perf_counter() - begun)
        if len(took) >= 100_000:
            break
    gpu.check("cuStreamDestroy_v2", stream)
    return took


def percentiles(seconds: list[float], name: str) -> dict[str, float]:
    ordered = sorted(seconds)
    return {f"{name}_median_ms": 1e3 * statistics.median(ordered),
            f"{name}_p99_ms": 1e3 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]}


def overlap(gpu: Gpu, size: int) -> dict[str, object]:
    """How soon a save of 3,000 arrays returns, and how long a small copy takes while it copies."""
    count = 3000
    each = max(size // count // 256 * 256, 256)
    arrays = [GpuBytes(gpu, each, i % 7) for i in range(count)]
    state = {f"w{i:04}": array for i, array in enumerate(arrays)}
    optimizer = Optimizer(gpu, arrays)
    small = GpuBytes(gpu, 256, 1)
    figures: dict[str, object] = {"bytes": each * count, "arrays": count}
    figures |= percentiles(small_copies(gpu, small.address, lambda: True, 2000), "small_copy_alone")
    with tempfile.TemporaryDirectory() as root, cairn.local.Cluster(ranks=1, root=root) as cluster:
        with cluster.connect(0) as client:
            client.prepare(state)
            client.save(0, state).wait()
            returned, staged, latencies = [], [], []
            for step, check in ((1, True), (2, False), (3, False), (4, False), (5, False)):
                begun = time.perf_counter()
                saving = client.save(step, state, overlap=[optimizer], check_overlap=check)
                returned.append(time.perf_counter() - begun)
                latencies += small_copies(gpu, small.address, lambda: saving.device is not None, 1)
                staged.append(time.perf_counter() - begun)
                begun = time.perf_counter()
                optimizer.step()
                figures["guard_s"] = time.perf_counter() - begun
                saving.wait()
                figures["why_synchronous"] = saving.staging.synchronous_because
            begun = time.perf_counter()
            saving = client.save(9, state)
            figures["synchronous_s"] = time.perf_counter() - begun
            saving.wait()
    return figures | percentiles(latencies, "small_copy_meanwhile") | {
        "returns_with_proof_s": returned[0], "returns_s": statistics.median(returned[1:]),
        "staged_s": statistics.median(staged[1:])}


def torn(gpu: Gpu, _: int) -> dict[str, object]:
    """Saves while updates come at random times: with the guard none may be torn, without it some are.

    The arrays of the second are so large that they are not copied yet when save() returns.
    """
    found: dict[str, int] = {}
    for name, guarded, each, saves, seconds in (("with_guard", True, 4 << 20, 500, 40),
                                                ("large_with_guard", True, 40 << 20, 10, 20),
                                                ("large_without_guard", False, 40 << 20, 10, 20)):
        found |= torn_saves(gpu, name, guarded, each, saves, seconds)
    return found


def torn_saves(gpu: Gpu, name: str, guarded: bool, each: int, saves: int, seconds: float) -> dict[str, int]:
    arrays = [GpuBytes(gpu, each, i) for i in range(8)]
    state = {f"w{i}": array for i, array in enumerate(arrays)}
    optimizer = Optimizer(gpu, arrays)
    draw = random.Random(1)
    found = {f"saves_{name}": 0, f"torn_{name}": 0}
    with tempfile.TemporaryDirectory() as root, cairn.local.Cluster(ranks=1, root=root) as cluster:
        with cluster.connect(0) as client:
            client.prepare(state)
            end = time.monotonic() + seconds
            while found[f"saves_{name}"] < saves and time.monotonic() < end:
                found[f"saves_{name}"] += 1
                step = found[f"saves_{name}"]
                saving = client.save(step, state, overlap=[optimizer], check_overlap=True)
                time.sleep(draw.random() * 0.001)
                optimizer.step(guarded)
                try:
                    saving.wait()
                except cairn.Error as error:
                    if error.reason != "TORN_SNAPSHOT":
                        raise
                    found[f"torn_{name}"] += 1
                shutil.rmtree(f"{root}/demo/{step - 2:012}", ignore_errors=True)  # the disk may be small
    return found


def digest(gpu: Gpu, size: int) -> dict[str, object]:
    """Rates of the kernels, against that of a copy on the device, which reads and writes each byte."""
    data = GpuBytes(gpu, size, 1)
    figures: dict[str, object] = {"bytes": size}
    for name, sum_bytes in ("crc32c", 4), ("crc64", 8):
        rate, summed = kernel_rate(gpu, data, size, name, sum_bytes)
        figures |= {f"{name}_gb_s": rate, f"{name}_blocks_summed": summed}
    if hasattr(gpu.library, "cuMemcpyDtoDAsync_v2"):  # the stand-in has none
        half = size // 2

        def copy() -> None:
            gpu.check("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(data.address), ctypes.c_uint64(data.address + half),
                      ctypes.c_size_t(half), None)

        read = 2 * half / GB / best_seconds(gpu, copy)
        figures |= {"device_bandwidth_gb_s": read, "crc32c_over_bandwidth": figures["crc32c_gb_s"] / read,
                    "crc64_over_bandwidth": figures["crc64_gb_s"] / read}
    return figures


def kernel_rate(gpu: Gpu, data: GpuBytes, size: int, name: str, sum_bytes: int) -> tuple[float, float]:
    """Returns GB/s, and the share of blocks that got a sum."""
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    gpu.check("cuModuleLoadData", ctypes.byref(module), (KERNELS / f"{name}_kernel.ptx").read_bytes() + b"\0")
    gpu.check("cuModuleGetFunction", ctypes.byref(kernel), module, b"cairn_" + name.encode())
    blocks = -(-size // BLOCK_BYTES)
    ranges, sums = gpu.allocate(32), gpu.allocate(sum_bytes * blocks)
    gpu.write(ranges, numpy.array([data.address, size, 0, BLOCK_BYTES], numpy.uint64))
    arguments = [ctypes.c_uint64(ranges), ctypes.c_uint32(1), ctypes.c_uint64(blocks), ctypes.c_uint64(sums)]
    pointers = (ctypes.c_void_p * 4)(*[ctypes.addressof(argument) for argument in arguments])

    def run() -> None:
        # Fewer threads than the kernel is made for would leave blocks out, and seem fast.
        gpu.check("cuLaunchKernel", kernel, -(-blocks // WARPS), 1, 1, THREADS, 1, 1, 0, None, pointers, None)

    rate = size / GB / best_seconds(gpu, run)
    found = numpy.frombuffer(gpu.read(sums, sum_bytes * blocks).tobytes(), f"u{sum_bytes}")
    return rate, float((found != 0).mean())


def best_seconds(gpu: Gpu, work) -> float:
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        work()
        gpu.check("cuStreamSynchronize", None)
        best = min(best, time.perf_counter() - begun)
    return best


PARTS = {"overlap": overlap, "torn": torn, "digest": digest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--libcuda", default=devices.driver_library())
    parser.add_argument("--bytes", type=int, default=2 * GB)
    options = parser.parse_args()
    os.environ["CAIRN_LIBCUDA"] = options.libcuda
    print(json.dumps(PARTS[options.part](Gpu(options.libcuda), options.bytes)), flush=True)


if __name__ == "__main__":
    main()
