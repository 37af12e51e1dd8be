"""Calls the native helper library: strided copies, checksums, fenced words, forked children (python/native)."""

from __future__ import annotations

import array
import ctypes
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy

from cairn._base.arrays import Array
from cairn._base.errors import Error

_INTERFACE_VERSION = 11
# These are the columns of a row of the copies' table, as in struct CairnCopy.
SOURCE, SOURCE_BYTES, SOURCE_OFFSET, TARGET, TARGET_BYTES, TARGET_OFFSET, ELEMENT_BYTES, DIMENSIONS, FIRST, CASTS = (
    range(10)
)


def _load() -> ctypes.CDLL:
    path = pathlib.Path(__file__).parents[1] / "libcairn_trainer.so"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"{error}: run tools/build and import cairn from dist/python") from error
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.cairn_interface_version.restype = number
    if library.cairn_interface_version() != _INTERFACE_VERSION:
        raise ImportError(f"{path} belongs to another version of the package: run tools/build again")
    library.cairn_copy.argtypes = [pointer, number, pointer, number, pointer, pointer]
    library.cairn_copy.restype = number
    library.cairn_checksum.argtypes = [pointer, number, pointer, number, pointer]
    library.cairn_checksum.restype = number
    library.cairn_fingerprint.argtypes = [pointer, number, pointer, number, pointer, pointer]
    library.cairn_fingerprint.restype = number
    library.cairn_read_pieces.argtypes = [pointer, number, number, pointer, pointer]
    library.cairn_read_pieces.restype = number
    library.cairn_keep_from_children.argtypes = [ctypes.c_char_p]
    library.cairn_keep_from_children.restype = number
    library.cairn_store_then_load.argtypes = [pointer, ctypes.c_uint64, pointer]
    library.cairn_store_then_load.restype = ctypes.c_uint64
    library.cairn_torch_value.argtypes = [pointer, number, ctypes.c_char_p, pointer, pointer]
    library.cairn_torch_value.restype = number
    library.cairn_free_text.argtypes = [pointer]
    library.cairn_free_text.restype = None
    return library


LIBRARY = _load()
store_then_load = LIBRARY.cairn_store_then_load


def keep_from_children(socket: pathlib.Path) -> None:
    """From now on forked children are cut off from this process's connections to this Unix socket."""
    LIBRARY.cairn_keep_from_children(os.fsencode(socket))


def copy_threads() -> int:
    """Two threads reach most of a socket's memory bandwidth; more would take cores from the training of neighbours."""
    text = os.environ.get("CAIRN_COPY_THREADS", "")
    if text:
        try:
            return min(max(int(text), 1), 64)
        except ValueError:
            raise Error("BAD_QUANTITY", f"CAIRN_COPY_THREADS={text!r} is no number") from None
    return min(len(os.sched_getaffinity(0)), 4)


_COLUMNS = 10
_PIECE_COLUMNS = 7  # as in struct CairnPiece


class CopyList:
    """Copies that are made together. Not thread-safe. Addresses must stay valid until the list is dropped."""

    def __init__(self) -> None:
        # numpy takes a table of numbers as it is, but a list of tuples one by one.
        self._rows = array.array("q")
        self._dimensions = array.array("q")
        self._tables: tuple[Array, Array] | None = None

    def __len__(self) -> int:
        return len(self._rows) // _COLUMNS

    def add(self, source: int, source_bytes: int, source_offset: int, target: int, target_bytes: int,
            target_offset: int, element_bytes: int, extent: Sequence[int] = (), source_stride: Iterable[int] = (),
            target_stride: Iterable[int] = (), casts: Sequence[int] = ()) -> None:
        """Adds a copy (see Copy in plan.proto). `source` and `target` are addresses; a size of -1 is not checked."""
        self._tables = None
        self._rows.extend((source, source_bytes, source_offset, target, target_bytes, target_offset, element_bytes,
                           len(extent), len(self._dimensions), len(casts)))
        if extent:
            self._dimensions.extend(extent)
            self._dimensions.extend(source_stride)
            self._dimensions.extend(target_stride)
        self._dimensions.extend(casts)

    def add_array(self, source: Array, target: int, target_bytes: int, target_offset: int) -> None:
        """Adds a copy of a whole array, in row-major order, to contiguous bytes."""
        address = source.__array_interface__["data"][0]
        if source.flags.c_contiguous:
            self.add(address, -1, 0, target, target_bytes, target_offset, source.nbytes)
        else:
            self.add(address, -1, 0, target, target_bytes, target_offset, source.itemsize, source.shape, source.strides,
                     row_major_strides(source.shape, source.itemsize))

    def tables(self) -> tuple[Array, Array]:
        """Returns a row for each copy, and what the rows point into."""
        if self._tables is None:
            self._tables = (numpy.array(self._rows, numpy.int64).reshape(-1, _COLUMNS),
                            numpy.array(self._dimensions, numpy.int64))
        return self._tables

    def run(self, base: int = 0, written: int | None = None) -> None:
        """Makes the copies.

        Args:
          written: address of a word that another process reads. Where all targets are contiguous and ascend, the
            distance of their end from `base` is stored there, as it grows: all targets below it are written.
        """
        if not self._rows:
            return
        rows, dimensions = self.tables()
        bad = LIBRARY.cairn_copy(rows.ctypes.data, len(rows), dimensions.ctypes.data, copy_threads(), base, written)
        if bad >= 0:
            raise Error("INTERNAL", f"a copy of the agent's plan leaves its buffer: {rows[bad].tolist()}")

    def fingerprints(self, boxes: Sequence[int]) -> list[int]:
        """Returns the part of a fingerprint that each copy's source makes. `boxes` is as cairn_fingerprint takes it."""
        if not self._rows:
            return []
        rows, dimensions = self.tables()
        places = numpy.array(boxes, numpy.int64)
        result = numpy.zeros(len(rows), numpy.uint64)
        bad = LIBRARY.cairn_fingerprint(rows.ctypes.data, len(rows), dimensions.ctypes.data, copy_threads(),
                                        places.ctypes.data, result.ctypes.data)
        if bad >= 0:
            raise Error("INTERNAL", f"a fingerprint's source is not valid: {rows[bad].tolist()}")
        return [int(value) for value in result]

    def checksums(self) -> list[int]:
        """Returns the CRC32C of each copy's source."""
        if not self._rows:
            return []
        rows, dimensions = self.tables()
        result = numpy.zeros(len(rows), numpy.uint32)
        bad = LIBRARY.cairn_checksum(rows.ctypes.data, len(rows), dimensions.ctypes.data, copy_threads(),
                                      result.ctypes.data)
        if bad >= 0:
            raise Error("INTERNAL", f"a checksum's source is not valid: {rows[bad].tolist()}")
        return [int(value) for value in result]


class PieceList:
    """Pieces of files that are read together, straight into arrays. Not thread-safe."""

    def __init__(self) -> None:
        self._rows = array.array("q")

    def add(self, descriptor: int, may_wait: bool, offset: int, size: int, target: int, target_bytes: int,
            target_offset: int) -> None:
        """Adds a piece (see struct CairnPiece). `target` is an address; descriptor and memory must stay."""
        self._rows.extend((descriptor, may_wait, offset, size, target, target_bytes, target_offset))

    def read(self) -> tuple[list[int], str]:
        """Reads the pieces. Returns the CRC32C of each as it stands in its target, and "".

        If a piece cannot be read, returns an empty list, and why. Targets may be overwritten then.
        """
        count = len(self._rows) // _PIECE_COLUMNS
        table = numpy.array(self._rows, numpy.int64)
        result = numpy.zeros(count, numpy.uint32)
        error = ctypes.c_int64()
        bad = LIBRARY.cairn_read_pieces(table.ctypes.data, count, copy_threads(), result.ctypes.data,
                                        ctypes.byref(error))
        if bad < 0:
            return result.tolist(), ""
        if error.value == 0:
            raise Error("INTERNAL", f"a piece of the agent's plan leaves its target: "
                        f"{table.reshape(-1, _PIECE_COLUMNS)[bad].tolist()}")
        return [], "the file ends before it" if error.value < 0 else os.strerror(error.value)


def torch_value(archive: bytes, name: str) -> bytes:
    """Returns a value that torch.save wrote as the bytes of an object. Nothing is unpickled.

    Raises:
      Error: BAD_FOREIGN_FILE, UNSUPPORTED or MEMORY_LIMIT, with the name.
    """
    text, size = ctypes.c_void_p(), ctypes.c_int64()
    done = LIBRARY.cairn_torch_value(archive, len(archive), name.encode(), ctypes.byref(text), ctypes.byref(size))
    result = ctypes.string_at(text.value, size.value) if text.value else b"MEMORY_LIMIT: no memory for a value"
    LIBRARY.cairn_free_text(text)
    if done == 1:
        return result
    reason, message = result.decode(errors="replace").split(": ", 1)
    raise Error(reason, message, {"object": name})


def row_major_strides(shape: Sequence[int], itemsize: int) -> list[int]:
    strides = [0] * len(shape)
    step = itemsize
    for i in range(len(shape) - 1, -1, -1):
        strides[i] = step
        step *= shape[i]
    return strides
