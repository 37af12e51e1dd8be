"""cairn export --as paddle: numpy and pickle read it, as paddle.load does, and Paddle itself where it is installed."""

import dataclasses
import pickle
import sys
import types

import numpy as np
import pytest

import cairn
from testing.ranks import command, noise

pytestmark = pytest.mark.interop

ARRAYS = {"layer.10.w": noise((300, 200), np.float32, 1), "layer.2.w": noise((50, 40), np.float64, 2),
          "half": noise((31, 3), np.float16, 3), "scalar": np.array(2.5, np.float32),
          "empty": np.zeros((0, 4), np.int8), "bits": np.array([True, False]), "count": np.arange(7),
          "byte": np.arange(9, dtype=np.uint8),
          "complex": (np.arange(3) + 1j).astype(np.complex64), "ключ": np.arange(3, dtype=np.int16)}
# numpy has no bfloat16. Paddle keeps it in arrays of uint16.
BFLOAT16 = np.array([0x3F80, 0x4000, 0xC040], np.uint16)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A directory with several files; a mapping has made `layer.2.w` one of bfloat16, and cut nothing."""
    directory = tmp_path_factory.mktemp("paddle")
    with cairn.local.Cluster(ranks=1, root=directory / "root") as cluster, cluster.connect(0) as client:
        exact = np.array([1.0, 2.0, -3.0], np.float32)
        client.save(5, ARRAYS | {"brain": exact, "step": 5}).wait()
    (directory / "cast.aoa").write_text("brain -> brain_16, dtype='bfloat16'\n")
    command("export", "demo@5", "--root", str(directory / "root"), "--to", str(directory / "out"), "--as", "paddle",
            "--max-shard-size", "20KB", "--mapping", str(directory / "cast.aoa"))
    return directory


def test_files_are_dicts_of_arrays(exported):
    found = {}
    for path in sorted((exported / "out").glob("*.distcp")):
        arrays = pickle.loads(path.read_bytes(), encoding="latin1")
        assert not set(arrays) & set(found)
        found |= arrays
    assert len(list((exported / "out").glob("*.distcp"))) > 1
    assert np.array_equal(found.pop("brain_16"), BFLOAT16)
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


def test_metadata_says_where_each_tensor_lies(exported, monkeypatch):
    module = types.ModuleType("paddle.distributed.flex_checkpoint.dcp.metadata")
    for name, fields in (("Metadata", "state_dict_metadata storage_metadata flat_mapping"),
                         ("LocalTensorMetadata", "global_offset local_shape dtype global_shape is_flattened "
                                                 "flattened_range"),
                         ("LocalTensorIndex", "tensor_key global_offset is_flattened flattened_range replica_id "
                                              "local_shape")):
        setattr(module, name, dataclasses.make_dataclass(name, fields.split(), frozen=name != "Metadata"))
    for at in range(1, 5):
        package = ".".join(module.__name__.split(".")[:at])
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    metadata = pickle.loads((exported / "out/0.metadata").read_bytes(), encoding="latin1")
    names = {*ARRAYS, "brain_16"}
    assert set(metadata.state_dict_metadata) == names
    assert metadata.flat_mapping == {name: (name,) for name in names}
    for index, file in metadata.storage_metadata.items():
        (part,) = metadata.state_dict_metadata[index.tensor_key]
        zeros = (0,) * len(part.global_shape)
        assert part == module.LocalTensorMetadata(zeros, part.global_shape, part.dtype, part.global_shape, False, None)
        assert index == module.LocalTensorIndex(index.tensor_key, zeros, False, None, None, part.global_shape)
        assert index.tensor_key in pickle.loads((exported / "out" / file).read_bytes())
        if index.tensor_key in ARRAYS:
            assert part.global_shape == ARRAYS[index.tensor_key].shape
            assert part.dtype == ARRAYS[index.tensor_key].dtype.name
    assert metadata.state_dict_metadata["brain_16"][0].dtype == "bfloat16"


def test_import_gives_it_back(exported):
    root = ("--root", str(exported / "back"))
    command("import", str(exported / "out"), "--to", "demo@5", *root)
    with cairn.local.Cluster(ranks=1, root=exported / "back") as cluster, cluster.connect(0) as client:
        arrays = {name: np.zeros_like(array) for name, array in ARRAYS.items()}
        client.load(arrays, step=5, strict=False)
    for name, array in ARRAYS.items():
        assert arrays[name].tobytes() == array.tobytes(), name


def test_dtype_that_paddle_lacks_is_refused_by_name(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        client.save(1, {"w": np.arange(3, dtype=np.uint32)}).wait()
    said = command("export", "demo@1", "--root", str(tmp_path / "root"), "--to", str(tmp_path / "out"), "--as",
                   "paddle", expect=1).stderr
    assert "Paddle has no dtype for w (uint32)" in said and "next: Leave these tensors out by --exclude" in said, said


def test_paddle_loads_it(exported):
    paddle = pytest.importorskip("paddle", reason="not run: no paddle")
    state = {name: paddle.zeros(array.shape, dtype=str(array.dtype)) for name, array in ARRAYS.items()}
    state["brain_16"] = paddle.zeros([3], dtype="bfloat16")
    paddle.distributed.load_state_dict(state, str(exported / "out"))
    assert state["brain_16"].astype("float32").numpy().tolist() == [1.0, 2.0, -3.0]
    for name, array in ARRAYS.items():
        assert state[name].numpy().tobytes() == array.tobytes(), name
