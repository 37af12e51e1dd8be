"""Saves and resumes torchtitan's trainer, in the place of its own checkpoint manager.

    checkpoint=CairnCheckpointManager.Config(enable=True, interval=500)       # in the function that --config names

It needs torchtitan 0.3.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.checkpointer.base import DATALOADER, MODEL, OPTIMIZER, BaseCheckpointManager, ModelWrapper
from torchtitan.components.checkpointer.base import LR_SCHEDULER as SCHEDULER
from torchtitan.config import TORCH_DTYPE_MAP

from cairn import client as _client
from cairn._base.errors import Error
from cairn.torch._state_dict import save_load
from cairn.torch._training import rng
from cairn.torch._training.checkpoint_manager import CheckpointManager

__all__ = ["CairnCheckpointManager"]

_log = logging.getLogger("cairn")
_RNG = "rng"
# Seconds until a load without progress is given up.
_LOAD_SECONDS = 1800.0


class CairnCheckpointManager(BaseCheckpointManager):  # type: ignore[misc]  # torchtitan is not needed to check
    """Saves what a torchtitan Trainer trains, when CheckpointManager would, and resumes it in any layout.

    The tensors have the names that torchtitan's own manager gives them: `initial_load_path` takes a directory of that
    manager, and `cairn export --as dcp` makes one that it loads. Saved besides are the random number generators.

    A save returns when the state is staged; the training goes on while it is written. A save that fails does not end
    the training, but close() raises its error if it was the newest. `cairn save` and SIGTERM save, too, at a step that
    the ranks agree on.

    Data loaders go on where they were, as long as as many ranks have data of their own (the degree of data
    parallelism); otherwise they begin their data anew, and a warning says so.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseCheckpointManager.Config):  # type: ignore[misc]
        """torchtitan's settings, of which `folder` has no meaning, because the job's agents know where they store.

        `keep_latest_k` becomes the job's rule of what is kept. `last_save_in_hf` is refused: `cairn export --as
        huggingface` makes such a directory of any step.
        """

        agent: str | None = None
        """Address of this rank's agent, as for cairn.connect(). By default the environment gives it."""

        every_minutes: float | None = None
        """Ask for a save when so many minutes have passed since the last one began."""

        keep_every: int | None = None
        """Keep all checkpoints of steps that are multiples of this."""

    def __init__(self, config: Config, *, dataloader: Any, model_parts: list[torch.nn.Module], optimizers: Any,
                 lr_schedulers: Any, states: dict[str, Any], sd_adapter: Any, base_folder: str = "") -> None:
        """Is called by Config.build().

        Raises:
          Error: UNSUPPORTED (last_save_in_hf, initial_load_in_hf_quantized), BAD_REQUEST (a name to be excluded from
            loading is none of the state's); and as cairn.connect().
        """
        self.enable = config.enable
        self.save_future: Future[None] | None = None
        if not self.enable:
            return
        _check(config, {*states, MODEL, OPTIMIZER, DATALOADER, SCHEDULER})
        self.states = states
        self.states.update({MODEL: ModelWrapper(model_parts), OPTIMIZER: optimizers, DATALOADER: dataloader,
                            SCHEDULER: lr_schedulers})
        self._config = config
        self._adapter = sd_adapter
        self._client = _client.connect(config.agent)
        try:
            self._manager = CheckpointManager(self._client, every_steps=config.interval,
                                              every_minutes=config.every_minutes,
                                              keep_last=config.keep_latest_k or None, keep_every=config.keep_every)
        except BaseException:
            self._client.close()
            raise

    # Hooks of BaseCheckpointManager, which calls them if checkpoints are enabled.

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        """Saves the step if that is due. Every rank must call it.

        Returns:
          Whether a save has begun.

        Raises:
          Error: the program's own mistakes, as CheckpointManager.step(); all of them if only the model is saved.
        """
        config = self._config
        if config.load_only:
            return False
        if last_step and config.last_save_model_only:
            self._save_model(curr_step)
            return True
        asked = last_step or (curr_step == 1 and config.enable_first_step_checkpoint)
        saving = (self._manager.save if asked else self._manager.step)(curr_step, self._state)
        if saving is not None:
            self.save_future = Future()
        return saving is not None

    def _load(self, step: int = -1) -> bool:
        """Loads the latest checkpoint, or that of `step`; `initial_load_path` if the job has none. Every rank calls it.

        Returns:
          Whether something was loaded.

        Raises:
          Error: as CheckpointManager.restore_or_initialize().
        """
        steps = self._client.checkpoints()
        if step == -1 and not steps:
            return self._load_initial()
        wanted = None if step == -1 else step
        if (steps[-1] if wanted is None else wanted) == 0:  # a seed has nothing but the model
            self._fill(self._model_state(), step=wanted, strict=False)
            return True
        state = self._state()
        excluded = self._config.exclude_from_loading
        # A load that is strict would miss the names that are excluded.
        self._fill(self._without(state, self._loads_data(wanted)), step=wanted, strict=not excluded)
        return True

    def _maybe_wait_for_staging(self) -> None:
        """Has nothing to wait for: a save returns when its state is staged."""

    def _wait_for_saving(self) -> None:
        """Waits for the saves that are under way. Those that fail are told by the next _save()."""
        self._manager.wait()
        if self.save_future is not None:
            self.save_future.set_result(None)
        self.save_future = None

    def _close(self) -> None:
        """Waits for the saves that are under way and ends the session.

        Raises:
          Error: that of the newest save, if it failed, unless the training ends by another exception.
        """
        manager = getattr(self, "_manager", None)
        if manager is None:
            return
        error = sys.exc_info()[1]
        try:
            manager.__exit__(type(error) if error is not None else None, error, None)
        finally:
            self._client.close()
            self.enable = False

    # What is saved.

    def _model_state(self) -> dict[str, Any]:
        with torch.no_grad():
            state: dict[str, Any] = self.states[MODEL].state_dict()
        return state

    def _state(self) -> dict[str, Any]:
        """Returns the state by torchtitan's names: those of the model stand beside the other parts."""
        parts = {name: _Part(value) for name, value in self.states.items() if name != MODEL and value is not None}
        return {**self._model_state(), **parts, _RNG: rng.rng_state()}

    def _save_model(self, step: int) -> None:
        """Saves the model alone, in `export_dtype`, as torchtitan does when the training is complete."""
        dtype = TORCH_DTYPE_MAP[self._config.export_dtype]
        state = {name: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                 for name, value in self._model_state().items()}
        self._manager.wait()
        save_load.save(self._client, step, state, allow_dropped_names=True).wait()

    # Loading.

    def _loads_data(self, step: int | None) -> bool:
        """Returns whether the data loader can go on: as many ranks have data of their own as when it was saved."""
        loader = self.states[DATALOADER]
        if loader is None or DATALOADER in self._config.exclude_from_loading:
            return False
        report = self._client._load({}, step, None, False, None, True, _LOAD_SECONDS)
        saved, mine = report.objects.get(f"{DATALOADER}.world_size"), getattr(loader, "dp_world_size", None)
        if saved is None or mine is None or saved == mine:
            return True
        if self._client.rank == 0:
            _log.warning("%s@%s was saved by %s ranks of data parallelism, and %s load it: the data loaders begin anew",
                         self._client.job, report.step, saved, mine)
        return False

    def _without(self, state: dict[str, Any], data: bool) -> dict[str, Any]:
        """Returns the parts of a state that are to be loaded."""
        left_out = {*self._config.exclude_from_loading, *([] if data else [DATALOADER])}
        return {name: value for name, value in state.items() if name not in left_out}

    def _fill(self, state: dict[str, Any], **how: Any) -> int | None:
        """Loads into a state, and tells the model what was put into its tensors."""
        with torch.no_grad():
            step = self._manager.restore_or_initialize(state, **how)
            self.states[MODEL].load_state_dict(state)
        return step

    def _load_initial(self) -> bool:
        """Loads what another program wrote, if the configuration names it."""
        config = self._config
        path = config.initial_load_path
        if config.initial_load_in_hf and path is None:
            path = self._adapter.hf_assets_path
        if path is None:
            return False
        if config.initial_load_in_hf:
            # torchtitan's adapter knows the names of Hugging Face, and cuts and joins tensors.
            state = self._adapter.to_hf(self._model_state())
            save_load.load(self._client, state, source=path, strict=False)
            self.states[MODEL].load_state_dict(self._adapter.from_hf(state))
        elif config.initial_load_model_only:
            self._fill(self._model_state(), source=path, strict=False)
        else:
            state = self._state()
            del state[_RNG]  # torchtitan's own manager does not save it
            self._fill(self._without(state, data=True), source=path, strict=not config.exclude_from_loading)
        return True


class _Part:
    """Hides what a part of the state is besides: torchtitan's optimizers are one Optimizer, and its data loader has one
    state for all ranks that read the same data."""

    def __init__(self, part: Any) -> None:
        self.state_dict: Callable[[], dict[str, Any]] = part.state_dict
        self.load_state_dict: Callable[[dict[str, Any]], None] = part.load_state_dict


def _check(config: Any, names: set[str]) -> None:
    """Raises an Error for settings that cannot be followed."""
    if config.last_save_in_hf:
        raise Error("UNSUPPORTED", "last_save_in_hf: Cairn's checkpoints are no directories of Hugging Face",
                    {"next": "Make one of the last step: cairn export JOB@STEP --to DIRECTORY --as huggingface"})
    if config.initial_load_in_hf_quantized:
        raise Error("UNSUPPORTED", "initial_load_in_hf_quantized: quantized weights are not loaded",
                    {"next": "Give the directory of the weights that are not quantized."})
    unknown = sorted(set(config.exclude_from_loading) - names)
    if unknown:
        raise Error("BAD_REQUEST", f"exclude_from_loading: the state has no {', '.join(unknown)}",
                    {"next": f"It has {', '.join(sorted(names - {MODEL}))}."})
