"""Asks models, optimizers, schedulers and data loaders for their states, and gives loaded states back to them."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable
from typing import Any

import torch

from cairn._base.errors import Error
from cairn._state.entries import PerRank, PerRankValues
from cairn.torch._state_dict.description import as_text, build, describe, from_text, needs_library
from cairn.torch._state_dict.flatten import Whole
from cairn.torch._state_dict.parameter_names import (
    ParameterNames,
    in_groups,
    is_optimizer_state,
    names_in_module,
    with_names,
    with_numbers,
)
from cairn.torch._tensors.subclasses import inner_tensors_of
from cairn.torch._training import rng
from cairn.torch._training.optimizer_state import built_states, describe_states, made_by_step, parameters_of

# The names of descriptions (description.py of _state_dict) begin so; the place of what is described follows.
_DESCRIPTION = "cairn.description."


class Described:
    """A value of a state whose tensors need not be there before a load: it gets those that were saved."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value


class ModuleNames(enum.Enum):
    """How the names of modules' tensors were made, of those in which a state is stored.

    Earlier versions took over the wrappers around a module, such as `module.` of DistributedDataParallel. In what they
    saved, a module that is wrapped now is found under its own keys, and one that is not under those of either wrapper.
    """

    WITHIN_WRAPPERS = ""
    OF_PARALLEL = "module."
    OF_COMPILED = "_orig_mod."


class _ModuleState:
    """The state of a module, whose names are those within its wrappers."""

    def __init__(self, module: torch.nn.Module, state: dict[str, Any]) -> None:
        self._keyed = state
        self._names = names_in_module(module, state)
        self._is_wrapped = any(key != name for key, name in self._names.items())
        self.state = state
        self.take_names(ModuleNames.WITHIN_WRAPPERS)

    def take_names(self, how: ModuleNames) -> None:
        """Makes `state` anew, with other names for the same values."""
        if how == ModuleNames.WITHIN_WRAPPERS:
            self._stored_as = self._names
        else:
            self._stored_as = {key: key if self._is_wrapped else how.value + key for key in self._names}
        if all(key == name for key, name in self._stored_as.items()):
            self.state = self._keyed
        else:
            self.state = {self._stored_as[key]: value for key, value in self._keyed.items()}

    def keyed(self) -> dict[str, Any]:
        """Returns what stands in `state` by the keys that the module knows."""
        for key, name in self._stored_as.items():
            self._keyed[key] = self.state[name]
        return self._keyed


def is_stateful(value: Any) -> bool:
    """Returns whether a value has state_dict() and load_state_dict(), as torch's Stateful."""
    return (not isinstance(value, (dict, type)) and callable(getattr(value, "state_dict", None))
            and callable(getattr(value, "load_state_dict", None)))


def is_described(value: Any, depth: int = 0) -> bool:
    """Returns whether a state holds what a load makes as the checkpoint describes it."""
    if isinstance(value, dict) and depth < 200:
        return any(is_described(item, depth + 1) for item in value.values())
    return isinstance(value, (Described, torch.optim.Optimizer))


class Gathered:
    """A state in which the states of objects stand in the place of the objects.

    Attributes:
      state: nested dicts, as cairn.torch.save and load take them.
    """

    def __init__(self, state: dict[str, Any], to_load: bool = False, make: bool = True,
                 stored: dict[str, Any] | None = None) -> None:
        """
        Args:
          state: nested dicts; values with state_dict() are asked for it. cairn.per_rank() of such a value, and a data
            loader of torchdata, has a state of its own on each rank.
          to_load: the state is to be loaded into. Optimizers, and what is Described, have what the checkpoint has.
          make: where the checkpoint does not describe the state of an optimizer that has none (earlier versions, and
            other libraries, do not), it has what a step makes. Not if it was saved before its first step.
          stored: the objects of the checkpoint that is to be loaded.

        Raises:
          Error: BAD_REQUEST (the state is no dict), UNSUPPORTED (the state of an optimizer can be made in no way).
        """
        if is_stateful(state):
            raise Error("BAD_REQUEST", f"the state must be a dict, not {type(state).__name__}: give it a name, as in "
                        "{\"model\": model}")
        if not isinstance(state, dict):
            raise Error("BAD_REQUEST", f"the state must be a dict, not {type(state).__name__}")
        self._to_load = to_load
        self._make = make
        self._stored = stored or {}
        self._descriptions: dict[str, Any] = {}
        # By the optimizer's place: states that a step has made, and the keys of all its parameters in their order.
        self._made: dict[str, tuple[dict[Any, Any], list[Any]]] = {}
        self._restore: list[Callable[[], str | None]] = []
        self._loaders: list[Any] = []
        self._generators: list[Callable[[], None]] = []
        self._source = state
        self._names = ParameterNames(state)
        # The states of modules that are to be loaded, with their places.
        self._modules: list[tuple[dict[str, Any], str, _ModuleState]] = []
        self.state: dict[str, Any] = self._gather(state, "")
        self.state.update(self._descriptions)

    def restore(self) -> list[str]:
        """Gives every object what a load has put in the place of its state.

        The iterators of data loaders draw from the random number generators when they are made, so they are made now.
        The generators get their states last: then nothing draws from them before the training does.

        Returns:
          The names of those that were left as they are, because their states were saved by another number of ranks.
        """
        left = [name for name in [restore() for restore in self._restore] if name is not None]
        for loader in self._loaders:
            loader.state_dict()  # makes the iterator, which the next iter() returns
        for put_back in self._generators:
            put_back()
        return left

    def has_modules(self) -> bool:
        """Returns whether the state is to be loaded into modules."""
        return bool(self._modules)

    def take_names(self, how: ModuleNames) -> None:
        """Gives the tensors of all modules the names under which they are to be found."""
        for container, key, module in self._modules:
            module.take_names(how)
            container[key] = module.state

    def has_made(self) -> bool:
        """Returns whether optimizers have states that a step has made, and the checkpoint does not describe."""
        return bool(self._made)

    def forget(self, missing: list[str]) -> None:
        """Takes states away that a step has made, and of whose tensors the checkpoint had none."""
        lacks = set(missing)
        for path, (states, keys) in self._made.items():
            for key in [key for key, state in states.items() if isinstance(state, dict)]:
                tensors = [(name, value) for name, value in states[key].items() if isinstance(value, torch.Tensor)]
                for stored_as in {key, keys.index(key)}:  # earlier versions named tensors by numbers
                    names = [part for name, tensor in tensors
                             for part, _ in inner_tensors_of(tensor, f"{path}.state.{stored_as}.{name}")]
                    if names and lacks.issuperset(names):
                        states.pop(key, None)

    def _gather(self, container: dict[str, Any], path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in container.items():
            name = f"{path}.{key}" if path else str(key)
            if isinstance(value, Described):
                part = self._described(value, name)
                if part:
                    result[key] = part
                if self._to_load:
                    self._restore.append(_give_back(container, key, result, {}))
            elif is_stateful(value) or (isinstance(value, PerRank) and is_stateful(value.value)):
                result[key] = self._state_of(value, name, result, key)
            elif isinstance(value, dict) and any(_holds_stateful(item, 0) for item in value.values()):
                result[key] = self._gather(value, name)
            else:
                result[key] = value
                if self._to_load:
                    self._restore.append(_give_back(container, key, result))
                    if isinstance(value, rng.RngState):
                        self._generators.append(_put_back_generators(container, key, value))
        return result

    def _described(self, value: Described, name: str) -> dict[str, Any]:
        if not self._to_load:
            description = describe(value.value)
            if needs_library(description, None, None):
                raise Error("UNSUPPORTED", f"{name!r} holds tensors that a load cannot make, because they are DTensors "
                            "or of a class of their own", {"object": name, "next": "Make them plain tensors."})
            self._descriptions[_DESCRIPTION + name] = as_text(description)
            return value.value
        stored = self._stored.get(_DESCRIPTION + name)
        made: dict[str, Any] = {} if stored is None else build(from_text(stored, name), value.value, path=name)
        return made

    def _state_of(self, value: Any, name: str, result: dict[str, Any], key: str) -> Any:
        if isinstance(value, PerRank) or _is_data_loader(value):
            target = value.value if isinstance(value, PerRank) else value
            self._restore.append(lambda: self._load_own(target, result[key].value.value, name))
            # A loader that has not begun has no state to show, and what is loaded replaces it as a whole.
            return Whole(PerRank(None if self._to_load else target.state_dict()))
        if isinstance(value, torch.nn.Module):
            return self._state_of_module(value, result, key)
        if not isinstance(value, torch.optim.Optimizer):
            self._restore.append(_load(value, result, key))
            return _detached(value.state_dict()) if self._to_load else value.state_dict()
        names = self._names.of(value)
        self._restore.append(lambda: self._load_optimizer(value, result[key], names, name))
        state = value.state_dict()
        if names is not None and is_optimizer_state(state):
            state = with_names(state, names)
        parameters = parameters_of(value, names)
        if self._to_load:
            state = self._with_states(value, state, parameters, name)
        else:
            self._descriptions[_DESCRIPTION + name] = describe_states(value, state.get("state", {}), parameters)
        # An empty "state" would be an object, of a name that the save after the first step lacks.
        return {name: part for name, part in state.items() if name != "state" or part}

    def _state_of_module(self, module: torch.nn.Module, result: dict[str, Any], key: str) -> dict[str, Any]:
        state = module.state_dict()
        if not self._to_load:
            return _ModuleState(module, state).state
        named = _ModuleState(module, _detached(state))
        self._modules.append((result, key, named))
        self._restore.append(lambda: _give(module, named))
        return named.state

    def _with_states(self, optimizer: torch.optim.Optimizer, state: dict[str, Any], parameters: dict[Any, Any],
                     name: str) -> dict[str, Any]:
        """Returns the state dict of an optimizer with tensors for all that is loaded into it."""
        held = state.get("state", {})
        description = self._stored.get(_DESCRIPTION + name)
        if description is not None:
            return {**state, "state": built_states(optimizer, description, parameters, held, name)}
        if not self._make or held:
            return state
        states = made_by_step(optimizer, parameters, name)
        self._made[name] = states, list(parameters)
        return {**state, "state": states}

    def _load_optimizer(self, optimizer: torch.optim.Optimizer, loaded: dict[str, Any], names: list[str] | None,
                        path: str) -> None:
        """An optimizer knows its parameters by their places only, so names are turned back to these."""
        state = {"state": {}, **loaded}
        if names is not None:
            following = iter(names)
            groups = [[next(following) for _ in group["params"]] for group in optimizer.param_groups]
            state, sources = in_groups(state, groups, path)
            if sources != list(range(len(sources))) and _has_scheduler(self._source, optimizer, 0):
                raise Error("UNSUPPORTED", f"{path}: the optimizer's groups stand in another order than when the "
                            "checkpoint was saved, and its scheduler has values for each group in the order of then",
                            {"object": f"{path}.param_groups",
                             "next": "Give the optimizer its groups in the order in which they were saved."})
            state = with_numbers(state, names)
        optimizer.load_state_dict(state)

    def _load_own(self, target: Any, value: Any, name: str) -> str | None:
        if isinstance(value, PerRankValues):
            return name
        if value is not None:  # a load that is not strict found none
            target.load_state_dict(value)
            while hasattr(target, "base_dataloader"):  # accelerate's loaders hold the one that has a state
                target = target.base_dataloader
            if _is_data_loader(target):
                self._loaders.append(target)
        return None


def _give_back(container: dict[str, Any], key: str, result: dict[str, Any],
               *default: dict[str, Any]) -> Callable[[], None]:
    def put() -> None:
        container[key] = result.get(key, *default) if default else result[key]
    return put


def _give(module: torch.nn.Module, state: _ModuleState) -> None:
    module.load_state_dict(state.keyed())


def _load(target: Any, result: dict[str, Any], key: str) -> Callable[[], None]:
    def load() -> None:
        target.load_state_dict(result[key])
    return load


def _put_back_generators(container: dict[str, Any], key: str, before: PerRank) -> Callable[[], None]:
    def put() -> None:
        if container[key] is not before:  # a load that is not strict may have found none
            rng.set_rng_state(container[key])
    return put


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
    if isinstance(value, dict) and depth < 200:
        return any(_holds_stateful(item, depth + 1) for item in value.values())
    return is_stateful(value) or isinstance(value, Described)


def _has_scheduler(container: dict[str, Any], optimizer: torch.optim.Optimizer, depth: int) -> bool:
    """Returns whether a state holds an object that steers the optimizer, as the schedulers of learning rates do."""
    return any(_has_scheduler(value, optimizer, depth + 1) if isinstance(value, dict) and depth < 200
               else getattr(value, "optimizer", None) is optimizer and is_stateful(value)
               for value in container.values())


def _is_data_loader(value: Any) -> bool:
    """A StatefulDataLoader has a position of its own on each rank."""
    return any(base.__module__.partition(".")[0] == "torchdata" for base in type(value).__mro__)
