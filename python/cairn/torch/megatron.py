"""Saves and loads what Megatron-core's `sharded_state_dict` returns.

    cairn.torch.megatron.register()

lets Megatron-core's own `dist_checkpointing`, and so a script that saves as "torch_dist", save and load by Cairn.
Without `dist_checkpointing`:

    from cairn.torch import megatron
    state = model.sharded_state_dict() | {"iteration": 7}
    megatron.save(client, 7, state).wait()
    state = megatron.load(client, model.sharded_state_dict())

A load may use another layout. It takes steps that `save` has saved, imported ones, and with `source=` directories that
Megatron-core wrote ("torch_dist"). `cairn export --as megatron` writes a step as such a directory.
"""

from __future__ import annotations

import os
from typing import Any, SupportsIndex

import torch
from megatron.core.dist_checkpointing.dict_utils import extract_matching_values, merge
from megatron.core.dist_checkpointing.mapping import apply_factory_merges
from megatron.core.dist_checkpointing.state_dict_utils import load_preprocess, save_preprocess
from megatron.core.dist_checkpointing.utils import extract_sharded_base

from cairn._base.errors import Error
from cairn.client import Client, Saving
from cairn.torch._megatron.sharded_state import Wanted, declared
from cairn.torch._megatron.strategies import LoadStrategy, SaveStrategy, register
from cairn.torch._tensors.host_copies import DeviceCopies

__all__ = ["LoadStrategy", "SaveStrategy", "load", "register", "save"]

# Everything that is no ShardedTensor or ShardedObject is one value of this name, as in an import of Megatron-core's
# directories.
_COMMON = "common.pt"


def save(client: Client, step: SupportsIndex, sharded_state_dict: dict[str, Any], timeout: float = 60, *,
         allow_dropped_names: bool = False, overwrite: bool = False) -> Saving:
    """Calls Client.save for a sharded state dict. It returns when all tensors are staged and may change again.

    Tensors have the keys of their ShardedTensors; replicas are declared by all ranks that have them, and one of them
    writes. Of a ShardedObject, the main replica is saved. Everything else is saved by rank 0, as Megatron-core does.

    Args:
      client: this rank's; every rank of the job calls it for the same step.
      step: from 0 to 999999999999.
      sharded_state_dict: as for megatron.core.dist_checkpointing.save; it is left as it is. Objects and common values
        are plain values, small arrays of numpy and small tensors: take `args` out, or make it a dict of such values.
      timeout, allow_dropped_names, overwrite: as for Client.save.

    Returns:
      The save, which goes on by itself; its wait() gives the outcome.

    Raises:
      Error: BAD_REQUEST (an object or a common value cannot be saved), NAME_COLLISION (a common value has a name that a
        tensor has); and as Client.save.
    """
    sharded, common = save_preprocess(_copy(sharded_state_dict), validate_access_integrity=False)
    copies = DeviceCopies()
    state = declared(sharded, copies)
    if client.rank == 0:
        if _COMMON in state:
            raise Error("NAME_COLLISION", f"{_COMMON!r} is the name of the common values, and of a tensor or object",
                        {"names": _COMMON})
        state[_COMMON] = common
    copies.from_devices()
    return client.save(step, state, timeout, allow_dropped_names=allow_dropped_names, overwrite=overwrite)


def load(client: Client, sharded_state_dict: dict[str, Any], step: SupportsIndex | None = None, *,
         source: str | os.PathLike[str] | None = None, device: torch.device | str = "cpu", fallback: bool = True,
         verify: str | None = None, timeout: float = 1800) -> dict[str, Any]:
    """Loads a step, or a directory of Megatron-core, under the layout of a sharded state dict.

    Args:
      client: this rank's; every rank of the job makes the call.
      sharded_state_dict: what this rank wants; tensors that have data are filled in place.
      step, source, fallback, verify, timeout: as for Client.load.
      device: of the tensors that have no data.

    Returns:
      The state dict, as megatron.core.dist_checkpointing.load returns it: the common values, with tensors and objects
      in the places of ShardedTensors and ShardedObjects. Common values that only a class's own code could make are
      cairn.Opaque.

    Raises:
      Error: MISSING_NAMES (the source lacks what is wanted), UNSUPPORTED (a wanted object holds what only a class's own
        code could make); and as Client.load. Tensors may be partly filled then.
    """
    sharded, local, factories = load_preprocess(sharded_state_dict)
    sharded, _ = extract_sharded_base(sharded)
    wanted = Wanted(sharded, device)
    report = client._load(wanted.state, step, None, False, source, fallback, timeout, verify)
    sharded = wanted.put(report)
    result: dict[str, Any] = report.objects.get(_COMMON, {})
    merge(result, local)
    merge(result, sharded)
    result = apply_factory_merges(result, factories)
    return result


def _copy(sharded_state_dict: dict[str, Any]) -> dict[str, Any]:
    """Returns new dicts and lists with the same leaves."""
    copy: dict[str, Any]
    copy, _ = extract_matching_values(sharded_state_dict, lambda value: True)
    return copy
