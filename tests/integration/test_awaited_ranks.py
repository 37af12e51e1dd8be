"""Tests that ranks which wait for each other are told so within seconds, long before any timeout."""

import logging
import signal
import threading

import numpy as np

import cairn
from testing.errors import raises_error
from testing.ranks import command_json, freeze, on_ranks, reasons, until


def test_save_and_load_that_wait_for_each_other_name_the_other_rank(tmp_path, caplog):

    def work(rank, client):
        client.save(1, {"w": np.arange(1000.0)}).wait()
        # As after a pod was replaced: rank 1 begins with a load, while rank 0 goes on training.
        if rank == 1:
            client.load({"w": np.zeros(1000)})
        else:
            client.save(2, {"w": np.arange(1000.0)}).wait()

    def told() -> set[str]:
        return {record.getMessage().partition(" s in ")[2] for record in caplog.records}

    expected = {"save for rank 1 (which is in a load)", "load for rank 0 (which is in a save)"}
    with cairn.local.Cluster(ranks=2, root=tmp_path, coordinator_flags=["--phase-timeout=15s"]) as cluster, \
            caplog.at_level(logging.WARNING, "cairn"):
        answers = []
        ranks = threading.Thread(target=lambda: answers.extend(on_ranks(cluster, work, errors=True)))
        ranks.start()
        until(lambda: expected <= told())
        ranks.join(60)
    assert set(reasons(answers)) == {"RANK_LATE"}


def test_wait_that_times_out_names_the_rank_that_never_calls_save(tmp_path):
    state = {"w": np.arange(1000.0)}
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, state).wait())  # later saves return when they are staged
        client, other = cluster.connect(0), cluster.connect(1)
        other.report_step(1)
        saving = client.save(9, state)
        with raises_error("TIMED_OUT", ranks="1", phase="waiting"):
            saving.wait(timeout=1)


def test_prepare_that_may_not_wait_names_the_ranks_all_the_same(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        client, _ = cluster.connect(0), cluster.connect(1)
        with raises_error("TIMED_OUT", ranks="1"):
            client.prepare({"w": np.arange(1000.0)}, timeout=0)


def test_ranks_that_save_different_steps_name_each_other_and_end(tmp_path):
    both_ended = threading.Barrier(2)  # else one tells of the other that its trainer has ended

    def work(rank, client):
        client.save(1, {"w": np.arange(1000.0)}).wait()
        saving = client.save(6 + rank, {"w": np.arange(1000.0)})
        with raises_error("TIMED_OUT") as caught:
            saving.wait(timeout=4)
        assert ("rank 1 (saves step 7)", "rank 0 (saves step 6)")[rank] in caught.value.message
        try:
            saving.wait()
        finally:
            both_ended.wait(60)

    with cairn.local.Cluster(ranks=2, root=tmp_path, coordinator_flags=["--phase-timeout=10s"]) as cluster:
        answers = on_ranks(cluster, work, errors=True)
    assert reasons(answers) == ["RANK_LATE"] * 2, answers
    assert "its trainer saves step 7" in answers[0].message


def test_saves_behind_one_to_which_a_rank_never_came_name_that_rank(tmp_path):
    state = {"w": np.arange(1000.0)}
    with cairn.local.Cluster(ranks=3, root=tmp_path) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, state).wait())  # later saves return when they are staged
        trainers = [cluster.connect(rank) for rank in range(3)]
        for trainer in trainers:
            trainer.report_step(2)
        held = [trainers[rank].save(2, state) for rank in (0, 2)]
        for step in (3, 4):
            with raises_error("SAVE_IN_PROGRESS") as caught:
                trainers[0].save(step, state, timeout=2)
            assert "rank 1" in caught.value.message and caught.value.metadata["ranks"] == "1", caught.value
            assert caught.value.metadata["phase"] == "waiting"
        address = f"--coordinator={cluster.coordinator.address}"

        def note():
            return command_json("status", "demo", address)["ranks"][1]["note"]

        until(lambda: "its trainer has not begun the save" in note(), text="the note")
        assert not any(saving.done() for saving in held)
        # The coordinator names it to whoever hears of the later save otherwise.
        log = cluster.coordinator.log.read_text().splitlines()
        assert any("step=3" in line and "rank 1 holds up the save of step 2" in line for line in log), log


def test_wait_without_a_coordinator_says_within_seconds_what_keeps_it(tmp_path, caplog):
    state = {"w": np.arange(1000.0)}
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster, caplog.at_level(logging.WARNING, "cairn"):
        on_ranks(cluster, lambda rank, client: client.save(1, state).wait())  # later saves return when they are staged
        clients = [cluster.connect(rank) for rank in range(2)]
        saving = clients[0].save(2, state)
        freeze(cluster.coordinator.pid)
        ended = []
        waiting = threading.Thread(target=lambda: ended.append(saving.wait()))
        waiting.start()
        until(lambda: any("s in save: COORDINATOR_UNREACHABLE: " in record.getMessage() for record in caplog.records),
              text="the word of it")
        cluster.coordinator.kill(signal.SIGCONT)
        clients[1].save(2, state)
        waiting.join(60)
    assert [checkpoint.step for checkpoint in ended] == [2]
