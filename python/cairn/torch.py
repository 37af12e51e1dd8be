"""Saves and loads state dicts of PyTorch: nested dicts of tensors, DTensors and plain values.

    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    model_state, optimizer_state = get_state_dict(model, optimizer)
    cairn.torch.save(client, step, {"model": model_state, "optimizer": optimizer_state}).wait()

Keys become one name, joined by "."; a load fills the same nested dict in place, so its keys, their types and their
order
stay. A tensor that is no DTensor is whole and the same on all ranks, as for torch.distributed.checkpoint. Everything
that is no tensor becomes an object that is the same on all ranks; wrap it in cairn.per_rank where it is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch

from cairn._errors import Error
from cairn._state import Alias, PerRank, Shard
from cairn.client import Client, LoadReport, Saving

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # a torch without distributed
    DTensor = None  # type: ignore[assignment,misc]

_RAW_VIEW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def prepare(client: Client, state_dict: dict, timeout: float = 600) -> int:
    """Client.prepare for a state dict."""
    return client.prepare(_declare(state_dict).state, timeout)


def save(client: Client, step: int, state_dict: dict, timeout: float = 60, *,
         allow_dropped_names: bool = False) -> Saving:
    """Client.save for a state dict; returns when all tensors are staged and may change again."""
    declared = _declare(state_dict)
    declared.copy_from_devices()
    return client.save(step, declared.state, timeout, allow_dropped_names=allow_dropped_names)


def load(client: Client, state_dict: dict, step: int | None = None, mapping=None, strict: bool = True, *,
         source=None, fallback: bool = True, timeout: float = 1800) -> LoadReport:
    """Client.load into a state dict: fills its tensors in place and replaces its other values.

    A model or optimizer takes them over by torch's set_state_dict, or at once where the dict holds its own tensors.
    """
    declared = _declare(state_dict)
    report = client.load(declared.state, step, mapping, strict, source=source, fallback=fallback, timeout=timeout)
    declared.copy_to_devices()
    for name, put in declared.objects.items():
        if name in report.objects:
            put(report.objects[name])
    return report


class _Declared:
    """A flat state over the memory of a state dict's tensors."""

    def __init__(self):
        self.state: dict[str, Any] = {}
        # Where a loaded object goes, by name.
        self.objects: dict[str, Callable[[Any], None]] = {}
        # Tensors on devices with the host tensors that stand in for them.
        self.devices: list[tuple[torch.Tensor, torch.Tensor]] = []

    def copy_from_devices(self) -> None:
        self._copy([(host, tensor) for tensor, host in self.devices])

    def copy_to_devices(self) -> None:
        self._copy(self.devices)

    def _copy(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Copies each second tensor to the first, between all that was begun before and all that comes after."""
        waits = {tensor.device: _synchronizer(tensor.device) for tensor, _ in self.devices}
        # What computes the tensors, or still reads them, may run on another stream than that of the copies.
        for wait in waits.values():
            if wait is not None:
                wait()
        for (to, source), (tensor, _) in zip(pairs, self.devices):
            to.copy_(source, non_blocking=waits[tensor.device] is not None)
        for wait in waits.values():
            if wait is not None:
                wait()


def _synchronizer(device: torch.device) -> Callable[[], None] | None:
    """Waits for all streams of a device. None where it has no such call: its copies have to wait themselves."""
    synchronize = getattr(getattr(torch, device.type, None), "synchronize", None)
    if synchronize is None:
        return None
    return synchronize if device.type == "mps" else lambda: synchronize(device)  # of Metal there is one device


def _declare(state_dict: dict) -> _Declared:
    if not isinstance(state_dict, dict):
        raise Error("BAD_REQUEST", f"the state must be a dict, not {type(state_dict).__name__}")
    declared = _Declared()
    for name, value, put in _leaves(state_dict, ""):
        if name in declared.state:
            raise Error("NAME_COLLISION", f"two entries of the state dict have the name {name!r} when their keys are "
                        "joined by '.'", {"tensor": name})
        if isinstance(value, torch.Tensor):
            declared.state[name] = _shards(value, name, declared.devices)
        elif isinstance(value, (Shard, Alias, numpy.ndarray)):
            declared.state[name] = value
        else:
            declared.state[name] = value
            declared.objects[name] = _restorer(value, put)
    return declared


def _restorer(value, put: Callable[[Any], None]) -> Callable[[Any], None]:
    """A wrapped value stays wrapped, so that the dict can be saved again."""
    if isinstance(value, PerRank):
        return lambda loaded: put(PerRank(loaded))
    return put


def _leaves(container, path: str) -> Iterable[tuple[str, Any, Callable[[Any], None]]]:
    """Name, value and setter of all leaves. Lists without tensors, and empty containers, are leaves themselves."""
    items = container.items() if isinstance(container, dict) else enumerate(container)
    for key, value in items:
        if not isinstance(key, (str, int)):
            raise Error("BAD_NAME", f"the keys of a state dict are strings or integers, not {key!r} (below {path!r})")
        name = f"{path}.{key}" if path else str(key)
        if (isinstance(value, dict) and value) or (isinstance(value, list) and _holds_tensor(value)):
            yield from _leaves(value, name)
        elif isinstance(value, tuple) and _holds_tensor(value):
            raise Error("UNSUPPORTED", f"{name!r} is a tuple with tensors, which cannot be filled in place: use a list")
        else:
            yield name, value, _setter(container, key)


def _setter(container, key) -> Callable[[Any], None]:
    def put(value) -> None:
        container[key] = value
    return put


def _holds_tensor(value) -> bool:
    if isinstance(value, dict):
        return any(_holds_tensor(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_tensor(item) for item in value)
    return isinstance(value, (torch.Tensor, Shard, PerRank, numpy.ndarray))


def _shards(tensor: torch.Tensor, name: str, devices: list) -> Shard | list[Shard]:
    """What this rank holds of a tensor."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if DTensor is not None and isinstance(tensor, DTensor):
        return _shards_of_dtensor(tensor, dtype, name, devices)
    if type(tensor).__name__ == "ShardedTensor":
        raise Error("UNSUPPORTED", f"{name!r} is a ShardedTensor, which torch has replaced by DTensor",
                    {"tensor": name})
    array = _array(tensor, name, devices)
    return Shard(array, array.shape, (0,) * array.ndim, dtype=dtype)


def _shards_of_dtensor(tensor, dtype: str, name: str, devices: list) -> Shard | list[Shard]:
    global_shape = tuple(tensor.shape)
    coordinate = tensor.device_mesh.get_coordinate()
    local = tensor.to_local()
    if coordinate is None:  # this rank is not part of the mesh and holds nothing
        empty = _array(local.new_empty((0,) * len(global_shape)), name, devices)
        return Shard(empty, global_shape, (0,) * len(global_shape), dtype=dtype)
    boxes = boxes_of(global_shape, tuple(tensor.device_mesh.shape), tuple(coordinate), tensor.placements, name)
    array = _array(local, name, devices)
    expected = tuple(sum(stop - start for start, stop in intervals) for intervals in boxes)
    if array.shape != expected:
        raise Error("BAD_SHAPE", f"{name!r}: this rank holds {array.shape} of {global_shape}, its placements "
                    f"{tensor.placements} say {expected}", {"tensor": name})
    # Each dimension is a list of intervals that follow one another in the local tensor: their products are the boxes.
    shards = []
    local_spans = [list(itertools.pairwise(itertools.accumulate([stop - start for start, stop in intervals],
                                                                initial=0))) for intervals in boxes]
    for choice in itertools.product(*(zip(intervals, spans) for intervals, spans in zip(boxes, local_spans))):
        part = array[tuple(slice(*span) for _, span in choice)]
        shards.append(Shard(part, global_shape, [start for (start, _), _ in choice], dtype=dtype))
    return shards[0] if len(shards) == 1 else shards


Intervals = list[tuple[int, int]]


def boxes_of(global_shape, mesh_shape, coordinate, placements, name: str = "tensor") -> list[Intervals]:
    """Which indices of each dimension a rank holds under DTensor's placements, in the order of its local tensor.

    Shard cuts as torch.chunk does, mesh dimension by mesh dimension. _StridedShard(dim, split_factor=k), which FSDP2
    over tensor parallelism makes, cuts what is there into k chunks first and takes its chunk of each: several
    intervals, until the Shard that follows picks one of them.
    """
    dimensions: list[Intervals] = [[(0, size)] for size in global_shape]
    for mesh_dim, placement in enumerate(placements):
        if placement.is_replicate():
            continue
        if placement.is_partial():
            raise Error(
                "BAD_REQUEST",
                f"{name!r} is a partial sum ({placement}); redistribute it to Shard or Replicate first",
                {"tensor": name},
            )
        dim = placement.dim
        split_factor = getattr(placement, "split_factor", None)
        if split_factor is None and not placement.is_shard():
            raise Error("UNSUPPORTED", f"{name!r} has the placement {placement}", {"tensor": name})
        chunks, index = mesh_shape[mesh_dim], coordinate[mesh_dim]
        pieces = [dimensions[dim]] if split_factor is None else _chunks(dimensions[dim], int(split_factor))
        dimensions[dim] = _merged([interval for piece in pieces for interval in _chunks(piece, chunks)[index]])
    return [intervals or [(size, size)] for intervals, size in zip(dimensions, global_shape)]


def _chunks(intervals: Intervals, count: int) -> list[Intervals]:
    """As torch.chunk, with empty chunks at the end where there are too few elements."""
    total = sum(stop - start for start, stop in intervals)
    size = -(-total // count)
    result = []
    for i in range(count):
        low, high = min(i * size, total), min((i + 1) * size, total)
        part, at = [], 0
        for start, stop in intervals:
            a, b = max(low - at, 0), min(high - at, stop - start)
            if a < b:
                part.append((start + a, start + b))
            at += stop - start
        result.append(part)
    return result


def _merged(intervals: Intervals) -> Intervals:
    result: Intervals = []
    for start, stop in intervals:
        if result and result[-1][1] == start:
            result[-1] = (result[-1][0], stop)
        elif start < stop:
            result.append((start, stop))
    return result


def _array(tensor: torch.Tensor, name: str, devices: list) -> numpy.ndarray:
    """The memory of a local tensor as an array of raw elements; of a stand-in on the host if it is on a device."""
    tensor = tensor.detach()
    if type(tensor).__name__ == "AsyncCollectiveTensor":  # of a collective that is still under way
        tensor = tensor.wait()
    if tensor.is_meta:
        raise Error("BAD_REQUEST", f"{name!r} is on the meta device: it has no data", {"tensor": name})
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise Error("UNSUPPORTED", f"{name!r} is sparse or quantized", {"tensor": name})
    if tensor.is_conj() or tensor.is_neg():
        raise Error("UNSUPPORTED", f"{name!r} is a lazy conjugate or negative: use .resolve_conj() or .resolve_neg()",
                    {"tensor": name})
    if tensor.device.type != "cpu":
        host = torch.empty_like(tensor, device="cpu", memory_format=torch.contiguous_format,
                                pin_memory=tensor.device.type == "cuda")
        devices.append((tensor, host))
        tensor = host
    width = tensor.element_size()
    if width == 16:  # no raw element of that width; numpy knows complex128
        return tensor.numpy()
    try:
        return tensor.view(_RAW_VIEW[width]).numpy()
    except (KeyError, RuntimeError, TypeError) as error:
        raise Error("BAD_DTYPE", f"{name!r}: {tensor.dtype}: {error}", {"tensor": name}) from None
