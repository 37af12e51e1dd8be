"""Tests saves that take the place of a committed checkpoint: what readers find meanwhile, and what is left when they
fail or when the coordinator is killed at any moment.

CAIRN_EXHAUSTIVE kills 300 times instead of a dozen times.
"""

import os
import pathlib
import random
import threading
import time

import numpy as np

import cairn
from testing.ranks import blank, command, command_json, files_below, noise, on_ranks, reasons, rows, until

KILLS = 300 if os.environ.get("CAIRN_EXHAUSTIVE") else 12
# Files of what was replaced before the coordinator's start go when two leases have passed.
FLAGS = {"coordinator_flags": ["--lease-ttl=2s"]}


def whole(version: int) -> np.ndarray:
    return noise((64, 16), np.float32, version)


def save(cluster, step: int, version: int, **options) -> list:
    return on_ranks(cluster, lambda rank, client: client.save(
        step, {"w": rows(whole(version), rank, 2)}, timeout=20, **options).wait(60), errors=True)


def loaded(cluster, versions) -> int:
    """Returns the version that the latest checkpoint has on all ranks."""
    def work(rank, client):
        target = {"w": blank(rows(whole(0), rank, 2))}
        client.load(target)
        return [version for version in versions
                if target["w"].array.tobytes() == rows(whole(version), rank, 2).array.tobytes()]
    found = on_ranks(cluster, work)
    assert found[0] == found[1] and len(found[0]) == 1, found
    return found[0][0]


def bins(root: pathlib.Path, step: int, attempt: int) -> list[pathlib.Path]:
    return files_below(root / f"demo/{step:012}/{attempt:04}", ".safetensors")


def listed(root: pathlib.Path) -> list[tuple]:
    return [(entry["step"], entry["state"], entry["attempt"])
            for entry in command_json("list", "demo", "--root", str(root), "--check")["checkpoints"]]


def test_overwritten_step_has_the_new_state_and_the_old_files_go(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        assert reasons(save(cluster, 1, 0)) == ["", ""]
        assert reasons(save(cluster, 1, 1)) == ["STEP_COMMITTED"] * 2
        answers = save(cluster, 1, 1, overwrite=True)
        assert [answer.attempt for answer in answers] == [2, 2]
        # The job's only checkpoint was replaced: another step never had to stand for it.
        assert listed(root) == [(1, "COMMITTED", 2)]
        assert loaded(cluster, [0, 1]) == 1
        until(lambda: not bins(root, 1, 1), text="the removal of attempt 1")
        assert bins(root, 1, 2)
        command("verify", "demo@1", "--root", str(root))
        assert reasons(save(cluster, 1, 2)) == ["STEP_COMMITTED"] * 2
        cluster.coordinator.kill()
        cluster.coordinator.restart()
        assert [answer.attempt for answer in save(cluster, 1, 2, overwrite=True)] == [3, 3]
        assert loaded(cluster, [0, 1, 2]) == 2
        # A step that nobody has saved may be overwritten too.
        assert [answer.attempt for answer in save(cluster, 2, 3, overwrite=True)] == [1, 1]


def test_ranks_that_do_not_all_want_to_overwrite_change_nothing(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        assert reasons(save(cluster, 1, 0)) == ["", ""]
        answers = on_ranks(cluster, lambda rank, client: client.save(
            1, {"w": rows(whole(1), rank, 2)}, timeout=10, overwrite=rank == 0).wait(60), errors=True)
        assert reasons(answers)[1] == "STEP_COMMITTED" and reasons(answers)[0] != "", reasons(answers)
        assert loaded(cluster, [0, 1]) == 0


def test_overwrite_that_fails_leaves_what_stood(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        assert reasons(save(cluster, 1, 0)) == ["", ""]
        # Rank 1 declares the other rank's rows: the shards do not make one tensor.
        answers = on_ranks(cluster, lambda rank, client: client.save(
            1, {"w": rows(whole(1), 0, 2)}, timeout=20, overwrite=True).wait(60), errors=True)
        assert all(reasons(answers)), reasons(answers)
        assert listed(root) == [(1, "COMMITTED", 1)]
        assert loaded(cluster, [0, 1]) == 0
        address = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        assert command_json("show", "demo@1", *address)["attempt"] == 1


def test_pinned_step_is_not_overwritten(tmp_path):
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        assert reasons(save(cluster, 1, 0)) == ["", ""]
        address = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        command("pin", "demo@1", *address)
        assert reasons(save(cluster, 1, 1, overwrite=True)) == ["CHECKPOINT_PINNED"] * 2
        assert loaded(cluster, [0, 1]) == 0
        command("unpin", "demo@1", *address)
        assert reasons(save(cluster, 1, 1, overwrite=True)) == ["", ""]


def test_coordinator_killed_at_any_moment_of_an_overwrite_leaves_one_whole(tmp_path):
    seed = int(os.environ.get("CAIRN_OVERWRITE_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"CAIRN_OVERWRITE_SEED={seed}")
    chance = random.Random(seed)
    root = tmp_path / "checkpoints"
    replaced = 0
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        assert reasons(save(cluster, 1, 0)) == ["", ""]
        standing = 0
        for version in range(1, KILLS + 1):
            answers: list = []
            saving = threading.Thread(
                target=lambda version=version: answers.extend(save(cluster, 1, version, overwrite=True)))
            saving.start()
            # The moment of the kill is what the test is about, so it is not one that a condition chooses.
            time.sleep(0.25 * chance.random())
            cluster.coordinator.kill()
            # Whoever reads the storage now finds one whole checkpoint.
            assert [entry[:2] for entry in listed(root)] == [(1, "COMMITTED")]
            command("verify", "demo@1", "--root", str(root))
            cluster.coordinator.restart()
            saving.join()
            now = loaded(cluster, [standing, version])
            told = not any(isinstance(answer, cairn.Error) for answer in answers)
            assert now == version or not told, "a save was told as committed, and is not what stands"
            replaced += now == version
            standing = now
        until(lambda: len(list((root / "demo/000000000001").glob("[0-9]*[0-9]"))) == 1,
              text="the removal of what was replaced")
        assert loaded(cluster, [standing]) == standing
    assert replaced, "nothing was ever replaced: the kills came too early"
