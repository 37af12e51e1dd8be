#!/usr/bin/env python3
"""Documents per second of `cairn corpus preprocess` and of Megatron-LM's way, in one run, in turns, medians.

    CAIRN_BIN_DIR=dist/bin python3 benchmarks/corpus/preprocess_benchmark.py --documents 20000 --repeats 3

The peer is what tools/preprocess_data.py does: json.loads, transformers' tokenizer and the rest of Encoder.encode in a
multiprocessing pool of as many workers, imap with chunks of 32, and megatron-core's IndexedDatasetBuilder in the
parent. Neither side's start-up counts: the pool is warm before the clock starts, and the time that Cairn takes for an
empty input is subtracted. Both sides' outputs are compared byte for byte before a number is printed. CPU seconds are of
the process and its children, so that a busy machine changes the ratio less than it changes the times.

Documents have 1.9 kB of text: natural-language-like English by default, or the text given by --text.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
warnings.simplefilter("ignore")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "corpus"))
sys.path.insert(0, str(ROOT / "benchmarks" / "corpus"))

import multilingual_text

from preprocess_peer import CAIRN, SPECIAL, BertPeer, HfPeer, assert_same_pairs, indexed_dataset

state = {}


def make_tokenizer(kind, files):
    if kind == "gpt2":
        import transformers
        return HfPeer(transformers.GPT2Tokenizer(vocab=str(files["vocab"]), merges=str(files["merges"])))
    return BertPeer(files["vocab"], lower_case=False)


def start_worker(kind, files):
    state["tokenizer"] = make_tokenizer(kind, files)


def encode(line):
    record = json.loads(line)
    ids = state["tokenizer"](record["text"])
    return {"text": ids}, {"text": [len(ids)] if ids else []}, len(line)


def wait_for_all(_):
    time.sleep(0.05)  # so that one worker cannot answer for the others
    return encode('{"text": "warm"}') and os.getpid()


def peer(kind, files, source, prefix, workers):
    """(wall, CPU seconds) of the encoding and writing."""
    size = len(make_tokenizer(kind, files))
    with multiprocessing.get_context("spawn").Pool(workers, initializer=start_worker, initargs=(kind, files)) as pool:
        while len(set(pool.map(wait_for_all, range(workers * 4), 1))) < workers:
            pass
        builder = indexed_dataset.IndexedDatasetBuilder(f"{prefix}_text_document.bin",
                                                        dtype=indexed_dataset.DType.optimal_dtype(size))
        before = cpu_of(pool._pool)
        start = time.perf_counter()
        with open(source, encoding="utf-8") as lines:
            for ids, lengths, _ in pool.imap(encode, lines, 32):
                builder.add_document(ids["text"], lengths["text"])
        builder.finalize(f"{prefix}_text_document.idx")
        wall = time.perf_counter() - start
        return wall, cpu_of(pool._pool) - before


def cpu_of(processes):
    """User and system seconds of this process and of live children."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    for process in processes:
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def cairn(kind, files, source, prefix, workers):
    command = [CAIRN, "corpus", "preprocess", "--input", source, "--output-prefix", prefix, "--workers", str(workers),
               "--vocab-file", files["vocab"], "--tokenizer-type",
               "GPT2BPETokenizer" if kind == "gpt2" else "BertWordPieceCase"]
    if kind == "gpt2":
        command += ["--merge-file", files["merges"]]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_documents(path, count, size, text):
    rng = random.Random(1)
    if text:
        lines = pathlib.Path(text).read_text(encoding="utf-8").split("\n")
    else:
        lexicon = multilingual_text.Lexicon(
            rng, multilingual_text.syllable_maker(multilingual_text.SYLLABLES["english"]), 30000
        )
        lines = []
        for _ in range(min(count * 8, 100000)):
            words = lexicon.draw(rng, rng.randrange(20, 60))
            words[0] = words[0].capitalize()
            for _ in range(3):
                words[rng.randrange(len(words))] += rng.choice([",", ",", ";", ":"])
            lines.append(" ".join(words) + ".")
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            document, length = [], 0
            while length < size:
                line = rng.choice(lines)
                document.append(line)
                length += len(line.encode()) + 1
            file.write(json.dumps({"id": i, "text": "\n".join(document)}, ensure_ascii=False) + "\n")
    return lines


def vocabulary(kind, directory, lines):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    if kind == "gpt2":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=50257, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                      special_tokens=["<|endoftext|>"], show_progress=False)
        tokenizer.train_from_iterator(lines, trainer)
        tokenizer.model.save(str(directory))
        return {"vocab": directory / "vocab.json", "merges": directory / "merges.txt"}
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=28996, special_tokens=SPECIAL,
                                                                   show_progress=False))
    tokenizer.model.save(str(directory))
    return {"vocab": directory / "vocab.txt"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["gpt2", "bert"], action="append")
    parser.add_argument("--documents", type=int, default=20000, help="for Cairn")
    parser.add_argument("--peer-documents", type=int, default=2000, help="the first of them, for the peer")
    parser.add_argument("--document-bytes", type=int, default=1900)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--text", help="a file of text, one paragraph per line")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        lines = write_documents(directory / "all.jsonl", given.documents, given.document_bytes, given.text)
        with open(directory / "all.jsonl", encoding="utf-8") as source, open(directory / "few.jsonl", "w",
                                                                             encoding="utf-8") as few:
            few.writelines(line for _, line in zip(range(given.peer_documents), source))
        (directory / "none.jsonl").touch()
        for kind in given.kind or ["gpt2", "bert"]:
            (directory / kind).mkdir()
            files = vocabulary(kind, directory / kind, lines)
            run = lambda tool, what: tool(
                kind, files, directory / f"{what}.jsonl", directory / f"{tool.__name__}_{what}", given.workers
            )
            run(cairn, "few")
            theirs, ours = [], []
            for _ in range(given.repeats):
                theirs.append(run(peer, "few"))
                assert_same_pairs(directory / "peer_few", directory / "cairn_few")
                idle = run(cairn, "none")
                full = run(cairn, "all")
                ours.append((full[0] - idle[0], full[1] - idle[1]))
            def rate(times, place, documents):
                return documents / statistics.median(t[place] for t in times)
            bytes_each = (directory / "all.jsonl").stat().st_size / given.documents
            print(json.dumps({
                "kind": kind, "workers": given.workers, "document_bytes": round(bytes_each),
                "peer_documents_per_s": round(rate(theirs, 0, given.peer_documents)),
                "cairn_documents_per_s": round(rate(ours, 0, given.documents)),
                "ratio": round(rate(ours, 0, given.documents) / rate(theirs, 0, given.peer_documents), 1),
                "peer_documents_per_cpu_s": round(rate(theirs, 1, given.peer_documents)),
                "cairn_documents_per_cpu_s": round(rate(ours, 1, given.documents)),
                "cpu_ratio": round(rate(ours, 1, given.documents) / rate(theirs, 1, given.peer_documents), 1)}),
                flush=True)


if __name__ == "__main__":
    main()
