"""Agents that freeze in the midst of a trainer's call: it ends soon after its timeout, and says what froze."""

import pathlib
import signal
import time

import numpy as np
import pytest

import cairn
from testing.ranks import noise, until

STATE = {"w": noise((64, 16), np.float32, 1)}
# The agent freezes as the trainer makes the call to it that has this name, within one of these.
CALLS = {
    "CommitStaging": lambda client, timeout: client.save(2, STATE, timeout=timeout),
    "ReceiveLoad": lambda client, timeout: client.load({"w": np.zeros_like(STATE["w"])}, step=1, timeout=timeout),
    "CommitSource": lambda client, timeout: client.reshard(STATE, {"w": np.zeros_like(STATE["w"])}, timeout=timeout),
    "EndLoad": lambda client, timeout: client.load({"w": np.zeros_like(STATE["w"])}, step=1, timeout=timeout),
}


def freeze(agent) -> None:
    """Returns when no thread of the agent runs any more."""
    agent.kill(signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{agent.pid}/task")
    until(lambda: all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.glob("*/stat")))


@pytest.mark.parametrize("phase", CALLS)
def test_call_ends_soon_after_its_timeout_in_whatever_phase_its_agent_freezes(tmp_path, monkeypatch, phase):
    with cairn.local.Cluster(ranks=1, root=tmp_path) as cluster, cluster.connect(0) as client:
        agent = cluster.agents[0]
        client.save(1, STATE).wait(60)
        monkeypatch.setattr(cairn._agent, "GRACE", 60.0)
        monkeypatch.setattr(cairn._agent, "LEAST_GRACE", 0.3)
        call, made = cairn._agent.Agent.call, []

        def freezing(self, name, request, *arguments, **named):
            gives_up = name == "EndLoad" and request.HasField("error")
            if name == phase and not gives_up and not made:
                freeze(agent)
                made.append(name)
            return call(self, name, request, *arguments, **named)

        with monkeypatch.context() as patch:
            patch.setattr(cairn._agent.Agent, "call", freezing)
            for timeout in (0.3, 2, 20):
                started = time.monotonic()
                with pytest.raises(cairn.Error) as caught:
                    CALLS[phase](client, timeout)
                if made:  # a busy machine may have been too slow to come so far
                    break
        assert made and time.monotonic() - started < 50
        error = caught.value
        assert error.reason == "AGENT_UNREACHABLE"
        assert f"{agent.address}, {phase}: it did not answer in time: it is stopped, frozen or" in error.message
        if phase != "CommitStaging":
            assert (error.metadata["job"], error.metadata["rank"]) == ("demo", "0")
        if phase in ("ReceiveLoad", "EndLoad"):
            assert error.metadata["step"] == "1"
        agent.kill(signal.SIGCONT)
        assert client.save(3, STATE, timeout=60).wait(60).step == 3
