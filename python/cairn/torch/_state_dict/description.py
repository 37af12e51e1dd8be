"""Describes states whose tensors a program does not have before it loads them, so that a load can make them.

A load fills tensors, so it needs their dtypes and shapes. A model has its tensors when it is made; an optimizer gets
its own one after the other as it goes on, and so do callbacks. A save therefore stores a description beside such a
state: a tree as the state itself, in which a list stands for each item. It begins with the item's kind:

    ["value"]                      no tensor is in it: it is stored as an object, which replaces it
    ["own"]                        an object of which each rank has its own
    ["like", dtype]                a tensor of the parameter's shape, cut and placed as the parameter
    ["tensor", dtype, shape, host] a plain tensor; whether it is in the host's memory
    ["other", dtype, shape]        a tensor that only its own library can make
    ["dict", [key, item], ...]     a dict or list that holds tensors
    ["list", item, ...]
"""

from __future__ import annotations

import json
from typing import Any

import torch

from cairn._base.errors import Error
from cairn._state.entries import PerRank
from cairn.torch._tensors.subclasses import has_own_memory

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # a torch without distributed
    DTensor = None

_MAX_DEPTH = 200


def describe(value: Any, parameter: torch.Tensor | None = None, depth: int = 0) -> list[Any]:
    """Returns the description of an item of a state.

    Args:
      parameter: the item belongs to it.
    """
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value, parameter)
    if depth < _MAX_DEPTH and holds_tensor(value):  # a deeper state is refused when it is flattened
        if isinstance(value, dict):
            return ["dict", *([key, describe(item, parameter, depth + 1)] for key, item in value.items())]
        if isinstance(value, list):
            return ["list", *(describe(item, parameter, depth + 1) for item in value)]
    return ["own" if isinstance(value, PerRank) else "value"]


def as_text(description: list[Any]) -> str:
    return json.dumps(description, separators=(",", ":"))


def from_text(text: Any, path: str) -> list[Any]:
    """Returns what as_text() wrote. Raises FORMAT_TOO_NEW."""
    try:
        description = json.loads(text)
    except (TypeError, ValueError):
        description = None
    if not isinstance(description, list) or not description:
        raise Error("FORMAT_TOO_NEW", f"{path!r} is described in a way that this version does not know",
                    {"object": path})
    return description


def build(description: list[Any], held: Any = None, parameter: torch.Tensor | None = None, path: str = "") -> Any:
    """Makes what was described, for a load to fill. Values that are no tensors are None.

    Args:
      held: what the program has in this place. Its tensors are taken where they are what was described.
      path: where the item stands, for errors.

    Raises:
      Error: UNSUPPORTED (a tensor that only its library can make, and the program has none), FORMAT_TOO_NEW.
    """
    kind, *rest = description
    if kind in ("value", "own"):
        return PerRank(None) if kind == "own" else None
    if kind == "dict":
        has = held if isinstance(held, dict) else {}
        return {key: build(item, has.get(key), parameter, f"{path}.{key}") for key, item in rest}
    if kind == "list":
        items = held if isinstance(held, list) else []
        return [build(item, items[i] if i < len(items) else None, parameter, f"{path}.{i}")
                for i, item in enumerate(rest)]
    if isinstance(held, torch.Tensor) and _describe_tensor(held, parameter)[:3] == description[:3]:
        return held
    if kind == "like" and parameter is not None:
        return torch.empty_like(parameter.detach(), dtype=_dtype(rest[0], path), requires_grad=False)
    if kind == "tensor":
        device = "cpu" if rest[2] or parameter is None else parameter.device
        return torch.empty(rest[1], dtype=_dtype(rest[0], path), device=device)
    if kind in ("like", "other"):
        raise Error("UNSUPPORTED", f"{path!r} is a tensor that only its own library can make, and this program has "
                    "none in its place",
                    {"tensor": path, "next": "Make it before the load, as the run that saved it did."})
    raise Error("FORMAT_TOO_NEW", f"{path!r} is described in a way that this version does not know ({kind!r})",
                {"object": path})


def needs_library(description: list[Any], held: Any, parameter: torch.Tensor | None) -> bool:
    """Returns whether build() would refuse, because the program lacks what only another library can make."""
    kind, *rest = description
    if kind == "dict":
        has = held if isinstance(held, dict) else {}
        return any(needs_library(item, has.get(key), parameter) for key, item in rest)
    if kind == "list":
        items = held if isinstance(held, list) else []
        return any(needs_library(item, items[i] if i < len(items) else None, parameter)
                   for i, item in enumerate(rest))
    return kind == "other" and not (
        isinstance(held, torch.Tensor) and _describe_tensor(held, parameter)[:3] == description[:3])


def holds_tensor(value: Any, depth: int = 0) -> bool:
    """Returns whether a state has a tensor, or a value of each rank's own, in its dicts and lists."""
    if depth > _MAX_DEPTH:
        return True
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, (torch.Tensor, PerRank)) or any(holds_tensor(item, depth + 1) for item in items)


def _describe_tensor(tensor: torch.Tensor, parameter: torch.Tensor | None) -> list[Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = list(tensor.shape)
    if not has_own_memory(tensor):
        return ["other", dtype, shape]
    if parameter is not None and has_own_memory(parameter) and _is_like(tensor, parameter):
        return ["like", dtype]
    if DTensor is not None and isinstance(tensor, DTensor):
        return ["other", dtype, shape]
    return ["tensor", dtype, shape, tensor.device.type == "cpu"]


def _is_like(tensor: Any, parameter: Any) -> bool:
    if tensor.shape != parameter.shape or tensor.device != parameter.device:
        return False
    if DTensor is None or not isinstance(parameter, DTensor):
        return tensor.dim() > 0 and (DTensor is None or not isinstance(tensor, DTensor))
    return (isinstance(tensor, DTensor) and tensor.placements == parameter.placements
            and tensor.device_mesh == parameter.device_mesh)


def _dtype(name: str, path: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise Error("FORMAT_TOO_NEW", f"{path!r} has the dtype {name!r}, which this torch does not know",
                    {"tensor": path})
    return dtype
