"""Saves and resumes Hugging Face's Trainer.

    callback = CairnCallback(client)
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume_directory(trainer))

The callback saves when the Trainer would (save_strategy, save_steps), in its place: the Trainer writes no checkpoints
of its own. It needs transformers.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_utils import SaveStrategy

from cairn._base.errors import Error
from cairn._state.entries import PerRankValues, per_rank
from cairn.client import Client
from cairn.torch import deepspeed
from cairn.torch._state_dict import save_load
from cairn.torch._training import rng
from cairn.torch._training.checkpoint_manager import CheckpointManager

__all__ = ["CairnCallback"]

_log = logging.getLogger("cairn")
# A resumed run goes on with these; the rest of the Trainer's state follows from its arguments.
_CONTINUED = ("epoch", "global_step", "num_input_tokens_seen", "total_flos", "log_history", "best_metric",
              "best_global_step")


class CairnCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not needed to check
    """Saves what a Trainer trains when the Trainer would save, and besides on request and on SIGTERM. Resumes it.

    Every rank has one. Saved are the model, the optimizer, the scheduler, the random number generators, and the
    Trainer's own state, with that of its callbacks if resume_directory() was called; only the model with
    `save_only_model`. `save_total_limit` becomes the job's rule of what is
    kept. With `load_best_model_at_end` the model of the best evaluation is loaded when the training ends; no checkpoint
    is deleted then by a rule of the callback, because the callback itself says which one is the best. After SIGTERM
    the training stops when the save has ended.

    A Trainer that begins without resume_directory() gets the latest checkpoint too, but begins its data anew, and a
    warning says so.
    """

    def __init__(self, client: Client, **options: Any) -> None:
        """
        Args:
          client: this rank's.
          options: of CheckpointManager, such as every_minutes and on_failure; what the Trainer's arguments say (which
            steps are saved, how many are kept) need not be given.
        """
        self._client = client
        self._options = options
        self._manager: CheckpointManager | None = None
        self._resumed: Any = None  # the objects of the checkpoint that resume_directory() found
        self._rng: Any = None  # to be put back when the Trainer is at its place in the data
        self._wanted = False  # this step is saved after its evaluation
        self._saved = -1  # the last step
        self._best_step: int | None = None
        self._trainer: Any = None  # that resume_directory() was given, which alone knows the other callbacks

    def resume_directory(self, trainer: Any) -> str | None:
        """Makes a directory for Trainer.train(resume_from_checkpoint=...), by which the Trainer finds its place in the
        data. The weights in it are zeros that take no room, and the callback then loads the true ones.

        Every rank must call it.

        Returns:
          Its path, below the Trainer's output directory; None if the job has no checkpoint.

        Raises:
          Error: UNSUPPORTED (transformers before 5, with FSDP or DeepSpeed), and as Client.load, but for NOT_COMMITTED.
        """
        self._trainer = trainer
        try:
            report = self._client.load({}, strict=False)
        except Error as error:
            if error.reason == "NOT_COMMITTED":
                return None
            raise
        self._resumed = report
        directory = pathlib.Path(trainer.args.output_dir) / f"cairn-resume-{self._client.rank}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "trainer_state.json").write_text(json.dumps(_of_rank(report.objects["trainer"])))
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            _leave_loads_out(trainer)
            return str(directory)
        torch.save({name: torch.zeros((), dtype=value.dtype).expand(value.shape)
                    for name, value in trainer.model.state_dict().items()}, directory / "pytorch_model.bin")
        return str(directory)

    # Events of the Trainer.

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Loads the checkpoint that resume_directory() found; without it the latest, if there is one."""
        options = dict(self._options)
        if args.save_total_limit and not args.load_best_model_at_end:
            options.setdefault("keep_last", args.save_total_limit)
        elif args.save_total_limit and options.get("keep_best") is None:
            _log.warning("save_total_limit is not applied, because of load_best_model_at_end: every checkpoint of %s "
                         "is kept; give keep_last and keep_best to CairnCallback, such as keep_best=%r",
                         self._client.job, _best_rule(args))
        self._manager = CheckpointManager(self._client, **options)
        self._manager.schedule_is_elsewhere()  # the Trainer says when to save
        if state.global_step and self._resumed is None:
            return  # it was resumed from files of its own
        target = self._state_of(args, state, parts)
        step = self._manager.restore_or_initialize(target, strict=False)
        if step is None:
            return
        if self._resumed is None:
            _log.warning("%s@%s: the training goes on from step %s, but begins its data anew; give "
                         "resume_from_checkpoint=callback.resume_directory(trainer) to Trainer.train",
                         self._client.job, step, step)
        elif self._resumed.step != step:
            raise Error("BAD_REQUEST", f"step {step} was committed after resume_directory() had found step "
                        f"{self._resumed.step}: begin again", {"job": self._client.job, "step": str(step)})
        continued = _of_rank(target["trainer"].value)
        for name in _CONTINUED:
            if name in continued:
                setattr(state, name, continued[name])
        self._best_step = state.best_global_step
        self._saved = step
        self._rng = target.get("rng")
        self._resumed = None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Puts the generators back before a whole epoch begins, which draws from them."""
        if state.epoch is not None and float(state.epoch).is_integer():
            self.on_step_begin(args, state, control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Puts the generators back after the Trainer has found its place within an epoch."""
        if self._rng is not None:
            rng.set_rng_state(self._rng)
            self._rng = None

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> Any:
        """Saves the step if that is due, and ends the training where the manager wants it."""
        manager = self._began()
        if manager.step(state.global_step, lambda: self._state_of(args, state, parts)) is not None:
            self._saved = state.global_step
        if manager.should_stop:
            control.should_training_stop = True
        return self._take_over(args, state, control, parts)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **parts: Any) -> Any:
        """Saves in the Trainer's place what it would save at the end of an epoch."""
        return self._take_over(args, state, control, parts)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float] | None = None,
                    **parts: Any) -> None:
        """Saves what was to be saved at this step, when it is known whether it is the best one so far."""
        improved = self._is_best(args, state, metrics or {})
        wanted = self._wanted or (args.save_strategy == SaveStrategy.BEST and improved)
        self._wanted = False
        if improved and (wanted or self._saved == state.global_step):
            state.best_global_step = self._best_step = state.global_step
        if wanted:
            self._save(args, state, parts, metrics)

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **parts: Any) -> None:
        """Waits for the last save; loads the best step, if the Trainer's arguments say so."""
        manager, self._manager = self._began(), None
        try:
            manager.wait()
            if args.load_best_model_at_end and self._best_step is not None:
                holder = _trained(model, parts["optimizer"])["model"]
                target = {"model": holder.state_dict()}
                save_load.load(self._client, target, self._best_step, strict=False)
                holder.load_state_dict(target["model"])
        finally:
            manager.close()

    # Saving.

    def _began(self) -> CheckpointManager:
        if self._manager is None:
            raise Error("BAD_REQUEST", "the Trainer has not begun to train")
        return self._manager

    def _take_over(self, args: Any, state: Any, control: Any, parts: dict[str, Any]) -> Any:
        """Saves in the Trainer's place, at once or after the evaluation that follows."""
        if control.should_save:
            control.should_save = False
            if control.should_evaluate:
                self._wanted = True
            else:
                self._save(args, state, parts, None)
        return control

    def _save(self, args: Any, state: Any, parts: dict[str, Any], metrics: dict[str, float] | None) -> None:
        if self._saved != state.global_step:
            self._saved = state.global_step
            self._began().save(state.global_step, lambda: self._state_of(args, state, parts), metrics)

    def _state_of(self, args: Any, state: Any, parts: dict[str, Any]) -> dict[str, Any]:
        trainer = {name: value for name, value in dataclasses.asdict(state).items() if name != "stateful_callbacks"}
        if self._trainer is not None:
            trainer["stateful_callbacks"] = _states_of_callbacks(self._trainer)
        # Ranks measure times of their own, which stand in the history of the log.
        result = {**_trained(parts["model"], parts["optimizer"]),
                  "trainer": per_rank(json.loads(json.dumps(trainer, default=float)))}
        if args.save_only_model:
            del result["optimizer"]
        else:
            # accelerate wraps it.
            result["scheduler"] = getattr(parts["lr_scheduler"], "scheduler", parts["lr_scheduler"])
            result["rng"] = rng.rng_state()
        return result

    def _is_best(self, args: Any, state: Any, metrics: dict[str, float]) -> bool:
        """Judges as the Trainer does, and before it does: so the Trainer neither saves nor takes note."""
        if args.metric_for_best_model is None:
            return False
        value = metrics.get("eval_" + args.metric_for_best_model.removeprefix("eval_"))
        if value is None:
            return False
        if state.best_metric is not None and not (
                value > state.best_metric if args.greater_is_better else value < state.best_metric):
            return False
        state.best_metric = value
        return True


def _trained(model: Any, optimizer: Any) -> dict[str, Any]:
    """Returns the objects that have the states of a model and of its optimizer, which accelerate wraps."""
    inner = getattr(optimizer, "optimizer", optimizer)
    if type(inner).__module__.partition(".")[0] == "deepspeed":
        return deepspeed.states_of(model, inner)
    return {"model": model, "optimizer": inner}


def _states_of_callbacks(trainer: Any) -> dict[str, Any]:
    """Returns what the Trainer saves of its callbacks, in the form in which it restores them
    (restore_callback_states_from_checkpoint)."""
    states: dict[str, Any] = {}
    for callback in [*trainer.callback_handler.callbacks, trainer.control]:
        if callable(getattr(callback, "state", None)):
            states.setdefault(type(callback).__name__, []).append(callback.state())
    return {name: each if len(each) > 1 else each[0] for name, each in states.items()}


def _leave_loads_out(trainer: Any) -> None:
    """Has a Trainer with FSDP or DeepSpeed take no weights and states from its directory. They would have to be files
    of these libraries' own, and the callback loads the true ones."""
    prepare = getattr(trainer, "_prepare_for_training", None)
    if prepare is None:
        raise Error("UNSUPPORTED", "this version of transformers reads a sharded checkpoint by itself",
                    {"next": "Take transformers 5 or later."})

    def prepared(max_steps: int, train_dataloader: Any, resume_from_checkpoint: str | None) -> Any:
        del trainer._prepare_for_training  # a later train() of it may read another directory
        return prepare(max_steps, train_dataloader, None)

    trainer._prepare_for_training = prepared


def _best_rule(args: Any) -> str:
    """Returns the rule by which the coordinator keeps what the Trainer takes for the best."""
    name = "eval_" + (args.metric_for_best_model or "loss").removeprefix("eval_")
    return f"{name}:{'max' if args.greater_is_better else 'min'}"


def _of_rank(value: Any) -> Any:
    """Returns what rank 0 saved, if another number of ranks did."""
    return value[0] if isinstance(value, PerRankValues) else value
