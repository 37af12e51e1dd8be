"""Tests by which names an optimizer's state is stored, against those of torch's get_optimizer_state_dict."""

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from cairn.torch._state_dict import parameter_names
from cairn.torch._state_dict.flatten import Form, flatten, forms_of
from cairn.torch._state_dict.parameter_names import ParameterNames

pytestmark = pytest.mark.interop


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2, 2, bias=False)
        self.module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))  # a name that wrappers have too
        self.last = torch.nn.Linear(2, 2)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.module(self.first(x)))


def wrapped(how):
    torch.manual_seed(0)
    model = Tied()
    if how == "checkpoint":
        model.module[0] = checkpoint_wrapper(model.module[0])
    if how == "compiled":
        return torch.compile(model, backend="eager")
    if how == "part compiled":
        model.module[1] = torch.compile(model.module[1], backend="eager")
    return model


@pytest.mark.parametrize("how", ["plain", "checkpoint", "compiled", "part compiled"])
def test_ParameterNames_OfWrappedModules_AreThoseOfGetStateDict(how):
    model = wrapped(how)
    some = [p for name, p in model.named_parameters() if "bias" in name]
    optimizer = torch.optim.AdamW([{"params": some}, {"params": [p for p in model.parameters() if p.dim() == 2]}])
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    names = ParameterNames({"other": torch.nn.Linear(1, 1), "deep": {"model": model}}).of(optimizer)
    ours = parameter_names.with_names(optimizer.state_dict(), names)
    theirs = get_optimizer_state_dict(model, optimizer)
    assert ours["state"].keys() == theirs["state"].keys() and ours["param_groups"] == theirs["param_groups"]
    for name, kept in theirs["state"].items():
        assert all(torch.equal(ours["state"][name][key], value) for key, value in kept.items())
    back = parameter_names.with_numbers(ours, names)
    assert back["param_groups"] == optimizer.state_dict()["param_groups"]
    assert back["state"].keys() == optimizer.state_dict()["state"].keys()


def test_ParameterNames_OfParallelModules_LeaveTheWrapperOut():
    class DistributedDataParallel(torch.nn.Module):  # the true one needs a process group
        def __init__(self, module):
            super().__init__()
            self.module = module

    model = DistributedDataParallel(Tied())
    optimizer = torch.optim.SGD(model.parameters())
    assert ParameterNames({"m": model}).of(optimizer) == [
        "first.weight", "module.0.weight", "module.0.bias", "module.1.weight", "module.1.bias", "last.bias"]


def test_ParameterNames_OfSeveralModulesOrNone_AreUniqueOrThereAreNone():
    a, b = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    both = torch.optim.SGD([*b.parameters(), *a.parameters()])
    assert ParameterNames({"x": {"a": a}, "b": b}).of(both) == ["b.weight", "b.bias", "x.a.weight", "x.a.bias"]
    assert ParameterNames({"a": a}).of(both) is None and ParameterNames({}).of(both) is None


def test_Flatten_AnOptimizerByNumbers_HasTheNamesOfItsStateDict():
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    named = {"o": get_optimizer_state_dict(model, optimizer), "m": model.state_dict()}
    numbered = {"o": optimizer.state_dict(), "m": model.state_dict()}
    assert forms_of(named) == [Form(), Form(numbered=True)] and forms_of(numbered) == [Form()]
    ours, theirs = flatten(named, to_load=True, form=Form(numbered=True)), flatten(numbered, to_load=True)
    assert {name: repr(value) for name, value in ours.state.items()} == {
        name: repr(value) for name, value in theirs.state.items()}
    # The groups that are loaded then have numbers, which become names again.
    ours.put({"o.param_groups": optimizer.state_dict()["param_groups"]})
    assert named["o"]["param_groups"] == get_optimizer_state_dict(model, optimizer)["param_groups"]
