"""Declares Megatron-core's ShardedTensors and ShardedObjects as a state, and puts what was loaded in their places."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.dist_checkpointing.dict_utils import dict_list_map_inplace, nested_values
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor, is_main_replica

from cairn._base.errors import Error
from cairn._base.results import LoadReport
from cairn._state import opaque
from cairn._state.entries import Shard
from cairn.torch._state_dict.save_load import names_error
from cairn.torch._tensors.host_copies import DeviceCopies
from cairn.torch._tensors.tensor_shards import array_of


def declared(sharded: Any, copies: DeviceCopies) -> dict[str, Any]:
    """Returns what a rank saves of a sharded state dict that Megatron-core has prepared.

    Tensors have the keys of their ShardedTensors; replicas are declared by all ranks that have them. Of a
    ShardedObject, the main replica is saved.
    """
    state: dict[str, Any] = {}
    for value in nested_values(sharded):
        if isinstance(value, ShardedTensor):
            if value.data is not None:  # a replica that need not be saved may lack it
                state.setdefault(value.key, []).append(_shard_of(value, copies))
        elif isinstance(value, ShardedObject) and is_main_replica(value.replica_id):
            state.setdefault(value.unique_key, []).append(value.data)
    return state


class Wanted:
    """What a rank wants of a checkpoint.

    Attributes:
      state: as Client.load takes it.
    """

    def __init__(self, sharded: Any, device: torch.device | str) -> None:
        """
        Args:
          sharded: dicts and lists of ShardedTensors and ShardedObjects; tensors that have data are filled in place.
          device: of the tensors that have no data.
        """
        self._sharded = sharded
        self._copies = DeviceCopies()
        self._objects: set[str] = set()
        self.state: dict[str, Any] = {}
        for value in nested_values(sharded):
            if isinstance(value, ShardedTensor):
                if value.data is None:
                    value.init_data(torch.device(device))
                self.state.setdefault(value.key, []).append(_shard_of(value, self._copies))
            elif isinstance(value, ShardedObject):
                self._objects.add(value.unique_key)

    def put(self, report: LoadReport) -> Any:
        """Puts tensors and objects in the places of ShardedTensors and ShardedObjects, and returns the state dict.

        Raises:
          Error: MISSING_NAMES, UNSUPPORTED (a wanted object holds what only a class's own code could make).
        """
        missing = sorted({name for name in report.missing if name in self.state} |
                         (self._objects - report.objects.keys()))
        if missing:
            raise names_error("MISSING_NAMES", missing, "the source")
        for name in sorted(self._objects):
            found = opaque.find(report.objects[name], name)
            if found is not None:
                raise Error("UNSUPPORTED", f"{found[0]!r} is {found[1].description} in the source, which cannot be "
                            "made without running its code", {"object": name})
        self._copies.to_devices()
        positions: dict[str, int] = {}

        def loaded(value: Any) -> Any:
            if isinstance(value, ShardedTensor):
                return value.data
            # Several parts of one rank that have one key stand in one list, in their order.
            position = positions.get(value.unique_key, 0)
            positions[value.unique_key] = position + 1
            values = report.objects[value.unique_key]
            return values[position if position < len(values) else 0]

        dict_list_map_inplace(loaded, self._sharded)
        return self._sharded


def _shard_of(tensor: ShardedTensor, copies: DeviceCopies) -> Shard:
    """Returns a part of a tensor. Megatron's global shape has further axes in front, such as one for the layers."""
    part = tensor.data.detach()[(None,) * tensor.prepend_axis_num]
    return Shard(array_of(part, tensor.key, copies), tensor.global_shape, tensor.global_offset,
                 dtype=str(part.dtype).removeprefix("torch."))
