"""Loads and imports files that the real Paddle wrote: tests/golden/paddle_v3.py says how."""

import pathlib
import pickle
import shutil
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import cairn
import cairn.torch
from testing.dcp import assert_equal
from testing.ranks import command, command_json

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
import paddle_v3 as written

pytestmark = pytest.mark.interop

FILES = GOLDEN / "paddle_v3"
BFLOAT16 = {"model.columns", "dtype.bfloat16"}


def tensors(arrays):
    return {name: torch.from_numpy(array.copy()).to(torch.bfloat16) if name in BFLOAT16
            else torch.from_numpy(array.copy()) for name, array in arrays.items()}


def blank(arrays):
    return {name: torch.zeros_like(value) for name, value in tensors(arrays).items()}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with cairn.local.Cluster(ranks=1, root=tmp_path_factory.mktemp("root")) as cluster:
        with cluster.connect(0) as client:
            yield client


@pytest.mark.parametrize("form", ["flex", "flex_safetensors"])
def test_Load_FlexCheckpoint_GivesEveryTensor(client, form):
    target = blank(written.sharded())
    report = cairn.torch.load(client, target, source=FILES / form)
    assert_equal(target, tensors(written.sharded()))
    assert report.missing == [] and report.unexpected == [] and report.total_bytes_read == report.unique_bytes


def test_Load_Pdparams_GivesEveryTensor(client):
    target = blank(written.plain())
    report = cairn.torch.load(client, target, source=FILES / "whole.pdparams")
    assert_equal(target, tensors(written.plain()))
    assert report.missing == [] and report.unexpected == []


def test_Load_LayersState_HasNoOtherNames(client):
    with (FILES / "layer.pdparams").open("rb") as file:
        expected = pickle.load(file)  # of this repository
    names = expected.pop("StructuredToParameterName@@")
    assert names.keys() == expected.keys() == {"weight", "bias"}
    target = blank(expected)
    report = cairn.torch.load(client, target, source=FILES / "layer.pdparams")
    assert_equal(target, tensors(expected))
    assert report.unexpected == []


@pytest.mark.parametrize(("source", "arrays"), [("flex", written.sharded()), ("whole.pdparams", written.plain())])
def test_Import_FilesOfPaddle_BecomeACheckpoint(tmp_path, source, arrays):
    root = str(tmp_path / "root")
    answer = command_json("import", str(FILES / source), "--to", "demo@3", "--root", root)
    assert (answer["tensors"], answer["objects"], answer["opaque"]) == (len(arrays), 0, [])
    assert command_json("diff", str(FILES / source), "demo@3", "--root", root)["equal"]
    target = blank(arrays)
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        cairn.torch.load(client, target)
    assert_equal(target, tensors(arrays))


def refused(directory, tmp_path):
    return command("import", str(directory), "--to", "demo@3", "--root", str(tmp_path / "root"), expect=1).stderr


def test_Directory_LacksAFile_IsNamed(tmp_path):
    directory = shutil.copytree(FILES / "flex", tmp_path / "flex")
    (directory / "1_0.distcp").unlink()
    said = refused(directory, tmp_path)
    assert "FILE_MISSING" in said and "1_0.distcp" in said and "another copy" in said


def test_Directory_OfSeveralSaves_AsksForOne(tmp_path):
    directory = shutil.copytree(FILES / "flex", tmp_path / "flex")
    shutil.copy(directory / "0.metadata", directory / "11.metadata")
    said = refused(directory, tmp_path)
    assert "BAD_FOREIGN_FILE" in said and "0.metadata and 11.metadata" in said and "directory of their own" in said


def test_File_DisagreesWithItsMetadata_TensorIsNamed(tmp_path):
    directory = shutil.copytree(FILES / "flex", tmp_path / "flex")
    with (directory / "0_0.distcp").open("wb") as file:
        pickle.dump({"model.rows": np.zeros((4, 6), np.float64), "model.columns": np.zeros((4, 3), np.uint16),
                     "opt.flat": np.zeros(20, np.float32)}, file, protocol=4)
    said = refused(directory, tmp_path)
    assert "'model.rows' as float64(4, 6), its metadata says float32(4, 6)" in said
    with (directory / "0_0.distcp").open("wb") as file:
        pickle.dump({"model.rows": np.zeros((4, 6), np.float32)}, file, protocol=4)
    assert "0_0.distcp lacks 'model.columns'" in refused(directory, tmp_path)


def test_File_CutShort_IsNamed(tmp_path):
    directory = shutil.copytree(FILES / "flex", tmp_path / "flex")
    whole = (directory / "0_0.distcp").read_bytes()
    for length in (0, 1, 100, len(whole) - 1):
        (directory / "0_0.distcp").write_bytes(whole[:length])
        said = refused(directory, tmp_path)
        assert "BAD_FOREIGN_FILE" in said and "0_0.distcp" in said and "is cut off" in said


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_Pickle_ThatWouldRunSomething_RunsNothing(tmp_path, protocol):
    ran = tmp_path / "ran"
    (tmp_path / "w.pdparams").write_bytes(pickle.dumps({"w": Hostile(ran), "n": {"l": [Hostile(ran)]}}, protocol))
    refused(tmp_path / "w.pdparams", tmp_path)
    assert not ran.exists()


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_Arrays_OfEveryProtocolAndOrder_AreRead(client, tmp_path, protocol, order):
    array = np.asarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4), order=order)
    (tmp_path / "w.pdparams").write_bytes(pickle.dumps({"a": array, "again": array, "b": array[:, 1]}, protocol))
    arrays = {"a": array, "again": array, "b": np.ascontiguousarray(array[:, 1])}
    target = blank(arrays)
    cairn.torch.load(client, target, source=tmp_path / "w.pdparams")
    assert_equal({name: value.contiguous() for name, value in target.items()},
                 {name: value.contiguous() for name, value in tensors(arrays).items()})


def test_Arrays_OfProtocol2_AreRefusedWithWhatToWrite(tmp_path):
    (tmp_path / "w.pdparams").write_bytes(pickle.dumps({"w": np.arange(3)}, 2))
    said = refused(tmp_path / "w.pdparams", tmp_path)
    assert "UNSUPPORTED" in said and "'w'" in said and "protocol 4" in said


def test_File_OfTorchBeforeZip_SaysSo(tmp_path):
    torch.save({"w": torch.zeros(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    said = refused(tmp_path / "old.pt", tmp_path)
    assert "UNSUPPORTED" in said and "before PyTorch 1.6" in said
