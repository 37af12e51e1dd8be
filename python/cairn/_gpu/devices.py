"""Copies between GPUs and the host by the native helper, and keeps the host's memory pinned."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
import time
import typing
import weakref
from collections.abc import Iterable, Sequence

import numpy

from cairn._agent.shared_memory import MappedMemory, unmap
from cairn._base import native
from cairn._base.errors import Error
from cairn._base.limits import DEFAULT, Limits
from cairn._base.results import DeviceReport
from cairn._gpu.blocks import Block, read
from cairn._gpu.device_array import DeviceArray
from cairn._gpu.outcome import NOT_PINNED, STALLED, Outcome, error_of, path_of, report_of

# `python -m cairn.doctor_gpu` waits so long for a driver to start.
_DOCTOR_SECONDS = 60.0
_NEXT_WITHOUT_DRIVER = ("Install NVIDIA's driver, or a newer one; in a container run with `--gpus all`. `python -m "
                        "cairn.doctor_gpu` looks again.")


def driver_library() -> str:
    """Returns CUDA's driver, as CAIRN_LIBCUDA gives it: a name that the loader looks up, or a path."""
    return os.environ.get("CAIRN_LIBCUDA") or "libcuda.so.1"


class DeviceCopyList(native.CopyList):
    """Copies of which one side is a device's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[int] = []
        self.names: list[str] = []
        self.owners: list[object] = []

    def about(self, name: str, array: DeviceArray) -> None:
        """Says of the copy that was just added whose it is."""
        self.names.append(name)
        self.streams.append(array.stream)
        self.owners.append(array.owner)

    def add_device_array(self, name: str, array: DeviceArray, target: int, target_bytes: int,
                         target_offset: int) -> None:
        """Adds a copy of a whole array, in row-major order, to contiguous bytes of the host."""
        if array.flags.c_contiguous:
            self.add(array.address, -1, 0, target, target_bytes, target_offset, array.nbytes)
        else:
            self.add(array.address, -1, 0, target, target_bytes, target_offset, array.itemsize, array.shape,
                     array.strides, native.row_major_strides(array.shape, array.itemsize))
        self.about(name, array)

    def add_filling(self, name: str, array: DeviceArray, source: int) -> None:
        """Adds a copy of contiguous bytes of the host, in row-major order, to a whole array."""
        self.add(source, array.nbytes, 0, array.address, -1, 0, array.itemsize, array.shape,
                 native.row_major_strides(array.shape, array.itemsize), array.strides)
        self.about(name, array)


class Devices:
    """Holds what one client has of the driver. It opens the driver when the first array on a device comes. Thread-safe,
    but copies follow one another."""

    def __init__(self, limits: Limits = DEFAULT, libcuda: str = "") -> None:
        """`libcuda` is the driver; "" for that of driver_library(), at the time when it is opened."""
        self._limits = limits
        self._libcuda = libcuda
        self._lock = threading.RLock()  # a mapping may end while it is held
        self._handle: int | None = None
        self._process = os.getpid()
        self._numbers: weakref.WeakKeyDictionary[MappedMemory, int] = weakref.WeakKeyDictionary()  # that may be pinned
        self._settled: weakref.WeakSet[MappedMemory] = weakref.WeakSet()  # pinned, or refused to be
        # A copy that hangs may still touch these.
        self._held: list[object] = []
        self._closed = False

    # Copying.

    def to_host(self, copies: DeviceCopyList, memory: object, timeout: float, kept: object = None) -> DeviceReport:
        """Makes copies from devices, and returns when they are done.

        Args:
          memory: what the targets are part of, and what keeps them alive.
          timeout: seconds.
          kept: what keeps sources alive that have no owner.

        Raises:
          Error: DEVICE_ERROR (a call of the driver failed; there is no driver), DEVICE_STALLED (it did not answer in
            time; the copies may go on, and `memory` is kept until they end), BAD_REQUEST (an array is on no device any
            more, or on two; it has negative strides; its stream records a graph).
        """
        return self._copy(copies, True, memory, timeout, kept)

    def to_devices(self, copies: DeviceCopyList, memory: object, timeout: float) -> DeviceReport:
        """Makes copies to devices: straight from `memory` if it is pinned, else through the ring. Otherwise it does as
        to_host() does."""
        return self._copy(copies, False, memory, timeout, None)

    def _copy(self, copies: DeviceCopyList, to_host: bool, memory: object, timeout: float,
              kept: object) -> DeviceReport:
        rows, dimensions = copies.tables()
        streams = numpy.array(copies.streams, numpy.uint64)
        outcome = Outcome()
        begun = time.monotonic()
        handle = self._open(timeout)
        left = max(begun + timeout - time.monotonic(), 0.0)
        _LIBRARY.cairn_device_copy(handle, to_host, self._number_of(memory), rows.ctypes.data, len(rows),
                                   dimensions.ctypes.data, streams.ctypes.data, native.copy_threads(), left,
                                   ctypes.byref(outcome))
        self._check(outcome, copies.names, (memory, kept, copies.owners), timeout)
        return report_of(outcome, copies.names, time.monotonic() - begun)

    def begin_overlap(self, copies: DeviceCopyList, behind: Sequence[bool], check: bool, memory: object,
                      kept: object, deadline: float) -> OverlappedCopies | str:
        """Begins copies that go on behind the caller's back, and returns when it may go on.

        Args:
          behind: of each copy whether only guarded updates change its array. The others are as if they were copied
            already when this returns.
          check: let the devices prove that nothing was torn.
          memory: what keeps the targets alive.
          kept: what keeps sources alive that have no owner.
          deadline: time.monotonic() until which the copies must have ended.

        Returns:
          The copies; or why they cannot be made so, and then nothing was begun.

        Raises:
          Error: as to_host().
        """
        rows, dimensions = copies.tables()
        streams = numpy.array(copies.streams, numpy.uint64)
        late = numpy.array(behind, numpy.uint8)
        outcome = Outcome()
        patience = max(deadline - time.monotonic(), 0.0)
        keep = (memory, kept, copies.owners)
        begun = time.monotonic()
        handle = _LIBRARY.cairn_overlap_begin(self._open(patience), self._number_of(memory), rows.ctypes.data,
                                              len(rows), dimensions.ctypes.data, streams.ctypes.data, late.ctypes.data,
                                              check, self._limits.overlap_chunk_bytes, native.copy_threads(),
                                              max(deadline - time.monotonic(), 0.0), ctypes.byref(outcome))
        if handle is None:
            if outcome.kind == NOT_PINNED:
                return outcome.fallback.decode() or "the memory is not pinned"
            self._check(outcome, copies.names, keep, patience)
            return "there is nothing to copy"
        self._held.append(keep)
        path, fallback = path_of(outcome, copies.names)
        return OverlappedCopies(self, handle, copies.names, keep, begun, deadline, path, fallback, outcome.pinned_bytes)

    def find_blocks(self, copies: DeviceCopyList, deadline: float,
                    kept: object = None) -> list[Block]:
        """Waits until the streams of arrays have done their work, and finds the allocations that the arrays are in.

        Args:
          kept: what keeps those alive that have no owner.

        Returns:
          The blocks, ascending. The helper keeps them until it is asked again, or forget_blocks() is called.

        Raises:
          Error: as to_host().
        """
        rows, dimensions = copies.tables()
        streams = numpy.array(copies.streams, numpy.uint64)
        outcome = Outcome()
        begun = time.monotonic()
        handle = self._open(max(deadline - begun, 0.0))
        blocks = _LIBRARY.cairn_blocks_find(handle, rows.ctypes.data, len(rows), dimensions.ctypes.data,
                                            streams.ctypes.data, max(deadline - time.monotonic(), 0.0),
                                            ctypes.byref(outcome))
        self._check(outcome, copies.names, (kept, copies.owners), time.monotonic() - begun)
        try:
            return read(_LIBRARY.cairn_blocks_data(blocks), _LIBRARY.cairn_blocks_count(blocks))
        finally:
            _LIBRARY.cairn_blocks_free(blocks)

    def export_blocks(self, handles: Sequence[int], deadline: float) -> list[int]:
        """Returns descriptors of blocks that were found last; the caller closes them. Raises as to_host()."""
        numbers = numpy.array(handles, numpy.uint64)
        files = numpy.full(len(handles), -1, numpy.int32)
        outcome = Outcome()
        begun = time.monotonic()
        _LIBRARY.cairn_blocks_export(self._open(max(deadline - begun, 0.0)), numbers.ctypes.data, len(numbers),
                                     max(deadline - time.monotonic(), 0.0), files.ctypes.data, ctypes.byref(outcome))
        self._check(outcome, (), None, time.monotonic() - begun)
        return [int(each) for each in files]

    def forget_blocks(self) -> None:
        """Lets go of the blocks that were found last, if the driver answers soon."""
        if self._handle is not None and not self.busy():
            _LIBRARY.cairn_blocks_forget(self._handle, self._limits.driver_release, ctypes.byref(Outcome()))

    def let_go(self, keep: object) -> None:
        """The copies that `keep` belongs to have ended."""
        self._held[:] = [held for held in self._held if held is not keep]

    def _number_of(self, memory: object) -> int:
        """Returns the number under which memory was pinned; 0 if nobody tried to."""
        return self._numbers.get(memory, 0) if isinstance(memory, MappedMemory) else 0

    def checksums(self, arrays: Iterable[tuple[str, DeviceArray]], deadline: float, kept: object) -> list[int]:
        """Returns the CRC32C of each array in row-major order. `kept` keeps those alive that have no owner. Raises as
        to_host() does."""
        copies = DeviceCopyList()
        result: list[int] = []
        packed: list[int] = []
        for name, array in arrays:
            if array.flags.c_contiguous:
                copies.add_device_array(name, array, 0, -1, 0)
                packed.append(len(result))
                result.append(0)
            else:
                result.append(self._checksum_on_host(name, array, max(deadline - time.monotonic(), 0.0), kept))
        if packed:
            rows, dimensions = copies.tables()
            streams = numpy.array(copies.streams, numpy.uint64)
            sums = numpy.zeros(len(rows), numpy.uint32)
            outcome = Outcome()
            begun = time.monotonic()
            handle = self._open(max(deadline - begun, 0.0))
            _LIBRARY.cairn_device_checksum(handle, rows.ctypes.data, len(rows), dimensions.ctypes.data,
                                           streams.ctypes.data, max(deadline - time.monotonic(), 0.0),
                                           sums.ctypes.data, ctypes.byref(outcome))
            self._check(outcome, copies.names, (kept, copies.owners), time.monotonic() - begun)
            for position, value in zip(packed, sums, strict=True):
                result[position] = int(value)
        return result

    def fingerprints(self, arrays: Iterable[tuple[str, DeviceArray, tuple[int, ...]]], deadline: float,
                     kept: object) -> list[int]:
        """Returns the part of a fingerprint that each array makes. The devices compute it, but for arrays that are not
        contiguous and where a device has no memory left.

        Args:
          arrays: name, array, and its place as cairn_fingerprint takes it.
          kept: what keeps those alive that have no owner.

        Raises:
          Error: as to_host().
        """
        copies = DeviceCopyList()
        result: list[int] = []
        packed: list[int] = []
        places: list[int] = []
        for name, array, place in arrays:
            if array.flags.c_contiguous:
                copies.add_device_array(name, array, 0, -1, 0)
                packed.append(len(result))
                places += place
                result.append(0)
            else:
                check, _data = self._copied(name, array, max(deadline - time.monotonic(), 0.0), kept)
                result += check.fingerprints(place)
        if packed:
            rows, dimensions = copies.tables()
            streams = numpy.array(copies.streams, numpy.uint64)
            boxes = numpy.array(places, numpy.int64)
            parts = numpy.zeros(len(rows), numpy.uint64)
            outcome = Outcome()
            begun = time.monotonic()
            handle = self._open(max(deadline - begun, 0.0))
            _LIBRARY.cairn_device_fingerprint(handle, rows.ctypes.data, len(rows), dimensions.ctypes.data,
                                              streams.ctypes.data, boxes.ctypes.data,
                                              max(deadline - time.monotonic(), 0.0), parts.ctypes.data,
                                              ctypes.byref(outcome))
            self._check(outcome, copies.names, (kept, copies.owners), time.monotonic() - begun)
            for position, value in zip(packed, parts, strict=True):
                result[position] = int(value)
        return result

    def _checksum_on_host(self, name: str, array: DeviceArray, timeout: float, kept: object) -> int:
        check, _data = self._copied(name, array, timeout, kept)
        return check.checksums()[0]

    def _copied(self, name: str, array: DeviceArray, timeout: float,
                kept: object) -> tuple[native.CopyList, numpy.ndarray]:
        """Returns a list whose only source is a copy of an array, and the copy, which must stay as long. The ring has
        the elements in the order of the device's memory, which is another one here."""
        data = numpy.empty(array.nbytes, numpy.uint8)
        copies = DeviceCopyList()
        copies.add_device_array(name, array, data.ctypes.data, data.nbytes, 0)
        self.to_host(copies, data, timeout, kept)
        check = native.CopyList()
        check.add_array(data, 0, -1, 0)
        return check, data

    def _check(self, outcome: Outcome, names: Sequence[str], memory: object, timeout: float) -> None:
        if outcome.kind == STALLED:
            self._held.append(memory)
        error = error_of(outcome, names, timeout)
        if error is not None:
            raise error

    # Pinning.

    def pin(self, mapping: MappedMemory, arrays: Iterable[DeviceArray], timeout: float) -> None:
        """Pins a mapping, if it is not pinned, for the device of the first array. It is unpinned before it is unmapped.

        If the driver refuses, copies take another path and say why.

        Raises:
          Error: DEVICE_STALLED, and DEVICE_ERROR of a driver that cannot be opened or cannot say where the arrays are.
        """
        if mapping in self._settled:
            return
        deadline = time.monotonic() + timeout
        handle = self._open(timeout)
        addresses = numpy.array([array.address for array in arrays if array.nbytes], numpy.uint64)
        device = ctypes.c_int64()
        outcome = Outcome()
        _LIBRARY.cairn_device_locate(handle, addresses.ctypes.data, len(addresses),
                                     max(deadline - time.monotonic(), 0.0), ctypes.byref(device), ctypes.byref(outcome))
        self._check(outcome, (), None, timeout)
        if device.value < 0:
            return  # copying will name the array
        number = self._numbers.get(mapping)
        if number is None:
            number = self._numbers[mapping] = next(_NUMBERS)
            # This comes first: a driver that hangs may pin the memory long after this call has given up.
            mapping.end_by(functools.partial(self._release, number))
        _LIBRARY.cairn_device_pin(handle, number, device.value, mapping.address, mapping.size,
                                  self._limits.pin_piece_bytes,
                                  max(deadline - time.monotonic(), 0.0), ctypes.byref(outcome))
        if outcome.kind == STALLED:
            self._check(outcome, (), mapping, timeout)
        self._settled.add(mapping)

    def _release(self, number: int, address: int, size: int) -> None:
        """Unpins memory that nobody uses any more, and unmaps it. While a copy runs, that is done when it ends."""
        with self._lock:
            if self._handle is None:
                unmap(address, size)  # all was unpinned when this was closed
            else:
                _LIBRARY.cairn_device_release(self._handle, number, address, size, self._limits.driver_release)

    def keeps_memory(self) -> bool:
        """Returns whether memory that nobody uses any more is still mapped, because the driver is not done with it."""
        with self._lock:
            return self._handle is not None and bool(_LIBRARY.cairn_device_releasing(self._handle))

    def handle_types(self, array: DeviceArray) -> int:
        """Returns what its memory can be exported as: 1 a descriptor, 8 a fabric handle, 0 neither; -1: not known."""
        return int(_LIBRARY.cairn_device_handle_types(self._open(_DOCTOR_SECONDS), array.address))

    # The driver.

    def busy(self) -> bool:
        """Returns whether a copy from before still hangs in the driver."""
        if self._handle is not None and _LIBRARY.cairn_device_busy(self._handle):
            return True
        self._held.clear()
        return False

    def waiting(self) -> str:
        """Returns what the driver has not done yet, such as "cuMemcpyDtoHAsync has not returned for 2 s"."""
        if self._handle is None:
            return ""
        text = ctypes.create_string_buffer(256)
        _LIBRARY.cairn_device_waiting(self._handle, text, len(text))
        return text.value.decode()

    def _open(self, timeout: float) -> int:
        if not self._lock.acquire(timeout=min(max(timeout, 0.0), threading.TIMEOUT_MAX)):
            raise Error("DEVICE_STALLED", f"another thread waits for the GPU's driver ({timeout:g} s)")
        try:
            if self._closed:
                raise Error("BAD_REQUEST", "this client was closed")
            if self._handle is None:
                outcome = Outcome()
                libcuda = self._libcuda or driver_library()
                self._handle = _LIBRARY.cairn_device_open(libcuda.encode(), self._limits.ring_slot_bytes, timeout,
                                                          ctypes.byref(outcome))
                if self._handle is None:
                    text = outcome.text.decode()
                    if outcome.kind == STALLED:
                        raise Error("DEVICE_STALLED", "an array is on a GPU, and CUDA's driver does not start: "
                                    f"{text} ({timeout:.3g} s)")
                    raise Error("DEVICE_ERROR", f"an array is on a GPU, and CUDA's driver cannot be opened: {text}",
                                {"next": _NEXT_WITHOUT_DRIVER})
            return self._handle
        finally:
            self._lock.release()

    def close(self) -> None:
        """Gives up all memory and streams, unless a copy hangs: then it is given up when that ends."""
        if self.busy():
            _HANGING.append(list(self._held))
        with self._lock:
            self._closed = True
            if self._handle is None or os.getpid() != self._process:
                return
            # If Ctrl-C comes here, nobody uses a handle that is freed.
            handle, self._handle = self._handle, None
            if not _LIBRARY.cairn_device_close(handle):
                self._handle = handle  # a copy hangs, and memory is released later


# No two pieces of memory that were ever pinned have the same one.
_NUMBERS = itertools.count(1)
# Memory of clients that were closed while a copy hung.
_HANGING: list[object] = []


class OverlappedCopies:
    """Copies that go on behind the trainer's back. Made by Devices.begin_overlap(). Thread-safe.

    Attributes:
      path, fallback: as DeviceReport's.
      pinned_bytes: of the host's memory that are pinned.
    """

    def __init__(self, devices: Devices, handle: int, names: Sequence[str], keep: object, begun: float,
                 deadline: float, path: str, fallback: str, pinned_bytes: int) -> None:
        self.path = path
        self.fallback = fallback
        self.pinned_bytes = pinned_bytes
        self._devices = devices
        self._handle = handle
        self._names = names
        self._keep: object = keep  # what the copies read and write
        self._begun = begun
        self._deadline = deadline
        self._process = os.getpid()
        self._ended = False

    def guard(self, streams: typing.Mapping[int, int]) -> None:
        """Lets streams (device -> number) wait until the copies have ended, and the default streams of other devices.

        The caller itself waits only until the driver knows. If that does not become so by the deadline, the save fails.
        """
        if self._ended or os.getpid() != self._process:
            return
        ordinals = numpy.array(list(streams.keys()), numpy.int64)
        numbers = numpy.array(list(streams.values()), numpy.uint64)
        _LIBRARY.cairn_overlap_guard(self._handle, ordinals.ctypes.data, numbers.ctypes.data, len(ordinals),
                                     max(self._deadline - time.monotonic(), 0.0))

    def wait(self) -> DeviceReport:
        """Returns when all is copied and checked.

        Raises:
          Error: DEVICE_STALLED (not by the deadline; what the copies use is kept), DEVICE_ERROR, TORN_SNAPSHOT.
        """
        outcome = Outcome()
        if not _LIBRARY.cairn_overlap_await(self._handle, max(self._deadline - time.monotonic(), 0.0),
                                            ctypes.byref(outcome)):
            raise Error("DEVICE_STALLED", "the GPU's driver has not ended the copies of an overlapped save: "
                        f"{self._devices.waiting()} ({self._deadline - self._begun:g} s)")
        self._ended = True
        self._devices.let_go(self._keep)
        self._keep = None
        error = error_of(outcome, self._names, 0.0)
        if error is not None:
            raise error
        return report_of(outcome, self._names, time.monotonic() - self._begun)

    def __del__(self) -> None:
        if os.getpid() == self._process:
            _LIBRARY.cairn_overlap_free(self._handle)


def probe(libcuda: str, probe_bytes: int = 256 << 20) -> tuple[bool, str]:
    """Returns whether there is a driver, and what a look at it found, for people. It waits as long as the driver does.

    Args:
      libcuda: the driver: a name that the loader looks up, or a path.
      probe_bytes: of the host's and the first device's memory that are taken for a moment.
    """
    text = ctypes.create_string_buffer(1 << 16)
    found = _LIBRARY.cairn_device_probe(libcuda.encode(), probe_bytes, text, len(text))
    return bool(found), text.value.decode(errors="replace")


def _declare_functions() -> ctypes.CDLL:
    library = native.LIBRARY
    pointer, number, seconds = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    library.cairn_device_probe.argtypes = [ctypes.c_char_p, number, ctypes.c_char_p, number]
    library.cairn_device_probe.restype = number
    library.cairn_device_handle_types.argtypes = [pointer, ctypes.c_uint64]
    library.cairn_device_handle_types.restype = number
    library.cairn_device_open.argtypes = [ctypes.c_char_p, number, seconds, pointer]
    library.cairn_device_open.restype = pointer
    library.cairn_device_close.argtypes = [pointer]
    library.cairn_device_close.restype = number
    library.cairn_device_busy.argtypes = [pointer]
    library.cairn_device_busy.restype = number
    library.cairn_device_waiting.argtypes = [pointer, ctypes.c_char_p, number]
    library.cairn_device_locate.argtypes = [pointer, pointer, number, seconds, pointer, pointer]
    library.cairn_device_pin.argtypes = [pointer, ctypes.c_uint64, number, pointer, number, number, seconds, pointer]
    library.cairn_device_release.argtypes = [pointer, ctypes.c_uint64, pointer, number, seconds]
    library.cairn_device_releasing.argtypes = [pointer]
    library.cairn_device_releasing.restype = number
    library.cairn_device_copy.argtypes = [pointer, number, ctypes.c_uint64, pointer, number, pointer, pointer, number,
                                          seconds, pointer]
    library.cairn_device_checksum.argtypes = [pointer, pointer, number, pointer, pointer, seconds, pointer, pointer]
    library.cairn_device_fingerprint.argtypes = [pointer, pointer, number, pointer, pointer, pointer, seconds, pointer,
                                                 pointer]
    library.cairn_blocks_find.argtypes = [pointer, pointer, number, pointer, pointer, seconds, pointer]
    library.cairn_blocks_find.restype = pointer
    library.cairn_blocks_count.argtypes = [pointer]
    library.cairn_blocks_count.restype = number
    library.cairn_blocks_data.argtypes = [pointer]
    library.cairn_blocks_data.restype = pointer
    library.cairn_blocks_free.argtypes = [pointer]
    library.cairn_blocks_export.argtypes = [pointer, pointer, number, seconds, pointer, pointer]
    library.cairn_blocks_forget.argtypes = [pointer, seconds, pointer]
    library.cairn_overlap_begin.argtypes = [pointer, ctypes.c_uint64, pointer, number, pointer, pointer, pointer,
                                            number, number, number, seconds, pointer]
    library.cairn_overlap_begin.restype = pointer
    library.cairn_overlap_guard.argtypes = [pointer, pointer, pointer, number, seconds]
    library.cairn_overlap_guard.restype = number
    library.cairn_overlap_await.argtypes = [pointer, seconds, pointer]
    library.cairn_overlap_await.restype = number
    library.cairn_overlap_free.argtypes = [pointer]
    library.cairn_overlap_free.restype = None
    for function in (library.cairn_device_waiting, library.cairn_device_locate, library.cairn_device_pin,
                     library.cairn_device_release, library.cairn_device_copy, library.cairn_device_checksum,
                     library.cairn_device_fingerprint, library.cairn_blocks_free, library.cairn_blocks_export,
                     library.cairn_blocks_forget):
        function.restype = None
    return library


_LIBRARY = _declare_functions()
