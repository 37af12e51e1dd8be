"""Tests `cairn jobs` and `cairn history`, by a coordinator and by storage alone."""

import numpy as np

import cairn
from testing.ranks import blank, command, command_json, noise, on_ranks, reasons, rows

WHOLE = noise((64, 16), np.float32, 1)


def save(cluster, step: int) -> None:
    on_ranks(cluster, lambda rank, client: client.save(step, {"w": rows(WHOLE, rank, 2)}, timeout=20).wait(60))


def test_history_tells_saves_that_ended_before_a_rank_had_begun_them(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path, coordinator_flags=["--phase-timeout=60s"]) as cluster:
        flags = ["--coordinator", cluster.coordinator.address, "--token-file", str(tmp_path / ".cairn/token")]
        clients = [cluster.connect(rank) for rank in range(2)]
        for client in clients:
            client.report_step(10)
        command("save", "demo", "--timeout", "500ms", *flags, expect=None)  # they agree on a step, and do not reach it
        command("save", "demo", "--no-wait", *flags)
        command("cancel", "demo", *flags)
        told = command_json("history", "demo", *flags)["operations"]
        assert [(entry["kind"], entry["result"]) for entry in told] == [
            ("save", "RANK_LATE"), ("save", "SAVE_CANCELLED")], told
        assert all(entry["attempt"] == 0 and entry["world_size"] == 2 for entry in told)
        assert "ranks 0, 1 are late" in told[0]["message"] and "cancelled" in told[1]["message"], told
        for client in clients:
            client.close()


def test_history_tells_saves_and_loads_and_why_one_failed(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, coordinator_flags=["--phase-timeout=1s"]) as cluster:
        flags = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        assert "no save or load of demo" in command("history", "demo", *flags).stdout
        save(cluster, 1)
        late = on_ranks(cluster, lambda rank, client: client.save(
            2, {"w": rows(WHOLE, 0, 2)}, timeout=20).wait(60), ranks=[0], errors=True)
        assert reasons(late) == ["RANK_LATE"]
        on_ranks(cluster, lambda rank, client: client.load({"w": blank(rows(WHOLE, rank, 2))}))
        told = command_json("history", "demo", *flags)["operations"]
        assert [(entry["kind"], entry["step"], entry["result"]) for entry in told] == [
            ("save", 1, "done"), ("save", 2, "RANK_LATE"), ("load", 1, "done")]
        first = told[0]
        assert first["bytes"] >= WHOLE.nbytes and first["world_size"] == 2 and first["attempt"] == 1
        assert first["throughput"] == first["bytes"] / first["duration"]
        assert first["slowest_rank"] in (0, 1) and first["slowest_phase"]
        assert told[1]["throughput"] is None and "rank 1" in told[1]["message"]
        assert [entry["step"] for entry in command_json("history", "demo", "--last", "1", *flags)["operations"]] == [1]
        table = command("history", "demo", *flags).stdout
        assert "RANK_LATE" in table and "load" in table, table
        command("delete", "demo@1", *flags, expect=1)
        save(cluster, 3)
        command("delete", "demo@1", "--cause", "a test", *flags)
        stored = command_json("history", "demo", "--root", str(root))["operations"]
        assert [(entry["step"], entry["result"]) for entry in stored if entry["step"] != 2] == [
            (1, "deleted"), (3, "done")]
        assert "a test" in stored[0]["message"] and stored[0]["duration"] is None
        assert "deleted" in command("history", "demo", "--root", str(root)).stdout
        assert "JOB_NOT_FOUND" in command("history", "other", *flags, expect=1).stderr
    assert "JOB_NOT_FOUND" in command("history", "other", "--root", str(root), expect=1).stderr


def test_jobs_lists_those_that_run_and_those_that_storage_knows(tmp_path):
    root = tmp_path / "checkpoints"
    assert "there are no jobs" in command("jobs", "--root", str(tmp_path)).stdout
    with cairn.local.Cluster(ranks=2, root=root, job="team/old") as cluster:
        save(cluster, 40)
    with cairn.local.Cluster(ranks=2, root=root, job="new") as cluster:
        flags = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        clients = [cluster.connect(rank) for rank in range(2)]
        jobs = {job["job"]: job for job in command_json("jobs", *flags)["jobs"]}
        assert list(jobs) == ["new", "team/old"]
        new = jobs["new"]
        assert (new["state"], new["agents"], new["last_committed_step"]) == ("training", 2, None)
        assert (jobs["team/old"]["state"], jobs["team/old"]["world_size"]) == ("stored", 2)
        assert jobs["team/old"]["last_committed_step"] == 40 and jobs["team/old"]["last_commit_time"]
        for client in clients:
            client.close()
        save(cluster, 7)
        jobs = {job["job"]: job for job in command_json("jobs", *flags)["jobs"]}
        assert jobs["new"]["last_committed_step"] == 7
        assert "team/old" in command("jobs", *flags).stdout
    stored = command_json("jobs", "--root", str(root))["jobs"]
    assert [(job["job"], job["state"], job["last_committed_step"]) for job in stored] == [
        ("new", "stored", 7), ("team/old", "stored", 40)]
    assert command_json("list", "--root", str(root))["jobs"] == stored, "a list without a job is that of the jobs"
    assert "one job" in command("list", "--check", "--root", str(root), expect=1).stderr
