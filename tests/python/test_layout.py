"""The canonical form of layouts: the digest identifies what is declared, in whatever order and memory it stands."""

import hashlib
import random

import numpy as np
import pytest

import cairn
from cairn._base import wire
from cairn._state.layout import LayoutBuilder, slot_bytes


def declare(state):
    return LayoutBuilder().declare(state)


def state_of(seed):
    state = {
        "b.weight": cairn.Shard(np.ones((2, 3), np.float32), (4, 3), (2, 0)),
        "a": [cairn.Shard(np.ones(2), (9,), (7,)), cairn.Shard(np.ones(3), (9,), (1,))],
        "ä": np.zeros((), np.int64),
        "flat": cairn.Shard(np.ones(4, np.int16), (5, 2), (0, 0), (5, 2), (3, 7), dtype="bfloat16"),
        "object": {"x": 1},
        "mine": cairn.per_rank(b"1"),
        "tied": cairn.alias("b.weight"),
    }
    names = list(state)
    random.Random(seed).shuffle(names)
    return {name: state[name] for name in names}


def test_order_of_the_dict_and_memory_do_not_matter():
    first = declare(state_of(0))
    for seed in range(1, 8):
        assert declare(state_of(seed)).digest == first.digest
    state = state_of(0)
    state["b.weight"] = cairn.Shard(np.ones((3, 2), np.float32).T, (4, 3), (2, 0))
    state["object"] = {"x": 12345}
    assert declare(state).digest == first.digest
    assert hashlib.sha256(first.layout).digest() == first.digest


def test_canonical_form():
    declared = declare(state_of(3))
    layout = wire.Layout.FromString(declared.layout)
    schema = wire.TensorSchema.FromString(layout.tensor_schema)
    assert list(schema.names) == ["a", "b.weight", "flat", "ä"]  # by their UTF-8 bytes
    assert list(schema.ndims) == [1, 2, 2, 0] and list(schema.global_dims) == [9, 4, 3, 5, 2]
    assert list(layout.shard_tensors) == [0, 0, 1, 2, 3]
    assert list(layout.shard_offsets) == [1, 7, 2, 0, 0, 0] and list(layout.shard_shapes) == [3, 2, 2, 3, 5, 2]
    assert (list(layout.flat_shards), list(layout.flat_begins), list(layout.flat_ends)) == ([3], [3], [7])
    assert [(o.name, o.slot_bytes, o.per_rank) for o in layout.objects] == [
        ("mine", 4096, True),
        ("object", 4096, False),
    ]
    assert [(a.name, a.target) for a in layout.aliases] == [("tied", "b.weight")]
    assert [shard.array.size for shard in declared.shards] == [3, 2, 6, 4, 1]  # in the order of items


def test_every_part_of_a_declaration_is_in_the_digest():
    digests = {declare(state_of(0)).digest}
    changes = {
        "a": cairn.Shard(np.ones(2), (9,), (7,)),
        "b.weight": cairn.Shard(np.ones((2, 3), np.float32), (4, 3), (1, 0)),
        "flat": cairn.Shard(np.ones(4, np.int16), (5, 2), (0, 0), (5, 2), (4, 8), dtype="bfloat16"),
        "ä": np.zeros((), np.float64),
        "object": "x" * 5000,
        "mine": b"1",
        "tied": cairn.alias("a"),
    }
    for name, value in changes.items():
        digests.add(declare({**state_of(0), name: value}).digest)
    assert len(digests) == 1 + len(changes)


def test_slots_have_room_to_grow_and_depend_on_the_length_alone():
    assert [slot_bytes(n) for n in (0, 1, 2730, 2731, 5461, 5462, 100_000)] == [
        4096, 4096, 4096, 4096, 8192, 16384, 262144]
    for length in range(0, 70000, 37):
        slot = slot_bytes(length)
        assert slot >= length + length // 2 and slot % 4096 == 0


def test_Declare_AMaskedArray_IsRefusedBecauseItsMaskWouldBeLost():
    with pytest.raises(cairn.Error) as refused:
        declare({"a": np.ma.masked_array(np.arange(3.0), mask=[0, 1, 0])})
    assert refused.value.reason == "UNSUPPORTED" and "array.mask" in str(refused.value)
