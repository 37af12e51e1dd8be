"""What commands say of a mirror, and of steps that only it has."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from integration.test_serve import Page
from stores.test_mirror import ask, await_states, cluster_of, command, listed, refused, save


@pytest.fixture
def only_there(tmp_path):
    """A cluster whose steps 10 and 20 only the mirror has."""
    with cluster_of(tmp_path / "root", str(tmp_path / "mirror"), "--lease-ttl=1s") as cluster:
        save(cluster, 10, 20, 30)
        await_states(cluster, {10: "MIRRORED", 20: "MIRRORED", 30: "MIRRORED"})
        ask(cluster, "tag", "demo@20", "paper")
        ask(cluster, "untag", "demo@paper")
        ask(cluster, "prune", "demo", "--keep-last", "1")
        await_states(cluster, {10: "ONLY_THERE", 20: "ONLY_THERE"})
        yield cluster


def test_commands_read_a_step_that_only_the_mirror_has(only_there, tmp_path):
    mirror = str(tmp_path / "mirror")
    ask(only_there, "tag", "demo@10", "paper")
    for name in ("demo@20", "demo@paper"):
        assert mirror in ask(only_there, "show", name), name
        ask(only_there, "verify", name)
    ask(only_there, "diff", "demo@20", "demo@paper", status=1)
    ask(only_there, "export", "demo@20", "--to", str(tmp_path / "exported"))
    assert list((tmp_path / "exported").glob("*.safetensors"))
    shown = json.loads(ask(only_there, "show", "demo@paper", "--format=json"))
    assert (shown["step"], shown["tags"], shown["damage"]) == (10, ["paper"], None)
    assert "30" in ask(only_there, "show", "demo"), "the latest one is at the root"


def test_the_page_has_the_mirror_and_the_steps_that_only_it_has(only_there, tmp_path):
    with Page(only_there) as page:
        answer = page.json("/api/checkpoints/demo")
    assert [(each["step"], each["mirror"]["state"]) for each in answer["checkpoints"]] == [
        (30, "MIRRORED"), (20, "ONLY_THERE"), (10, "ONLY_THERE")]
    assert (answer["mirror"]["address"], answer["mirror"]["error"]) == (str(tmp_path / "mirror"), None)


def test_a_lost_root_has_the_latest_step_of_the_mirror(tmp_path):
    root, mirror = tmp_path / "root", str(tmp_path / "mirror")
    with cluster_of(root, mirror) as cluster:
        save(cluster, 10, 20)
        await_states(cluster, {10: "MIRRORED", 20: "MIRRORED"})
    shutil.rmtree(root)
    with cluster_of(root, mirror) as cluster:
        await_states(cluster, {10: "ONLY_THERE", 20: "ONLY_THERE"})
        status = ask(cluster, "status", "demo")
        assert "latest committed: demo@20" in status and "only at the mirror" in status
        assert json.loads(ask(cluster, "show", "demo", "--format=json"))["step"] == 20
        ask(cluster, "verify", "demo")


def test_a_copy_that_nobody_else_has_and_that_lost_a_file_is_listed_as_damaged(only_there, tmp_path):
    (tmp_path / "mirror" / "demo" / f"{10:012}" / "0001" / "rank00000-bin00.safetensors").unlink()
    only_there.coordinator.kill()
    only_there.coordinator.restart()
    only_there.await_agents()
    await_states(only_there, {10: "ONLY_THERE", 20: "ONLY_THERE"})
    states = {one["step"]: one["state"] for one in listed(only_there)["only_at_mirror"]}
    assert states == {10: "DAMAGED", 20: "COMMITTED"}
    assert "rank00000-bin00.safetensors" in ask(only_there, "list", "demo")


def test_verify_of_a_step_that_is_damaged_at_the_root_names_the_mirror_with_its_copy(only_there, tmp_path):
    (tmp_path / "root" / "demo" / f"{30:012}" / "0001" / "rank00000-bin00.safetensors").unlink()
    assert f"cairn verify demo@30 --root {tmp_path / 'mirror'}" in refused(only_there, "verify", "demo@30")


def test_an_overwritten_step_that_rules_delete_uncopied_leaves_its_earlier_copy(tmp_path):
    root, mirror = tmp_path / "root", tmp_path / "mirror"
    with cluster_of(root, str(mirror)) as cluster:
        save(cluster, 10, 20)
        await_states(cluster, {10: "MIRRORED", 20: "MIRRORED"})
    mirror.rename(tmp_path / "away")
    mirror.touch()  # so nobody makes it anew
    with cluster_of(root, str(mirror), "--lease-ttl=1s") as cluster:
        save(cluster, 10, overwrite=True)
        save(cluster, 30, 40, 50, 60)
        ask(cluster, "prune", "demo", "--keep-last", "1")
        assert 10 not in [one["step"] for one in listed(cluster)["checkpoints"]]
        mirror.unlink()
        (tmp_path / "away").rename(mirror)
        await_states(cluster, {40: "MIRRORED", 50: "MIRRORED", 60: "MIRRORED"})
        # The answer of a change comes after all that was to be done before.
        ask(cluster, "pin", "demo@60")
    command("verify", "demo@10", "--root", str(mirror))


def test_cairn_run_says_that_the_mirror_does_not_work(tmp_path):
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "another").touch()
    (mirror / ".cairn").mkdir()
    (mirror / ".cairn" / "mirror-of").write_text("/of/another/root\n")
    program = f"{os.environ['CAIRN_BIN_DIR']}/cairn"
    result = subprocess.run(
        [program, "run", "--root", str(tmp_path / "root"), "--job", "demo", "--ranks", "1", "--", sys.executable, "-c",
         "import time, cairn, numpy as np; client = cairn.connect(); "
         "client.save(1, {'w': np.zeros(8)}).wait(); time.sleep(8)"],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, "CAIRN_MIRROR": str(mirror), "PYTHONPATH": os.pathsep.join(sys.path)})
    assert result.returncode == 0, result.stderr
    assert f"cairn: the mirror {mirror} cannot be used" in result.stderr, result.stderr
    assert f"cairn: the mirror {mirror} " in result.stderr.split("cannot be used")[1], result.stderr
