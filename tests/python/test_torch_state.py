"""Tests cairn.torch against an agent in this process: nested dicts, dtypes, strides, leaves."""

import collections
import ctypes
import gc
import pathlib
import shutil
import tempfile
import weakref

import numpy
import pytest

torch = pytest.importorskip("torch")

import cairn
import cairn.torch
from cairn.torch._state_dict.flatten import flatten
from cairn.torch._state_dict.shard_cache import ShardCache
from cairn.torch._tensors import tensor_shards
from cairn.torch._tensors.host_copies import DeviceCopies
from testing.errors import raises_error
from testing.fake_agent import FakeAgent
from testing.scaled_tensor import ScaledTensor

pytestmark = pytest.mark.interop


@pytest.fixture
def client():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-"))
    agent = FakeAgent(directory)
    with cairn.connect(agent.address) as client:
        yield client
    agent.close()
    shutil.rmtree(directory)


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()


def random_tensor(shape, dtype):
    width = torch.empty((), dtype=dtype).element_size()
    raw = torch.randint(0, 256, (*shape, width), dtype=torch.uint8)
    if dtype is torch.bool:
        raw &= 1
    return raw.view(dtype).reshape(shape)


DTYPES = [torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64,
          torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
          torch.complex32, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
          torch.float8_e8m0fnu]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_keeps_its_bits(client, dtype):
    tensors = {"matrix": random_tensor((5, 6), dtype), "scalar": random_tensor((), dtype),
               "empty": random_tensor((0, 3), dtype), "transposed": random_tensor((4, 7), dtype).t(),
               "every_second": random_tensor((9,), dtype)[::2]}
    cairn.torch.save(client, 1, tensors).wait()
    target = {name: torch.zeros(tensor.shape[::-1], dtype=dtype).permute(tuple(range(tensor.dim()))[::-1])
              for name, tensor in tensors.items()}
    cairn.torch.load(client, target)
    for name, tensor in tensors.items():
        assert bits(target[name]) == bits(tensor), name


def test_nested_state_keeps_keys_order_and_values(client):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.8, 0.95))
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "none": None,
             "schedule": {"milestones": collections.Counter({80: 1}), "empty": {}}, "history": [1.5, 2.5],
             "mixed": [torch.arange(3), {"x": torch.ones(2)}], "data": b"\x00\x01", "mine": cairn.per_rank(7)}
    cairn.torch.save(client, 1, state).wait()

    other = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    other_optimizer = torch.optim.AdamW(other.parameters())
    other(torch.zeros(8, 4)).sum().backward()
    other_optimizer.step()
    target = {
        "model": other.state_dict(),
        "optimizer": other_optimizer.state_dict(),
        "epoch": 0,
        "none": 1,
        "schedule": {"milestones": {1: 1}, "empty": {}},
        "history": [],
        "mixed": [torch.zeros(3, dtype=torch.int64), {"x": torch.zeros(2)}],
        "data": b"",
        "mine": cairn.per_rank(0),
    }
    cairn.torch.load(client, target)
    assert target["epoch"] == 3 and target["none"] is None and target["history"] == [1.5, 2.5]
    assert target["schedule"] == {"milestones": collections.Counter({80: 1}), "empty": {}}
    assert type(target["schedule"]["milestones"]) is collections.Counter and target["data"] == b"\x00\x01"
    assert target["mine"] == cairn.per_rank(7) and torch.equal(target["mixed"][1]["x"], torch.ones(2))
    assert list(target) == list(state)
    other_optimizer.load_state_dict(target["optimizer"])
    assert other_optimizer.param_groups[0]["betas"] == (0.8, 0.95)
    for mine, theirs in zip(other.parameters(), model.parameters()):
        assert torch.equal(mine, theirs)  # state_dict() shares the model's memory: filled in place
        for key, value in optimizer.state[theirs].items():
            assert torch.equal(other_optimizer.state[mine][key], value), key


@pytest.mark.parametrize("make, reason", [
    (lambda: {"a.b": torch.zeros(1), "a": {"b": torch.zeros(1)}}, "NAME_COLLISION"),
    (lambda: {"a": {1: torch.zeros(1), "1": torch.zeros(1)}}, "NAME_COLLISION"),
    (lambda: {(1, 2): torch.zeros(1)}, "BAD_NAME"),
    (lambda: {10**5000: torch.zeros(1)}, "BAD_NAME"),
    (lambda: {"a": {10**5000: 1}}, "BAD_REQUEST"),
    (lambda: {"m": torch.zeros(2, device="meta")}, "BAD_REQUEST"),
    (lambda: {"s": torch.eye(3).to_sparse()}, "UNSUPPORTED"),
    (lambda: {"t": (torch.zeros(1),)}, "UNSUPPORTED"),
    (lambda: {"c": torch.zeros(2, dtype=torch.complex64).conj()}, "UNSUPPORTED"),
    (lambda: {"f": torch.nn.Linear(1, 1)}, "BAD_REQUEST"),
    (lambda: [torch.zeros(1)], "BAD_REQUEST"),
])
def test_what_cannot_be_stored_is_refused(client, make, reason):
    with pytest.raises(cairn.Error) as caught:
        cairn.torch.save(client, 1, make())
    assert caught.value.reason == reason


class Nameless(ScaledTensor):
    """A tensor that does not say what it is made of."""

    __tensor_flatten__ = None


class Remade(ScaledTensor):
    """A tensor that gives a copy of its scale whenever it is asked, so that nothing can be loaded there."""

    def __init__(self, codes, scale, table):
        self.codes, self.table, self.held = codes, table, scale

    @property
    def scale(self):
        return self.held.clone()


def jagged(layout):
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)


@pytest.mark.parametrize("wrap", [lambda tensor: {"a": {"b": tensor}}, lambda tensor: {"a": {"b": [tensor]}}],
                         ids=["dict", "list"])
@pytest.mark.parametrize("make, kind", [
    (lambda: Nameless.random(4, 4, 0), "test_torch_state.Nameless"),
    (lambda: Remade.random(4, 4, 0), "test_torch_state.Remade"),
    (lambda: torch.masked.masked_tensor(torch.ones(1), torch.ones(1, dtype=torch.bool)), "MaskedTensor"),
    (lambda: jagged(torch.strided), "torch.Tensor"),
    (lambda: jagged(torch.jagged), "NestedTensor"),
    (lambda: torch.nn.LazyLinear(2).weight, "torch.nn.parameter.UninitializedParameter"),
    (lambda: torch.nn.LazyBatchNorm1d().running_mean, "torch.nn.parameter.UninitializedBuffer"),
], ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_Save_TensorWithoutMemoryOfItsOwn_IsRefusedByPathAndClass(client, make, kind, wrap):
    with pytest.raises(cairn.Error) as caught:
        cairn.torch.save(client, 1, wrap(make()))
    assert caught.value.reason == "UNSUPPORTED" and "'a.b" in caught.value.message and kind in caught.value.message


def test_SaveAndLoad_TensorsMadeOfOthers_FillWhatTheProgramHolds(client):
    def make(seed):
        one = ScaledTensor.random(6, 4, seed)
        twice = ScaledTensor(ScaledTensor.random(2, 4, seed + 1), torch.rand(2), torch.rand(3))
        return {"weight": torch.nn.Parameter(one, requires_grad=False), "tied": one, "twice": twice,
                "states": {0: {"step": torch.tensor(float(seed)), "exp_avg": ScaledTensor.random(2, 2, seed + 2)}}}

    def parts(state):
        return [*state["weight"].copies(), *state["twice"].codes.copies(), state["twice"].scale.clone(),
                state["states"][0]["exp_avg"].codes.clone(), state["states"][0]["step"].clone()]

    saved = make(10)
    expected = parts(saved)
    cairn.torch.save(client, 1, saved).wait()
    target = make(20)
    held = [target["weight"], target["weight"].codes, target["twice"].codes.scale, target["states"][0]["exp_avg"]]
    report = cairn.torch.load(client, target)
    assert held[0] is target["weight"] and held[1] is target["weight"].codes and held[2] is target["twice"].codes.scale
    assert held[3] is target["states"][0]["exp_avg"]
    assert all(torch.equal(one, other) for one, other in zip(parts(target), expected, strict=True))
    assert not report.missing and not report.unexpected


class Marked(torch.Tensor):
    """A tensor with memory of its own, of a class that answers for what is called by Python."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        if getattr(function, "__name__", "") in ("detach", "view"):
            return torch.full((3,), 7.0)
        return super().__torch_function__(function, types, arguments, named or {})


def test_SaveAndLoad_SubclassWithMemoryOfItsOwn_IsThatMemory(client):
    cairn.torch.save(client, 1, {"w": torch.arange(3.0).as_subclass(Marked)}).wait()
    memory = torch.zeros(3)
    cairn.torch.load(client, {"w": memory.as_subclass(Marked)})
    assert memory.tolist() == [0, 1, 2]


def test_fresh_optimizer_has_nothing_to_fill_and_the_error_says_what_to_do(tmp_path):
    def make():
        model = torch.nn.Linear(2, 2)
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = make()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    with cairn.local.Cluster(ranks=1, root=tmp_path) as cluster, cluster.connect(0) as client:
        cairn.torch.save(client, 1, {"nested": {"optimizer": optimizer.state_dict()}}).wait()
        with pytest.raises(cairn.Error) as caught:
            cairn.torch.load(client, {"nested": {"optimizer": make()[1].state_dict()}})
    assert caught.value.reason == "UNEXPECTED_NAMES"
    assert "'nested.optimizer' is the state of an optimizer that has done no step" in str(caught.value)


class Accelerator:
    """A device that does its work only when somebody waits for it, in the order in which it was given."""

    def __init__(self, streams=True):
        self.begun = []
        self.log = []
        if streams:
            self.synchronize = self._synchronize

    def _synchronize(self, device):
        self.log.append("synchronize")
        for work in self.begun:
            work()
        self.begun.clear()


class OnDevice:
    """A tensor of that device, as far as copies go."""

    device = torch.device("xpu", 0)

    def __init__(self, accelerator, value):
        self.accelerator, self.value = accelerator, value

    def copy_(self, host, non_blocking=False):
        self.accelerator.log.append(f"to device, non_blocking={non_blocking}")
        copy = lambda: setattr(self, "value", host.value)
        self.accelerator.begun.append(copy) if non_blocking else copy()


class OnHost:
    def __init__(self):
        self.value = None

    def copy_(self, tensor, non_blocking=False):
        tensor.accelerator.log.append(f"to host, non_blocking={non_blocking}")
        value = tensor.value  # a side stream's result is not awaited by the stream of the copy
        copy = lambda: setattr(self, "value", value)
        tensor.accelerator.begun.append(copy) if non_blocking else copy()


def test_copies_of_any_accelerator_wait_for_all_its_streams(monkeypatch):
    accelerator = Accelerator()
    monkeypatch.setattr(torch, "xpu", accelerator)
    tensor, host = OnDevice(accelerator, "old"), OnHost()
    copies = DeviceCopies()
    copies.add(tensor, host)
    accelerator.begun.append(lambda: setattr(tensor, "value", "computed on a side stream"))
    copies.from_devices()
    assert host.value == "computed on a side stream"
    assert accelerator.log == ["synchronize", "to host, non_blocking=True", "synchronize"]
    host.value = "loaded"
    accelerator.log.clear()
    copies.to_devices()
    assert tensor.value == "loaded"
    assert accelerator.log == ["synchronize", "to device, non_blocking=True", "synchronize"]


def test_device_without_a_call_to_wait_is_copied_from_without_haste(monkeypatch):
    accelerator = Accelerator(streams=False)
    monkeypatch.setattr(torch, "xpu", accelerator)
    tensor, host = OnDevice(accelerator, "value"), OnHost()
    copies = DeviceCopies()
    copies.add(tensor, host)
    copies.from_devices()
    assert host.value == "value" and accelerator.log == ["to host, non_blocking=False"]


# Tensors on GPUs. The stand-in's memory belongs to tensors that say they are on the host, so only what tells the two
# apart is replaced.


@pytest.fixture
def gpu(monkeypatch):
    from testing.stand_in_gpu import LIBRARY, StandInGpu

    monkeypatch.setenv("CAIRN_LIBCUDA", str(LIBRARY))
    device = torch._C.TensorBase.device.__get__
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(torch.Tensor, "device", property(
        lambda tensor: cuda if hasattr(tensor, "on_stand_in") else device(tensor)), raising=False)
    for name, expected in (("is_cpu", "cpu"), ("is_cuda", "cuda")):
        monkeypatch.setattr(torch.Tensor, name, property(
            lambda tensor, expected=expected: tensor.device.type == expected), raising=False)
    monkeypatch.setattr(DeviceCopies, "stream_of", lambda copies, device: 0)
    monkeypatch.setattr(torch.Tensor, "detach", lambda tensor: tensor)  # would lose the attribute
    gpu = StandInGpu()
    yield gpu
    gpu.reset()


def on_gpu(gpu, values):
    """Returns a tensor on the stand-in's device, and one of the same memory that the host may touch."""
    raw = values.contiguous().reshape(-1).view(torch.uint8)
    array = gpu.array(raw.numpy())
    there = torch.frombuffer((ctypes.c_char * array.values.nbytes).from_address(array.address), dtype=values.dtype)
    there = there.reshape(values.shape)
    there.on_stand_in = array
    return there, torch.from_numpy(array.values).view(values.dtype).reshape(values.shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_on_gpus_keep_their_bits(client, gpu, dtype):
    values = random_tensor((5, 6), dtype)
    tensor, _ = on_gpu(gpu, values)
    cairn.torch.save(client, 1, {"w": tensor, "host": values}).wait()
    target, seen = on_gpu(gpu, torch.zeros((5, 6), dtype=dtype))
    report = cairn.torch.load(client, {"w": target, "host": torch.zeros((5, 6), dtype=dtype)})
    assert bits(seen) == bits(values)
    assert report.device.bytes == values.nbytes


def test_tensors_on_gpus_that_have_not_moved_are_copied_as_they_are_then(client, gpu, monkeypatch):
    def tensors(sizes):
        pairs = [on_gpu(gpu, torch.arange(size, dtype=torch.float32)) for size in sizes]
        return [there for there, _ in pairs], [seen for _, seen in pairs]

    described, of = [], tensor_shards.array_of
    monkeypatch.setattr(tensor_shards, "array_of",
                        lambda *given: described.append(given) or of(*given))
    there, seen = tensors([5, 600, 70])
    names = ["a", "b", "c"]

    def save_and_check(step):
        # Each time other dicts and other tensors, over the same memory.
        cairn.torch.save(client, step, {"m": dict(zip(names, there)), "step": step}).wait()
        target = {"m": {name: torch.zeros_like(host) for name, host in zip(names, seen)}, "step": 0}
        cairn.torch.load(client, target)
        for name, host in zip(names, seen):
            assert bits(target["m"][name]) == bits(host)
        return len(described)

    save_and_check(1)
    at_first = len(described)
    for step in (2, 3):
        for host in seen:
            host += step
        loads = save_and_check(step) - at_first
        at_first += loads
        assert loads == 3, "the load's targets alone are described"
    # One of them is other memory now, and one is gone.
    (there[1],), (seen[1],) = tensors([600])
    assert save_and_check(4) - at_first == 6
    kept = [weakref.ref(tensor) for tensor in there]
    there.clear(), described.clear()
    gc.collect()
    assert not any(tensor() is not None for tensor in kept), "nothing keeps the tensors"


def test_memory_of_tensors_that_get_other_memory_is_kept_while_the_state_is(client, gpu):
    there, _ = on_gpu(gpu, torch.arange(5, dtype=torch.float32))
    cache = ShardCache()
    flatten({"m": {"w": there}}, cache=cache)
    pointer = there.data_ptr()
    state = flatten({"m": {"w": there}}, cache=cache).state
    there.data = torch.zeros(7)
    assert [each.data_ptr() for each in state.kept] == [pointer]


def test_arrays_of_other_libraries_may_stand_in_a_state_dict(client, gpu):
    state = {"list": [gpu.array(numpy.arange(5)), 7], "array": gpu.array(numpy.arange(6))}
    cairn.torch.save(client, 1, state).wait()
    target = {"list": [gpu.array(numpy.zeros(5, "int64")), 0], "array": gpu.array(numpy.zeros(6, "int64"))}
    cairn.torch.load(client, target)
    assert target["list"][1] == 7
    assert (target["array"].values == numpy.arange(6)).all() and (target["list"][0].values == numpy.arange(5)).all()


@pytest.mark.parametrize("view", [torch.conj, lambda tensor: tensor.conj().imag], ids=["conjugate", "negative"])
def test_lazy_view_beside_its_base_is_no_tied_weight(view):
    """It has the memory of its base, and other values: as an alias it would come back as its base."""
    base = torch.tensor([1 + 2j, 3 - 4j])
    same = base if view is torch.conj else base.imag
    with raises_error("UNSUPPORTED"):
        flatten({"base": same, "view": view(base)})
    assert flatten({"base": same, "tied": same}).state["tied"] == cairn.alias("base")


@pytest.mark.parametrize("state", [None, 5, "x", [torch.zeros(1)]])
def test_state_that_is_no_dict_is_refused_by_loads_too(state):
    with raises_error("BAD_REQUEST"):
        cairn.torch.load(None, state)
