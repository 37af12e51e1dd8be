"""`cairn corpus pack` against Megatron-Bridge: its packing (megatron-bridge's own packing_utils.py), its encoding of
prompts with answers, and its Parquet files. The package that can be installed here has no part of the last two, so what
stands here for them is written after NVIDIA-NeMo/Megatron-Bridge of August 2026: data/sft_processing.py
(tokenize_prompt_completion_example), data/packing/offline.py (tokenize_dataset, prepare_gpt_sft_packed_data),
data/packing/parquet.py (write_packed_parquet, GPTSFTPackedParquetDataset).
"""
import json
import random
import sys

import pytest
from sft_peer import corpus, make_tokenizer, prepare, read_packs, words

pa = pytest.importorskip("pyarrow")
pytest.importorskip("transformers")

pytestmark = pytest.mark.interop
PACK = 64


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    monkeypatch.setenv("CAIRN_PYTHON", sys.executable)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def some_pairs(rng, count):
    return [{"id": i, "input": words(rng, rng.choice([3, 20, 80])), "output": words(rng, rng.choice([0, 2, 10, 70]))}
            for i in range(count)]


def bridge_pair(tokenizer, record, most, separator=" "):
    """tokenize_prompt_completion_example."""
    def ids(text):
        return tokenizer.encode(text, add_special_tokens=False)

    if separator.startswith(" ") and ids("x y") == ids("x") + ids("y"):
        separator = separator[1:]
    prompt, answer = ids(record["input"].strip(" ")), ids(separator + record["output"].strip(" "))
    overflow = len(prompt) + len(answer) - (most - 1)
    if overflow > 0:
        cut = min(len(prompt), overflow)
        prompt = prompt[:len(prompt) - cut]
        answer = answer[:max(0, len(answer) - (overflow - cut))]
    input_ids = prompt + answer + [tokenizer.eos_token_id]
    skipped = [tokenizer.convert_tokens_to_ids(token) for token in ("<|im_start|>",)]
    mask = [0] * len(prompt) + [int(token not in skipped) for token in answer + [tokenizer.eos_token_id]]
    return {"input_ids": input_ids, "loss_mask": mask}


def pack(source, prefix, tokenizer, *more, **options):
    return corpus("pack", "--input", source, "--output-prefix", prefix, "--tokenizer-model", tokenizer.name_or_path,
                  *more, **options)


@pytest.mark.parametrize("algorithm", ["first_fit_shuffle", "first_fit_decreasing"])
@pytest.mark.parametrize("multiple", [1, 8, 30])
@pytest.mark.parametrize("seed", [0, 5])
def test_pairs_give_the_file_of_megatron_bridge(tmp_path, tokenizer, algorithm, multiple, seed):
    records = some_pairs(random.Random(seed), 1500)
    source = write_lines(tmp_path / "in.jsonl", records)
    data = [bridge_pair(tokenizer, record, PACK + (multiple > 1)) for record in records]
    metadata = prepare(data, tmp_path / "theirs.idx.parquet", PACK, multiple, tokenizer.eos_token_id, algorithm, seed)
    done = pack(source, tmp_path / "ours", tokenizer, "--pack-size", PACK, "--pad-multiple", multiple, "--seed", seed,
                "--packing-algorithm", algorithm, "--workers", 3, "--format=json")
    assert (tmp_path / "ours.idx.parquet").read_bytes() == (tmp_path / "theirs.idx.parquet").read_bytes()
    assert json.loads((tmp_path / "ours_metadata.json").read_text()) == [metadata]
    report = json.loads(done.stdout)
    packs = read_packs(tmp_path / "ours.idx.parquet")
    assert (report["packs"], report["samples"]) == (len(packs), len(records))
    assert report["tokens"] == sum(len(row["input_ids"]) for row in packs)
    assert report["trained_tokens"] == sum(sum(row["loss_mask"]) for row in packs) > 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "in.jsonl", "ours.idx.parquet", "ours_metadata.json", "theirs.idx.parquet"]


def test_several_row_groups_and_other_keys(tmp_path, tokenizer):
    records = some_pairs(random.Random(3), 3000)
    source = tmp_path / "in.parquet"
    pa.parquet.write_table(pa.table({"q": [r["input"] for r in records], "a": [r["output"] for r in records]}), source)
    data = [bridge_pair(tokenizer, record, 40, "\n") for record in records]
    prepare(data, tmp_path / "theirs.idx.parquet", 40, 1, tokenizer.eos_token_id, "first_fit_shuffle", 9)
    pack(source, tmp_path / "ours", tokenizer, "--pack-size", 40, "--seed", 9, "--prompt-key", "q", "--answer-key", "a",
         "--separator", "\n")
    assert pa.parquet.ParquetFile(tmp_path / "ours.idx.parquet").num_row_groups > 2
    assert (tmp_path / "ours.idx.parquet").read_bytes() == (tmp_path / "theirs.idx.parquet").read_bytes()


def test_the_mask_and_the_starts_are_those_of_one_pair(tmp_path, tokenizer):
    source = write_lines(tmp_path / "in.jsonl", [{"input": " ask me ", "output": "tell you "}])
    pack(source, tmp_path / "out", tokenizer, "--pack-size", 20)
    (row,) = read_packs(tmp_path / "out.idx.parquet")
    prompt, answer = tokenizer.encode("ask me"), tokenizer.encode(" tell you")
    assert row["input_ids"] == prompt + answer + [tokenizer.eos_token_id] and row["seq_start_id"] == [0]
    # The mask is for the next token: from the last of the prompt on, and not for what follows the end.
    assert row["loss_mask"] == [0] * (len(prompt) - 1) + [1] * (len(answer) + 1) + [0]


def test_bad_lines_are_described_or_end_the_run(tmp_path, tokenizer):
    good = [{"input": "a", "output": "b"}] * 3
    lines = [json.dumps(good[0]), "no JSON", '{"input": "a"}', '{"input": ["a"], "output": "b"}', json.dumps(good[1]),
             '{"input": "a", "output": "<|im_start|>", "x": 1}', '{"input": "", "output": 7}', json.dumps(good[2])]
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(lines))
    done = pack(source, tmp_path / "out", tokenizer, "--pack-size", 20, expect=1)
    assert f"BAD_JSON_LINE: {source}: line 2: column 1" in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    pack(source, tmp_path / "out", tokenizer, "--pack-size", 20, "--skip-bad-lines")
    told = [json.loads(line) for line in (tmp_path / "out_bad_lines.log").read_text().splitlines()]
    assert [entry["line"] for entry in told] == [2, 3, 4, 7]
    (row,) = read_packs(tmp_path / "out.idx.parquet")
    assert len(row["seq_start_id"]) == 4


def test_what_does_not_fit_is_refused(tmp_path, tokenizer):
    source = write_lines(tmp_path / "in.jsonl", [{"input": "a", "output": "b"}])
    done = pack(source, tmp_path / "out", tokenizer, "--pack-size", 20, "--pad-multiple", 21, expect=1)
    assert "BAD_REQUEST: no multiple of 21 tokens fits in a pack of 20" in done.stderr, done.stderr
    (tmp_path / "empty.jsonl").write_text("")
    done = pack(tmp_path / "empty.jsonl", tmp_path / "out", tokenizer, "--pack-size", 20, expect=1)
    assert "BAD_REQUEST: there is no sample to pack" in done.stderr, done.stderr
    assert not list(tmp_path.glob("out*")) and not list(tmp_path.glob(".*"))


def test_without_pyarrow_it_says_so(tmp_path, tokenizer, monkeypatch):
    source = write_lines(tmp_path / "in.jsonl", [{"input": "a", "output": "b"}])
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    bare.chmod(0o755)
    monkeypatch.setenv("CAIRN_PYTHON", str(bare))
    done = pack(source, tmp_path / "out", tokenizer, "--pack-size", 20, expect=1)
    assert "UNSUPPORTED" in done.stderr and "cannot load pyarrow, which writes Parquet files" in done.stderr
    assert not list(tmp_path.glob("out*")) and not list(tmp_path.glob(".*"))
