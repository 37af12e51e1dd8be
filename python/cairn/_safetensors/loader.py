"""Fills arrays on the host and on GPUs from files."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex

import numpy

from cairn._agent.shared_memory import MappedMemory
from cairn._base.arrays import Array
from cairn._base.errors import Error, shown
from cairn._base.results import DeviceReport
from cairn._gpu.device_array import DeviceArray
from cairn._gpu.devices import DeviceCopyList, Devices
from cairn._safetensors.directory import SafetensorsIndex, StoredTensor
from cairn._safetensors.native_files import FileRead, PieceTable, ReadStatistics
from cairn._state.declared_boxes import DeclaredBox

Filling = Sequence[tuple[DeclaredBox, StoredTensor]]

# What goes to GPUs passes through two pinned buffers of the host, of so many bytes each. A row that is larger gets a
# buffer of its own, which is not pinned.
_BATCH_BYTES = 64 << 20
_ALIGNMENT = 64
_MOST_THREADS = 256


def thread_count(threads: SupportsIndex | None) -> int:
    """Returns with how many threads a process reads; by default enough to keep storage busy also with few processors.

    Raises:
      Error: BAD_REQUEST.
    """
    if threads is None:
        return min(max(len(os.sched_getaffinity(0)), 4), 16)
    if isinstance(threads, bool) or not hasattr(threads, "__index__") or not 1 <= threads.__index__() <= _MOST_THREADS:
        raise Error("BAD_REQUEST", f"load_safetensors: threads is an integer from 1 to {_MOST_THREADS}, not "
                    f"{shown(threads)}")
    return threads.__index__()


class Filler:
    """Fills the arrays of one load."""

    def __init__(self, index: SafetensorsIndex, threads: int, shared: bool, deadline: float) -> None:
        self._index = index
        self._threads = threads
        self._shared = shared
        self._deadline = deadline
        self.statistics = ReadStatistics(0, 0, 0)
        self.device: DeviceReport | None = None

    def fill(self, boxes: Filling) -> None:
        """Raises as FileRead.finish() and Devices.to_devices()."""
        on_host = PieceTable()
        for box, tensor in boxes:
            if not isinstance(box.array, DeviceArray):
                _add(on_host, box, tensor, box.array)
        self._finish(self._begin(on_host))
        on_devices = [(box, tensor) for box, tensor in boxes if isinstance(box.array, DeviceArray)]
        if on_devices:
            self._fill_devices(on_devices)

    def _begin(self, table: PieceTable) -> FileRead:
        return FileRead(self._index.files, table, self._threads, self._shared)

    def _finish(self, read: FileRead) -> None:
        found = read.finish(self._deadline)
        self.statistics = ReadStatistics(*(a + b for a, b in zip(self.statistics, found, strict=True)))

    def _fill_devices(self, boxes: Filling) -> None:
        """Reads one batch while the one before is copied to the devices."""
        devices = Devices()
        size = min(_BATCH_BYTES, sum(box.array.nbytes + _ALIGNMENT for box, _ in boxes))
        buffers = itertools.cycle([MappedMemory.new(size), MappedMemory.new(size)])
        reads: list[FileRead] = []
        try:
            waiting: tuple[_Batch, FileRead] | None = None
            for batch in _batches(boxes, buffers):
                if isinstance(batch.memory, MappedMemory):
                    devices.pin(batch.memory, batch.arrays, max(self._deadline - time.monotonic(), 0.0))
                reads.append(self._begin(batch.table))
                if waiting is not None:
                    self._copy(devices, *waiting)
                waiting = batch, reads[-1]
            if waiting is not None:
                self._copy(devices, *waiting)
        except BaseException:
            for read in reads[-2:]:  # those before have ended
                read.abandon()
            raise
        finally:
            devices.close()

    def _copy(self, devices: Devices, batch: _Batch, read: FileRead) -> None:
        self._finish(read)
        report = devices.to_devices(batch.copies, batch.memory, max(self._deadline - time.monotonic(), 0.0))
        self.device = report.plus(self.device)


class _Batch:
    """Parts of arrays on devices, and the memory of the host that they pass through."""

    def __init__(self, memory: MappedMemory | Array) -> None:
        self.memory = memory
        self.table = PieceTable()
        self.copies = DeviceCopyList()
        self.arrays: list[DeviceArray] = []
        self._bytes = memory.bytes if isinstance(memory, MappedMemory) else memory
        self._used = 0

    def fits(self, array: DeviceArray) -> bool:
        return self._used + array.nbytes <= self._bytes.nbytes

    def add(self, part: DeclaredBox, tensor: StoredTensor) -> None:
        """Adds a part that fits."""
        array = part.array
        assert isinstance(array, DeviceArray)
        target = self._bytes[self._used:self._used + array.nbytes].view(array.dtype).reshape(array.shape)
        _add(self.table, part, tensor, target)
        self.copies.add_filling(part.name, array, target.ctypes.data)
        self.arrays.append(array)
        self._used += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT


def _batches(boxes: Filling, buffers: Iterator[MappedMemory]) -> Iterator[_Batch]:
    """Cuts what is to be filled into batches. A batch of a buffer must be done with when the second next one is asked
    for."""
    batch = _Batch(next(buffers))
    for box, tensor in boxes:
        for part in _parts(box):
            if not batch.fits(part.array):
                if batch.arrays:
                    yield batch
                    batch = _Batch(next(buffers))
                if not batch.fits(part.array):
                    large = _Batch(numpy.empty(part.array.nbytes, numpy.uint8))
                    large.add(part, tensor)
                    yield large
                    continue
            batch.add(part, tensor)
    if batch.arrays:
        yield batch


def _parts(box: DeclaredBox) -> Iterator[Any]:
    """Cuts what is too large for a batch along the first axis."""
    size = box.array.shape[0] if box.array.shape else 1
    if box.array.nbytes <= _BATCH_BYTES or size < 2:
        yield box
        return
    step = max(_BATCH_BYTES // (box.array.nbytes // size), 1)
    for at in range(0, size, step):
        stop = min(at + step, size)
        place = (slice(at, stop), *(slice(0, n) for n in box.array.shape[1:]))
        array = box.array[place]
        if box.flat:
            yield box._replace(begin=box.begin + at, end=box.begin + stop, array=array)
        else:
            row = (box.end - box.begin) // size
            yield box._replace(offset=(box.offset[0] + at, *box.offset[1:]), shape=array.shape, begin=0,
                               end=(stop - at) * row, array=array)


def _add(table: PieceTable, box: DeclaredBox, tensor: StoredTensor, target: Array) -> None:
    table.add(tensor.file, tensor.position, target.itemsize, box.global_shape, box.offset, box.shape, box.begin,
              box.end, box.flat, target)
