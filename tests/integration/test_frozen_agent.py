"""Agents that freeze in the midst of a trainer's call: it ends soon after its timeout, and says what froze."""

import signal
import time

import numpy as np
import pytest

import cairn
from cairn._base import probes
from testing.ranks import freeze, noise

STATE = {"w": noise((64, 16), np.float32, 1)}


def save(client, timeout):
    client.save(2, STATE, timeout=timeout)


def load(client, timeout):
    client.load({"w": np.zeros_like(STATE["w"])}, step=1, timeout=timeout)


def reshard(client, timeout):
    client.reshard(STATE, {"w": np.zeros_like(STATE["w"])}, timeout=timeout)


@pytest.fixture
def agent(tmp_path):
    """The agent of a job of one rank, which has a step to load."""
    with cairn.local.Cluster(ranks=1, root=tmp_path) as cluster:
        with cluster.connect(0) as client:
            client.save(1, STATE).wait(60)
        yield cluster.agents[0]


def beside_frozen(agent, what, name, before) -> cairn.Error:
    """Lets a client do `what`. The agent freezes before its first call of this name, or after the first one by whose
    answer the work goes on. Returns the error, which must come soon after the timeout."""
    made = []

    def goes_on(answer):
        return answer.batches if name == "ReceiveLoad" else not answer.pending and not answer.need_layout

    def freezing(called, request, answer=None):
        gives_up = called == "EndLoad" and request.HasField("error")
        if called == name and not gives_up and not made and (before or (answer is not None and goes_on(answer))):
            freeze(agent.pid)
            made.append(called)

    with cairn.connect(agent.address, limits=cairn.Limits(answer_grace=60.0, least_grace=0.3)) as client:
        with probes.at("call" if before else "answered", lambda name, request, answer=None, **_: freezing(
                name, request, answer)):
            for timeout in (0.3, 2, 20):
                started = time.monotonic()
                with pytest.raises(cairn.Error) as caught:
                    what(client, timeout)
                if made:  # a busy machine may have been too slow to come so far
                    break
        assert made and time.monotonic() - started < 50
        agent.kill(signal.SIGCONT)
        assert client.save(3, STATE, timeout=60).wait(60).step == 3
    return caught.value


@pytest.mark.parametrize("what, name", [(save, "CommitStaging"), (load, "ReceiveLoad"), (load, "EndLoad"),
                                        (reshard, "CommitSource")])
def test_call_ends_soon_after_its_timeout_in_whatever_phase_its_agent_freezes(agent, what, name):
    error = beside_frozen(agent, what, name, before=True)
    assert error.reason == "AGENT_UNREACHABLE"
    assert f"{agent.address}, {name}: it did not answer in time: it is stopped, frozen or" in error.message
    if what is not save:
        assert (error.metadata["job"], error.metadata["rank"]) == ("demo", "0")
    if what is load:
        assert error.metadata["step"] == "1"


@pytest.mark.parametrize("what, name", [(save, "BeginSave"), (load, "ReceiveLoad"), (reshard, "BeginLoad")])
def test_call_ends_soon_after_its_timeout_if_its_agent_freezes_before_its_memory_is_mapped(agent, what,
                                                                                           name):
    error = beside_frozen(agent, what, name, before=False)
    assert error.reason == "AGENT_UNREACHABLE"
    assert "descriptors.sock: it did not answer in time: it is stopped, frozen or" in error.message
