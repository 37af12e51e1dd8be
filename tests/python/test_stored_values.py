"""Tests how values are found in checkpoints that store each item of a dict or list."""

import collections
import random

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.checkpoint._nested_dict import flatten_state_dict

from cairn.torch._state_dict import stored_values

LETTERS = "abc"


def random_value(randomness, depth):
    kind = randomness.randrange(6 if depth else 3)
    if kind < 3:
        return randomness.choice([1, 2.5, "text", None, (1, 2), [], [1, 2]])
    if kind == 3:
        return [random_value(randomness, depth - 1) for _ in range(randomness.randrange(1, 4))]
    keys = randomness.sample([*LETTERS, "a.b", "b.c", 0, 1, 12], randomness.randrange(1, 5))
    names = [str(key) for key in keys]
    if any(one.startswith(f"{other}.") for one in names for other in names):
        return 7  # two keys of which one may be a part of the other's name cannot be told apart
    return {key: random_value(randomness, depth - 1) for key in keys}


def emptied(value, randomness):
    """Returns a value with the same keys, and other leaves."""
    if isinstance(value, dict):
        return {key: emptied(item, randomness) for key, item in randomness.sample(list(value.items()), len(value))}
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return [emptied(item, randomness) for item in value]
    return randomness.choice([None, 0, "x"])


@pytest.mark.parametrize("seed", range(200))
def test_Find_WhatTorchHasTakenApart_IsPutTogether(seed):
    """torch's own code is the oracle: what it makes of a dict is put together again."""
    randomness = random.Random(seed)
    value = {key: random_value(randomness, 3) for key in LETTERS}
    flat, _ = flatten_state_dict({"top": value, "topper": {"x": 1}, "to": 3})
    stored = stored_values.StoredValues(flat)
    assert stored.find("top", emptied(value, randomness)) == value and not stored.unplaced


def test_Find_TheNameItself_ComesBeforeItsParts():
    stored = stored_values.StoredValues({"a": {"x": 1}, "a.x": 2, "a.y": 3})
    assert stored.find("a", {"y": 0}) == {"x": 1} and stored.find("a.x", None) == 2
    assert stored.find("b", {}) is stored_values.ABSENT and stored.find("a.z", 0) is stored_values.ABSENT


def test_Find_KeysThatTheTemplateLacks_AreTakenWhereTheNameTellsThem():
    stored = stored_values.StoredValues({"d.plain": 1, "d.a.jsonl": 2, "d.80": 3, "d.-1": 4, "d.True": 5,
                                         "d.None": 6, "d.1e-05": 7, "d.inf": 8, "d.infant": 9})
    assert stored.find("d", {}) == {"plain": 1, "infant": 9}
    assert stored.unplaced == ["d.-1", "d.1e-05", "d.80", "d.None", "d.True", "d.a.jsonl", "d.inf"]
    stored.unplaced.clear()
    assert stored.find("d", {80: 0, "a": {}, -1: 0, True: 0, None: 0, 1e-05: 0, float("inf"): 0}) == {
        80: 3, "a": {"jsonl": 2}, -1: 4, True: 5, None: 6, 1e-05: 7, float("inf"): 8, "plain": 1,
        "infant": 9} and not stored.unplaced


def test_Find_ListsThatGrew_TakeTheKeysOfTheLastItem():
    flat = {"groups.0.lr": 1, "groups.0.a.b": 2, "groups.1.lr": 3, "groups.1.a.b": 4}
    stored = stored_values.StoredValues(flat)
    assert stored.find("groups", [{"lr": 0, "a.b": 0}]) == [{"lr": 1, "a.b": 2}, {"lr": 3, "a.b": 4}]
    stored.unplaced.clear()
    del flat["groups.0.lr"], flat["groups.0.a.b"]
    assert stored_values.StoredValues(flat).find("groups", [{}]) == {}  # a list that lacks an item is none


def test_Fill_DictsOfTheProgram_KeepIdentityAndClass():
    class Settings(dict):
        pass

    target = Settings(gone=1, inner=Settings(a=1), counts=collections.Counter(x=1), changes=[1])
    inner = target["inner"]
    value = {"counts": {"y": 2}, "inner": {"b": {"c": 1}}, "changes": {"z": 1}}
    assert stored_values.fill(target, value) is target and target == value and target["inner"] is inner
    assert list(target) == list(value) and type(target["counts"]) is collections.Counter
    counter = collections.Counter("ab")
    assert stored_values.fill({"a": 1}, counter) is counter


def test_Plain_ClassesOfTheProgram_BecomePlainInDictsAlone():
    class Settings(dict):
        pass

    ordered = collections.OrderedDict(a=Settings(b=Settings()), c=[Settings()])
    plain = stored_values.plain({"o": ordered})
    assert type(plain["o"]) is collections.OrderedDict and type(plain["o"]["a"]) is type(plain["o"]["a"]["b"]) is dict
    assert type(plain["o"]["c"][0]) is Settings and type(ordered["a"]) is Settings
    counts = collections.Counter(a=1)
    assert stored_values.plain({"n": counts})["n"] is counts
