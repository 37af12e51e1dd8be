"""The states of what Lightning's FSDPStrategy has sharded, in the form that all other strategies give.

FullyShardedDataParallel gives out ShardedTensors, which cairn.torch refuses. Each becomes a DTensor over the same
memory, which a load fills in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Shard


def trained_objects(trainer: Any, module: Any) -> dict[str, Any]:
    """Returns the module and the optimizers, or what has their states; good for one save or one load."""
    model = trainer.strategy.model
    if not any(isinstance(each, FullyShardedDataParallel) for each in model.modules()):
        return {"module": module, "optimizers": {str(index): each for index, each in enumerate(trainer.optimizers)}}
    optimizers = {str(index): _OptimizerState(model, each) for index, each in enumerate(trainer.optimizers)}
    return {"module": _ModuleState(model), "optimizers": optimizers}


class _ShardedState:
    """A state that is asked for once, because all ranks gather it."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._asked: dict[str, Any] | None = None
        self._meshes: dict[Any, DeviceMesh] = {}

    def _ask(self) -> dict[str, Any]:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        if self._asked is None:
            self._asked = self._ask()
        shown: dict[str, Any] = self._shown(self._asked)
        return shown

    def _shown(self, value: Any) -> Any:
        """Returns a state with DTensors in the place of ShardedTensors."""
        if isinstance(value, dict):
            return {key: self._shown(item) for key, item in value.items()}
        return self._as_dtensor(value) if isinstance(value, ShardedTensor) else value

    def _as_dtensor(self, tensor: ShardedTensor) -> DTensor:
        """FullyShardedDataParallel splits the first dimension into chunks, as DTensors do, one for each rank of a
        group. The last ranks may have none."""
        shards = tensor.local_shards()
        size = tensor.size()
        local = shards[0].tensor if shards else torch.empty(
            (0, *size[1:]), dtype=tensor.dtype, device=next(self._model.parameters()).device)
        group = tensor._process_group
        if group not in self._meshes:
            self._meshes[group] = DeviceMesh.from_group(group, local.device.type)
        return DTensor.from_local(local, self._meshes[group], [Shard(0)], run_check=False, shape=size,
                                  stride=torch.empty(size, device="meta").stride())

    def _taken_back(self, loaded: Any) -> Any:
        """Returns a loaded state with the ShardedTensors that were asked for, whose memory has been filled."""
        return _replaced(loaded, self._asked)


class _ModuleState(_ShardedState):
    def _ask(self) -> dict[str, Any]:
        state: dict[str, Any] = get_model_state_dict(self._model)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_model_state_dict(self._model, self._taken_back(state))


class _OptimizerState(_ShardedState):
    def __init__(self, model: Any, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(model)
        self._optimizer = optimizer

    def _ask(self) -> dict[str, Any]:
        state: dict[str, Any] = get_optimizer_state_dict(self._model, self._optimizer)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_optimizer_state_dict(self._model, self._optimizer, self._taken_back(state))


def _replaced(loaded: Any, asked: Any) -> Any:
    if isinstance(loaded, dict):
        known = asked if isinstance(asked, dict) else {}
        return {key: _replaced(item, known.get(key)) for key, item in loaded.items()}
    return asked if isinstance(asked, ShardedTensor) else loaded
