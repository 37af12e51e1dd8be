"""Tests the deletion of checkpoints: what is refused, what a load that has begun keeps, and what a coordinator that is
killed at any moment leaves.

CAIRN_EXHAUSTIVE kills 1,000 times instead of some dozen times.
"""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import cairn
from cairn._agent import connection
from cairn._base import wire
from testing.ranks import blank, call_coordinator, command, command_json, files_below, on_ranks, reasons, rows, until
from testing.two_ranks import load, save, whole

KILLS = 1000 if os.environ.get("CAIRN_EXHAUSTIVE") else 24
# Files of what was deleted before the coordinator's start go when two leases have passed.
FLAGS = {"coordinator_flags": ["--lease-ttl=2s"]}


def committed(root) -> list[int]:
    """Returns the steps that are committed with all their files; none may be damaged."""
    listed = command_json("list", "demo", "--root", str(root), "--check")["checkpoints"]
    assert all(entry["state"] == "COMMITTED" for entry in listed), listed
    return [entry["step"] for entry in listed]


def bins(root: pathlib.Path, step: int) -> list[pathlib.Path]:
    return files_below(root / f"demo/{step:012}", ".safetensors")


def test_deleted_step_is_gone_for_everyone_and_can_be_saved_again(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        save(cluster, 1, 2, 3)
        at = ["--coordinator", cluster.coordinator.address]
        token = ["--token-file", str(root / ".cairn/token")]
        answer = command_json("delete", "demo@3", "--cause", "it diverged", *at, *token)
        assert [entry["step"] for entry in answer["deleted"]] == [3]
        until(lambda: not bins(root, 3), text="the removal of step 3")
        assert committed(root) == [1, 2]
        assert load(cluster) == [(2, True)] * 2
        assert reasons(load(cluster, step=3)) == ["NOT_COMMITTED"] * 2
        shown = command("show", "demo@3", "--root", str(root), expect=1).stderr
        assert "it diverged" in shown and "step 2 remained" in shown, shown
        assert answer["previously_deleted_attempts"] == []
        again = command_json("delete", "demo@3", *at, *token)
        assert again["deleted"] == answer["deleted"] and again["previously_deleted_attempts"] == [1]
        text = command("delete", "demo@3", *at, *token).stdout
        assert "demo@3 (attempt 1) was deleted before\n" in text and "it diverged" in text, text
        assert "deleted demo@3" not in text, "that would say it was done just now"
        save(cluster, 3)
        assert load(cluster) == [(3, True)] * 2
        assert committed(root) == [1, 2, 3]
        command("verify", "demo@3", "--root", str(root))
        # What was deleted is remembered, and counts for nothing.
        cluster.coordinator.kill()
        cluster.coordinator.restart()
        assert load(cluster) == [(3, True)] * 2


def test_last_valid_checkpoint_is_refused(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        save(cluster, 1, 2)
        flags = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        bins(root, 2)[0].unlink()
        assert "LAST_CHECKPOINT" in command("delete", "demo@1", *flags, expect=1).stderr
        command("delete", "demo@2", *flags)
        assert "LAST_CHECKPOINT" in command("delete", "demo@1", *flags, expect=1).stderr
        assert "NOT_COMMITTED" in command("delete", "demo@7", *flags, expect=1).stderr
        assert "BAD_REQUEST" in command("delete", "demo", *flags, expect=1).stderr
        assert "LAST_CHECKPOINT" in command("delete", "demo@latest", *flags, expect=1).stderr
        assert committed(root) == [1]
        assert load(cluster) == [(1, True)] * 2


def test_step_that_a_rank_waits_to_load_is_refused(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        save(cluster, 1, 2)
        flags = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        target = {"w": blank(rows(whole(0), 0, 2))}

        def work(rank, client):
            if rank == 1:
                until(lambda: call_coordinator(cluster, "GetJob", job="demo").loads, text="the load of rank 0")
                assert "CHECKPOINT_IN_USE" in command("delete", "demo@1", *flags, expect=1).stderr
            return client.load({"w": blank(rows(whole(0), rank, 2))} if rank else target, step=1).step

        assert on_ranks(cluster, work) == [1, 1]
        command("delete", "demo@1", *flags)
        assert committed(root) == [2]


def test_policy_of_a_job_is_carried_out_after_each_commit(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        flags = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        save(cluster, 1, 2, 3, 4)
        assert "BAD_REQUEST" in command("prune", "demo", *flags, expect=1).stderr
        command("pin", "demo@1", "--note", "in the paper", *flags)
        dry = command_json("prune", "demo", "--keep-last", "2", "--dry-run", *flags)
        assert [(entry["step"], entry["pruned"]) for entry in dry["checkpoints"]] == [
            (1, False), (2, True), (3, False), (4, False)]
        assert committed(root) == [1, 2, 3, 4]
        said = command("prune", "demo", "--keep-last", "2", "--dry-run", *flags).stdout
        assert "their bytes were not read" in said and "cairn verify demo@STEP" in said
        assert command_json("retention", "demo", *flags) == {"job": "demo", "keep_last": 0, "keep_every": 0}
        said = command("retention", "demo", "--keep-last", "1", "--keep-every", "3", *flags).stdout
        assert said.startswith("demo: --keep-last 1 --keep-every 3: after each commit"), said
        assert "No rule keeps 1 of the present checkpoints, so the next commit deletes it. `cairn prune demo" in said
        assert command_json("retention", "demo", "--keep-last", "4", *flags)["unkept"] == 0
        assert command_json("retention", "demo", "--keep-last", "1", "--keep-every", "3", *flags)["unkept"] == 1
        assert "--keep-last 1 --keep-every 3" in command("retention", "demo", *flags).stdout
        save(cluster, 5)
        until(lambda: committed(root) == [1, 3, 5], text="the policy")
        assert [entry["pinned"] for entry in
                command_json("list", "demo", "--root", str(root))["checkpoints"]] == [True, False, False]
        command("unpin", "demo@1", *flags)
        cluster.coordinator.kill()
        cluster.coordinator.restart()
        save(cluster, 6)
        until(lambda: committed(root) == [3, 6], text="the policy after a restart")
        command("retention", "demo", "--off", *flags)
        save(cluster, 7, 8)
        assert committed(root) == [3, 6, 7, 8]
        assert load(cluster) == [(8, True)] * 2
        command_json("prune", "demo", "--keep-last", "1", *flags)
        assert committed(root) == [8]


def test_coordinator_of_an_earlier_version_refuses_a_root_with_deletions(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        save(cluster, 1, 2)
        assert (root / ".cairn/epoch").read_text().split()[0] == "epoch"
        flags = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        command("delete", "demo@1", *flags)
        # Earlier versions take no other first word.
        assert (root / ".cairn/epoch").read_text().split()[0] != "epoch"
        cluster.coordinator.kill()
        cluster.coordinator.restart()
        assert (root / ".cairn/epoch").read_text().split()[0] != "epoch"
        assert load(cluster) == [(2, True)] * 2


class Coordinator:
    """A coordinator without agents, which is killed."""

    def __init__(self, root: pathlib.Path):
        address = root.parent / "address"
        address.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [str(cairn.local.binary("cairn-coordinator")), "--root", str(root), "--insecure", "--lease-ttl=300ms",
             "--address-file", str(address)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: address.exists() and address.read_text().strip(), text="the coordinator's start")
        self._channel = connection.make_channel(address.read_text().strip())

    def delete(self, step: int):
        """Asks for it, and does not wait for the answer."""
        method = wire.CHECKPOINTS["DeleteCheckpoint"]
        call = self._channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        return call.future(method.request(job="demo", step=step, cause="a test"), timeout=30.0)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._channel.close()


def deletes(answers) -> bool:
    """Whether one of the deletions was not refused, as far as is known."""
    return any(not answer.done() or answer.exception() is None for answer in answers)


def test_coordinator_killed_at_any_moment_never_loses_the_last_checkpoint(tmp_path):
    seed = int(os.environ.get("CAIRN_DELETION_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"CAIRN_DELETION_SEED={seed}")
    chance = random.Random(seed)
    made, root = tmp_path / "made", tmp_path / "root"
    steps = list(range(1, 13))
    with cairn.local.Cluster(ranks=2, root=made) as cluster:
        save(cluster, *steps)
    before: list[int] = []
    deleted_in_all = removed_in_all = 0
    for _ in range(KILLS):
        if len(before) <= 1:
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(made, root)
            before = steps
        coordinator = Coordinator(root)
        asked = chance.sample(steps, chance.randint(1, len(steps)))
        answers = [coordinator.delete(step) for step in asked]
        # A moment after it was asked, after the first answer, or after the first file went.
        moment = chance.choice(["asked", "told", "removing"])
        if moment != "asked":
            until(lambda: any(answer.done() for answer in answers), text="an answer")
        if moment == "removing":
            until(lambda: not deletes(answers) or any(len(bins(root, step)) < len(bins(made, step)) for step in asked),
                  text="the removal of a file")
        time.sleep(0.03 * chance.random())
        told = {step for step, answer in zip(asked, answers) if answer.done() and answer.exception() is None}
        coordinator.kill()
        after = committed(root)
        # Whatever is left is whole, nothing else went, and what was told as deleted is.
        assert after and set(after) <= set(before), (before, after)
        assert set(before) - set(after) <= set(asked) and not told & set(after), (before, after, asked, told)
        for step in steps:
            gone = len(bins(root, step)) < len(bins(made, step))
            assert not (gone and step in after), f"step {step} lost files"
            removed_in_all += gone
        deleted_in_all += len(before) - len(after)
        before = after
    assert deleted_in_all and removed_in_all, "nothing was ever deleted: the kills came too early"
    for step in before:
        command("verify", f"demo@{step}", "--root", str(root))
