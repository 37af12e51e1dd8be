"""Tests damaged checkpoints: whom they disturb, what a load takes instead, how every view shows them, and their
repair."""

import os
import pathlib
import shutil

import numpy as np
import pytest

import cairn
from testing.ranks import blank, command, command_json, noise, on_ranks, reasons, rows

FLAGS = {"coordinator_flags": ["--phase-timeout=10s", "--lease-ttl=3s"]}


def whole(step: int) -> np.ndarray:
    return noise((64, 16), np.float32, step)


def state(step: int, rank: int) -> dict:
    return {"w": rows(whole(step), rank, 2), "rng": cairn.per_rank({"seed": rank, "step": step}),
            "tied": cairn.alias("w")}


def save(cluster, step: int) -> list:
    return on_ranks(
        cluster, lambda rank, client: client.save(step, state(step, rank), timeout=20).wait(60), errors=True
    )


def load(cluster, **options) -> list:
    """Returns (report, whether the arrays are those of the report's step) of every rank, or its error."""
    def work(rank, client):
        target = {"w": blank(rows(whole(0), rank, 2))}
        report = client.load(target, **options)
        expected = rows(whole(report.step), rank, 2).array
        return report, target["w"].array.tobytes() == expected.tobytes()
    return on_ranks(cluster, work, errors=True)


def cluster_of(root) -> cairn.local.Cluster:
    return cairn.local.Cluster(ranks=2, root=root, **FLAGS)


@pytest.fixture
def root(tmp_path):
    """Makes a root with the steps 1, 2 and 3 of a job of two ranks."""
    root = tmp_path / "checkpoints"
    with cluster_of(root) as cluster:
        for step in (1, 2, 3):
            assert reasons(save(cluster, step)) == ["", ""]
    return root


def directory(root: pathlib.Path, step: int) -> pathlib.Path:
    return root / f"demo/{step:012}"


def outcome(root, step: int) -> pathlib.Path:
    return directory(root, step) / "0001.verdict"


def bin_of(root, step: int) -> pathlib.Path:
    return max(directory(root, step).glob("0001/*.safetensors"))


def flip(path: pathlib.Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def listed(root, cluster=None) -> list:
    """Returns what `list` says, which must be the same from storage and, if it runs, from the coordinator."""
    from_storage = command_json("list", "demo", f"--root={root}")["checkpoints"]
    if cluster is not None:
        told = command_json("list", "demo", f"--coordinator={cluster.coordinator.address}")["checkpoints"]
        assert told == from_storage
    return from_storage


def states(root, cluster=None) -> dict:
    return {row["step"]: row["state"] if row["state"] == "COMMITTED" else row["error"]["reason"]
            for row in listed(root, cluster)}


DAMAGE = {
    "MANIFEST_CORRUPT": lambda root, step: flip(outcome(root, step), -3),
    "FILE_MISSING": lambda root, step: bin_of(root, step).unlink(),
    "FILE_TRUNCATED": lambda root, step: os.truncate(bin_of(root, step), bin_of(root, step).stat().st_size - 100),
}


def test_proven_damage_is_passed_over_by_all_ranks_alike(root):
    for step, damage in ((3, "FILE_MISSING"), (2, "MANIFEST_CORRUPT")):
        DAMAGE[damage](root, step)
    with cluster_of(root) as cluster:
        for report, right in load(cluster):
            assert (report.step, right) == (1, True)
            assert report.passed_over == [{"step": 3, "reason": "FILE_MISSING"},
                                          {"step": 2, "reason": "MANIFEST_CORRUPT"}]
        assert "passed_over=3" in pathlib.Path(cluster.coordinator.log).read_text()
        refused = load(cluster, fallback=False)
        assert reasons(refused) == ["FILE_MISSING"] * 2 and "demo@3" in refused[0].message
        assert states(root, cluster) == {1: "COMMITTED", 2: "MANIFEST_CORRUPT", 3: "COMMITTED"}
        # A load of a named step never takes another one.
        assert reasons(load(cluster, step=2)) == ["MANIFEST_CORRUPT"] * 2
        # A rank does not decide by itself either.
        answers = on_ranks(cluster, lambda rank, client: client.load({"w": blank(rows(whole(0), rank, 2))},
                                                                     fallback=rank == 0), errors=True)
        assert reasons(answers) == ["BAD_REQUEST"] * 2 and "without fallback" in answers[0].message
        assert reasons(save(cluster, 4)) == ["", ""]
        for report, right in load(cluster):
            assert (report.step, right, report.passed_over) == (4, True, [])


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_under_a_running_coordinator(root, damage):
    with cluster_of(root) as cluster:
        assert all(right and report.step == 3 for report, right in load(cluster))
        DAMAGE[damage](root, 3)
        for report, right in load(cluster):
            assert (report.step, right, report.passed_over) == (2, True, [{"step": 3, "reason": damage}])


def test_damage_found_while_arrays_fill_ends_the_load(root):
    flip(bin_of(root, 3), -5)
    with cluster_of(root) as cluster:
        answers = load(cluster)
        assert reasons(answers) == ["CHECKSUM_MISMATCH"] * 2
        for answer in answers:
            assert "step 3 is damaged: the next older one is step 2" in answer.message, answer
            assert f"next: Load step 2; nobody has looked at its files, and `cairn verify demo@2 --root {root}`" in (
                str(answer)), answer
            assert (answer.metadata["step"], answer.metadata["older_step"]) == ("3", "2")
            assert answer.metadata["file"] and answer.metadata["job"] == "demo"
        assert all(right for _, right in load(cluster, step=2))


def unreadable(path: pathlib.Path, how: str) -> None:
    """Makes it such that not even root can read it."""
    path.unlink()
    if how == "PATH_ESCAPE":
        path.symlink_to(path.name)
    elif how == "MESSAGE_TOO_LARGE":
        path.touch()
        os.truncate(path, (1 << 30) + 1)
    else:
        path.mkdir()


@pytest.mark.parametrize("how", ["PATH_ESCAPE", "MESSAGE_TOO_LARGE", "STORAGE_ERROR"])
def test_outcome_that_cannot_be_read_is_its_steps_trouble(root, how):
    unreadable(outcome(root, 1), how)
    directory(root, 5).symlink_to("elsewhere")
    with cluster_of(root) as cluster:
        address = f"--coordinator={cluster.coordinator.address}"
        assert states(root, cluster) == {1: how, 2: "COMMITTED", 3: "COMMITTED", 5: "PATH_ESCAPE"}
        with cluster.connect(0) as client:
            assert client.checkpoints() == [2, 3]
        # Nobody can read step 5, so it may be the latest. A step that is named is loaded.
        answers = load(cluster)
        assert reasons(answers) == ["PATH_ESCAPE"] * 2 and "demo@5" in answers[0].message
        assert all(right for _, right in load(cluster, step=3))
        # A save of another step works, and one of this step is refused by name.
        assert reasons(save(cluster, 4)) == ["", ""]
        for step, reason in ((1, how), (5, "PATH_ESCAPE")):
            refused = save(cluster, step)
            assert reasons(refused) == [reason] * 2 and f"{step:012}" in refused[0].message, refused
        command("status", "demo", address)
        directory(root, 5).unlink()
        for report, right in load(cluster):
            assert (report.step, right, report.passed_over) == (4, True, [])


def test_step_that_was_removed_is_gone(root):
    with cluster_of(root) as cluster:
        assert sorted(states(root, cluster)) == [1, 2, 3]
        assert all(report.step == 3 for report, _ in load(cluster))
        shutil.rmtree(directory(root, 3))
        assert sorted(states(root, cluster)) == [1, 2]
        for report, right in load(cluster):
            assert (report.step, right, report.passed_over) == (2, True, [])
        assert reasons(load(cluster, step=3)) == ["NOT_COMMITTED"] * 2


def test_sizes_are_those_of_the_files(root):
    on_disk = sum(path.stat().st_size for path in directory(root, 3).glob("0001/*.safetensors"))
    with cluster_of(root) as cluster:
        address = f"--coordinator={cluster.coordinator.address}"
        assert listed(root, cluster)[-1]["bytes"] == on_disk
        for where in (address, f"--root={root}"):
            assert command_json("show", "demo@3", where)["bytes"] == on_disk
        assert save(cluster, 4)[0].bytes == listed(root, cluster)[-1]["bytes"]


# Repair.


def damage_head(root, step: int) -> None:
    flip(outcome(root, step), 20) # damages the checksum, so the record can be read but not trusted


def test_repair_end_to_end(root):
    before = command_json("show", "demo@3", f"--root={root}")
    row = listed(root)[-1]
    damage_head(root, 3)
    bytes_of_outcome = outcome(root, 3).read_bytes()
    with cluster_of(root) as cluster:
        assert states(root, cluster)[3] == "MANIFEST_CORRUPT"
        served = command("repair", "demo@3", f"--root={root}", expect=1)
        assert "ROOT_IN_USE" in served.stderr
    done = command_json("repair", "demo@3", f"--root={root}")
    assert done["repaired"] and done["step"] == 3 and done["unknown"]
    assert outcome(root, 3).read_bytes() == bytes_of_outcome
    assert not command_json("repair", "demo@3", f"--root={root}")["repaired"]
    after = command_json("show", "demo@3", f"--root={root}")
    # A repair reads no tensors, so it does not know their fingerprints.
    for tensor in before["tensors"]:
        kept = {key: tensor[key] for key in ("name", "dtype", "global_shape", "shards")}
        tensor.clear()
        tensor.update(kept, fingerprint=None)
    for key in ("tensors", "objects", "aliases", "files", "bytes", "world_size", "attempt"):
        assert after[key] == before[key], key
    command("verify", "demo@3", f"--root={root}")
    command("export", "demo@3", f"--root={root}", f"--to={root.parent / 'exported'}")
    with cluster_of(root) as cluster:
        again = listed(root, cluster)[-1]
        assert {**again, "commit_time": ""} == {**row, "commit_time": ""}
        assert (
            command_json("show", "demo@3", f"--coordinator={cluster.coordinator.address}")["files"] == before["files"]
        )
        for rank, (report, right) in enumerate(load(cluster)):
            assert (report.step, right, report.passed_over) == (3, True, [])
            assert report.objects["rng"] == {"seed": rank, "step": 3}
        assert reasons(save(cluster, 3)) == ["STEP_COMMITTED"] * 2
        assert reasons(save(cluster, 4)) == ["", ""]


def test_repair_needs_proof_of_a_commit(root):
    # In a small manifest every byte of the record stands or falls with all the others.
    flip(outcome(root, 3), -3)
    done = command("repair", "demo@3", f"--root={root}", expect=1)
    assert "COMMIT_UNPROVEN" in done.stderr and "--assume-committed" in done.stderr
    assert states(root)[3] == "MANIFEST_CORRUPT"
    command("repair", "demo@3", f"--root={root}", "--assume-committed")
    assert states(root)[3] == "COMMITTED"
    command("repair", "demo@9", f"--root={root}", "--assume-committed", expect=1)
    command("repair", "demo", f"--root={root}", expect=1)


def test_repair_takes_no_abort_record_for_a_commit(tmp_path):
    root = tmp_path / "aborted"
    with cluster_of(root) as cluster:
        answers = on_ranks(cluster, lambda rank, client: client.save(1, {"w": np.full(4, rank)}, timeout=20).wait(60),
                           errors=True)
        assert reasons(answers) == ["REPLICA_MISMATCH"] * 2
        assert reasons(save(cluster, 2)) == ["", ""]
    abort_records = [path for path in directory(root, 1).glob("*.verdict")]
    assert abort_records, "the abort left no record"
    # The files stand as if they had not been removed yet.
    shutil.copytree(directory(root, 2) / "0001", directory(root, 1) / "0001", dirs_exist_ok=True)
    flip(abort_records[0], 20)
    assert states(root)[1] == "MANIFEST_CORRUPT"
    assert "COMMIT_UNPROVEN" in command("repair", "demo@1", f"--root={root}", expect=1).stderr
    # These files belong to another step.
    assert "BAD_SAFETENSORS" in command("repair", "demo@1", f"--root={root}", "--assume-committed", expect=1).stderr


@pytest.mark.parametrize("damage, reason", [
    (lambda root: bin_of(root, 3).unlink(), "FILE_MISSING"),
    (lambda root: flip(bin_of(root, 3), -5), "CHECKSUM_MISMATCH"),
    (lambda root: flip(bin_of(root, 3), 200), "BAD_SAFETENSORS"),
    (lambda root: os.truncate(bin_of(root, 3), 4100), "FILE_TRUNCATED"),
])
def test_repair_refuses_bins_that_are_not_whole(root, damage, reason):
    damage_head(root, 3)
    damage(root)
    done = command("repair", "demo@3", f"--root={root}", expect=1)
    assert reason in done.stderr, done.stderr
    assert not list(directory(root, 3).glob("*.repaired"))
    assert states(root)[3] == "MANIFEST_CORRUPT"
