"""Makes from a state the layout that the agent gets: its canonical form, its digest, and the order of items."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import threading
from typing import Any

import numpy
import numpy.ma  # here: a trainer that has given up its rights may not be able to read it later

from cairn._base import wire
from cairn._base.arrays import Array
from cairn._base.errors import Error, shown
from cairn._gpu import device_array
from cairn._gpu.device_array import DeviceArray
from cairn._gpu.devices import Devices
from cairn._state import dtypes
from cairn._state.entries import Alias, ObjectWish, PerRank, Shard, WantedObject
from cairn._state.objects import encode

_SLOT_BYTES = 4096
_LENGTH_BYTES = 8
# All that a layout says about a shard: name, dtype, global shape, offset, shape, flat range.
_Key = tuple[str, str, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...] | None]
# All that a layout says about an object: name, bytes of its slot, whether each rank has its own, digest of its content,
# how a load wants it.
_Slot = tuple[str, int, bool, bytes, int]


@dataclasses.dataclass
class DeclaredShard:
    name: str
    array: Array | DeviceArray

    @property
    def nbytes(self) -> int:
        return self.array.nbytes


@dataclasses.dataclass
class DeclaredObject:
    name: str
    data: bytes
    per_rank: bool
    wish: ObjectWish = ObjectWish.WHOLE


@dataclasses.dataclass
class DeclaredState:
    """A state in the order of the layout's items: shards, then objects.

    Attributes:
      devices: copies the arrays that are on devices.
      kept: what keeps the memory of arrays alive that do not do that themselves.
      deadline: time.monotonic() by which copies from devices must have ended.
    """

    layout: bytes
    digest: bytes
    shards: list[DeclaredShard]
    objects: list[DeclaredObject]
    devices: Devices | None = None
    deadline: float = math.inf
    kept: object = None

    def device_arrays(self) -> list[DeviceArray]:
        return [entry.array for entry in self.shards if isinstance(entry.array, DeviceArray)]


def slot_bytes(length: int) -> int:
    """Returns the slot for an object of this length: a power of two of 4 KiB blocks, with half as much room to grow.

    It depends only on the length, so that all ranks agree whatever they saved before.
    """
    slot = _SLOT_BYTES
    while slot < length + length // 2:
        slot *= 2
    return slot


def _check_writable(name: str, array: Array | DeviceArray, writable: bool) -> None:
    if writable and not array.flags.writeable:
        raise Error("BAD_REQUEST", f"{name!r}: the array is read-only, nothing can be loaded into it",
                    {"tensor": name})


def _whole_key(name: str, array: Array | DeviceArray, writable: bool) -> _Key:
    """Returns all that the layout says about an array that is a whole tensor."""
    dtype = dtypes.of_array(array, None, name)
    _check_writable(name, array, writable)
    return (name, dtype, array.shape, (0,) * array.ndim, array.shape, None)


def _shard_key(name: str, shard: Shard, array: Array | DeviceArray, writable: bool) -> _Key:
    """Returns all that the layout says about the shard. Raises if the parts do not belong together."""
    dtype = dtypes.of_array(array, shard._dtype, name)
    ndim = len(shard.global_shape)
    if len(shard.offset) != ndim or len(shard.shape) != ndim:
        raise Error("BAD_SHAPE", f"{name!r}: global_shape {shard.global_shape}, offset {shard.offset} and shape "
                    f"{shard.shape} differ in their number of dimensions", {"tensor": name})
    if min(shard.global_shape + shard.offset + shard.shape, default=0) < 0:
        raise Error("BAD_SHAPE", f"{name!r}: global_shape {shard.global_shape}, offset {shard.offset} or shape "
                    f"{shard.shape} is negative", {"tensor": name})
    if shard.flat_range is None:
        if array.shape != shard.shape:
            raise Error("BAD_SHAPE", f"{name!r}: the array has shape {array.shape}, the shard says {shard.shape}",
                        {"tensor": name})
        flat = None
    else:
        if len(shard.flat_range) != 2 or shard.flat_range[0] > shard.flat_range[1]:
            raise Error("BAD_SHAPE", f"{name!r}: flat_range {shard.flat_range} is not (begin, end)", {"tensor": name})
        flat = shard.flat_range
        if array.shape != (flat[1] - flat[0],):
            raise Error("BAD_SHAPE", f"{name!r}: flat_range {flat} needs a 1-d array of {flat[1] - flat[0]} elements, "
                        f"not one of shape {array.shape}", {"tensor": name})
    _check_writable(name, array, writable)
    return (name, dtype, shard.global_shape, shard.offset, shard.shape, flat)


class LayoutBuilder:
    """Makes layouts and keeps the last one, so that an unchanged state costs only a comparison. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._signature: object = None
        self._layout = b""
        self._digest = b""
        self._shard_order: list[int] = []

    def declare(self, state: dict[str, Any], writable: bool = False, length_prefix: bool = False) -> DeclaredState:
        """Raises Error for what no layout can say. All else is for the coordinator to judge, for all ranks.

        Args:
          state: name -> Shard, list of Shards, numpy array, array on a device, alias, per_rank, bytes or JSON value; of
            a load also WantedObject.
          writable: the arrays are to be loaded into.
          length_prefix: of a reshard's source: objects begin with their length, which a layout does not tell (see
            without_length), and their digests are in the layout.
        """
        if not isinstance(state, dict):
            raise Error("BAD_REQUEST", f"the state must be a dict, not {type(state).__name__}")
        keys: list[_Key] = []
        shards: list[DeclaredShard] = []
        objects: list[DeclaredObject] = []
        aliases: list[tuple[str, str]] = []
        for name, value in state.items():
            if isinstance(value, Shard) and value._known is not None and value._known[0] == name and not writable:
                shards.append(value._known[1])
                keys.append(value._known[2])
                continue
            _check_name(name)
            if isinstance(value, Shard):
                shards.append(DeclaredShard(name, value.read(name)))
                keys.append(_shard_key(name, value, shards[-1].array, writable))
                if value._lasting:
                    value._known = (name, shards[-1], keys[-1])
            elif isinstance(value, numpy.ma.MaskedArray):
                raise Error("UNSUPPORTED", f"{name!r} is a masked array, and its mask would be lost", {
                    "tensor": name, "next": "Store its data and its mask as two arrays: array.data, array.mask."})
            elif (array := value if isinstance(value, numpy.ndarray) else device_array.find(value, name)) is not None:
                shards.append(DeclaredShard(name, array))
                keys.append(_whole_key(name, array, writable))
            elif isinstance(value, (list, tuple)) and any(isinstance(part, Shard) for part in value):
                for part in value:
                    if not isinstance(part, Shard):
                        raise Error("BAD_REQUEST", f"{name!r} mixes shards and other values in a list")
                    shards.append(DeclaredShard(name, part.read(name)))
                    keys.append(_shard_key(name, part, shards[-1].array, writable))
            elif isinstance(value, Alias):
                aliases.append((name, value.target))
            elif isinstance(value, WantedObject):
                objects.append(DeclaredObject(name, b"", value.per_rank, value.wish))
            elif isinstance(value, PerRank):
                objects.append(DeclaredObject(name, encode(value.value, name), True))
            else:
                objects.append(DeclaredObject(name, encode(value, name), False))
        if length_prefix:
            for entry in objects:
                entry.data = len(entry.data).to_bytes(_LENGTH_BYTES, "little") + entry.data
        objects.sort(key=lambda entry: entry.name.encode())
        aliases.sort()
        # A reshard takes a shared object from one rank, so the layouts must say whether all ranks hold the same. What a
        # target has under an object's name does not matter, and may differ between ranks.
        slots = [(entry.name, _SLOT_BYTES if writable else slot_bytes(len(entry.data)), entry.per_rank,
                  hashlib.sha256(entry.data).digest() if length_prefix and not entry.per_rank else b"", int(entry.wish))
                 for entry in objects]
        signature = (keys, slots, aliases)
        with self._lock:
            if signature != self._signature:
                self._layout, self._shard_order = _serialize(keys, slots, aliases)
                self._digest = hashlib.sha256(self._layout).digest()
                self._signature = signature
            return DeclaredState(self._layout, self._digest, [shards[i] for i in self._shard_order], objects,
                                 kept=getattr(state, "kept", None))


def without_length(slot: bytearray, name: str) -> bytes:
    """Returns the object in a slot that LayoutBuilder.declare(length_prefix=True) filled."""
    end = _LENGTH_BYTES + int.from_bytes(slot[:_LENGTH_BYTES], "little")
    if len(slot) < _LENGTH_BYTES or end > len(slot):
        raise Error("INTERNAL", f"object {name!r} is longer than its slot")
    return bytes(slot[_LENGTH_BYTES:end])


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise Error("BAD_NAME", f"names must be strings, not {shown(name)}")
    if not name:
        raise Error("BAD_NAME", "a name is empty")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Error("BAD_NAME", f"{name!r} cannot be written as UTF-8") from None


def _serialize(keys: list[_Key], slots: list[_Slot],
               aliases: list[tuple[str, str]]) -> tuple[bytes, list[int]]:
    """Returns the layout's bytes, and the order of its shards as positions in `keys`."""
    schema = wire.TensorSchema()
    layout = wire.Layout()
    names: dict[str, int] = {}
    # Names are sorted by their bytes, which every language can do.
    order = sorted(range(len(keys)), key=lambda i: (keys[i][0].encode(), keys[i][3], keys[i][5] or (-1, -1)))
    previous = None
    for position, index in enumerate(order):
        name, dtype, global_shape, offset, shape, flat = keys[index]
        if name not in names:
            names[name] = len(names)
            schema.names.append(name)
            schema.dtypes.append(dtypes.NUMBER[dtype])
            schema.ndims.append(len(global_shape))
            schema.global_dims.extend(global_shape)
            tensor = (dtype, global_shape)
        elif tensor != (dtype, global_shape):
            raise Error("DTYPE_MISMATCH" if tensor[0] != dtype else "SHAPE_MISMATCH",
                        f"{name!r} was declared as {tensor[0]} {tensor[1]} and as {dtype} {global_shape}",
                        {"tensor": name})
        if previous == keys[index]:
            raise Error("NAME_COLLISION", f"{name!r}: this rank declares the shard at offset {offset} twice",
                        {"tensor": name})
        previous = keys[index]
        layout.shard_tensors.append(names[name])
        layout.shard_offsets.extend(offset)
        layout.shard_shapes.extend(shape)
        if flat is not None:
            layout.flat_shards.append(position)
            layout.flat_begins.append(flat[0])
            layout.flat_ends.append(flat[1])
    layout.tensor_schema = schema.SerializeToString(deterministic=True)
    for name, slot, per_rank, content, wish in sorted(slots, key=lambda entry: entry[0].encode()):
        layout.objects.add(name=name, slot_bytes=slot, per_rank=per_rank, content_digest=content, wish=wish)
    for name, target in sorted(aliases, key=lambda entry: entry[0].encode()):
        layout.aliases.add(name=name, target=target)
    return layout.SerializeToString(deterministic=True), order
