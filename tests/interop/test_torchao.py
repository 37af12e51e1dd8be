"""Quantised weights and 8-bit optimizers of torchao, and small floats, come back bit for bit."""

import pytest

torch = pytest.importorskip("torch")

import cairn
import cairn.torch
from testing.dcp import bits
from testing.library import Library

quantization = Library("torchao.quantization")
optim = Library("torchao.optim")

pytestmark = pytest.mark.interop

CONFIGS = ["Int8WeightOnlyConfig", "Float8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig",
           "IntxWeightOnlyConfig", "Int8DynamicActivationIntxWeightConfig"]


def model(config, seed):
    torch.manual_seed(seed)
    made = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32, bias=False))
    made = made.to(torch.bfloat16)
    quantization.quantize_(made, getattr(quantization, config)())
    return made


def parts(value):
    """Returns the tensors of which a tensor is made, by name."""
    if not hasattr(type(value), "__tensor_flatten__"):
        return {"": value.detach()}
    names, _ = value.__tensor_flatten__()
    return {f"{name}{more}": part for name in names for more, part in parts(getattr(value, name)).items()}


def assert_equal(one, other):
    assert list(one) == list(other)
    for name in one:
        assert type(one[name]) is type(other[name])
        mine, theirs = parts(one[name]), parts(other[name])
        assert list(mine) == list(theirs)
        assert all(bits(part) == bits(theirs[key]) for key, part in mine.items()), name


@pytest.fixture
def client(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        yield client


@pytest.mark.parametrize("config", CONFIGS)
def test_Manager_QuantisedModel_ComesBackBitForBit(client, config):
    saved, loaded = model(config, 1), model(config, 2)
    assert any(len(parts(value)) > 1 for value in saved.state_dict().values()), "nothing was quantised"
    inputs = torch.randn(3, 128, dtype=torch.bfloat16)
    before = saved(inputs)
    assert not torch.equal(loaded(inputs), before)
    with cairn.torch.CheckpointManager(client, every_steps=1) as manager:
        manager.step(1, {"model": saved})
        manager.wait()
        assert manager.restore_or_initialize({"model": loaded}) == 1
    assert_equal(loaded.state_dict(), saved.state_dict())
    assert torch.equal(loaded(inputs), before)


@pytest.mark.parametrize("kind", ["AdamW8bit", "AdamWFp8"])
def test_Manager_OptimizerOfFewBits_ComesBackBitForBit(client, kind):
    def made(seed):
        torch.manual_seed(seed)
        layer = torch.nn.Linear(256, 128, bias=False)
        return layer, getattr(optim, kind)(layer.parameters(), lr=1e-2)

    def train(layer, optimizer, seed):
        inputs = torch.randn(4, 256, generator=torch.Generator().manual_seed(seed))
        layer(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    layer, optimizer = made(1)
    train(layer, optimizer, 1)
    with cairn.torch.CheckpointManager(client, every_steps=1) as manager:
        manager.step(1, {"model": layer, "optimizer": optimizer})
        manager.wait()
        again, other = made(2)
        train(again, other, 3)  # its states have to be there before the load
        assert manager.restore_or_initialize({"model": again, "optimizer": other}) == 1
    for state, same in zip(optimizer.state.values(), other.state.values(), strict=True):
        tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
        assert tensors and any(len(parts(value)) > 1 for value in tensors.values())
        assert_equal({name: same[name] for name in tensors}, tensors)
    train(layer, optimizer, 2)
    train(again, other, 2)
    assert torch.equal(layer.weight, again.weight), "the training goes on otherwise"


def test_Load_Float8Tensors_ComeBackBitForBit(client):
    dtypes = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
              torch.float8_e8m0fnu]
    every = torch.arange(256, dtype=torch.uint8)  # each bit pattern, which include NaNs
    state = {str(dtype): every.view(dtype).reshape(16, 16) for dtype in dtypes}
    cairn.torch.save(client, 1, state).wait()
    target = {name: torch.zeros(16, 16, dtype=torch.uint8).view(value.dtype) for name, value in state.items()}
    cairn.torch.load(client, target)
    assert_equal(target, state)
