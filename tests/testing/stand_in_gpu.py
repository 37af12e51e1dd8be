"""The stand-in for CUDA's driver in this process, and arrays on its devices."""

from __future__ import annotations

import ctypes
import os
import pathlib

import numpy

LIBRARY = pathlib.Path(os.environ.get(
    "CAIRN_STAND_IN_CUDA",
    pathlib.Path(__file__).resolve().parents[2] / "bazel-bin/tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so"))

ILLEGAL_ADDRESS, UNKNOWN = 700, 999


class StandInGpu:
    """See tests/testing/stand_in/cuda/controls.h for what can be set."""

    def __init__(self):
        if not LIBRARY.exists():
            raise FileNotFoundError(f"{LIBRARY}: run bazel build //tests/testing/stand_in/cuda:all")
        self.library = ctypes.CDLL(str(LIBRARY))
        self.library.cairn_stand_in_count.restype = ctypes.c_int64
        self.library.cairn_stand_in_alias.restype = ctypes.c_void_p
        self.library.cairn_stand_in_alias.argtypes = [ctypes.c_uint64]
        assert self.library.cuInit(0) == 0
        self.library.cairn_stand_in_reset()
        self._stream = self._context = None

    def set(self, name, value):
        assert self.library.cairn_stand_in_set(name.encode(), ctypes.c_int64(value)) == 0

    def fail(self, function, result=UNKNOWN, nth=1):
        self.library.cairn_stand_in_fail(function.encode(), ctypes.c_int64(nth), ctypes.c_int64(result))

    def hang(self, function):
        self.library.cairn_stand_in_hang(None if function is None else function.encode())

    def count(self, name):
        return self.library.cairn_stand_in_count(name.encode())

    def reset(self):
        self.library.cairn_stand_in_reset()

    def held(self):
        """What was taken from the driver and not given back, but for the arrays."""
        return {name: self.count(name) for name in ("registered_bytes", "allocated_host_bytes", "streams", "events")}

    def stream(self):
        """Returns the number of a stream of device 0, which is none of those that wait for the default stream."""
        if self._stream is None:
            context, stream = ctypes.c_void_p(), ctypes.c_void_p()
            assert self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
            with _Current(self.library, context):
                assert self.library.cuStreamCreate(ctypes.byref(stream), 1) == 0
            self._stream, self._context = stream.value, context
        return self._stream

    def begin_capture(self):
        """Lets stream() record a CUDA graph, in torch's mode: unsafe calls of other threads end it."""
        with _Current(self.library, self._context):
            assert self.library.cuStreamBeginCapture_v2(ctypes.c_void_p(self._stream), 0) == 0

    def end_capture(self):
        """Returns whether nothing has disturbed it."""
        with _Current(self.library, self._context):
            return self.library.cuStreamEndCapture(ctypes.c_void_p(self._stream), ctypes.byref(ctypes.c_void_p())) == 0

    def synchronize(self):
        """Waits for the default stream, and for the one of stream()."""
        context = ctypes.c_void_p()
        assert self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        with _Current(self.library, context):
            for stream in (None, self._stream):
                assert self.library.cuStreamSynchronize(ctypes.c_void_p(stream)) == 0
        self.library.cuDevicePrimaryCtxRelease_v2(0)

    def close(self):
        """Gives the stream back."""
        if self._stream is not None:
            with _Current(self.library, self._context):
                self.library.cuStreamDestroy_v2(ctypes.c_void_p(self._stream))
            self.library.cuDevicePrimaryCtxRelease_v2(0)
            self._stream = None

    def array(self, values, device=0, by_handles=False, handle_types=1, **interface):
        """Makes an array; `by_handles`: of memory as torch's expandable segments have it, 2 MiB behind each handle."""
        memory = HandleMemory(self.library, device, handle_types) if by_handles else PlainMemory(self.library, device)
        return GpuArray(self, numpy.asarray(values), device, interface, memory)


class GpuArray:
    """An array on a device, as CuPy and Numba show theirs. Its memory order is that of the values it is made of."""

    def __init__(self, gpu, values, device, interface, memory):
        self._gpu = gpu
        library, context = gpu.library, ctypes.c_void_p()
        assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
        self._context, self._device, self._memory = context, device, memory
        span = sum((n - 1) * s for n, s in zip(values.shape, values.strides)) + values.itemsize if values.size else 1
        with self._current():
            self.address = memory.allocate(max(span, 1))
        self.values = self._view(values)
        self.values[...] = values
        self.__cuda_array_interface__ = {"shape": values.shape, "strides": values.strides, "version": 3,
                                         "typestr": values.dtype.str, "data": (self.address, False), "stream": None,
                                         **interface}

    def _view(self, like):
        """A numpy array of the same pages, where the host may touch them."""
        alias = self._gpu.library.cairn_stand_in_alias(self.address)
        span = sum((n - 1) * s for n, s in zip(like.shape, like.strides)) + like.itemsize if like.size else 0
        raw = (ctypes.c_char * span).from_address(alias)
        return numpy.ndarray(like.shape, like.dtype, raw, strides=like.strides)

    def _current(self):
        return _Current(self._gpu.library, self._context)

    def enqueue(self, values, stream=None):
        """Writes to it when a stream gets there. Returns what must live until then: pinned memory."""
        library, memory = self._gpu.library, ctypes.c_void_p()
        values = numpy.ascontiguousarray(values)
        with self._current():
            assert library.cuMemHostAlloc(ctypes.byref(memory), ctypes.c_size_t(values.nbytes), 1) == 0
            ctypes.memmove(memory, values.ctypes.data, values.nbytes)
            assert library.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(self.address), memory, ctypes.c_size_t(values.nbytes),
                                                ctypes.c_void_p(stream)) == 0
        return _Pinned(self, memory, values.nbytes)

    def remake(self):
        """Frees the memory, and makes other memory at the same address."""
        with self._current():
            self._memory.remake()

    def free(self):
        with self._current():
            self._memory.free()
        self._gpu.library.cuDevicePrimaryCtxRelease_v2(self._device)


class PlainMemory:
    """Memory of cuMemAlloc. Both kinds take any driver, and its context is current while they are called."""

    def __init__(self, library, device):
        self._library = library
        self._address = ctypes.c_uint64()

    def allocate(self, size):
        assert self._library.cuMemAlloc_v2(ctypes.byref(self._address), ctypes.c_size_t(size)) == 0
        return self._address.value

    def free(self):
        assert self._library.cuMemFree_v2(self._address) == 0


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location_type", ctypes.c_int),
                ("device", ctypes.c_int), ("windows", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8))


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location_type", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int))


class HandleMemory:
    """Memory as torch's expandable segments have it: pieces by handles, one behind the other."""

    PIECE = 2 << 20

    def __init__(self, library, device, handle_types):
        self._library, self._device, self._handle_types = library, device, handle_types
        self._address = ctypes.c_uint64()
        self._size = 0

    def allocate(self, size):
        self._size = -(-size // self.PIECE) * self.PIECE
        assert self._library.cuMemAddressReserve(ctypes.byref(self._address), ctypes.c_size_t(self._size),
                                                 ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0)) == 0
        self._map()
        return self._address.value

    def _map(self):
        properties = _Properties(1, self._handle_types, 1, self._device)
        for at in range(0, self._size, self.PIECE):
            handle = ctypes.c_uint64()
            assert self._library.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(self.PIECE),
                                             ctypes.byref(properties), ctypes.c_uint64(0)) == 0
            assert self._library.cuMemMap(ctypes.c_uint64(self._address.value + at), ctypes.c_size_t(self.PIECE),
                                          ctypes.c_size_t(0), handle, ctypes.c_uint64(0)) == 0
            assert self._library.cuMemRelease(handle) == 0
        access = _Access(1, self._device, 3)
        assert self._library.cuMemSetAccess(self._address, ctypes.c_size_t(self._size), ctypes.byref(access),
                                            ctypes.c_size_t(1)) == 0

    def remake(self):
        self._unmap()
        self._map()

    def _unmap(self):
        assert self._library.cuMemUnmap(self._address, ctypes.c_size_t(self._size)) == 0

    def free(self):
        self._unmap()
        assert self._library.cuMemAddressFree(self._address, ctypes.c_size_t(self._size)) == 0


class _Pinned:
    """Gives the memory back when it is dropped."""

    def __init__(self, array, memory, size):
        self._array, self._memory, self._size = array, memory, size

    def __len__(self):
        return self._size

    def __del__(self):
        self._array._gpu.synchronize()
        with self._array._current():
            self._array._gpu.library.cuMemFreeHost(self._memory)


class _Current:
    def __init__(self, library, context):
        self._library, self._context = library, context

    def __enter__(self):
        assert self._library.cuCtxPushCurrent_v2(self._context) == 0

    def __exit__(self, *_):
        self._library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
