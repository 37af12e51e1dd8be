"""Saves whose arrays the agent copies from GPUs itself, with real agents and the stand-in for CUDA's driver."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

import cairn
from testing.errors import raises_error
from testing.parallel import layout
from testing.ranks import on_ranks, until
from testing.stand_in_gpu import LIBRARY, StandInGpu

PIECE = 2 << 20
FABRIC = 8  # CU_MEM_HANDLE_TYPE_FABRIC
FLAGS = [f"--libcuda={LIBRARY}"]

# So that the arrays here take several rounds of the ring.
LIMITS = cairn.Limits(ring_slot_bytes=1 << 16)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setenv("CAIRN_LIBCUDA", str(LIBRARY))
    gpu = StandInGpu()
    yield gpu
    gpu.reset()


@pytest.fixture
def workers(gpu, tmp_path, monkeypatch):
    """Sets the stand-in in the agents' workers that start from now on."""
    path = tmp_path / "settings"
    monkeypatch.setenv("STAND_IN_CUDA", str(path))

    def write(*lines):
        path.write_text("".join(f"{line}\n" for line in lines))

    write()
    return write


@pytest.fixture
def cluster(gpu, tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "checkpoints", agent_flags=FLAGS) as cluster:
        yield cluster


def noise(elements, seed):
    return numpy.random.default_rng(seed).integers(0, 256, elements, numpy.uint8)


def worker_of(cluster, rank=0):
    """Returns the process that has the GPU memory; None if there is none."""
    for children in pathlib.Path(f"/proc/{cluster.agents[rank].pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            for pid in children.read_text().split():
                return int(pid)
    return None


def maps_of(pid):
    """Returns what a process has mapped; nothing if it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def check(client, state, step=None):
    """Loads, on the host, and compares."""
    target = {name: numpy.zeros_like(array.values) for name, array in state.items()}
    client.load(target, step=step, strict=False)
    for name, array in state.items():
        assert target[name].tobytes() == array.values.tobytes(), name


# How memory is made that takes each path.
MADE = {"device-vmm": {"by_handles": True}, "device-fabric": {"by_handles": True, "handle_types": FABRIC},
        "device-ipc": {}}


@pytest.mark.parametrize("path", MADE)
def test_a_sharded_state_on_two_devices_is_saved_and_loaded_in_another_layout(gpu, workers, tmp_path, path):
    before, after = layout(2, 1, 2), layout(1, 2, 2)
    gpu.set("fabric", 1)
    workers("set fabric 1")

    def work(rank, client):
        state = {}
        for name, shard in before(rank).items():
            array = gpu.array(shard.array, device=rank % 2, **MADE[path])
            state[name] = cairn.Shard(array, shard.global_shape, shard.offset, shard.shape, shard.flat_range)
        client.prepare(state)
        for step in range(2):
            saving = client.save(step, state)
            saving.wait()
            if saving.device is not None:
                assert saving.device.path == path, saving.device
                assert saving.device.fallback == ""
                assert saving.device.bytes_by_path == {path: saving.device.bytes}
                assert saving.device.checked > 0 and saving.device.unchecked == ""
                assert saving.staging.path == path
        target = {name: cairn.Shard(numpy.zeros_like(shard.array), shard.global_shape, shard.offset, shard.shape,
                                    shard.flat_range) for name, shard in after(rank).items()}
        client.load(target)
        for name, shard in after(rank).items():
            assert target[name].array.tobytes() == shard.array.tobytes(), (rank, name)

    with cairn.local.Cluster(ranks=4, root=tmp_path / "checkpoints", agent_flags=FLAGS) as cluster:
        on_ranks(cluster, work, limits=LIMITS, share_gpu_memory=True)
    assert gpu.count("cuMemHostRegister_v2") == 0, "the trainers themselves pin nothing"


def test_an_array_of_many_allocations_is_offered_once_and_copied_again_as_it_is_then(gpu, cluster):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"large": gpu.array(noise(150 * PIECE + 77, 1), by_handles=True),
                 "small": gpu.array(noise(1000, 2), by_handles=True, device=1),
                 "host": numpy.arange(10)}
        for step in range(2):
            saving = client.save(step, state)
            saving.wait()
            assert saving.device.path == "device-vmm"
            assert saving.device.copies == 151 + 1
            assert saving.device.shared_bytes == 152 * PIECE
            check(client, {name: array for name, array in state.items() if name != "host"}, step)
            state["large"].values[...] += 1
        assert gpu.count("cuMemExportToShareableHandle") == 152, "once for each allocation"


@pytest.mark.parametrize("flags", [FLAGS, ["--libcuda=/nowhere"]], ids=["shared", "refused"])
def test_prepare_shares_memory_ahead_of_the_first_save(gpu, tmp_path, probe, flags):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "checkpoints", agent_flags=flags) as cluster:
        with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
            state = {"w": gpu.array(noise(3 * PIECE + 1, 1), by_handles=True), "n": 3}
            offers = []
            probe("call", lambda name, **_: name == "OfferDeviceMemory" and offers.append(name))
            client.prepare(state)
            assert len(offers) == 1
            if flags is FLAGS:
                until(lambda: worker_of(cluster) is not None, text="a worker, though nothing is saved yet")
            before = worker_of(cluster)
            saving = client.save(1, state)
            saving.wait()
            assert saving.device.path == ("device-vmm" if flags is FLAGS else "pinned-slab"), saving.device
            assert (saving.device.fallback == "") == (flags is FLAGS)
            if flags is FLAGS:
                assert len(offers) == 1 and worker_of(cluster) == before
            check(client, {"w": state["w"]})
            gpu.reset()


def test_work_that_the_trainers_streams_still_have_is_waited_for(gpu, cluster):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        array = gpu.array(noise(1000, 1), by_handles=True, stream=gpu.stream())
        gpu.set("copy_delay_us", 200_000)
        kept = array.enqueue(noise(1000, 2), stream=gpu.stream())
        saving = client.save(1, {"w": array})
        gpu.set("copy_delay_us", 0)
        saving.wait()
        assert saving.device.path == "device-vmm"
        target = {"w": numpy.zeros(1000, numpy.uint8)}
        client.load(target)
        assert (target["w"] == noise(1000, 2)).all()
        del kept
    gpu.close()


def test_memory_that_is_freed_between_saves_is_given_back_by_the_next_one(gpu, cluster):
    before = gpu.count("used_device_bytes")
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        first, second = (gpu.array(noise(PIECE, seed), by_handles=True) for seed in (1, 2))
        client.save(1, {"a": first, "b": second}).wait()
        second.free()
        assert gpu.count("used_device_bytes") == before + 2 * PIECE, "the agent still has it"
        third = gpu.array(noise(PIECE, 3), by_handles=True)
        saving = client.save(2, {"a": first, "b": third})
        saving.wait()
        assert (saving.device.shared_bytes, saving.device.freed_bytes) == (2 * PIECE, PIECE)
        check(client, {"a": first, "b": third})
        until(lambda: gpu.count("used_device_bytes") == before + 2 * PIECE, text="the agent gives it back")


def test_memory_that_is_made_anew_at_the_same_address_is_another(gpu, cluster):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        array = gpu.array(noise(PIECE, 1), by_handles=True)
        for step in range(3):
            client.save(step, {"w": array}).wait()
            check(client, {"w": array}, step)
            array.remake()
            array.values[...] = noise(PIECE, 10 + step)


def test_arrays_that_are_not_contiguous_are_copied_by_the_trainer_and_the_report_says_so(gpu, cluster):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"plain": gpu.array(noise(5000, 1), by_handles=True),
                 "turned": gpu.array(noise(6000, 2).reshape(60, 100).T, by_handles=True),
                 "empty": gpu.array(numpy.zeros((0, 3), "float32"))}
        saving = client.save(1, state)
        saving.wait()
        assert saving.device.bytes_by_path == {"device-vmm": 5000, "pinned-ring": 6000}
        assert saving.device.path == "pinned-ring"
        assert saving.device.fallback.startswith("'turned' is not contiguous"), saving.device.fallback
        check(client, state)


def test_memory_that_cannot_be_exported_is_copied_by_the_trainer_and_the_report_says_so(gpu, cluster):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"w": gpu.array(noise(5000, 1), by_handles=True, handle_types=0)}
        saving = client.save(1, state)
        saving.wait()
        assert saving.device.path == "pinned-slab"
        assert "'w': its allocator asked for memory that cannot be exported" in saving.device.fallback
        assert saving.staging.fallback == saving.device.fallback
        assert worker_of(cluster) is None
        check(client, state)


def test_memory_with_fabric_handles_is_offered_once_and_other_memory_goes_by_descriptors(gpu, workers, cluster):
    gpu.set("fabric", 1)
    workers("set fabric 1")
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"fabric": gpu.array(noise(3 * PIECE, 1), by_handles=True, handle_types=FABRIC),
                 "both": gpu.array(noise(1000, 2), by_handles=True, handle_types=FABRIC | 1)}
        for step in range(2):
            saving = client.save(step, state)
            saving.wait()
            assert saving.device.bytes_by_path == {"device-fabric": 3 * PIECE, "device-vmm": 1000}
            assert saving.device.path == "device-fabric"
            assert saving.device.checked == 2
            check(client, state, step)
            state["fabric"].values[...] += 1
        assert gpu.count("cuMemExportToShareableHandle") == 4, "once for each allocation"
        state["fabric"].remake()
        state["fabric"].values[...] = 7
        saving = client.save(2, state)
        saving.wait()
        assert saving.device.freed_bytes == 3 * PIECE
        check(client, state, 2)


def test_an_agent_that_may_not_use_the_fabric_leaves_the_copies_to_the_trainer(gpu, workers, cluster):
    gpu.set("fabric", 1)
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"w": gpu.array(noise(5000, 1), by_handles=True, handle_types=FABRIC)}
        saving = client.save(1, state)
        saving.wait()
        assert saving.device.path == "pinned-slab"
        assert "cuMemImportFromShareableHandle" in saving.device.fallback
        check(client, state)


def test_an_agent_that_does_not_see_the_driver_leaves_the_copies_to_the_trainer(gpu, tmp_path):
    flags = ["--libcuda=/nowhere/libcuda.so"]
    with cairn.local.Cluster(ranks=1, root=tmp_path / "checkpoints", agent_flags=flags) as cluster:
        with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
            for by_handles in (True, False):
                state = {"w": gpu.array(noise(5000, 1), by_handles=by_handles)}
                for step in range(3):
                    saving = client.save(10 * by_handles + step, state, overwrite=True)
                    saving.wait()
                    assert saving.device.path == "pinned-slab"
                    assert "/nowhere/libcuda.so" in saving.device.fallback, saving.device.fallback


def test_a_client_that_shares_nothing_starts_no_worker(gpu, cluster):
    with cluster.connect(0, limits=LIMITS) as client:
        saving = client.save(1, {"w": gpu.array(noise(5000, 1), by_handles=True)})
        saving.wait()
        assert saving.device.path == "pinned-slab"
        assert worker_of(cluster) is None


def test_a_worker_that_is_killed_between_saves_is_replaced(gpu, cluster):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"w": gpu.array(noise(5000, 1), by_handles=True)}
        client.save(1, state).wait()
        os.kill(worker_of(cluster), signal.SIGKILL)
        saving = client.save(2, state)
        saving.wait()
        assert saving.device.path == "device-vmm"
        check(client, state)


@pytest.mark.parametrize("frees", [True, False])
def test_memory_that_is_new_after_a_worker_was_killed_is_saved_with_the_rest(gpu, cluster, frees):
    """The next worker gets the new memory first: what the last one had is offered anew."""
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        first, second = (gpu.array(noise(PIECE, seed), by_handles=True) for seed in (1, 2))
        client.save(1, {"a": first, "b": second}).wait()
        os.kill(worker_of(cluster), signal.SIGKILL)
        if frees:
            second.free()
            state = {"a": first, "b": gpu.array(noise(PIECE, 3), by_handles=True)}
        else:
            state = {"a": first, "b": second, "c": gpu.array(noise(PIECE, 3), by_handles=True)}
        saving = client.save(2, state)
        saving.wait()
        assert saving.device.path == "device-vmm"
        check(client, state)


def test_memory_that_is_freed_is_given_back_by_a_save_without_arrays_on_gpus(gpu, cluster):
    before = gpu.count("used_device_bytes")
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        array = gpu.array(noise(PIECE, 1), by_handles=True)
        client.save(1, {"w": array}).wait()
        array.free()
        client.save(2, {"w": noise(PIECE, 1)}).wait()
        until(lambda: gpu.count("used_device_bytes") == before, text="the agent gives it back")


def test_a_worker_that_is_killed_while_it_copies_ends_the_save_and_the_next_one_works(gpu, workers, cluster):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"w": gpu.array(noise(5000, 1), by_handles=True)}
        workers("set engine_stopped 2")
        caught = []

        def kill():
            until(lambda: worker_of(cluster) is not None, text="a worker")
            pid = worker_of(cluster)
            until(lambda: "slab" in maps_of(pid), text="it has the slab")
            os.kill(pid, signal.SIGKILL)

        caught = _beside(kill, lambda: client.save(1, state))
        assert caught.reason == "DEVICE_ERROR", caught
        assert "signal 9" in caught.message, caught
        workers()
        saving = client.save(2, state)
        saving.wait()
        assert saving.device.path == "device-vmm"
        check(client, state)


def _beside(other, call):
    """Returns the Error of a call, while another thread does something."""
    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    with pytest.raises(cairn.Error) as error:
        call()
    thread.join(30)
    assert not thread.is_alive()
    return error.value


@pytest.mark.parametrize("call", ["cuEventSynchronize", "cuMemImportFromShareableHandle"])
def test_a_worker_that_hangs_ends_the_save_by_its_deadline_and_the_next_one_works(gpu, workers, cluster, call):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"w": gpu.array(noise(5000, 1), by_handles=True)}
        workers(f"hang {call}")
        begun = time.monotonic()
        with pytest.raises(cairn.Error) as error:
            client.save(1, state, timeout=2)
        assert time.monotonic() - begun < 12
        assert error.value.reason in ("DEVICE_STALLED", "RANK_LATE"), error.value
        workers()
        saving = client.save(2, state, timeout=60)
        saving.wait()
        check(client, state)
        saving = client.save(3, state)
        saving.wait()
        assert saving.device.path == "device-vmm", saving.device


def test_a_driver_that_fails_in_the_worker_ends_the_save_with_its_call(gpu, workers, cluster):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"w": gpu.array(noise(5000, 1), by_handles=True)}
        workers("fail cuMemcpyDtoHAsync_v2 2 700")
        with raises_error("DEVICE_ERROR") as error:
            client.save(1, state)
        assert "cuMemcpyDtoHAsync: CUDA_ERROR_ILLEGAL_ADDRESS" in error.value.message
        workers()
        assert client.save(2, state).wait().step == 2


def test_an_agent_that_restarts_gets_the_memory_anew(gpu, cluster):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"w": gpu.array(noise(PIECE, 1), by_handles=True)}
        client.save(1, state).wait()
        worker = worker_of(cluster)
        cluster.agents[0].restart()
        until(lambda: not maps_of(worker), text="the end of the worker with its agent")
        saving = client.save(2, state)
        saving.wait()
        assert saving.device.path == "device-vmm"
        check(client, state)


def test_a_client_that_is_closed_gets_everything_back(gpu, cluster):
    before = gpu.count("used_device_bytes")
    array = gpu.array(noise(PIECE, 1), by_handles=True)
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        client.save(1, {"w": array}).wait()
        assert worker_of(cluster) is not None
    array.free()
    until(lambda: worker_of(cluster) is None, text="the worker ends")
    until(lambda: gpu.count("used_device_bytes") == before, text="the memory is given back")


def test_a_load_and_a_reshard_are_as_ever(gpu, cluster):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"w": gpu.array(noise(5000, 1), by_handles=True)}
        client.save(1, state).wait()
        target = {"w": gpu.array(numpy.zeros(5000, numpy.uint8), by_handles=True)}
        assert client.load(target).device.path == "pinned-ring"
        assert (target["w"].values == noise(5000, 1)).all()
        target["w"].values[...] = 0
        client.reshard(state, target)
        assert (target["w"].values == noise(5000, 1)).all()


def test_an_overlapped_save_is_copied_by_the_trainer_and_says_so(gpu, cluster):
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"w": gpu.array(noise(5000, 1), by_handles=True)}
        saving = client.save(1, state, overlap=[state["w"]])
        saving.wait()
        assert saving.staging.overlapped
        assert saving.staging.path == "pinned-slab"
        assert "overlapped" in saving.staging.fallback
        check(client, state)


# A trainer that saves once, and then says how. "hang": its save's copy does not begin.
TRAINER = """
import os, sys, threading, numpy, cairn
from testing.stand_in_gpu import LIBRARY, StandInGpu
os.environ["CAIRN_LIBCUDA"] = str(LIBRARY)
gpu = StandInGpu()
values = numpy.random.default_rng(5).integers(0, 256, 100_000, numpy.uint8)
state = {"w": gpu.array(values, by_handles=sys.argv[2] == "vmm")}
if sys.argv[3:4] == ["other"]:
    import grpc._channel  # the other user may not read the interpreter's directory
    os.setgroups([]), os.setresgid(54321, 54321, 54321), os.setresuid(54321, 54321, 54321)
client = cairn.connect(sys.argv[1], share_gpu_memory=True)
saving = client.save(1, state)
saving.wait()
print(saving.device.path, "|", saving.device.fallback, flush=True)
if sys.argv[3:4] == ["stay"]:
    threading.Event().wait()
"""


def trainer(cluster, *arguments, prefix=()):
    return subprocess.Popen([*prefix, sys.executable, "-c", TRAINER, cluster.agents[0].address, *arguments], text=True,
                            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def test_a_trainer_that_is_killed_leaves_no_worker_and_its_successor_is_served(gpu, cluster):
    first = trainer(cluster, "vmm", "stay")
    assert first.stdout.readline().startswith("device-vmm |")
    assert worker_of(cluster) is not None
    first.kill()
    first.wait()
    until(lambda: worker_of(cluster) is None, text="the worker ends")
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"w": gpu.array(noise(100_000, 1), by_handles=True)}
        saving = client.save(2, state)
        saving.wait()
        assert saving.device.path == "device-vmm"
        check(client, state)


def test_a_trainer_that_is_killed_while_the_agent_copies_ends_the_attempt(gpu, workers, cluster):
    workers("set engine_stopped 2")
    first = trainer(cluster, "vmm")
    until(lambda: worker_of(cluster) is not None, text="a worker")
    pid = worker_of(cluster)
    until(lambda: "slab" in maps_of(pid), text="it has the slab")
    first.kill()
    first.wait()
    until(lambda: worker_of(cluster) is None, text="the worker ends")
    workers()
    with cluster.connect(0, limits=LIMITS, share_gpu_memory=True) as client:
        state = {"w": gpu.array(noise(100_000, 1), by_handles=True)}
        assert client.save(1, state).wait().step == 1
        check(client, state)


def unshare():
    """Returns how a process is started in a PID namespace of its own; skips the test where that is not allowed."""
    prefix = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
    if os.geteuid() == 0:
        prefix = ("unshare", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine has no namespaces for tests")
    return prefix


@pytest.mark.parametrize(("memory", "path"), [("vmm", "device-vmm"), ("ipc", "pinned-slab")])
def test_a_trainer_in_another_pid_namespace_shares_by_descriptors_alone(gpu, cluster, memory, path):
    child = trainer(cluster, memory, prefix=unshare())
    line = child.stdout.readline()
    assert child.wait() == 0
    assert line.startswith(f"{path} |"), line
    assert ("cuIpcOpenMemHandle" in line) == (memory == "ipc"), line
    with cluster.connect(0, limits=LIMITS) as client:
        target = {"w": numpy.zeros(100_000, numpy.uint8)}
        client.load(target)
        assert (target["w"] == numpy.random.default_rng(5).integers(0, 256, 100_000, numpy.uint8)).all()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("namespace", [False, True], ids=["same-namespace", "another-namespace"])
def test_a_trainer_of_another_user_without_rights_shares_by_descriptors(gpu, tmp_path, namespace):
    flags = [*FLAGS, "--allow-uid=54321"]
    with cairn.local.Cluster(ranks=1, root=tmp_path / "checkpoints", agent_flags=flags) as cluster:
        for directory in pathlib.Path(cluster.agents[0].address.removeprefix("unix:")).parents[:2]:
            directory.chmod(0o711)
        child = trainer(cluster, "vmm", "other", prefix=unshare() if namespace else ())
        line = child.stdout.readline()
        assert child.wait() == 0
        assert line == "device-vmm | \n"
        with cluster.connect(0, limits=LIMITS) as client:
            target = {"w": numpy.zeros(100_000, numpy.uint8)}
            client.load(target)
            assert (target["w"] == numpy.random.default_rng(5).integers(0, 256, 100_000, numpy.uint8)).all()
