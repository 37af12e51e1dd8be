"""Describes shards in the way in which parallel layers hold them.

Every helper checks what one rank can check when it is called; that all ranks' shards fit together is checked when they
are saved. `rank` and `world` are those of the parallel group that splits the tensor, not of the job.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence
from typing import Any

import numpy

from cairn._base.arrays import Array
from cairn._base.errors import Error
from cairn._state.entries import Alias, PerRank, Shard

__all__ = ["column_parallel", "expert", "flat_buffer", "from_rules", "replicated", "row_parallel", "vocab_parallel"]


def column_parallel(array: Array, rank: int, world: int, axis: int = 0, *, dtype: str | None = None) -> Shard:
    """Describes one of `world` equal slices along `axis`, the output dimension of a weight (0 in torch's [out, in]
    order).

    Args:
      array: this rank's slice; axis `axis` of the whole is `world` times as long.
      dtype: torch name of the elements, for what numpy lacks ("bfloat16"); the same in all helpers.

    Raises:
      Error: RANK_OUT_OF_RANGE (`rank` is not below `world`), BAD_SHAPE (the array has no such axis), BAD_REQUEST (it is
        no numpy array); the same in all helpers.
    """
    _check_group(rank, world)
    axis = _check_axis(array, axis)
    global_shape, offset = list(array.shape), [0] * array.ndim
    global_shape[axis] *= world
    offset[axis] = rank * array.shape[axis]
    return Shard(array, global_shape, offset, dtype=dtype)


def row_parallel(array: Array, rank: int, world: int, axis: int = 1, *, dtype: str | None = None) -> Shard:
    """Describes one of `world` equal slices along `axis`, the input dimension of a weight (1 in torch's [out, in]
    order).

    Arguments and errors are those of column_parallel().
    """
    return column_parallel(array, rank, world, axis, dtype=dtype)


def vocab_parallel(array: Array, rank: int, world: int, axis: int = 0, vocab: int | None = None, *,
                   dtype: str | None = None) -> Shard:
    """Describes a slice of an embedding whose vocabulary was padded so that `world` divides it.

    Args:
      array: this rank's slice, padding included.
      axis: that of the vocabulary.
      vocab: the true size: entries from there on are padding and are not saved, so that another world size with another
        padding can load them. By default there is no padding.

    Returns:
      A shard whose array is a view of `array` without its padding (empty if it is all padding).

    Raises:
      Error: BAD_SHAPE, if the slices do not hold `vocab` entries; else as column_parallel().
    """
    _check_group(rank, world)
    axis = _check_axis(array, axis)
    padded = array.shape[axis] * world
    if vocab is None:
        vocab = padded
    if not 0 < vocab <= padded:
        raise Error("BAD_SHAPE", f"{world} slices of {array.shape[axis]} hold {padded} entries, not a vocabulary of "
                    f"{vocab}")
    begin = min(rank * array.shape[axis], vocab)
    end = min(begin + array.shape[axis], vocab)
    index = [slice(None)] * array.ndim
    index[axis] = slice(0, end - begin)
    global_shape, offset = list(array.shape), [0] * array.ndim
    global_shape[axis] = vocab
    offset[axis] = begin
    return Shard(array[tuple(index)], global_shape, offset, dtype=dtype)


def expert(array: Array, rank: int, world: int, local_id: int, local_experts: int, *,
           dtype: str | None = None) -> Shard:
    """Describes the weight of expert `local_id` of the `local_experts` that each rank of the expert-parallel group
    holds.

    It becomes slice rank * local_experts + local_id of one tensor with all experts: the global number of an expert, not
    its local one, says where it lies, so experts of two ranks cannot take each other's place.

    Args:
      array: the weight of one expert.

    Returns:
      A shard of shape (1, *array.shape) of a tensor of shape (world * local_experts, *array.shape).

    Raises:
      Error: RANK_OUT_OF_RANGE, if `local_id` is not below `local_experts`; else as column_parallel().
    """
    _check_group(rank, world)
    _check_array(array)
    if local_experts < 1 or not 0 <= local_id < local_experts:
        raise Error("RANK_OUT_OF_RANGE", f"local expert {local_id} is not one of {local_experts}")
    return Shard(array[numpy.newaxis], (world * local_experts, *array.shape),
                 (rank * local_experts + local_id, *(0,) * array.ndim), dtype=dtype)


def replicated(array: Array, *, dtype: str | None = None) -> Shard:
    """Describes the whole tensor, which every rank that declares it holds equally.

    Raises:
      Error: BAD_REQUEST (no numpy array).
    """
    _check_array(array)
    return Shard(array, array.shape, (0,) * array.ndim, dtype=dtype)


def flat_buffer(array: Array, rank: int, world: int, parameters: dict[str, Sequence[Any]], *,
                dtype: str | None = None) -> dict[str, Shard]:
    """Cuts this rank's part of a ZeRO buffer into the pieces of the parameters that lie in it.

    The buffer is the flattened parameters one after the other in the order of `parameters`, padded at its end, and
    split into `world` equal parts; `array` is part `rank`, 1-d.

    Args:
      parameters: name -> shape of the tensor, or (global_shape, offset, shape) where the parameter is itself a box of a
        larger tensor (tensor parallelism). All parameters of the buffer, not only those of this rank.

    Returns:
      name -> flat shard, for the parameters that this part touches; the padding is in none.

    Raises:
      Error: BAD_SHAPE (the buffer is not 1-d, the parameters do not fit into `world` parts, or a box is not one); else
        as column_parallel().
    """
    _check_group(rank, world)
    _check_array(array)
    if array.ndim != 1:
        raise Error("BAD_SHAPE", f"a buffer's part is 1-d, not of shape {array.shape}")
    boxes = {name: _box(name, value) for name, value in parameters.items()}
    total = sum(math.prod(shape) for _, _, shape in boxes.values())
    if total > world * array.size:
        raise Error("BAD_SHAPE", f"the parameters have {total} elements, more than {world} parts of {array.size}")
    begin = rank * array.size
    result, at = {}, 0
    for name, (global_shape, offset, shape) in boxes.items():
        size = math.prod(shape)
        low, high = max(at, begin), min(at + size, begin + array.size)
        if low < high:
            result[name] = Shard(array[low - begin:high - begin], global_shape, offset, shape,
                                 (low - at, high - at), dtype)
        at += size
    return result


def from_rules(state: dict[str, Any], rules: dict[str, int | None], rank: int, world: int,
               prefix: str = "") -> dict[str, Any]:
    """Describes a whole state dict of equal slices.

    Args:
      state: name -> numpy array; anything else (shards, aliases, objects) is taken over as it is.
      rules: pattern -> axis along which the arrays that it names are split; None for replicated. Patterns are those of
        file names ("*.q_proj.weight"); the first that matches counts. An array that no pattern names is replicated: if
        it was a slice all the same, the first save finds that the ranks' bytes differ.
      prefix: put before every name.

    Returns:
      prefix + name -> shard, or what else stood there, in the order of `state`.

    Raises:
      Error: BAD_REQUEST for a pattern that names nothing: it is a typing error; else as column_parallel().
    """
    _check_group(rank, world)
    unused = set(rules)
    result = {}
    for name, value in state.items():
        if isinstance(value, Alias):
            value = Alias(prefix + value.target)
        if isinstance(value, numpy.ndarray) and not isinstance(value, (Shard, PerRank)):
            pattern = next((p for p in rules if fnmatch.fnmatchcase(name, p)), None)
            unused -= {p for p in rules if fnmatch.fnmatchcase(name, p)}
            axis = None if pattern is None else rules[pattern]
            try:
                value = replicated(value) if axis is None else column_parallel(value, rank, world, axis)
            except Error as error:
                raise Error(error.reason, f"{name!r}: {error.message}", {"tensor": name}) from None
        result[prefix + name] = value
    if unused:
        raise Error("BAD_REQUEST", f"no array is named by {', '.join(map(repr, sorted(unused)))}")
    return result


def _box(name: str, description: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    value = tuple(description)
    if len(value) == 3 and all(not isinstance(part, int) for part in value):
        global_shape, offset, shape = (tuple(part) for part in value)
        if not len(global_shape) == len(offset) == len(shape):
            raise Error("BAD_SHAPE", f"{name!r}: {value} is not (global_shape, offset, shape)", {"tensor": name})
        return global_shape, offset, shape
    return value, (0,) * len(value), value


def _check_group(rank: int, world: int) -> None:
    if world < 1 or not 0 <= rank < world:
        raise Error("RANK_OUT_OF_RANGE", f"rank {rank} is not one of {world}")


def _check_array(array: object) -> None:
    if not isinstance(array, numpy.ndarray):
        raise Error("BAD_REQUEST", f"a numpy array is needed, not {type(array).__name__}")


def _check_axis(array: Array, axis: int) -> int:
    _check_array(array)
    if not -array.ndim <= axis < array.ndim:
        raise Error("BAD_SHAPE", f"axis {axis} of an array of shape {array.shape}")
    return axis % array.ndim
