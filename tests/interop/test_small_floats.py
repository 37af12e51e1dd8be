"""Takes floats of four and eight bits through import, source= and export, and compares with safetensors itself."""

import json
import struct

import pytest

torch = pytest.importorskip("torch")
import safetensors.torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

import cairn
import cairn.torch
from testing.ranks import command

pytestmark = pytest.mark.interop

# Those that releases of safetensors before 0.8, or torch's reader, do not know.
RECENT = [torch.float4_e2m1fn_x2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


def made(dtype, shape, first=0):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) + first) % 256).to(torch.uint8).view(dtype).reshape(shape)


def state(first=0):
    tensors = {str(dtype).removeprefix("torch."): made(dtype, (3, 5), first) for dtype in RECENT}
    return tensors | {"plain": torch.arange(7, dtype=torch.float32) + first}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in other.items():
        assert one[name].dtype == value.dtype and one[name].shape == value.shape, name
        assert torch.equal(one[name].reshape(-1).view(torch.uint8), value.reshape(-1).view(torch.uint8)), name


def header(path):
    data = path.read_bytes()
    return json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])


def exported(root, name, directory):
    command("export", name, "--root", str(root), "--to", str(directory))
    return {path: safetensors.torch.load_file(path) for path in sorted(directory.glob("*.safetensors"))}


def test_Load_SourceOfSmallFloats_GivesWhatWasWritten(tmp_path):
    safetensors.torch.save_file(state(9), tmp_path / "model.safetensors")
    target = state()
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        cairn.torch.load(client, target, source=tmp_path)
    assert_same(target, state(9))


def test_Export_OfAnImport_IsWhatWasImported(tmp_path):
    (tmp_path / "model").mkdir()
    safetensors.torch.save_file(state(9), tmp_path / "model" / "model.safetensors")
    command("import", str(tmp_path / "model"), "--to", "demo@1", "--root", str(tmp_path / "root"))
    files = exported(tmp_path / "root", "demo@1", tmp_path / "out")
    assert_same({name: value for file in files.values() for name, value in file.items()}, state(9))


def test_Export_OfASave_HasNewDtypesInFilesOfTheirOwn(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        cairn.torch.save(client, 1, state(9)).wait()
    files = exported(tmp_path / "root", "demo@1", tmp_path / "out")
    assert_same({name: value for file in files.values() for name, value in file.items()}, state(9))
    assert sorted(sorted(file) for file in files.values()) == sorted(
        [["plain"], sorted(name for name in state() if name != "plain")])
    stored = {entry["dtype"] for path in files for name, entry in header(path).items() if name != "__metadata__"}
    assert stored == {"F32", "F4", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"}


def test_Bins_WithSmallFloats_AreOpenedByTorchAndByEarlierReaders(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        cairn.torch.save(client, 1, state(9)).wait()
    directory = tmp_path / "root" / "demo" / "000000000001" / "0001"
    for path in directory.glob("*.safetensors"):
        assert {entry["dtype"] for name, entry in header(path).items() if name != "__metadata__"} <= {"F32", "U8"}
    target = {"plain": torch.zeros(7)}
    dcp.load(target, storage_reader=HuggingFaceStorageReader(str(directory)))
    assert torch.equal(target["plain"], state(9)["plain"])
