"""Loads and imports a directory that the real torchsnapshot wrote: tests/golden/torchsnapshot_v1.py says how."""

import json
import pathlib
import shutil
import sys

import pytest

torch = pytest.importorskip("torch")

import cairn
import cairn.torch
from testing.dcp import assert_equal
from testing.ranks import command, command_json

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
import torchsnapshot_v1 as written

pytestmark = pytest.mark.interop

SNAPSHOT = GOLDEN / "torchsnapshot_v1"


def tensors():
    """The names that an import gives; ".rank0" is behind what is not the same on all ranks."""
    expected = {f"same.{name}": value for name, value in written.replicated().items()} | {
        "sharded.table": written.SHARDED}
    for rank in range(written.WORLD):
        expected[f"own.weight.rank{rank}"] = written.own(rank)["weight"]
        expected[f"own.a/b%.list.0.rank{rank}"] = written.own(rank)["a/b%"]["list"][0]
    return expected


def values():
    own = written.own(0)
    return {f"own.{name}": own[name] for name in ("step", "name", "rate", "flag", "raw", "wide")} | {
        f"own.{name}.rank{rank}": own[name] for name in ("none", "pair") for rank in range(written.WORLD)} | {
        f"own.rank.rank{rank}": rank for rank in range(written.WORLD)} | {"own.a/b%.list.1.x": 1}


def blank():
    return {name: torch.zeros_like(value, memory_format=torch.contiguous_format) for name, value in tensors().items()}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with cairn.local.Cluster(ranks=1, root=tmp_path_factory.mktemp("root")) as cluster:
        with cluster.connect(0) as client:
            yield client


def test_Load_Snapshot_GivesEveryTensorAndValue(client):
    target = blank()
    report = cairn.torch.load(client, target, source=SNAPSHOT)
    assert_equal(target, tensors())
    assert {name: (type(value), value) for name, value in report.objects.items()} == {
        name: (type(value), value) for name, value in values().items()}
    assert report.missing == [] and report.unexpected == [] and report.total_bytes_read == report.unique_bytes


def test_Import_Snapshot_BecomesACheckpoint(tmp_path):
    answer = command_json("import", str(SNAPSHOT), "--to", "demo@3", "--root", str(tmp_path / "root"))
    assert (answer["tensors"], answer["objects"], answer["opaque"]) == (len(tensors()), len(values()), [])
    assert command_json("diff", str(SNAPSHOT), "demo@3", "--root", str(tmp_path / "root"))["equal"]
    target = blank()
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        report = cairn.torch.load(client, target)
    assert_equal(target, tensors())
    assert report.objects == values()


def test_Import_ThroughAMapping_TakesARanksOwnTensors(tmp_path):
    (tmp_path / "m.aoa").write_text("own.*.rank1 -> mine.*")
    command("import", str(SNAPSHOT), "--to", "demo@3", "--root", str(tmp_path / "root"), "--mapping",
            str(tmp_path / "m.aoa"), "--include", "own.*.rank1")
    target = {"mine.weight": torch.zeros(2, 3)}
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        cairn.torch.load(client, target, strict=False)
    assert_equal(target["mine.weight"], written.own(1)["weight"])


def changed(tmp_path, change):
    """Returns a copy of the snapshot with other metadata."""
    shutil.copytree(SNAPSHOT, tmp_path / "snapshot")
    path = tmp_path / "snapshot" / ".snapshot_metadata"
    document = json.loads(path.read_text())
    change(document["manifest"])
    path.write_text(json.dumps(document))
    (tmp_path / "snapshot" / "link").symlink_to("/etc/passwd")
    return tmp_path / "snapshot"


def set_field(path, field, value):
    return lambda manifest: manifest[path].update({field: value})


@pytest.mark.parametrize("change, reason", [
    (set_field("0/same/float32", "location", "../../conftest.py"), "PATH_ESCAPE"),
    (set_field("0/same/float32", "location", "/etc/passwd"), "PATH_ESCAPE"),
    (set_field("0/same/float32", "location", "link"), "PATH_ESCAPE"),
    (set_field("0/own/none", "location", "../own"), "PATH_ESCAPE"),
    (set_field("0/same/float32", "byte_range", [0, 25]), "BAD_FOREIGN_FILE"),
    (set_field("0/same/float32", "byte_range", [10**6, 10**6 + 24]), "FILE_TRUNCATED"),
    (set_field("0/same/float32", "shape", [2, -3]), "BAD_FOREIGN_FILE"),
    (set_field("0/same/float32", "shape", [2**62, 2**62]), "BAD_FOREIGN_FILE"),
    (set_field("0/same/float32", "dtype", "torch.qint8"), "UNSUPPORTED"),
    (set_field("0/same/float32", "serializer", "pickle"), "UNSUPPORTED"),
    (set_field("0/same/float32", "type", "Later"), "UNSUPPORTED"),
    (set_field("0/same/complex64", "shape", [3, 2]), "BAD_FOREIGN_FILE"),
    (set_field("0/own/none", "serializer", "pickle"), "UNSUPPORTED"),
    (set_field("0/own/step", "serialized_value", "7; import os"), "BAD_FOREIGN_FILE"),
    (lambda manifest: manifest["0/same/large"]["chunks"].pop(), "BAD_FOREIGN_FILE"),
    (lambda manifest: manifest.pop("0/sharded/table"), "BAD_FOREIGN_FILE"),
    (lambda manifest: manifest.update({"x": {"type": "int"}}), "BAD_FOREIGN_FILE"),
    (lambda manifest: manifest.update({"0/same.bool": manifest["0/same/bool"]}), "BAD_FOREIGN_FILE|NAME_COLLISION"),
    (lambda manifest: manifest.update({"0/same/float32": []}), "BAD_FOREIGN_FILE"),
])
def test_Import_MetadataThatLies_IsRefused(tmp_path, change, reason):
    refused = command("import", str(changed(tmp_path, change)), "--to", "demo@3", "--root", str(tmp_path / "root"),
                      expect=1)
    assert refused.stderr.startswith(tuple(f"error: {each}:" for each in reason.split("|"))), refused.stderr


def test_Import_MetadataThatIsNoJson_IsRefused(tmp_path):
    (tmp_path / ".snapshot_metadata").write_text("manifest:\n  0/a: {type: int}\n")
    refused = command("import", str(tmp_path), "--to", "demo@3", "--root", str(tmp_path / "root"), expect=1)
    assert "UNSUPPORTED" in refused.stderr and "take it again" in refused.stderr
    (tmp_path / ".snapshot_metadata").write_text('{"manifest": {"0/a": {"type": "int"')
    refused = command("import", str(tmp_path), "--to", "demo@3", "--root", str(tmp_path / "root"), expect=1)
    assert "BAD_FOREIGN_FILE" in refused.stderr
