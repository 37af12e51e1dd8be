"""Saves, loads and reshards arrays on GPUs, with real agents and the stand-in for CUDA's driver."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy
import pytest

import cairn
from cairn._load import receiver
from testing.errors import raises_error
from testing.parallel import layout
from testing.ranks import blank, on_ranks, until
from testing.stand_in_gpu import LIBRARY, StandInGpu

# So that the arrays here take several rounds of the ring.
LIMITS = cairn.Limits(ring_slot_bytes=1 << 16)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setenv("CAIRN_LIBCUDA", str(LIBRARY))
    gpu = StandInGpu()
    yield gpu
    gpu.reset()


def on_device(gpu, state, device, zero=False):
    """Returns the state with its arrays on a device, and those arrays by name."""
    arrays = {name: gpu.array(numpy.zeros_like(shard.array) if zero else shard.array, device=device)
              for name, shard in state.items()}
    return {name: cairn.Shard(arrays[name], shard.global_shape, shard.offset, shard.shape, shard.flat_range)
            for name, shard in state.items()}, arrays


def check(arrays, state, rank):
    for name, shard in state.items():
        assert arrays[name].values.tobytes() == shard.array.tobytes(), (rank, name)


def test_a_sharded_state_is_pinned_saved_and_loaded_in_another_layout(gpu, tmp_path):
    before, after = layout(2, 1, 2), layout(1, 2, 2)
    prepared = threading.Barrier(4, timeout=60)

    def work(rank, client):
        state, _ = on_device(gpu, before(rank), rank % 2)
        client.prepare(state)
        prepared.wait()
        pieces = gpu.count("cuMemHostRegister_v2")
        for step in range(2):
            saving = client.save(step, state)
            saving.wait()
            assert saving.device is None or saving.device.path == "pinned-slab", saving.device
        target, arrays = on_device(gpu, after(rank), rank % 2, zero=True)
        report = client.load(target)
        check(arrays, after(rank), rank)
        assert report.device.path == "pinned-ring"
        return pieces

    with cairn.local.Cluster(ranks=4, root=tmp_path / "checkpoints") as cluster:
        assert on_ranks(cluster, work, limits=LIMITS) == [4] * 4, "prepare pins each rank's slab"
        assert gpu.count("cuMemHostRegister_v2") == 4, "no save pinned anything"


def test_replicas_on_devices_that_differ_are_found(gpu, tmp_path):
    def work(rank, client):
        state = {"w": gpu.array(numpy.full((1000,), rank, "float32"), device=rank)}
        with pytest.raises(cairn.Error) as error:
            client.save(1, state).wait()
        return error.value.reason

    with cairn.local.Cluster(ranks=2, root=tmp_path / "checkpoints") as cluster:
        assert on_ranks(cluster, work, limits=LIMITS) == ["REPLICA_MISMATCH"] * 2


def test_a_reshard_goes_from_devices_to_devices(gpu, tmp_path):
    before, after = layout(2, 1, 1), layout(1, 2, 1)

    def work(rank, client):
        source, _ = on_device(gpu, before(rank), rank)
        target, arrays = on_device(gpu, after(rank), rank, zero=True)
        client.reshard(source, target)
        check(arrays, after(rank), rank)

    with cairn.local.Cluster(ranks=2, root=tmp_path / "checkpoints") as cluster:
        on_ranks(cluster, work, limits=LIMITS)


def test_a_reshard_moves_its_source_to_the_host_before_the_target_is_made(gpu, tmp_path):
    before, after = layout(2, 1, 1), layout(1, 2, 1)

    def work(rank, client):
        source, held = on_device(gpu, before(rank), rank)
        source["step"], source["kept"] = 7, before(rank)["scale"]
        arrays = {}

        def target():
            left = [weakref.ref(array) for array in held.values()]
            held.clear()
            gc.collect()
            assert [each() for each in left if each() is not None] == [], "nobody but the caller holds them"
            state, made = on_device(gpu, after(rank), rank, zero=True)
            arrays.update(made)
            return state | {"kept": blank(before(rank)["scale"]), "step": 0}

        report = client.reshard(source, target, offload=True)
        check(arrays, after(rank), rank)
        assert report.objects == {"step": 7}
        for name, shard in before(rank).items():
            assert isinstance(source[name].array, numpy.ndarray), name
            assert source[name].array.tobytes() == shard.array.tobytes(), name
            assert (source[name].offset, source[name].flat_range) == (shard.offset, shard.flat_range), name

    with cairn.local.Cluster(ranks=2, root=tmp_path / "checkpoints") as cluster:
        on_ranks(cluster, work, limits=LIMITS)


def test_a_source_that_cannot_move_to_the_host_stays_as_it_is(gpu, tmp_path):
    with (cairn.local.Cluster(ranks=1, root=tmp_path / "checkpoints") as cluster,
          cluster.connect(0, limits=LIMITS) as client):
        state = {"a": gpu.array(numpy.ones(1000, "float32")),
                 "b": [cairn.Shard(gpu.array(numpy.ones(500, "float32")), (1000,), (at,)) for at in (0, 500)]}
        known = dict(state)
        gpu.fail("cuMemcpyDtoHAsync_v2")
        with raises_error("DEVICE_ERROR"):
            client.reshard(state, lambda: pytest.fail("the source has not moved"), offload=True)
        assert all(state[name] is known[name] for name in state)
        target = {name: numpy.zeros(1000, "float32") for name in state}
        client.reshard(state, lambda: target, offload=True)
        assert all((array == 1).all() for array in target.values())
        assert isinstance(state["a"], numpy.ndarray) and isinstance(state["b"][1].array, numpy.ndarray)


def test_a_reshard_whose_driver_hangs_ends_by_its_timeout(gpu, tmp_path):
    """What a rank lends is copied from its device first; only the caller's own timeout limits that."""
    with (cairn.local.Cluster(ranks=1, root=tmp_path / "checkpoints") as cluster,
          cluster.connect(0, limits=LIMITS) as client):
        state = {"w": gpu.array(numpy.ones(10_000, "float32"))}
        target = {"w": gpu.array(numpy.zeros(10_000, "float32"))}
        gpu.hang("cuMemcpyDtoHAsync_v2")
        begun = time.monotonic()
        with pytest.raises(cairn.Error) as error:
            client.reshard(state, target, timeout=1)
        assert time.monotonic() - begun < 30
        assert error.value.reason == "DEVICE_STALLED", error.value
        gpu.hang(None)
        until(lambda: not client.status().driver_busy)
        client.reshard(state, target)
        assert (target["w"].values == 1).all()


# Says "copying" when the driver has the save's copy, which does not begin.
DIES = """
import os, sys, threading, numpy, cairn
from testing.stand_in_gpu import LIBRARY, StandInGpu
os.environ["CAIRN_LIBCUDA"] = str(LIBRARY)
gpu = StandInGpu()
state = {"w": gpu.array(numpy.zeros(100_000, "float32"))}
client = cairn.connect(sys.argv[1])
client.prepare(state)
gpu.set("engine_stopped", 1)
overlap = {"overlap": [list(state.values())]} if sys.argv[2] == "overlapped" else {}
threading.Thread(target=client.save, args=(1, state), kwargs=overlap, daemon=True).start()
while gpu.count("cuMemcpyDtoHAsync_v2") == 0:
    pass
print("copying", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("way", ["synchronous", "overlapped"])
def test_a_trainer_that_is_killed_while_it_copies_leaves_nothing_in_the_way(gpu, tmp_path, way):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "checkpoints") as cluster:
        trainer = subprocess.Popen([sys.executable, "-c", DIES, cluster.agents[0].address, way],
                                   text=True, stdout=subprocess.PIPE,
                                   env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        assert trainer.stdout.readline() == "copying\n"
        trainer.send_signal(signal.SIGKILL)
        assert trainer.wait() == -signal.SIGKILL
        with cluster.connect(0, limits=LIMITS) as client:
            state = {"w": gpu.array(numpy.ones(100_000, "float32"))}
            client.prepare(state)
            assert client.save(1, state).wait().step == 1
            target = {"w": numpy.zeros(100_000, "float32")}
            client.load(target)
            assert (target["w"] == 1).all()


class Optimizer:
    """Holds arrays, and has the hook that torch's optimizers have."""

    def __init__(self, arrays):
        self.param_groups = [{"params": list(arrays)}]
        self.hooks = []

    def register_step_pre_hook(self, hook):
        self.hooks.append(hook)

    def step(self, value):
        """Returns what must live until the GPU has made the step."""
        for hook in self.hooks:
            hook(self, (), {})
        return [array.enqueue(numpy.full(array.values.shape, value, array.values.dtype))
                for array in self.param_groups[0]["params"]]


def test_overlapped_saves_of_a_job_hold_what_each_step_began_with(gpu, tmp_path):
    ranks, steps = 2, 4
    gpu.set("copy_delay_us", 200)

    def work(rank, client):
        arrays = [gpu.array(numpy.zeros(5000, "float32"), device=rank) for _ in range(6)]
        optimizer = Optimizer(arrays)
        state = {f"w{i}": cairn.Shard(array, (ranks, 5000), (rank, 0), (1, 5000), (0, 5000))
                 for i, array in enumerate(arrays)}
        client.prepare(state)
        kept = []
        for step in range(steps):
            saving = client.save(step, state, overlap=[optimizer])
            assert saving.staging.overlapped, saving.staging
            kept += optimizer.step(step + 1)
            saving.wait()
        for step in range(steps):
            target = {name: cairn.Shard(numpy.empty((1, 5000), "float32"), (ranks, 5000), (rank, 0)) for name in state}
            client.load(target, step=step)
            assert all((shard.array == step).all() for shard in target.values()), step
        return len(kept)

    with cairn.local.Cluster(ranks=ranks, root=tmp_path / "checkpoints") as cluster:
        assert on_ranks(cluster, work, limits=LIMITS) == [24] * ranks


def test_a_torn_save_of_one_rank_ends_it_for_all(gpu, tmp_path):
    def work(rank, client):
        array = gpu.array(numpy.zeros(5000, "float32"), device=rank)
        state = {"w": cairn.Shard(array, (10_000,), (5000 * rank,), (5000,))}
        client.prepare(state)
        gpu.set("engine_stopped", 2)
        saving = client.save(1, state, overlap=[[array]])
        meet.wait()
        if rank == 1:
            with array._current():
                gpu.library.cuStreamSynchronize(None)
            array.values[123] = 1
            gpu.set("engine_stopped", 0)
        with pytest.raises(cairn.Error) as error:
            saving.wait()
        client.save(2, state).wait()
        return error.value.reason, "'w' changed on the GPU" in error.value.message, client.checkpoints()

    meet = threading.Barrier(2, timeout=60)
    with cairn.local.Cluster(ranks=2, root=tmp_path / "checkpoints") as cluster:
        assert on_ranks(cluster, work, limits=LIMITS) == [("TORN_SNAPSHOT", True, [2])] * 2


def test_a_load_that_verifies_sums_on_the_device(gpu, tmp_path):
    before, after = layout(2, 1, 2), layout(1, 2, 2)
    with cairn.local.Cluster(ranks=4, root=tmp_path) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, before(rank)).wait())

        def load(rank, client):
            target, arrays = on_device(gpu, after(rank), rank % 2, zero=True)
            report = client.load(target, verify="fingerprint")
            check(arrays, after(rank), rank)
            return report

        reports = on_ranks(cluster, load)
    assert all(report.verified_tensors == len(before(0)) for report in reports)
    assert gpu.count("cuLaunchKernel") == 4, "one for each rank"


def test_a_load_that_verifies_finds_an_array_on_a_device_that_is_not_what_was_saved(gpu, tmp_path, monkeypatch):
    value, receive = numpy.arange(6000, dtype=numpy.float32).reshape(60, 100), receiver.receive
    target = gpu.array(numpy.zeros_like(value))

    def damaged(*arguments):
        result = receive(*arguments)
        target.values[31, 7] += 1
        return result

    monkeypatch.setattr(receiver, "receive", damaged)
    with cairn.local.Cluster(ranks=1, root=tmp_path) as cluster, cluster.connect(0) as client:
        client.save(1, {"w": gpu.array(value), "v": value}).wait()
        with raises_error("FINGERPRINT_MISMATCH") as caught:
            client.load({"w": target, "v": numpy.zeros_like(value)}, verify="fingerprint")
    assert caught.value.message.endswith("in 1 tensor on rank 0: w")
