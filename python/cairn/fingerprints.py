"""Fingerprints of tensors: whether a program's arrays are, bit for bit, what a checkpoint holds.

    found = cairn.fingerprint(state)               # the same state as for Client.save
    print(found["w"])                              # 16 digits, as `cairn verify demo@5 --fingerprints` prints them

A tensor's fingerprint is the CRC-64/XZ of its bytes in row-major order, little-endian. How ranks share the tensor does
not matter: the fingerprints of shards that tile it are added up to that of the tensor.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import operator
import time
from collections.abc import Iterable
from typing import Any

from cairn._base import timeouts
from cairn._base.errors import Error
from cairn._gpu.devices import Devices
from cairn._state import dtypes
from cairn._state.declared_boxes import boxes_of
from cairn._state.fingerprint_parts import fingerprint_parts
from cairn._state.layout import LayoutBuilder

_POLYNOMIAL = 0xC96C5795D7870F42
_ALL_ONES = 2**64 - 1


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """The fingerprint of a tensor, or of the shards of it that were added up so far. Immutable.

    Attributes:
      dtype: torch name of the elements.
      shape: of the whole tensor.
      part: the remainder that the shards make.
      held: how many elements the shards have.
    """

    dtype: str
    shape: tuple[int, ...]
    part: int
    held: int

    @property
    def complete(self) -> bool:
        """Whether the shards have as many elements as the tensor."""
        return self.held == math.prod(self.shape)

    def __add__(self, other: Fingerprint) -> Fingerprint:
        """Returns the fingerprint of the shards of both, of which each element of the tensor may be in one only.

        Raises:
          Error: DTYPE_MISMATCH, SHAPE_MISMATCH (they are of different tensors); BAD_REQUEST (together they have more
            elements than the tensor: a replica was added, too).
        """
        if not isinstance(other, Fingerprint):
            return NotImplemented
        if self.dtype != other.dtype:
            raise Error("DTYPE_MISMATCH", f"fingerprints of {self.dtype} and of {other.dtype} cannot be added")
        if self.shape != other.shape:
            raise Error("SHAPE_MISMATCH", f"fingerprints of shapes {self.shape} and {other.shape} cannot be added")
        held = self.held + other.held
        if held > math.prod(self.shape):
            raise Error("BAD_REQUEST", f"the shards have {held} elements, the tensor {math.prod(self.shape)}",
                        {"next": "Add the fingerprint of one replica of each shard only."})
        return Fingerprint(self.dtype, self.shape, self.part ^ other.part, held)

    def __str__(self) -> str:
        """Returns 16 hexadecimal digits; of a part what it is a part of."""
        if not self.complete:
            return f"part of {self.held} of {math.prod(self.shape)} elements"
        size = math.prod(self.shape) * dtypes.ITEMSIZE[self.dtype]
        return f"{self.part ^ _zeros_behind(_ALL_ONES, size) ^ _ALL_ONES:016x}"


def fingerprint(state: dict[str, Any], timeout: float = 600) -> dict[str, Fingerprint]:
    """Computes the fingerprints of the tensors in a state.

    Args:
      state: as for Client.save. Objects and aliases are passed over.
      timeout: seconds within which GPUs must have answered.

    Returns:
      Name -> fingerprint of the shards that the state has. It reads the arrays once, with the threads of
      CAIRN_COPY_THREADS; those on GPUs are summed there, after all earlier work in their streams.

    Raises:
      Error: BAD_REQUEST (a value is of torch: cairn.torch.fingerprint takes it), BAD_SHAPE (a shard does not lie in its
        tensor), DEVICE_ERROR and DEVICE_STALLED of arrays on GPUs, and as Client.save of what the state holds.
    """
    for name, value in state.items() if isinstance(state, dict) else ():
        if type(value).__module__.partition(".")[0] == "torch":
            raise Error("BAD_REQUEST", f"{name!r} is a {type(value).__name__} of torch, which has no fingerprint here",
                        {"tensor": str(name), "next": "Call cairn.torch.fingerprint(state)."})
    deadline = time.monotonic() + timeouts.seconds(timeout, "fingerprint")
    declared = LayoutBuilder().declare(state)
    boxes = list(boxes_of(declared))
    found: dict[str, Fingerprint] = {}
    with contextlib.closing(Devices()) as devices:
        parts = fingerprint_parts(boxes, devices, deadline, declared.kept)
    for box, part in zip(boxes, parts, strict=True):
        one = Fingerprint(box.dtype, box.global_shape, part, box.end - box.begin)
        found[box.name] = found[box.name] + one if box.name in found else one
    return found


def add(parts: Iterable[dict[str, Fingerprint]]) -> dict[str, Fingerprint]:
    """Adds up what several ranks have computed, name by name.

    Raises:
      Error: as Fingerprint.__add__.
    """
    names: dict[str, list[Fingerprint]] = {}
    for part in parts:
        for name, one in part.items():
            names.setdefault(name, []).append(one)
    return {name: functools.reduce(operator.add, ones) for name, ones in names.items()}


def _multiply(a: int, b: int) -> int:
    product = 0
    for bit in range(63, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _zeros_behind(remainder: int, count: int) -> int:
    """Returns the remainder of `count` zero bytes behind bytes with this remainder."""
    power = 1 << 55  # x^8
    while count:
        if count & 1:
            remainder = _multiply(remainder, power)
        power = _multiply(power, power)
        count >>= 1
    return remainder
