"""Tests what objects of a state may hold, and what is said about the rest."""

import collections
import random

import numpy as np
import pytest

import cairn
from cairn._base import timeouts
from cairn._coordinator import retention
from cairn._state import objects
from testing.errors import raises_error


class Vocabulary:
    def __init__(self, words):
        self.words = words

    def __eq__(self, other):
        return type(other) is Vocabulary and other.words == self.words


@pytest.fixture
def vocabulary():
    from cairn._state import serializers

    cairn.register_serializer(Vocabulary, "test.Vocabulary", lambda value: "\n".join(value.words).encode(),
                              lambda data: Vocabulary(data.decode().split("\n")))
    yield Vocabulary(["a", "\u00e9"])
    del serializers._by_type[Vocabulary]
    serializers._by_name.pop("test.Vocabulary", None)


def again(value):
    return objects.decode(objects.encode(value, "x"), "x")


def test_Objects_ArraysInThem_KeepDtypeShapeAndBits():
    for array in (np.arange(624, dtype=np.uint32), np.zeros((2, 0, 3)), np.array(1.5, np.float16),
                  np.arange(6).reshape(2, 3).T, np.array([True, False]), np.arange(3, dtype=">i4")):
        loaded = again({"state": ("MT19937", array, 7)})["state"]
        assert type(loaded) is tuple and loaded[0] == "MT19937" and loaded[2] == 7
        assert loaded[1].dtype == array.dtype.newbyteorder("<") and loaded[1].shape == array.shape
        assert (loaded[1] == array).all() and loaded[1].flags.writeable


def test_Objects_StatesOfGenerators_AreTakenAsTheyAre():
    state, numbers = again(random.getstate()), [random.random() for _ in range(3)]
    random.setstate(state)
    assert [random.random() for _ in range(3)] == numbers
    state, numbers = again(np.random.get_state()), np.random.rand(3).tolist()
    np.random.set_state(state)
    assert np.random.rand(3).tolist() == numbers


@pytest.mark.parametrize("value", [
    collections.OrderedDict(b=1, a=[2]), collections.Counter("aab"), collections.defaultdict(None, {1: 2}),
    collections.defaultdict(list, {(1, 2): collections.OrderedDict(x=collections.Counter())}),
    *[collections.defaultdict(factory) for factory in (int, float, bool, str, bytes, list, tuple, dict, set)],
], ids=repr)
def test_Objects_DictsOfClassesOfCollections_ComeBack(value):
    for loaded in (again(value), again([{"v": (value,)}])[0]["v"][0]):
        assert loaded == value and repr(loaded) == repr(value)


class Settings(dict):
    pass


def test_Objects_RegisteredClass_ComesBack(vocabulary):
    assert again({"v": [vocabulary], 1: vocabulary}) == {"v": [vocabulary], 1: vocabulary}


def test_Objects_ClassIsRegisteredNowhere_IsOpaque(vocabulary):
    from cairn._state import serializers

    data = objects.encode({"v": vocabulary, "n": 1}, "x")
    del serializers._by_name["test.Vocabulary"]
    loaded = objects.decode(data, "x")
    assert loaded["n"] == 1 and isinstance(loaded["v"], cairn.Opaque)
    assert "test.Vocabulary" in loaded["v"].description and "register_serializer" in loaded["v"].description


def test_Register_NameOfAnotherClass_IsRefused(vocabulary):
    with pytest.raises(cairn.Error) as caught:
        cairn.register_serializer(dict, "test.Vocabulary", bytes, dict)
    assert caught.value.reason == "BAD_REQUEST" and "Vocabulary" in caught.value.message
    for arguments in ((3, "x"), (Vocabulary, "")):
        with pytest.raises(cairn.Error):
            cairn.register_serializer(*arguments, bytes, bytes)


class WithState:
    def state_dict(self):
        return {}


@pytest.mark.parametrize("value, words", [
    (object(), "register_serializer"),
    (WithState(), "state_dict()"),
    (np.float32(1), ".item()"),
    (np.array([object()]), "register_serializer"),
    (np.zeros((1 << 17) + 1), "entry of the state"),
    (np.ma.masked_array([1], [True]), "register_serializer"),
    (Settings(a=1), "Give dict(value)"),
    (collections.defaultdict(lambda: 3), "default_factory"),
])
def test_Objects_ValueOfNoKnownType_IsRefusedWithItsPathAndWhatToDo(value, words):
    with raises_error("BAD_REQUEST") as caught:
        objects.encode({"a": [1, {"b": value}]}, "top")
    assert "top['a'][1]['b']" in caught.value.message and words in str(caught.value)


def test_Objects_ArrayOfObjectsInTheBytes_IsNotMade():
    data = b'\x02{"$cairn":"array","value":["|O",[1],"AAAAAAAAAAA="]}'
    with raises_error("CHECKSUM_MISMATCH"):
        objects.decode(data, "x")


def test_LoadReport_IsPrinted_InOneShortLine():
    report = cairn.LoadReport(7, {f"o{i}": list(range(1000)) for i in range(50)}, [], ["a"] * 3, 1, 20, 10, 4096,
                              "cached")
    assert repr(report) == "LoadReport(step=7, 10 bytes, 20 read (cached), 50 objects, 3 names unexpected)"
    assert str(report) == repr(report)


@pytest.mark.parametrize("value", [10**4300, {"a": [-(10**4300)]}, {10**5000: 1}], ids=["plain", "nested", "key"])
def test_Objects_IntegerThatPythonDoesNotWrite_IsRefused(value):
    with pytest.raises(cairn.Error) as caught:
        objects.encode(value, "x")
    assert caught.value.reason == "BAD_REQUEST" and "x" in caught.value.metadata["object"]
    assert again([10**4299, -(10**4299)]) == [10**4299, -(10**4299)]


@pytest.mark.parametrize("call, reason", [
    (lambda: retention.checked_step(10**5000), "BAD_STEP"),
    (lambda: retention.checked_metrics({"loss": 10**5000}), "BAD_REQUEST"),
    (lambda: timeouts.seconds(-(10**5000), "save"), "BAD_REQUEST"),
    (lambda: cairn.Shard(np.zeros(1), (10**5000,), (0,)), "SHAPE_OVERFLOW"),
], ids=["step", "metric", "timeout", "shape"])
def test_Arguments_IntegerThatPythonDoesNotWrite_AreRefusedByReason(call, reason):
    with pytest.raises(cairn.Error) as caught:
        call()
    assert caught.value.reason == reason
    assert " bits>" in caught.value.message or "<tuple>" in caught.value.message
