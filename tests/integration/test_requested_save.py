"""Tests saves that are asked for over RPC, for which the ranks agree on a step that none has passed."""

import threading
import time

import numpy as np

import cairn
from testing.ranks import command, command_json, noise, on_ranks, rows

WHOLE = noise((64, 16), np.float32, 1)


def train(stop: threading.Event, saved: dict, pace=0.01):
    """Runs a training loop that reports its steps and saves when it is told to."""
    def work(rank, client):
        step, savings = 0, []
        while not stop.is_set():
            time.sleep(pace * (1 + rank))  # ranks are never quite in step
            step += 1
            client.report_step(step)
            if client.save_requested() is not None:
                assert client.save_requested() == step
                savings.append(client.save(step, {"w": rows(WHOLE, rank, client.world_size)}))
                saved.setdefault(rank, []).append(step)
        for saving in savings:
            saving.wait()
        return [saving.step for saving in savings]
    return work


def test_ranks_agree_on_the_step_of_a_requested_save(tmp_path):
    with cairn.local.Cluster(ranks=3, root=tmp_path) as cluster:
        stop, saved, answers = threading.Event(), {}, []
        trainer = threading.Thread(target=lambda: answers.extend(on_ranks(cluster, train(stop, saved))))
        trainer.start()
        try:
            address = f"--coordinator={cluster.coordinator.address}"
            steps = []
            for _ in range(3):
                answer = command_json("save", "demo", address, "--timeout=60s")
                assert answer["state"] == "COMMITTED"
                steps.append(answer["step"])
        finally:
            stop.set()
            trainer.join(60)
        assert answers == [steps] * 3 and steps == sorted(set(steps))
        assert [c["step"] for c in command_json("list", "demo", address)["checkpoints"]] == steps


def test_request_for_a_job_that_nobody_trains_ends_by_its_timeout(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        started = time.monotonic()
        done = command("save", "demo", f"--coordinator={cluster.coordinator.address}", "--timeout=2s", expect=None)
        assert done.returncode in (1, 3) and "error: " in done.stderr and "Traceback" not in done.stderr
        assert time.monotonic() - started < 30


def test_request_for_an_unknown_job(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path) as cluster:
        done = command("save", "other", f"--coordinator={cluster.coordinator.address}", expect=1)
        assert "JOB_NOT_FOUND" in done.stderr
