"""`cairn corpus mds`: the files are those that MDSWriter of mosaicml-streaming writes."""
import itertools
import json
import os
import pathlib
import random
import struct
import subprocess

import pytest

numpy = pytest.importorskip("numpy")

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"


def corpus(*arguments, expect=0):
    done = subprocess.run([str(CAIRN), "corpus", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == expect, done.stderr
    return done


def pair(directory, documents, vocabulary=60000):
    """Makes a pair of documents, which are lists of numbers, and returns its prefix."""
    source = directory / "in.jsonl"
    source.write_text("".join(json.dumps({"text": [" ".join(map(str, d))] if d else []}) + "\n" for d in documents))
    corpus("preprocess", "--input", source, "--output-prefix", directory / "p", "--tokenizer-type", "NullTokenizer",
           "--vocab-size", vocabulary)
    return directory / "p_text_document"


def read(directory):
    """Returns the arrays of a dataset, as the format says."""
    index = json.loads((directory / "index.json").read_text())
    assert index["version"] == 2
    arrays = []
    for number, shard in enumerate(index["shards"]):
        assert shard["raw_data"]["basename"] == f"shard.{number:05}.mds"
        data = (directory / shard["raw_data"]["basename"]).read_bytes()
        assert len(data) == shard["raw_data"]["bytes"]
        (count,) = struct.unpack_from("<I", data)
        assert count == shard["samples"]
        offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
        described = json.loads(data[4 * (count + 2):offsets[0]])
        assert described == {key: shard[key] for key in described} and offsets[-1] == len(data)
        (encoding,) = shard["column_encodings"]
        _, dtype, *shape = encoding.split(":")
        for begin, end in itertools.pairwise(offsets):
            sample = data[begin:end]
            if not shape:
                assert struct.unpack_from("<I", sample)[0] == len(sample) - 4
                width = 1 << (sample[4] & 3)
                assert sample[4] >> 2 == 1
                tokens = int.from_bytes(sample[5:5 + width], "little")
                assert width == (1 if tokens < 256 else 2 if tokens < 65536 else 4)
                sample = sample[5 + width:]
            else:
                tokens = int(shape[0])
            arrays.append(numpy.frombuffer(sample, dtype))
            assert len(arrays[-1]) == tokens
    return arrays


def some_documents(seed, count=3000):
    rng = random.Random(seed)
    longest = [1, 10, 300, 2000]
    found = [[rng.randrange(60000) for _ in range(rng.randrange(rng.choice(longest)))] for _ in range(count)]
    return found + [[7] * 255, [7] * 256, [7] * 65535, [7] * 65536, []]


@pytest.mark.parametrize("vocabulary, dtype", [(60000, "uint16"), (70000, "int32")])
def test_documents_are_samples(tmp_path, vocabulary, dtype):
    documents = some_documents(1)
    prefix = pair(tmp_path, documents, vocabulary)
    done = corpus("mds", prefix, "--output", tmp_path / "new/mds", "--format=json")
    arrays = read(tmp_path / "new/mds")
    filled = [document for document in documents if document]
    assert [list(array) for array in arrays] == filled and arrays[0].dtype == dtype
    report = json.loads(done.stdout)
    assert report["samples"] == len(filled) and report["empty_documents"] == len(documents) - len(filled)


@pytest.mark.parametrize("length", [1, 100, 2048])
def test_tokens_in_a_row_are_samples(tmp_path, length):
    documents = some_documents(2, 500)
    prefix = pair(tmp_path, documents)
    done = corpus("mds", prefix, "--output", tmp_path / "mds", "--sequence-length", length, "--format=json")
    tokens = [token for document in documents for token in document]
    whole = len(tokens) // length * length
    assert numpy.array_equal(numpy.concatenate(read(tmp_path / "mds")), tokens[:whole])
    assert json.loads(done.stdout)["tokens_left"] == len(tokens) - whole


def test_golden_bytes(tmp_path):
    """What mosaicml-streaming 0.13 writes."""
    prefix = pair(tmp_path, [[1, 2], [], [3] * 3])
    corpus("mds", prefix, "--output", tmp_path / "mds")
    config = (b'{"column_encodings": ["ndarray:uint16"], "column_names": ["tokens"], "column_sizes": [null], '
              b'"compression": null, "format": "mds", "hashes": [], "size_limit": 67108864, "version": 2}')
    assert (tmp_path / "mds/shard.00000.mds").read_bytes() == (
        b"\2\0\0\0" b"\xc6\0\0\0" b"\xd0\0\0\0" b"\xdc\0\0\0" + config +
        b"\6\0\0\0\x04\2\1\0\2\0" b"\x08\0\0\0\x04\3\3\0\3\0\3\0")
    assert (tmp_path / "mds/index.json").read_text() == (
        '{"shards": [{"column_encodings": ["ndarray:uint16"], "column_names": ["tokens"], "column_sizes": [null], '
        '"compression": null, "format": "mds", "hashes": [], "raw_data": {"basename": "shard.00000.mds", "bytes": 220, '
        '"hashes": {}}, "samples": 2, "size_limit": 67108864, "version": 2, "zip_data": null}], "version": 2}')


@pytest.mark.interop
@pytest.mark.parametrize("length", [None, 777])
def test_bytes_are_those_of_the_library(tmp_path, length):
    """Two shards. No set of requirements has mosaicml-streaming, which needs the clients of many clouds."""
    streaming = pytest.importorskip("streaming")
    documents = [numpy.random.default_rng(i).integers(0, 60000, 1 + i * 101 % 90_000).tolist() for i in range(1000)]
    prefix = pair(tmp_path, documents)
    flags = () if length is None else ("--sequence-length", length)
    corpus("mds", prefix, "--output", tmp_path / "ours", *flags)
    samples = [numpy.array(document, numpy.uint16) for document in documents]
    encoding = "ndarray:uint16"
    if length is not None:
        tokens = numpy.concatenate(samples)
        samples = tokens[:len(tokens) // length * length].reshape(-1, length)
        encoding += f":{length}"
    with streaming.MDSWriter(out=str(tmp_path / "theirs"), columns={"tokens": encoding}) as writer:
        for sample in samples:
            writer.write({"tokens": sample})
    files = {path.name: path.read_bytes() for path in (tmp_path / "ours").iterdir()}
    assert len(files) == 3
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()}


def test_no_documents(tmp_path):
    corpus("mds", pair(tmp_path, []), "--output", tmp_path / "mds")
    assert read(tmp_path / "mds") == []


def test_what_is_refused(tmp_path):
    prefix = pair(tmp_path, [[1, 2], [3]])
    corpus("mds", prefix, "--output", tmp_path / "mds")
    before = {path.name: path.read_bytes() for path in (tmp_path / "mds").iterdir()}
    done = corpus("mds", prefix, "--output", tmp_path / "mds", expect=1)
    assert "OUTPUT_EXISTS" in done.stderr and "next: Name another directory" in done.stderr, done.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "mds").iterdir()} == before
    index = pathlib.Path(f"{prefix}.idx")
    whole = index.read_bytes()
    # A length, a pointer, a document index.
    for at in (34, 44, 63):
        index.write_bytes(whole[:at] + b"\x7f" + whole[at + 1:])
        done = corpus("mds", prefix, "--output", tmp_path / "none", expect=1)
        assert "INDEX_CORRUPT" in done.stderr, (at, done.stderr)
    index.write_bytes(whole)
    with open(f"{prefix}.bin", "ab") as file:
        file.truncate(4)
    assert "INDEX_CORRUPT" in corpus("mds", prefix, "--output", tmp_path / "none", expect=1).stderr
    assert not (tmp_path / "none").exists()
    done = corpus("mds", prefix, "--output", tmp_path / "none", "--sequence-length", 2**40, expect=1)
    assert "BAD_REQUEST" in done.stderr, done.stderr
