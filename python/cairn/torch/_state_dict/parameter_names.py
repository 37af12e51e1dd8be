"""Names the tensors of an optimizer's state by parameters, as torch's get_state_dict does.

An optimizer numbers its parameters, in the order of its groups: state.0.exp_avg. Such names say nothing to other
programs, and change with the order. Where the parameters' names are known, a state has these in the place of numbers:
state.layer.weight.exp_avg. Earlier versions of Cairn stored the numbers that CheckpointManager found.

The names of parameters, and of all tensors of a module, are those within wrappers such as DistributedDataParallel and
what torch.compile returns, so that a checkpoint does not depend on them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from cairn._base.errors import Error

_WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}
_PARALLEL = {"DataParallel", "DistributedDataParallel"}


def is_optimizer_state(value: Any) -> bool:
    """Returns whether a dict is what the state_dict() of an optimizer returns, or get_state_dict of one."""
    return (isinstance(value, dict) and isinstance(value.get("param_groups"), list)
            and isinstance(value.get("state", {}), dict)
            and all(isinstance(group, dict) and isinstance(group.get("params"), list)
                    for group in value["param_groups"]))


def listed(state: dict[str, Any]) -> list[Any]:
    """Returns the names, or numbers, of the parameters of an optimizer's state in the order of its groups."""
    return [parameter for group in state["param_groups"] for parameter in group["params"]]


def numbers_of(state: dict[str, Any]) -> dict[str, int] | None:
    """Returns the number of each parameter of a state that names them; None of any other state."""
    names = listed(state)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return None
    return {name: number for number, name in enumerate(names)}


def with_names(state: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Returns an optimizer's state with names in the place of numbers. Its tensors are the same."""
    result = {**state, "param_groups": groups_with_names(state["param_groups"], names)}
    if "state" in state:
        result["state"] = {names[key] if isinstance(key, int) and key < len(names) else key: value
                           for key, value in state["state"].items()}
    return result


def groups_with_names(groups: list[Any], names: list[str]) -> list[Any]:
    """Returns groups with names in the place of numbers; as they are, if they do not belong together."""
    numbers = [number for group in groups for number in group["params"]]
    if not all(isinstance(number, int) and 0 <= number < len(names) for number in numbers):
        return groups
    return [{**group, "params": [names[number] for number in group["params"]]} for group in groups]


def with_numbers(state: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Returns an optimizer's state with numbers in the place of names, as its load_state_dict() takes it."""
    numbers = {name: number for number, name in enumerate(names)}
    result = dict(state)
    if "state" in state:
        result["state"] = {numbers.get(key, key): value for key, value in state["state"].items()}
    if "param_groups" in state:
        result["param_groups"] = [{**group, "params": [numbers.get(name, name) for name in group["params"]]}
                                  for group in state["param_groups"]]
    return result


def in_groups(state: dict[str, Any], wanted: list[list[str]], path: str) -> tuple[dict[str, Any], list[int]]:
    """Returns an optimizer's state that names parameters, with these in the groups and the order in which the optimizer
    has them now. Its load_state_dict() knows them by their place alone.

    Args:
      wanted: the names of each group of the optimizer.
      path: the optimizer's place, for errors.

    Returns:
      The state, and of each group the number of the saved one whose settings it has.

    Raises:
      Error: MISSING_NAMES, UNEXPECTED_NAMES (the groups have other parameters), UNSUPPORTED (parameters of one group
        had different settings).
    """
    groups = state["param_groups"]
    if [group["params"] for group in groups] == wanted:
        return state, list(range(len(groups)))
    place = {name: index for index, group in enumerate(groups) for name in group["params"]}
    if not all(isinstance(name, str) for name in place):
        return state, list(range(len(groups)))  # earlier versions numbered them
    names = {name for group in wanted for name in group}
    if names.isdisjoint(place) and len(_different(groups)) == 1:
        # A load by a mapping has renamed them.
        return {**state, "param_groups": [{**_settings(groups[0]), "params": each} for each in wanted]}, \
            list(range(len(wanted)))
    for reason, those, what in (("MISSING_NAMES", names - place.keys(), "has no settings for"),
                                ("UNEXPECTED_NAMES", place.keys() - names, "has settings for, and the program lacks,")):
        if those:
            first = min(those)
            raise Error(reason, f"{path}.param_groups of the checkpoint {what} {len(those)} of the optimizer's "
                        f"parameters, such as {first!r}", {"object": f"{path}.param_groups", "tensor": first,
                        "next": "Give the optimizer the parameters that it had when the checkpoint was saved."})
    unused = [index for index, group in enumerate(groups) if not group["params"]]
    result, sources = [], []
    for each in wanted:
        of = sorted({place[name] for name in each}) or unused[:1]
        if not each:
            unused = unused[1:]
        if len(_different([groups[index] for index in of])) != 1:
            raise Error("UNSUPPORTED", f"{path}: the optimizer has other groups than when the checkpoint was saved, "
                        "and the settings of one of them cannot be told: that of "
                        f"{repr(each[0]) if each else 'no parameter'}",
                        {"object": f"{path}.param_groups",
                         "next": "Give the optimizer the groups that it had when the checkpoint was saved."})
        result.append({**_settings(groups[of[0]]), "params": each})
        sources.append(of[0])
    return {**state, "param_groups": result}, sources


def _different(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the different settings of groups."""
    found: list[dict[str, Any]] = []
    for group in groups:
        settings = _settings(group)
        if settings not in found:
            found.append(settings)
    return found


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """Returns all of a group but its parameters. torch keeps those names of parameters that an optimizer has itself."""
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}


class ParameterNames:
    """The names of the parameters of the modules that a state holds, as they are there."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    @functools.cached_property
    def _modules(self) -> list[tuple[str, dict[int, str]]]:
        """The names in each module by the parameters' identities, with the module's place in the state."""
        return [(path, {id(parameter): _qualified(module, name) for name, parameter in module.named_parameters()})
                for path, module in _modules_of(self._state, "", 0)]

    def of(self, optimizer: torch.optim.Optimizer) -> list[str] | None:
        """Returns the names of an optimizer's parameters in the order of their numbers; None if one has no name.

        They are those in the first module that has all of the parameters. If none has, the module's place in the state
        stands before them.
        """
        wanted = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
        for _, named in self._modules:
            if named.keys() >= set(wanted):
                return _distinct([named[each] for each in wanted])
        everywhere: dict[int, str] = {}
        for path, named in self._modules:
            for each, name in named.items():
                everywhere.setdefault(each, f"{path}.{name}")
        return _distinct([everywhere[each] for each in wanted]) if everywhere.keys() >= set(wanted) else None


def _distinct(names: list[str]) -> list[str] | None:
    return names if names and len(set(names)) == len(names) else None


def _modules_of(container: dict[str, Any], path: str, depth: int) -> Iterator[tuple[str, torch.nn.Module]]:
    for key, value in container.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, torch.nn.Module):
            yield name, value
        elif isinstance(value, dict) and depth < 200:
            yield from _modules_of(value, name, depth + 1)


def names_in_module(module: torch.nn.Module, keys: Iterable[str]) -> dict[str, str]:
    """Returns the names of a module's state by the keys of its state_dict(): these without the wrappers around modules.

    Where two keys would get one name, all stay as they are.
    """
    names = {key: _qualified(module, key) for key in keys}
    return names if len(set(names.values())) == len(names) else {key: key for key in names}


def _qualified(module: torch.nn.Module, name: str) -> str:
    """Returns a tensor's name without the wrappers around modules, as get_state_dict returns it."""
    if not any(wrapper in name for wrapper in ("module", "_orig_mod")):
        return name
    parts = []
    at: Any = module
    for part in name.split("."):
        of_parallel = part == "module" and any(base.__name__ in _PARALLEL for base in type(at).__mro__)
        if part not in _WRAPPERS and not of_parallel:
            parts.append(part)
        at = getattr(at, part, None)
    return ".".join(parts)
