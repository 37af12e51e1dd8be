"""Tests what ranks declare as equal: shared objects that differ end every save, tensors do as --check-replicas says."""

import numpy as np
import pytest

import cairn
from testing.ranks import command, command_json, on_ranks, reasons

OPTIONS = [None, "first", "always", "never"]
MANY_SAVES = 200 # far more than needed: each sample takes at least one item and is paid back over at most 40 saves


@pytest.fixture
def make_cluster(tmp_path):
    def make(check, ranks=3):
        flags = ["--phase-timeout=10s", "--lease-ttl=3s"] + ([f"--check-replicas={check}"] if check else [])
        return cairn.local.Cluster(ranks=ranks, root=tmp_path / "checkpoints", coordinator_flags=flags)

    return make


def state(rank: int = 0, shift: float = 0) -> dict:
    return {f"layer{i}.weight": np.full((64, 8), i + shift, np.float32) for i in range(12)} | {"config": {"a": 1}}


@pytest.mark.parametrize("check", OPTIONS)
def test_shared_objects_that_differ_end_the_save(make_cluster, check):
    values = {
        "number": lambda rank: rank,
        "bytes of one length": lambda rank: b"abc%d" % rank,
        # The slot holds the same bytes, because it is zero behind the object.
        "zeros of another length": lambda rank: b"abc" + b"\0" * rank,
        "another slot": lambda rank: b"x" * (1 + 9000 * rank),
        "one rank of three": lambda rank: {"seed": 7 if rank == 1 else 6},
    }
    with make_cluster(check) as cluster:
        for step, (what, value) in enumerate(values.items(), 1):
            answers = on_ranks(cluster, lambda rank, client: client.save(
                step, {"w": np.arange(5), "the.object": value(rank)}).wait(60), errors=True)
            assert reasons(answers) == ["OBJECT_MISMATCH"] * 3, what
            assert all("the.object" in answer.message and answer.metadata["ranks"] for answer in answers), answers
            if what == "one rank of three":
                assert "1" in answers[0].metadata["ranks"], answers[0]
        with cluster.connect(0) as client:
            assert client.checkpoints() == []


@pytest.mark.parametrize("check", OPTIONS)
def test_shared_objects_that_part_later_end_that_save(make_cluster, check):
    with make_cluster(check) as cluster:
        def train(rank, client):
            for step in (1, 2):
                client.save(step, {"o": {"lr": 0.5}, "mine": cairn.per_rank(rank), "w": np.ones(3)}).wait(60)
            with pytest.raises(cairn.Error) as caught:
                client.save(3, {"o": {"lr": 0.1 if rank == 2 else 0.5}, "mine": cairn.per_rank(rank),
                                "w": np.ones(3)}).wait(60)
            client.save(4, {"o": {"lr": 0.1}, "mine": cairn.per_rank(rank), "w": np.ones(3)}).wait(60)
            return caught.value

        for error in on_ranks(cluster, train, errors=True):
            assert error.reason == "OBJECT_MISMATCH" and error.metadata["name"] == "o"
            assert "2" in error.metadata["ranks"] and error.metadata["step"] == "3"
        with cluster.connect(0) as client:
            assert client.checkpoints() == [1, 2, 4]


def test_replicas_that_part_after_the_first_save_are_warned_of(make_cluster, caplog):
    with make_cluster(None) as cluster:
        def train(rank, client):
            assert client.save(1, state()).wait(60).warnings == ()
            for step in range(2, MANY_SAVES):
                checkpoint = client.save(step, state(rank, shift=0.5 if rank == 2 else 0)).wait(60)
                if checkpoint.warnings:
                    return checkpoint
            raise AssertionError("nobody noticed")

        told = on_ranks(cluster, train)
        assert len({checkpoint.step for checkpoint in told}) == 1, "every rank hears it of the same save"
        for checkpoint in told:
            [warning] = checkpoint.warnings
            assert isinstance(warning, cairn.Error)
            assert warning.reason == "REPLICA_MISMATCH" and warning.metadata["alarm"] == "replicas_differ"
            assert "layer" in warning.message and "rank 2" in warning.message
        step = told[0].step
        status = command_json("status", "demo", f"--coordinator={cluster.coordinator.address}")
        assert (status["step"], status["state"]) == (step, "COMMITTED")
        assert [warning["reason"] for warning in status["warnings"]] == ["REPLICA_MISMATCH"]
        assert status["error"] is None
        table = command("status", "demo", f"--coordinator={cluster.coordinator.address}").stdout
        assert "warning: replicas_differ" in table
        assert cluster.coordinator.log.read_text().count("event=alarm") == 1
        # The manifest holds it: lists say it also without a coordinator.
        root = ["--root", str(cluster.root)]
        for where in (root, [f"--coordinator={cluster.coordinator.address}"]):
            listed = command_json("list", "demo", *where)["checkpoints"]
            assert [entry["step"] for entry in listed if entry["warnings"]] == [step]
            assert command_json("show", f"demo@{step}", *where)["warnings"][0]["reason"] == "REPLICA_MISMATCH"
            assert "replicas_differ" in command("list", "demo", *where).stdout
        # The save itself is whole, and so are the next ones. A load says what stands in it.
        for report in on_ranks(cluster, lambda rank, client: client.load(state(rank), step=step)):
            assert (report.step, [str(each) for each in report.warnings]) == (step, [str(told[0].warnings[0])])
            assert "the step has alarms: replicas_differ" in repr(report)
        # Rank 0 logs it.
        assert [each.getMessage() for each in caplog.records if "looked wrong" in each.getMessage()] == [
            f"demo@{step} looked wrong when it was saved: {told[0].warnings[0]}"]


def test_replicas_that_differ_end_a_save_where_that_is_asked_for(make_cluster):
    with make_cluster("always") as cluster:
        def train(rank, client):
            for step in (1, 2):
                client.save(step, state()).wait(60)
            client.save(3, state(shift=0.5 if rank == 2 else 0)).wait(60)

        answers = on_ranks(cluster, train, errors=True)
        assert reasons(answers) == ["REPLICA_MISMATCH"] * 3
        assert answers[0].metadata["step"] == "3"


def test_replicas_are_let_be_where_that_is_asked_for(make_cluster):
    with make_cluster("never") as cluster:
        def train(rank, client):
            return [client.save(step, state(shift=rank)).wait(60).warnings for step in range(1, 8)]

        assert on_ranks(cluster, train) == [[()] * 7] * 3


def test_first_save_of_another_layout_ends_by_replicas_that_differ(make_cluster):
    with make_cluster("first") as cluster:
        def train(rank, client):
            client.save(1, state()).wait(60)
            client.save(2, state() | {"more": np.full(100, rank)}).wait(60)

        answers = on_ranks(cluster, train, errors=True)
        assert reasons(answers) == ["REPLICA_MISMATCH"] * 3
        assert "more" in answers[0].message
