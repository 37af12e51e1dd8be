"""Tests that wrappers around modules (DistributedDataParallel, torch.compile, checkpoint wrappers) leave no trace in
the names of a checkpoint, with real processes and a real process group."""

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

import cairn
import cairn.torch
from cairn.torch import CheckpointManager
from testing.ranks import on_ranks


@pytest.fixture
def client(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        yield client


@pytest.fixture(autouse=True)
def process_group():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def compiled(module):
    return torch.compile(module, backend="eager")


def part_compiled(module):
    module[0] = compiled(module[0])
    return module


def part_checkpointed(module):
    module[0] = checkpoint_wrapper(module[0])
    return module


WRAPPERS = {
    "plain": lambda module: module, "ddp": DistributedDataParallel, "compiled": compiled,
    "ddp of compiled": lambda module: DistributedDataParallel(compiled(module)),
    "compiled ddp": lambda module: compiled(DistributedDataParallel(module)), "part compiled": part_compiled,
    "ddp, part checkpointed": lambda module: DistributedDataParallel(part_checkpointed(module)),
}


class Counted(torch.nn.Linear):
    """A module with an extra state, which is a value and no tensor."""

    count = 0

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]


def make(how, seed):
    torch.manual_seed(seed)
    model = WRAPPERS[how](torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), Counted(3, 2)))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def trained(how):
    model, optimizer = make(how, 1)
    model(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    next(module for module in model.modules() if isinstance(module, Counted)).count = 7
    return model, optimizer


def manager_of(client):
    return CheckpointManager(client, every_steps=1, handle_sigterm=False)


def assert_same(one, other):
    """Compares two models with their optimizers by the names that torch gives to them."""
    ours, theirs = get_state_dict(*one), get_state_dict(*other)
    assert ours[0].keys() == theirs[0].keys() and ours[1]["state"].keys() == theirs[1]["state"].keys()
    for name, value in theirs[0].items():
        same = torch.equal(ours[0][name], value) if isinstance(value, torch.Tensor) else ours[0][name] == value
        assert same, name
    for name, kept in theirs[1]["state"].items():
        assert kept and all(torch.equal(ours[1]["state"][name][key], value) for key, value in kept.items()), name


def state_by_torch(model, optimizer):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


@pytest.mark.parametrize("saved", ["plain", "ddp"])
@pytest.mark.parametrize("how", WRAPPERS)
def test_Manager_AWrappedModule_LoadsAndIsLoadedByEachOther(client, saved, how):
    for step, (first, second) in enumerate([(saved, how), (how, saved)]):
        source, target = trained(first), make(second, 2)
        manager_of(client).step(step, {"model": source[0], "optimizer": source[1]}).wait()
        assert manager_of(client).restore_or_initialize({"model": target[0], "optimizer": target[1]}) == step
        assert_same(target, source)


@pytest.mark.parametrize("how", WRAPPERS)
def test_Manager_WhatGetStateDictNamed_IsRestoredAndTheOtherWayRound(client, how):
    source, target = trained(how), make(how, 2)
    cairn.torch.save(client, 1, state_by_torch(*source)).wait()
    assert manager_of(client).restore_or_initialize({"model": target[0], "optimizer": target[1]}) == 1
    assert_same(target, source)
    manager_of(client).step(2, {"model": source[0], "optimizer": source[1]}).wait()
    target = make(how, 3)
    loaded = state_by_torch(*target)
    assert cairn.torch.load(client, loaded).step == 2
    set_state_dict(*target, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    assert_same(target, source)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("saved, how", [(how, how) for how in WRAPPERS] + [("ddp", "plain"), ("compiled", "plain")])
def test_Manager_NamesOfWrappersByAnEarlierVersion_AreRestoredAndSavingGoesOn(client, caplog, saved, how, strict):
    source, target = trained(saved), make(how, 2)
    # Earlier versions left the wrappers out of an optimizer's names only.
    cairn.torch.save(client, 1, {"model": source[0].state_dict(),
                                 "optimizer": state_by_torch(*source)["optimizer"]}).wait()
    state = {"model": target[0], "optimizer": target[1]}
    with manager_of(client) as manager:
        assert manager.restore_or_initialize(state, strict=strict) == 1
        assert_same(target, source)
        assert not [record for record in caplog.records if record.name == "cairn"]
        assert manager.step(2, state).wait().step == 2
    again = make("plain", 3)
    assert manager_of(client).restore_or_initialize({"model": again[0], "optimizer": again[1]}) == 2
    assert_same(again, source)


def test_Manager_ATensorIsMissing_TheErrorSpeaksOfTheModulesOwnNames(client):
    source, target = trained("ddp"), make("ddp", 2)[0]
    manager_of(client).step(1, {"model": source[0]}).wait()
    target.module.more = torch.nn.Linear(1, 1, bias=False)
    with pytest.raises(cairn.Error) as caught:
        manager_of(client).restore_or_initialize({"model": target})
    assert caught.value.reason == "MISSING_NAMES" and caught.value.metadata["names"] == "model.more.weight"


@pytest.mark.parametrize("strict", [True, False])
def test_Manager_NamesOfWrappersOnSeveralRanks_AllRanksFindThem(tmp_path, strict):
    def work(rank, client):
        model = torch.nn.Linear(2, 2)
        wrapped = {f"module.{name}": torch.ones_like(value) for name, value in model.state_dict().items()}
        cairn.torch.save(client, 1, {"model": wrapped}).wait()
        with manager_of(client) as manager:
            assert manager.restore_or_initialize({"model": model}, strict=strict) == 1
            assert manager.step(2, {"model": model}).wait().step == 2
        return [value.unique().tolist() for value in model.state_dict().values()]

    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        assert on_ranks(cluster, work) == [[[1.0], [1.0]]] * 2
