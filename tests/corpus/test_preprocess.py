"""`cairn corpus preprocess` against Megatron-LM's procedure on the live libraries (preprocess_peer.py)."""
import gzip
import json
import lzma
import random
import signal
import subprocess
import time

import numpy
import pytest

from preprocess_peer import (
    CAIRN,
    SPECIAL,
    BertPeer,
    assert_same_pairs,
    cairn_preprocess,
    indexed_dataset,
    preprocess,
    write_jsonl,
)

pytestmark = pytest.mark.interop

WORDS = "the quick brown fox jumps over lazy dogs and checkpoints [SEP] x, y. <extra_id_3>!".split()


@pytest.fixture
def vocab(tmp_path):
    path = tmp_path / "vocab.txt"
    pieces = [w for w in WORDS if w.isalpha()] + list("abcdefghijklmnopqrstuvwxyz,.!<>_[]0123456789")
    path.write_text("\n".join(SPECIAL + pieces + ["##" + p for p in pieces]) + "\n")
    return path


def documents(rng, count):
    records = []
    for i in range(count):
        def text(longest=60):
            return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(longest)))
        record = {"id": i, "text": text(), "title": text(5), "meta": {"text": "not this", "scores": [1.5, None]}}
        if rng.random() < 0.1:
            record["text"] = rng.choice(["", [], [""], " ", ["", "the fox", ""]])
        elif rng.random() < 0.2:
            record["text"] = [text(20) for _ in range(rng.randrange(4))]
        records.append(record)
    return records


def run_both(tmp_path, source, vocab, *flags, files=None, kind="BertWordPieceLowerCase", keys=("text",), **options):
    """Runs both tools on one input and returns the prefix of ours."""
    peer = BertPeer(vocab, kind.endswith("LowerCase"), "--tokenizer-hf-no-include-special-tokens" not in flags)
    preprocess(files or [source], tmp_path / "peer", peer, keys=keys, append_eod="--append-eod" in flags, **options)
    cairn_preprocess("--input", source, "--output-prefix", tmp_path / "ours", "--tokenizer-type", kind, "--vocab-file",
                     vocab, "--json-keys", *keys, *flags)
    assert_same_pairs(tmp_path / "peer", tmp_path / "ours", keys)
    return tmp_path / "ours"


@pytest.mark.parametrize("flags", [(), ("--append-eod",), ("--tokenizer-hf-no-include-special-tokens",),
                                   ("--tokenizer-hf-no-include-special-tokens", "--append-eod")])
@pytest.mark.parametrize("kind", ["BertWordPieceCase", "BertWordPieceLowerCase"])
def test_documents(tmp_path, vocab, kind, flags):
    source = write_jsonl(tmp_path / "in.jsonl", documents(random.Random(1), 400))
    run_both(tmp_path, source, vocab, "--workers", "2", *flags, kind=kind, keys=("text", "title"))


def test_megatron_reads_it(tmp_path, vocab):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "the fox"}, {"text": ""}, {"text": ["the", "dogs the"]}])
    prefix = run_both(tmp_path, source, vocab, "--append-eod")
    dataset = indexed_dataset.IndexedDataset(f"{prefix}_text_document")
    ids = {w: i for i, w in enumerate(vocab.read_text().split("\n"))}
    want = [["[CLS]", "the", "fox", "[SEP]", "[SEP]"], ["[CLS]", "[SEP]", "[SEP]"], ["[CLS]", "the", "[SEP]"],
            ["[CLS]", "dogs", "the", "[SEP]", "[SEP]"]]
    assert [list(s) for s in dataset[0 : len(dataset)]] == [[ids[t] for t in s] for s in want]
    assert list(dataset.document_indices) == [0, 1, 2, 4]
    assert dataset.index.dtype == numpy.uint16


def test_golden_bytes(tmp_path):
    """Compares the bytes themselves, independently of any library."""
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n")
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "ab a"}, {"text": []}, {"text": ["z"]}])
    cairn_preprocess("--input", source, "--output-prefix", tmp_path / "p", "--tokenizer-type", "BertWordPieceLowerCase",
                     "--vocab-file", vocab)
    assert (tmp_path / "p_text_document.bin").read_bytes().hex() == "0200050006000500030002000100" + "0300"
    assert (tmp_path / "p_text_document.idx").read_bytes().hex() == (
        "4d4d494449445800000100000000000000"
        "08"
        "0200000000000000"
        "0400000000000000"
        "05000000"
        "03000000"
        "0000000000000000"
        "0a00000000000000"
        "0000000000000000"
        "0100000000000000"
        "0100000000000000"
        "0200000000000000"
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends(tmp_path, vocab, end, last):
    source = write_jsonl(tmp_path / "in.jsonl", documents(random.Random(2), 50), end)
    if not last:
        source.write_bytes(source.read_bytes()[: -len(end)])
    run_both(tmp_path, source, vocab)


def test_no_documents(tmp_path, vocab):
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"")
    run_both(tmp_path, source, vocab)


def test_what_python_reads_and_strict_parsers_refuse(tmp_path, vocab):
    source = tmp_path / "in.jsonl"
    source.write_text('{"n": NaN, "text": "the fox"}\n{"n": 123456789012345678901234567890, "text": "a"}\n'
                      '{"text": "a", "text": "b"}\n{"n": "\\ud800", "text": "\\ud83d\\ude00 \\u0000 a"}\n'
                      '{"n": [1e999, -Infinity], "text": "x"}\n')
    run_both(tmp_path, source, vocab)


@pytest.mark.parametrize("partitions", [2, 3, 5])
@pytest.mark.parametrize("sequential", [False, True])
def test_partitions(tmp_path, vocab, partitions, sequential):
    rng = random.Random(3)
    files = [write_jsonl(tmp_path / f"in{i}.jsonl", documents(rng, n)) for i, n in enumerate((101, 1, 230))]
    flags = ["--partitions", str(partitions)] + (["--keep-sequential-samples"] if sequential else [])
    run_both(
        tmp_path, tmp_path / "in*.jsonl", vocab, *flags, "--workers", str(partitions), files=files,
        partitions=partitions, keep_sequential=sequential, keys=("text", "title"))
    assert sorted(p.name for p in tmp_path.glob("*ours*")) == sorted(
        f"ours_{key}_document.{suffix}" for key in ("text", "title") for suffix in ("bin", "idx"))


def test_workers_and_batches_do_not_change_the_output(tmp_path, vocab):
    """The input has several MiB, so that many batches are under way at once, and a line longer than a batch."""
    rng = random.Random(4)
    records = documents(rng, 6000)
    records[3000]["text"] = " ".join(rng.choice(WORDS) for _ in range(500000))
    source = write_jsonl(tmp_path / "in.jsonl", records)
    outputs = []
    for workers in (1, 2, 7):
        prefix = tmp_path / f"w{workers}"
        cairn_preprocess("--input", source, "--output-prefix", prefix, "--tokenizer-type", "BertWordPieceCase",
                         "--vocab-file", vocab, "--workers", workers)
        outputs.append([(tmp_path / f"w{workers}_text_document.{s}").read_bytes() for s in ("bin", "idx")])
    assert outputs[0] == outputs[1] == outputs[2]
    preprocess([source], tmp_path / "w1p", BertPeer(vocab, False))
    assert_same_pairs(tmp_path / "w1p", tmp_path / "w1")


@pytest.mark.parametrize("kind,lines,dtype", [("BertWordPieceCase", 65399, numpy.uint16),
                                              ("BertWordPieceCase", 65400, numpy.int32),
                                              ("BertWordPieceLowerCase", 65499, numpy.uint16),
                                              ("BertWordPieceLowerCase", 65500, numpy.int32)])
def test_dtype_switch(tmp_path, kind, lines, dtype):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(SPECIAL + [f"t{i}" for i in range(lines - 5)]) + "\n")
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": f"t0 t{lines - 6} <extra_id_99>"}])
    prefix = run_both(tmp_path, source, vocab, kind=kind)
    assert indexed_dataset.IndexedDataset(f"{prefix}_text_document").index.dtype == dtype


def test_compressed_input(tmp_path, vocab):
    source = write_jsonl(tmp_path / "in.jsonl", documents(random.Random(6), 300))
    whole = source.read_bytes()
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(whole[:5000]) + gzip.compress(whole[5000:]))
    (tmp_path / "in.jsonl.xz").write_bytes(lzma.compress(whole[:5000]) + b"\0" * 8 +
                                           lzma.compress(whole[5000:], check=lzma.CHECK_SHA256, preset=9) + b"\0" * 4)
    subprocess.run(["zstd", "-q", source], check=True)
    preprocess([source], tmp_path / "peer", BertPeer(vocab, False))
    for suffix in (".gz", ".xz", ".zst"):
        cairn_preprocess("--input", f"{source}{suffix}", "--output-prefix", tmp_path / "ours", "--tokenizer-type",
                         "BertWordPieceCase", "--vocab-file", vocab)
        assert_same_pairs(tmp_path / "peer", tmp_path / "ours")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(whole)[:-20])
    done = cairn_preprocess(
        "--input", tmp_path / "cut.jsonl.gz", "--output-prefix", tmp_path / "cut", "--tokenizer-type",
        "BertWordPieceCase", "--vocab-file", vocab, check=False)
    assert done.returncode == 1 and "cut.jsonl.gz" in done.stderr
    assert not list(tmp_path.glob("cut_*"))


BAD_LINES = {
    "blank": b"", "spaces": b"   ", "not json": b"hello", "cut": b'{"text": "a', "no key": b'{"title": "a"}',
    "number": b'{"text": 7}', "null": b'{"text": null}', "list of numbers": b'{"text": ["a", 7]}', "array": b'["a"]',
    "trailing": b'{"text": "a"} x', "0xFF": b'{"text": "\xff"}', "raw NUL": b'{"text": "\x00"}',
    "half surrogate": b'{"text": "\\ud800"}', "byte order mark": b'\xef\xbb\xbf{"text": "a"}', "deep": b"[" * 100000,
}


@pytest.mark.parametrize("name", BAD_LINES)
@pytest.mark.parametrize("workers", [1, 3])
def test_bad_lines(tmp_path, vocab, name, workers):
    source = tmp_path / "in.jsonl"
    good = b'{"text": "the fox"}\n'
    source.write_bytes(good * 7000 + BAD_LINES[name] + b"\n" + good * 7000 + b"later too\n" * 3)
    before = {p.name for p in tmp_path.iterdir()}
    done = cairn_preprocess("--input", source, "--output-prefix", tmp_path / "ours", "--tokenizer-type",
                            "BertWordPieceCase", "--vocab-file", vocab, "--workers", workers, check=False)
    assert done.returncode == 1, done
    assert f"error: BAD_JSON_LINE: {source}: line 7001" in done.stderr
    assert {p.name for p in tmp_path.iterdir()} == before


def test_a_failed_run_leaves_the_old_output(tmp_path, vocab):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "the fox"}])
    prefix = run_both(tmp_path, source, vocab)
    old = {p.name: p.read_bytes() for p in tmp_path.glob("ours*")}
    source.write_text("{}\n")
    arguments = ("--input", source, "--output-prefix", prefix, "--tokenizer-type", "BertWordPieceLowerCase",
                 "--vocab-file", vocab)
    assert cairn_preprocess(*arguments, check=False).returncode == 1
    assert {p.name: p.read_bytes() for p in tmp_path.glob("ours*")} == old


def test_json_format_and_errors(tmp_path, vocab):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "the fox"}, {"text": "a"}])
    done = cairn_preprocess("--format=json", "--input", source, "--output-prefix", tmp_path / "p", "--tokenizer-type",
                            "BertWordPieceCase", "--vocab", vocab, "--dataset-impl", "mmap")
    report = json.loads(done.stdout)
    assert report["documents"] == 2
    assert report["outputs"] == [{"key": "text", "prefix": str(tmp_path / "p_text_document"), "dtype": "uint16",
                                  "documents": 2, "sequences": 2, "tokens": 7}]
    (tmp_path / "bad.txt").write_text("no unk\n")
    (tmp_path / "empty").mkdir()
    for reason, *flags in (
            ("INPUT_UNREADABLE", "--input", tmp_path / "none*.jsonl"),
            ("INPUT_UNREADABLE", "--input", tmp_path / "empty"),
            ("BAD_JSON_LINE", "--input", tmp_path),  # it takes the vocabulary for a document
            ("INPUT_UNREADABLE", "--vocab-file", tmp_path / "none.txt"),
            ("BAD_TOKENIZER", "--vocab-file", tmp_path / "bad.txt"),
            ("BAD_REQUEST", "--vocab-file", ""),
            ("BAD_REQUEST", "--tokenizer-type", "Bert"),
            ("BAD_REQUEST", "--partitions", 2, "--workers", 3),
            ("STORAGE_ERROR", "--output-prefix", vocab / "no" / "directory")):  # below a file
        given = {"--input": source, "--output-prefix": tmp_path / "q", "--tokenizer-type": "BertWordPieceCase",
                 "--vocab-file": vocab} | dict(zip(flags[::2], flags[1::2]))
        done = cairn_preprocess("--format=json", *(x for pair in given.items() for x in pair), check=False)
        assert done.returncode == 1, done
        assert json.loads(done.stderr)["error"]["reason"] == reason, done.stderr
    assert not list(tmp_path.glob("q_*"))


def test_interrupted(tmp_path, vocab):
    """A SIGTERM while it runs gives status 130 and leaves nothing. The input is a pipe that never ends."""
    pipe = tmp_path / "in.jsonl"
    import os
    os.mkfifo(pipe)
    run = subprocess.Popen([CAIRN, "corpus", "preprocess", "--input", pipe, "--output-prefix", tmp_path / "ours",
                            "--tokenizer-type", "BertWordPieceCase", "--vocab-file", vocab], stderr=subprocess.PIPE,
                           text=True)
    line = json.dumps({"text": "the fox " * 100}) + "\n"
    with open(pipe, "w") as file:
        deadline = time.monotonic() + 60
        written = 0
        try:
            while run.poll() is None and time.monotonic() < deadline:
                file.write(line * 100)
                file.flush()
                written += 1
                if written == 50:
                    run.send_signal(signal.SIGTERM)
        except BrokenPipeError:
            pass
    assert run.wait(60) == 130, run.stderr.read()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.jsonl", "vocab.txt"]
