"""Gives an optimizer the state that a checkpoint has, whatever the optimizer has done before.

The state of a parameter comes with the first step in which it has a gradient. So a save describes what is there, and a
load makes exactly that: no step is taken, parameters that had no state get none, and it does not matter what a step
needs (a closure, sparse gradients, a mode). Only tensors of other libraries' classes are made by a step.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch

from cairn._base.errors import Error
from cairn._state.entries import PerRank
from cairn.torch._state_dict.description import as_text, build, describe, from_text, needs_library

Parameters = dict[Any, torch.Tensor]
# What the last save of an optimizer has described: its signature and its text.
_described: weakref.WeakKeyDictionary[torch.optim.Optimizer, tuple[Any, str]] = weakref.WeakKeyDictionary()


def parameters_of(optimizer: torch.optim.Optimizer, names: list[Any] | None = None) -> Parameters:
    """Returns the parameters by the keys that they have in the state: by their names, in the order of the groups; by
    their numbers without `names`."""
    every = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return dict(zip(range(len(every)) if names is None else names, every, strict=True))


def describe_states(optimizer: torch.optim.Optimizer, states: dict[Any, Any], parameters: Parameters) -> str:
    """Returns what a load needs to make such states, as a text: [descriptions, [its position, key, whether of a
    parameter], ...].

    Most parameters have states of one kind, so that each kind is described once. What a save of the same optimizer has
    described is not described again: to see that it is the same costs less.
    """
    signature = _signature(states, parameters)
    before = _described.get(optimizer)
    if before is not None and signature is not None and before[0] == signature:
        return before[1]
    kinds: list[Any] = []
    positions: dict[str, int] = {}
    of: list[Any] = []
    for key, state in states.items():
        description = describe(state, parameters.get(key))
        text = repr(description)
        if text not in positions:
            positions[text] = len(kinds)
            kinds.append(description)
        of.append([positions[text], key, key in parameters])
    text = as_text([kinds, *of])
    _described[optimizer] = signature, text
    return text


def _signature(states: dict[Any, Any], parameters: Parameters) -> Any:
    """Returns all on which the description of states depends; None of states that are nested deeper."""
    if not all(type(state) is dict for state in states.values()):
        return None
    values = [value for state in states.values() for value in state.values()]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if any(isinstance(value, (dict, list, PerRank)) for value in values):
        return None
    return ([(key, *state) for key, state in states.items()], list(map(type, values)),
            [(tensor.dtype, tensor.shape, tensor.device) for tensor in tensors],
            [(tensor.placements, tensor.device_mesh) for tensor in tensors if hasattr(tensor, "placements")],
            list(parameters), [(parameter.shape, parameter.device) for parameter in parameters.values()])


def built_states(optimizer: torch.optim.Optimizer, description: str, parameters: Parameters,
                 held: dict[Any, Any], path: str) -> dict[Any, Any]:
    """Makes the states that were described, for a load to fill. The optimizer itself stays as it is.

    A parameter that the optimizer does not have gets none: the load says that nobody wants what is stored of it.

    Args:
      held: the states that the optimizer has. Their tensors are taken, so that a load fills them in place.
      path: where the optimizer stands in the state, for errors.

    Raises:
      Error: UNSUPPORTED (a tensor that only its library can make, and a step does not), FORMAT_TOO_NEW.
    """
    kinds, *of = from_text(description, path)
    if of and all(isinstance(key, int) for _, key, _ in of) and not any(key in parameters for _, key, _ in of):
        keys = list(parameters)  # the states were numbered, because nothing told the parameters' names
        of = [[position, keys[key], True] for position, key, of_parameter in of if of_parameter and key < len(keys)]
    wanted = {key: kinds[position] for position, key, of_parameter in of if key in parameters or not of_parameter}
    lacking = {key: parameters[key] for key, kind in wanted.items()
               if key in parameters and needs_library(kind, held.get(key), parameters[key])}
    if lacking:
        held = held | made_by_step(optimizer, lacking, path)
    return {key: build(kind, held.get(key), parameters.get(key), f"{path}.state.{key}")
            for key, kind in wanted.items()}


def made_by_step(optimizer: torch.optim.Optimizer, parameters: Parameters, path: str) -> dict[Any, Any]:
    """Makes the states of parameters by a step with gradients and a learning rate of zero, as torch's get_state_dict
    does. States, groups and gradients of the optimizer are put back as they were.

    Raises:
      Error: UNSUPPORTED (the optimizer does not do such a step).
    """
    every = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    keys = {id(parameter): key for key, parameter in parameters.items() if parameter.requires_grad}
    gradients = [parameter.grad for parameter in every]
    groups = [(dict(group), copy.deepcopy({name: value for name, value in group.items() if name != "params"}))
              for group in optimizer.param_groups]
    before = dict(optimizer.state)
    try:
        optimizer.state.clear()
        for parameter in every:
            parameter.grad = torch.zeros_like(parameter) if id(parameter) in keys else None
        for group in optimizer.param_groups:
            if group.get("lr") is not None:
                group["lr"] = torch.zeros_like(group["lr"]) if isinstance(group["lr"], torch.Tensor) else 0.0
        optimizer.step(closure=None)
        made = optimizer.state_dict()["state"]
        return {keys[id(every[number])]: state for number, state in made.items()
                if isinstance(number, int) and id(every[number]) in keys}
    except Exception as error:  # whatever the optimizer raises without a closure, or for gradients that are not sparse
        kind = type(optimizer)
        raise Error("UNSUPPORTED", f"{path!r}: a step with gradients of zero, which makes the state of "
                    f"{kind.__module__}.{kind.__qualname__}, fails: {type(error).__name__}: {str(error)[:200]}",
                    {"object": path, "next": "Do a step of the training before the load, which then fills what that "
                     "step has made."}) from error
    finally:
        optimizer.state.clear()
        optimizer.state.update(before)
        for parameter, gradient in zip(every, gradients, strict=True):
            parameter.grad = gradient
        for group, (originals, copies) in zip(optimizer.param_groups, groups, strict=True):
            _put_back(group, originals, copies)


def _put_back(group: dict[str, Any], originals: dict[str, Any], copies: dict[str, Any]) -> None:
    """Gives a group the values that it had. Others may hold its tensors, so these stay the same ones."""
    group.clear()
    group.update(originals | copies)
    for name, value in originals.items():
        if isinstance(value, torch.Tensor):
            value.detach().copy_(copies[name])
            group[name] = value
