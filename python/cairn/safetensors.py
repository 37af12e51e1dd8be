"""Loads directories of safetensors files, as Hugging Face's, straight into arrays: without an agent or a coordinator.

    files = cairn.load_safetensors("/models/llama", {"lm_head.weight": cairn.shards.column_parallel(array, rank, 4)},
                                   strict=False)

See docs/import.md. `cairn.torch.load_safetensors` takes and makes tensors of PyTorch.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import time
from collections.abc import Callable
from typing import Any, SupportsIndex

import numpy

from cairn._base import timeouts
from cairn._base.arrays import Array
from cairn._base.errors import Error, shown
from cairn._base.results import DeviceReport
from cairn._safetensors.directory import SafetensorsIndex, StoredTensor, read_index
from cairn._safetensors.loader import Filler, thread_count
from cairn._safetensors.targets import Placement, Renaming, Tensors, boxes_to_fill, place

__all__ = ["LoadedFiles", "SafetensorsIndex", "StoredTensor", "load_safetensors", "safetensors_index"]

Source = str | os.PathLike[str] | SafetensorsIndex


@dataclasses.dataclass(frozen=True)
class LoadedFiles:
    """What load_safetensors() did.

    Attributes:
      tensors: name -> what was filled: the state's own, or what the placement had made. Names that the files lack are
        not here.
      bytes: of the arrays that were filled.
      missing, unexpected: names that only the state, only the files had (strict=False).
      seconds: that it took.
      cached_bytes, buffered_bytes, direct_bytes: that came from the page cache, from storage through it, and from
        storage past it. They count what lies between wanted bytes and was read with them.
      device: how arrays on GPUs were filled; None if there were none.
    """

    tensors: dict[str, Any]
    bytes: int
    missing: list[str]
    unexpected: list[str]
    seconds: float
    cached_bytes: int
    buffered_bytes: int
    direct_bytes: int
    device: DeviceReport | None = None

    def __repr__(self) -> str:
        """Returns one line that says what was done, without the tensors."""
        names = "".join(f", {len(each)} names {what}" for each, what in
                        ((self.missing, "missing"), (self.unexpected, "unexpected")) if each)
        return (f"LoadedFiles({len(self.tensors)} tensors, {self.bytes} bytes in {self.seconds:.2f} s: "
                f"{self.cached_bytes} cached, {self.buffered_bytes} buffered, {self.direct_bytes} direct{names})")


def safetensors_index(directory: str | os.PathLike[str], *, timeout: float = 60) -> SafetensorsIndex:
    """Reads which tensors a directory of safetensors files has: their headers, and nothing behind them.

    Args:
      directory: with the files that its model.safetensors.index.json lists, else all *.safetensors; or one file.
      timeout: seconds.

    Returns:
      Name -> StoredTensor, with dtype (torch's name), shape and size. load_safetensors() takes it for the directory.

    Raises:
      Error: FILE_MISSING (there is no such directory or file, or one of a numbered set is missing), FILE_TRUNCATED,
        BAD_SAFETENSORS (a header or the index is not valid, they do not agree, or two files have one tensor),
        UNSUPPORTED (a dtype that this version does not know), STORAGE_ERROR, MEMORY_LIMIT, TIMED_OUT, BAD_REQUEST.
    """
    return read_index(_path_of(directory), time.monotonic() + timeouts.seconds(timeout, "safetensors_index"))


def load_safetensors(directory: Source, state: dict[str, Any] | Placement, *, names: Renaming | None = None,
                     strict: bool = True, shared: bool | None = None, threads: SupportsIndex | None = None,
                     timeout: float = 1800) -> LoadedFiles:
    """Fills arrays from a directory of safetensors files.

    Each process of a node calls it for itself, with what it wants: they need not know of each other, and storage is
    read once for all of them.

    Args:
      directory: as for safetensors_index(), or what that returned.
      state: name -> array, Shard or list of Shards, as for Client.load. Or a placement, which is called with name,
        shape and dtype of each tensor, and returns None (not wanted), a slice or a tuple of slices, ... for the whole
        (an array is made), an array and such slices, or what a state has.
      names: name in the files -> name in the state: a dict (other names stay), or a function, which returns None for
        tensors to be left out.
      strict: refuse names that only the state or only the files have. A placement has neither.
      shared: whether other processes of this machine read these files at about the same time. If not, what is not in
        the page cache is read past it, where that is faster. By default it is so unless LOCAL_WORLD_SIZE is 1.
      threads: that read; by default one for each processor, but from 4 to 16.
      timeout: seconds.

    Returns:
      What was loaded, and how.

    Raises:
      Error: MISSING_NAMES, UNEXPECTED_NAMES, DTYPE_MISMATCH (nothing is cast), SHAPE_MISMATCH (arrays are as they were
        then); BAD_REQUEST, BAD_NAME, BAD_SHAPE, BAD_DTYPE, NAME_COLLISION (what the caller says is wrong by itself);
        DEVICE_ERROR, DEVICE_STALLED; and as safetensors_index(). Arrays may be partly filled then. After TIMED_OUT, and
        after Ctrl-C, storage that hangs may still write to them when it answers; they are kept alive until then.
    """
    return load_with(directory, state, to_array, names=names, strict=strict, shared=shared, threads=threads,
                     timeout=timeout)


def load_with(directory: Source, state: dict[str, Any] | Placement, made: Callable[[str, Array, str], Any], *,
              names: Renaming | None, strict: bool, shared: bool | None, threads: SupportsIndex | None,
              timeout: float) -> LoadedFiles:
    """Does what load_safetensors() does. `made` gives what stands for an array that was made: it gets the
    name, the raw elements and their dtype."""
    begun = time.monotonic()
    deadline = begun + timeouts.seconds(timeout, "load_safetensors")
    if shared is None:
        shared = os.environ.get("LOCAL_WORLD_SIZE") != "1"
    count = thread_count(threads)
    if not isinstance(state, dict) and not callable(state):
        raise Error("BAD_REQUEST", f"load_safetensors: the state is a dict or a placement, not {type(state).__name__}")
    index = directory if isinstance(directory, SafetensorsIndex) else read_index(_path_of(directory), deadline)
    tensors = Tensors(index, names)
    wanted, new = (state, dict[str, Array]()) if isinstance(state, dict) else place(tensors, state)
    found, missing, unexpected = tensors.match(wanted, strict and isinstance(state, dict))
    given = {name: made(name, new[name], tensors.stored[name].dtype) if name in new else value
             for name, value in found.items()}
    boxes = boxes_to_fill(tensors, wanted, found)
    filler = Filler(index, count, bool(shared), deadline)
    filler.fill(boxes)
    return LoadedFiles(given, sum(box.array.nbytes for box, _ in boxes), missing,
                       unexpected if isinstance(state, dict) else [],
                       time.monotonic() - begun, *filler.statistics, filler.device)


def to_array(name: str, array: Array, dtype: str) -> Array:
    """Returns an array of raw elements under their own dtype. Raises BAD_DTYPE, if numpy has none."""
    try:
        return array.view(_numpy_dtype(dtype))
    except (ImportError, AttributeError, TypeError):
        raise Error("BAD_DTYPE", f"numpy has no {dtype}, which {name!r} is", {
            "tensor": name, "next": "Install ml_dtypes, or use cairn.torch.load_safetensors; or let the placement "
            "return a cairn.Shard over an array of integers, with its dtype."}) from None


def _numpy_dtype(name: str) -> numpy.dtype[Any]:
    try:
        return numpy.dtype(name)
    except TypeError:
        known: numpy.dtype[Any] = numpy.dtype(getattr(importlib.import_module("ml_dtypes"), name))
        return known


def _path_of(directory: Any) -> str:
    try:
        return os.fsdecode(os.fspath(directory))
    except TypeError:
        raise Error("BAD_REQUEST", f"a directory is a path, not {shown(directory)}") from None
