"""Prints what saves and loads will do with this machine's GPUs.

  usage: python -m cairn.doctor_gpu [--libcuda PATH]

Run it in the trainer's container, with the trainer's environment: pinning may be refused there and nowhere else. The
exit status is 0 if there is a driver, else 1.
"""

from __future__ import annotations

import argparse
import os
import sys

from cairn import _device, _device_array

# torch's newer and older names.
_ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def report() -> tuple[bool, str]:
    """Returns whether there is a driver, and lines for people: driver, devices, pinning, path of a save, allocator."""
    found, text = _device.probe()
    if not found:
        return False, text
    settings = [f"{name}={os.environ[name]}" for name in _ALLOCATOR_SETTINGS if name in os.environ]
    text += f"{'allocator':<16}{' '.join(settings) or 'no settings'}; {_torch_memory()}\n"
    return True, text


def _torch_memory() -> str:
    """Asks memory that torch has allocated, because the setting alone does not tell which handles torch chose."""
    try:
        import torch
    except ImportError:
        return "there is no torch to ask"
    if not torch.cuda.is_available() or torch.version.hip is not None:
        return "torch sees no GPU of CUDA"
    devices = _device.Devices()
    try:
        types = handle_types(devices, _device_array.of(torch.empty(1 << 20, dtype=torch.uint8, device="cuda")))
    finally:
        devices.close()
    return f"memory of torch can be exported as: {types}"


def handle_types(devices: _device.Devices, array: _device_array.DeviceArray) -> str:
    """Returns in words what an array's memory can be exported as."""
    types = devices.handle_types(array)
    if types < 0:
        return "not known"
    return ", ".join(name for bit, name in ((1, "descriptors"), (8, "fabric")) if types & bit) or "nothing"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libcuda", default=_device.DRIVER, help=f"the driver ({_device.DRIVER})")
    _device.DRIVER = parser.parse_args().libcuda
    found, text = report()
    sys.stdout.write(text)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
