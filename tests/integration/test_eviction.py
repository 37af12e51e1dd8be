"""Tests what becomes of a job whose processes are told to end: trainers that get SIGTERM, and the hook of a pod."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import cairn
from testing.ranks import until

TRAINER = """
import json, sys, time
import numpy as np
import cairn
client = cairn.connect(sys.argv[1])
step = (client.checkpoints() or [0])[-1]
with cairn.eviction.Watch(client, grace=float(sys.argv[2])) as eviction:
    print("training", flush=True)
    while not eviction.over():
        time.sleep(0.005)
        if sys.argv[3] == "stuck" and eviction.signalled:
            continue
        step += 1
        client.report_step(step)
        if client.save_requested() is not None:
            client.save(step, {"w": np.full(1000, step)})
print(json.dumps({"step": eviction.step, "last": step, "reason": eviction.error and eviction.error.reason,
                  "error": str(eviction.error)}))
"""


def train(cluster, rank, grace=30.0, manner="steps"):
    """Starts a trainer and waits until it trains."""
    trainer = cluster.spawn([sys.executable, "-c", TRAINER, cluster.agents[rank].address, str(grace), manner],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])})
    assert trainer.stdout.readline() == "training\n", trainer.communicate()
    return trainer


def told(trainer) -> dict:
    output, errors = trainer.communicate(timeout=120)
    assert trainer.returncode == 0, errors
    return json.loads(output)


@pytest.fixture
def cluster(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        yield cluster


def command(cluster, *arguments):
    return cluster.spawn([str(cairn.local.binary("cairn")), f"--coordinator={cluster.coordinator.address}", *arguments],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_sigterm_leaves_a_durable_save_twenty_times_of_twenty(cluster):
    saved = []
    for _ in range(20):
        trainers = [train(cluster, rank) for rank in range(2)]
        for trainer in trainers:
            trainer.send_signal(signal.SIGTERM)
        answers = [told(trainer) for trainer in trainers]
        assert [answer["reason"] for answer in answers] == [None, None], answers
        # A process ends when its save is durable, so the checkpoint is there.
        saved += [answer["step"] for answer in answers]
        with cluster.connect(0) as client:
            assert set(saved) <= set(client.checkpoints())


def test_sigterm_of_one_rank_saves_all_and_the_others_go_on(cluster):
    evicted, other = [train(cluster, rank) for rank in range(2)]
    evicted.send_signal(signal.SIGTERM)
    answer = told(evicted)
    assert answer["reason"] is None and answer["step"] <= answer["last"]
    assert other.poll() is None
    other.kill()


def test_sigterm_without_a_save_says_why_before_the_grace_period_ends(cluster):
    stuck = train(cluster, 0, grace=5, manner="stuck")
    other = train(cluster, 1, grace=5)
    stuck.send_signal(signal.SIGTERM)
    answer = told(stuck)
    assert answer["step"] is None
    assert answer["reason"] in ("STEP_REFUSED", "RANK_LATE"), answer
    assert "rank 0" in answer["error"]
    other.kill()


def test_hook_of_a_pod_saves_and_names_its_reason(cluster):
    trainers = [train(cluster, rank) for rank in range(2)]
    save = command(cluster, "save", "demo", "--reason", "eviction", "--for-rank", "1", "--timeout", "60s")
    output, errors = save.communicate(timeout=120)
    assert save.returncode == 0, errors
    assert "committed demo@" in output
    assert "reason=eviction" in cluster.coordinator.log.read_text()
    for trainer in trainers:
        trainer.kill()


def test_hook_of_a_pod_whose_training_has_ended_saves_nothing(cluster):
    first, other = train(cluster, 0), train(cluster, 1)
    first.kill()
    first.wait()
    until(lambda: "event=trainer_ended" in cluster.agents[0].log.read_text())
    save = command(cluster, "save", "demo", "--reason", "eviction", "--for-rank", "0", "--timeout", "60s")
    output, errors = save.communicate(timeout=120)
    assert (save.returncode, output) == (0, "")
    assert "rank 0 of demo has no training process any more" in errors
    other.kill()


def test_reason_that_is_no_word_is_refused(cluster):
    trainer = train(cluster, 0)
    save = command(cluster, "save", "demo", "--reason", "a b\n", "--timeout", "10s")
    _, errors = save.communicate(timeout=60)
    assert save.returncode == 1 and "BAD_REQUEST" in errors
    trainer.kill()


def test_second_sigterm_ends_the_process(cluster):
    trainers = [train(cluster, 0, grace=600, manner="stuck"), train(cluster, 1, grace=600, manner="stuck")]
    trainers[0].send_signal(signal.SIGTERM)
    until(lambda: "request=" in cluster.coordinator.log.read_text())
    trainers[0].send_signal(signal.SIGTERM)
    assert trainers[0].wait(timeout=60) == -signal.SIGTERM
    trainers[1].kill()
