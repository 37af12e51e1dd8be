"""Tests tags and metrics of checkpoints, and the calls of Python that change what is kept."""

import math

import numpy as np
import pytest

import cairn
from testing.errors import raises_error
from testing.ranks import command, command_json, on_ranks, reasons, rows, until
from testing.two_ranks import load, save, whole

# Files of what was deleted before the coordinator's start go when two leases have passed.
FLAGS = {"coordinator_flags": ["--lease-ttl=2s"]}


def listed(root) -> dict:
    return {entry["step"]: entry for entry in command_json("list", "demo", "--root", str(root))["checkpoints"]}


def flags_of(cluster, root) -> list[str]:
    return ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]


def test_tag_names_a_step_everywhere_and_keeps_it(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        for step in (1, 2, 3):
            save(cluster, step)
        flags, at = flags_of(cluster, root), ["--root", str(root)]
        assert command_json("tag", "demo@1", "paper", *flags) == {"job": "demo", "step": 1, "tag": "paper"}
        command("tag", "demo@paper", "Best", *flags)
        assert listed(root)[1]["tags"] == ["Best", "paper"] and listed(root)[2]["tags"] == []
        table = command("list", "demo", *flags).stdout
        assert "Best paper" in table, table
        for where in (flags, at):
            shown = command_json("show", "demo@paper", *where)
            assert (shown["step"], shown["tags"], shown["state"]) == (1, ["Best", "paper"], "COMMITTED")
        command("verify", "demo@paper", *at)
        command("export", "demo@paper", *at, "--to", str(tmp_path / "exported"))
        command("diff", "demo@paper", "demo@1", *at)
        assert load(cluster, step="paper") == [(1, True)] * 2
        # A name belongs to one step.
        assert "step 1 already" in command("tag", "demo@2", "paper", *flags, expect=1).stderr
        assert "its tags are Best, paper" in command("show", "demo@papre", *flags, expect=1).stderr
        assert reasons(load(cluster, step="papre")) == ["NOT_COMMITTED"] * 2
        # It protects, also after a restart.
        assert "CHECKPOINT_PINNED" in command("delete", "demo@1", *flags, expect=1).stderr
        cluster.coordinator.kill()
        cluster.coordinator.restart()
        pruned = command_json("prune", "demo", "--keep-last", "1", *flags)["checkpoints"]
        assert [(entry["step"], entry["pruned"], entry["why"]) for entry in pruned] == [
            (1, False, "tagged"), (2, True, ""), (3, False, "the newest")]
        overwritten = on_ranks(cluster, lambda rank, client: client.save(
            1, {"w": rows(whole(9), rank, 2)}, overwrite=True, timeout=20).wait(60), errors=True)
        assert reasons(overwritten) == ["CHECKPOINT_PINNED"] * 2
        command("untag", "demo@paper", *flags)
        assert "no checkpoint of demo has the tag" in command("untag", "demo@paper", *flags, expect=1).stderr
        assert "CHECKPOINT_PINNED" in command("delete", "demo@1", *flags, expect=1).stderr
        command("untag", "demo@Best", *flags)
        command("delete", "demo@1", *flags)
        assert list(listed(root)) == [3]


def test_cancel_of_a_tag_gives_up_no_other_save(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        save(cluster, 1)
        flags = flags_of(cluster, root)
        command("tag", "demo@1", "paper", *flags)
        client = cluster.connect(0)
        assert client.request_save(timeout=60)
        command("cancel", "demo@paper", *flags, expect=1)
        assert command_json("status", "demo", *flags)["state"] == "PREPARING"


@pytest.mark.parametrize("restart", [False, True])
def test_metrics_are_committed_with_the_checkpoint_and_decide_which_is_the_best(tmp_path, restart):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        flags = flags_of(cluster, root)
        command("retention", "demo", "--keep-best", "val/loss:min", "--keep-last", "1", *flags)
        assert "--keep-best val/loss:min" in command("retention", "demo", *flags).stdout
        save(cluster, 1, metrics={"val/loss": 0.5, "steps": 7})
        save(cluster, 2, metrics={"val/loss": 0.25})
        if restart:
            cluster.coordinator.kill()
            cluster.coordinator.restart()
        save(cluster, 3, metrics={"val/loss": np.float32(0.75)})
        save(cluster, 4, metrics={"val/loss": math.nan})
        until(lambda: list(listed(root)) == [2, 4], text="the policy")
        assert listed(root)[2]["metrics"] == {"val/loss": 0.25}
        assert listed(root)[4]["metrics"] == {"val/loss": "NaN"}
        shown = command_json("show", "demo@2", *flags)
        assert shown["metrics"] == {"val/loss": 0.25}
        assert "val/loss 0.25" in command("show", "demo@2", "--root", str(root)).stdout
        save(cluster, 5, metrics={"val/loss": 0.125})
        until(lambda: list(listed(root)) == [5], text="the best one of now")


def test_prune_by_a_metric_that_no_step_has_deletes_nothing(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        save(cluster, 1, metrics={"loss": 1.0})
        save(cluster, 2)
        answer = command_json("prune", "demo", "--keep-best", "lss:min", *flags_of(cluster, root))
        assert answer["keep_best"] == "lss:min"
        assert [entry["why"] for entry in answer["checkpoints"]] == ["no checkpoint has the metric lss", "the newest"]
        assert list(listed(root)) == [1, 2]


def test_retention_by_a_metric_that_no_step_has_says_so(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        save(cluster, 1, metrics={"loss": 1.0, "odd": math.nan})
        for metric, known in (("lss", False), ("odd", False), ("loss", True)):
            rule = ["retention", "demo", "--keep-best", f"{metric}:min", *flags_of(cluster, root)]
            note = f"No checkpoint has the metric {metric} yet: nothing is deleted until one has it."
            assert (note in command(*rule).stdout) != known, metric
            assert command_json(*rule)["metric_known"] == known
        assert "metric_known" not in command_json("retention", "demo", "--keep-last", "1", *flags_of(cluster, root))


def test_bad_metrics_and_rules_are_refused_before_anything_is_saved(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "checkpoints") as cluster:
        client = cluster.connect(0)
        for metrics in ({"a b": 1}, {"loss": "low"}, {"": 1}, {"loss:min": 1}, [1], {f"m{i}": i for i in range(65)}):
            with raises_error("BAD_REQUEST"):
                client.save(1, {"w": np.zeros(4)}, metrics=metrics)
        for rule in ("loss", "loss:lowest", ("loss",), ":min", 3):
            with pytest.raises(cairn.Error):
                client.set_retention(keep_best=rule)
        assert client.checkpoints() == []


def test_client_changes_what_is_kept(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        for step in (1, 2, 3, 4):
            save(cluster, step, metrics={"loss": float(step)})
        client = cluster.connect(1)
        client.pin(1, "in the paper")
        client.tag(2, "best")
        assert client.tags() == {"best": 2}
        with raises_error("CHECKPOINT_PINNED"):
            client.delete(1)
        with raises_error("BAD_REQUEST"):
            client.tag(3, "best")
        dry = client.prune(keep_best=("loss", "max"), dry_run=True)
        assert dry == [cairn.PruneChoice(1, False, "pinned"), cairn.PruneChoice(2, False, "tagged"),
                       cairn.PruneChoice(3, True, ""), cairn.PruneChoice(4, False, "the newest")]
        assert client.checkpoints() == [1, 2, 3, 4]
        assert client.prune(keep_best="loss:max") == dry
        assert client.checkpoints() == [1, 2, 4]
        client.unpin(1)
        client.untag("best")
        client.delete(1, "not needed")
        client.delete(1)
        assert client.checkpoints() == [2, 4]
        client.delete(2)
        with raises_error("LAST_CHECKPOINT"):
            client.delete(4)
        with pytest.raises(cairn.Error) as raised:
            client.prune()
        assert raised.value.reason == "BAD_REQUEST", "the job has no rules"


def test_script_changes_what_is_kept_without_a_client(tmp_path, monkeypatch):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        for step in (1, 2, 3):
            save(cluster, step)
        address = cluster.coordinator.address
        # The token is found by the address, as `cairn` does.
        cairn.checkpoints.pin("demo", 1, "in the paper", coordinator=address)
        monkeypatch.setenv("CAIRN_COORDINATOR", address)
        monkeypatch.setenv("CAIRN_TOKEN_FILE", str(root / ".cairn/token"))
        cairn.checkpoints.tag("demo", 2, "best")
        assert listed(root)[1]["pinned"] and listed(root)[2]["tags"] == ["best"]
        cairn.checkpoints.untag("demo", "best")
        choices = cairn.checkpoints.prune("demo", keep_last=1, dry_run=True)
        assert [choice.step for choice in choices if choice.pruned] == [2]
        cairn.checkpoints.delete("demo", 2, cause="a test")
        cairn.checkpoints.unpin("demo", 1)
        cairn.checkpoints.set_retention("demo", keep_last=1)
        cairn.checkpoints.prune("demo")
        assert list(listed(root)) == [3]
        for call in (lambda: cairn.checkpoints.delete("demo", 3), lambda: cairn.checkpoints.pin("demo", 9)):
            with pytest.raises(cairn.Error) as raised:
                call()
            assert raised.value.reason in ("LAST_CHECKPOINT", "NOT_COMMITTED")
        (tmp_path / "wrong").write_text("0" * 32)
        with raises_error("BAD_TOKEN"):
            cairn.checkpoints.pin("demo", 3, token_file=tmp_path / "wrong")
        cluster.coordinator.kill()
        with raises_error("COORDINATOR_UNREACHABLE"):
            cairn.checkpoints.pin("demo", 3)
    monkeypatch.delenv("CAIRN_COORDINATOR")
    with raises_error("BAD_REQUEST"):
        cairn.checkpoints.pin("demo", 3)
