"""Loads of safetensors files into arrays on GPUs, with the stand-in for CUDA's driver."""

import contextlib
import gc

import numpy as np
import pytest

import cairn
from cairn._safetensors import loader
from testing.errors import raises_error
from testing.safetensors_files import write
from testing.stand_in_gpu import LIBRARY, StandInGpu


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setenv("CAIRN_LIBCUDA", str(LIBRARY))
    monkeypatch.setattr(loader, "_BATCH_BYTES", 100_000)  # so that there are many batches
    gpu = StandInGpu()
    yield gpu
    gpu.reset()


@pytest.fixture
def tensors(tmp_path):
    values = np.random.default_rng(1)
    tensors = {"large": values.random((1000, 70)), "wide": values.random((3, 30_000)), "small": values.random(5),
               "scalar": values.random(()), "empty": np.zeros((0, 3)), "host": values.random((40, 40))}
    write(tmp_path / "a.safetensors", tensors)
    return tensors


def test_arrays_on_devices_and_the_host_are_filled_together(gpu, tmp_path, tensors):
    state = {name: gpu.array(np.zeros(value.shape)) for name, value in tensors.items()}
    state["host"] = np.zeros((40, 40))
    state["wide"] = gpu.array(np.zeros((30_000, 3)).T)
    files = cairn.load_safetensors(tmp_path, state)
    for name, value in tensors.items():
        found = state[name] if name == "host" else state[name].values
        assert np.array_equal(found, value), name
    assert files.device.bytes == sum(value.nbytes for name, value in tensors.items() if name != "host")
    assert files.bytes == sum(value.nbytes for value in tensors.values())
    assert gpu.held() == dict.fromkeys(gpu.held(), 0), "nothing of the driver's is kept"


def test_slices_and_flat_ranges_on_devices(gpu, tmp_path, tensors):
    columns, flat = gpu.array(np.zeros((1000, 35))), gpu.array(np.zeros(40_000))
    cairn.load_safetensors(tmp_path, {
        "large": cairn.Shard(columns, (1000, 70), (0, 35)),
        "wide": cairn.Shard(flat, (3, 30_000), (1, 0), (2, 30_000), (10_000, 50_000))}, strict=False)
    assert np.array_equal(columns.values, tensors["large"][:, 35:])
    assert np.array_equal(flat.values, tensors["wide"].reshape(-1)[40_000:80_000])


def test_a_driver_that_fails_ends_the_load_and_the_read_that_goes_on(gpu, tmp_path, tensors):
    gpu.fail("cuMemcpyHtoDAsync_v2")
    with raises_error("DEVICE_ERROR"):
        cairn.load_safetensors(tmp_path, {"large": gpu.array(np.zeros((1000, 70)))}, strict=False)
    state = gpu.array(np.zeros((1000, 70)))
    cairn.load_safetensors(tmp_path, {"large": state}, strict=False)
    assert np.array_equal(state.values, tensors["large"])


@pytest.mark.parametrize("call", ["cuPointerGetAttributes", "cuMemHostRegister_v2", "cuCtxPushCurrent_v2"])
def test_a_driver_that_fails_before_the_first_copy_ends_all_reads(gpu, tmp_path, tensors, call):
    """No thread may write to a buffer that is unmapped."""
    for _ in range(3):
        state = {name: gpu.array(np.zeros(value.shape)) for name, value in tensors.items()}
        gpu.fail(call, nth=2)
        with contextlib.suppress(cairn.Error):  # a refusal to pin only makes it slower
            cairn.load_safetensors(tmp_path, state)
        gc.collect()
        assert gpu.held() == dict.fromkeys(gpu.held(), 0), "nothing of the driver's is kept"
    cairn.load_safetensors(tmp_path, state)
    for name, value in tensors.items():
        assert np.array_equal(state[name].values, value), name


def test_without_a_driver_the_error_says_so(monkeypatch, gpu, tmp_path, tensors):
    state = {name: gpu.array(np.zeros(value.shape)) for name, value in tensors.items()}
    monkeypatch.setenv("CAIRN_LIBCUDA", "libno_such_driver.so")
    for _ in range(3):
        with raises_error("DEVICE_ERROR"):
            cairn.load_safetensors(tmp_path, state)
        gc.collect()
