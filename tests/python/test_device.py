"""Tests saves and loads of arrays on GPUs, with the stand-in for CUDA's driver and an agent in this process."""

import contextlib
import gc
import itertools
import os
import threading
import time
import types

import numpy
import pytest

import cairn
from cairn import doctor_gpu
from cairn._base import probes
from cairn._gpu import device_array
from cairn._gpu.devices import Devices
from testing.errors import raises_error
from testing.ranks import until
from testing.stand_in_gpu import ILLEGAL_ADDRESS, LIBRARY, StandInGpu


@pytest.fixture
def limits():
    return cairn.Limits(ring_slot_bytes=1 << 16, pin_piece_bytes=1 << 18)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setenv("CAIRN_LIBCUDA", str(LIBRARY))
    gpu = StandInGpu()
    yield gpu
    gpu.reset()


@pytest.fixture
def one_slab(agent):
    agent.one_slab = True
    return agent


def random_array(shape, dtype="float32", seed=1):
    values = numpy.random.default_rng(seed).integers(0, 100, shape)
    return values.astype(dtype)


def test_arrays_of_all_orders_and_devices_come_back(gpu, client):
    values = {"matrix": random_array((300, 70)), "scalar": random_array(()), "empty": random_array((0, 3)),
              "transposed": random_array((50, 60)).T, "columns": random_array((40, 90))[:, 10:20],
              "permuted": random_array((7, 8, 9)).transpose(1, 2, 0), "bytes": random_array((1000,), "uint8"),
              "complex": random_array((33,), "complex128"), "large": random_array((300_000,))}
    state = {name: gpu.array(value, device=len(name) % 2) for name, value in values.items()}
    state |= {"on_host": random_array((10,)), "object": {"a": 1}}
    saving = client.save(1, state)
    saving.wait()
    assert saving.device.bytes == sum(value.nbytes for value in values.values())
    target = {name: gpu.array(numpy.zeros_like(value), device=1 - len(name) % 2) for name, value in values.items()}
    target |= {"on_host": numpy.zeros(10, "float32"), "object": None}
    report = client.load(target)
    assert report.objects == {"object": {"a": 1}}
    assert (target["on_host"] == state["on_host"]).all()
    for name, value in values.items():
        assert (target[name].values == value).all(), name
    assert report.device.path == "pinned-ring" and report.device.fallback == ""
    assert report.device.bytes == saving.device.bytes


def test_prepare_pins_once_and_a_save_pins_nothing(gpu, one_slab, client):
    state = {"w": gpu.array(random_array((1000, 300)))}
    client.prepare(state)
    pieces = gpu.count("cuMemHostRegister_v2")
    assert pieces == 5 and gpu.count("registered_bytes") >= 1_200_000
    for step in range(3):
        state["w"].values[...] += 1
        saving = client.save(step, state)
        saving.wait()
        assert saving.device.path == "pinned-slab" and saving.device.fallback == ""
        assert saving.device.copies == pieces, "a copy does not reach from one piece into the next"
        assert saving.device.pinned_bytes == gpu.count("registered_bytes")
        assert (saving.staging.path, saving.staging.fallback) == ("pinned-slab", "")
        assert saving.staging.pinned_bytes == saving.device.pinned_bytes and saving.staging.blocked_seconds > 0
        assert (one_slab.committed[step][0][0][1]) == state["w"].values.tobytes()
    assert gpu.count("cuMemHostRegister_v2") == pieces
    assert gpu.count("bytes_to_host") == 3 * 1_200_000
    assert gpu.count("allocated_host_bytes") == 0
    client.close()
    assert not any(gpu.held().values())


def test_a_save_without_prepare_pins_its_slab(gpu, client):
    saving = client.save(1, {"w": gpu.array(random_array((1000,)))})
    assert saving.device.path == "pinned-slab"
    saving.wait()


def test_staging_of_a_save_without_arrays_on_gpus_is_the_hosts(client):
    saving = client.save(1, {"w": random_array((1000,))})
    assert (saving.staging.path, saving.staging.pinned_bytes, saving.device) == ("host", 0, None)
    assert saving.staging.blocked_seconds > 0
    saving.wait()


def test_each_fallback_is_named(gpu, agent, client, limits):
    state = {"w": gpu.array(random_array((100_000,)))}
    gpu.fail("cuMemHostRegister_v2")
    saving = client.save(1, state)
    assert (saving.device.path, saving.device.fallback) == ("pinned-ring", "cuMemHostRegister: CUDA_ERROR_UNKNOWN")
    saving.wait()
    gpu.set("pinnable_bytes", 0)
    with cairn.connect(agent.address, limits=limits) as other:
        saving = other.save(2, state)
        assert saving.device.path == saving.staging.path == "pageable"
        assert saving.staging.fallback == saving.device.fallback
        assert saving.device.fallback == ("cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY; "
                                          "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY")
        saving.wait()
        target = {"w": gpu.array(numpy.zeros(100_000, "float32"))}
        report = other.load(target)
        assert (report.device.path, report.device.fallback) == ("pageable", "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY")
        assert (target["w"].values == state["w"].values).all()


def test_host_memory_of_a_load_is_the_ring_alone(gpu, client, limits):
    state = {"w": gpu.array(random_array((1_000_000,)))}
    client.save(1, state).wait()
    target = {"w": gpu.array(numpy.zeros(1_000_000, "float32"))}
    used = gpu.count("used_device_bytes")
    report = client.load(target)
    assert gpu.count("allocated_host_bytes") == 2 * limits.ring_slot_bytes
    assert gpu.count("used_device_bytes") == used
    assert gpu.count("bytes_to_device") == report.device.bytes == 4_000_000


def test_checksums_are_those_of_the_bytes_on_the_device(gpu, agent, client):
    values = {"a": random_array((500, 400)), "b": random_array((30, 40)).T, "c": random_array((9,)),
              "d": random_array((0,))}
    agent.check_items = True
    client.save(1, {name: numpy.ascontiguousarray(value) for name, value in values.items()} | {"object": 5}).wait()
    expected = agent.checksums
    mixed = {name: gpu.array(value) if name != "c" else value for name, value in values.items()}
    client.save(2, mixed | {"object": 5}).wait()
    assert agent.checksums == expected


def test_an_array_that_was_freed_is_named_and_the_next_save_works(gpu, agent, client):
    state = {"kept": gpu.array(random_array((10,))), "freed": gpu.array(random_array((10,)))}
    client.prepare(state)
    state["freed"].free()
    with raises_error("BAD_REQUEST", tensor="freed"):
        client.save(1, state)
    assert len(agent.cancelled) == 1
    del state["freed"]
    client.save(2, state, allow_dropped_names=True).wait()


def test_an_array_that_is_replaced_after_prepare_is_saved_as_it_is_then(gpu, client):
    values = random_array((100, 20))
    for device, shape in ((0, (100, 20)), (0, (40, 20)), (1, (100, 20))):  # the same, cut, and moved
        client.prepare({"w": gpu.array(values)})
        now = values[:shape[0]] + 1
        saving = client.save(device * 10 + shape[0], {"w": gpu.array(now, device=device)})
        saving.wait()
        target = {"w": numpy.zeros(shape, "float32")}
        client.load(target)
        assert (target["w"] == now).all() and saving.staging.path == "pinned-slab"
    client.close()
    assert not any(gpu.held().values())


def test_two_clients_of_one_process_do_not_meet(gpu, agent, client, limits):
    states = [{"w": gpu.array(random_array((50_000,), seed=seed), device=seed)} for seed in range(2)]
    gpu.hang("cuMemcpyDtoHAsync_v2")
    with raises_error("DEVICE_STALLED"):
        client.save(1, states[0], timeout=0.2)
    gpu.hang(None)
    with cairn.connect(agent.address, limits=limits) as other:
        other.save(2, states[1]).wait()
        until(lambda: not client.status().driver_busy)
        client.save(3, states[0]).wait()
        assert gpu.count("streams") == 2
    for step, state in ((2, states[1]), (3, states[0])):
        target = {"w": numpy.zeros(50_000, "float32")}
        client.load(target, step=step)
        assert (target["w"] == state["w"].values).all()
    client.close()
    assert not any(gpu.held().values())


def test_a_call_that_fails_ends_the_save_and_the_next_one_works(gpu, agent, client):
    state = {"w": gpu.array(random_array((10,)))}
    for function in ("cuEventRecord", "cuMemcpyDtoHAsync_v2", "cuEventSynchronize"):
        gpu.fail(function)
        with raises_error("DEVICE_ERROR"):
            client.save(1, state)
    assert len(agent.cancelled) == 3
    client.save(1, state).wait()
    gc.collect()  # the errors have mappings in their tracebacks, which a driver that is broken cannot unpin
    gpu.set("broken", ILLEGAL_ADDRESS)
    with raises_error("DEVICE_ERROR"):
        client.load(state)
    gpu.set("broken", 0)


def test_a_driver_that_hangs_ends_the_save_at_its_deadline(gpu, one_slab, client):
    state = {"w": gpu.array(random_array((10,)))}
    client.prepare(state)
    gpu.hang("cuMemcpyDtoHAsync_v2")
    with pytest.raises(cairn.Error) as error:
        client.save(1, state, timeout=0.2)
    assert error.value.reason == "DEVICE_STALLED" and error.value.metadata["step"] == "1"
    assert not one_slab.cancelled, "the copy may still write to the slab"
    with raises_error("DEVICE_STALLED"):
        client.save(2, state)
    gpu.hang(None)
    until(lambda: not client.status().driver_busy)
    client.save(2, state).wait()
    assert len(one_slab.cancelled) == 1, "now the agent may use the slab again"


def took(seconds, function, *arguments, **keywords):
    """Returns the error that a call raises within so many seconds."""
    begun = time.monotonic()
    with pytest.raises(cairn.Error) as error:
        function(*arguments, **keywords)
    assert time.monotonic() - begun < seconds
    return error.value


# Far from its own deadline of 0.2 s, and from all others that there are.
SOON = 8.0
NAMES = itertools.count(1)


@pytest.mark.parametrize("operation, function", [
    *(("prepare", name) for name in ("cuInit", "cuPointerGetAttributes", "cuMemHostRegister_v2")),
    *(("save", name) for name in ("cuInit", "cuPointerGetAttributes", "cuMemGetAddressRange_v2", "cuMemHostRegister_v2",
                                  "cuMemcpyDtoHAsync_v2", "cuEventSynchronize"))])
def test_a_call_that_hangs_is_named_at_the_callers_deadline(gpu, one_slab, client, monkeypatch, operation, function):
    state = {"w": gpu.array(random_array((10,)))}
    # By another name it is a driver that has not started.
    monkeypatch.setenv("CAIRN_LIBCUDA", f"{'/.' * next(NAMES)}{LIBRARY}")
    gpu.hang(function)
    call = client.prepare if operation == "prepare" else lambda *rest, **named: client.save(1, *rest, **named)
    error = took(SOON, call, state, timeout=0.2)
    name = function.removesuffix("_v2")
    # A busy machine may not have come to the call at the deadline.
    latest = time.monotonic() + 30
    while f"{name} has not returned for " not in error.message:
        assert error.reason == "DEVICE_STALLED" and "next: " in str(error) and time.monotonic() < latest, error
        error = took(SOON, call, state, timeout=0.2)
    gpu.hang(None)
    until(lambda: not client.status().driver_busy)
    client.save(2, state).wait()
    client.close()
    assert not any(gpu.held().values())


@pytest.mark.parametrize("overlapped", [False, True])
def test_sums_of_replicas_on_a_driver_that_hangs_end_at_the_saves_deadline(gpu, one_slab, client, overlapped):
    one_slab.check_items = True
    state = {"w": gpu.array(random_array((5000,)))}
    client.prepare(state)
    hanging = contextlib.ExitStack()
    if overlapped:
        gpu.hang("cuEventSynchronize")  # which only the sums call
    else:
        hanging.enter_context(probes.at("commit", lambda **_: gpu.hang("cuEventSynchronize")))
    with hanging:
        error = took(SOON, client.save, 1, state, timeout=0.5, overlap=[list(state.values())] if overlapped else None)
    assert error.reason == "DEVICE_STALLED", error
    until(lambda: client.status().driver_waiting.startswith("cuEventSynchronize has not returned for "))
    gpu.hang(None)


def load_that_fails(client, state):
    with pytest.raises(cairn.Error):
        client.load(state, timeout=20)


def test_the_slab_of_an_agent_that_restarts_while_a_load_copies_is_unpinned_before_it_is_unmapped(
        gpu, one_slab, client):
    """Otherwise the next slab may lie where the driver still has the pages of the old one pinned, and gets nothing."""
    one_slab.keep_memory = True
    large, small = gpu.array(random_array((1_000_000,))), gpu.array(random_array((700_000,), seed=3) + 1)
    client.prepare({"w": large})
    client.save(1, {"w": large}).wait()
    before = gpu.count("registered_bytes")
    gpu.set("engine_stopped", 1)
    loading = threading.Thread(target=load_that_fails, args=(client, {"w": large}))
    loading.start()
    until(lambda: client.status().driver_busy)
    one_slab.close()
    one_slab.start()
    until(lambda: client.status().agent_incarnation == one_slab.incarnation)
    until(lambda: not client.status().slabs)
    assert gpu.count("registered_bytes") == before and client.status().driver_keeps_memory
    gpu.set("engine_stopped", 0)
    loading.join()
    until(lambda: not client.status().driver_keeps_memory)
    assert gpu.count("registered_bytes") == 0
    client.prepare({"s": small})
    for step, overlap in ((2, None), (3, [[small]])):
        saving = client.save(step, {"s": small}, overlap=overlap)
        saving.wait()
        assert saving.staging.path == "pinned-slab"
        assert one_slab.committed[step][0][0][1] == small.values.tobytes()
    client.close()
    assert one_slab.unmapped[-1] is True and not any(gpu.held().values())


def test_memory_that_a_driver_pins_after_the_deadline_is_unpinned(gpu, one_slab, client):
    small, large = gpu.array(random_array((100_000,))), gpu.array(random_array((400_000,)))
    gpu.hang("cuMemHostRegister_v2")
    assert took(SOON, client.prepare, {"w": small}, timeout=0.2).reason == "DEVICE_STALLED"
    gpu.hang(None)
    until(lambda: not client.status().driver_busy)
    gc.collect()  # the error has the mapping in its traceback
    client.prepare({"w": large})
    saving = client.save(1, {"w": large})
    saving.wait()
    assert saving.staging.path == "pinned-slab"
    assert saving.staging.pinned_bytes == gpu.count("registered_bytes") < 1_700_000
    client.close()
    assert not any(gpu.held().values())


def test_a_client_that_is_closed_while_the_driver_hangs_keeps_the_slab_mapped(gpu, one_slab, client):
    state = {"w": gpu.array(random_array((10,)))}
    client.prepare(state)
    gpu.hang("cuMemcpyDtoHAsync_v2")
    with pytest.raises(cairn.Error):
        client.save(1, state, timeout=0.2)
    client.close()
    assert one_slab.unmapped == [False]
    gpu.hang(None)
    until(lambda: not gpu.count("streams"))
    assert not any(gpu.held().values())


def test_without_a_driver_arrays_on_gpus_are_refused(gpu, client, monkeypatch):
    array = gpu.array(random_array((10,)))
    monkeypatch.setenv("CAIRN_LIBCUDA", "/nowhere/libcuda.so.1")
    with raises_error("DEVICE_ERROR") as error:
        client.save(1, {"w": array})
    action = str(error.value).partition("\nnext: ")[2]
    assert action.startswith("Install NVIDIA's driver") and "ILLEGAL_ADDRESS" not in action, action
    client.save(1, {"w": random_array((10,))}).wait()


def test_what_cannot_be_filled_is_refused(gpu, client):
    client.save(1, {"w": gpu.array(random_array((4, 5)))}).wait()
    read_only = gpu.array(random_array((4, 5)))
    read_only.__cuda_array_interface__["data"] = (read_only.address, True)
    with raises_error("BAD_REQUEST"):
        client.load({"w": read_only})
    repeated = gpu.array(random_array((4, 5)), strides=(0, 4))
    with raises_error("BAD_REQUEST"):
        client.load({"w": repeated})


def test_an_array_that_repeats_elements_is_saved(gpu, client):
    row = gpu.array(random_array((1, 5)), shape=(4, 5), strides=(0, 4))
    client.save(1, {"w": row}).wait()
    target = {"w": numpy.zeros((4, 5), "float32")}
    client.load(target)
    assert (target["w"] == row.values).all()


class Moving:
    """As torch's tensors, asks for its memory anew each time."""

    def __init__(self, array):
        self.now, self.more = array, {}

    @property
    def __cuda_array_interface__(self):
        if self.now is None:
            raise AttributeError
        return {**self.now.__cuda_array_interface__, **self.more}


def test_a_shard_that_is_kept_is_saved_as_its_array_is_then(gpu, one_slab, client):
    first, second = gpu.array(random_array((1000,))), gpu.array(random_array((1000,), seed=2), device=1)
    array = Moving(first)
    state = {"shard": cairn.Shard(array, (1000,), (0,)), "list": [cairn.Shard(array, (1000,), (0,))], "value": array}
    client.prepare(state)
    client.save(1, state).wait()
    array.now = second  # as `param.data = other`
    client.save(2, state).wait()
    for step, values in ((1, first.values), (2, second.values)):
        assert [content for _, content in one_slab.committed[step][0]] == [values.tobytes()] * 3
    array.now = gpu.array(random_array((999,)))
    with raises_error("BAD_SHAPE"):
        client.save(3, {"shard": state["shard"]}, allow_dropped_names=True)
    array.now = None
    with raises_error("BAD_REQUEST", tensor="shard"):
        client.save(3, {"shard": state["shard"]}, allow_dropped_names=True)


def test_a_shard_that_is_kept_comes_after_the_stream_of_the_moment(gpu, client):
    array = Moving(gpu.array(random_array((1000,))))
    shard = cairn.Shard(array, (1000,), (0,))
    assert shard.array.stream == 1
    array.more["stream"] = gpu.stream()
    assert shard.array.stream == gpu.stream()
    client.prepare({"w": shard})
    gpu.set("engine_stopped", 1)
    kept = array.now.enqueue(numpy.full(1000, 5, "float32"), stream=gpu.stream())
    done = []
    saving = threading.Thread(target=lambda: done.append(client.save(1, {"w": shard})))
    saving.start()
    until(lambda: client.status().driver_busy)
    gpu.set("engine_stopped", 0)
    saving.join()
    done[0].wait()
    target = {"w": numpy.zeros(1000, "float32")}
    client.load(target)
    assert (target["w"] == 5).all() and len(kept) == 4000
    del kept
    gpu.close()


def test_tensors_of_torch_come_after_the_stream_that_torch_has_current(gpu, monkeypatch):
    torch = pytest.importorskip("torch")

    class Tensor(torch.Tensor):
        __cuda_array_interface__ = gpu.array(random_array((10,))).__cuda_array_interface__

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=77))
    assert cairn.Shard(Tensor(), (10,), (0,)).array.stream == 77
    assert device_array.of(gpu.array(random_array((10,)))).stream == 1


HUGE = 2**63
INVALID = [
    {"shape": (-1,)}, {"shape": "ab"}, {"shape": (2.7,)}, {"shape": None}, {"shape": 10}, {"shape": (1,) * 65},
    {"strides": 4}, {"strides": ("a",)}, {"strides": (4.5,)}, {"strides": (4, 4)}, {"strides": (HUGE,)},
    {"strides": (-4,)}, {"shape": (5,), "strides": (2**62,)},
    {"shape": (2, 2), "strides": (HUGE - 2, HUGE - 2)}, {"shape": (2, 2), "strides": (HUGE - 2, HUGE + 6)},
    {"typestr": "?!"}, {"typestr": 5}, {"typestr": None}, {"typestr": [("a", "<f4")]},
    {"data": None}, {"data": 4096}, {"data": (1, 2, 3)}, {"data": ("x", False)}, {"data": (-8, False)},
    {"data": (HUGE + 8, False)}, {"data": (2**64 + 8, False)}, {"data": (2**100, False)}, {"data": (4096.0, False)},
    {"stream": -1}, {"stream": 2**64}, {"stream": "x"}, {"stream": 1.5},
]
CASES = [*((each, "BAD_REQUEST") for each in INVALID), ({"stream": 2}, "UNSUPPORTED"), ({"mask": 1}, "UNSUPPORTED"),
         ({"shape": (HUGE,)}, "SHAPE_OVERFLOW"), ({"shape": (2**62,)}, "SHAPE_OVERFLOW"),
         ({"shape": (2**32, 2**32, 2)}, "SHAPE_OVERFLOW"), ({"shape": (0, HUGE)}, "SHAPE_OVERFLOW"),
         ({"typestr": "|O"}, "BAD_DTYPE"), ({"typestr": ">f4"}, "BAD_DTYPE"), ({"typestr": "|V0"}, "BAD_DTYPE")]


@pytest.mark.parametrize("interface, reason", CASES, ids=str)
def test_descriptions_that_are_not_valid_are_refused_by_name(gpu, agent, client, interface, reason):
    state = {"w": gpu.array(random_array((10,)), **interface)}
    for operation in (client.prepare, lambda what: client.save(1, what), client.load,
                      lambda what: client.save(1, what, overlap=[list(what.values())])):
        with raises_error(reason, tensor="w") as error:
            operation(state)
        assert "next: " in str(error.value)
    assert "BeginSave" not in agent.calls
    if reason != "BAD_DTYPE":
        with pytest.raises(cairn.Error) as error:
            cairn.Shard(state["w"], (10,), (0,))
        assert error.value.reason == reason


@pytest.mark.parametrize("missing", ["shape", "typestr", "data"])
def test_descriptions_that_lack_something_are_refused(gpu, missing):
    array = gpu.array(random_array((10,)))
    del array.__cuda_array_interface__[missing]
    with raises_error("BAD_REQUEST"):
        cairn.Shard(array, (10,), (0,))


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("interface", [
    {"shape": (100_000,)}, {"shape": (11,)}, {"strides": (1 << 20,)}, {"shape": (2,), "strides": (2**62,)},
    {"data": (0, False)}, {"data": (4096, False)}, {"data": (None, False)}])
def test_arrays_without_enough_memory_are_refused_before_a_copy(gpu, client, interface, overlapped):
    state = {"other": gpu.array(random_array((10,))), "w": gpu.array(random_array((10,)), **interface)}
    with raises_error("BAD_REQUEST", tensor="w"):
        client.save(1, state, overlap=[list(state.values())] if overlapped else None, check_overlap=True)
    assert gpu.count("bytes_to_host") == gpu.count("cuLaunchKernel") == 0
    client.save(1, {"other": state["other"]}, allow_dropped_names=True).wait()


def test_an_array_of_many_dimensions_comes_back(gpu, client):
    """numpy has up to 64 dimensions, and so has a layout."""
    like = random_array((2, 3) + (1,) * 31 + (5,)).swapaxes(0, -1)
    array = gpu.array(like)
    client.save(1, {"w": array}).wait()
    target = {"w": gpu.array(numpy.zeros_like(like))}
    client.load(target)
    assert (target["w"].values == like).all()


def test_parts_of_a_device_array_are_those_of_numpy():
    like = numpy.zeros((6, 7, 8), "int32").transpose(2, 0, 1)
    array = device_array.DeviceArray(1000, like.shape, like.strides, like.dtype, 0, None)
    for index in [(slice(2, 5), slice(0, 6), slice(3, 4)), (slice(0, 8), slice(0, 6), slice(0, 7))]:
        part, expected = array[index], like[index]
        assert (part.shape, part.strides, part.nbytes) == (expected.shape, expected.strides, expected.nbytes)
        assert part.address - 1000 == expected.__array_interface__["data"][0] - like.__array_interface__["data"][0]
        assert part.flags.c_contiguous == expected.flags.c_contiguous


def test_a_forked_child_leaves_its_parents_gpu_alone(gpu, one_slab, client):
    state = {"w": gpu.array(random_array((10,)))}
    client.prepare(state)
    child = os.fork()
    if child == 0:
        client._slabs.clear()
        client._devices.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    client.save(1, state).wait()
    assert client.save(2, state).device.path == "pinned-slab"


def test_the_probe_says_what_a_save_will_do(gpu, monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    found, text = doctor_gpu.report(str(LIBRARY))
    assert found
    lines = dict(line.split(maxsplit=1) for line in text.splitlines() if not line.startswith("device "))
    assert lines["save"] == "pinned-slab; overlap= is possible"
    assert lines["allocator"].startswith("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; ")
    assert not any(gpu.held().values()) and gpu.count("used_device_bytes") >= 0
    devices = Devices()
    plain = device_array.of(gpu.array(random_array((10,))))
    assert doctor_gpu.handle_types(devices, plain) == "nothing"
    assert doctor_gpu.sharing(devices, plain).startswith("by CUDA IPC (device-ipc)")
    by_handles = device_array.of(gpu.array(random_array((10,)), by_handles=True))
    assert doctor_gpu.sharing(devices, by_handles) == "by descriptors (device-vmm)"
    gpu.set("fabric", 1)
    fabric = device_array.of(gpu.array(random_array((10,)), by_handles=True, handle_types=8))
    assert doctor_gpu.handle_types(devices, fabric) == "fabric"
    assert doctor_gpu.sharing(devices, fabric).startswith("by fabric handles (device-fabric)")
    closed = device_array.of(gpu.array(random_array((10,)), by_handles=True, handle_types=0))
    assert doctor_gpu.sharing(devices, closed).startswith("not possible: its allocator")
    devices.close()
    found, text = doctor_gpu.report("/nowhere/libcuda.so.1")
    assert not found and "/nowhere/libcuda.so.1" in text
    assert "\nnext            Without a GPU" in text, "it says what to do"
    assert "libcuda.so.1 where the loader does" in text, "the trainer has no flag for it"


# Fingerprints.


def as_shard(array):
    """The upper left corner of a tensor, of whose rows each is a run of its own."""
    return cairn.Shard(array, (308, 74), (0, 0), (300, 70))


@pytest.mark.parametrize("dtype", ["uint8", "float32", "complex128"])
def test_fingerprints_of_arrays_on_devices_are_those_of_the_host(gpu, dtype):
    values = {"matrix": random_array((300, 70), dtype), "scalar": random_array((), dtype),
              "empty": random_array((0, 3), dtype), "transposed": random_array((50, 60), dtype).T,
              "large": random_array((300_000,), dtype)}
    there = {name: gpu.array(value, device=len(name) % 2) for name, value in values.items()}
    state = {**there, "shard": as_shard(gpu.array(values["matrix"])), "on_host": values["matrix"]}
    expected = cairn.fingerprint({**values, "shard": as_shard(values["matrix"]), "on_host": values["matrix"]})
    assert cairn.fingerprint(state) == expected
    copied = gpu.count("bytes_to_host") - values["transposed"].nbytes
    assert copied < 9000, "only sums leave the device, and what is not contiguous"
    assert gpu.count("streams") == 0 and gpu.count("allocated_host_bytes") == 0, "all was given back"


def test_a_device_that_does_not_answer_ends_a_fingerprint(gpu):
    state = {"w": gpu.array(random_array((30, 7)))}
    gpu.hang("cuLaunchKernel")
    with raises_error("DEVICE_STALLED"):
        cairn.fingerprint(state, timeout=0.2)
    gpu.hang(None)
