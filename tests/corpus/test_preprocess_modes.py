"""`cairn corpus preprocess --modes-key` against megatron-core's IndexedDatasetBuilder(multimodal=True), which
Megatron-LM's tools/preprocess_mmdata.py calls: int32 tokens, and a mode for each sequence behind the document
indices."""
import json
import pathlib
import random
import subprocess

import numpy
import pytest

from preprocess_peer import CAIRN, cairn_preprocess, indexed_dataset, write_jsonl

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.interop
NUMBERS = 1 << 20


def preprocess(source, prefix, *more, **options):
    """Texts are numbers, so that every token is known."""
    return cairn_preprocess("--input", source, "--output-prefix", prefix, "--tokenizer-type", "NullTokenizer",
                            "--vocab-size", NUMBERS, "--modes-key", "modes", *more, **options)


def documents(rng, count):
    for _ in range(count):
        sequences = [[rng.randrange(NUMBERS) for _ in range(rng.randrange(1, 9))] for _ in range(rng.randrange(4))]
        yield sequences, [rng.choice([0, 1, 1, -128, 127]) for _ in sequences]


def build(prefix, given, end=()):
    builder = indexed_dataset.IndexedDatasetBuilder(f"{prefix}.bin", dtype=numpy.int32, multimodal=True)
    for sequences, modes in given:
        for i, (sequence, mode) in enumerate(zip(sequences, modes)):
            last = i + 1 == len(sequences)
            builder.add_item(torch.IntTensor(sequence + list(end) if last else sequence), mode)
        builder.end_document()
    builder.finalize(f"{prefix}.idx")


def pair(prefix):
    return [pathlib.Path(f"{prefix}.{ending}").read_bytes() for ending in ("bin", "idx")]


@pytest.mark.parametrize("seed", range(4))
def test_a_multimodal_pair_is_that_of_megatron(tmp_path, seed):
    rng = random.Random(seed)
    given = list(documents(rng, 500))
    source = write_jsonl(tmp_path / "in.jsonl", [
        {"text": [" ".join(map(str, sequence)) for sequence in sequences], "modes": modes, "id": i}
        for i, (sequences, modes) in enumerate(given)])
    partitions = rng.choice([1, 3])
    preprocess(source, tmp_path / "ours", "--append-eod", "--workers", 3, "--partitions", partitions)
    order = [document for part in range(partitions) for document in given[part::partitions]]
    build(tmp_path / "theirs", order, end=[NUMBERS])
    assert pair(tmp_path / "ours_text_document") == pair(tmp_path / "theirs")
    dataset = indexed_dataset.IndexedDataset(str(tmp_path / "ours_text_document"), multimodal=True)
    assert [dataset[i][1] for i in range(len(dataset))] == [mode for _, modes in order for mode in modes]


def test_it_is_merged_verified_and_described(tmp_path):
    rng = random.Random(9)
    parts = tmp_path / "parts"
    parts.mkdir()
    merged = []
    for name in ("a", "b"):
        given = list(documents(rng, 50))
        merged += given
        source = write_jsonl(tmp_path / f"{name}.jsonl", [
            {"text": [" ".join(map(str, sequence)) for sequence in sequences], "modes": modes}
            for sequences, modes in given])
        preprocess(source, parts / name)
    build(tmp_path / "theirs", merged)
    subprocess.run([CAIRN, "corpus", "merge", "--input", parts, "--output-prefix", tmp_path / "ours"], check=True)
    assert pair(tmp_path / "ours") == pair(tmp_path / "theirs")
    done = subprocess.run([CAIRN, "--format=json", "corpus", "verify", tmp_path / "ours"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["state"] == "sound" and report["multimodal"] and report["dtype"] == "int32"


def test_a_text_has_one_mode_and_an_empty_one_none(tmp_path):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "5", "modes": [1]}, {"text": [], "modes": []}])
    preprocess(source, tmp_path / "ours")
    build(tmp_path / "theirs", [([[5]], [1]), ([], [])])
    assert pair(tmp_path / "ours_text_document") == pair(tmp_path / "theirs")


def test_a_sequence_without_tokens_is_left_out_with_its_mode(tmp_path):
    (tmp_path / "text").write_text("a")
    subprocess.run([CAIRN, "corpus", "bpe", "train", tmp_path / "text", "--vocab-size", "256", "--output",
                    tmp_path / "bytes"], check=True)
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": ["a", "", "b"], "modes": [1, 2, 3]}])
    cairn_preprocess("--input", source, "--output-prefix", tmp_path / "ours", "--tokenizer-type",
                     "HuggingFaceTokenizer", "--tokenizer-model", tmp_path / "bytes", "--modes-key", "modes")
    build(tmp_path / "theirs", [([[ord("a")], [ord("b")]], [1, 3])])
    assert pair(tmp_path / "ours_text_document") == pair(tmp_path / "theirs")


def test_what_does_not_fit_is_refused(tmp_path):
    source = write_jsonl(tmp_path / "in.jsonl", [
        {"text": "5", "modes": [1]}, {"text": ["5", "6"], "modes": [1]}, {"text": "5"}, {"text": "5", "modes": [200]}])
    done = preprocess(source, tmp_path / "ours", check=False)
    assert done.returncode == 1
    assert f"BAD_JSON_LINE: {source}: line 2: 'text' has 2 sequences, but 'modes' has 1 modes" in done.stderr
    preprocess(source, tmp_path / "ours", "--skip-bad-lines")
    told = [json.loads(line) for line in (tmp_path / "ours_bad_lines.log").read_text().splitlines()]
    assert [entry["line"] for entry in told] == [2, 3, 4]
    done = preprocess(source, tmp_path / "out", "--split-sentences", check=False)
    assert done.returncode == 1 and "BAD_REQUEST: texts with modes cannot be split" in done.stderr, done.stderr
    done = preprocess(source, tmp_path / "out", "--json-keys", "modes", check=False)
    assert done.returncode == 1 and "BAD_REQUEST: the key 'modes' is of texts and of modes" in done.stderr, done.stderr
    assert not list(tmp_path.glob("out*"))
