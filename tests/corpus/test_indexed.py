"""`cairn corpus merge`, `inspect` and `verify` against megatron-core's own IndexedDataset."""

import json
import os
import pathlib
import subprocess

import numpy
import pytest

from testing.library import Library

indexed = Library("megatron.core.datasets.indexed_dataset")
torch = pytest.importorskip("torch")

pytestmark = pytest.mark.interop

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
DTYPES = [numpy.uint8, numpy.int8, numpy.int16, numpy.int32, numpy.int64, numpy.float64, numpy.float32, numpy.uint16]


def corpus(*arguments, check=True):
    result = subprocess.run(
        [str(CAIRN), "--format=json", "corpus", *map(str, arguments)], capture_output=True, timeout=120
    )
    if check:
        assert result.returncode == 0, result.stderr.decode()
        return json.loads(result.stdout)
    return result


def build(prefix, documents, dtype=numpy.uint16, multimodal=False):
    builder = indexed.IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype, multimodal=multimodal)
    for document in documents:
        tokens = torch.from_numpy(numpy.concatenate([*document, numpy.array([])]).astype(numpy.float64))
        modes = [i % 2 for i in range(len(document))] if multimodal else None
        builder.add_document(tokens, [len(sequence) for sequence in document], modes)
    builder.finalize(f"{prefix}.idx")


def documents(seed, count):
    rng = numpy.random.default_rng(seed)
    return [[rng.integers(0, 100, rng.integers(0, 20)) for _ in range(rng.integers(0, 4))] for _ in range(count)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("multimodal", [False, True])
def test_merge_equals_megatrons(tmp_path, dtype, multimodal):
    parts = tmp_path / "parts"
    parts.mkdir()
    names = ["Part", "part1_", "part10_", "part2_"]
    for seed, name in enumerate(names):
        build(parts / name, documents(seed, 50), dtype, multimodal)
    report = corpus("merge", "--input", parts, "--output-prefix", tmp_path / "ours")
    assert [pathlib.Path(p).name for p in report["inputs"]] == sorted(names)
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=dtype, multimodal=multimodal)
    for name in sorted(names):
        builder.add_index(str(parts / name))
    builder.finalize(str(tmp_path / "theirs.idx"))
    assert (tmp_path / "ours.bin").read_bytes() == (tmp_path / "theirs.bin").read_bytes()
    ours, theirs = (tmp_path / "ours.idx").read_bytes(), (tmp_path / "theirs.idx").read_bytes()
    # megatron-core's merge keeps the modes only if all pairs have them; ours always keeps them.
    assert ours[: len(theirs)] == theirs[: len(ours)]
    dataset = indexed.IndexedDataset(str(tmp_path / "ours"), multimodal=multimodal)
    assert len(dataset) == report["sequences"]
    assert len(dataset.document_indices) == report["documents"] + 1
    described = corpus("verify", tmp_path / "ours")
    assert described["dtype"] == numpy.dtype(dtype).name and described["state"] == "sound"


def test_inspect_and_verify(tmp_path):
    build(tmp_path / "p", [[numpy.array([1, 2, 3]), numpy.array([4, 5])], [], [numpy.array([6])]])
    described = corpus("inspect", tmp_path / "p.idx")
    assert (described["documents"], described["sequences"], described["tokens"]) == (3, 3, 6)
    index = (tmp_path / "p.idx").read_bytes()
    for damaged in (index[:-1], index[:40] + b"\7" + index[41:], b"TNTIDX\0\0" + index[8:], b""):
        (tmp_path / "p.idx").write_bytes(damaged)
        result = corpus("verify", tmp_path / "p", check=False)
        assert result.returncode == 1 and b"INDEX_CORRUPT" in result.stderr, result.stderr
    result = corpus("verify", tmp_path / "none", check=False)
    assert result.returncode == 1 and b"INPUT_UNREADABLE" in result.stderr
