"""Tests what the names of a state mean, with real processes: dicts of values, states of optimizers, extra states, and
checkpoints in which they were stored otherwise."""

import collections
import contextlib
import logging
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import cairn
import cairn.torch
import cairn.torch.dcp
from cairn.torch import CheckpointManager
from testing.ranks import on_ranks, reasons

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
sys.path.append(str(GOLDEN))

import manager_v1


@pytest.fixture
def cluster(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with cluster.connect(0) as client:
        yield client


@pytest.fixture
def old_client(tmp_path):
    """A client of a job whose latest checkpoint an earlier version has written."""
    shutil.copytree(GOLDEN / "manager_v1" / "demo", tmp_path / "old" / "demo")
    with cairn.local.Cluster(ranks=1, root=tmp_path / "old") as cluster, cluster.connect(0) as client:
        yield client


def manager_of(client, **options):
    return CheckpointManager(client, every_steps=1, handle_sigterm=False, **options)


def refusal(call):
    with pytest.raises(cairn.Error) as caught:
        call()
    return caught.value


def told(caplog):
    """What Cairn has logged; torch.distributed.checkpoint logs, too."""
    return [record.getMessage() for record in caplog.records if record.name == "cairn"]


def make(seed=0, lr=0.001):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    model(torch.randn(2, 4)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def states(model, optimizer):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def assert_same_optimizers(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys() and ours["state"]
    for number, kept in ours["state"].items():
        assert all(torch.equal(kept[name], theirs["state"][number][name]) for name in theirs["state"][number])


# A dict of values is one value.

VALUE = {"done": {"a.jsonl": 10, "b.jsonl": 3}, "by_number": {80: 0.5, (1, 2): None}, "deep": {"er": {"list": [1, {}]}}}


@pytest.mark.parametrize("template", [
    {}, {"done": {}}, {"done": {"a.jsonl": 0}, "more": {"x": 1}}, VALUE, None, [], [1, {"x": 2}], 5, "text",
    {"deep": {"er": {"list": {}}}},
], ids=repr)
def test_Load_ADictOfValues_IsReplacedAsAWhole(client, template):
    cairn.torch.save(client, 1, {"w": torch.ones(2), "progress": VALUE, "in": {"w": torch.ones(1), "p": VALUE}}).wait()
    for strict in (True, False):
        state = {"w": torch.zeros(2), "progress": template, "in": {"w": torch.zeros(1), "p": template}}
        cairn.torch.load(client, state, strict=strict)
        assert state["progress"] == state["in"]["p"] == VALUE


def test_Load_ADictThatTheProgramHolds_IsFilledInPlace(client):
    class Settings(dict):
        pass

    cairn.torch.save(client, 1, {"s": Settings(a=1, inner=Settings(b={"c": 2})), "o": collections.OrderedDict(b=1, a=2),
                                 "w": torch.ones(1)}).wait()
    settings, ordered = Settings(z=0, inner=Settings(b={})), collections.OrderedDict(a=0, b=0)
    inner, innermost = settings["inner"], settings["inner"]["b"]
    cairn.torch.load(client, {"s": settings, "o": ordered, "w": torch.zeros(1)})
    assert settings == {"a": 1, "inner": {"b": {"c": 2}}} and settings["inner"] is inner and inner["b"] is innermost
    assert type(settings) is type(inner) is Settings and list(ordered.items()) == [("b", 1), ("a", 2)]


@pytest.mark.parametrize("template, names", [
    ({"ema": {}}, {"ema.w"}), ({"ema": None}, {"ema.w"}), ({"ema": {"decay": 0.0}}, {"ema.w"}),
    ({"ema": {"w": torch.zeros(2)}}, {"ema.decay", "ema.of.n"}),
    ({"ema": {"w": torch.zeros(2), "of": {"n": 0}}}, {"ema.decay"}),
])
def test_Load_WhereTensorsAre_WhatHasNoPlaceIsUnexpected(client, template, names):
    saved = {"ema": {"w": torch.ones(2), "decay": 0.5, "of": {"n": 1, "t": torch.ones(1)}}, "n": 3}
    saved["ema"]["of"] = {"n": 1} if names != {"ema.decay", "ema.of.n"} else {"n": 1, "own": cairn.per_rank(2)}
    cairn.torch.save(client, 1, saved).wait()
    error = refusal(lambda: cairn.torch.load(client, template))
    assert error.reason == "UNEXPECTED_NAMES" and names <= set(error.metadata["names"].split(", "))
    assert "n" not in error.metadata["names"].split(", "), "the program need not ask for all values"


def test_Load_AValueOfATensorsDictThatAnotherRankWants_IsExpected(tmp_path):
    def state(rank):
        return {"model": {f"{rank}.w": torch.ones(2), f"{rank}.extra": {"n": rank}}}

    def load(rank, client):
        target = state(1 - rank)
        target["model"][f"{1 - rank}.extra"] = {}
        cairn.torch.load(client, target)
        return target["model"][f"{1 - rank}.extra"]

    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        on_ranks(cluster, lambda rank, client: cairn.torch.save(client, 1, state(rank)).wait())
        assert on_ranks(cluster, load) == [{"n": 1}, {"n": 0}]


class Scaler:
    """Has a state only while it is enabled, as torch's GradScaler."""

    def __init__(self, **state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = dict(state)


def test_Manager_AnObjectWithoutAStateYet_GetsAllThatWasSaved(client):
    with manager_of(client) as manager:
        manager.step(1, {"w": torch.ones(1), "scaler": Scaler(scale=4.0, growth={"tracker": 2}), "off": Scaler()})
    live = {"scale": 1.0, "unsaved": 0, "growth": {"tracker": 0, "unsaved": 1}}
    scaler, growth = Scaler(), Scaler(**live)
    growth.state = live  # what it gives out is its own
    for one in (scaler, growth):
        assert manager_of(client).restore_or_initialize({"w": torch.zeros(1), "scaler": one, "off": Scaler()}) == 1
        assert one.state == {"scale": 4.0, "growth": {"tracker": 2}}
    assert live == {"scale": 1.0, "unsaved": 0, "growth": {"tracker": 0, "unsaved": 1}}
    with manager_of(client) as manager:  # what it has kept is no dropped name
        manager.step(2, {"w": torch.ones(1), "scaler": Scaler(), "off": Scaler(scale=1.0)})
    assert client.checkpoints() == [1, 2]


def test_Manager_KeysOfValuesChange_SavesGoOn(client):
    with manager_of(client) as manager:
        for step, reading in enumerate([{"a.jsonl": 1}, {"b.jsonl": {"at": 2}}, {}, {7: 1}, {"m": torch.ones(1)}]):
            assert manager.step(step, {"w": torch.ones(1), "reading": reading}).wait().step == step
        state = {"w": torch.ones(1), "reading": {}}
        error = refusal(lambda: cairn.torch.save(client, 9, state).wait())  # a tensor is a declared name
        assert error.reason == "NAMES_DROPPED" and error.metadata["names"] == "reading.m"
    with manager_of(client, allow_dropped_names=True) as manager:
        assert manager.step(9, {"w": torch.ones(1)}).wait().step == 9


def test_Save_RanksAreGoneThatHadValuesOfTheirOwn_TheirNamesAreNotDropped(tmp_path):
    def save(step):
        def work(rank, client):
            return cairn.torch.save(client, step, {"w": torch.ones(1), f"reader{rank}": cairn.per_rank(rank)}).wait()
        return work

    with cairn.local.Cluster(ranks=3, root=tmp_path) as cluster:
        on_ranks(cluster, save(1))
    with cairn.local.Cluster(ranks=1, root=tmp_path) as cluster:
        on_ranks(cluster, save(2))


# What a load that is not strict did not fill is told.

@pytest.mark.parametrize("load", [
    lambda client: cairn.torch.load(client, {"w": torch.zeros(1), "m": {"u": torch.zeros(1)}, "n": {"a": 1}},
                                    strict=False),
    lambda client: client.load({"w": np.zeros(1, "f4"), "m.u": np.zeros(1), "n": 0}, strict=False),
    lambda client: manager_of(client).restore_or_initialize({"w": torch.zeros(1), "m": {"u": torch.zeros(1)}, "n": 0},
                                                            strict=False),
])
def test_Load_NotStrict_WarnsOfWhatItDidNotFill(client, caplog, load):
    cairn.torch.save(client, 1, {"w": torch.ones(1)}).wait()
    with caplog.at_level(logging.WARNING, "cairn"):
        load(client)
    [message] = told(caplog)
    assert "did not find 2 of the state's names" in message and message.endswith("m.u, n"), message


def test_Load_NotStrictAndAllIsThere_SaysNothing(client, caplog):
    cairn.torch.save(client, 1, {"w": torch.ones(1), "n": {}, "m": 1}).wait()
    with caplog.at_level(logging.WARNING, "cairn"):
        report = cairn.torch.load(client, {"w": torch.zeros(1), "n": {}}, strict=False)
    assert not told(caplog) and not report.missing


def test_Load_NotStrict_FindsWhatStandsWithinAValue(client):
    cairn.torch.save(client, 1, {"w": torch.ones(1), "o": {"a": {"b.c": 5}, "n": 6}}).wait()
    state = {"w": torch.zeros(1), "o": {"t": torch.zeros(1), "a": {"b.c": 0}, "n": 0}}
    report = cairn.torch.load(client, state, strict=False)
    assert (state["o"]["a"], state["o"]["n"], report.missing) == ({"b.c": 5}, 6, ["o.t"])


# Directories of torch.distributed.checkpoint store each item of dicts and lists.

@pytest.fixture(params=["step", "source"])
def imported(request, tmp_path):
    """Gives a function that opens a client, and what its loads take as `source`, of a saved state."""
    stack = contextlib.ExitStack()

    def open_(state):
        dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
        if request.param == "step":
            subprocess.run([cairn.local.binary("cairn"), "import", tmp_path / "dcp", "--to", "demo@1", "--root",
                            tmp_path / "root"], check=True, capture_output=True)
        cluster = stack.enter_context(cairn.local.Cluster(ranks=1, root=tmp_path / "root"))
        return cluster.connect(0), tmp_path / "dcp" if request.param == "source" else None

    with stack:
        yield open_


@pytest.mark.parametrize("strict", [True, False])
def test_Load_OfDcp_RestoresTheGroupsOfTheOptimizer(imported, strict):
    saved = states(*make(1, lr=0.5))
    saved["optimizer"]["param_groups"][0]["note"] = "the fresh optimizer has no such key"
    client, source = imported({**saved, "progress": {"n": 3, "files": [{"a": 1}, 2]}, "none": {}})
    state = {**states(*make(2)), "progress": {"files": []}, "none": {}}
    report = cairn.torch.load(client, state, strict=strict, source=source)
    assert not report.missing
    assert state["optimizer"]["param_groups"] == saved["optimizer"]["param_groups"]
    assert state["progress"] == {"n": 3, "files": [{"a": 1}, 2]} and state["none"] == {}
    assert torch.equal(state["optimizer"]["state"]["0.weight"]["exp_avg"],
                       saved["optimizer"]["state"]["0.weight"]["exp_avg"])


def test_Load_OfDcpWithKeysThatNamesDoNotTell_IsRefusedWithAdviceThatWorks(imported, caplog):
    client, source = imported({"w": torch.ones(1), "done": {"a.jsonl": 10, 80: 1, "b": 2}})
    error = refusal(lambda: cairn.torch.load(client, {"w": torch.zeros(1), "done": {}}, source=source))
    assert error.reason == "UNEXPECTED_NAMES" and error.metadata["names"] == "done.80, done.a.jsonl"
    assert "Give the dicts of the state these keys before the load" in str(error)
    with caplog.at_level(logging.WARNING, "cairn"):
        cairn.torch.load(client, {"w": torch.zeros(1), "done": {"b": 0}}, source=source, strict=False)
    assert ["done.80, done.a.jsonl" in message for message in told(caplog)] == [True]
    state = {"w": torch.zeros(1), "done": {"a.jsonl": None, 80: None}}
    cairn.torch.load(client, state, source=source)
    assert state["done"] == {"a.jsonl": 10, 80: 1, "b": 2}


def test_DcpLoad_OfAStepThatTheManagerSaved_FindsItsValuesAndTensors(client):
    model, optimizer = make(1, lr=0.5)
    with manager_of(client) as manager:
        manager.step(3, {"model": model, "optimizer": optimizer, "progress": {"a.jsonl": 1}})
    state = {**states(*make(2)), "progress": {"b": 0}}
    cairn.torch.dcp.load(state, checkpoint_id="3", client=client)
    expected = states(model, optimizer)
    assert state["progress"] == {"a.jsonl": 1}
    assert state["optimizer"]["param_groups"] == expected["optimizer"]["param_groups"]
    assert torch.equal(state["optimizer"]["state"]["1.bias"]["exp_avg"],
                       expected["optimizer"]["state"]["1.bias"]["exp_avg"])


# The tensors of an optimizer have the names of parameters.

def test_Manager_OfWhatGetStateDictSaved_RestoresIt_AndTheOtherWayRound(client):
    model, optimizer = make(1, lr=0.5)
    cairn.torch.save(client, 1, states(model, optimizer)).wait()
    again, other = make(2)
    with manager_of(client) as manager:
        assert manager.restore_or_initialize({"model": again, "optimizer": other}) == 1
        assert_same_optimizers(other, optimizer)
        manager.step(2, {"model": again, "optimizer": other})
    again, other = make(3)
    loaded = states(again, other)
    assert cairn.torch.load(client, loaded).step == 2
    set_state_dict(again, other, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    assert_same_optimizers(other, optimizer)


def test_Manager_TwoModelsAndAnOptimizerOfBoth_ComeBack(client):
    def parts(seed):
        torch.manual_seed(seed)
        models = {name: torch.nn.Linear(2, 2) for name in "ab"}
        optimizers = {"of_b": torch.optim.AdamW(models["b"].parameters(), lr=seed / 8),
                      "of_all": torch.optim.SGD([*models["b"].parameters(), *models["a"].parameters()], seed / 4, 0.9)}
        (models["a"](torch.ones(1, 2)) * models["b"](torch.ones(1, 2))).sum().backward()
        for optimizer in optimizers.values():
            optimizer.step()
        return {"models": models, **optimizers}

    saved, loaded = parts(1), parts(2)
    with manager_of(client) as manager:
        manager.step(1, saved)
        manager.wait()
        assert manager.restore_or_initialize(loaded) == 1
    for name in ("of_b", "of_all"):
        assert_same_optimizers(loaded[name], saved[name])


def test_Load_AnOptimizerByNumbersOfOneByNames_SaysHowToReadIt(client):
    model, optimizer = make()
    cairn.torch.save(client, 1, states(model, optimizer)).wait()
    by_number = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    error = refusal(lambda: cairn.torch.load(client, by_number))
    assert "get_state_dict" in str(error) and "CheckpointManager" in str(error)


# An earlier version stored each item, numbers, and extra states as tensors.

def old_parts(extra=3):
    model, optimizer, scheduler = manager_v1.fresh(torch.zeros(extra, dtype=torch.uint8))
    values = {"progress": {"done": {"a.jsonl": 0}, "n": 0}, "seen": [], "none": {}}
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, **values}


@pytest.mark.parametrize("strict", [True, False])
def test_Manager_OfAnEarlierVersion_RestoresAllAndSaves(old_client, caplog, strict):
    model, optimizer, scheduler = manager_v1.trained()
    state = old_parts()
    with manager_of(old_client) as manager:
        assert manager.restore_or_initialize(state, strict=strict) == manager_v1.STEP
        assert not told(caplog)
        assert {key: state[key] for key in ("progress", "seen", "none")} == manager_v1.values()
        for name, value in model.state_dict().items():
            assert torch.equal(state["model"].state_dict()[name], value), name
        assert_same_optimizers(state["optimizer"], optimizer)
        assert state["scheduler"].state_dict() == scheduler.state_dict()
        assert manager.step(8, state).wait().step == 8
    again = old_parts(extra=0)
    assert manager_of(old_client).restore_or_initialize(again) == 8
    assert_same_optimizers(again["optimizer"], optimizer)


def test_Load_OfAnEarlierVersionAsGetStateDictNamesIt_GivesNames(old_client):
    parts = old_parts()
    state = {**states(parts["model"], parts["optimizer"]), "scheduler": parts["scheduler"].state_dict(),
             "progress": {"done": {"a.jsonl": 0}}, "seen": None, "none": {}}
    cairn.torch.load(old_client, state)
    set_state_dict(parts["model"], parts["optimizer"], model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"])
    assert_same_optimizers(parts["optimizer"], manager_v1.trained()[1])


def test_Save_AfterAnEarlierVersion_MissesWhatIsReallyDropped(old_client):
    model, optimizer, _ = manager_v1.trained()
    state = {"model": model, "optimizer": optimizer, **manager_v1.values()}
    error = refusal(lambda: manager_of(old_client).step(8, state).wait())
    assert error.reason == "NAMES_DROPPED" and error.metadata["names"].startswith("scheduler.")
    assert error.metadata["count"] == "9"


# What a checkpoint does not have.

def restore(client, state, by_manager, **options):
    if by_manager:
        return manager_of(client).restore_or_initialize(state, **options)
    return cairn.torch.load(client, state, **options)


@pytest.mark.parametrize("by_manager", [False, True])
def test_Load_TheCheckpointHasNoSuchValueOfARank_TheAdviceWorks(client, caplog, by_manager):
    model, optimizer = make()
    cairn.torch.save(client, 1, states(model, optimizer)).wait()
    target = make(seed=1)
    state = {"model": target[0], "optimizer": target[1]} if by_manager else states(*target)
    state["rng"] = cairn.torch.rng_state()
    error = refusal(lambda: restore(client, state, by_manager))
    advice = error.metadata["next"]
    assert error.reason == "MISSING_NAMES" and error.metadata["names"] == "rng"
    assert advice.startswith("'rng' is a value of cairn.per_rank") and "torch.distributed.checkpoint" not in advice
    assert "leave it out" in advice and "strict=False" in advice and "Other names" not in advice
    restore(client, state, by_manager, strict=False)
    assert len(told(caplog)) == 1 and "rng" in told(caplog)[0]
    del state["rng"]
    restore(client, state, by_manager)


@pytest.mark.parametrize("by_manager", [False, True])
def test_Load_TensorsAreMissingToo_TheAdviceSaysWhatTheyWouldKeep(client, by_manager):
    cairn.torch.save(client, 1, {"model": torch.nn.Linear(2, 2).state_dict()}).wait()
    larger = torch.nn.Sequential(torch.nn.Linear(2, 2))
    state = {"model": larger if by_manager else larger.state_dict(), "rng": cairn.torch.rng_state()}
    error = refusal(lambda: restore(client, state, by_manager))
    assert error.metadata["names"].split(", ") == ["model.0.bias", "model.0.weight", "rng"]
    advice = error.metadata["next"]
    assert "Other names are missing too, 2 of them" in advice and "which is a random one in a new model" in advice
    assert "leaves it as it is" not in advice
    del state["rng"]
    error = refusal(lambda: restore(client, state, by_manager))
    assert "a new model would keep random values" in str(error)


# A module's extra state is its own, whatever it is.

@pytest.mark.parametrize("extra", [
    torch.arange(9, dtype=torch.uint8), torch.ones(2, 3, dtype=torch.float64), torch.tensor(4), {"n": {"m": 1}}, {},
    None, [1, 2], b"\x00\xff", torch.empty(0),
], ids=repr)
def test_Manager_ExtraStateOfAnotherLengthOrKind_ComesBackAsItWas(client, extra):
    with manager_of(client) as manager:
        manager.step(1, {"model": torch.nn.Sequential(torch.nn.Linear(1, 1), manager_v1.Layer(extra))})
    for fresh in (torch.empty(0, dtype=torch.uint8), torch.zeros(9), {}, {"n": {"x": 1}}, None):
        model = torch.nn.Sequential(torch.nn.Linear(1, 1), manager_v1.Layer(fresh))
        assert manager_of(client).restore_or_initialize({"model": model}) == 1
        got = model[1].extra
        same = torch.equal(got, extra) and got.dtype == extra.dtype if isinstance(extra, torch.Tensor) else got == extra
        assert same and type(got) is type(extra), (fresh, got)


# The advice of errors works.

class Seen(torch.nn.Module):
    def __init__(self, length):
        super().__init__()
        self.register_buffer("seen", torch.arange(float(length)))


def test_Manager_ABufferOfAnotherLength_IsRefusedWithAdviceThatWorks(client):
    with manager_of(client) as manager:
        manager.step(1, {"model": Seen(9)})
    model = Seen(0)
    error = refusal(lambda: manager_of(client).restore_or_initialize({"model": model}))
    assert error.reason == "SHAPE_MISMATCH" and "`module.seen = torch.empty(9)` for [9]" in str(error)
    model.seen = torch.empty(9)
    assert manager_of(client).restore_or_initialize({"model": model}) == 1
    assert model.seen.tolist() == list(range(9))


def test_Save_ATensorOfEachRank_IsRefusedWithAdviceThatWorks(tmp_path):
    def own(rank, size):
        return torch.full((size,), float(rank))

    def try_(step, state):
        return lambda rank, client: cairn.torch.save(client, step, state(rank)).wait()

    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        answers = on_ranks(cluster, try_(1, lambda rank: {"replay": own(rank, 3)}), errors=True)
        assert reasons(answers) == ["REPLICA_MISMATCH"] * 2
        assert all("cairn.per_rank" in str(answer) and "a name for each rank" in str(answer) for answer in answers)
        large = 1 << 19
        answers = on_ranks(cluster, try_(1, lambda rank: {"replay": cairn.per_rank(own(rank, large))}), errors=True)
        assert reasons(answers) == ["BAD_REQUEST"] * 2
        assert all("'replay'" in str(answer) and "a name for each rank" in str(answer) for answer in answers)

        on_ranks(cluster, try_(1, lambda rank: {"replay": cairn.per_rank(own(rank, 3)),
                                                f"replay.rank{rank}": own(rank, large)}))

        def load(rank, client):
            state = {"replay": cairn.per_rank(None), f"replay.rank{rank}": torch.zeros(large)}
            cairn.torch.load(client, state)
            assert torch.equal(state["replay"].value, own(rank, 3))
            assert torch.equal(state[f"replay.rank{rank}"], own(rank, large))

        on_ranks(cluster, load)


def test_Load_ATargetWhoseElementsShareMemory_IsRefused(client):
    saved = {"w": torch.arange(4.0), "wide": torch.zeros(1).expand(4), "t": torch.arange(6.0).reshape(2, 3)}
    cairn.torch.save(client, 1, saved).wait()
    error = refusal(lambda: cairn.torch.load(client, {"w": torch.zeros(1).expand(4)}))
    assert error.reason == "UNSUPPORTED" and error.metadata["tensor"] == "w" and "clone()" in str(error)
    target = {"w": torch.ones(4), "wide": torch.ones(4), "t": torch.zeros(3, 2).t()}
    cairn.torch.load(client, target)
    assert all(torch.equal(target[name], saved[name]) for name in saved)
    one = {**target, "w": torch.zeros(4).reshape(4, 1).expand(4, 1)[:, 0]}
    cairn.torch.load(client, one)
    assert torch.equal(one["w"], saved["w"])


def test_Save_AKeyOfTheProgramThatEndsLikeAnExtraState_ChangesNothing(client):
    saved = {"w": torch.ones(1), "a": {"z_extra_state": {"n": 1}, None: 2, "b": 3}}
    cairn.torch.save(client, 1, saved).wait()
    target = {"w": torch.zeros(1), "a": {}}
    cairn.torch.load(client, target)
    assert list(target["a"].items()) == list(saved["a"].items())


def test_Save_KeysThatAreNoText_AreStoredUnlessTheyNameTensors(client):
    odd = {(0, 1): "pair", 1.5: [2], None: 3, True: 4}
    cairn.torch.save(client, 1, {"w": torch.ones(1), "odd": odd, "in": [odd], "deep": {"er": odd}}).wait()
    state = {"w": torch.zeros(1), "odd": {}, "in": None, "deep": {}}
    cairn.torch.load(client, state)
    assert state["odd"] == state["in"][0] == state["deep"]["er"] == odd
    for bad in ({(0, 1): torch.ones(1)}, {"n": 1, 1.5: {"t": torch.ones(1)}}):
        error = refusal(lambda bad=bad: cairn.torch.save(client, 2, {"odd": bad}))
        assert error.reason == "BAD_NAME" and "Make it a text, such as str(key)" in str(error)
        cairn.torch.save(client, 2, {"odd": {str(key): value for key, value in bad.items()}}, overwrite=True,
                         allow_dropped_names=True).wait()


@pytest.mark.parametrize("value", [collections.defaultdict(int, a=1), collections.Counter("aab"),
                                   collections.OrderedDict(b=1, a=2)], ids=lambda value: type(value).__name__)
def test_Load_ClassesOfDicts_ComeBackWhereverTheyStand(client, value):
    def state(value):
        return {"w": torch.ones(1), "v": value, "list": [value], "own": cairn.per_rank((value,)),
                "in": {"d": {"e": value}}}

    cairn.torch.save(client, 1, state(value)).wait()
    for template in ({}, None, type(value)()):
        target = state(template)
        cairn.torch.load(client, target)
        for got in (target["list"][0], target["own"].value[0], target["in"]["d"]["e"]):
            assert got == value and (type(got) is type(value) or got is template)
        assert type(target["list"][0]) is type(value) and list(target["list"][0].items()) == list(value.items())
    assert isinstance(target["list"][0], dict) and getattr(target["list"][0], "default_factory", None) is getattr(
        value, "default_factory", None)
