"""Tests trainings that go on from an older step while newer ones are committed: what counts as the latest, what may be
saved again, and what is kept."""

import threading

import numpy as np

import cairn
from testing.ranks import blank, command, command_json, files_below, noise, on_ranks, reasons, rows, until

FLAGS = {"coordinator_flags": ["--lease-ttl=2s"]}


def whole(version: int) -> np.ndarray:
    return noise((64, 16), np.float32, version)


def train(cluster, steps, resume: int | None = None, version: int = 0) -> list:
    """Runs a training that goes on from a step (None: that loads nothing) and saves at `steps`. Returns the reason of
    each rank's first error, or ""."""
    def work(rank, client):
        if resume is not None:
            client.load({"w": blank(rows(whole(0), rank, 2))}, step=resume)
        for step in steps:
            client.save(step, {"w": rows(whole(version + step), rank, 2)}, timeout=20).wait(60)
    return reasons(on_ranks(cluster, work, errors=True))


def load(cluster, version: int = 0, **options) -> int:
    """Returns the step that is loaded, which must have the arrays of that version."""
    def work(rank, client):
        target = {"w": blank(rows(whole(0), rank, 2))}
        step = client.load(target, **options).step
        assert target["w"].array.tobytes() == rows(whole(version + step), rank, 2).array.tobytes()
        return step
    steps = on_ranks(cluster, work)
    assert steps[0] == steps[1]
    return steps[0]


def states(root) -> dict[int, str]:
    listed = command_json("list", "demo", "--root", str(root), "--check")["checkpoints"]
    return {entry["step"]: entry["state"] for entry in listed}


def test_latest_follows_the_training_that_went_back(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        address = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        assert train(cluster, [20, 40, 50, 60]) == ["", ""]
        assert train(cluster, [45], resume=40, version=1000) == ["", ""]
        for _ in range(2):
            old = {50: "SUPERSEDED", 60: "SUPERSEDED"}
            assert states(root) == {20: "COMMITTED", 40: "COMMITTED", 45: "COMMITTED", **old}
            listed = command_json("list", "demo", *address)["checkpoints"]
            assert {entry["step"]: entry["state"] for entry in listed} == states(root)
            assert [entry["continues_step"] for entry in listed] == [None, None, 40, None, None]
            assert load(cluster, version=1000) == 45
            assert load(cluster, step=60) == 60, "whoever names it gets it"
            assert command_json("show", "demo", "--root", str(root))["step"] == 45
            assert command_json("show", "demo", *address)["step"] == 45
            for where in (["--root", str(root)], address):
                assert command_json("show", "demo@50", *where)["state"] == "SUPERSEDED"
                assert "SUPERSEDED" in command("show", "demo@50", *where).stdout
            with cluster.connect(0) as client:
                assert client.checkpoints() == [20, 40, 45]
            cluster.coordinator.kill()
            cluster.coordinator.restart()
        # It goes on as a training that resumes from the latest one does.
        assert train(cluster, [55, 60, 70], resume=45, version=1000) == ["", ""]
        assert states(root) == {20: "COMMITTED", 40: "COMMITTED", 45: "COMMITTED", 50: "SUPERSEDED", 55: "COMMITTED",
                                60: "COMMITTED", 70: "COMMITTED"}
        assert load(cluster, version=1000, step=60) == 60
        until(lambda: not files_below(root / "demo/000000000060/0001"), text="the removal of the old step 60")
        assert train(cluster, [70], resume=60) == ["", ""], "70 is left behind by who goes back to 60"
        assert train(cluster, [70], resume=70) == ["STEP_COMMITTED"] * 2, "it has loaded this very step"


def test_first_save_after_going_back_may_be_of_a_step_that_is_committed(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        assert train(cluster, [40, 60]) == ["", ""]
        assert train(cluster, [60]) == ["STEP_COMMITTED"] * 2, "it has loaded nothing"
        assert train(cluster, [60], resume=60) == ["STEP_COMMITTED"] * 2
        assert train(cluster, [60, 60], resume=40, version=1000) == ["STEP_COMMITTED"] * 2, "the second time"
        assert states(root) == {40: "COMMITTED", 60: "COMMITTED"}
        assert load(cluster, version=1000) == 60


def test_names_are_compared_with_the_step_that_was_resumed_from(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        assert train(cluster, [40]) == ["", ""]
        on_ranks(cluster, lambda rank, client: client.save(
            60, {"w": rows(whole(60), rank, 2), "adapter": rows(whole(1), rank, 2)}, timeout=20).wait(60))
        assert train(cluster, [70]) == ["NAMES_DROPPED"] * 2
        assert train(cluster, [50], resume=40) == ["", ""], "the adapter was added after step 40"


def test_load_in_the_midst_of_training_leaves_nothing_behind(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        def compare(rank, client):
            for step in (10, 20, 30):
                client.save(step, {"w": rows(whole(step), rank, 2)}, timeout=20).wait(60)
            client.load({"w": blank(rows(whole(0), rank, 2))}, step=10)
            client.save(40, {"w": rows(whole(40), rank, 2)}, timeout=20).wait(60)
        on_ranks(cluster, compare)
        assert set(states(root).values()) == {"COMMITTED"}

        def go_back(rank, client):
            client.load({"w": blank(rows(whole(0), rank, 2))})
            client.save(50, {"w": rows(whole(50), rank, 2)}, timeout=20).wait(60)
            client.load({"w": blank(rows(whole(0), rank, 2))}, step=20)
            client.save(30, {"w": rows(whole(1030), rank, 2)}, timeout=20).wait(60)
        on_ranks(cluster, go_back)
        assert states(root) == {10: "COMMITTED", 20: "COMMITTED", 30: "COMMITTED", 40: "SUPERSEDED", 50: "SUPERSEDED"}
        assert load(cluster, version=1000) == 30


def test_rules_count_the_newest_of_the_line_that_goes_on(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        address = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        assert train(cluster, [20, 40, 50, 60]) == ["", ""]
        assert train(cluster, [45], resume=40, version=1000) == ["", ""]
        answer = command_json("prune", "demo", "--keep-last", "2", *address)
        assert [entry["step"] for entry in answer["checkpoints"] if not entry["pruned"]] == [40, 45]
        assert states(root) == {40: "COMMITTED", 45: "COMMITTED"}
        assert load(cluster, version=1000) == 45


def test_superseded_steps_alone_do_not_let_the_latest_be_deleted(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        address = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        assert train(cluster, [40, 60]) == ["", ""]
        assert train(cluster, [45], resume=40) == ["", ""]
        command("delete", "demo@40", *address)
        assert "LAST_CHECKPOINT" in command("delete", "demo@45", *address, expect=1).stderr
        command("delete", "demo@60", *address)
        assert states(root) == {45: "COMMITTED"}


def test_requested_save_meets_a_step_that_the_training_left_behind(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        address = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        assert train(cluster, list(range(1, 40))) == ["", ""]
        answers: list = []
        done = threading.Event()

        def loop(rank, client):
            client.load({"w": blank(rows(whole(0), rank, 2))}, step=5)
            for step in range(6, 100000):
                client.report_step(step)
                if client.save_requested() is not None:
                    client.save(step, {"w": rows(whole(1000 + step), rank, 2)}, timeout=20).wait(60)
                    return step
                if step > 8:  # here it waits for the request
                    until(lambda: done.is_set() or command_json("status", "demo", *address)["state"] != "COMMITTED",
                          text="the request")
        training = threading.Thread(target=lambda: answers.extend(on_ranks(cluster, loop, errors=True)))
        training.start()
        command("save", "demo", *address)
        done.set()
        training.join()
        assert answers[0] == answers[1], answers
        assert 5 < answers[0] < 40, "this test wants a step that was committed before"
        assert load(cluster, version=1000) == answers[0]
