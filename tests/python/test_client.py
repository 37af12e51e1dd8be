"""The client against an agent in this process."""

import contextlib
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading

import grpc
import numpy as np
import pytest

import cairn
from cairn._base import native, probes
from cairn._session import job_requests
from testing.errors import raises_error
from testing.fake_agent import Refusal
from testing.ranks import until


def noise(shape, dtype, seed=0):
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(count), dtype).reshape(shape).copy()


def test_save_then_load_every_dtype_and_memory_order(client):
    dtypes = [np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64, np.float16,
              np.float32, np.float64, np.complex64, np.complex128]
    state, target = {}, {}
    for number, dtype in enumerate(dtypes):
        value = noise((6, 5, 4), np.uint8 if dtype is np.bool_ else dtype, number)
        value = (value & 1).astype(bool) if dtype is np.bool_ else value
        orders = {
            "plain": value,
            "transposed": value.T,
            "sliced": value[::2, 1:, ::-1],
            "scalar": value[0, 0, 0:1][0:1].reshape(()),
            "empty": value[:0],
        }
        for order, array in orders.items():
            state[f"{np.dtype(dtype).name}.{order}"] = array
            # Loads into yet another memory order.
            target[f"{np.dtype(dtype).name}.{order}"] = np.zeros(array.shape[::-1], array.dtype).T
    checkpoint = client.save(3, state).wait()
    assert (checkpoint.step, checkpoint.job) == (3, "demo")
    report = client.load(target)
    assert report.step == 3 and report.path == "cached"
    for name, array in state.items():
        assert target[name].tobytes() == array.tobytes(), name


def test_load_into_other_boxes(client):
    whole = noise((40, 30), np.float32)
    client.save(1, {"w": cairn.Shard(whole, (40, 30), (0, 0))}).wait()
    part = np.zeros((7, 30), np.float32)
    inner = np.zeros((5, 11), np.float32)
    client.load({"w": [cairn.Shard(part, (40, 30), (33, 0)), cairn.Shard(inner, (40, 30), (2, 19))]})
    assert part.tobytes() == whole[33:].tobytes() and inner.tobytes() == whole[2:7, 19:].tobytes()


def test_raw_dtypes_keep_their_bits(client):
    bits = noise((16,), np.uint16)
    client.save(1, {"b": cairn.Shard(bits, (16,), (0,), dtype="bfloat16")}).wait()
    out = np.zeros(16, np.int16)
    client.load({"b": cairn.Shard(out, (16,), (0,), dtype="bfloat16")})
    assert out.tobytes() == bits.tobytes()


def test_objects_come_back_as_they_were(client):
    objects = {"bytes": b"\x00\xff" * 5000, "json": {"a": [1, 2.5, None, True, "ü"]}, "number": 7, "none": None,
               "infinite": float("inf"), "tuple": {"betas": (0.9, 0.999)}, "keys": {1: "one", (2, 3): b"x"},
               "tag": {"$cairn": "dict"}, "empty": b""}
    client.save(5, {**objects, "mine": cairn.per_rank([1, 2])}).wait()
    report = client.load({})  # undeclared objects are given too
    assert report.objects == {**objects, "mine": [1, 2]}
    assert type(report.objects["tuple"]["betas"]) is tuple


def test_per_rank_objects_of_another_world_are_all_given(agent, client):
    client.save(1, {"mine": cairn.per_rank("r0")}).wait()
    agent.saved_world = 2
    agent.per_rank_objects = {"mine": {0: b'\x01"r0"', 1: b'\x01"r1"'}}
    assert client.load({"mine": cairn.per_rank(None)}).objects == {"mine": ["r0", "r1"]}


def test_layout_is_sent_once_and_again_when_asked_for(agent, client):
    state = {"w": np.arange(10), "step": 1}
    client.prepare(state)
    client.save(1, state).wait()
    state["step"] = 123456  # within its slot
    client.save(2, state).wait()
    assert agent.layout_uploads == 1
    agent.forget_layouts = True
    client.save(3, state).wait()
    assert agent.layout_uploads == 2
    state["w"] = np.arange(11)
    client.save(4, state).wait()
    assert agent.layout_uploads == 3


def test_pending_answers_are_asked_again(agent, client):
    agent.pending_calls = 3
    client.prepare({"w": np.zeros(4)})
    agent.pending_calls = 2
    saving = client.save(1, {"w": np.zeros(4)})
    agent.pending_calls = 2
    assert saving.wait().step == 1
    agent.pending_calls = 1
    client.load({"w": np.zeros(4)})
    assert agent.pending_calls == 0


def test_checksums_are_those_of_the_packed_bytes(agent, client):
    agent.check_items = True
    array = noise((64, 33), np.float32)
    client.save(1, {"a": array.T, "z": b"123456789"})
    expected = native.CopyList()
    packed = np.ascontiguousarray(array.T)
    expected.add_array(packed, 0, -1, 0)
    content = np.frombuffer(b"\x00123456789", np.uint8)
    expected.add_array(content, 0, -1, 0)
    assert agent.checksums == expected.checksums()
    # The published check value of CRC-32C (RFC 3720 has the polynomial).
    check = native.CopyList()
    digits = np.frombuffer(b"123456789", np.uint8)
    check.add_array(digits, 0, -1, 0)
    assert check.checksums() == [0xE3069283]


def test_samples_are_of_the_first_items_that_were_offered(agent, client):
    state = {f"w{i}": np.full(100, i, np.int64) for i in range(6)}
    agent.check_items = True
    client.save(1, state)
    everything, agent.check_items, agent.may_check = agent.checksums, False, [4, 5, 0, 1]
    for step in range(2, 100):
        client.save(step, state)
        assert agent.checksums == [] and agent.sampled == [everything[i] for i in agent.may_check][:len(agent.sampled)]
        if agent.sampled:
            break
    else:
        raise AssertionError("nothing was ever sampled")


def test_batches_given_twice_are_copied_once(agent, client):
    agent.repeat_batches = True
    state = {f"w{i}": noise((50,), np.int32, i) for i in range(7)}
    client.save(1, state).wait()
    target = {name: np.zeros_like(array) for name, array in state.items()}
    client.load(target)
    assert all((target[name] == state[name]).all() for name in state)


def test_refusals_arrive_with_reason_and_metadata(agent, client):
    agent.refuse["BeginSave"] = [Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, "RANK_LATE", "rank 3 is late",
                                         {"ranks": "3", "phase": "staging"})]
    with raises_error("RANK_LATE") as caught:
        client.save(1, {"w": np.zeros(3)})
    assert caught.value.metadata == {"ranks": "3", "phase": "staging"}
    assert "rank 3 is late" in str(caught.value)


def test_aborted_save_raises_its_outcome_each_time(agent, client):
    saving = client.save(1, {"w": np.zeros(3)})
    agent.outcome = Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "NO_SPACE", "disk full")
    for _ in range(2):
        with raises_error("NO_SPACE"):
            saving.wait()
    assert client.save(1, {"w": np.zeros(3)}).wait().step == 1


def test_save_whose_agent_waited_for_the_slab_in_vain_begins_no_other_attempt(agent, client):
    """The agent waits for it. Its refusal is how the attempt ended on all ranks: nobody would come to another one."""
    agent.refuse["BeginSave"] = [Refusal(grpc.StatusCode.UNAVAILABLE, "SAVE_IN_PROGRESS", "step 1 is being written")]
    with raises_error("SAVE_IN_PROGRESS"):
        client.save(2, {"w": np.zeros(3)})
    assert client.save(3, {"w": np.zeros(3)}).wait().step == 3


def test_wait_that_times_out_leaves_the_save_going_on(agent, client):
    saving = client.save(1, {"w": np.zeros(3)})
    agent.pending_calls = 10**9
    with raises_error("TIMED_OUT"):
        saving.wait(timeout=0.05)
    agent.pending_calls = 0
    assert saving.wait().step == 1


def test_save_requested_follows_the_control_page(agent, client):
    def order(step, status):
        struct.pack_into("<Q", agent.page, 16, step << 2 | status)

    assert client.save_requested() is None
    client.report_step(9)
    assert client.save_requested() is None
    order(10, 2)
    assert client.save_requested() is None  # not the step just reported
    client.report_step(10)
    assert client.save_requested() == 10
    order(11, 1)
    threading.Timer(0.1, order, (11, 2)).start()
    client.report_step(11)
    assert client.save_requested() == 11  # waited for the agreement
    order(12, 1)
    threading.Timer(0.1, struct.pack_into, ("<Q", agent.page, 16, 0)).start()
    client.report_step(12)
    assert client.save_requested() is None  # cleared meanwhile


def test_limits_that_are_none_are_refused(agent):
    with raises_error("BAD_REQUEST"):
        cairn.connect(agent.address, limits={"agreement": 0.05})


def test_status_says_what_the_client_holds(agent):
    with cairn.connect(agent.address) as client:
        first = client.status()
        assert (first.slabs, first.mapped_slabs, first.driver_busy, first.driver_waiting) == (0, 0, False, "")
        client.save(1, {"w": np.zeros(3)}).wait()
        assert (client.status().slabs, client.status().mapped_slabs) == (1, 1)
        agent.close()
        agent.start()
        until(lambda: client.status().agent_incarnation not in (0, first.agent_incarnation), text="the next process")
    assert (client.status().slabs, client.status().mapped_slabs) == (0, 0)


@pytest.mark.limits(agreement=0.05)
def test_save_requested_gives_up_on_an_order_that_is_never_decided(agent, client):
    struct.pack_into("<Q", agent.page, 16, 7 << 2 | 1)
    client.report_step(7)
    assert client.save_requested() is None
    assert struct.unpack_from("<Q", agent.page, 24)[0] == 8


def test_error_while_copying_cancels_the_save(agent, client):
    def fail(**_):
        raise KeyboardInterrupt

    with probes.at("copy", fail), pytest.raises(KeyboardInterrupt):
        client.save(1, {"w": np.zeros(3)})
    assert len(agent.cancelled) == 1
    client.save(1, {"w": np.zeros(3)}).wait()
    with probes.at("receive", fail), pytest.raises(KeyboardInterrupt):
        client.load({"w": np.zeros(3)})
    assert agent.ended_with[-1].HasField("error")


def test_load_that_times_out_is_given_up_and_named(agent, client):
    client.save(4, {"w": np.zeros(3)}).wait()
    for call in ("BeginLoad", "EndLoad"):
        agent.replies = {call: {"pending": True}}
        with pytest.raises(cairn.Error) as caught:
            client.load({"w": np.zeros(3)}, step=4, timeout=0.1)
        agent.replies = {}
        assert caught.value.reason == "TIMED_OUT"
        assert caught.value.metadata == {"job": client.job, "rank": "0", "step": "4"}
        assert agent.ended_with[-1].HasField("error"), call
    with pytest.raises(cairn.Error) as caught:
        client.load({"w": np.zeros(3)}, step=9)
    assert caught.value.metadata["job"] == client.job and caught.value.metadata["step"] == "9"


def test_load_reports_paths_of_a_later_agent_as_unknown(agent, client):
    client.save(4, {"w": np.zeros(3)}).wait()
    agent.replies = {"EndLoad": {"io_path": 99, "transports": ["TRANSPORT_NCCL", 98]}}
    report = client.load({"w": np.zeros(3)}, step=4)
    assert report.path == "unknown (99)" and report.transport == "nccl+unknown (98)"


def test_client_of_another_process_is_refused(agent, client):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            client.checkpoints()
        except cairn.Error as error:
            os.write(writer, error.reason.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"BAD_REQUEST"
    assert client.checkpoints() == []


def test_forked_child_is_cut_off_from_the_agent(agent, client):
    """gRPC in the child would take bytes of an answer from the parent's connection."""
    def connections() -> int:
        found = 0
        for name in range(3, 256):
            with contextlib.suppress(OSError), socket.fromfd(name, socket.AF_UNIX, socket.SOCK_STREAM) as each:
                found += f"unix:{each.getpeername()}" == agent.address
        return found

    assert client.checkpoints() == [] and connections() == 1
    child = os.fork()
    if child == 0:
        os._exit(connections())
    assert os.waitpid(child, 0)[1] == 0
    assert connections() == 1 and client.checkpoints() == []


# A trainer that forks while a thread of it is in a load. The child says what it is told.
FORKS_IN_A_CALL = """
import faulthandler, os, sys, threading
import numpy as np
import cairn
from cairn._agent import connection
from testing.ranks import until
address = sys.argv[1]
client = cairn.connect(address)
client.save(4, {"w": np.zeros(3)}).wait()
ended = []
def load():
    try:
        client.load({"w": np.zeros(3)}, step=4, timeout=5)
    except cairn.Error as error:
        ended.append(error.reason)
loading = threading.Thread(target=load)
loading.start()
until(lambda: connection._under_way)
child = os.fork()
if child == 0:
    faulthandler.enable()
    for use in (lambda: cairn.connect(address), client.checkpoints,
                lambda: cairn.checkpoints.pin("demo", 4, coordinator="127.0.0.1:1")):
        try:
            use()
        except cairn.Error as error:
            os.write(1, (str(error).replace("\\n", " ") + "\\n").encode())
    os._exit(0)
status = os.waitpid(child, 0)[1]
loading.join()
print("child", status, "load", *ended, flush=True)
"""


def test_process_forked_during_a_call_is_told_that_it_cannot_connect(agent, monkeypatch):
    """gRPC aborts such a process at times, so nothing of it is used there. A trainer has no server of gRPC, so it is a
    process without one."""
    agent.replies = {"BeginLoad": {"pending": True}}
    environment = {**os.environ, "CAIRN_INSECURE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    trainer = subprocess.run([sys.executable, "-c", FORKS_IN_A_CALL, agent.address], env=environment, text=True,
                             capture_output=True, timeout=120, check=False)
    lines = trainer.stdout.splitlines()
    assert lines[-1:] == ["child 0 load TIMED_OUT"], f"{trainer.stdout}\n{trainer.stderr}"
    connects, uses, asks = lines[:-1]
    for said in (connects, asks):
        assert said.startswith("BAD_REQUEST: this process was forked while") and '"spawn"' in said, said
    assert "before a fork" in uses, uses


def test_list_without_a_step_of_which_storage_does_not_tell_is_an_error(agent, client):
    agent.committed.update({1: (), 2: ()})
    agent.tags = {1: ["old"], 2: ["paper"]}
    assert client.checkpoints() == [1, 2] and client.tags() == {"old": 1, "paper": 2}
    agent.page_size = 1
    assert client.checkpoints() == [1, 2], "all pages are asked for"
    agent.unread = {2: 1}
    with raises_error("STORAGE_ERROR", step="2"):
        client.checkpoints()
    assert client.tags() == {"old": 1, "paper": 2}, "its outcome is not needed for that"
    agent.unread = {2: 0}
    for look in (client.tags, lambda: client.load({}, step="paper")):
        with raises_error("STORAGE_ERROR"):
            look()
    assert job_requests.tagged(client._session, "old") == 1, "another step has it"


def test_close_detaches_and_later_calls_are_refused(agent):
    client = cairn.connect(agent.address)
    client.close()
    client.close()
    assert agent.detached == 1
    with raises_error("BAD_REQUEST"):
        client.checkpoints()


@pytest.mark.parametrize("state, reason", [
    ([1, 2], "BAD_REQUEST"),
    ({"": np.zeros(2)}, "BAD_NAME"),
    ({3: np.zeros(2)}, "BAD_NAME"),
    ({"w": np.zeros(2, ">f4")}, "BAD_DTYPE"),
    ({"w": np.array(["a"])}, "BAD_DTYPE"),
    ({"w": np.array([object()])}, "BAD_DTYPE"),
    ({"w": np.zeros(2, np.longdouble)}, "BAD_DTYPE"),
    ({"w": cairn.Shard(np.zeros(2, np.int16), (2,), (0,), dtype="float32")}, "BAD_DTYPE"),
    ({"w": cairn.Shard(np.zeros(2), (2,), (0,), dtype="float33")}, "BAD_DTYPE"),
    ({"w": cairn.Shard(np.zeros(2), (2, 2), (0,))}, "BAD_SHAPE"),
    ({"w": cairn.Shard(np.zeros(2), (2,), (-1,))}, "BAD_SHAPE"),
    ({"w": cairn.Shard(np.zeros(2), (2,), (0,), shape=(3,))}, "BAD_SHAPE"),
    ({"w": cairn.Shard(np.zeros(2), (4,), (0,), shape=(4,), flat_range=(0, 3))}, "BAD_SHAPE"),
    ({"w": np.float32(1)}, "BAD_REQUEST"),
    ({"w": {"x": {1, 2}}}, "BAD_REQUEST"),
    ({"w": [cairn.Shard(np.zeros(2), (2,), (0,)), 3]}, "BAD_REQUEST"),
    ({"w": [cairn.Shard(np.zeros(2), (2,), (0,)), cairn.Shard(np.ones(2), (2,), (0,))]}, "NAME_COLLISION"),
    ({"w": [cairn.Shard(np.zeros(2), (4,), (0,)), cairn.Shard(np.ones(2), (5,), (2,))]}, "SHAPE_MISMATCH"),
])
def test_what_no_layout_can_say_is_refused(client, state, reason):
    with pytest.raises(cairn.Error) as caught:
        client.save(1, state)
    assert caught.value.reason == reason


def test_other_mistakes_are_refused(client):
    for step in (-1, 10**12, 1.5, "3", True, None):
        with raises_error("BAD_STEP"):
            client.save(step, {"w": np.zeros(2)})
    readonly = np.zeros(2)
    readonly.flags.writeable = False
    client.save(1, {"w": readonly}).wait()
    with raises_error("BAD_REQUEST"):
        client.load({"w": readonly})
    for mapping in (7, {}, {"aoa_statements": "a -> b"}, "{", [1]):
        with raises_error("BAD_REQUEST"):
            client.load({"w": np.zeros(2)}, mapping=mapping)
    with raises_error("INPUT_UNREADABLE"):
        client.load({"w": np.zeros(2)}, mapping=pathlib.Path("absent.aoa"))
    with raises_error("INPUT_UNREADABLE"):
        client.load({"w": np.zeros(2)}, mapping="mappings/absent.aoa")
    with raises_error("BAD_REQUEST"):
        client.load({"w": np.zeros(2)}, mapping=__file__)
    with raises_error("BAD_REQUEST"):
        client.load({"w": np.zeros(2)}, step=1, source="somewhere")
    circle = []
    circle.append(circle)
    with raises_error("BAD_REQUEST"):
        client.save(2, {"x": circle})


def test_layouts_that_the_agent_was_sent_are_not_remembered_for_ever(agent, client):
    for size in range(1, 40):
        client.prepare({"w": np.zeros(size)})
    assert agent.layout_uploads == 39
    for size in range(32, 40):
        client.prepare({"w": np.zeros(size)})
    assert agent.layout_uploads == 39, "the last eight need not be sent again"
    client.prepare({"w": np.zeros(31)})
    assert agent.layout_uploads == 40, "the ninth is forgotten"


def test_two_clients_of_one_process_are_two_sessions(agent):
    with cairn.connect(agent.address) as one, cairn.connect(agent.address) as two:
        assert one._session.incarnation != two._session.incarnation
        one.save(1, {"w": np.zeros(2)}).wait()
        assert two.checkpoints() == [1]
