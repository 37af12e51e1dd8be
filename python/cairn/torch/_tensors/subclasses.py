"""Tells tensors that have memory of their own from those that are made of others, and takes the latter apart.

A wrapper subclass, such as a quantized weight of torchao, has no memory: `__torch_dispatch__` answers for it, and its
inner tensors hold what it is. It names them by `__tensor_flatten__`, as torch.compile asks of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from cairn._base.errors import Error
from cairn.torch._tensors.dtensor_boxes import boxes_of

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # a torch without distributed
    DTensor = None

_PLAIN = (torch.Tensor, torch.nn.Parameter)
# Tensors are made of others that are made of others again, but not as deep as this.
_MAX_DEPTH = 16


def inner_tensors_of(tensor: torch.Tensor, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors of which a tensor is made, with their names; itself, if it has memory of its own.

    An inner tensor has the wrapper's name and its own, such as "weight.scale". Within a DTensor that is cut it also
    says where the cut begins ("weight.scale.at_0_256"): how inner tensors follow from the whole is known to their class
    alone, so each shard keeps its own, and they fit the same cuts only.

    Raises:
      Error: UNSUPPORTED (a subclass does not say what it is made of; nested tensors, parameters without a shape).
    """
    if type(tensor) in _PLAIN and not tensor.is_nested:
        yield name, tensor
    elif DTensor is None or not isinstance(tensor, DTensor):
        yield from _inner(tensor, name, "", 0)
    else:
        local = local_of(tensor)
        if type(local) in _PLAIN or not _is_wrapper(local):
            check(local, name)
            yield name, tensor
        else:
            yield from _inner(local, name, _place_of(tensor, name), 0)


def local_of(tensor: Any) -> torch.Tensor:
    """Returns what this rank holds of a DTensor. Its to_local() would make a view, which a wrapper may refuse."""
    local: torch.Tensor = tensor._local_tensor
    if type(local).__name__ == "AsyncCollectiveTensor":  # of a collective that is still under way
        local = local.wait()
    return local


def has_own_memory(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor, or what this rank holds of a DTensor, has memory of its own."""
    if DTensor is not None and isinstance(tensor, DTensor):
        tensor = local_of(tensor)
    return type(tensor) in _PLAIN or not (_is_wrapper(tensor) or _answers(tensor))


def plain(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Returns a tensor that has memory of its own as one of torch's own class, over the same memory.

    A subclass may answer for detach() and view(), and with a copy.

    Raises:
      Error: as check(), and UNSUPPORTED (it is made of others).
    """
    if type(tensor).__name__ == "AsyncCollectiveTensor":
        tensor = tensor.wait()
    check(tensor, name)
    if type(tensor) in _PLAIN:
        return tensor.detach()
    if _is_wrapper(tensor):
        raise _refusal(tensor, name, "is made of other tensors, which cannot be stored here",
                       "Store it by cairn.torch.save, which takes it apart.")
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.detach().as_subclass(torch.Tensor)


def check(tensor: torch.Tensor, name: str) -> None:
    """Raises UNSUPPORTED for what has no memory that can be described."""
    if torch.nn.parameter.is_lazy(tensor):
        raise _refusal(tensor, name, "has no shape yet", "Run the module once, which gives its parameters their "
                       "shapes, or leave it out of the state.")
    if tensor.is_nested:
        raise _refusal(tensor, name, "is a nested tensor", "Store its values() and offsets(), or its unbind().")
    if type(tensor) not in _PLAIN and _answers(tensor) and not _is_wrapper(tensor) and (
            type(tensor).__name__ != "AsyncCollectiveTensor"):
        raise _refusal(tensor, name, "is a tensor whose class answers for it (__torch_dispatch__) and does not say by "
                       "__tensor_flatten__ of which tensors it is made",
                       "Give the class __tensor_flatten__ and __tensor_unflatten__, or store the tensors that it holds "
                       "under names of their own.")


def _inner(tensor: torch.Tensor, name: str, place: str, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    check(tensor, name)
    if type(tensor) in _PLAIN or not _is_wrapper(tensor):
        yield name + place, tensor
        return
    if depth > _MAX_DEPTH:
        raise _refusal(tensor, name, f"is made of tensors more than {_MAX_DEPTH} levels deep", "Leave it out.")
    keys, _ = tensor.__tensor_flatten__()
    for key in keys:
        inner = getattr(tensor, key)
        if not isinstance(inner, torch.Tensor) or (
                inner is not getattr(tensor, key) and not _are_one(inner, getattr(tensor, key))):
            raise _refusal(tensor, name, f"gives another {key!r} each time, so that it cannot be filled in place",
                           "Let __tensor_flatten__ name the tensors that it holds.")
        if DTensor is not None and isinstance(inner, DTensor):
            for each, part in inner_tensors_of(inner, f"{name}.{key}"):
                yield each + place, part
        else:
            yield from _inner(inner, f"{name}.{key}", place, depth + 1)


def _is_wrapper(tensor: torch.Tensor) -> bool:
    return (callable(getattr(type(tensor), "__tensor_flatten__", None))
            and type(tensor).__name__ != "AsyncCollectiveTensor")


def _answers(tensor: torch.Tensor) -> bool:
    """Returns whether the class of a tensor answers for it in place of torch."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _are_one(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    if type(tensor) in _PLAIN and type(other) in _PLAIN:
        return bool(tensor.layout == other.layout == torch.strided and tensor.data_ptr() == other.data_ptr())
    return False


def _place_of(tensor: Any, name: str) -> str:
    """Returns a suffix that tells the shards of a DTensor from each other; none if each rank holds the whole."""
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None:  # this rank is not part of the mesh
        return ""
    shape = tuple(tensor.shape)
    boxes = boxes_of(shape, tuple(tensor.device_mesh.shape), tuple(coordinate), tensor.placements, name)
    if all(intervals == [(0, size)] for intervals, size in zip(boxes, shape, strict=True)):
        return ""
    return ".at_" + "_".join(str(intervals[0][0]) for intervals in boxes)


def _refusal(tensor: torch.Tensor, name: str, what: str, action: str) -> Error:
    kind = type(tensor)
    return Error("UNSUPPORTED", f"{name!r} ({kind.__module__}.{kind.__qualname__}) {what}",
                 {"tensor": name, "next": action})
