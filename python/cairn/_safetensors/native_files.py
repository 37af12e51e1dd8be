"""Calls the native reader of files (python/native/file_interface.h), and what reads safetensors headers there."""

from __future__ import annotations

import array
import ctypes
import errno
import json
import os
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy

from cairn._base import native
from cairn._base.errors import Error

# These are kinds of FileReadOutcome.
_DONE, _ERRNO, _TRUNCATED, _NOT_REGULAR, _NO_MEMORY, _CANCELLED = range(6)
# A call of the library waits so many seconds at most, so that Ctrl-C is seen.
_TURN = 0.2
# So long an interrupted read is waited for, which ends sooner unless the storage hangs.
_END_OF_CANCELLED = 2.0
_COPY_AGAIN = "Copy the files of the model again, all of one version."


class SourceFile(NamedTuple):
    """A file that is read, and how many bytes it has."""

    path: str
    nbytes: int


class ReadStatistics(NamedTuple):
    """Bytes that a read took from the page cache, from storage through it, and from storage past it."""

    cached: int
    buffered: int
    direct: int


class _Outcome(ctypes.Structure):
    """Is CairnFileOutcome."""

    _fields_ = [(name, ctypes.c_int64) for name in
                ("kind", "error", "file", "offset", "cached_bytes", "buffered_bytes", "direct_bytes")]


class PieceTable:
    """Parts of tensors in files, and where they go: rows of CairnFileShard. Not thread-safe."""

    def __init__(self) -> None:
        self._rows = array.array("q")
        self._numbers = array.array("q")
        self.kept: list[object] = []
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self.kept)

    def add(self, file: int, position: int, itemsize: int, global_shape: Sequence[int], offset: Sequence[int],
            shape: Sequence[int], begin: int, end: int, flat: bool, target: numpy.ndarray[Any, Any]) -> None:
        """Adds a part: elements [begin, end) of the flattened box of a tensor that begins at `position` of a file."""
        self._rows.extend((file, position, itemsize, len(global_shape), len(self._numbers), begin, end, flat,
                           target.__array_interface__["data"][0]))
        for numbers in (global_shape, offset, shape, target.strides):
            self._numbers.extend(numbers)
        self.kept.append(target)
        self.nbytes += target.nbytes

    def tables(self) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
        return numpy.array(self._rows, numpy.int64), numpy.array(self._numbers, numpy.int64)


class FileRead:
    """A read of many parts, which goes on by itself."""

    def __init__(self, files: Sequence[SourceFile], table: PieceTable, threads: int, shared: bool) -> None:
        """Begins it. Raises MEMORY_LIMIT, and INTERNAL for a part that leaves its file."""
        self._files = files
        self._total = table.nbytes
        self._kept = table.kept
        rows, numbers = table.tables()
        paths = (ctypes.c_char_p * len(files))(*(os.fsencode(file.path) for file in files))
        sizes = numpy.array([file.nbytes for file in files], numpy.int64)
        bad = ctypes.c_int64()
        self._handle = _LIBRARY.cairn_file_read_begin(paths, sizes.ctypes.data, len(files), rows.ctypes.data,
                                                      len(table), numbers.ctypes.data, threads, shared,
                                                      ctypes.byref(bad))
        if not self._handle and bad.value < 0:
            raise Error("MEMORY_LIMIT", "there is no memory to read files")
        if not self._handle:
            raise Error("INTERNAL", f"a part leaves its file: {rows.reshape(-1, 9)[bad.value].tolist()}")

    def finish(self, deadline: float) -> ReadStatistics:
        """Waits until all is read.

        Args:
          deadline: time.monotonic() until which that must be.

        Raises:
          Error: FILE_MISSING, FILE_TRUNCATED, STORAGE_ERROR, MEMORY_LIMIT; TIMED_OUT. After the last of these the
            storage may still write to the targets, so they are kept until it does not.
        """
        begun = time.monotonic()
        try:
            while not self._wait(min(_TURN, max(deadline - time.monotonic(), 0.0))):
                if time.monotonic() >= deadline:
                    raise self._late(time.monotonic() - begun)
        except BaseException:
            self.abandon()
            raise
        outcome = self._outcome
        self._free()
        if outcome.kind != _DONE:
            raise self._error(outcome)
        return ReadStatistics(outcome.cached_bytes, outcome.buffered_bytes, outcome.direct_bytes)

    def _wait(self, seconds: float) -> bool:
        self._outcome = _Outcome()
        return bool(_LIBRARY.cairn_file_read_wait(self._handle, seconds, ctypes.byref(self._outcome)))

    def abandon(self) -> None:
        """Ends a read that may not have been finished. Threads that hang in storage keep what they may write to, also
        if this call is interrupted."""
        if self._handle is None:
            return
        if self not in _hanging:
            _hanging.append(self)
        _LIBRARY.cairn_file_read_cancel(self._handle)
        self._wait(_END_OF_CANCELLED)
        with _sweeping:
            for read in list(_hanging):
                if read._wait(0.0):
                    _hanging.remove(read)
                    read._free()

    def _free(self) -> None:
        """Its threads have ended."""
        handle, self._handle = self._handle, None
        self._kept = []
        _LIBRARY.cairn_file_read_free(handle)

    def _late(self, seconds: float) -> Error:
        outcome = self._outcome
        path = self._files[outcome.file].path
        done = outcome.cached_bytes + outcome.buffered_bytes + outcome.direct_bytes
        return Error("TIMED_OUT", f"after {seconds:.0f} s {done} of {self._total} bytes were read; {path} is being "
                     f"read at byte {outcome.offset}",
                     {"file": path, "next": "Look whether the storage of that file answers; if it is only slow, give a "
                      "longer timeout. Do not use the arrays: they may still be written to."})

    def _error(self, outcome: _Outcome) -> Error:
        path = self._files[outcome.file].path if self._files else ""
        about = {"file": path}
        if outcome.kind == _ERRNO:
            return errno_error(outcome.error, f"read {path} at byte {outcome.offset}", path)
        if outcome.kind == _TRUNCATED:
            return Error("FILE_TRUNCATED", f"{path} has another length than the {self._files[outcome.file].nbytes} "
                         "bytes that it had when its header was read", {**about, "next": _COPY_AGAIN})
        if outcome.kind == _NOT_REGULAR:
            return Error("STORAGE_ERROR", f"{path} is no regular file", {**about, "next": _COPY_AGAIN})
        return Error("MEMORY_LIMIT", "no memory or thread was to be had to read files")


# Reads that were given up, and may hang in storage.
_hanging: list[FileRead] = []
_sweeping = threading.Lock()


def errno_error(number: int, what: str, path: str) -> Error:
    """Returns the error for a call of the system that failed while a model's file was read."""
    about = {"file": path, "errno": str(number)}
    text = f"{what}: {os.strerror(number)}"
    if number == errno.ENOENT:
        return Error("FILE_MISSING", text, {**about, "next": _COPY_AGAIN})
    if number in (errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        return Error("MEMORY_LIMIT", text, about)
    return Error("STORAGE_ERROR", text, about)


def header_of(data: bytes, file_bytes: int, path: str) -> dict[str, Any]:
    """Reads the header of a safetensors file, of which `data` is the begin. Nothing in it is trusted.

    Returns:
      What cairn_safetensors_header says of it.

    Raises:
      Error: BAD_SAFETENSORS, FILE_TRUNCATED, UNSUPPORTED.
    """
    result: dict[str, Any] = _json(path, _LIBRARY.cairn_safetensors_header, data, len(data), file_bytes)
    return result


def index_of(data: bytes, path: str) -> list[tuple[str, str]]:
    """Returns which tensor a model.safetensors.index.json says to be in which file. Raises BAD_SAFETENSORS."""
    return [(tensor, file) for tensor, file in _json(path, _LIBRARY.cairn_safetensors_index, data, len(data))]


def missing_of_numbered(names: Sequence[str]) -> dict[str, int]:
    """Returns how many files of a numbered set are not among the names, for each set that is not complete."""
    data = b"\0".join(os.fsencode(name) for name in names)
    return dict(_json("", _LIBRARY.cairn_numbered_files, data, len(data)))


def tied_names(names: Sequence[str], metadata: Sequence[Sequence[str]], config: bytes) -> dict[str, str]:
    """Returns second names of stored tensors, by what the files' metadata and config.json say."""
    stored = b"\0".join(name.encode() for name in names)
    pairs = b"\0".join(text.encode() for pair in metadata if not any("\0" in text for text in pair) for text in pair)
    return dict(_json("", _LIBRARY.cairn_tied_names, stored, len(stored), pairs, len(pairs), config, len(config)))


def _json(path: str, function: Any, *arguments: Any) -> Any:
    text, size = ctypes.c_void_p(), ctypes.c_int64()
    good = function(*arguments, ctypes.byref(text), ctypes.byref(size))
    if not text.value:
        raise Error("MEMORY_LIMIT", f"there is no memory to read {path}")
    result = ctypes.string_at(text.value, size.value)
    _LIBRARY.cairn_free_text(text)
    if good == 1:
        return json.loads(result.decode(errors="surrogateescape"))
    reason, message = result.decode(errors="replace").split(": ", 1)
    raise Error(reason, f"{path}: {message}", {"file": path, "next": _COPY_AGAIN} if reason != "UNSUPPORTED"
                else {"file": path})


def _declare_functions() -> ctypes.CDLL:
    library = native.LIBRARY
    pointer, number, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
    library.cairn_file_read_begin.argtypes = [pointer, pointer, number, pointer, number, pointer, number, number,
                                              pointer]
    library.cairn_file_read_begin.restype = pointer
    library.cairn_file_read_wait.argtypes = [pointer, ctypes.c_double, pointer]
    library.cairn_file_read_wait.restype = number
    library.cairn_file_read_cancel.argtypes = [pointer]
    library.cairn_file_read_cancel.restype = None
    library.cairn_file_read_free.argtypes = [pointer]
    library.cairn_file_read_free.restype = None
    library.cairn_safetensors_header.argtypes = [text, number, number, pointer, pointer]
    library.cairn_safetensors_index.argtypes = [text, number, pointer, pointer]
    library.cairn_numbered_files.argtypes = [text, number, pointer, pointer]
    library.cairn_tied_names.argtypes = [text, number, text, number, text, number, pointer, pointer]
    for function in (library.cairn_safetensors_header, library.cairn_safetensors_index, library.cairn_numbered_files,
                     library.cairn_tied_names):
        function.restype = number
    return library


_LIBRARY = _declare_functions()
