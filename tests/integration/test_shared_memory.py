"""Tests memory that processes share: who may still write it, who reads it, and how long it is kept. The agents and
trainers are real."""

import array
import ctypes
import itertools
import mmap
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import cairn
from cairn._base import probes
from testing.errors import raises_error
from testing.ranks import blank, noise, on_ranks, open_descriptors, rows, until

FLAGS = {"coordinator_flags": ["--phase-timeout=20s", "--lease-ttl=2s"]}
SHAPE = (256, 1024)


def values(step: int) -> dict:
    return {"w": np.full(SHAPE, step, np.int32), "step": step}


def check(client, step: int) -> None:
    target = {"w": np.zeros(SHAPE, np.int32)}
    assert client.load(target, step).objects["step"] == step
    assert (target["w"] == step).all(), f"step {step} holds values of another one"


def slabs_made(cluster, rank: int = 0) -> int:
    return cluster.agents[rank].log.read_text().count("event=slab_made")


def spawn(cluster, code: str, *arguments: str) -> subprocess.Popen:
    paths = os.pathsep.join([str(pathlib.Path(cairn.__file__).parents[1]), str(pathlib.Path(__file__).parents[1])])
    return cluster.spawn([sys.executable, "-c", code, cluster.agents[0].address, *arguments], stdout=subprocess.PIPE,
                         text=True, env={**os.environ, "PYTHONPATH": paths})


# Nobody may take memory that another process can still write for an image.

LATE = """
import os, signal, sys
import numpy as np
import cairn
from cairn._base import probes
client = cairn.connect(sys.argv[1])
probes.add("copy", lambda **_: os.kill(os.getpid(), signal.SIGSTOP))
probes.add("copied", lambda **_: print("copied", flush=True))
try:
    client.save(1, {"w": np.full((256, 1024), 1, np.int32), "step": 1}, timeout=1)
    print("saved", flush=True)
except cairn.Error as error:
    print(error.reason, flush=True)
"""


def test_trainer_that_copies_after_its_successor_has_staged(root):
    with cairn.local.Cluster(ranks=1, root=root, **FLAGS) as cluster:
        first = spawn(cluster, LATE)
        _, status = os.waitpid(first.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        until(lambda: "state=ABORTED" in cluster.coordinator.log.read_text(), text="the end of the first one's save")
        told = []

        def overtaken(**_):
            first.send_signal(signal.SIGCONT)
            told.append(first.stdout.readline().strip())

        with probes.at("copied", overtaken), cluster.connect(0) as client:
            client.save(2, values(2)).wait()
            assert told == ["copied"]
            check(client, 2)
            assert client.checkpoints() == [2]
        assert first.stdout.readline().strip() == "STALE_INCARNATION"
        first.wait()


def test_client_that_is_closed_while_another_thread_copies(root, probe):
    with cairn.local.Cluster(ranks=1, root=root, **FLAGS) as cluster:
        copying, go_on, first_copied = threading.Event(), threading.Event(), threading.Event()

        def step_of(declared):
            return int(declared.shards[0].array[0, 0])

        def begins(declared, **_):
            if step_of(declared) == 1:
                copying.set()
                assert go_on.wait(60)

        def ends(declared, **_):
            if step_of(declared) == 1:
                first_copied.set()
            if step_of(declared) == 2:
                go_on.set()
                assert first_copied.wait(60)

        probe("copy", begins)
        probe("copied", ends)
        first = cluster.connect(0)
        outcome = []

        def save():
            try:
                outcome.append(first.save(1, values(1)))
            except cairn.Error as error:
                outcome.append(error)

        thread = threading.Thread(target=save)
        thread.start()
        assert copying.wait(60)
        first.close()
        with cluster.connect(0) as second:
            second.save(2, values(2)).wait()
            check(second, 2)
        thread.join(60)
        assert isinstance(outcome[0], cairn.Error), outcome


def test_save_beside_one_that_hangs_in_its_copy_is_told_so(root):
    with cairn.local.Cluster(ranks=1, root=root, **FLAGS) as cluster:
        copying, go_on = threading.Event(), threading.Event()

        def hanging(**_):
            copying.set()
            assert go_on.wait(60)

        with cluster.connect(0) as client:
            with probes.at("copy", hanging):
                outcome = []
                thread = threading.Thread(target=lambda: outcome.append(client.save(1, values(1))))
                thread.start()
                assert copying.wait(60)
                with raises_error("SAVE_IN_PROGRESS"):
                    client.save(2, values(2), timeout=0.2)
                go_on.set()
                thread.join(60)
            outcome[0].wait()
            client.save(2, values(2)).wait()
            check(client, 1)
            check(client, 2)


SAVER = """
import sys, threading
import numpy as np
import cairn
step = int(sys.argv[2])
client = cairn.connect(sys.argv[1])
client.save(step, {"w": np.full((256, 1024), step, np.int32), "step": step}).wait()
print("saved", flush=True)
threading.Event().wait()
"""


def test_slab_is_handed_on_when_its_writer_is_closed_or_dead_and_only_then(root):
    with cairn.local.Cluster(ranks=1, root=root, **FLAGS) as cluster:
        for step in (1, 2):
            with cluster.connect(0) as client:
                client.save(step, values(step)).wait()
        assert slabs_made(cluster) == 1, "closed clients have unmapped it"
        process = spawn(cluster, SAVER, "3")
        assert process.stdout.readline() == "saved\n"
        process.kill()
        process.wait()
        until(lambda: "event=trainer_ended" in cluster.agents[0].log.read_text(), text="the trainer's end")
        left_open = cluster.connect(0)
        left_open.save(4, values(4)).wait()
        assert slabs_made(cluster) == 1, "a dead process writes nothing"
        left_open._watch.stop()  # on a busy machine it would see in time that it is replaced, and give its memory up
        with cluster.connect(0) as client:
            client.save(5, values(5)).wait()
            assert slabs_made(cluster) == 2, "the other client lives"
            for step in range(1, 6):
                check(client, step)
        left_open.close()


def test_closed_client_has_nothing_mapped_and_forked_children_never_have(root):
    def mapped() -> list[str]:
        return [line for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "memfd:cairn" in line]

    with cairn.local.Cluster(ranks=1, root=root, **FLAGS) as cluster:
        before = set(mapped()) # errors of other tests may hold these
        client = cluster.connect(0)
        client.save(1, values(1)).wait()
        assert len(set(mapped()) - before) == 2, "control page and slab"
        assert open_descriptors("memfd:cairn") == 0
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                client.report_step(7)
            except cairn.Error as error:
                os.write(writer, f"{len(mapped())} {open_descriptors('memfd:cairn')} {error.reason}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        assert os.read(reader, 100) == b"0 0 BAD_REQUEST"
        os.close(reader)
        client.save(2, values(2)).wait()
        client.close()
        assert not [line for line in set(mapped()) - before if "slab" in line]


# Those who read lent memory cannot write it.

def descriptor_of(reference) -> int:
    """Asks for a descriptor as any process of this user may."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.connect(reference.descriptor_socket)
        channel.sendall(struct.pack("<Q", reference.descriptor_id))
        _, ancillary, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(4))
    return array.array("i", ancillary[0][2])[0]


def ways_to_write(reference) -> list[str]:
    """Returns the ways to write the memory that this process finds."""
    found = []
    descriptor = descriptor_of(reference)
    descriptors = [descriptor]
    try:
        descriptors.append(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR))
    except PermissionError:
        pass
    for way in descriptors:
        try:
            mmap.mmap(way, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE).close()
            found.append("mmap")
        except OSError:
            pass
        for name, call in {"pwrite": lambda: os.pwrite(way, b"x", 0), "ftruncate": lambda: os.ftruncate(way, 0),
                           "fallocate": lambda: fallocate_hole(way)}.items():
            try:
                call()
                found.append(name)
            except OSError:
                pass
        os.close(way)
    return found


def fallocate_hole(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    if libc.fallocate(descriptor, 3, 0, 4096) != 0:  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
        raise OSError(ctypes.get_errno(), "fallocate")


@pytest.mark.parametrize("transport", ["mapped", "fetched"])
def test_consumers_cannot_write_what_they_load(root, transport):
    flags = {**FLAGS, "agent_flags": ["--shared-memory=never"]} if transport == "fetched" else FLAGS
    whole = noise((64, 4096), np.float32, 1)
    tried = []

    def trying(batch, buffer):
        tried.append(ways_to_write(batch.buffer))
        with pytest.raises(ValueError):
            buffer.bytes[0] = 1

    with probes.at("receive", trying), cairn.local.Cluster(ranks=2, root=root, **flags) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, {"w": rows(whole, rank, 2)}).wait())

        def load(rank, client):
            for _ in range(2):  # the second one with buffers that were lent before
                target = {"w": np.zeros_like(whole)}
                client.load(target)
                assert target["w"].tobytes() == whole.tobytes()
            target = {"w": np.zeros_like(whole)}
            client.reshard({"w": rows(whole, rank, 2)}, target)
            assert target["w"].tobytes() == whole.tobytes()

        on_ranks(cluster, load)
        assert len(tried) >= 2 * (2 + 2 + 2) and not any(tried), tried


def test_slab_that_was_lent_is_sealed_and_written_again_only_by_its_trainer(root):
    """Rank 0 holds most of the state and lends some of it to rank 1, which writes it."""
    sizes = {0: [20, 20, 20, 10, 10, 10, 10, 5, 5, 5, 5, 2, 2, 2, 1, 1], 1: [15]}

    def state(rank: int, step: int) -> dict:
        return {f"unit{rank}.w{i}": cairn.Shard(noise((size * 1024, 4), np.float32, 100 * rank + i + 1000 * step),
                                                (size * 1024, 4), (0, 0)) for i, size in enumerate(sizes[rank])}

    slabs = {}

    def kept(path, descriptor_id, size, writable):
        if writable and size > 4096:  # the page of the session is smaller
            slabs[descriptor_id] = types.SimpleNamespace(descriptor_socket=path, descriptor_id=descriptor_id)

    def saves(steps):
        def work(rank, client):
            for step in steps:
                client.save(step, state(rank, step)).wait()
        return work

    with probes.at("map", kept), cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        on_ranks(cluster, saves([1, 2, 3]))
        assert "moved_out=0" not in cluster.agents[0].log.read_text()
        assert slabs_made(cluster, 0) == slabs_made(cluster, 1) == 1, "a lent slab serves its own trainer on"
        lent = [reference for reference in slabs.values() if "rank0" in reference.descriptor_socket or
                reference.descriptor_socket.startswith(str(pathlib.Path(cluster.agents[0].address[5:]).parent))]
        assert lent and all(ways_to_write(reference) == [] for reference in lent)
        on_ranks(cluster, saves([4]))
        assert (slabs_made(cluster, 0), slabs_made(cluster, 1)) == (2, 1), "the next one cannot map it to write"

        def load(rank, client):
            for step in (1, 2, 3, 4):
                wanted = state(rank, step)
                target = {name: blank(shard) for name, shard in wanted.items()}
                client.load(target, step)
                for name, shard in wanted.items():
                    assert target[name].array.tobytes() == shard.array.tobytes(), (step, name)

        on_ranks(cluster, load)


# The agent does not keep memory without end.

def test_a_loop_of_layouts_leaves_room_for_what_comes(root):
    whole = noise((400, 64), np.float32, 3)
    asked = []

    def counted(name, answer, **_):
        if name in ("BeginLoad", "BeginSave", "Prepare"):
            asked.append(answer.need_layout)

    with probes.at("answered", counted), cairn.local.Cluster(ranks=1, root=root, **FLAGS) as cluster:
        with cluster.connect(0) as client:
            client.save(1, {"w": whole}).wait()
            for turn in range(300):
                begin = turn % 250  # the last fifty come again, after they were forgotten
                part = cairn.Shard(np.zeros((100, 64), np.float32), whole.shape, (begin, 0))
                client.load({"w": part}, 1)
                assert part.array.tobytes() == whole[begin:begin + 100].tobytes()
            client.reshard({"w": whole}, {"w": np.zeros_like(whole)})
            client.save(2, {"w": whole}).wait()
        with cluster.connect(0) as client:
            client.save(3, {"w": whole}).wait()
            client.load({"w": np.zeros_like(whole)}, 3)
        assert not any(one and other for one, other in itertools.pairwise(asked))
