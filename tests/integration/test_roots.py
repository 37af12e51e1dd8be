"""Roots within each other: each way is refused by name, by whatever would make or serve one; nothing is left."""

import subprocess

import numpy as np
import pytest
import safetensors.numpy

import cairn
from testing.ranks import command, command_json, on_ranks


@pytest.fixture
def served(tmp_path):
    """A root in the middle of a path, which a coordinator serves."""
    root = tmp_path / "team" / "ckpt"
    root.mkdir(parents=True)
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        on_ranks(cluster, lambda _, client: client.save(1, {"w": np.ones(3)}).wait(60))
        yield root


def tree(directory) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def coordinator(root) -> str:
    """Returns what a coordinator says that does not start."""
    done = subprocess.run([cairn.local.binary("cairn-coordinator"), f"--root={root}", "--lock-timeout=1s"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done
    return done.stderr


def test_a_root_within_a_served_one_or_around_it_is_refused_by_name(served, tmp_path):
    before = tree(tmp_path)
    model = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({"w": np.ones(3)}, model)
    before.add(model.name)
    for other in (served / "demo", served / "new/one", served.parent, tmp_path):
        where = "within" if served in other.parents else "around"
        expected = f"it lies {where} the root {served}:"
        assert expected in coordinator(other)
        assert expected in command("up", "--ranks=1", f"--root={other}", expect=1).stderr
        assert expected in command("run", f"--root={other}", "--", "true", expect=1).stderr
        assert expected in command("import", str(model), "--to=other@1", f"--root={other}", expect=1).stderr
    assert {name for name in tree(tmp_path) - before if "/.cairn/" not in name} == set()
    assert command_json("list", "demo", f"--root={served}")["checkpoints"][0]["state"] == "COMMITTED"


def test_the_advice_works_for_a_root_that_was_made_by_mistake(served, tmp_path):
    (tmp_path / ".cairn").mkdir()
    (tmp_path / ".cairn/epoch").write_text("epoch 1")  # as versions have left it that refused no such root
    said = coordinator(served)
    assert f"within the root {tmp_path}:" in said and f"remove {tmp_path}/.cairn." in said, said
    out = tmp_path / "exported"
    said = command("export", "demo@1", f"--root={served}", f"--to={out}", expect=1).stderr
    assert f"remove {tmp_path}/.cairn first." in said, said
    (tmp_path / ".cairn/epoch").unlink()
    (tmp_path / ".cairn").rmdir()
    assert "ROOT_IN_USE" in coordinator(served), "it may be served, and is"
    command("export", "demo@1", f"--root={served}", f"--to={out}")


def test_a_coordinator_says_that_it_made_its_root(tmp_path):
    root = tmp_path / "ckpt"
    for made in (1, 0):
        process = subprocess.Popen(
            [str(cairn.local.binary("cairn-coordinator")), f"--root={root}", "--listen=127.0.0.1:0"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout.readline()
        process.terminate()
        log = process.communicate(timeout=60)[1]
        assert log.count(f"warn event=root_made root={root} ") == made, log


def test_doctor_finds_a_root_within_another_one(served):
    inner = served / "inner"
    inner.mkdir()
    findings = command_json("doctor", f"--root={inner}", expect=1)["findings"]
    (finding,) = [finding for finding in findings if finding["check"] == "root"]
    assert finding["level"] == "fault" and str(served) in finding["text"], finding
    assert not list(inner.iterdir())


def test_a_job_is_not_read_from_a_level_above_its_root(served, tmp_path):
    for arguments in (["list", "ckpt/demo"], ["show", "ckpt/demo@1"], ["verify", "ckpt/demo@1"],
                      ["repair", "ckpt/demo@1"], ["history", "ckpt/demo"], ["diff", "ckpt/demo@1", "ckpt/demo@1"],
                      ["export", "ckpt/demo@1", f"--to={tmp_path}/out"]):
        said = command(*arguments, f"--root={served.parent}", expect=1).stderr
        assert f"next: Give --root {served}, where the job is called demo." in said, (arguments, said)
        assert "damaged" not in said
    assert command_json("jobs", f"--root={served.parent}")["jobs"] == []


def test_an_error_of_a_coordinator_that_does_not_start_has_its_next_action(tmp_path):
    root = tmp_path / "root"
    with pytest.raises(cairn.Error, match="\nnext: Give the mirror a place outside of the root") as refused:
        cairn.local.Cluster(ranks=1, root=root, coordinator_flags=[f"--mirror={root}/below"]).__enter__()
    assert refused.value.reason == "BAD_REQUEST"
