"""Prints what saves and loads will do with this machine's GPUs.

  usage: python -m cairn.doctor_gpu [--libcuda PATH]

Run it in the trainer's container, with the trainer's environment: pinning may be refused there and nowhere else. The
exit status is 0 if there is a driver, else 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from cairn._base.errors import Error
from cairn._gpu import blocks, device_array
from cairn._gpu.devices import DeviceCopyList, Devices, driver_library, probe

# torch's newer and older names.
_ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_NEXT_WITHOUT_DRIVER = (
    f"{'next':<16}Without a GPU there is nothing to do: arrays in memory of the host are saved as usual.\n"
    f"{'':<16}With one, install NVIDIA's driver; in a container run with `--gpus all`. Saves and loads\n"
    f"{'':<16}look for libcuda.so.1 where the loader does, or for what CAIRN_LIBCUDA names.\n"
)
# The driver may take so long to answer.
_SECONDS = 60.0


def report(libcuda: str) -> tuple[bool, str]:
    """Returns whether there is a driver, and lines for people: driver, devices, pinning, path of a save, allocator, and
    what share_gpu_memory=True would do with memory of that allocator."""
    found, text = probe(libcuda)
    if not found:
        return False, text + _NEXT_WITHOUT_DRIVER
    settings = [f"{name}={os.environ[name]}" for name in _ALLOCATOR_SETTINGS if name in os.environ]
    memory, shared = _torch_memory(libcuda)
    text += f"{'allocator':<16}{' '.join(settings) or 'no settings'}; {memory}\n"
    return True, text + (f"{'share memory':<16}{shared}\n" if shared else "")


def _torch_memory(libcuda: str) -> tuple[str, str]:
    """Asks memory that torch has allocated, because the setting alone does not tell which handles torch chose.

    Returns what it can be exported as, and how it would be shared with the agent; "" if there is nobody to ask.
    """
    try:
        import torch
    except ImportError:
        return "there is no torch to ask", ""
    if not torch.cuda.is_available() or torch.version.hip is not None:
        return "torch sees no GPU of CUDA", ""
    devices = Devices(libcuda=libcuda)
    try:
        array = device_array.of(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
        return f"memory of torch can be exported as: {handle_types(devices, array)}", sharing(devices, array)
    finally:
        devices.close()


def sharing(devices: Devices, array: device_array.DeviceArray) -> str:
    """Returns in words how an array's memory would be shared with the agent (share_gpu_memory=True)."""
    copies = DeviceCopyList()
    copies.add_device_array("", array, 0, -1, 0)
    try:
        kinds = {block.kind: block.why for block in devices.find_blocks(copies, time.monotonic() + _SECONDS)}
    except Error as error:
        return f"not possible: {error.message}"
    if blocks.NOT_SHAREABLE in kinds:
        return f"not possible: {kinds[blocks.NOT_SHAREABLE]}"
    if blocks.IPC in kinds:
        return "by CUDA IPC (device-ipc), if the agent is in this PID namespace; expandable segments need no such thing"
    if blocks.FABRIC in kinds:
        return "by fabric handles (device-fabric), if the agent may use the same IMEX channel"
    return "by descriptors (device-vmm)"


def handle_types(devices: Devices, array: device_array.DeviceArray) -> str:
    """Returns in words what an array's memory can be exported as."""
    types = devices.handle_types(array)
    if types < 0:
        return "not known"
    return ", ".join(name for bit, name in ((1, "descriptors"), (8, "fabric")) if types & bit) or "nothing"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libcuda", default=driver_library(),
                        help="another library to look at than that of saves and loads "
                             f"({driver_library()})")
    found, text = report(parser.parse_args().libcuda)
    sys.stdout.write(text)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
