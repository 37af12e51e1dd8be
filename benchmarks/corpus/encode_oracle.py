#!/usr/bin/env python3
"""Compares the ids of `cairn corpus bpe encode` with those of Hugging Face tokenizers, line by line, on much text.

    benchmarks/corpus/encode_oracle.py --bytes 1000000000
    benchmarks/corpus/encode_oracle.py --bytes 100000000 --kind llama --kind bert --seed 7

The tokenizers are those of tests/corpus/tokenizer_pipelines.py, and two that Cairn trains: GPT-2's kind and SuperBPE's.
Each gets an equal part of the bytes, and text of its own: many languages, code, emoji, control characters, characters
from everywhere, changed lines, and bytes that are not UTF-8. The text depends only on the seed. Each difference is
printed with what is needed to see it again, and the script ends with status 1.

Needs Python with tokenizers, and CAIRN_BIN_DIR (default: dist/bin).
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unicodedata

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests" / "corpus")]
os.environ.setdefault("RAYON_NUM_THREADS", "1")

from tokenizer_pipelines import EXPRESSIONS, PIPELINES, make
from tokenizers import Tokenizer

from bpe_testing import CAIRN, PIECES, any_text, multilingual, random_text, train

CHUNK = 1 << 20
OWN = ("cairn-gpt2", "cairn-superwords")
CONTROLS = [chr(c) for c in range(0x20) if c != 10] + [chr(c) for c in range(0x7F, 0xA0)]
EMOJI = [chr(c) for c in range(0x1F300, 0x1F650)] + ["\u200d", "\ufe0f", "🏽", "🏻", "🇩", "🇪", "❤", "☺", "⃣", "1"]
MARKS = ["▁", "<mask>", "<r>", "<W>", "Ünïcode Token", "two  blanks", "<unk>", "<0x41>", "``", "''", "</w>", "##"]
CODE = ["    ", "\t", "return ", "self.", "(", ")", "[i]", "{", "}", " = ", "+=", "0x1F", "//", "# ", "\"\"\"", "std::",
        "->", ";", "size_t ", "&&", "lambda x: ", "1_000", "%d\\n", "_", "!=", "CamelCase", "snake_case", "\r"]


def broken(rng, line):
    data = bytearray(line.encode())
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randrange(3)] = bytes(rng.choices(range(0x80, 0x100), k=rng.randrange(3)))
    return bytes(data).replace(b"\n", b"")


def lines_of(seed):
    """Returns about CHUNK bytes of lines."""
    rng = random.Random(seed)
    natural = multilingual(CHUNK // 2, rng.randrange(8)).split("\n")
    kinds = [
        lambda: rng.choice(natural),
        lambda: rng.choice(natural),
        lambda: rng.choice(natural) + rng.choice((" ", "", "\t", "  ")) + rng.choice(natural)[::-1],
        lambda: "".join(rng.choices(CODE, k=rng.randrange(30))) + rng.choice(natural)[:20],
        lambda: "".join(rng.choices(EMOJI, k=rng.randrange(1, 20))),
        lambda: "".join(rng.choices(CONTROLS + ["a", " ", "é", "中"], k=rng.randrange(1, 20))),
        lambda: random_text(rng, rng.randrange(60), PIECES + MARKS),
        lambda: any_text(rng, rng.randrange(1, 60)),
        lambda: rng.choice((" ", "a", "中", "=", "é", "e\u0301", "1", "▁", "\u0301")) * rng.randrange(1, 400),
    ]
    lines, size = [], 0
    while size < CHUNK:
        line = rng.choice(kinds)().replace("\n", " ")
        if rng.random() < 0.2:
            changed = list(line)
            for _ in range(rng.randrange(1, 4)):
                changed.insert(rng.randrange(len(changed) + 1), rng.choice(PIECES + MARKS))
            line = "".join(changed).replace("\n", " ")
        data = broken(rng, line) if rng.random() < 0.1 else line.encode()
        lines.append(data)
        size += len(data) + 1
    return lines


def encode(path, lines, directory):
    (directory / "lines").write_bytes(b"".join(line + b"\n" for line in lines))
    command = [CAIRN, "corpus", "bpe", "encode", "--tokenizer", path, directory / "lines", "--threads", "1"]
    result = subprocess.run([str(part) for part in command], capture_output=True)
    if result.returncode:
        sys.exit(f"failed: {command}: {result.stderr.decode(errors='replace')}")
    ids = result.stdout.split(b"\n")
    assert ids.pop() == b"" and len(ids) == len(lines)
    return ids


def is_text(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def tokenizer_of(kind, directory):
    if kind not in OWN:
        return make(kind, directory)
    (directory / "text").write_text(multilingual(300_000, 5))
    train(directory / "text", directory / "words", 3000, "--special-token", "<mask>")
    if kind == "cairn-gpt2":
        return directory / "words" / "tokenizer.json"
    train(directory / "text", directory / "superwords", 6000, "--by-line", "--superwords-from", directory / "words")
    return directory / "superwords" / "tokenizer.json"


def compare(kind, size, seed, log):
    """Returns (lines, bytes, tokens, differences)."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        path = tokenizer_of(kind, directory)
        peer = Tokenizer.from_file(str(path))
        # Byte-level BPE with one rule takes bytes that are no text as they are; the others read U+FFFD.
        replaces = encode(path, [b"a\xffb"], directory) == encode(path, ["a\ufffdb".encode()], directory)
        old_only = kind in EXPRESSIONS or kind == "cairn-superwords"  # PCRE2 may know an older Unicode version
        lines_done = bytes_done = tokens = differences = 0
        for chunk in range(max(1, size // CHUNK)):
            chunk_seed = f"{seed} {kind} {chunk}"
            lines = [line for line in lines_of(chunk_seed) if replaces or is_text(line)]
            texts = [line.decode(errors="replace") for line in lines]
            if old_only:
                kept = [all(unicodedata.category(c) != "Cn" for c in text) for text in texts]
                lines = [line for line, keep in zip(lines, kept) if keep]
                texts = [text for text, keep in zip(texts, kept) if keep]
            ours = encode(path, lines, directory)
            for begin in range(0, len(texts), 2000):
                part = peer.encode_batch_fast(texts[begin : begin + 2000], add_special_tokens=False)
                for i, encoding in enumerate(part, begin):
                    expected = b" ".join(b"%d" % one for one in encoding.ids)
                    tokens += len(encoding.ids)
                    if ours[i] != expected:
                        differences += 1
                        print(f"DIFFERENT: {kind}, chunk seed {chunk_seed!r}, line {i}: {lines[i]!r}\n"
                              f"  cairn {ours[i]!r}\n  peer  {expected!r}", file=log, flush=True)
            lines_done += len(lines)
            bytes_done += sum(map(len, lines))
        return lines_done, bytes_done, tokens, differences


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=100_000_000, help="of all kinds together")
    parser.add_argument("--kind", action="append", choices=[*PIPELINES, *OWN], help="may be given several times")
    parser.add_argument("--seed", default="1")
    arguments = parser.parse_args()
    kinds = arguments.kind or [*OWN, *PIPELINES]
    sums = [0, 0, 0, 0]
    for kind in kinds:
        begin = time.process_time()
        one = compare(kind, arguments.bytes // len(kinds), arguments.seed, sys.stdout)
        sums = [a + b for a, b in zip(sums, one)]
        print(f"{kind:24} {one[0]:9} lines {one[1]:11} bytes {one[2]:10} tokens {one[3]:5} different  "
              f"{time.process_time() - begin:.0f} s", flush=True)
    print(f"{'all':24} {sums[0]:9} lines {sums[1]:11} bytes {sums[2]:10} tokens {sums[3]:5} different")
    return 1 if sums[3] else 0


if __name__ == "__main__":
    sys.exit(main())
