#!/usr/bin/env python3
"""Encoding against gigatoken and Hugging Face tokenizers, each in its own process: CPU seconds, in turns; ids compared.

    bazel build //benchmarks/corpus:encode_benchmark
    benchmarks/corpus/machine_texts.py TEXTS
    benchmarks/corpus/encode_peers.py TEXTS --directory WORK --rounds 3 --count 100

It follows huggingface/tokbench: documents of 10 KiB, at most 100 of them with --count 100, loading does not count, ids
are compared, and the main figure ("unseen") is of an encoder that has seen a sixth of the text and then gets the other
five sixths for the first time, the median of them. Its own models, texts and gigatoken's crate are in no package index,
so texts are this machine's, and gigatoken is its wheel.
The peers get all documents of a part in one call, which costs them no Python for each. "first" is a new encoder's first
pass, and "again" one over text that it has seen. Tokenizers are trained on the texts' NAME.train.txt.

--peer NAME=PYTHON says which Python has a peer; NAME is gigatoken or tokenizers. The Python that runs this
trains Llama 2's kind, for which it needs tokenizers 0.x (1.0 only encodes).
"""
import argparse
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", ROOT / "dist" / "bin")) / "cairn"
OURS = ROOT / "bazel-bin" / "benchmarks" / "corpus" / "encode_benchmark"
PARTS = 6
FIGURES = ("unseen", "first", "again")

# name: rule of the pre-tokenizer, and size of the vocabulary
KINDS = {"gpt2": ("gpt2", 50257), "llama3": ("llama3", 100_000), "qwen": ("qwen2", 100_000), "llama2": (None, 32_000)}


def documents_of(text, size):
    documents, begin = [], 0
    while begin < len(text):
        end = min(begin + size, len(text))
        while end < len(text) and text[end] & 0xC0 == 0x80:
            end += 1
        documents.append(text[begin:end].decode())
        begin = end
    return documents


def gigatoken_encoder(path, threads):
    import gigatoken
    import numpy

    tokenizer = gigatoken.Tokenizer(path)
    encode = tokenizer.backend.encode_batch

    def run(documents):
        return encode(documents, parallel=threads > 1)

    return run, lambda result: numpy.asarray(result.layout.content.data, dtype=numpy.uint32)


def tokenizers_encoder(path, threads):
    import numpy
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)

    def run(documents):
        return encode(documents, add_special_tokens=False)

    return run, lambda result: numpy.concatenate([numpy.asarray(e.ids, dtype=numpy.uint32) for e in result])


def peer(arguments):
    """Runs in the peer's own Python and prints what encode_benchmark prints."""
    make = {"gigatoken": gigatoken_encoder, "tokenizers": tokenizers_encoder}[arguments.as_peer]
    documents = documents_of(arguments.text.read_bytes(), arguments.documents)
    size = sum(len(d.encode()) for d in documents)

    def timed(run, part):
        begin = time.process_time()
        result = run(part)
        return time.process_time() - begin, result

    run, ids_of = make(str(arguments.tokenizer), arguments.threads)
    first, result = timed(run, documents)
    ids = ids_of(result)
    again = min(timed(run, documents)[0] for _ in range(2))
    run, _ = make(str(arguments.tokenizer), arguments.threads)
    part = len(documents) // PARTS
    run(documents[:part])
    per_byte = []
    for i in range(1, PARTS):
        these = documents[i * part : (i + 1) * part]
        per_byte.append(timed(run, these)[0] / sum(len(d.encode()) for d in these))
    print(
        json.dumps(
            {
                "bytes": size,
                "tokens": len(ids),
                "first": first,
                "unseen": statistics.median(per_byte) * size,
                "again": again,
                "ids": hashlib.sha256(ids.tobytes()).hexdigest(),
            }
        )
    )


def make_tokenizer(kind, texts, directory, python):
    path = directory / f"{kind}.json"
    if path.exists():
        return path
    rule, size = KINDS[kind]
    corpus = directory / "train.txt"
    corpus.write_bytes(b"".join(p.read_bytes() for p in sorted(texts.glob("*.train.txt"))))
    if rule is None:
        subprocess.run([python, "-c", LLAMA2, corpus, str(size), path], check=True)
        return path
    trained = directory / kind
    command = [CAIRN, "corpus", "bpe", "train", corpus, "--vocab-size", str(size), "--pretokenizer", rule]
    subprocess.run([*command, "--output", trained], check=True, stdout=subprocess.DEVNULL)
    described = json.loads((trained / "tokenizer.json").read_text())
    if kind == "qwen":
        described["normalizer"] = {"type": "NFC"}
    path.write_text(json.dumps(described))
    return path


LLAMA2 = """
import sys
from tokenizers import Tokenizer, models, normalizers as n, trainers, pre_tokenizers as p
t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
# Llama 2 trains on words and encodes whole texts.
t.normalizer = n.Sequence([n.Prepend("\u2581"), n.Replace(" ", "\u2581")])
t.pre_tokenizer = p.Split("\u2581", "merged_with_next")
special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
t.train([sys.argv[1]], trainers.BpeTrainer(vocab_size=int(sys.argv[2]), special_tokens=special, show_progress=False))
import json
d = json.loads(t.to_str())
d["pre_tokenizer"] = None
d["added_tokens"] = d["added_tokens"][:3]
open(sys.argv[3], "w").write(json.dumps(d))
"""


def ours(arguments, tokenizer, text, kind, directory):
    ids = directory / "ids.bin"
    command = [OURS, tokenizer, text, "--documents", str(arguments.documents), "--threads", str(arguments.threads)]
    if KINDS[kind][0]:
        command += ["--split", KINDS[kind][0]]
    result = json.loads(subprocess.run([*command, "--ids", ids], check=True, stdout=subprocess.PIPE).stdout)
    result["ids"] = hashlib.sha256(ids.read_bytes()).hexdigest()
    return result


def theirs(arguments, name, python, tokenizer, text):
    command = [python, __file__, text, "--as-peer", name, "--tokenizer", tokenizer]
    command += ["--documents", str(arguments.documents), "--threads", str(arguments.threads)]
    parallel = "true" if arguments.threads > 1 else "false"
    environment = dict(os.environ, RAYON_NUM_THREADS=str(arguments.threads), TOKENIZERS_PARALLELISM=parallel)
    done = subprocess.run([str(c) for c in command], capture_output=True, env=environment)
    return json.loads(done.stdout) if done.returncode == 0 else None


def begin_of(text, arguments):
    """Returns a file with as many documents of a text as shall be encoded."""
    if not arguments.count:
        return text
    begin = arguments.directory / text.name
    begin.write_text("".join(documents_of(text.read_bytes(), arguments.documents)[: arguments.count]))
    return begin


def compare(arguments, peers, kind, tokenizer, text):
    text = begin_of(text, arguments)
    runs = {"cairn": [], **{name: [] for name in peers}}
    for _ in range(arguments.rounds):
        runs["cairn"].append(ours(arguments, tokenizer, text, kind, arguments.directory))
        for name, python in peers.items():
            runs[name].append(theirs(arguments, name, python, tokenizer, text))
    mine = runs.pop("cairn")
    size = mine[0]["bytes"]

    def speed(results, key):  # MB/s of the fastest round: other work on the machine only makes a round slower
        return size / 1e6 / min(r[key] for r in results)

    line = f"{kind:7} {text.stem:13}"
    for key in FIGURES:
        others = {n: speed(r, key) for n, r in runs.items() if r[0] is not None and r[0]["ids"] == mine[0]["ids"]}
        best = max(others, key=others.get, default=None)
        ratio = f"{speed(mine, key) / others[best]:5.2f} x {best[:5]}" if best else "  -          "
        line += f" | {key} {speed(mine, key):6.0f} " + " ".join(f"{v:6.0f}" for v in others.values()) + f" {ratio}"
    split = f"{speed(mine, 'split'):6.0f}" if mine[0]["split"] else "     -"
    line += f" | split {split} copy {speed(mine, 'copy'):6.0f} | {size / mine[0]['tokens']:.2f} B/token"
    wrong = [n for n, r in runs.items() if r[0] is None or r[0]["ids"] != mine[0]["ids"]]
    for name in wrong:
        line += f" | {name}: " + ("does not run it" if runs[name][0] is None else "OTHER IDS")
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path, help="a directory of texts")
    parser.add_argument("--directory", type=pathlib.Path, help="where tokenizers are kept")
    parser.add_argument("--documents", type=int, default=10240, help="bytes of a document")
    parser.add_argument("--count", type=int, help="most documents of a text (default: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--only", action="append", help="a text")
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--as-peer", choices=["gigatoken", "tokenizers"], help=argparse.SUPPRESS)
    parser.add_argument("--tokenizer", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_peer:
        return peer(arguments)
    arguments.directory.mkdir(parents=True, exist_ok=True)
    peers = dict(p.split("=") for p in arguments.peer) or {"gigatoken": sys.executable, "tokenizers": sys.executable}
    texts = [p for p in sorted(arguments.text.glob("*.txt")) if not p.name.endswith(".train.txt")]
    print("MB per CPU second: Cairn, then " + ", ".join(peers) + "; the ratio is to the best peer with the same ids")
    for kind in arguments.kind or KINDS:
        tokenizer = make_tokenizer(kind, arguments.text, arguments.directory, sys.executable)
        for text in texts:
            if not arguments.only or text.stem in arguments.only:
                compare(arguments, peers, kind, tokenizer, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
