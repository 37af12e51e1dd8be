"""Tests that a trainer which is stopped, or has ended, is seen and blamed, and not those that wait for it."""

import contextlib
import os
import pathlib
import signal
import sys

import numpy as np

import cairn
from testing.ranks import command, command_json, freeze, on_ranks, reasons, until

PATHS = {"PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])}
TRAINER = """
import sys, time, cairn
client = cairn.connect(sys.argv[1])
for step in range(20):
    client.report_step(step)
    client.save_requested()
print("waits", flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def waiting_trainers(cluster):
    """Trainers that all stand at step 19, as if each waited for another one."""
    trainers = [cluster.spawn([sys.executable, "-c", TRAINER, agent.address], env={**os.environ, **PATHS}, stdout=-1,
                              text=True)
                for agent in cluster.agents]
    for trainer in trainers:
        assert trainer.stdout.readline().strip() == "waits"
    yield trainers
    for trainer in trainers:
        trainer.kill()
        trainer.wait()
        trainer.stdout.close()


def test_stopped_trainer_is_told_from_one_that_waits_and_is_blamed_alone(tmp_path):
    with cairn.local.Cluster(ranks=3, root=tmp_path) as cluster, waiting_trainers(cluster) as trainers:
        address = f"--coordinator={cluster.coordinator.address}"

        def agents():
            return command_json("status", "demo", address)["agents"]

        def state_of(rank, state):
            until(lambda: agents()[rank]["trainer_state"] == state, text=f"the trainer that is {state}")

        until(lambda: [(agent["trainer_step"], agent["trainer_state"]) for agent in agents()] == [(19, "running")] * 3)
        freeze(trainers[1].pid)
        state_of(1, "stopped")
        first, second = agents(), agents()
        assert [agent["trainer_state"] for agent in second] == ["running", "stopped", "running"]
        assert all(0 <= before["trainer_step_age_seconds"] <= after["trainer_step_age_seconds"]
                   for before, after in zip(first, second, strict=True))
        assert "stopped for" in command("status", "demo", address).stdout
        assert command_json("jobs", address)["jobs"][0]["state"] == "stopped"
        refused = command_json("save", "demo", address, "--timeout=2s", expect=1)["error"]
        assert refused["reason"] == "RANK_LATE" and refused["metadata"]["ranks"] == "1", refused
        assert "has been stopped for" in refused["message"] and "SIGCONT" in refused["metadata"]["next"], refused
        trainers[1].send_signal(signal.SIGCONT)
        state_of(1, "running")
        assert command_json("jobs", address)["jobs"][0]["state"] == "training"
        trainers[1].kill()
        state_of(1, "gone")


def test_save_that_the_others_have_begun_blames_the_stopped_trainer(tmp_path):
    state = {"w": np.arange(1000.0)}
    with cairn.local.Cluster(ranks=3, root=tmp_path, coordinator_flags=["--phase-timeout=3s"]) as cluster, \
            waiting_trainers(cluster) as trainers:
        freeze(trainers[1].pid)
        trainers[0].kill()
        answers = on_ranks(cluster, lambda rank, client: client.save(20, state, timeout=60).wait(60), ranks=[0],
                           errors=True)
        assert reasons(answers) == ["RANK_LATE"]
        assert answers[0].metadata["ranks"] == "1", answers[0]  # rank 2 may wait for it


def test_agent_of_another_rank_refuses_a_trainer_and_keeps_its_own(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        own = cluster.connect(1)
        program = "import sys, cairn; print(cairn.connect(sys.argv[1]).rank)"
        for rank, status in ((1, 0), (0, 1)):
            if rank == 0:
                own = cluster.connect(1)
            environment = {**os.environ, **PATHS, "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2"}
            for variable in ("RANK", "WORLD_SIZE"):
                environment.pop(variable, None)
            process = cluster.spawn([sys.executable, "-c", program, cluster.agents[1].address], env=environment,
                                    stdout=-1, stderr=-1, text=True)
            out, error = process.communicate(timeout=60)
            assert process.returncode == status, error
            assert out.strip() == ("1" if rank == 1 else "")
        assert "RANK_CONFLICT" in error and "that of rank 1 of job demo" in error and "SLURM_PROCID=0" in error, error
        own.report_step(1)  # it would raise STALE_INCARNATION
        assert own.checkpoints() == []
