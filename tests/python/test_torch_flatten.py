"""Tests how state dicts become flat states: ties, cached shards, what is refused."""

import pathlib

import pytest

torch = pytest.importorskip("torch")

import cairn
from cairn._state.entries import Alias, Shard
from cairn.torch._state_dict.flatten import flatten
from cairn.torch._state_dict.shard_cache import ShardCache
from cairn.torch._tensors.host_copies import DeviceCopies
from testing.errors import raises_error

pytestmark = pytest.mark.interop


def test_Flatten_TiedWeights_AreOneTensorAndAnAlias():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(7, 3)
            self.head = torch.nn.Linear(3, 7, bias=False)
            self.head.weight = self.embedding.weight

    flat = flatten({"model": Model().state_dict()})
    assert isinstance(flat.state["model.embedding.weight"], Shard)
    assert flat.state["model.head.weight"] == Alias("model.embedding.weight")


@pytest.mark.parametrize("other", [
    lambda w: w.clone(), lambda w: w.t(), lambda w: w[1:], lambda w: w.view(torch.int32), lambda w: w[:, :2],
    lambda w: w.reshape(-1),
])
def test_Flatten_OtherTensorsOfTheSameMemory_AreTheirOwn(other):
    w = torch.arange(9.0).reshape(3, 3)
    flat = flatten({"w": w, "other": other(w), "none": torch.zeros(0), "nothing": torch.zeros(0)})
    assert all(isinstance(value, Shard) for value in flat.state.values())


def test_Flatten_TensorsWhereTheyWere_AreRecognisedAndReadAnew():
    cache = ShardCache()
    model = torch.nn.Sequential(*[torch.nn.Linear(3, 2) for _ in range(3)])
    first = flatten({"m": model.state_dict()}, cache=cache)
    with torch.no_grad():
        model[1].weight.fill_(5.0)
    second = flatten({"m": model.state_dict()}, cache=cache)
    assert cache.find("m", model.state_dict(), DeviceCopies()) is not None
    assert list(second.state) == list(first.state)
    plain = flatten({"m": model.state_dict()})
    for name, shard in second.state.items():
        assert repr(shard) == repr(plain.state[name])
        assert shard.array.tobytes() == plain.state[name].array.tobytes(), name
    assert (second.state["m.1.weight"].array.view("f4") == 5).all()


@pytest.mark.parametrize("change", [
    lambda state: state.update(a=state["a"].clone()),
    lambda state: state["a"].t_(),
    lambda state: state.update(a=state["a"][:1]),
    lambda state: state.update(a=state["a"].view(torch.int32)),
    lambda state: state.update(b=state["a"]),
    lambda state: state.update(c=torch.ones(2)),
    lambda state: state.pop("b"),
    lambda state: state.update(b=3),
])
def test_Flatten_ADictThatChanged_IsDescribedAnew(change):
    cache = ShardCache()
    state = {"a": torch.arange(9.0).reshape(3, 3), "b": torch.ones(2)}
    for _ in range(2):
        flatten({"s": state}, cache=cache)
    change(state)
    found, expected = flatten({"s": state}, cache=cache).state, flatten({"s": state}).state
    assert {name: repr(value) for name, value in found.items()} == {name: repr(value)
                                                                   for name, value in expected.items()}
    for name, shard in expected.items():
        if isinstance(shard, Shard):
            assert found[name].array.tobytes() == shard.array.tobytes()


def test_Flatten_TiesBetweenDictsThatAreRecognised_AreSeen():
    cache = ShardCache()
    w = torch.ones(3)
    state = {"model": {"w": w}, "average": {"w": w}}
    expected = flatten(state).state
    assert expected["average.w"] == Alias("model.w")
    for _ in range(3):
        found = flatten(state, cache=cache).state
        assert list(found) == list(expected) and found["average.w"] == Alias("model.w")


def test_Flatten_KeysThatMakeOneName_AreRefusedEveryTime():
    cache = ShardCache()
    for _ in range(2):
        for state, reason in (({"s": {1: torch.ones(1), "1": torch.ones(1)}}, "NAME_COLLISION"),
                              ({"s": {(1, 2): torch.ones(1)}}, "BAD_NAME"),
                              ({"s": {"a": torch.ones(1)}, "s.a": torch.ones(1)}, "NAME_COLLISION")):
            with pytest.raises(cairn.Error) as caught:
                flatten(state, cache=cache)
            assert caught.value.reason == reason


def test_Flatten_AStateThatHoldsItself_IsRefusedByItsPath():
    circle = {"w": torch.ones(1)}
    circle["self"] = circle
    items = [1]
    items.append(items)
    for state in (circle, {"items": items}, {"pair": (items,)}):
        for as_dcp in (False, True):
            try:
                flat = flatten(state, as_dcp=as_dcp)
            except cairn.Error as error:
                assert error.reason == "BAD_REQUEST" and "in a circle" in error.message
            else:  # a tuple is one object for DCP, and is refused when it is encoded
                assert as_dcp and list(flat.state) == ["pair"]


def test_a_block_is_another_if_a_key_or_a_lazy_bit_is():
    cache = ShardCache()
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    flatten({"m": {1: tensor}}, cache=cache)
    assert list(flatten({"m": {1: tensor}}, cache=cache).state) == ["m.1"]
    assert list(flatten({"m": {True: tensor}}, cache=cache).state) == ["m.True"]
    flatten({"m": {1: tensor}}, cache=cache)
    with raises_error("BAD_NAME"):
        flatten({"m": {1.0: tensor}}, cache=cache)
    flatten({"m": {1: tensor}}, cache=cache)
    with raises_error("UNSUPPORTED", tensor="m.1"):
        flatten({"m": {1: tensor.conj()}}, cache=cache)


def _keys_of_ranks():
    table = pathlib.Path(__file__).parents[2] / "planner/layout/rank_keys.txt"
    return [line.split(" ", 1) for line in table.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("names_a_rank", "key"), _keys_of_ranks())
def test_Flatten_DictWithAKeyThatNamesARank_IsTakenApart(names_a_rank, key):
    key = key.format(3)
    names = flatten({"loader": {key: 1, "shared": 2}}).state
    assert (f"loader.{key}" in names) == (names_a_rank == "yes")


def test_Flatten_DTensorWithoutDimensions_IsAShardOfItsOneElement():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        counted = distribute_tensor(torch.tensor(7), init_device_mesh("cpu", (1,)), [Replicate()])
        shard = flatten({"num_batches_tracked": counted}).state["num_batches_tracked"]
        assert shard.array.shape == () and int(shard.array) == 7
    finally:
        torch.distributed.destroy_process_group()
