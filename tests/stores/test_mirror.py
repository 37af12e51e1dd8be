"""A root in a directory with a mirror in an object store: real processes, and what people see of it."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import cairn
from stores.fault_proxy import FaultProxy
from testing.ranks import blank, noise, on_ranks, rows

RANKS = 2
WHOLE = {"large": noise((4096, 1400), np.float32, 1), "small": noise((33, 17), np.float16, 2)}


def state_of(step: int, rank: int) -> dict:
    tensors = {name: rows(np.roll(array, step), rank, RANKS) for name, array in WHOLE.items()}
    return {**tensors, "progress": {"step": step}}


def go_on(rank: int, client: cairn.Client) -> None:
    """Resumes from step 20, and saves it anew."""
    target = {name: {} if name == "progress" else blank(shard) for name, shard in state_of(20, rank).items()}
    assert client.load(target).step == 20
    client.save(20, state_of(20, rank), overwrite=True).wait()
    client.save(30, state_of(30, rank)).wait()


def cluster_of(root, mirror: str, *flags: str) -> cairn.local.Cluster:
    return cairn.local.Cluster(ranks=RANKS, root=str(root), coordinator_flags=[f"--mirror={mirror}", *flags])


def save(cluster, *steps: int, **options) -> None:
    def work(rank, client):
        for step in steps:
            client.save(step, state_of(step, rank), **options).wait()

    on_ranks(cluster, work)


def load(cluster, step=None, mirror: str | None = None) -> int:
    """Loads a step on all ranks, compares every byte, and returns the step.

    Args:
      mirror: where the report must say that it was read; None for anywhere.
    """

    def work(rank, client):
        wanted = state_of(step or 0, rank)
        target = {name: {} if name == "progress" else blank(shard) for name, shard in wanted.items()}
        report = client.load(target) if step is None else client.load(target, step=step)
        for name, shard in state_of(report.step, rank).items():
            if name != "progress":
                assert target[name].array.tobytes() == shard.array.tobytes(), (report.step, name)
        assert mirror in (None, report.mirror), report
        return report.step

    (found,) = set(on_ranks(cluster, work))
    return found


def command(*arguments: str, status: int = 0) -> str:
    result = subprocess.run([f"{os.environ['CAIRN_BIN_DIR']}/cairn", *arguments], capture_output=True, text=True)
    assert result.returncode == status, (arguments, result.stdout, result.stderr)
    return result.stdout


def ask(cluster, *arguments: str, status: int = 0) -> str:
    return command(*arguments, "--coordinator", cluster.coordinator.address, "--token-file",
                   str(pathlib.Path(cluster.root) / ".cairn" / "token"), status=status)


def refused(cluster, *arguments: str) -> str:
    """What a command that is refused says."""
    result = subprocess.run([f"{os.environ['CAIRN_BIN_DIR']}/cairn", *arguments, "--coordinator",
                             cluster.coordinator.address, "--token-file",
                             str(pathlib.Path(cluster.root) / ".cairn" / "token")], capture_output=True, text=True)
    assert result.returncode != 0, (arguments, result.stdout)
    return result.stderr


def listed(cluster) -> dict:
    return json.loads(ask(cluster, "list", "demo", "--format=json"))


def await_states(cluster, wanted: dict[int, str], seconds: float = 60.0) -> None:
    """Waits until the steps have these states at the mirror."""
    deadline = time.monotonic() + seconds
    while True:
        answer = listed(cluster)
        states = {one["step"]: one["mirror"]["state"] for one in answer["checkpoints"] + answer["only_at_mirror"]
                  if "mirror" in one}
        if all(states.get(step) == state for step, state in wanted.items()):
            return
        assert time.monotonic() < deadline, (wanted, answer)
        time.sleep(0.1)


def files_below(directory) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in pathlib.Path(directory).rglob("*") if path.is_file() and path.name != ".owner"}


def test_a_lost_root_is_loaded_from_the_mirror_and_the_training_goes_on(use, tmp_path):
    mirror = "s3://models/lost"
    with cluster_of(tmp_path / "root", mirror) as cluster:
        save(cluster, 10, 20)
        await_states(cluster, {10: "MIRRORED", 20: "MIRRORED"})
        assert f"mirror {mirror}: no step waits" in ask(cluster, "status", "demo")
        assert "copied" in ask(cluster, "list", "demo")
    for step in ("10", "20"):
        command("verify", f"demo@{step}", "--root", mirror)
    command("diff", "demo@10", "demo@20", "--root", mirror, status=1)
    shutil.rmtree(tmp_path / "root")
    with cluster_of(tmp_path / "root", mirror) as cluster:
        assert load(cluster, mirror=mirror) == 20
        assert load(cluster, 10, mirror) == 10
        assert f"from the mirror {mirror}" in ask(cluster, "status", "demo")
        assert "load_from_mirror" in cluster.coordinator.log.read_text()
        # Only the mirror has step 20. It counts as committed; saved anew, it is another attempt, and the later one.
        with pytest.raises(cairn.Error) as refusal:
            save(cluster, 20)
        assert refusal.value.reason == "STEP_COMMITTED"
        on_ranks(cluster, go_on)
        await_states(cluster, {20: "MIRRORED", 30: "MIRRORED", 10: "ONLY_THERE"})
        assert load(cluster, mirror="") == 30
    steps = json.loads(command("list", "demo", "--root", mirror, "--format=json"))["checkpoints"]
    assert [(one["step"], one["state"]) for one in steps] == [
        (10, "COMMITTED"), (20, "COMMITTED"), (30, "COMMITTED")], steps
    with cairn.local.Cluster(ranks=RANKS, root=mirror) as cluster:
        assert load(cluster) == 30


def test_a_directory_as_mirror_has_the_same_files(tmp_path):
    with cluster_of(tmp_path / "root", str(tmp_path / "mirror")) as cluster:
        save(cluster, 1, 2)
        await_states(cluster, {1: "MIRRORED", 2: "MIRRORED"})
    assert files_below(tmp_path / "mirror" / "demo") == files_below(tmp_path / "root" / "demo")


def test_a_killed_coordinator_goes_on_with_a_copy(use, endpoint, tmp_path):
    mirror = "s3://models/killed"
    with cluster_of(tmp_path / "root", mirror) as cluster:
        for step in (1, 2, 3):
            save(cluster, step)
            time.sleep(0.05 * step)
            cluster.coordinator.kill()
            cluster.coordinator.restart()
            cluster.await_agents()
        await_states(cluster, {1: "MIRRORED", 2: "MIRRORED", 3: "MIRRORED"})
    for step in (1, 2, 3):
        command("verify", f"demo@{step}", "--root", mirror)


def test_a_mirror_that_is_down_keeps_no_save_and_is_caught_up_with(use, endpoint, tmp_path):
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    proxy.answer = lambda method, path: (503, "<Error><Code>SlowDown</Code></Error>")
    with contextlib.closing(proxy), cluster_of(tmp_path / "root", "s3://models/down") as cluster:
        begun = time.monotonic()
        save(cluster, 1, 2)
        assert time.monotonic() - begun < 10
        assert listed(cluster)["checkpoints"][0]["mirror"]["state"] == "UNKNOWN"
        proxy.answer = lambda method, path: None
        await_states(cluster, {1: "MIRRORED", 2: "MIRRORED"}, seconds=180)
        assert listed(cluster)["mirror"]["error"] is None


def test_a_mirror_that_never_answers_does_not_keep_the_coordinator_from_ending(use, endpoint, tmp_path):
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    proxy.answer = lambda method, path: time.sleep(20)
    with contextlib.closing(proxy), cluster_of(tmp_path / "root", "s3://models/mute") as cluster:
        save(cluster, 1)
        begun = time.monotonic()
        cluster.coordinator.kill(signal.SIGTERM)
        while cluster.coordinator.alive():
            assert time.monotonic() < begun + 15
            time.sleep(0.1)
        assert cluster.coordinator.returncode == 0, cluster.coordinator.log.read_text()
        proxy.answer = lambda method, path: None


def test_what_a_person_deletes_goes_at_both_and_rules_leave_the_mirror(use, tmp_path):
    with cluster_of(tmp_path / "root", "s3://models/deleted", "--lease-ttl=1s") as cluster:
        save(cluster, 1, 2, 3, 4)
        await_states(cluster, dict.fromkeys((1, 2, 3, 4), "MIRRORED"))
        ask(cluster, "prune", "demo", "--keep-last", "2")
        await_states(cluster, {1: "ONLY_THERE", 2: "ONLY_THERE", 4: "MIRRORED"})
        assert load(cluster, 1) == 1
        assert "copy at the mirror is deleted too" in ask(cluster, "delete", "demo@3")
        assert "deleted demo@2" in ask(cluster, "delete", "demo@2")
        deadline = time.monotonic() + 60
        while [one["step"] for one in json.loads(
                command("list", "demo", "--root", "s3://models/deleted", "--format=json"))["checkpoints"]] != [1, 4]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        with pytest.raises(cairn.Error) as refusal:
            load(cluster, 3)
        assert refusal.value.reason == "NOT_COMMITTED"


def test_rules_wait_for_the_mirror_up_to_a_bound(use, endpoint, tmp_path):
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    proxy.answer = lambda method, path: (503, "<Error><Code>SlowDown</Code></Error>")
    with contextlib.closing(proxy), cluster_of(tmp_path / "root", "s3://models/bound") as cluster:
        on_ranks(cluster, lambda rank, client: client.set_retention(keep_last=1) if rank == 0 else None)
        save(cluster, *range(1, 8))
        deadline = time.monotonic() + 30
        while [one["step"] for one in listed(cluster)["checkpoints"]] != [4, 5, 6, 7]:
            assert time.monotonic() < deadline, listed(cluster)
            time.sleep(0.1)
        assert "not copied to the mirror yet" in ask(cluster, "prune", "demo", "--keep-last", "1", "--dry-run")
        proxy.answer = lambda method, path: None
        await_states(cluster, dict.fromkeys((4, 5, 6, 7), "MIRRORED"), seconds=180)
        save(cluster, 8)
        await_states(cluster, {4: "ONLY_THERE", 8: "MIRRORED"})


def test_the_mirror_keeps_the_last_and_the_pinned(use, tmp_path):
    with cluster_of(tmp_path / "root", "s3://models/last", "--mirror-keep-last=2", "--lease-ttl=1s") as cluster:
        save(cluster, 1)
        ask(cluster, "pin", "demo@1")
        save(cluster, 2, 3, 4)
        await_states(cluster, {1: "MIRRORED", 2: "LEFT_OUT", 3: "MIRRORED", 4: "MIRRORED"})
    steps = json.loads(command("list", "demo", "--root", "s3://models/last", "--format=json"))["checkpoints"]
    assert [(one["step"], one["pinned"]) for one in steps] == [(1, True), (3, False), (4, False)]


def test_a_damaged_file_is_not_copied_and_a_copy_stands_in_for_it(use, tmp_path):
    with cluster_of(tmp_path / "root", "s3://models/damaged", "--mirror-steps=every:2") as cluster:
        save(cluster, 2)
        await_states(cluster, {2: "MIRRORED"})
        cluster.coordinator.kill()
        next(pathlib.Path(tmp_path / "root" / "demo").glob("*2/0001/*bin00.safetensors")).unlink()
        cluster.coordinator.restart()
        cluster.await_agents()
        assert load(cluster, 2) == 2, "the mirror has the file that the root lacks"
    with cluster_of(tmp_path / "root", "s3://models/none", "--mirror-steps=newest") as cluster:
        await_states(cluster, {2: "FAILED"})
        assert "FILE_MISSING" in ask(cluster, "list", "demo")


def test_a_job_whose_mirror_cannot_be_asked_does_not_begin_anew(use, endpoint, tmp_path):
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    proxy.answer = lambda method, path: (403, "<Error><Code>AccessDenied</Code></Error>")
    with contextlib.closing(proxy), cluster_of(tmp_path / "root", "s3://models/silent") as cluster:
        with pytest.raises(cairn.Error) as refusal:
            load(cluster)
        assert refusal.value.reason != "NOT_COMMITTED" and "mirror" in str(refusal.value)
        # A program that finds an empty list begins anew as well.
        for ask_for in (lambda client: client.checkpoints(), lambda client: client.tags(),
                        lambda client: client.load({}, step="gold")):
            with pytest.raises(cairn.Error) as refusal:
                on_ranks(cluster, lambda rank, client, ask_for=ask_for: ask_for(client))
            assert refusal.value.reason != "NOT_COMMITTED" and "mirror" in str(refusal.value)


def test_two_coordinators_with_one_mirror_do_not_disturb_each_other(use, tmp_path):
    mirror = "s3://models/shared"
    with cluster_of(tmp_path / "one", mirror) as one:
        save(one, 1)
        await_states(one, {1: "MIRRORED"})
        with cluster_of(tmp_path / "two", mirror) as two:
            save(two, 1, 2)
            deadline = time.monotonic() + 30
            while "ROOT_IN_USE" not in ask(two, "list", "demo"):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        save(one, 2)
        await_states(one, {1: "MIRRORED", 2: "MIRRORED"})
    for step in (1, 2):
        command("verify", f"demo@{step}", "--root", mirror)


@pytest.mark.parametrize("flags, words", [
    (["--mirror=mirror"], "absolute path"),
    (["--mirror=s3://models/x?region=eu"], "options behind"),
    (["--mirror=/ROOT/inner"], "lie within each other"),
    (["--mirror=/elsewhere", "--mirror-steps=some"], "every:N"),
    (["--mirror=/elsewhere", "--mirror-keep-last=-1"], "below 0"),
])
def test_a_mirror_that_cannot_be_is_refused_at_the_start(tmp_path, flags, words):
    flags = [flag.replace("/ROOT", str(tmp_path)) for flag in flags]
    result = subprocess.run([str(cairn.local.binary("cairn-coordinator")), f"--root={tmp_path}", *flags],
                            capture_output=True, text=True)
    assert result.returncode == 2 and words in result.stderr + result.stdout, result.stderr
    assert "next" in result.stderr


def test_a_root_of_its_own_is_not_taken_for_a_mirror(tmp_path):
    """Its checkpoints are neither replaced nor loaded."""
    other, root = tmp_path / "other", tmp_path / "root"
    with cairn.local.Cluster(ranks=RANKS, root=str(other)) as cluster:
        save(cluster, 10, 20)
    before = {path: data for path, data in files_below(other).items() if path.startswith("demo/")}
    with cluster_of(root, str(other), "--mirror-keep-last=1") as cluster:
        with pytest.raises(cairn.Error) as error:
            load(cluster)
        assert error.value.reason == "ROOT_IN_USE", error.value
        save(cluster, 10, 30)
        deadline = time.monotonic() + 30
        while "nobody mirrored there" not in (answer := ask(cluster, "list", "demo")):
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)
    assert {path: data for path, data in files_below(other).items() if path.startswith("demo/")} == before


def test_a_copy_of_an_earlier_commit_is_not_loaded_in_the_place_of_a_damaged_one(tmp_path):
    root, mirror = tmp_path / "root", tmp_path / "mirror"
    with cluster_of(root, str(mirror)) as cluster:
        save(cluster, 10)
        await_states(cluster, {10: "MIRRORED"})
    with cairn.local.Cluster(ranks=RANKS, root=str(root)) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(10, state_of(11, rank), overwrite=True).wait())
    (newest,) = {path.parent for path in (root / "demo" / f"{10:012}").rglob("*-bin*.safetensors")
                 if path.parent.name != "0001"}
    next(newest.glob("*-bin*.safetensors")).unlink()
    with cluster_of(root, str(mirror)) as cluster:
        for step in (10, None):
            with pytest.raises(cairn.Error) as error:
                load(cluster, step)
            assert error.value.reason in ("FILE_MISSING", "NOT_COMMITTED"), error.value


def test_a_root_from_a_backup_does_not_hide_what_came_later(tmp_path):
    root, mirror = tmp_path / "root", str(tmp_path / "mirror")
    with cluster_of(root, mirror) as cluster:
        save(cluster, 10)
        await_states(cluster, {10: "MIRRORED"})
    shutil.copytree(root, tmp_path / "backup")
    with cluster_of(root, mirror) as cluster:
        save(cluster, 20, 30)
        await_states(cluster, {20: "MIRRORED", 30: "MIRRORED"})
    shutil.rmtree(root)
    (tmp_path / "backup").rename(root)
    with cluster_of(root, mirror) as cluster:
        assert load(cluster) == 30
        assert "its latest whole step is 10" in cluster.coordinator.log.read_text()


def test_steps_that_were_left_behind_are_not_loaded_after_the_root_is_lost(tmp_path):
    def go_back(rank, client):
        target = {name: {} if name == "progress" else blank(shard) for name, shard in state_of(10, rank).items()}
        client.load(target, step=10)
        client.save(15, state_of(15, rank)).wait()

    root, flags = tmp_path / "root", (str(tmp_path / "mirror"), "--mirror-steps=every:10")
    with cluster_of(root, *flags) as cluster:
        save(cluster, 10, 20)
        await_states(cluster, {10: "MIRRORED", 20: "MIRRORED"})
        on_ranks(cluster, go_back)
        await_states(cluster, {15: "MIRRORED"})
    shutil.rmtree(root)
    with cluster_of(root, *flags) as cluster:
        assert load(cluster) == 15


def test_what_only_the_mirror_has_is_changed_there(tmp_path):
    root, mirror = tmp_path / "root", str(tmp_path / "mirror")
    with cluster_of(root, mirror) as cluster:
        save(cluster, 10, 20)
        ask(cluster, "tag", "demo@10", "gold")
        await_states(cluster, {10: "MIRRORED", 20: "MIRRORED"})
    shutil.rmtree(root)
    with cluster_of(root, mirror) as cluster:
        await_states(cluster, {10: "ONLY_THERE", 20: "ONLY_THERE"})
        assert set(on_ranks(cluster, lambda rank, client: client.tags()["gold"])) == {10}
        assert "CHECKPOINT_PINNED" in refused(cluster, "delete", "demo@10")
        ask(cluster, "untag", "demo@gold")
        ask(cluster, "delete", "demo@10")
        assert "LAST_CHECKPOINT" in refused(cluster, "delete", "demo@20")
        assert mirror in ask(cluster, "show", "demo@20")
        ask(cluster, "pin", "demo@20")
        (one,) = listed(cluster)["only_at_mirror"]
        assert (one["step"], one["pinned"]) == (20, True)
        cluster.coordinator.kill()
        cluster.coordinator.restart()
        cluster.await_agents()
        await_states(cluster, {20: "ONLY_THERE"})
        assert [one["step"] for one in listed(cluster)["only_at_mirror"]] == [20]


def test_bits_that_rot_at_the_root_are_read_from_the_mirror(tmp_path):
    with cluster_of(tmp_path / "root", str(tmp_path / "mirror")) as cluster:
        save(cluster, 10)
        await_states(cluster, {10: "MIRRORED"})
        for path in (tmp_path / "root").rglob("*.safetensors"):
            with open(path, "r+b") as file:
                file.seek(-1000, os.SEEK_END)
                file.write(bytes(100))
    with cluster_of(tmp_path / "root", str(tmp_path / "mirror")) as cluster:
        with pytest.raises(cairn.Error) as damaged:
            load(cluster)
        assert damaged.value.reason == "CHECKSUM_MISMATCH"
        assert damaged.value.metadata["copy"] == str(tmp_path / "mirror")
        assert "older_step" not in damaged.value.metadata
        assert load(cluster) == 10
        assert "an earlier load has found damage" in cluster.coordinator.log.read_text()


def test_marks_of_what_only_the_mirror_has_stay_with_the_step(tmp_path):
    def go_back(rank, client):
        target = {name: {} if name == "progress" else blank(shard) for name, shard in state_of(10, rank).items()}
        client.load(target, step=10)
        client.save(20, state_of(21, rank)).wait()

    root, mirror = tmp_path / "root", str(tmp_path / "mirror")
    with cluster_of(root, mirror, "--lease-ttl=1s") as cluster:
        save(cluster, 10, 20, 30)
        await_states(cluster, {10: "MIRRORED", 20: "MIRRORED", 30: "MIRRORED"})
        ask(cluster, "prune", "demo", "--keep-last", "1")
        await_states(cluster, {10: "ONLY_THERE", 20: "ONLY_THERE"})
        ask(cluster, "pin", "demo@20")
        ask(cluster, "tag", "demo@20", "gold")
        on_ranks(cluster, go_back)
        await_states(cluster, {20: "MIRRORED"})
        (one,) = [one for one in listed(cluster)["checkpoints"] if one["step"] == 20]
        assert one["pinned"] and one["tags"] == ["gold"], one
        assert pathlib.Path(mirror, "demo/000000000020/pinned").exists()
        assert list(pathlib.Path(mirror, "demo/000000000020/0001").glob("*.safetensors")), "the pinned files"


def test_the_latest_is_that_of_both_lineages(tmp_path):
    def go_back(rank, client):
        target = {name: {} if name == "progress" else blank(shard) for name, shard in state_of(10, rank).items()}
        client.load(target, step=10)
        client.save(15, state_of(15, rank)).wait()

    root, mirror = tmp_path / "root", str(tmp_path / "mirror")
    with cluster_of(root, mirror) as cluster:
        save(cluster, 10, 20, 30)
        await_states(cluster, {10: "MIRRORED", 20: "MIRRORED", 30: "MIRRORED"})
    shutil.copytree(root, tmp_path / "backup")
    with cluster_of(root, mirror) as cluster:
        on_ranks(cluster, go_back)
        await_states(cluster, {15: "MIRRORED"})
    shutil.rmtree(root)
    (tmp_path / "backup").rename(root)
    with cluster_of(root, mirror) as cluster:
        assert load(cluster) == 15, "the training had left 20 and 30 behind"
        states = {one["step"]: one["state"] for one in listed(cluster)["checkpoints"]}
        assert states == {10: "COMMITTED", 20: "SUPERSEDED", 30: "SUPERSEDED"}


def test_a_job_that_was_resumed_goes_on_after_its_root_is_lost(tmp_path):
    def resume(*steps):
        def work(rank, client):
            target = {name: {} if name == "progress" else blank(shard) for name, shard in state_of(0, rank).items()}
            client.load(target)
            for step in steps:
                client.save(step, state_of(step, rank)).wait()

        return work

    root, mirror = tmp_path / "root", str(tmp_path / "mirror")
    with cluster_of(root, mirror) as cluster:
        save(cluster, 10, 20)
        on_ranks(cluster, resume(30, 40))
        await_states(cluster, {20: "MIRRORED", 40: "MIRRORED"})
    shutil.rmtree(root)
    with cluster_of(root, mirror) as cluster:
        on_ranks(cluster, resume(50))
        await_states(cluster, {50: "MIRRORED"})
        found = listed(cluster)
        states = {one["step"]: one["state"] for one in found["checkpoints"] + found["only_at_mirror"]}
        assert states == dict.fromkeys((10, 20, 30, 40, 50), "COMMITTED")
    steps = json.loads(command("list", "demo", "--root", mirror, "--format=json"))["checkpoints"]
    assert {one["step"]: one["state"] for one in steps} == states


def test_a_failed_step_is_not_pruned_by_rules(tmp_path):
    root, mirror = tmp_path / "root", str(tmp_path / "mirror")
    with cluster_of(root, mirror) as cluster:
        save(cluster, 10, 20)
        await_states(cluster, {10: "MIRRORED", 20: "MIRRORED"})
        record = pathlib.Path(mirror, "demo/000000000010/0001.verdict")
        record.write_bytes(record.read_bytes()[:-1] + b"?")
        cluster.coordinator.kill()
        cluster.coordinator.restart()
        cluster.await_agents()
        await_states(cluster, {10: "FAILED", 20: "MIRRORED"})
        ask(cluster, "prune", "demo", "--keep-last", "1")
        assert load(cluster, 10) == 10


def test_the_manager_loads_the_copy_of_a_step_whose_bits_rotted(tmp_path, caplog):
    torch = pytest.importorskip("torch")
    from cairn.torch import CheckpointManager

    def train(steps):
        def work(rank, client):
            torch.manual_seed(rank)
            model = torch.nn.Linear(64, 64)
            with CheckpointManager(client, every_steps=1) as manager:
                found = manager.restore_or_initialize({"model": model})
                for step in range((found or 0) + 1, (found or 0) + steps + 1):
                    manager.step(step, {"model": model})
            return found

        return work

    root, mirror = tmp_path / "root", str(tmp_path / "mirror")
    one = [f"--mirror={mirror}"]
    with cairn.local.Cluster(ranks=1, root=str(root), coordinator_flags=one) as cluster:
        on_ranks(cluster, train(2))
        await_states(cluster, {1: "MIRRORED", 2: "MIRRORED"})
    for path in (root / "demo" / f"{2:012}").rglob("*.safetensors"):
        with open(path, "r+b") as file:
            file.seek(-500, os.SEEK_END)
            file.write(bytes([byte ^ 255 for byte in path.read_bytes()[-500:]]))
    with cairn.local.Cluster(ranks=1, root=str(root), coordinator_flags=one) as cluster:
        assert on_ranks(cluster, train(1)) == [2]
        assert f"demo@2 was read from the mirror {mirror}" in caplog.text
        await_states(cluster, {3: "MIRRORED"})


def test_a_command_of_a_cluster_that_just_began_reaches_the_mirror(tmp_path, monkeypatch):
    root, mirror = tmp_path / "root", str(tmp_path / "mirror")
    with cluster_of(root, mirror, "--lease-ttl=1s") as cluster:
        save(cluster, 10, 20)
        await_states(cluster, {10: "MIRRORED", 20: "MIRRORED"})
        ask(cluster, "prune", "demo", "--keep-last", "1")
        await_states(cluster, {10: "ONLY_THERE"})
    monkeypatch.setenv("CAIRN_MIRROR", mirror)
    program = f"{os.environ['CAIRN_BIN_DIR']}/cairn"
    for change in ("pin", "unpin", "delete"):
        command("run", "--root", str(root), "--job", "demo", "--ranks", "1", "--", program, change, "demo@10")
    steps = json.loads(command("list", "demo", "--root", mirror, "--format=json"))["checkpoints"]
    assert [one["step"] for one in steps] == [20]


@pytest.mark.parametrize("flags", [["--mirror", "{}"], ["--coordinator-flag=--mirror={}"]])
def test_cairn_run_is_told_the_mirror(tmp_path, monkeypatch, flags):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    mirror = tmp_path / "mirror"
    saves = ("import cairn, numpy as np; client = cairn.connect(); client.save(1, {'w': np.zeros(8)}).wait(); "
             "client.save(2, {'w': np.ones(8)}).wait()")
    command("run", "--root", str(tmp_path / "root"), "--job", "demo", "--ranks", "1",
            *(flag.format(mirror) for flag in flags), "--", sys.executable, "-c", saves)
    command("verify", "demo@2", "--root", str(mirror))
