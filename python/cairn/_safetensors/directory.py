"""Finds the tensors of a directory of safetensors files: reads headers, and nothing behind them."""

from __future__ import annotations

import dataclasses
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from cairn._base.errors import Error
from cairn._base.results import listed
from cairn._safetensors.native_files import (
    SourceFile,
    errno_error,
    header_of,
    index_of,
    missing_of_numbered,
    tied_names,
)

_INDEX = "model.safetensors.index.json"
_ENDING = ".safetensors"
_MAX_INDEX_BYTES = 256 << 20
_MAX_CONFIG_BYTES = 1 << 20
_MAX_HEADER_BYTES = 100_000_000  # of the format
# Most headers are shorter, so one read is enough.
_FIRST_READ = 256 << 10
# So many files are asked at a time; a network answers each after a while only.
_THREADS = 8
_AGAIN = "Copy the files of the model again, all of one version."

_Found = TypeVar("_Found")


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Where a tensor is.

    Attributes:
      dtype: torch name of the elements.
      file: number of the file in SafetensorsIndex.files.
      position: of the tensor's first byte in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: int
    position: int


class SafetensorsIndex(Mapping[str, StoredTensor]):
    """The tensors of a directory, by name. Made by cairn.safetensors_index(). Immutable.

    Attributes:
      directory: its path.
      files: the files, each with `path` and `nbytes`.
      ties: second names of tensors, which are not stored, and the stored name that each stands for.
      metadata: of the files' headers, all together.
    """

    def __init__(self, directory: str, files: Sequence[SourceFile], tensors: dict[str, StoredTensor],
                 ties: dict[str, str], metadata: dict[str, str]) -> None:
        self.directory = directory
        self.files = tuple(files)
        self.ties = ties
        self.metadata = metadata
        self._tensors = tensors

    def __getitem__(self, name: str) -> StoredTensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        size = sum(tensor.nbytes for tensor in self._tensors.values())
        return f"<cairn.SafetensorsIndex of {self.directory}: {len(self)} tensors, {size} bytes>"


def read_index(path: str, deadline: float) -> SafetensorsIndex:
    """Reads the headers of a directory's files, or of one file.

    Args:
      deadline: time.monotonic() until which that must be done.

    Raises:
      Error: FILE_MISSING, FILE_TRUNCATED, BAD_SAFETENSORS, UNSUPPORTED (a dtype), STORAGE_ERROR, MEMORY_LIMIT,
        TIMED_OUT.
    """
    names, weight_map, config = _each([path], _look_into, deadline)[0]
    found = _each([os.path.join(path, name) if name else path for name in names], _read_header, deadline)
    files: list[SourceFile] = []
    tensors: dict[str, StoredTensor] = {}
    metadata: list[tuple[str, str]] = []
    for number, (file, header) in enumerate(found):
        files.append(file)
        metadata.extend(header["metadata"])
        for name, dtype, shape, begin, end in header["tensors"]:
            if name in tensors:
                raise Error("BAD_SAFETENSORS", f"{name!r} stands in both {files[tensors[name].file].path} and "
                            f"{file.path}", {"tensor": name, "file": file.path, "next": "Keep the files of one model "
                            f"in a directory, or an index ({_INDEX}) that lists those of one."})
            tensors[name] = StoredTensor(name, dtype, tuple(shape), end - begin, number, header["bytes"] + begin)
    if weight_map is not None:
        _check_index(path, names, weight_map, tensors)
    return SafetensorsIndex(path, files, tensors, tied_names(list(tensors), metadata, config), dict(metadata))


def _look_into(path: str) -> tuple[list[str], list[tuple[str, str]] | None, bytes]:
    """Returns the names of a directory's files, what its index says, and its config.json; [""] for a file."""
    try:
        there = sorted(entry.name for entry in os.scandir(path)
                       if entry.name.endswith(_ENDING) and not entry.name.startswith("."))
    except NotADirectoryError:
        return [""], None, b""
    except FileNotFoundError:
        raise Error("FILE_MISSING", f"there is no {path}", {"file": path, "next": "Correct the path."}) from None
    index = os.path.join(path, _INDEX)
    text = _read_small(index, _MAX_INDEX_BYTES)
    config = _read_small(os.path.join(path, "config.json"), _MAX_CONFIG_BYTES, b"") or b""
    if text is None:
        _check_complete(path, there, f"has no {_INDEX}, and ")
        if not there:
            raise Error("FILE_MISSING", f"{path} holds no {_ENDING} files",
                        {"file": path, "next": "Give the directory with the model's safetensors files. Files of other "
                         "libraries are loaded with the help of an agent (docs/import.md)."})
        return there, None, config
    weight_map = index_of(text, index)
    names = sorted({file for _, file in weight_map})
    if lacking := sum(missing_of_numbered(names).values()):
        # The index may leave out files without tensors. If it leaves out others, their headers will show it.
        left_out = [name for name in there if name not in names
                    and sum(missing_of_numbered([*names, name]).values()) < lacking]
        names = sorted([*names, *left_out])
        _check_complete(index, names, "")
    return names, weight_map, config


def _check_complete(path: str, names: Sequence[str], why: str) -> None:
    for pattern, count in missing_of_numbered(names).items():
        raise Error("FILE_MISSING", f"{path} {why}lacks {count} of the files {pattern}",
                    {"file": path, "next": "Copy all files of the model again, or let their writer end."})


def _check_index(path: str, names: Sequence[str], weight_map: list[tuple[str, str]],
                 tensors: dict[str, StoredTensor]) -> None:
    """Raises BAD_SAFETENSORS if the index and the headers do not say the same."""
    told = dict(weight_map)
    wrong = [name for name, file in told.items() if name not in tensors or names[tensors[name].file] != file]
    untold = [name for name in tensors if name not in told]
    if wrong or untold:
        what = [f"says of {len(wrong)} tensors that they are where they are not: {listed(wrong)}"] if wrong else []
        what += [f"leaves out {len(untold)} tensors: {listed(untold)}"] if untold else []
        index = os.path.join(path, _INDEX)
        raise Error("BAD_SAFETENSORS", f"{index} {'; it '.join(what)}", {
            "file": index, "tensor": (wrong or untold)[0],
            "next": "Copy the files again, all of one version; if all files are of the model, remove the index."})


def _read_small(path: str, most: int, too_large: bytes | None = None) -> bytes | None:
    """Returns what is in a file; None if there is none. Of a file with more than `most` bytes it returns `too_large`,
    or raises."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        size = _size_of(fd, path)
        if size > most:
            if too_large is not None:
                return too_large
            raise Error("BAD_SAFETENSORS", f"{path} has {size} bytes", {"file": path, "next": _AGAIN})
        return _read_at(fd, size, 0)
    finally:
        os.close(fd)


def _read_header(path: str) -> tuple[SourceFile, dict[str, Any]]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        size = _size_of(fd, path)
        data = _read_at(fd, min(size, _FIRST_READ), 0)
        length = 8 + int.from_bytes(data[:8], "little")
        if len(data) < length <= min(size, 8 + _MAX_HEADER_BYTES):
            data += _read_at(fd, length - len(data), len(data))
    finally:
        os.close(fd)
    return SourceFile(path, size), header_of(data, size, path)


def _size_of(fd: int, path: str) -> int:
    """Raises STORAGE_ERROR if there is something else than a regular file."""
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        raise Error("STORAGE_ERROR", f"{path} is no regular file", {"file": path, "next": _AGAIN})
    return about.st_size


def _read_at(fd: int, size: int, offset: int) -> bytes:
    """Returns what a file has there: less than `size` only where it ends."""
    parts = []
    while size > 0 and (part := os.pread(fd, size, offset)):
        parts.append(part)
        size -= len(part)
        offset += len(part)
    return b"".join(parts)


def _each(paths: Sequence[str], work: Callable[[str], _Found], deadline: float) -> list[_Found]:
    """Returns what `work` makes of each path, on some threads. The interpreter does not wait for one that hangs."""
    begun = time.monotonic()
    numbers = iter(range(len(paths)))
    lock = threading.Lock()
    results: dict[int, _Found] = {}
    failures: dict[int, BaseException] = {}
    doing: dict[int, None] = {}
    ended = threading.Event()

    def run() -> None:
        while True:
            with lock:
                number = None if failures else next(numbers, None)
                if number is None:
                    break
                doing[number] = None
            try:
                result = work(paths[number])
                with lock:
                    results[number] = result
            except BaseException as error:  # this thread has nobody else to tell it
                with lock:
                    failures[number] = error
            with lock:
                del doing[number]
                if failures or len(results) == len(paths):
                    ended.set()

    for started in range(min(_THREADS, len(paths))):
        try:
            threading.Thread(target=run, name="cairn-safetensors", daemon=True).start()
        except RuntimeError as error:  # the system refuses a thread
            if started == 0:
                raise Error("MEMORY_LIMIT", f"no thread is to be had to read {paths[0]}: {error}") from None
            break
    while paths and not ended.wait(min(max(deadline - time.monotonic(), 0.0), 0.5)):
        if time.monotonic() >= deadline:
            with lock:
                late = paths[min(doing, default=0)]
            raise Error("TIMED_OUT", f"the header of {late} could not be read within {time.monotonic() - begun:.0f} s",
                        {"file": late, "next": "Look whether the storage of that file answers."})
    for number in sorted(failures):
        failure = failures[number]
        if isinstance(failure, OSError) and failure.errno is not None:
            raise errno_error(failure.errno, f"read {failure.filename or paths[number]}", paths[number]) from None
        raise failure
    return [results[number] for number in range(len(paths))]
