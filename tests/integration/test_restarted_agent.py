"""Tests an agent that is killed and started again: in the middle of a save, and before it holds its rank."""

import socket
import threading
import time

import numpy as np
import pytest

import cairn
from cairn._base import wire
from testing.ranks import noise, rows, until

WHOLE = noise((64, 16), np.float32, 1)
# Nothing here may need a timeout to end, so each timeout is longer than the test.
FLAGS = ["--phase-timeout=10m", "--lease-ttl=5m"]


def state(rank):
    return {"w": rows(WHOLE, rank, 2)}


def test_rank_whose_agent_was_killed_while_it_wrote_hears_the_outcome_of_the_others(root, probe):
    with cairn.local.Cluster(ranks=3, root=root, coordinator_flags=FLAGS) as cluster:
        clients = [cluster.connect(rank) for rank in range(3)]
        go_on = threading.Event()

        def slow(rank, **_):
            if rank == 2:
                assert go_on.wait(60)

        probe("stage", slow)
        outcomes = {}

        def save(rank):
            try:
                saving = clients[rank].save(1, {"w": rows(WHOLE, rank, 3)}, timeout=60)
                outcomes[rank] = saving.wait(timeout=60) if rank != 1 else saving
            except cairn.Error as error:
                outcomes[rank] = error

        threads = [threading.Thread(target=save, args=(rank,)) for rank in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: "event=numbered job=demo step=1 attempt=1" in cluster.coordinator.log.read_text(),
              text="an attempt")
        until(lambda: 1 in outcomes, text="the state of rank 1 is staged")
        # Rank 1 trains on and has asked nothing: its client does not know the attempt.
        cluster.agents[1].kill()
        cluster.agents[2].kill()
        for rank in (1, 2):
            cluster.agents[rank].restart()
        go_on.set()
        for thread in threads:
            thread.join()
        with pytest.raises(cairn.Error) as told:
            outcomes[1].wait(timeout=60)
        assert isinstance(outcomes[0], cairn.Error) and outcomes[0].reason == "RANK_LOST", outcomes
        assert "outcome" not in told.value.metadata, told.value
        assert (told.value.reason, told.value.message) == (outcomes[0].reason, outcomes[0].message)


def test_attempt_ends_at_once_and_its_outcome_is_told_by_the_next_agent(root, probe):
    with cairn.local.Cluster(ranks=2, root=root, coordinator_flags=FLAGS) as cluster:
        client, other = cluster.connect(0), cluster.connect(1)
        copying, go_on = threading.Event(), threading.Event()

        def slow(rank, **_):
            if rank == 1:
                copying.set()
                assert go_on.wait(60)

        probe("stage", slow)
        failed = []

        def save_other():
            with pytest.raises(cairn.Error) as raised:
                other.save(1, state(1), timeout=60)
            failed.append(raised.value.reason)

        thread = threading.Thread(target=save_other)
        thread.start()
        saving = client.save(1, state(0), timeout=60)
        assert copying.wait(60)
        until(lambda: "event=numbered job=demo step=1 attempt=1" in cluster.coordinator.log.read_text(),
              text="an attempt")
        killed = time.monotonic()
        cluster.agents[1].kill()
        cluster.agents[1].restart()
        with pytest.raises(cairn.Error) as lost:
            saving.wait(timeout=60)
        assert lost.value.reason == "RANK_LOST" and lost.value.metadata["ranks"] == "1", lost.value
        assert time.monotonic() - killed < 50
        go_on.set()
        thread.join()
        assert failed
        # Rank 1's agent knows nothing of the save, and asks.
        request = wire.LOCAL_AGENT["WaitSave"].request(trainer_incarnation=other._session.incarnation, step=1,
                                                       save=12345, attempt=1)
        answer = other._session.call("WaitSave", request, 20.0)
        assert not answer.pending and answer.checkpoint.attempt == 1
        assert wire.error_from_status(answer.checkpoint.error).message == lost.value.message


class LosesTheAnswer:
    """A way to the coordinator on which the answer to a registration, and all that follows, is lost."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the test is over
                return
            server = socket.create_connection(self._target)
            asked = threading.Event()
            for source, sink, ends in ((client, server, None), (server, client, asked)):
                threading.Thread(target=self._carry, args=(source, sink, asked, ends), daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, sink: socket.socket, asked: threading.Event,
               ends: threading.Event | None) -> None:
        try:
            while data := source.recv(1 << 16):
                if b"RegisterAgent" in data:
                    asked.set()
                if ends is None or not ends.is_set():
                    sink.sendall(data)
        except OSError:
            pass  # its other side has ended
        sink.close()

    def close(self) -> None:
        self._listener.close()


def test_agent_killed_before_it_hears_that_it_holds_its_rank_leaves_it_to_the_next(root):
    # With a token, an agent talks to no process that stands between.
    insecure = ["--insecure"]
    with cairn.local.Cluster(ranks=1, root=root, coordinator_flags=FLAGS + insecure, agent_flags=insecure) as cluster:
        agent, flags = cluster.agents[0], cluster.agents[0].flags
        for registrations in (2, 3):
            way = LosesTheAnswer(cluster.coordinator.address)
            agent.flags = [f"--coordinator={way.address}" if "--coordinator=" in flag else flag for flag in flags]
            agent.restart()
            until(lambda count=registrations: cluster.coordinator.log.read_text().count("event=registered") == count,
                  text="the coordinator takes the agent")
            agent.kill()
            way.close()
        assert agent.log.read_text().count("event=registered") == 1
        agent.flags = flags
        agent.restart()
        saving = cluster.connect(0).save(1, {"w": rows(WHOLE, 0, 1)}, timeout=60)
        assert saving.wait(timeout=60).step == 1
