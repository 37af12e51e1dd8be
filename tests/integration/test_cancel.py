"""Tests `cairn cancel`: which save it gives up, and what everybody is told."""

import threading

import numpy as np

import cairn
from cairn._base import wire
from testing.ranks import call_coordinator, command, command_json, noise, on_ranks, reasons, rows, until

WHOLE = noise((64, 16), np.float32, 1)


def begin_on_rank_0(cluster, step: int, **options):
    """Calls save on rank 0 alone, which then waits for rank 1. Returns the thread and the list of its outcome."""
    outcome: list = []
    thread = threading.Thread(target=lambda: outcome.extend(on_ranks(
        cluster, lambda rank, client: client.save(step, {"w": rows(WHOLE, rank, 2)}, timeout=60, **options).wait(60),
        ranks=[0], errors=True)))
    thread.start()
    until(lambda: call_coordinator(cluster, "GetJob", job="demo").checkpoint.state == wire.PHASES["COLLECTING"],
          text="the begin of the save")
    return thread, outcome


def test_save_under_way_is_given_up_and_the_job_goes_on(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        at = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        assert "no save of demo is under way" in command("cancel", "demo", *at, expect=1).stderr
        for name in ("demo@7", "demo"):
            thread, outcome = begin_on_rank_0(cluster, 7)
            assert command_json("cancel", name, *at)["state"] == "ABORTED"
            thread.join()
            assert reasons(outcome) == ["SAVE_CANCELLED"]
            assert "no save of demo" in command("cancel", name, *at, expect=1).stderr
        on_ranks(cluster, lambda rank, client: client.save(7, {"w": rows(WHOLE, rank, 2)}).wait(60))
        assert "no save of demo@7" in command("cancel", "demo@7", *at, expect=1).stderr
        # What would have been replaced stays.
        thread, outcome = begin_on_rank_0(cluster, 7, overwrite=True)
        command("cancel", "demo@7", *at)
        thread.join()
        assert reasons(outcome) == ["SAVE_CANCELLED"]
        assert command_json("show", "demo@7", *at)["step"] == 7


def test_request_that_waits_for_the_ranks_is_given_up(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        at = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        with cluster.connect(0), cluster.connect(1):
            until(lambda: all(rank.trainer_attached for rank in call_coordinator(cluster, "GetJob", job="demo").ranks),
                  text="the trainers")
            for request, name in ((), "demo"), (("--step", "600"), "demo@600"), (("--step", "700"), "demo"):
                command("save", "demo", *request, "--no-wait", *at)
                assert command_json("cancel", name, *at)["error"]["reason"] == "SAVE_CANCELLED"
