"""Recognises dicts of tensors that are where they were at the last save, so that their shards need not be made anew.

A model has thousands of tensors, and to describe one costs some 5 to 15 µs. To see that one has not moved costs a tenth
of that.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy
import torch

from cairn._base.arrays import Array
from cairn._gpu.device_array import DeviceArray
from cairn._state.entries import Shard
from cairn.torch._tensors.host_copies import DeviceCopies
from cairn.torch._tensors.tensor_shards import RAW_DTYPE, is_cuda

# So many dicts are remembered.
_MOST = 1 << 16
_PLAIN = {torch.Tensor, torch.nn.Parameter}


class _Memory:
    """Memory as numpy takes it, which nobody keeps alive: whoever uses the array must hold the tensor."""

    def __init__(self, tensor: torch.Tensor, width: int) -> None:
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "strides": tuple(step * width for step in tensor.stride()),
            "typestr": RAW_DTYPE[width].str,
            "version": 3,
        }


@dataclasses.dataclass
class CachedDict:
    """One dict of tensors, with the shards that were made of them.

    Attributes:
      state: name -> Shard over the tensor's memory, valid only while the tensors live that were compared.
      names: where their memory begins -> name.
    """

    signature: Any
    state: dict[str, Shard]
    names: dict[int, str]


class ShardCache:
    """Keeps the shards of a state's dicts of tensors, by the paths of the dicts. It keeps no tensor alive.

    Thread-safe: a CachedDict never changes.
    """

    def __init__(self) -> None:
        self._dicts: dict[str, CachedDict] = {}

    def find(self, path: str, container: dict[Any, Any], copies: DeviceCopies) -> CachedDict | None:
        """Returns a dict whose tensors are all where they were when they were learned."""
        cached = self._dicts.get(path)
        if cached is None or cached.signature != _signature(container, copies):
            return None
        return cached

    def learn(self, path: str, prefix: str, container: dict[Any, Any], copies: DeviceCopies) -> None:
        """Remembers a dict, if it has only tensors that are plain and distinct, on the host or on GPUs of CUDA."""
        self._dicts.pop(path, None)
        signature = _signature(container, copies)
        if signature is None or not all(isinstance(key, (str, int)) for key in container):
            return
        cached = CachedDict(signature, {}, {})
        for key, tensor in container.items():
            width = tensor.element_size()
            pointer = tensor.data_ptr()
            if (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or width not in RAW_DTYPE or not pointer
                    or pointer in cached.names):
                return
            try:
                name = f"{prefix}{key}"
            except ValueError:  # an integer that Python does not write, which flatten() refuses
                return
            cached.names[pointer] = name
            cached.state[name] = Shard._of_lasting(_array_of(tensor, width, copies),
                                                   str(tensor.dtype).removeprefix("torch."))
        if len(cached.state) == len(container):  # no two keys have one name
            if len(self._dicts) >= _MOST:
                self._dicts.clear()
            self._dicts[path] = cached


def _array_of(tensor: torch.Tensor, width: int, copies: DeviceCopies) -> Array | DeviceArray:
    """Describes memory that the array does not keep alive."""
    if tensor.is_cpu:
        return numpy.asarray(_Memory(tensor, width))
    return DeviceArray(tensor.data_ptr(), tuple(tensor.shape), tuple(step * width for step in tensor.stride()),
                       RAW_DTYPE[width], copies.stream_of(tensor.device), None)


def _signature(container: dict[Any, Any], copies: DeviceCopies) -> Any:
    """Returns all by which tensors of the same dict differ in where and what they are; None if one is not plain."""
    tensors = container.values()
    if not container or not _PLAIN.issuperset(map(type, tensors)):
        return None
    if not all([each.layout is torch.strided and not each.is_neg() and not each.is_conj() and not each.is_nested
                for each in tensors]):
        return None
    devices = [each.device for each in tensors]
    streams = {}
    for device in set(devices):
        if device.type != "cpu":
            if not is_cuda(device):
                return None
            streams[device] = copies.stream_of(device)
    # 1, 1.0 and True are equal, and give other names.
    return (devices, streams, list(container), list(map(type, container)), [each.data_ptr() for each in tensors],
            [each.shape for each in tensors], [each.stride() for each in tensors], [each.dtype for each in tensors])
