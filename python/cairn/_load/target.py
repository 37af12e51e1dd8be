"""Says where one item of a load goes."""

from __future__ import annotations

import numpy

from cairn._base.arrays import Array
from cairn._gpu import devices
from cairn._gpu.device_array import DeviceArray


class Target:
    """Says where one item of a load goes. `on_device` is set if that is a device's memory."""

    def __init__(self, array: Array | DeviceArray, name: str) -> None:
        self._array = array
        self.name = name
        self.on_device: DeviceArray | None = None
        # Plans assume packed elements, so an array with another memory order gets a packed copy first.
        self._packed: Array | None = None
        if isinstance(array, DeviceArray):
            if array.flags.c_contiguous:
                self.on_device = array
                self.address = array.address
            else:
                self._packed = numpy.empty(array.nbytes, numpy.uint8)
        else:
            self._packed = array if array.flags.c_contiguous else array.copy(order="C")
        if self._packed is not None:
            self.address = self._packed.__array_interface__["data"][0]
        self.nbytes = array.nbytes

    def finish(self, last: devices.DeviceCopyList) -> None:
        """Fills the array from its packed copy; if it is on a device, by a copy that is added to `last`."""
        if isinstance(self._array, DeviceArray):
            if self._packed is not None:
                last.add_filling(self.name, self._array, self.address)
        elif self._packed is not self._array:
            self._array[...] = self._packed
