"""Tests what a committed save returns, and what happens when people remove its step."""

import shutil

import numpy as np

import cairn
from testing.ranks import command, command_json, noise, on_ranks, reasons, rows

WHOLE = noise((64, 16), np.float32, 1)


def saved(cluster, step):
    return on_ranks(cluster, lambda rank, client: client.save(step, {"w": rows(WHOLE, rank, 2)}, timeout=20).wait(60),
                    errors=True)


def test_commit_time_is_told_and_removed_step_can_be_saved_again(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        answers = saved(cluster, 1)
        assert reasons(answers) == ["", ""]
        assert answers[0].commit_time is not None and answers[0].commit_time == answers[1].commit_time
        assert reasons(saved(cluster, 1)) == ["STEP_COMMITTED"] * 2
        shutil.rmtree(root / "demo" / answers[0].data_directory.split("/")[1])
        at = f"--coordinator={cluster.coordinator.address}"
        assert command_json("status", "demo", at)["state"] == "DELETED"
        assert "demo@1 was committed, and was deleted or removed since" in command("status", "demo", at).stdout
        assert reasons(saved(cluster, 1)) == ["", ""]
        with cluster.connect(0) as client:
            assert client.checkpoints() == [1]
