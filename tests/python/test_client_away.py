"""The client, and an agent that is gone, does not answer, or is another one than before."""

import signal
import struct
import time

import numpy as np
import pytest

import cairn
from cairn._base import probes
from testing.errors import raises_error


@pytest.mark.limits(agent_return=0.3)
def test_agent_that_is_gone_is_named_within_bounded_time(agent, client):
    agent.close()
    started = time.monotonic()
    with pytest.raises(cairn.Error) as caught:
        client.save(1, {"w": np.zeros(3)})
    assert caught.value.reason == "AGENT_UNREACHABLE" and agent.address in caught.value.message
    assert "it is not there: " in caught.value.message and "last error" not in caught.value.message
    assert caught.value.metadata["detail"].startswith("UNAVAILABLE: "), "for those who know gRPC"
    assert time.monotonic() - started < 10
    agent.start()


@pytest.mark.limits(answer_grace=0.3, held_call=0.1)
def test_agent_that_does_not_answer_is_named_within_bounded_time(agent, client):
    agent.hang.add("BeginSave")
    started = time.monotonic()
    with raises_error("AGENT_UNREACHABLE"):
        client.save(1, {"w": np.zeros(3)}, timeout=60)
    assert time.monotonic() - started < 10
    agent.hang.clear()


@pytest.mark.parametrize("name", ["BeginSave", "Prepare", "WaitSave"])
@pytest.mark.limits(answer_grace=60.0, least_grace=0.2, save_grace=0.2)
def test_agent_that_is_frozen_holds_a_call_no_longer_than_its_timeout_allows(agent, client, name):
    state = {"w": np.zeros(3)}
    saving = client.save(1, state) if name == "WaitSave" else None
    agent.hang.add(name)
    calls = {"BeginSave": lambda: client.save(1, state, timeout=0.3),
             "WaitSave": lambda: saving.wait(timeout=0.3),
             "Prepare": lambda: client.prepare(state, timeout=0.3)}
    started = time.monotonic()
    with raises_error("AGENT_UNREACHABLE"):
        calls[name]()
    assert time.monotonic() - started < 20
    agent.hang.clear()


@pytest.mark.parametrize("name", ["BeginSave", "CommitStaging", "WaitSave", "Prepare", "BeginLoad"])
@pytest.mark.limits(agent_return=60.0, least_grace=0.2)
def test_agent_that_is_gone_is_waited_for_no_longer_than_the_call_has(agent, client, name):
    state = {"w": np.zeros(3)}
    saving = client.save(1, state)
    calls = {"BeginSave": lambda timeout: client.save(2, state, timeout=timeout),
             "CommitStaging": lambda timeout: client.save(2, state, timeout=timeout),
             "WaitSave": lambda timeout: saving.wait(timeout=timeout),
             "Prepare": lambda timeout: client.prepare(state, timeout=timeout),
             "BeginLoad": lambda timeout: client.load(state, timeout=timeout)}
    gone = []

    def going(called):
        if called == name and not gone:
            agent.close()
            gone.append(called)

    with probes.at("call", lambda name, **_: going(name)):
        for timeout in (0.3, 2, 20):
            started = time.monotonic()
            with pytest.raises(cairn.Error) as caught:
                calls[name](timeout)
            if gone:  # a busy machine may have been too slow to come so far
                break
    assert gone and time.monotonic() - started < 40
    assert caught.value.reason == "AGENT_UNREACHABLE" and "it is not there: " in caught.value.message
    agent.start()


def test_restarted_agent_is_attached_again(agent, client):
    client.report_step(41)
    agent.close()
    agent.start()
    assert client.save(1, {"w": np.zeros(3)}).wait().step == 1
    client.report_step(42)
    assert struct.unpack_from("<Q", agent.page, 8)[0] == 43


def test_restarted_agent_is_found_without_a_call(agent, client):
    """The trainer only reports steps; the watch on the connection attaches again and repeats the step."""
    client.report_step(41)
    agent.close()
    agent.start()
    deadline = time.monotonic() + 20
    while struct.unpack_from("<Q", agent.page, 8)[0] != 42:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_handler_that_closes_a_client_that_is_attaching_does_not_wait_for_itself(agent, client, monkeypatch):
    client.save(1, {"w": np.ones(4)})
    agent.close()
    took = []

    def close(*_):
        begun = time.monotonic()
        client.close()
        took.append(time.monotonic() - begun)

    before = signal.signal(signal.SIGALRM, close)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(cairn.Error) as refused:
            client.save(2, {"w": np.ones(4)}, timeout=5)
    finally:
        signal.signal(signal.SIGALRM, before)
        agent.start()
    assert refused.value.reason in ("AGENT_UNREACHABLE", "BAD_REQUEST")
    assert len(took) == 1 and took[0] < 8


def test_connect_without_an_address(monkeypatch):
    monkeypatch.delenv("CAIRN_AGENT", raising=False)
    with raises_error("AGENT_UNREACHABLE"):
        cairn.connect()
    with raises_error("AGENT_UNREACHABLE") as caught:
        cairn.connect("unix:/nonexistent/agent.sock", timeout=0.1)
    assert "it is not there: there is no such socket" in caught.value.message
    with raises_error("AGENT_UNREACHABLE"):
        cairn.connect("127.0.0.1:1", timeout=0.1)
