"""Measures saves that the agent copies from GPU memory itself. As figures.py, and with the same Gpu."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Iterator

import numpy
from figures import GB, Gpu, GpuBytes, free_bytes

import cairn
from cairn._gpu import devices
from cairn.local import binary
from testing.stand_in_gpu import HandleMemory

ARRAYS = 30


class SharedBytes(GpuBytes):
    """A packed array in memory that can be exported as descriptors, as that of torch's expandable segments can."""

    def allocate(self, size: int) -> int:
        self.memory = HandleMemory(self.gpu.library, 0, handle_types=1)
        return self.memory.allocate(size)


@contextlib.contextmanager
def agents_of(another_namespace: bool) -> Iterator[None]:
    """Starts agents in a PID namespace of their own, as those of a pod are; that needs root."""
    before = os.environ["CAIRN_BIN_DIR"]
    with tempfile.TemporaryDirectory() as directory:
        if another_namespace:
            for name, under in (("cairn-agent", "unshare --pid --mount-proc --fork --kill-child "),
                                ("cairn-coordinator", "")):
                script = pathlib.Path(directory) / name
                script.write_text(f'#!/bin/sh\nexec {under}"{binary(name).resolve()}" "$@"\n')
                script.chmod(0o755)
            os.environ["CAIRN_BIN_DIR"] = directory
        try:
            yield
        finally:
            os.environ["CAIRN_BIN_DIR"] = before


def sharing(gpu: Gpu, size: int) -> dict[str, object]:
    """Blocked time of saves by descriptors and by CUDA IPC, the worker's memory, and whether every byte is there."""
    figures: dict[str, object] = {}
    device, host = gpu.allocate(size), gpu.pinned(size)
    figures["one_pinned_copy_s"] = gpu.seconds_of_copy(True, device, host, size)
    for name, kind, namespace in (("vmm", SharedBytes, False), ("ipc", GpuBytes, False),
                                  ("vmm_other_pid_namespace", SharedBytes, True),
                                  ("ipc_other_pid_namespace", GpuBytes, True)):
        state = {f"w{i:02}": kind(gpu, size // ARRAYS // 256 * 256, i) for i in range(ARRAYS)}
        flags = [f"--libcuda={devices.driver_library()}"]
        free = free_bytes(gpu)
        with (tempfile.TemporaryDirectory() as root, agents_of(namespace),
              cairn.local.Cluster(ranks=1, root=root, agent_flags=flags) as cluster):
            with cluster.connect(0, share_gpu_memory=True) as client:
                client.prepare(state)
                blocked = []
                for step in range(4):
                    for at, array in enumerate(state.values()):
                        array.fill(100 * step + at)
                    begun = time.perf_counter()
                    saving = client.save(step, state)
                    blocked.append(time.perf_counter() - begun)
                    saving.wait()
                figures |= {f"{name}_blocked_s": blocked, f"{name}_path": saving.device.path,
                            f"{name}_fallback": saving.device.fallback, f"{name}_checked": saving.device.checked,
                            f"{name}_unchecked": saving.device.unchecked,
                            f"{name}_worker_device_bytes": free - free_bytes(gpu)}
            with cluster.connect(0) as client:
                target = {key: numpy.zeros(array.size, numpy.uint8) for key, array in state.items()}
                client.load(target)
                figures[f"{name}_equal"] = all((target[key] == gpu.read(array.address, array.size)).all()
                                               for key, array in state.items())
            log = cluster.agents[0].log.read_text()
            figures[f"{name}_log"] = re.findall(r"event=(?:device_memory_refused|gpu_worker_crashed).*", log)[:3]
        figures[f"{name}_device_bytes_kept"] = free - free_bytes(gpu)
    return figures


PARTS = {"sharing": sharing}


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
