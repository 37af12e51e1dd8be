"""Computes the parts of fingerprints that a rank's shards make (docs/storage_format.md)."""

from __future__ import annotations

from collections.abc import Iterable

from cairn._base.native import CopyList
from cairn._gpu.device_array import DeviceArray
from cairn._gpu.devices import Devices
from cairn._state.declared_boxes import DeclaredBox


def fingerprint_parts(boxes: Iterable[DeclaredBox], devices: Devices, deadline: float, kept: object) -> list[int]:
    """Returns the part that each box makes. It reads the arrays once, where they are.

    Args:
      deadline: of what is on devices, by time.monotonic().
      kept: what keeps arrays on devices alive that have no owner.

    Raises:
      Error: as Devices.to_host of arrays on devices.
    """
    copies, places = CopyList(), list[int]()
    there: list[tuple[str, DeviceArray, tuple[int, ...]]] = []
    order: list[bool] = []  # of each box whether it is on a device
    for box in boxes:
        array = box.array
        place = (array.itemsize, len(box.shape), *box.global_shape, *box.offset, *box.shape, box.begin, box.end)
        order.append(isinstance(array, DeviceArray))
        if isinstance(array, DeviceArray):
            there.append((box.name, array, place))
        else:
            copies.add_array(array, 0, -1, 0)
            places += place
    on_devices = iter(devices.fingerprints(there, deadline, kept))
    on_host = iter(copies.fingerprints(places))
    return [next(on_devices if on_device else on_host) for on_device in order]
