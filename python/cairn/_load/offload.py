"""Moves a state from GPUs to the host's memory, so that another one has room on the GPUs."""

from __future__ import annotations

import time
from typing import Any

import numpy

from cairn._base.arrays import Array
from cairn._base.errors import Error
from cairn._gpu import device_array
from cairn._gpu.device_array import DeviceArray
from cairn._gpu.devices import DeviceCopyList, Devices
from cairn._state.entries import Shard


def to_host(state: dict[str, Any], devices: Devices, deadline: float) -> None:
    """Puts an array of numpy with the same elements in place of each array on a GPU, in the dict itself.

    Nothing here holds the arrays on GPUs any more when it returns, nor does the dict. If it fails, the dict is as it
    was.

    Args:
      state: as LayoutBuilder.declare() wants it, which has accepted it.
      deadline: time.monotonic() by which the copies must have ended.

    Raises:
      Error: as Devices.to_host(); MEMORY_LIMIT (the host has no room).
    """
    mover = _Mover()
    moved = {name: found for name, value in state.items() if (found := mover.moved(name, value)) is not None}
    if not moved:
        return
    kept = getattr(state, "kept", None)
    if len(mover.copies):
        devices.to_host(mover.copies, mover.arrays, max(deadline - time.monotonic(), 0.0), kept)
    state.update(moved)
    if kept is not None:
        kept.clear()


class _Mover:
    """Makes arrays of the host, and the copies that fill them."""

    def __init__(self) -> None:
        self.copies = DeviceCopyList()
        self.arrays: list[Array] = []

    def moved(self, name: str, value: Any) -> Any:
        """Returns what is to stand in the place of a value of the state; None if that is the value itself."""
        if isinstance(value, Shard):
            array = value.read(name)
            if not isinstance(array, DeviceArray):
                return None
            return Shard(self._on_host(name, array), value.global_shape, value.offset, value.shape, value.flat_range,
                         value.dtype)
        if isinstance(value, (list, tuple)) and any(isinstance(part, Shard) for part in value):
            parts = [self.moved(name, part) for part in value]
            if all(part is None for part in parts):
                return None
            return [old if new is None else new for old, new in zip(value, parts, strict=True)]
        if isinstance(value, numpy.ndarray):
            return None
        found = device_array.find(value, name)
        return None if found is None else self._on_host(name, found)

    def _on_host(self, name: str, source: DeviceArray) -> Array:
        try:
            array = numpy.empty(source.shape, source.dtype)
        except MemoryError:
            raise Error("MEMORY_LIMIT", f"{name!r}: the host has no {source.nbytes} bytes for what moves off the GPU",
                        {"tensor": name, "next": "Free memory of the host, or let the source stay on the GPU "
                         "(offload=False)."}) from None
        self.arrays.append(array)
        if array.nbytes:
            self.copies.add_device_array(name, source, array.__array_interface__["data"][0], array.nbytes, 0)
        return array
