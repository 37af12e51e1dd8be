"""Calls the hooks by which Lightning's modules, callbacks and data modules keep states of their own.

Lightning hands them the dict of a checkpoint. They add to it, and may replace what is there: an average of the weights
takes the place of the weights. What they change is saved beside the rest, and the hooks that load get all of it.
"""

from __future__ import annotations

import copy
from typing import Any

from cairn._state.entries import PerRank, PerRankValues
from cairn.torch._state_dict.description import holds_tensor
from cairn.torch._training.stateful import Described

# The dict of a checkpoint, by the names that Lightning gives to what is in it.
Checkpoint = dict[str, Any]


def checkpoint_of(trainer: Any, trained: dict[str, Any], version: str) -> Checkpoint:
    """Returns what Lightning would save, before any hook has changed it.

    Args:
      trained: the objects that have the states of the module and the optimizers.
    """
    checkpoint = {
        "epoch": trainer.current_epoch,
        "global_step": trainer.global_step,
        "pytorch-lightning_version": version,
        "state_dict": trained["module"].state_dict(),
        "loops": {name: getattr(trainer, name).state_dict()
                  for name in ("fit_loop", "validate_loop", "test_loop", "predict_loop")},
        "callbacks": {each.state_key: state for each in trainer.callbacks if (state := each.state_dict())},
        "optimizer_states": [optimizer.state_dict() for optimizer in trained["optimizers"].values()],
        "lr_schedulers": [each.scheduler.state_dict() for each in trainer.lr_scheduler_configs],
    }
    precision = trainer.precision_plugin.state_dict()
    if precision:
        checkpoint[type(trainer.precision_plugin).__qualname__] = precision
    return checkpoint


def changes_by_hooks(trainer: Any, module: Any, trained: dict[str, Any], version: str) -> Described:
    """Calls the hooks that save, in Lightning's order, and returns what they have added and replaced.

    What has no tensors is each rank's own; tensors are the same on all ranks.

    Args:
      trained: as of checkpoint_of().
    """
    checkpoint = checkpoint_of(trainer, trained, version)
    before = {key: (value, _shallow(value)) for key, value in checkpoint.items()}
    trainer.precision_plugin.on_save_checkpoint(checkpoint)
    datamodule = trainer.datamodule
    if datamodule is not None:
        state = datamodule.state_dict()
        if state:
            checkpoint[type(datamodule).__qualname__] = state
    for callback in trainer.callbacks:
        callback.on_save_checkpoint(trainer, module, checkpoint)
    module.on_save_checkpoint(checkpoint)
    changed = {key: value for key, value in checkpoint.items()
               if key not in before or value is not before[key][0] or _differs(value, before[key][1])}
    tensors = {key: value for key, value in changed.items() if holds_tensor(value)}
    values = PerRank({key: value for key, value in changed.items() if key not in tensors})
    # An empty dict would be a value, of a name that a later save with tensors lacks.
    return Described({"values": values, **({"tensors": tensors} if tensors else {})})


def call_load_hooks(trainer: Any, module: Any, checkpoint: Checkpoint, changes: dict[str, Any]) -> None:
    """Calls the hooks that load, in Lightning's order.

    Args:
      checkpoint: what was loaded, as checkpoint_of() returns it.
      changes: what changes_by_hooks() gave to the save; {} of a checkpoint of an earlier version.
    """
    values = changes["values"].value if "values" in changes else {}
    if isinstance(values, PerRankValues):  # another number of ranks saved it
        values = values[0]
    checkpoint = {**checkpoint, **changes.get("tensors", {}), **values}
    module.on_load_checkpoint(checkpoint)
    datamodule = trainer.datamodule
    if datamodule is not None and type(datamodule).__qualname__ in checkpoint:
        datamodule.load_state_dict(checkpoint[type(datamodule).__qualname__])
    for callback in trainer.callbacks:
        callback.on_load_checkpoint(trainer, module, checkpoint)
    for callback in trainer.callbacks:
        state = checkpoint["callbacks"].get(callback.state_key)
        if state:
            callback.load_state_dict(copy.deepcopy(state))
    trainer.precision_plugin.on_load_checkpoint(checkpoint)


def _shallow(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else list(value) if isinstance(value, list) else value


def _differs(value: Any, before: Any) -> bool:
    """Returns whether a hook has put or taken items. Tensors are compared by what they are, not by their numbers."""
    if isinstance(value, dict):
        return value.keys() != before.keys() or any(value[key] is not before[key] for key in value)
    if isinstance(value, list):
        return len(value) != len(before) or any(one is not other for one, other in zip(value, before, strict=True))
    return False
