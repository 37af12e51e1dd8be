"""Asks models, optimizers, schedulers and data loaders for their states, and gives loaded states back to them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from cairn._errors import Error
from cairn._state import PerRank, PerRankValues
from cairn.torch._flatten import Whole
from cairn.torch._parameter_names import ParameterNames, is_optimizer_state, with_names, with_numbers


def is_stateful(value: Any) -> bool:
    """Returns whether a value has state_dict() and load_state_dict(), as torch's Stateful."""
    return (not isinstance(value, (dict, type)) and callable(getattr(value, "state_dict", None))
            and callable(getattr(value, "load_state_dict", None)))


class Gathered:
    """A state in which the states of objects stand in the place of the objects.

    Attributes:
      state: nested dicts, as cairn.torch.save and load take them.
    """

    def __init__(self, state: dict[str, Any], to_load: bool = False, make: bool = True) -> None:
        """
        Args:
          state: nested dicts; values with state_dict() are asked for it. cairn.per_rank() of such a value, and a data
            loader of torchdata, has a state of its own on each rank.
          to_load: the state is to be loaded into. Optimizers that have done no step get the state that their first
            step makes, so that there is something to fill; abandon() takes it away again.
          make: do give it to them. Not if the checkpoint was made before their first step, too.

        Raises:
          Error: BAD_REQUEST (the state is no dict).
        """
        if is_stateful(state):
            raise Error("BAD_REQUEST", f"the state must be a dict, not {type(state).__name__}: give it a name, as in "
                        "{\"model\": model}")
        if not isinstance(state, dict):
            raise Error("BAD_REQUEST", f"the state must be a dict, not {type(state).__name__}")
        self._to_load = to_load
        self._make = make
        self._made: list[torch.optim.Optimizer] = []
        self._restore: list[Callable[[], str | None]] = []
        self._names = ParameterNames(state)
        self.state: dict[str, Any] = self._gather(state, "")

    def restore(self) -> list[str]:
        """Gives every object what a load has put in the place of its state.

        Returns:
          The names of those that were left as they are, because their states were saved by another number of ranks.
        """
        return [name for name in [restore() for restore in self._restore] if name is not None]

    def abandon(self) -> bool:
        """Makes optimizers fresh again that were given a state to be loaded into. Returns whether there were any."""
        for optimizer in self._made:
            optimizer.state.clear()
        return bool(self._made)

    def _gather(self, container: dict[str, Any], path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in container.items():
            name = f"{path}.{key}" if path else str(key)
            if is_stateful(value) or (isinstance(value, PerRank) and is_stateful(value.value)):
                result[key] = self._state_of(value, name, result, key)
            elif type(value) is dict and any(_holds_stateful(item, 0) for item in value.values()):
                result[key] = self._gather(value, name)
            else:
                result[key] = value
                if self._to_load:
                    self._restore.append(_give_back(container, key, result))
        return result

    def _state_of(self, value: Any, name: str, result: dict[str, Any], key: str) -> Any:
        if isinstance(value, PerRank) or _is_data_loader(value):
            target = value.value if isinstance(value, PerRank) else value
            self._restore.append(lambda: _load_own(target, result[key].value.value, name))
            # A loader that has not begun has no state to show, and what is loaded replaces it as a whole.
            return Whole(PerRank(None if self._to_load else target.state_dict()))
        if not isinstance(value, torch.optim.Optimizer):
            self._restore.append(_load(value, result, key))
            return _detached(value.state_dict()) if self._to_load else value.state_dict()
        if self._to_load and self._make and _make_state(value):
            self._made.append(value)
        names = self._names.of(value)
        self._restore.append(_load_optimizer(value, result, key, names))
        # An empty "state" would be an object, of a name that the save after the first step lacks.
        state = {name: part for name, part in value.state_dict().items() if name != "state" or part}
        return with_names(state, names) if names is not None and is_optimizer_state(state) else state


def _give_back(container: dict[str, Any], key: str, result: dict[str, Any]) -> Callable[[], None]:
    def put() -> None:
        container[key] = result[key]
    return put


def _load(target: Any, result: dict[str, Any], key: str) -> Callable[[], None]:
    def load() -> None:
        target.load_state_dict(result[key])
    return load


def _load_optimizer(optimizer: torch.optim.Optimizer, result: dict[str, Any], key: str,
                    names: list[str] | None) -> Callable[[], None]:
    """An optimizer knows its parameters by numbers only, so names are turned back to these."""
    def load() -> None:
        state = {"state": {}, **result[key]}
        optimizer.load_state_dict(state if names is None else with_numbers(state, names))
    return load


def _detached(state: Any) -> Any:
    """Returns a state whose dicts are copies, because a load fills dicts in place, and an object may have given out its
    own. Tensors, and what else stands in them, are the same."""
    if not isinstance(state, dict):
        return state
    made = copy.copy(state)  # with the attributes that modules give to theirs
    for key, value in state.items():
        made[key] = _detached(value)
    return made


def _holds_stateful(value: Any, depth: int) -> bool:
    """Deeper dicts are refused when the state is flattened."""
    if isinstance(value, PerRank):
        value = value.value
    if type(value) is dict and depth < 200:
        return any(_holds_stateful(item, depth + 1) for item in value.values())
    return is_stateful(value)


def _is_data_loader(value: Any) -> bool:
    """A StatefulDataLoader has a position of its own on each rank."""
    return any(base.__module__.partition(".")[0] == "torchdata" for base in type(value).__mro__)


def _load_own(target: Any, value: Any, name: str) -> str | None:
    if isinstance(value, PerRankValues):
        return name
    if value is not None:  # a load that is not strict found none
        target.load_state_dict(value)
    return None


def _make_state(optimizer: torch.optim.Optimizer) -> bool:
    """Makes the state of an optimizer by a step with gradients and a learning rate of zero, if it has none.

    torch.distributed.checkpoint.state_dict does the same.
    """
    if optimizer.state:
        return False
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if any(parameter.grad is not None for parameter in parameters):
        return False  # a step would use them up
    rates = [group.get("lr") for group in optimizer.param_groups]
    try:
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if rate is not None:
                group["lr"] = torch.tensor(0.0) if isinstance(rate, torch.Tensor) else 0.0
        optimizer.step(closure=None)
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if rate is not None:
                group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
    return True
