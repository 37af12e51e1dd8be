"""Cairn as the storage of torch.distributed.checkpoint, for code that passes a storage_writer or storage_reader."""

from __future__ import annotations

import dataclasses
import io
import logging
import os
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from cairn._base import timeouts
from cairn._base.errors import Error
from cairn._base.results import LoadReport
from cairn._state import opaque
from cairn._state.entries import Shard
from cairn.client import Client
from cairn.torch._dcp.checkpoint_id import check_series, step_of
from cairn.torch._dcp.default_client import own_client
from cairn.torch._state_dict.flatten import is_dcp_directory
from cairn.torch._tensors.host_copies import DeviceCopies
from cairn.torch._tensors.tensor_shards import array_of

_log = logging.getLogger("cairn")
# The object in which a writer says what it wrote, as DCP's planners ask for it.
_DESCRIPTION = "cairn.dcp"


class CairnWriter(dcp.StorageWriter):  # type: ignore[misc]  # torch is not needed to check
    """The storage_writer of torch.distributed.checkpoint.save and async_save.

        dcp.save(state, checkpoint_id="checkpoints/1200", storage_writer=CairnWriter())

    The planner decides which rank gives which part; every rank of the job makes the call. A call returns when the
    checkpoint is committed. CairnReader reads it, and so does cairn.torch.dcp.load. Values that are no tensors are
    stored as Cairn stores them, and never as pickles.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, client: Client | None = None) -> None:
        """
        Args:
          path: ends in the number of the step; by default the checkpoint_id of the call.
          client: this rank's; by default one that cairn.connect() gives, which is kept for later calls.
        """
        super().__init__()
        self.checkpoint_id: str | os.PathLike[str] | None = path
        self._given_client = client

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self.checkpoint_id = checkpoint_id

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Raises UNSUPPORTED for a save without collectives, in which no rank knows what the others write."""
        if not kwargs.get("use_collectives", True):
            raise Error("UNSUPPORTED", "CairnWriter needs use_collectives=True")

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """Gives the first rank the description of all that is written."""
        return [dataclasses.replace(plans[0], storage_data=_describe(plans)), *plans[1:]]

    def write_data(self, plan: Any, planner: Any) -> Future[list[Any]]:
        """Saves what the plan gives this rank, and waits for the commit."""
        state: dict[str, Any] = {}
        copies = DeviceCopies()
        results = []
        for item in plan.items:
            name = item.index.fqn
            if item.type == WriteItemType.BYTE_IO:
                state[name] = planner.lookup_object(item.index)
                results.append(WriteResult(item.index, 0, None))
                continue
            tensor = planner.resolve_data(item)
            chunk = item.tensor_data.chunk
            shard = Shard(array_of(tensor, name, copies), item.tensor_data.size, chunk.offsets, chunk.sizes,
                          dtype=_dtype_name(tensor.dtype))
            state.setdefault(name, []).append(shard)
            results.append(WriteResult(item.index, tensor.nbytes, None))
        if plan.storage_data is not None:
            state[_DESCRIPTION] = plan.storage_data
        copies.from_devices()
        step = step_of(self.checkpoint_id)
        client = own_client(self._given_client)
        check_series(self.checkpoint_id, client)
        client.save(step, state, allow_dropped_names=True, overwrite=True).wait(timeouts.LONGEST)
        future: Future[list[Any]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Any, results: list[list[Any]]) -> None:
        """Does nothing: the checkpoint is committed."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return _is_step(checkpoint_id)


class CairnReader(dcp.StorageReader):  # type: ignore[misc]  # torch is not needed to check
    """The storage_reader of torch.distributed.checkpoint.load, for checkpoints that CairnWriter saved.

    Every rank of the job makes the call.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, client: Client | None = None) -> None:
        """Takes what CairnWriter takes."""
        super().__init__()
        self.checkpoint_id: str | os.PathLike[str] | None = path
        self._given_client = client
        self._objects: dict[str, Any] = {}
        self._sizes: dict[str, Any] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self.checkpoint_id = checkpoint_id

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Raises UNSUPPORTED if the step was not saved by CairnWriter, and as Client.load.

        If PyTorch itself wrote a directory of this name, the error says how to load that.
        """
        try:
            return self._metadata()
        except Error as error:
            if not kwargs:  # torch asks again, for the rank
                _log.error("%s", error)  # Torch 2.10 tells nobody what is raised here.
            raise

    def _metadata(self) -> Metadata:
        step = step_of(self.checkpoint_id)
        client = own_client(self._given_client)
        check_series(self.checkpoint_id, client)
        try:
            report = client.load({}, step, strict=False)
        except Error as error:
            if error.reason == "NOT_COMMITTED" and self.checkpoint_id is not None and is_dcp_directory(
                    self.checkpoint_id):
                error.metadata["next"] = (f"{os.fspath(self.checkpoint_id)} is a directory that PyTorch wrote: load it "
                                          "without this storage_reader, or by cairn.torch.dcp.load, and save it by "
                                          "CairnWriter under another checkpoint_id.")
            raise
        description = report.objects.get(_DESCRIPTION)
        if not isinstance(description, dict):
            raise Error("UNSUPPORTED", f"{client.job}@{step} was not saved by CairnWriter",
                        {"job": client.job, "step": str(step),
                         "next": "Load it by cairn.torch.load or cairn.torch.dcp.load."})
        self._objects = report.objects
        tensors = {name: TensorStorageMetadata(
            TensorProperties(getattr(torch, dtype)), torch.Size(size),
            [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in chunks])
            for name, (dtype, size, chunks) in description["tensors"].items()}
        return Metadata({**tensors, **{name: BytesStorageMetadata() for name in description["objects"]}})

    def set_up_storage_reader(self, metadata: Any, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._sizes = {name: entry.size for name, entry in metadata.state_dict_metadata.items()
                       if isinstance(entry, TensorStorageMetadata)}

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        return plans

    def read_data(self, plan: Any, planner: Any) -> Future[None]:
        """Loads what the plan wants on this rank, each part straight to its place."""
        state: dict[str, Any] = {}
        copies = DeviceCopies()
        wanted = []
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, self._bytes(name))
                continue
            tensor = planner.resolve_tensor(item).detach()
            wanted.append((item, tensor))
            base = item.storage_index.offset or (0,) * tensor.dim()
            offset = [begin + more for begin, more in zip(base, item.storage_offsets, strict=True)]
            state.setdefault(name, []).append(Shard(array_of(tensor, name, copies), self._sizes[name], offset,
                                                    item.lengths, dtype=_dtype_name(tensor.dtype)))
        self._load(state)
        copies.to_devices()
        for item, tensor in wanted:
            planner.commit_tensor(item, tensor)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _load(self, state: dict[str, Any]) -> LoadReport:
        report = own_client(self._given_client).load(state, step_of(self.checkpoint_id), strict=False)
        if report.missing:
            raise Error("MISSING_NAMES", f"{self.checkpoint_id} lacks {', '.join(report.missing[:8])}",
                        {"names": ", ".join(report.missing[:8])})
        return report

    def _bytes(self, name: str) -> io.BytesIO:
        """Returns an object as the planner reads it. This process has made the values that are pickled here."""
        found = opaque.find(self._objects[name], name)
        if found is not None:
            raise Error("UNSUPPORTED", f"{found[0]!r} is {found[1].description}, which is not known here",
                        {"object": name})
        stream = io.BytesIO()
        torch.save(self._objects[name], stream)
        stream.seek(0)
        return stream

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return _is_step(checkpoint_id)


def _describe(plans: list[Any]) -> dict[str, Any]:
    """Returns all tensors, with dtypes, shapes and chunks, and the names of all objects."""
    tensors: dict[str, Any] = {}
    objects: set[str] = set()
    for plan in plans:
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                objects.add(item.index.fqn)
                continue
            data = item.tensor_data
            entry = tensors.setdefault(item.index.fqn, (_dtype_name(data.properties.dtype), list(data.size), []))
            chunk = [list(data.chunk.offsets), list(data.chunk.sizes)]
            if chunk not in entry[2]:
                entry[2].append(chunk)
    return {"tensors": {name: list(entry) for name, entry in tensors.items()}, "objects": sorted(objects)}


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_step(checkpoint_id: str | os.PathLike[str]) -> bool:
    try:
        step_of(checkpoint_id)
    except Error:
        return False
    return True
