"""Computes the parts of fingerprints that a rank's shards make (docs/storage_format.md)."""

from __future__ import annotations

from collections.abc import Iterable

from cairn._base.arrays import Array
from cairn._base.errors import Error
from cairn._base.native import CopyList
from cairn._gpu.device_array import DeviceArray
from cairn._state.declared_boxes import DeclaredBox
from cairn._state.layout import DeclaredState


def fingerprint_parts(boxes: Iterable[DeclaredBox]) -> list[int]:
    """Returns the part that each box makes. It reads the arrays once.

    Raises:
      Error: as check_on_host().
    """
    copies, places = CopyList(), list[int]()
    for box in boxes:
        array = _on_host(box.name, box.array)
        copies.add_array(array, 0, -1, 0)
        places += (array.itemsize, len(box.shape), *box.global_shape, *box.offset, *box.shape, box.begin, box.end)
    return copies.fingerprints(places)


def check_on_host(declared: DeclaredState) -> None:
    """Refuses arrays whose fingerprints cannot be computed.

    Raises:
      Error: UNSUPPORTED (an array is on a GPU).
    """
    for shard in declared.shards:
        _on_host(shard.name, shard.array)


def _on_host(name: str, array: Array | DeviceArray) -> Array:
    if isinstance(array, DeviceArray):
        raise Error("UNSUPPORTED", f"{name!r} is on a GPU, and its fingerprint is computed on the host",
                    {"tensor": name, "next": "Copy it to the host first."})
    return array
