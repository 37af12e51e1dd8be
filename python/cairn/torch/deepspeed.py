"""Saves and loads what a DeepSpeed engine trains with ZeRO, under any number of ranks and any stage.

    from cairn.torch import CheckpointManager, deepspeed
    engine, _, _, _ = deepspeed.initialize(...)                                  # of the library
    state = {**cairn.torch.deepspeed.states(engine), "scheduler": scheduler}
    manager.restore_or_initialize(state)

Each rank declares the parts of the flat partitions that it owns, as parts of the parameters by their names. So a load
may have another number of ranks and another stage of ZeRO, and `cairn export` writes the weights for other programs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple, SupportsIndex

import torch

from cairn._base.errors import Error
from cairn._state.entries import Shard
from cairn.client import Client, Saving
from cairn.torch._dcp.default_client import own_client
from cairn.torch._state_dict import save_load
from cairn.torch._tensors.host_copies import DeviceCopies
from cairn.torch._tensors.tensor_shards import array_of
from cairn.torch._training.optimizer_state import made_by_step

__all__ = ["load_checkpoint", "save_checkpoint", "states"]

# What an engine counts.
_COUNTERS = ("global_steps", "global_samples", "micro_steps", "skipped_steps")


def save_checkpoint(engine: Any, step: SupportsIndex, *, client: Client | None = None, timeout: float = 60) -> Saving:
    """Saves an engine in the place of its own save_checkpoint. Every rank calls it for the same step.

    Args:
      engine: as for states().
      step, timeout: as for Client.save.
      client: this rank's; by default that of cairn.connect(), which is kept for later calls.

    Returns:
      The save, which goes on by itself; its wait() gives the outcome.

    Raises:
      Error: UNSUPPORTED, as states(); and as Client.save.
    """
    state = {name: part.state_dict() for name, part in states(engine).items()}
    return save_load.save(own_client(client), step, state, timeout)


def load_checkpoint(engine: Any, step: SupportsIndex | None = None, *,
                    source: str | os.PathLike[str] | None = None, client: Client | None = None) -> int | None:
    """Loads an engine in the place of its own load_checkpoint. Every rank calls it.

    Args:
      engine: as for states().
      step: None for the latest one.
      source: a directory that DeepSpeed wrote, to be loaded instead: the one of `latest` or of a tag, also a universal
        one. Settings of the optimizer, such as its learning rate, and what the engine counts stay as they are then.
      client: as for save_checkpoint().

    Returns:
      The step; None if the job has no checkpoint yet, and the engine is as it was; None also with `source`.

    Raises:
      Error: MISSING_NAMES (the source lacks a tensor); UNSUPPORTED, as states(); and as Client.load, but for
        NOT_COMMITTED without a step.
    """
    parts = states(engine)
    state = {name: part.state_dict() for name, part in parts.items()}
    client = own_client(client)
    if source is None:
        try:
            report = save_load.load(client, state, step)
        except Error as error:
            if error.reason == "NOT_COMMITTED" and step is None:
                return None
            raise
    else:
        # There the weights have no name in front of theirs.
        wanted = {**state["model"], "optimizer": state["optimizer"]}
        report = save_load.fill(client, wanted, None, None, False, source=source)
        missing = [name for name in report.missing
                   if name not in ("optimizer.param_groups", "optimizer.loss_scaler")]
        if missing:
            raise save_load.names_error("MISSING_NAMES", missing, os.fspath(source))
        state = {"model": wanted, "optimizer": wanted["optimizer"]}
    for name, part in parts.items():
        if name in state:
            part.load_state_dict(state[name])
    return report.step


def states(engine: Any) -> dict[str, Any]:
    """Returns the states of an engine, to be put into the state that a CheckpointManager saves.

    Args:
      engine: what deepspeed.initialize() returned, or accelerate's prepare(); with ZeRO of stage 1, 2 or 3.

    Returns:
      "model": the weights, those that are trained in float32 as the optimizer has them, and persistent buffers;
      "optimizer": its states, settings, and what scales the loss; "engine": what the engine counts. A scheduler of the
      learning rate is not among them.

    Raises:
      Error: UNSUPPORTED (no ZeRO, states on NVMe, experts, or tensor or pipeline parallelism).
    """
    parts = states_of(engine.module, engine.optimizer)
    return {**parts, "engine": _Counters(engine)}


def states_of(module: torch.nn.Module, optimizer: Any) -> dict[str, Any]:
    """Returns the states of the module and of the optimizer that an engine has made. Raises as states()."""
    zero = _Zero(module, optimizer)
    return {"model": _ModelState(zero), "optimizer": _OptimizerState(zero)}


class _Part(NamedTuple):
    """What a rank owns of a parameter: elements [begin, end) of it, from `at` on in the flat partition of a group."""

    name: str
    parameter: torch.nn.Parameter
    shape: tuple[int, ...]
    group: int
    begin: int
    end: int
    at: int


class _Zero:
    """Knows where ZeRO keeps what it has cut.

    Attributes:
      module: the engine's.
      optimizer: the engine's.
      flat: the float32 partitions of this rank, one for each group of the inner optimizer's states.
      parts: of the parameters that are trained; those of which this rank owns nothing are not there.
    """

    def __init__(self, module: torch.nn.Module, optimizer: Any) -> None:
        self.module, self.optimizer = module, optimizer
        self._names = {parameter: name for name, parameter in module.named_parameters()}
        kind = type(optimizer).__name__
        self.stage3 = kind == "DeepSpeedZeroOptimizer_Stage3"
        if self.stage3:
            if optimizer.swap_optimizer or optimizer.params_in_nvme_and_cpu:
                raise _refusal("keeps states on NVMe")
            self.flat = optimizer.fp32_partitioned_groups_flat
            self.parts = list(self._parts_of_stage3())
        elif kind in ("DeepSpeedZeroOptimizer", "BF16_Optimizer"):
            early = kind == "DeepSpeedZeroOptimizer"
            self.flat = optimizer.single_partition_of_fp32_groups if early else optimizer.fp32_groups_flat_partition
            self.parts = list(self._parts_of(optimizer.bit16_groups if early else optimizer.bf16_groups))
        else:
            raise _refusal(f"has the optimizer {kind}, which is none of ZeRO's stages 1 to 3",
                           "Without ZeRO, give the module and the optimizer themselves to CheckpointManager.")
        group = optimizer.dp_process_group if self.stage3 else optimizer.real_dp_process_group[0]
        if torch.distributed.get_world_size(group) != torch.distributed.get_world_size():
            raise _refusal("cuts its tensors among ranks besides ZeRO (experts, tensor or pipeline parallelism)")

    def _parts_of(self, groups: list[list[torch.nn.Parameter]]) -> Iterator[_Part]:
        for group, parameters in enumerate(groups):
            for parameter in parameters:
                mapping = parameter._hp_mapping
                if mapping is not None:
                    begin, count = mapping.lp_fragment_address.start, mapping.lp_fragment_address.numel
                    yield _Part(self._names[parameter], parameter, tuple(parameter.shape), group, begin, begin + count,
                                mapping.hp_fragment_address.start)

    def _parts_of_stage3(self) -> Iterator[_Part]:
        for group, parameters in enumerate(self.optimizer.fp16_groups):
            at = 0
            for parameter in parameters:
                begin, end = self.range_of(parameter)
                if begin < end:
                    yield _Part(self._names[parameter], parameter, tuple(parameter.ds_shape), group, begin, end, at)
                at += parameter.partition_numel()

    def range_of(self, parameter: Any) -> tuple[int, int]:
        """Returns which elements of a parameter this rank has in stage 3. The last partition ends in padding."""
        size, rank = parameter.partition_numel(), torch.distributed.get_rank(parameter.ds_process_group)
        return min(rank * size, parameter.ds_numel), min((rank + 1) * size, parameter.ds_numel)

    def trained(self) -> set[str]:
        """Returns the names of the parameters that are trained, whether or not this rank owns some of them."""
        return {name for parameter, name in self._names.items() if parameter.requires_grad}

    def states(self) -> Any:
        """Returns the states of the inner optimizer, by the flat partitions. Before the first step they are made as
        that begins with them."""
        inner = self.optimizer.optimizer
        needed = {part.group for part in self.parts if not inner.state.get(self.flat[part.group])}
        if needed:
            before = [group["params"] for group in inner.param_groups]
            try:
                if self.stage3:  # which hands its partitions to the optimizer only for a step
                    for number, group in enumerate(inner.param_groups):
                        group["params"] = [flat for index, flat in enumerate(self.flat)
                                           if self.optimizer.sub_group_to_group_id[index] == number]
                made = made_by_step(inner, {index: self.flat[index] for index in sorted(needed)}, "optimizer")
            finally:
                for group, parameters in zip(inner.param_groups, before, strict=True):
                    group["params"] = parameters
            for index, state in made.items():
                if isinstance(state.get("step"), torch.Tensor):
                    state["step"].zero_()
                elif "step" in state:
                    state["step"] = 0
                inner.state[self.flat[index]] = state
        return inner.state

    def refresh(self) -> None:
        """Makes the weights of the module anew, of the float32 partitions."""
        if not self.stage3:
            self.optimizer.update_lp_params()
            return
        self.optimizer.parameter_offload.partition_all_parameters()  # some may still be gathered after a step
        for index, flat in enumerate(self.flat):
            half = self.optimizer.fp16_partitioned_groups_flat[index]
            half.data.copy_(flat.data)
            parts = self.optimizer.fp16_partitioned_groups[index]
            for part, value in zip(parts, self.optimizer.unflatten(half, parts), strict=True):
                part.data = value.data
        kept = self.optimizer.persistent_parameters  # small ones, which every rank has as a whole besides
        if kept:
            kept[0].partition(kept)
            kept[0].all_gather(kept)


class _Declared:
    """Tensors that were declared of memory which a load fills."""

    def __init__(self) -> None:
        self.copies = DeviceCopies()
        self.state: dict[str, Any] = {}

    def add(self, name: str, flat: torch.Tensor, shape: tuple[int, ...], begin: int, end: int) -> None:
        """Declares the elements [begin, end) of a tensor."""
        dtype = str(flat.dtype).removeprefix("torch.")
        self.state[name] = Shard(array_of(flat.detach(), name, self.copies), shape, (0,) * len(shape), shape,
                                 (begin, end), dtype)


class _ModelState:
    """The weights and the buffers, by the module's names."""

    def __init__(self, zero: _Zero) -> None:
        self._zero = zero
        self._declared = _Declared()

    def state_dict(self) -> dict[str, Any]:
        zero, declared = self._zero, _Declared()
        for part in zero.parts:
            declared.add(part.name, zero.flat[part.group].narrow(0, part.at, part.end - part.begin), part.shape,
                         part.begin, part.end)
        trained = zero.trained()
        plain: dict[str, Any] = {}
        for name, value in zero.module.state_dict(keep_vars=True).items():
            if isinstance(value, torch.nn.Parameter):
                if name not in trained and not value.requires_grad:
                    self._add_frozen(name, value, declared, plain)
            else:
                plain[name] = value
        declared.copies.from_devices()
        self._declared = declared
        return {**plain, **declared.state}

    def _add_frozen(self, name: str, parameter: Any, declared: _Declared, plain: dict[str, Any]) -> None:
        if not self._zero.stage3:
            plain[name] = parameter.detach()
            return
        begin, end = self._zero.range_of(parameter)
        if begin < end:
            declared.add(name, parameter.ds_tensor.narrow(0, 0, end - begin), tuple(parameter.ds_shape), begin, end)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what a load has put into the memory that state_dict() declared, and the other values."""
        self._declared.copies.to_devices()
        names = self._zero.module.state_dict().keys() & state.keys() - self._declared.state.keys()
        self._zero.module.load_state_dict({name: state[name] for name in names}, strict=False)
        self._zero.refresh()


class _OptimizerState:
    """The states of the optimizer, by the names of the parameters: "exp_avg.layer.weight"."""

    def __init__(self, zero: _Zero) -> None:
        self._zero = zero
        self._declared = _Declared()
        self._steps: dict[tuple[int, str], torch.Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        zero, declared = self._zero, _Declared()
        self._steps = {}
        states = zero.states()
        for part in zero.parts:
            flat = zero.flat[part.group]
            for key, value in states[flat].items():
                name = f"{key}.{part.name}"
                if isinstance(value, torch.Tensor) and value.shape == flat.shape:
                    declared.add(name, value.narrow(0, part.at, part.end - part.begin), part.shape, part.begin,
                                 part.end)
                elif isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1):
                    # One number stands for the whole group; each parameter gets it, since groups are cut otherwise.
                    self._steps[part.group, key] = declared_value = torch.tensor(float(value)).reshape(1)
                    declared.add(name, declared_value, (), 0, 1)
                else:
                    raise _refusal(f"has the state {key!r}, which is neither of a parameter's shape nor a number")
        declared.copies.from_devices()
        self._declared = declared
        scaler = getattr(zero.optimizer, "loss_scaler", None)
        return {**declared.state,
                "param_groups": [{key: value for key, value in group.items() if key != "params"}
                                 for group in zero.optimizer.optimizer.param_groups],
                "loss_scaler": {} if scaler is None else _plain(vars(scaler))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what a load has put into the memory that state_dict() declared, and the other values."""
        self._declared.copies.to_devices()
        optimizer = self._zero.optimizer
        for (group, key), value in self._steps.items():
            held = optimizer.optimizer.state[self._zero.flat[group]]
            if isinstance(held[key], torch.Tensor):
                held[key].fill_(value.item())
            else:
                held[key] = type(held[key])(value.item())
        groups = state.get("param_groups", [])
        if len(groups) == len(optimizer.optimizer.param_groups):
            for group, saved in zip(optimizer.optimizer.param_groups, groups, strict=True):
                group.update(saved)
        if getattr(optimizer, "loss_scaler", None) is not None:
            vars(optimizer.loss_scaler).update(state.get("loss_scaler", {}))


class _Counters:
    """What an engine counts: its steps, by which it knows when gradients have been accumulated."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def state_dict(self) -> dict[str, int]:
        return {name: int(getattr(self._engine, name)) for name in _COUNTERS}

    def load_state_dict(self, state: dict[str, int]) -> None:
        for name in _COUNTERS:
            setattr(self._engine, name, state[name])


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Returns what a scale of the loss consists of, without what is no plain value."""
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}


def _refusal(what: str, action: str = "Use DeepSpeed's own save_checkpoint for this engine; `cairn import` takes most "
             "of what it writes.") -> Error:
    return Error("UNSUPPORTED", f"the DeepSpeed engine {what}", {"next": action})
