"""Tests that CheckpointManager gives optimizers of all kinds the states that were saved, and nothing else."""

import copy

import pytest

torch = pytest.importorskip("torch")

import cairn
import cairn.torch
from cairn.torch import CheckpointManager
from testing.errors import raises_error
from testing.scaled_tensor import ScaledTensor


@pytest.fixture
def client(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        yield client


class Moody(torch.optim.Optimizer):
    """An optimizer that must be told that training goes on, and counts its steps in its groups."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "count": 0, "training": False})

    def train(self):
        self.param_groups[0]["training"] = True

    def step(self, closure=None):
        group = self.param_groups[0]
        if not group["training"]:
            raise RuntimeError("call train() first")
        group["count"] += 1
        for parameter in group["params"]:
            if parameter.grad is not None:
                state = self.state[parameter]
                state.setdefault("z", parameter.detach().clone()).sub_(parameter.grad, alpha=group["lr"])
                state["seen"] = state.get("seen", 0) + 1
                parameter.data.copy_(state["z"] / group["count"])


class Quantized(torch.optim.Optimizer):
    """An optimizer with states of a class that only it can make."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.5, "count": 0})
        self.steps = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.steps += 1
        self.param_groups[0]["count"] += 1
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                state = self.state[parameter]
                if not state:
                    state["moment"] = ScaledTensor(torch.zeros_like(parameter, dtype=torch.uint8), torch.ones(1),
                                                   torch.arange(16.0))
                state["moment"].codes.add_(1)
                parameter.sub_(state["moment"].numbers() * parameter.grad, alpha=self.param_groups[0]["lr"])


def embedding():
    return torch.nn.Embedding(4, 3, sparse=True), lambda model: model(torch.tensor([1, 2])).square().sum()


def linear():
    return torch.nn.Linear(4, 2), lambda model: model(torch.linspace(-1, 1, 12).reshape(3, 4)).square().sum()


KINDS = {
    "SparseAdam": (embedding, lambda parameters: torch.optim.SparseAdam(list(parameters))),
    "LBFGS": (linear, lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, history_size=3, max_iter=5)),
    "AdamW": (linear, torch.optim.AdamW),
    "amsgrad, lr as a tensor": (linear, lambda parameters: torch.optim.Adam(
        parameters, lr=torch.tensor(0.1), amsgrad=True, foreach=False)),
    "Adafactor": (linear, torch.optim.Adafactor),
    "ASGD": (linear, torch.optim.ASGD),
    "Moody": (linear, Moody),
    "Quantized": (linear, Quantized),
}


def made(kind, seed):
    torch.manual_seed(seed)
    make_model, make_optimizer = KINDS[kind]
    model, loss_of = make_model()
    return model, make_optimizer(model.parameters()), loss_of


def train(model, optimizer, loss_of, steps):
    if hasattr(optimizer, "train"):
        optimizer.train()

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    for _ in range(steps):
        closure()
        optimizer.step(closure)


def contents(value):
    """Returns a state as values that can be compared."""
    if isinstance(value, dict):
        return {key: contents(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [contents(item) for item in value]
    if isinstance(value, ScaledTensor):
        return contents(value.copies())
    return (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("kind", KINDS)
def test_RestoreOrInitialize_EachKindOfOptimizer_BeginsUntouchedAndGoesOnAsIfNeverStopped(client, kind):
    model, optimizer, loss_of = made(kind, 1)
    before = contents([optimizer.state_dict(), model.state_dict()])
    with CheckpointManager(client, every_steps=1) as manager:
        assert manager.restore_or_initialize({"model": model, "optimizer": optimizer}) is None
        assert contents([optimizer.state_dict(), model.state_dict()]) == before
        train(model, optimizer, loss_of, 4)
        manager.step(4, {"model": model, "optimizer": optimizer})
    other, fresh, _ = made(kind, 2)
    with CheckpointManager(client) as manager:
        assert manager.restore_or_initialize({"model": other, "optimizer": fresh}) == 4
    for _ in range(2):
        assert contents(fresh.state_dict()) == contents(optimizer.state_dict())
        assert contents(other.state_dict()) == contents(model.state_dict())
        train(model, optimizer, loss_of, 3)
        train(other, fresh, loss_of, 3)


def two_layers(seed, make_optimizer=torch.optim.AdamW):
    torch.manual_seed(seed)
    model = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)])
    return model, make_optimizer(model.parameters())


def train_layer(model, optimizer, layer):
    optimizer.zero_grad()
    model[layer](torch.ones(1, 3)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("make_optimizer", [torch.optim.AdamW, Quantized])
@pytest.mark.parametrize("strict", [True, False])
def test_RestoreOrInitialize_SomeParametersHadNoGradient_HaveNoStateAndGetOneLater(client, strict, make_optimizer):
    model, optimizer = two_layers(1, make_optimizer)
    train_layer(model, optimizer, 0)
    with CheckpointManager(client, every_steps=1) as manager:
        manager.step(1, {"model": model, "optimizer": optimizer})
    other, fresh = two_layers(2, make_optimizer)
    with CheckpointManager(client) as manager:
        assert manager.restore_or_initialize({"model": other, "optimizer": fresh}, strict=strict) == 1
    for layer in (None, 1, 0):
        if layer is not None:
            train_layer(model, optimizer, layer)
            train_layer(other, fresh, layer)
        assert contents(fresh.state_dict()) == contents(optimizer.state_dict())
        assert contents(other.state_dict()) == contents(model.state_dict())
    assert len(fresh.state) == 4


def test_RestoreOrInitialize_OptimizerHasItsStates_FillsThemInPlace(client):
    model, optimizer = two_layers(1)
    train_layer(model, optimizer, 0)
    with CheckpointManager(client, every_steps=1) as manager:
        manager.step(1, {"model": model, "optimizer": optimizer}).wait()
        expected = contents(optimizer.state_dict())
        train_layer(model, optimizer, 0)
        train_layer(model, optimizer, 1)
        held = optimizer.state[model[0].weight]["exp_avg"]
        assert manager.restore_or_initialize({"model": model, "optimizer": optimizer}) == 1
    assert contents(optimizer.state_dict()) == expected
    assert optimizer.state[model[0].weight]["exp_avg"] is held


def saved_without_description(client, model, optimizer):
    """Saves as programs do that use no manager."""
    cairn.torch.save(client, 1, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}).wait()


def test_RestoreOrInitialize_NothingDescribesTheStates_AStepMakesThemAndLeavesAllElse(client):
    model, optimizer = two_layers(1, Quantized)
    for layer in (0, 1):
        train_layer(model, optimizer, layer)
    saved_without_description(client, model, optimizer)
    other, fresh = two_layers(2, Quantized)
    other[0](torch.ones(1, 3)).sum().backward()
    gradients = [None if each.grad is None else each.grad.clone() for each in other.parameters()]
    with CheckpointManager(client) as manager:
        with raises_error("MISSING_NAMES"):
            manager.restore_or_initialize({"model": other, "optimizer": fresh, "more": torch.zeros(1)})
        assert not fresh.state and fresh.param_groups[0]["count"] == 0 and fresh.param_groups[0]["lr"] == 0.5
        for parameter, gradient in zip(other.parameters(), gradients, strict=True):
            assert (parameter.grad is None) == (gradient is None)
            assert gradient is None or torch.equal(parameter.grad, gradient)
        assert manager.restore_or_initialize({"model": other, "optimizer": fresh}) == 1
    assert contents(fresh.state_dict()) == contents(optimizer.state_dict())


@pytest.mark.parametrize("make_optimizer", [torch.optim.AdamW, Quantized])
def test_RestoreOrInitialize_NotStrictAndNothingDescribesTheStates_InventsNone(client, make_optimizer):
    model, optimizer = two_layers(1, make_optimizer)
    train_layer(model, optimizer, 0)
    saved_without_description(client, model, optimizer)
    other, fresh = two_layers(2, make_optimizer)
    with CheckpointManager(client) as manager:
        assert manager.restore_or_initialize({"model": other, "optimizer": fresh}, strict=False) == 1
    assert contents(fresh.state_dict()) == contents(optimizer.state_dict())


def test_RestoreOrInitialize_AStepCannotMakeTheStates_TheErrorNamesTheOptimizer(client):
    cairn.torch.save(client, 1, {"optimizer": {"state": {0: {"z": torch.zeros(4)}}, "param_groups": []}}).wait()
    model, optimizer, _ = made("Moody", 1)
    before = copy.deepcopy(optimizer.param_groups[0]["count"])
    with CheckpointManager(client) as manager, pytest.raises(cairn.Error) as caught:
        manager.restore_or_initialize({"optimizer": optimizer})
    assert caught.value.reason == "UNSUPPORTED" and "Moody" in caught.value.message
    assert "call train() first" in caught.value.message and optimizer.param_groups[0]["count"] == before


def test_RestoreOrInitialize_TheLatestIsDamaged_TakesTheOlderStatesOfTheOptimizer(tmp_path, caplog):
    with cairn.local.Cluster(ranks=1, root=tmp_path, agent_flags=["--slab-loads=never"]) as cluster:
        client = cluster.connect(0)
        model, optimizer = two_layers(1)
        with CheckpointManager(client, every_steps=1) as manager:
            train_layer(model, optimizer, 0)
            manager.step(1, {"model": model, "optimizer": optimizer})
            expected = contents(optimizer.state_dict())
            train_layer(model, optimizer, 1)
            directory = tmp_path / manager.step(2, {"model": model, "optimizer": optimizer}).wait().data_directory
        for file in directory.glob("*.safetensors"):
            header = int.from_bytes(file.read_bytes()[:8], "little") + 8
            with open(file, "r+b") as handle:
                handle.seek(header)
                handle.write(b"\xff" * (file.stat().st_size - header))
        other, fresh = two_layers(2)
        with CheckpointManager(client) as manager:
            assert manager.restore_or_initialize({"model": other, "optimizer": fresh}) == 1
        assert contents(fresh.state_dict()) == expected and "is loaded in its place" in caplog.text
