"""Imports directories of links, as hubs make them: STORE/snapshots/REVISION/FILE leads to STORE/blobs/DIGEST."""

import hashlib
import os
import pathlib
import shutil

import pytest

torch = pytest.importorskip("torch")
from testing.ranks import command, command_json

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
WRITTEN = ["dcp_versions/2.15", "torchsnapshot_v1", "paddle_v3/flex", "paddle_v3/flex_safetensors",
           "deepspeed_v0_19/stage2"]

pytestmark = pytest.mark.interop


def hub(source: pathlib.Path, store: pathlib.Path, snapshot: str) -> pathlib.Path:
    """Puts the files of a directory into a store's blobs, and returns the snapshot of links to them."""
    (store / "blobs").mkdir(parents=True)
    for path in sorted(source.rglob("*")):
        if not path.is_file():
            continue
        blob = store / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copyfile(path, blob)
        link = store / snapshot / path.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return store / snapshot


@pytest.mark.parametrize("snapshot", ["snapshots/f00d", "run"])
@pytest.mark.parametrize("written", WRITTEN)
def test_Import_SnapshotOfLinks_IsTheSameAsOfFiles(tmp_path, written, snapshot):
    root = str(tmp_path / "root")
    command("import", str(GOLDEN / written), "--to", "files@1", "--root", root)
    links = hub(GOLDEN / written, tmp_path / "models--a--b", snapshot)
    command("import", str(links), "--to", "links@1", "--root", root)
    answer = command_json("diff", "files@1", "links@1", "--root", root)
    assert answer["differing"] == 0


@pytest.mark.parametrize("written", WRITTEN)
def test_Import_ALinkOutOfTheStore_IsRefusedUntilItIsCopied(tmp_path, written):
    links = hub(GOLDEN / written, tmp_path / "store", "snapshots/f00d")
    (tmp_path / "elsewhere").mkdir()
    moved = 0
    for link in links.rglob("*"):
        if link.is_symlink():
            target = tmp_path / "elsewhere" / str(moved)
            shutil.copyfile(link, target)
            link.unlink()
            link.symlink_to(target)
            moved += 1
    root = str(tmp_path / "root")
    refused = command("import", str(links), "--to", "demo@1", "--root", root, expect=1).stderr
    assert "PATH_ESCAPE" in refused and f"cp -rL {links}" in refused and "--root" not in refused.split("next:")[1]
    shutil.copytree(links, tmp_path / "copy")  # follows links, as `cp -rL` does
    command("import", str(tmp_path / "copy"), "--to", "demo@1", "--root", root)


def test_Import_WeightsBehindLinksToDirectories_LeavesNoneOut(tmp_path):
    """A link to a directory is no file, and what lies there is a part of the checkpoint all the same."""
    source = GOLDEN / "deepspeed_v0_19/stage3/global_step2_universal"
    root = str(tmp_path / "root")
    command("import", str(source), "--to", "files@1", "--root", root)
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    for weight in sorted(path for path in (copy / "zero").iterdir() if path.is_dir()):
        weight.rename(copy / f"kept-{weight.name}")
        weight.symlink_to(f"../kept-{weight.name}")
    command("import", str(copy), "--to", "links@1", "--root", root)
    assert command_json("diff", "files@1", "links@1", "--root", root)["differing"] == 0
