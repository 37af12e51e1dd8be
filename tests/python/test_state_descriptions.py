"""Tests what is said of the states of optimizers, and what is made of it."""

import pytest

torch = pytest.importorskip("torch")

import cairn
from cairn._state.entries import PerRank
from cairn.torch._state_dict import description
from cairn.torch._training import optimizer_state

pytestmark = pytest.mark.interop


def made():
    parameters = [torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(3)]
    optimizer = torch.optim.Adam(parameters)
    for parameter in parameters[:2]:
        parameter.grad = torch.ones(2, 3)
    optimizer.step()
    return optimizer


def described(optimizer):
    return optimizer_state.describe_states(optimizer, optimizer.state_dict()["state"],
                                           optimizer_state.parameters_of(optimizer))


def grow(optimizer):
    optimizer.param_groups[0]["params"][2].grad = torch.ones(2, 3)
    optimizer.step()


def each(change):
    def of(optimizer):
        for state in optimizer.state.values():
            change(state)
    return of


@pytest.mark.parametrize("change", [
    grow,
    each(lambda state: state.update(more=torch.zeros(1))),
    each(lambda state: state.update(more=3)),
    each(lambda state: state.update(step=7)),
    each(lambda state: state.update(exp_avg=torch.zeros(5))),
    each(lambda state: state.update(exp_avg=state["exp_avg"].half())),
    each(lambda state: state.update(exp_avg=[state["exp_avg"]])),
    each(lambda state: setattr(state["exp_avg"], "data", torch.zeros(4))),
], ids=["a parameter", "a tensor", "a value", "value for tensor", "shape", "dtype", "list", "memory"])
def test_DescribeStates_WhatChanged_IsDescribedAnew(change):
    optimizer = made()
    first = described(optimizer)
    assert described(optimizer) is first
    optimizer.step()
    assert described(optimizer) is first
    change(optimizer)
    second = described(optimizer)
    del optimizer_state._described[optimizer]
    assert second == described(optimizer) != first


def test_Build_NestedState_HasTheTensorsOfTheSavedOne():
    state = {"a": {"b": [torch.zeros(2, dtype=torch.int8), None, torch.zeros(())]}, 3: torch.ones(4).bfloat16(),
             "own": PerRank(5), "value": {"x": 1}}
    built = description.build(description.from_text(description.as_text(description.describe(state)), "s"))
    assert built["value"] is None and built["own"] == PerRank(None) and built["a"]["b"][1] is None
    pairs = [(built["a"]["b"][0], state["a"]["b"][0]), (built["a"]["b"][2], state["a"]["b"][2]), (built[3], state[3])]
    assert all(one.dtype == other.dtype and one.shape == other.shape for one, other in pairs)


@pytest.mark.parametrize("text", ["", "{}", "[]", None, '["new"]', '["tensor", "float7", [2], true]'])
def test_Build_DescriptionOfALaterVersion_IsRefused(text):
    with pytest.raises(cairn.Error) as caught:
        description.build(description.from_text(text, "optimizer"), path="optimizer")
    assert caught.value.reason == "FORMAT_TOO_NEW" and "'optimizer'" in caught.value.message
