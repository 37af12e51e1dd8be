"""Tests the helpers of cairn.shards: all ranks' shards together must be the tensor that was cut."""

import numpy as np
import pytest

import cairn
from cairn import shards


def assemble(parts):
    """Returns the global array of some ranks' shards, which must hold every element exactly once."""
    whole = np.zeros(parts[0].global_shape, parts[0].array.dtype)
    count = np.zeros(parts[0].global_shape, int)
    for part in parts:
        box = tuple(slice(o, o + s) for o, s in zip(part.offset, part.shape))
        if part.flat_range is None:
            whole[box], count[box] = part.array, count[box] + 1
        else:
            begin, end = part.flat_range
            flat, seen = whole[box].reshape(-1), count[box].reshape(-1)
            flat[begin:end], seen[begin:end] = part.array, seen[begin:end] + 1
            whole[box], count[box] = flat.reshape(part.shape), seen.reshape(part.shape)
    assert (count == 1).all()
    return whole


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_column_and_row_parallel(axis):
    whole = np.arange(8 * 12).reshape(8, 12)
    cut = np.split(whole, 4, axis)
    assert (assemble([shards.column_parallel(cut[r], r, 4, axis) for r in range(4)]) == whole).all()
    assert (assemble([shards.row_parallel(cut[r], r, 4, axis) for r in range(4)]) == whole).all()


def test_default_axes_are_those_of_torch_weights():
    weight = np.zeros((2, 3))  # [out, in]
    assert shards.column_parallel(weight, 1, 2).global_shape == (4, 3)
    assert shards.row_parallel(weight, 1, 2).global_shape == (2, 6)


@pytest.mark.parametrize("vocab, world, axis", [(10, 4, 0), (10, 4, 1), (5, 4, 0), (12, 4, 0), (3, 8, 0)])
def test_vocabulary_without_its_padding(vocab, world, axis):
    padded = -(-vocab // world) * world
    whole = np.arange(padded * 3).reshape((padded, 3) if axis == 0 else (3, padded))
    cut = np.split(whole, world, axis)
    parts = [shards.vocab_parallel(cut[r], r, world, axis, vocab) for r in range(world)]
    assert (assemble(parts) == np.take(whole, range(vocab), axis)).all()
    assert all(part.array.base is not None for part in parts)  # views, filled in place by a load


def test_experts_lie_by_their_global_number():
    experts = [np.full((2, 2), number) for number in range(6)]
    parts = [shards.expert(experts[r * 2 + local], r, 3, local, 2) for r in range(3) for local in range(2)]
    assert (assemble(parts) == np.stack(experts)).all()


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
def test_flat_buffer_without_its_padding(world):
    parameters = {"a": (3, 5), "b": (), "c": (2, 2, 2), "empty": (0, 4), "d": ((6, 4), (0, 2), (6, 2))}
    values = {"a": np.arange(15.0), "b": np.array([7.0]), "c": np.arange(8.0) + 50, "d": np.arange(12.0) + 90}
    buffer = np.concatenate(list(values.values()))
    padded = np.pad(buffer, (0, -len(buffer) % world + world), constant_values=-1)
    pieces = [shards.flat_buffer(part, r, world, parameters) for r, part in enumerate(np.split(padded, world))]
    for name in ("a", "b", "c"):
        parts = [piece[name] for piece in pieces if name in piece]
        assert (assemble(parts).reshape(-1) == values[name]).all()
    d = [piece["d"] for piece in pieces if "d" in piece]
    assert all((part.offset, part.shape, part.global_shape) == ((0, 2), (6, 2), (6, 4)) for part in d)
    assert sum(part.array.size for part in d) == 12
    assert not any("empty" in piece for piece in pieces)


def test_rules_describe_a_state_dict():
    state = {"layers.0.up.weight": np.zeros((4, 2)), "layers.0.down.weight": np.zeros((2, 4)), "norm": np.zeros(3),
             "tied": cairn.alias("norm"), "step": 3}
    described = shards.from_rules(state, {"*.up.weight": 0, "*.down.weight": 1, "norm": None}, 1, 2, prefix="model.")
    assert list(described) == ["model." + name for name in state]
    assert (described["model.layers.0.up.weight"].global_shape, described["model.layers.0.up.weight"].offset) == (
        (8, 2),
        (4, 0),
    )
    assert (described["model.layers.0.down.weight"].global_shape, described["model.layers.0.down.weight"].offset) == (
        (2, 8),
        (0, 4),
    )
    assert described["model.norm"].global_shape == (3,) and described["model.step"] == 3
    assert described["model.tied"] == cairn.alias("model.norm")


@pytest.mark.parametrize("call, reason", [
    (lambda: shards.column_parallel(np.zeros((2, 2)), 2, 2, 0), "RANK_OUT_OF_RANGE"),
    (lambda: shards.column_parallel(np.zeros((2, 2)), -1, 2, 0), "RANK_OUT_OF_RANGE"),
    (lambda: shards.column_parallel(np.zeros((2, 2)), 0, 2, 2), "BAD_SHAPE"),
    (lambda: shards.column_parallel(np.zeros(()), 0, 2, 0), "BAD_SHAPE"),
    (lambda: shards.row_parallel([1, 2], 0, 2, 0), "BAD_REQUEST"),
    (lambda: shards.vocab_parallel(np.zeros((2, 2)), 0, 2, 0, 5), "BAD_SHAPE"),
    (lambda: shards.vocab_parallel(np.zeros((2, 2)), 0, 2, 0, 0), "BAD_SHAPE"),
    (lambda: shards.expert(np.zeros(2), 0, 2, 2, 2), "RANK_OUT_OF_RANGE"),
    (lambda: shards.flat_buffer(np.zeros((2, 2)), 0, 2, {"a": (4,)}), "BAD_SHAPE"),
    (lambda: shards.flat_buffer(np.zeros(2), 0, 2, {"a": (5,)}), "BAD_SHAPE"),
    (lambda: shards.flat_buffer(np.zeros(2), 0, 2, {"a": ((4,), (0, 0), (2,))}), "BAD_SHAPE"),
    (lambda: shards.from_rules({"w": np.zeros(2)}, {"*.weight": 0}, 0, 2), "BAD_REQUEST"),
    (lambda: shards.from_rules({"w": np.zeros(2)}, {"w": 1}, 0, 2), "BAD_SHAPE"),
    (lambda: cairn.Shard(np.zeros(2), 4, (0,)), "BAD_SHAPE"),
    (lambda: cairn.Shard(np.zeros(2), (2.5,), (0,)), "BAD_SHAPE"),
    (lambda: cairn.Shard([1, 2], (2,), (0,)), "BAD_REQUEST"),
    (lambda: cairn.Shard(np.zeros(2), (2**63,), (0,)), "SHAPE_OVERFLOW"),
])
def test_mistakes_are_named_where_they_are_made(call, reason):
    with pytest.raises(cairn.Error) as caught:
        call()
    assert caught.value.reason == reason
