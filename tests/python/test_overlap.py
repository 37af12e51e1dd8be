"""Tests saves that copy behind the trainer's back, with the stand-in for CUDA's driver and an agent in this process."""

import gc
import os
import threading
import time

import numpy
import pytest

import cairn
from cairn._gpu import device_array
from cairn._gpu.overlap import GuardedMemory, add_spans
from testing.errors import raises_error
from testing.ranks import until
from testing.stand_in_gpu import LIBRARY, StandInGpu


@pytest.fixture
def limits():
    return cairn.Limits(ring_slot_bytes=1 << 16, overlap_chunk_bytes=1 << 14)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setenv("CAIRN_LIBCUDA", str(LIBRARY))
    gpu = StandInGpu()
    yield gpu
    gpu.reset()
    gpu.close()


@pytest.fixture
def one_slab(agent):
    agent.one_slab = True
    return agent


def values_of(size, seed=1):
    return numpy.random.default_rng(seed).integers(0, 100, size).astype("float32")


class Optimizer:
    """What torch's optimizers show. A step writes to its parameters in the default stream."""

    def __init__(self, gpu, parameters, state=None, **group):
        self.param_groups = [{"params": parameters, **group}]
        self.state = state or {}
        self.hooks = []
        self._gpu = gpu
        self.sources = []

    def register_step_pre_hook(self, hook):
        self.hooks.append(hook)

    def step(self):
        for hook in self.hooks:
            hook(self, (), {})
        for parameter in self.param_groups[0]["params"]:
            self.sources.append(parameter.enqueue(numpy.full(parameter.values.shape, 7, "float32")))


@pytest.fixture
def state(gpu):
    return {"weight": gpu.array(values_of(30_000)), "moment": gpu.array(values_of(30_000, 2)),
            "statistics": gpu.array(values_of(500, 3)), "on_host": values_of(40, 4), "object": {"epoch": 3}}


@pytest.fixture
def optimizer(gpu, state):
    return Optimizer(gpu, [state["weight"]], {0: {"step": 4, "moment": state["moment"]}})


def contents(state):
    return {name: (value.values if hasattr(value, "values") and not isinstance(value, dict) else value).copy()
            for name, value in state.items()}


def check_committed(client, step, expected):
    """Compares a committed step with what the state was when it was saved."""
    target = {name: numpy.zeros_like(value) for name, value in expected.items() if isinstance(value, numpy.ndarray)}
    client.load({**target, "object": None}, step=step)
    for name, value in target.items():
        assert (value == expected[name]).all(), name


def test_a_save_returns_before_it_copies_and_the_step_waits(gpu, one_slab, client, state, optimizer):
    client.prepare(state)
    before = contents(state)
    gpu.set("engine_stopped", 2)
    saving = client.save(1, state, overlap=[optimizer])
    assert saving.staging.overlapped and saving.staging.synchronous_because == ""
    assert saving.staging.path == "pinned-slab" and saving.device is None and not saving.done()
    assert saving.staging.pinned_bytes >= gpu.count("registered_bytes")
    assert gpu.count("bytes_to_host") == 0
    waits = gpu.count("cuStreamWaitEvent")
    optimizer.step()
    assert gpu.count("cuStreamWaitEvent") == waits + 1 and gpu.count("bytes_to_host") == 0
    assert (state["weight"].values == before["weight"]).all(), "the GPU waits, and this thread does not"
    gpu.set("engine_stopped", 0)
    assert saving.wait().step == 1
    assert saving.device.checked == 3 and saving.device.unchecked == ""
    check_committed(client, 1, before)
    gpu.synchronize()
    assert (state["weight"].values == 7).all()
    optimizer.sources.clear()
    client.close()
    assert not any(gpu.held().values()) and gpu.count("modules") == 0


def test_what_no_optimizer_has_is_copied_in_the_trainers_stream(gpu, one_slab, client, state, optimizer):
    client.prepare(state)
    before = contents(state)
    gpu.set("engine_stopped", 2)
    saving = client.save(1, state, overlap=[optimizer])
    kept = state["statistics"].enqueue(numpy.zeros(500, "float32"))
    gpu.set("engine_stopped", 0)
    saving.wait()
    check_committed(client, 1, before)
    gpu.synchronize()
    assert (state["statistics"].values == 0).all() and len(kept) == 2000


def graph_replay(gpu, state, saving):
    """A graph that was captured before the save, with the optimizer's step in it."""
    return state["weight"].enqueue(numpy.full(30_000, 5, "float32"))


def moving_average(gpu, state, saving):
    """In a stream of its own."""
    return state["moment"].enqueue(numpy.full(30_000, 5, "float32"), stream=gpu.stream())


def write_to_data(gpu, state, saving):
    state["weight"].values[17] += 1


@pytest.mark.parametrize("change, name", [(graph_replay, "weight"), (moving_average, "moment"),
                                          (write_to_data, "weight")])
def test_an_update_that_no_guard_saw_is_found(gpu, one_slab, client, state, optimizer, change, name):
    client.prepare(state)
    gpu.set("engine_stopped", 2)
    statistics = state.pop("statistics")  # whose copy would keep the default stream waiting
    saving = client.save(1, state, overlap=[optimizer])
    gpu.synchronize()
    kept = change(gpu, state, saving)
    gpu.synchronize()
    gpu.set("engine_stopped", 0)
    with raises_error("TORN_SNAPSHOT", tensor=name) as error:
        saving.wait()
    assert "before_update" in str(error.value)
    assert len(one_slab.cancelled) == 1 and 1 not in one_slab.committed
    state["statistics"] = statistics
    client.save(2, state, overlap=[optimizer]).wait()
    check_committed(client, 2, contents(state))
    del kept


@pytest.mark.parametrize("change", [graph_replay, moving_average])
def test_before_update_keeps_such_an_update_waiting(gpu, one_slab, client, state, optimizer, change):
    client.prepare(state)
    before = contents(state)
    gpu.set("engine_stopped", 2)
    saving = client.save(1, state, overlap=[optimizer])
    saving.before_update({0: gpu.stream()} if change is moving_average else None)
    kept = change(gpu, state, saving)
    gpu.set("engine_stopped", 0)
    saving.wait()
    check_committed(client, 1, before)
    saving.before_update()
    del kept


def test_statistics_that_are_called_an_optimizers_are_found(gpu, one_slab, client, state):
    """As BatchNorm's would be, which change in forward."""
    client.prepare(state)
    gpu.set("engine_stopped", 2)
    saving = client.save(1, state, overlap=[[value for name, value in state.items() if name in ("weight", "moment",
                                                                                              "statistics")]])
    gpu.synchronize()
    kept = state["statistics"].enqueue(numpy.zeros(500, "float32"))
    gpu.synchronize()
    gpu.set("engine_stopped", 0)
    with raises_error("TORN_SNAPSHOT", tensor="statistics"):
        saving.wait()
    del kept


def test_the_first_three_saves_are_checked_and_others_on_request(gpu, one_slab, client, state, optimizer):
    checked = []
    for step, check in enumerate([None, None, None, None, True, None]):
        saving = client.save(step, state, overlap=[optimizer], check_overlap=check)
        saving.wait()
        checked.append(saving.device.checked)
    assert checked == [3, 3, 3, 0, 3, 0]
    assert gpu.count("cuLaunchKernel") == 4


def test_a_device_without_memory_for_the_proof_says_so(gpu, client, state, optimizer):
    gpu.fail("cuMemAlloc_v2", result=2)
    saving = client.save(1, state, overlap=[optimizer])
    saving.wait()
    assert (saving.device.checked, saving.device.unchecked) == (0, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY")


@pytest.mark.parametrize("group, why", [({"capturable": True}, "Optimizer is capturable"),
                                        ({"hookless": True}, "the step of Optimizer calls no hooks")])
def test_a_step_that_no_guard_can_see_makes_the_save_synchronous(gpu, client, state, group, why, monkeypatch):
    optimizer = Optimizer(gpu, [state["weight"]], **group)
    if "hookless" in group:
        monkeypatch.delattr(Optimizer, "register_step_pre_hook")
    saving = client.save(1, state, overlap=[optimizer])
    assert not saving.staging.overlapped and why in saving.staging.synchronous_because
    assert saving.device.bytes == gpu.count("bytes_to_host")
    saving.wait()


def test_a_slab_that_cannot_be_pinned_makes_the_save_synchronous(gpu, client, state, optimizer):
    gpu.fail("cuMemHostRegister_v2")
    saving = client.save(1, state, overlap=[optimizer])
    assert saving.staging.synchronous_because == "cuMemHostRegister: CUDA_ERROR_UNKNOWN"
    assert saving.staging.path == "pinned-ring"
    saving.wait()
    check_committed(client, 1, contents(state))


class Hookless:
    """Looks like an optimizer and is none."""

    def __init__(self, groups, hook_error=None):
        self.param_groups = groups
        self._hook_error = hook_error

    def register_step_pre_hook(self, hook):
        if self._hook_error is not None:
            raise self._hook_error


@pytest.mark.parametrize("overlap", [
    [object()], object(), "weights", ["weight"], 3, [None], [{"o": Hookless([])}], Hookless(None),
    [Hookless([{"lr": 1}])], [Hookless([{"params": []}], RuntimeError("boom"))]])
def test_what_overlap_must_not_have_is_refused_before_the_save_begins(gpu, agent, client, state, overlap):
    with raises_error("BAD_REQUEST") as error:
        client.save(1, state, overlap=overlap)
    assert "next: " in str(error.value)
    assert not agent.cancelled and "BeginSave" not in agent.calls
    client.save(1, state, overlap=[]).wait()


@pytest.mark.parametrize("kind", ["optimizer", "array", "dict", "generator", "tuple"])
def test_overlap_is_one_part_or_several(gpu, client, state, optimizer, kind):
    overlap = {"optimizer": optimizer, "array": state["weight"], "dict": {"w": state["weight"]},
               "generator": (part for part in [optimizer]), "tuple": (optimizer,)}[kind]
    saving = client.save(1, state, overlap=overlap)
    assert saving.staging.overlapped, saving.staging
    saving.wait()
    check_committed(client, 1, contents(state))


def test_overlap_that_covers_nothing_of_the_state_is_not_called_overlapped(gpu, client, state):
    elsewhere = gpu.array(values_of(10))
    transposed = gpu.array(values_of(600).reshape(20, 30).T)
    saving = client.save(1, {**state, "t": transposed}, overlap=[[elsewhere, transposed]])
    assert not saving.staging.overlapped
    assert saving.staging.synchronous_because.startswith("overlap= covers none of the arrays on GPUs")
    assert saving.device is not None
    saving.wait()


def test_overlap_of_a_state_on_the_host_says_why_the_save_is_synchronous(gpu, client, optimizer):
    saving = client.save(1, {"w": values_of(10)}, overlap=[optimizer])
    assert not saving.staging.overlapped and saving.staging.path == "host"
    assert saving.staging.synchronous_because.startswith("no array of the state is on a GPU")
    saving.wait()
    assert client.save(2, {"w": values_of(10)}).staging.synchronous_because == "", "nobody asked for it"


@pytest.mark.parametrize("streams", [{0: "x"}, {0: -1}, [1], {"a": 0}, {-1: 0}, {0: 2**64}])
def test_streams_of_an_update_that_are_none_are_refused(gpu, one_slab, client, state, optimizer, streams):
    client.prepare(state)
    gpu.set("engine_stopped", 2)
    saving = client.save(1, state, overlap=[optimizer])
    with raises_error("BAD_REQUEST"):
        saving.before_update(streams)
    gpu.set("engine_stopped", 0)
    saving.wait()


def test_an_array_that_the_host_must_reorder_is_reported(gpu, client, state, optimizer):
    state["transposed"] = gpu.array(values_of(600).reshape(20, 30).T)
    for step, overlap in enumerate(([optimizer], None)):
        saving = client.save(step, state, overlap=overlap)
        assert saving.staging.overlapped == (overlap is not None) and saving.staging.path == "pinned-ring"
        assert saving.staging.fallback.startswith("the elements of 'transposed' are not in row-major order")
        saving.wait()
        assert saving.device.path == "pinned-ring" and saving.device.fallback == saving.staging.fallback
        assert saving.device.bytes_by_path == {"pinned-slab": saving.device.bytes - 2400, "pinned-ring": 2400}


def test_an_array_that_is_freed_while_it_is_copied_does_not_end_the_process(gpu, one_slab, client, state, optimizer):
    client.prepare(state)
    gpu.set("copy_delay_us", 1000)
    saving = client.save(1, state, overlap=[optimizer], timeout=20)
    state["weight"].free()
    try:
        saving.wait()
    except cairn.Error as error:
        assert error.reason in ("DEVICE_ERROR", "TORN_SNAPSHOT"), error
    gpu.set("copy_delay_us", 0)
    del state["weight"]
    client.save(2, state, allow_dropped_names=True).wait()


def test_a_stream_that_records_a_graph_is_left_alone(gpu, agent, client, state, optimizer):
    client.prepare(state)
    state["weight"].__cuda_array_interface__["stream"] = gpu.stream()
    gpu.begin_capture()
    for overlap in (None, [optimizer]):
        with raises_error("BAD_REQUEST"):
            client.save(1, state, overlap=overlap)
    assert gpu.end_capture()
    client.save(1, state, overlap=[optimizer]).wait()


def test_a_capture_that_begins_while_it_copies_ends_well_and_so_does_the_save(gpu, one_slab, client, state, optimizer):
    client.prepare(state)
    before = contents(state)
    gpu.stream()
    gpu.set("engine_stopped", 2)
    saving = client.save(1, state, overlap=[optimizer])
    gpu.begin_capture()
    asked = gpu.count("cuEventQuery")
    until(lambda: gpu.count("cuEventQuery") >= asked + 3 or not client.status().driver_busy)
    saving.before_update({0: gpu.stream()})  # as a step that is being captured does
    gpu.set("engine_stopped", 0)
    saving.wait()
    assert gpu.end_capture()
    check_committed(client, 1, before)


def test_the_next_operation_waits_for_the_copies(gpu, one_slab, client, state, optimizer):
    client.prepare(state)
    before = contents(state)
    gpu.set("engine_stopped", 2)
    first = client.save(1, state, overlap=[optimizer])
    for operation in (lambda: client.save(2, state, timeout=0.05), lambda: client.load(state, timeout=0.05),
                      lambda: client.prepare(state, timeout=0.05)):
        with raises_error("DEVICE_STALLED"):
            operation()
    gpu.set("engine_stopped", 0)
    second = client.save(2, state, overlap=[optimizer])
    assert first.wait().step == 1 and second.wait().step == 2
    check_committed(client, 1, before)


def test_close_ends_the_staging_first(gpu, one_slab, client, state, optimizer):
    client.prepare(state)
    gpu.set("engine_stopped", 2)
    client.save(1, state, overlap=[optimizer])
    closing = threading.Thread(target=client.close)
    closing.start()
    gpu.set("engine_stopped", 0)
    closing.join()
    assert "CommitStaging" in one_slab.calls and one_slab.unmapped == [True]
    assert not any(gpu.held().values())


def test_a_driver_that_fails_or_hangs_ends_the_save_and_the_next_one_works(gpu, one_slab, client, state, optimizer):
    client.prepare(state)
    gpu.fail("cuEventQuery")
    with raises_error("DEVICE_ERROR"):
        client.save(1, state, overlap=[optimizer]).wait()
    assert len(one_slab.cancelled) == 1
    gpu.hang("cuEventQuery")
    saving = client.save(2, state, overlap=[optimizer], timeout=0.3)
    optimizer.step()
    with pytest.raises(cairn.Error) as error:
        saving.wait()
    assert error.value.reason == "DEVICE_STALLED" and error.value.metadata["step"] == "2"
    assert len(one_slab.cancelled) == 1, "the copies may still write to the slab"
    until(lambda: client.status().driver_waiting.startswith("cuEventQuery has not returned for "))
    with raises_error("DEVICE_STALLED"):
        client.save(3, state)
    gpu.hang(None)
    until(lambda: not client.status().driver_busy)
    client.save(3, state, overlap=[optimizer]).wait()
    assert len(one_slab.cancelled) == 2
    check_committed(client, 3, contents(state))


def test_a_forked_child_leaves_the_copies_alone(gpu, one_slab, client, state, optimizer):
    client.prepare(state)
    gpu.set("engine_stopped", 2)
    saving = client.save(1, state, overlap=[optimizer])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for hook in optimizer.hooks:
                hook(optimizer, (), {})
            saving.before_update()
            begun = time.monotonic()
            for wait in (lambda: saving.wait(30), saving.done):
                try:
                    wait()
                except cairn.Error as error:
                    assert error.reason == "BAD_REQUEST" and "before a fork" in error.message
                else:
                    raise AssertionError("a child cannot know how the save ends")
            status = 0 if time.monotonic() - begun < 15 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    gpu.set("engine_stopped", 0)
    assert saving.wait().step == 1


def test_an_optimizer_gets_one_hook_which_keeps_nothing_alive(gpu, agent, state, optimizer, limits):
    with cairn.connect(agent.address, limits=limits) as client:
        for step in range(3):
            client.save(step, state, overlap=[optimizer]).wait()
        assert len(optimizer.hooks) == 1
    guards = optimizer.hooks[0]._guards
    del client
    gc.collect()
    assert guards() is None
    optimizer.step()


def test_torchs_optimizers_are_guarded(gpu, one_slab, client, state):
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter], fused=False)
    optimizer.state[parameter]["elsewhere"] = [state["weight"], state["moment"]]
    client.prepare(state)
    gpu.set("engine_stopped", 2)
    saving = client.save(1, state, overlap=[optimizer])
    assert saving.staging.overlapped, saving.staging
    del optimizer.state[parameter]["elsewhere"]
    parameter.grad = torch.ones(3)
    waits = gpu.count("cuStreamWaitEvent")
    optimizer.step()
    assert gpu.count("cuStreamWaitEvent") == waits + 1
    gpu.set("engine_stopped", 0)
    saving.wait()
    capturable = torch.optim.AdamW([parameter], capturable=True, fused=True)
    assert "capturable" in client.save(2, state, overlap=[capturable]).staging.synchronous_because


def test_covered_memory_is_that_of_its_spans():
    covered = GuardedMemory([(100, 200), (150, 300), (400, 500), (300, 310)])

    def array(address, size):
        return device_array.DeviceArray(address, (size,), (1,), numpy.dtype("u1"), 0, None)

    for address, size, inside in [(100, 210, True), (99, 5, False), (309, 2, False), (400, 100, True),
                                  (400, 101, False), (350, 10, False), (250, 60, True)]:
        assert covered.holds(array(address, size)) == inside, (address, size)


def test_memory_of_tensors_that_are_made_of_others_is_that_of_these(monkeypatch):
    torch = pytest.importorskip("torch")
    from testing.scaled_tensor import ScaledTensor

    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True), raising=False)
    tensor = ScaledTensor.random(4, 4, 0)
    spans = []
    add_spans({"state": [tensor]}, spans)
    assert spans == [(part.data_ptr(), part.data_ptr() + part.nbytes)
                     for part in (tensor.codes, tensor.scale, tensor.table)]
