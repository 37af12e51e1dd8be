"""Measures one part of what Cairn does with a GPU, and prints it as one line of JSON. tools/test_gpu runs the parts.

It uses the driver alone, so it needs no PyTorch, and runs with the stand-in too, whose figures mean nothing.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import json
import mmap
import os
import pathlib
import platform
import tempfile
import time

import numpy

import cairn
from cairn._base import native
from cairn._gpu import devices

GB = 1_000_000_000


class Gpu:
    """Device 0, whose primary context is current in this thread."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.check("cuInit", 0)
        context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.check("cuCtxPushCurrent_v2", context)

    def check(self, function: str, *arguments: object) -> None:
        result = self.library[function](*arguments)
        if result != 0:
            raise RuntimeError(f"{function}: {result}")

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def pinned(self, size: int) -> ctypes.c_void_p:
        memory = ctypes.c_void_p()
        self.check("cuMemHostAlloc", ctypes.byref(memory), ctypes.c_size_t(size), 1)
        return memory

    def seconds_of_copy(self, to_host: bool, device: int, host: ctypes.c_void_p, size: int) -> float:
        """The best of five: one copy, waited for."""
        best = float("inf")
        for _ in range(5):
            begun = time.perf_counter()
            if to_host:
                self.check("cuMemcpyDtoHAsync_v2", host, ctypes.c_uint64(device), ctypes.c_size_t(size), None)
            else:
                self.check("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(device), host, ctypes.c_size_t(size), None)
            self.check("cuStreamSynchronize", None)
            best = min(best, time.perf_counter() - begun)
        return best

    def write(self, device: int, values: numpy.ndarray) -> None:
        self.check("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(device), ctypes.c_void_p(values.ctypes.data),
                   ctypes.c_size_t(values.nbytes), None)
        self.check("cuStreamSynchronize", None)

    def read(self, device: int, size: int) -> numpy.ndarray:
        values = numpy.empty(size, numpy.uint8)
        self.check("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(values.ctypes.data), ctypes.c_uint64(device),
                   ctypes.c_size_t(size), None)
        self.check("cuStreamSynchronize", None)
        return values


class GpuBytes:
    """A packed array on the device."""

    def __init__(self, gpu: Gpu, size: int, seed: int) -> None:
        self.gpu, self.size = gpu, size
        self.address = self.allocate(size)
        self.fill(seed)
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (self.address, False),
                                         "version": 3, "stream": None}

    def allocate(self, size: int) -> int:
        return self.gpu.allocate(size)

    def fill(self, seed: int) -> None:
        self.values = numpy.random.default_rng(seed).integers(0, 256, min(self.size, 1 << 20), numpy.uint8)
        for at in range(0, self.size, self.values.nbytes):
            self.gpu.write(self.address + at, self.values[:self.size - at])

    def holds(self, other: GpuBytes) -> bool:
        return bool((self.gpu.read(self.address, self.size) == self.gpu.read(other.address, self.size)).all())


def free_bytes(gpu: Gpu) -> int:
    """Of the device, which all processes share."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    gpu.check("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def probe(gpu: Gpu, size: int) -> dict[str, object]:
    version, free, total = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(256)
    gpu.check("cuDriverGetVersion", ctypes.byref(version))
    gpu.check("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    gpu.check("cuDeviceGetName", name, 256, 0)
    device, host = gpu.allocate(size), gpu.pinned(size)
    return {"device": name.value.decode(), "driver": version.value, "device_bytes": total.value,
            "glibc": platform.libc_ver()[1], "python": platform.python_version(), "cores": os.cpu_count(),
            "host_copy_gb_s": size / GB / seconds_of_host_copy(size),
            "pinned_to_host_gb_s": size / GB / gpu.seconds_of_copy(True, device, host, size),
            "pinned_to_device_gb_s": size / GB / gpu.seconds_of_copy(False, device, host, size)}


def seconds_of_host_copy(size: int) -> float:
    """The best of three, by as many threads as copy to the pinned ring."""
    source, target = (numpy.ones(size, numpy.uint8) for _ in range(2))
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        copies = native.CopyList()
        copies.add(source.ctypes.data, size, 0, target.ctypes.data, size, 0, size)
        copies.run()
        best = min(best, time.perf_counter() - begun)
    return best


def save(gpu: Gpu, size: int) -> dict[str, object]:
    """Blocked time of saves of 300 arrays, against one pinned copy of as many bytes; and pinning."""
    count = 300
    each = size // count // 256 * 256
    state = {f"w{i:03}": GpuBytes(gpu, each, i) for i in range(count)}
    size = each * count
    with tempfile.TemporaryDirectory() as root, cairn.local.Cluster(ranks=1, root=root) as cluster:
        with cluster.connect(0) as client:
            begun = time.perf_counter()
            client.prepare(state)
            prepared = time.perf_counter() - begun
            blocked, paths = [], []
            for step in range(4):
                begun = time.perf_counter()
                saving = client.save(step, state)
                blocked.append(time.perf_counter() - begun)
                paths.append(f"{saving.device.path} {saving.device.fallback}".strip())
                saving.wait()
            pinned_bytes = saving.device.pinned_bytes
    device, host = gpu.allocate(size), gpu.pinned(size)
    copy = gpu.seconds_of_copy(True, device, host, size)
    return {"bytes": size, "prepare_s": prepared, "prepare_s_per_gb": prepared / (size / GB), "blocked_s": blocked,
            "one_pinned_copy_s": copy, "second_save_over_copy": blocked[1] / copy, "paths": paths,
            "pinned_bytes_over_slab": pinned_bytes - size}


def load(gpu: Gpu, size: int) -> dict[str, object]:
    """Time of loads into the device's memory, and whether every byte is there: from the agent's memory, and, with a new
    agent, from the file, which is read without the page cache's help."""
    source, target = GpuBytes(gpu, size, 1), GpuBytes(gpu, size, 2)
    figures: dict[str, object] = {"bytes": size}
    with tempfile.TemporaryDirectory() as root, cairn.local.Cluster(ranks=1, root=root) as cluster:
        with cluster.connect(0) as client:
            client.save(1, {"w": source}).wait()
        for name in ("slab", "slab_again", "file", "file_again"):
            target.fill(2)
            if name == "file":
                cluster.agents[0].restart()
                figures["disk_gb_s"] = size / GB / seconds_of_reading(root)
            if name.startswith("file"):
                forget_pages(root)
            with cluster.connect(0) as client:
                begun = time.perf_counter()
                report = client.load({"w": target})
                took = time.perf_counter() - begun
            figures |= {f"{name}_s": took, f"{name}_gb_s": size / GB / took, f"{name}_from": report.path,
                        f"{name}_path": report.device.path, f"{name}_copying_s": report.device.seconds,
                        f"{name}_equal": target.holds(source)}
    return figures


def files_of(root: str) -> list[pathlib.Path]:
    return [path for path in pathlib.Path(root).rglob("*") if path.is_file() and path.stat().st_size >= 1 << 20]


def forget_pages(root: str) -> None:
    for path in files_of(root):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def seconds_of_reading(root: str) -> float:
    """Of all large files, by four threads that pass the page cache by, as an agent reads them."""
    block = 16 << 20

    def read(place: tuple[int, int]) -> None:
        memory = mmap.mmap(-1, block)
        os.preadv(place[0], [memory], place[1])

    forget_pages(root)
    descriptors = [os.open(path, os.O_RDONLY | os.O_DIRECT) for path in files_of(root)]
    places = [(each, at) for each in descriptors for at in range(0, os.fstat(each).st_size, block)]
    begun = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(read, places))
    took = time.perf_counter() - begun
    for each in descriptors:
        os.close(each)
    return took


PARTS = {"probe": probe, "save": save, "load": load}


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
