"""Tests that parameters get their own optimizer states and settings where the groups are others than at the save."""

import pytest

torch = pytest.importorskip("torch")

import cairn
from cairn.torch import CheckpointManager
from testing.errors import raises_error

NAMES = ("0.weight", "1.weight", "2.weight")


@pytest.fixture
def client(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        yield client


def program(*groups, scheduler=False):
    """A model of three layers of one shape. A group is (learning rate, numbers of layers)."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=False) for _ in NAMES))
    optimizer = torch.optim.Adam([{"params": [model[layer].weight for layer in layers], "lr": lr}
                                  for lr, layers in groups])
    state = {"model": model, "optimizer": optimizer}
    if scheduler:
        state["scheduler"] = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    return state


def train(state, steps):
    for step in range(steps):
        torch.manual_seed(step)
        (state["model"](torch.randn(8, 4)) ** 2).sum().backward()
        for scale, parameter in enumerate(state["model"].parameters(), start=1):
            parameter.grad.mul_(10.0 ** scale)  # the states of all differ
        state["optimizer"].step()
        state["optimizer"].zero_grad()


def seen(state):
    """What each parameter has: its moments, and its learning rate."""
    optimizer = state["optimizer"]
    rates = {id(parameter): group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    return {name: (rates[id(parameter)], *(value.tolist() for value in optimizer.state[parameter].values()))
            for name, parameter in state["model"].named_parameters()}


def saved(client, *groups, **options):
    state = program(*groups, **options)
    train(state, 3)
    with CheckpointManager(client, every_steps=1, handle_sigterm=False) as manager:
        manager.save(1, state)
        manager.wait()
    return state


def restore(client, state):
    with CheckpointManager(client, every_steps=1, handle_sigterm=False) as manager:
        assert manager.restore_or_initialize(state) == 1


@pytest.mark.parametrize(("then", "now"), [
    ([(0.1, [0, 1, 2])], [(0.1, [2, 0, 1])]),
    ([(0.1, [0]), (0.01, [1, 2])], [(0.5, [2, 1]), (0.5, [0])]),
    ([(0.1, [0, 1, 2])], [(0.5, [1]), (0.5, [2, 0])]),
    ([(0.1, [0]), (0.1, [1]), (0.1, [2])], [(0.5, [1, 0, 2])]),
    ([(0.1, [0, 1, 2]), (0.3, [])], [(0.1, [1, 0, 2]), (0.5, [])]),
], ids=["order", "groups", "split", "joined", "empty"])
def test_Restore_OtherOrderOfParameters_EachGetsItsOwn(client, then, now):
    state = saved(client, *then)
    later = program(*now)
    restore(client, later)
    assert seen(later) == seen(state)
    train(state, 2)
    train(later, 2)
    for name, parameter in state["model"].named_parameters():
        assert torch.equal(parameter, later["model"].get_parameter(name)), name


@pytest.mark.parametrize(("now", "reason"), [
    ([(0.1, [0, 1, 2])], "UNSUPPORTED"),
    ([(0.1, [0, 1])], "UNEXPECTED_NAMES"),
], ids=["settings differ", "fewer"])
def test_Restore_SettingsCannotBeTold_IsRefused(client, now, reason):
    saved(client, (0.1, [0]), (0.01, [1, 2]))
    with pytest.raises(cairn.Error) as refused:
        restore(client, program(*now))
    assert refused.value.reason == reason


def test_Restore_GroupsInAnotherOrderUnderAScheduler_IsRefused(client):
    saved(client, (0.1, [0]), (0.01, [1, 2]), scheduler=True)
    restore(client, program((0.1, [0]), (0.01, [2, 1]), scheduler=True))
    with raises_error("UNSUPPORTED"):
        restore(client, program((0.01, [1, 2]), (0.1, [0]), scheduler=True))


def test_Restore_AMappingRenamesTheParameters_EachGetsItsOwn(client):
    state = saved(client, (0.1, [0, 1, 2]))
    later = program((0.5, [2, 1, 0]))
    later["model"] = torch.nn.ModuleDict({"net": later["model"]})
    with CheckpointManager(client, every_steps=1, handle_sigterm=False) as manager:
        assert manager.restore_or_initialize(
            later, mapping="model.* -> model.net.*\noptimizer.state.* -> optimizer.state.net.*\n") == 1
    later["model"] = later["model"]["net"]
    assert seen(later) == seen(state)
