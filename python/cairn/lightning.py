"""Saves and resumes Lightning's Trainer.

    trainer = Trainer(max_steps=10_000, callbacks=[CairnCheckpoint(client, every_steps=1000, keep_last=3)])
    trainer.fit(model)

It needs lightning, or pytorch_lightning.
"""

from __future__ import annotations

import logging
from typing import Any

from cairn import _lightning_fsdp as _fsdp
from cairn import _lightning_hooks as _hooks
from cairn._state.entries import PerRankValues, per_rank
from cairn.client import Client
from cairn.torch._training import rng
from cairn.torch._training.checkpoint_manager import CheckpointManager
from cairn.torch._training.stateful import Described

try:
    from lightning.pytorch import __version__ as _version
    from lightning.pytorch.callbacks import Checkpoint
except ImportError:
    from pytorch_lightning import __version__ as _version
    from pytorch_lightning.callbacks import Checkpoint

__all__ = ["CairnCheckpoint"]

_log = logging.getLogger("cairn")


class CairnCheckpoint(Checkpoint):  # type: ignore[misc]  # lightning is not needed to check
    """Saves what Trainer.fit trains when a CheckpointManager would, and resumes it from the latest checkpoint.

    Every rank has one. Saved are the module, the optimizers, the schedulers, the precision plugin, the progress of the
    loops with the positions of data loaders that have a state, the other callbacks, the random number generators, and
    what module, callbacks and data module keep by their hooks (on_save_checkpoint, on_load_checkpoint). A step is the
    Trainer's `global_step`.

    fit(ckpt_path=...) resumes from that file instead. After SIGTERM the training stops when the save has ended.
    """

    def __init__(self, client: Client, **options: Any) -> None:
        """
        Args:
          client: this rank's.
          options: of CheckpointManager, such as every_steps, every_minutes, keep_last and on_failure.
        """
        super().__init__()
        self._client = client
        self._options = options
        self._manager: CheckpointManager | None = None
        self._rng: Any = None  # to be put back when the loaders are at their place
        self._seen = -1  # the last step that was reported

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Comes before the other callbacks until all is loaded, because Lightning calls their hooks that load before
        their on_fit_start. They are called from another list now."""
        if stage == "fit":
            trainer.callbacks = [self, *(each for each in trainer.callbacks if each is not self)]

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Loads the latest checkpoint, if there is one."""
        # A step is saved after all other callbacks have seen it.
        trainer.callbacks = [*(each for each in trainer.callbacks if each is not self), self]
        # The Trainer's own handler would end the training at once, and is not there yet.
        self._manager = CheckpointManager(self._client, **{**self._options, "handle_sigterm": False,
                                                           "chain_sigterm": False})
        self._seen = trainer.global_step
        if trainer.ckpt_path is not None:
            return
        state = {**self._state_of(trainer, pl_module), "hooks": Described({})}
        step = self._manager.restore_or_initialize(state)
        if step is None:
            return
        self._seen = step
        self._rng = state["rng"]
        loops, callbacks = state["loops"].value, state["callbacks"].value
        if isinstance(loops, PerRankValues):
            _log.warning("%s@%s was saved by another number of ranks: data loaders begin the epoch anew",
                         self._client.job, step)
            loops = {**loops[0], "state_dict": {}}
            callbacks = callbacks[0]
        trainer.fit_loop.load_state_dict(loops)
        checkpoint = _hooks.checkpoint_of(trainer, state, _version)
        _hooks.call_load_hooks(trainer, pl_module, {**checkpoint, "callbacks": callbacks}, state["hooks"])
        if loops["epoch_loop.batch_progress"]["is_last_batch"]:
            self._restore_rng()  # the loaders draw from the generators when they begin the next epoch

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to handle SIGTERM, in the place of the Trainer."""
        if self._manager is not None and self._options.get("handle_sigterm", True):
            self._manager.watch_sigterm()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Puts the generators back after the loaders have begun in the middle of an epoch."""
        self._restore_rng()

    def _restore_rng(self) -> None:
        if self._rng is not None:
            rng.set_rng_state(self._rng)
            self._rng = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Saves the step if that is due, and ends the training where the manager wants it."""
        if self._manager is None or trainer.global_step == self._seen:
            return  # gradients are accumulated
        self._seen = trainer.global_step
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}

        def state() -> dict[str, Any]:
            trained = self._state_of(trainer, pl_module)
            return {**trained, "hooks": _hooks.changes_by_hooks(trainer, pl_module, trained, _version)}

        self._manager.step(self._seen, state, metrics)
        if self._manager.should_stop:
            trainer.should_stop = True

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Waits for the last save."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Waits for the last save. If it fails, that is logged, and the exception that ends the training stays."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.__exit__(type(exception), exception, None)

    def _state_of(self, trainer: Any, pl_module: Any) -> dict[str, Any]:
        callbacks = {each.state_key: each.state_dict() for each in trainer.callbacks if each is not self}
        return {
            **_fsdp.trained_objects(trainer, pl_module),
            "schedulers": {str(index): each.scheduler for index, each in enumerate(trainer.lr_scheduler_configs)},
            "precision": trainer.precision_plugin,
            "loops": per_rank(trainer.fit_loop.state_dict()),
            "callbacks": per_rank({key: value for key, value in callbacks.items() if value}),
            "rng": rng.rng_state(),
        }
