"""Tests what `cairn doctor` finds on a real machine, with a real root and coordinator."""

import os
import subprocess
import tempfile
import time

import numpy as np

import cairn
from testing.ranks import command, command_json, noise, on_ranks, rows

WHOLE = noise((64, 16), np.float32, 1)


def findings(*arguments: str, expect: int = 0) -> dict[str, dict]:
    found = command_json("doctor", *arguments, expect=expect)["findings"]
    return {finding["check"]: finding for finding in found}


def test_a_valid_machine_has_no_fault(tmp_path):
    root = tmp_path / "root"
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(4, {"w": rows(WHOLE, rank, 2)}).wait(60))
        before = sorted(os.listdir(root / ".cairn"))
        found = findings(f"--root={root}", "--job=demo", f"--coordinator={cluster.coordinator.address}", "--grace=10m")
        assert sorted(os.listdir(root / ".cairn")) == before, "it leaves nothing behind"
        assert found["root"]["level"] == "ok"
        assert found["coordinator"]["level"] == "ok"
        assert found["grace period"]["level"] == "ok"
        assert "the last checkpoint has" in found["free space"]["text"]
        assert "an agent needs" in found["memory"]["text"]
        assert {"direct I/O", "clock", "sockets", "PID namespaces", "open files"} <= set(found)
        assert not [finding for finding in found.values() if finding["level"] == "fault"]
        (tmp_path / "link").symlink_to(root)
        address = f"--coordinator={cluster.coordinator.address}"
        same = findings(f"--root={tmp_path / 'link'}", address)
        assert same["served root"]["level"] == "ok", "the directory counts, not its name"
        other = tmp_path / "other"
        other.mkdir()
        served = findings(f"--root={other}", address, expect=1)["served root"]
        assert served["level"] == "fault" and str(root) in served["text"] and str(other) in served["text"]
        short = findings(f"--coordinator={cluster.coordinator.address}", "--job=demo", "--grace=1ms", expect=1)
        assert short["grace period"]["level"] == "fault" and short["grace period"]["next"]
        on_ranks(cluster, lambda rank, client: client.save(5, {"w": rows(WHOLE, rank, 2)}).wait(60))


def test_faults_are_named_with_what_to_change(tmp_path):
    absent = findings(f"--root={tmp_path / 'absent'}", expect=1)
    assert absent["root"]["level"] == "fault" and absent["root"]["next"]
    root = tmp_path / "root"
    root.mkdir()
    huge = findings(f"--root={root}", "--state-size=4000000GiB", expect=1)
    assert huge["free space"]["level"] == "fault" and "Make room" in huge["free space"]["next"]
    text = command("doctor", f"--root={root}", "--coordinator=127.0.0.1:1", expect=1).stdout
    assert "fault    coordinator: " in text and "next: " in text


def test_a_job_without_a_valid_checkpoint_is_a_fault(tmp_path):
    root = tmp_path / "root"
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        for step in (1, 2):
            on_ranks(cluster, lambda rank, client: client.save(step, {"w": rows(WHOLE, rank, 2)}).wait(60))
    assert "checkpoints" not in findings(f"--root={root}")
    newest, older = (sorted((root / f"demo/{step:012d}/0001").glob("*.safetensors"))[0] for step in (2, 1))
    os.truncate(newest, 100)
    found = findings(f"--root={root}")["checkpoints"]
    assert found["level"] == "warning" and "a load takes step 1" in found["text"], found
    older.unlink()
    found = findings(f"--root={root}", expect=1)["checkpoints"]
    assert found["level"] == "fault" and "no valid checkpoint: 2 are damaged" in found["text"], found
    assert f"`cairn list demo --root {root} --check`" in found["next"], found


def test_without_a_root_it_says_that_storage_was_not_tried():
    found = findings()
    assert found["storage"]["level"] == "note" and "--root" in found["storage"]["next"]


def test_it_says_what_a_report_of_an_error_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("CAIRN_PYTHON", "3.11.7, torch 2.13.0")
    found = findings(f"--root={tmp_path}")
    assert found["version"]["text"] == command("--version").stdout.strip()
    assert f"Linux {os.uname().release}" in found["system"]["text"] and "glibc 2." in found["system"]["text"]
    assert found["Python"]["text"] == "3.11.7, torch 2.13.0"
    assert found["GPU driver"]["text"]
    kind = subprocess.run(["stat", "-f", "--format=%T", tmp_path], capture_output=True, text=True, check=True)
    # To it, ext4 is "ext2/ext3" and overlay is "overlayfs".
    assert found["file system"]["text"][:3] == kind.stdout[:3]


def test_job_is_found_or_named_as_unknown(tmp_path):
    root = tmp_path / "root"
    with cairn.local.Cluster(ranks=1, root=root, job="small") as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, {"w": noise((64, 16))}).wait(60))
    only = findings(f"--root={root}")
    assert only["job"]["level"] == "ok" and only["job"]["text"].startswith("small, the only one")
    assert "the last checkpoint has" in only["free space"]["text"] and "an agent needs" in only["memory"]["text"]
    with cairn.local.Cluster(ranks=1, root=root, job="large") as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, {"w": noise((1024, 1024))}).wait(60))
    several = findings(f"--root={root}")
    assert several["job"]["text"].startswith("large, whose state is the largest of 2 jobs")
    assert several["free space"]["text"] != only["free space"]["text"]
    unknown = findings(f"--root={root}", "--job=nosuch", expect=1)["job"]
    assert unknown["level"] == "fault" and f"no job nosuch below {root}" in unknown["text"]
    assert f"`cairn jobs --root {root}`" in unknown["next"]
    assert "job" not in findings(f"--root={root}", "--job=nosuch", "--state-size=1MiB"), "it may be one that is to come"


def test_grace_period_is_compared_or_said_not_to_be(tmp_path, monkeypatch):
    # The paths of sockets are short.
    monkeypatch.setenv("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="cairn-"))
    alone = findings("--grace=30s", "--job=demo")["grace period"]
    assert alone["level"] == "warning" and "not compared" in alone["text"] and "--coordinator" in alone["next"]
    assert command("doctor", "--grace=soon", expect=None).returncode in (1, 2)
    root = tmp_path / "root"
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, {"w": WHOLE}).wait(60))
        asked = f"--coordinator={cluster.coordinator.address}"
        assert findings("--grace=10m", asked)["grace period"]["level"] == "ok", "it is the coordinator's only job"
        missing = findings("--grace=10m", "--job=nosuch", asked, expect=1)["job"]
        assert missing["level"] == "fault" and "no job nosuch" in missing["text"]


def test_mirror_is_examined_and_compared_with_its_root(tmp_path, monkeypatch):
    root, mirror = tmp_path / "root", tmp_path / "mirror"
    with cairn.local.Cluster(ranks=1, root=root, coordinator_flags=[f"--mirror={mirror}"]) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, {"w": WHOLE}).wait(60))
        deadline = time.monotonic() + 60
        while not (mirror / ".cairn/mirror-of").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        before = sorted(os.listdir(mirror / ".cairn"))
        found = findings(f"--root={root}", f"--mirror={mirror}")
        assert sorted(os.listdir(mirror / ".cairn")) == before, "it leaves nothing behind"
        assert found["mirror"]["level"] == "ok"
        assert found["mirror owner"]["level"] == "ok" and str(root) in found["mirror owner"]["text"]
        holder = found["mirror holder"]
        assert holder["level"] == "ok" and f"process {cluster.coordinator.pid} " in holder["text"], holder
        assert "the last checkpoint has" in found["mirror free space"]["text"]
        assert {"mirror direct I/O", "mirror clock"} <= set(found)
    monkeypatch.setenv("CAIRN_MIRROR", str(mirror))
    assert findings(f"--root={root}")["mirror holder"]["level"] == "note"
    (tmp_path / "other").mkdir()
    other = findings(f"--root={tmp_path / 'other'}", expect=1)["mirror owner"]
    assert other["level"] == "fault" and str(root) in other["text"] and "mirror-of" in other["next"]
    text = command("doctor", f"--root={root}", f"--mirror={root / 'below'}", expect=1).stdout
    assert "fault    mirror: " in text and "next: Give the mirror a place outside of the root" in text
