#!/usr/bin/env python3
"""BPE training and encoding against Hugging Face tokenizers, rustbpe and ffbpe, interleaved, medians of ratios.

    benchmarks/corpus/bpe.py train --bytes 300000000 --vocab-size 32768 --rounds 3
    benchmarks/corpus/bpe.py encode --bytes 100000000 --rounds 3

Needs Python with tokenizers, rustbpe and ffbpe (pip), and CAIRN_BIN_DIR (default: dist/bin). Each measurement is a
process of its own; what is reported of it: wall seconds (that Python's import does not count in), CPU seconds of all
threads, and the largest resident size. On a machine that does other work at the same time only the CPU seconds mean
something. With --input FILE real text is used instead of the generated one.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", HERE.parents[1] / "dist" / "bin")) / "cairn"

HF_TRAIN = """
import sys, time
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
t = Tokenizer(models.BPE()); t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
trainer = trainers.BpeTrainer(vocab_size=int(sys.argv[2]), show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
begin = time.monotonic()
t.train([sys.argv[1]], trainer)
print(time.monotonic() - begin)
t.save(sys.argv[3])
"""
RUSTBPE_TRAIN = """
import sys, time, rustbpe
pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
t = rustbpe.Tokenizer()
begin = time.monotonic()
t.train_from_iterator(open(sys.argv[1], newline="\\n"), int(sys.argv[2]), pattern=pattern)
print(time.monotonic() - begin)
# It writes no merges. A token is that of the two parts into which the tokens before it cut it.
ranks = {bytes(token): rank for token, rank in t.get_mergeable_ranks()}
with open(sys.argv[3], "w") as out:
    for token, own in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [token[i : i + 1] for i in range(len(token))]
        rank = lambda i: ranks.get(parts[i] + parts[i + 1], 1 << 40)
        while len(parts) > 2:
            best = min(range(len(parts) - 1), key=rank)
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        if len(parts) == 2:
            print(parts[0].hex(), parts[1].hex(), file=out)
"""
FFBPE_TRAIN = """
import sys, time, ffbpe
pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
begin = time.monotonic()
counter = ffbpe.PreTokenizer([], pat_str=pattern).word_counter()
counter.add_source(open(sys.argv[1], newline="\\n"))
trainer = ffbpe.BpeTrainer([], initial_alphabet="byte_level", tie_break="smallest_pair_id")
trainer.add_word_counter(counter)
trainer.train(int(sys.argv[2]))
print(time.monotonic() - begin)
trainer.validate_model().save_merges_txt(sys.argv[3])
"""
HF_ENCODE = """
import sys, time
from tokenizers import Tokenizer
t = Tokenizer.from_file(sys.argv[1])
lines = open(sys.argv[2], newline="\\n").read().split("\\n")
begin = time.monotonic()
count = 0
for i in range(0, len(lines), 10000):
    count += sum(len(e.ids) for e in t.encode_batch_fast(lines[i : i + 10000], add_special_tokens=False))
print(time.monotonic() - begin)
print(count, file=sys.stderr)
"""


def measure(command, threads, prints_seconds):
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true")
    begin = time.monotonic()
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, env=environment, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - begin
    if status:
        sys.exit(f"failed: {command}")
    if prints_seconds:
        wall = float(output.split()[0])
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "rss_mib": usage.ru_maxrss / 1024}


def rounds(competitors, count, threads):
    results = {name: [] for name in competitors}
    for number in range(count):
        for name, (command, prints_seconds) in competitors.items():
            result = measure(command, threads, prints_seconds)
            results[name].append(result)
            print(f"round {number + 1}: {name:8} wall {result['wall']:8.2f} s  cpu {result['cpu']:8.2f} s  "
                  f"rss {result['rss_mib']:7.0f} MiB", flush=True)
    ours = results.pop("cairn")
    for name, theirs in results.items():
        for key, unit in (("wall", "x as fast"), ("cpu", "x less CPU"), ("rss_mib", "x less memory")):
            ratio = statistics.median(b[key] / a[key] for a, b in zip(ours, theirs))
            print(f"cairn against {name}: {ratio:.1f} {unit}")


def corpus(arguments, directory):
    if arguments.input:
        return pathlib.Path(arguments.input)
    path = pathlib.Path(directory) / "corpus.txt"
    with open(path, "wb") as out:
        command = [
            sys.executable,
            HERE / "multilingual_text.py",
            "--bytes",
            str(arguments.bytes),
            "--seed",
            str(arguments.seed),
        ]
        subprocess.run(command, stdout=out, check=True)
    return path


def train(arguments, directory):
    text = corpus(arguments, directory)
    ours, theirs = directory / "ours", directory / "hf.json"
    rust, ff = directory / "rustbpe.txt", directory / "ffbpe.txt"
    command = [CAIRN, "corpus", "bpe", "train", text, "--vocab-size", arguments.vocab_size, "--output", ours]
    command += ["--threads", arguments.threads, "--tie-break", "huggingface", "--by-line"]
    python = [sys.executable, "-c"]
    competitors = {
        "cairn": (command, False),
        "hf": ([*python, HF_TRAIN, text, arguments.vocab_size, theirs], True),
        "rustbpe": ([*python, RUSTBPE_TRAIN, text, arguments.vocab_size, rust], True),
        "ffbpe": ([*python, FFBPE_TRAIN, text, arguments.vocab_size, ff], True),
    }
    competitors = {name: one for name, one in competitors.items() if name == "cairn" or name in arguments.peers}
    rounds(competitors, arguments.rounds, arguments.threads)
    mine = json.loads((ours / "tokenizer.json").read_text())["model"]
    same = True
    if "hf" in competitors:
        peer = json.loads(theirs.read_text())["model"]
        same = mine["merges"] == peer["merges"] and mine["vocab"] == peer["vocab"]
        print("merges and ids equal Hugging Face's:", "yes" if same else "NO")
    if "ffbpe" in competitors:
        lines = [line.split(" ") for line in ff.read_text().split("\n")]  # "left right => count"
        report("ffbpe", mine["merges"], [line[:2] for line in lines if len(line) == 4])
    if "rustbpe" in competitors:
        lines = [line.split() for line in rust.read_text().splitlines()]
        report("rustbpe", mine["merges"], [[printable(left), printable(right)] for left, right in lines])
    return same


def printable(token):
    """Writes the bytes of a token, given in hexadecimal digits, in the byte-level alphabet."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return "".join(chr(b) if b in shown else chr(256 + hidden.index(b)) for b in bytes.fromhex(token))


def report(name, ours, theirs):
    """Prints whether a peer makes the same merges, and how many are in common: of equally frequent pairs it may take
    another one."""
    differ = (i for i, (a, b) in enumerate(zip(ours, theirs)) if list(a) != list(b))
    first = next(differ, min(len(ours), len(theirs)))
    common = len({tuple(a) for a in ours} & {tuple(b) for b in theirs})
    if first == len(ours) == len(theirs):
        print(f"merges equal {name}'s: yes")
    else:
        print(f"merges equal {name}'s: the first {first}; of {len(ours)}, {common} are among its {len(theirs)}")


def encode(arguments, directory):
    text = corpus(arguments, directory)
    tokenizer = pathlib.Path(arguments.tokenizer) if arguments.tokenizer else directory / "tokenizer"
    if not arguments.tokenizer:
        command = [CAIRN, "corpus", "bpe", "train", text, "--vocab-size", "50257", "--output", tokenizer]
        subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL)
    file = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    command = [CAIRN, "corpus", "bpe", "encode", "--tokenizer", file, text, "--threads", arguments.threads]
    competitors = {
        "cairn": ([*command, "--output", directory / "ids"], False),
        "hf": ([sys.executable, "-c", HF_ENCODE, file, text], True),
    }
    rounds(competitors, arguments.rounds, arguments.threads)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "encode"])
    parser.add_argument("--bytes", type=int, default=50_000_000)
    parser.add_argument("--input", help="real text instead")
    parser.add_argument("--vocab-size", type=int, default=32768)
    parser.add_argument("--tokenizer", help="encode: a published tokenizer.json instead of one trained on the text")
    parser.add_argument("--peers", nargs="*", default=["hf", "rustbpe", "ffbpe"], help="train: against which")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run = {"train": train, "encode": encode}[arguments.what]
        return 0 if run(arguments, pathlib.Path(directory)) else 1


if __name__ == "__main__":
    sys.exit(main())
