"""Merge and verify of .bin/.idx pairs against `cat`, interleaved, medians; resident size at many documents.

    benchmarks/corpus/merge_benchmark.py --documents 100000000 --tokens 8

Makes two pairs of together --documents documents of --tokens uint16 tokens each. The peers: `cat a.bin b.bin > c` and a
sync (merge), and `cat` of the .bin to nowhere (verify). Caches are dropped before every run (root only; said if not).
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import tempfile

import numpy
from shuffle_benchmark import REPOSITORY, drop_caches, measure


def write_pair(prefix, documents, tokens):
    with open(f"{prefix}.bin", "wb") as file:
        block = numpy.arange(1 << 20, dtype=numpy.uint16)
        left = documents * tokens
        while left > 0:
            block[: min(left, len(block))].tofile(file)
            left -= len(block)
    step = 1 << 20
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
        for first in range(0, documents, step):
            numpy.full(min(step, documents - first), tokens, dtype=numpy.int32).tofile(file)
        for first in range(0, documents, step):
            (numpy.arange(first, min(first + step, documents), dtype=numpy.int64) * tokens * 2).tofile(file)
        for first in range(0, documents + 1, step):
            numpy.arange(first, min(first + step, documents + 1), dtype=numpy.int64).tofile(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2_000_000)
    parser.add_argument("--tokens", type=int, default=256, help="of each document")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", default=".", help="on the disk to measure")
    arguments = parser.parse_args()
    cairn = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
    directory = pathlib.Path(tempfile.mkdtemp(prefix="merge-benchmark-", dir=arguments.directory))
    parts = directory / "parts"
    parts.mkdir()
    runs = {"merge": [], "cat": [], "verify": [], "read": []}
    try:
        for name in "ab":
            write_pair(parts / name, arguments.documents // 2, arguments.tokens)
        if not drop_caches():
            print("note: not root, caches stay warm")
        for _ in range(arguments.rounds):
            # cat gets the indices too: merge must read and write them as well.
            command = 'cat "$0"/a.bin "$0"/b.bin > "$1" && cat "$0"/a.idx "$0"/b.idx > "$2" && sync "$1" "$2"'
            seconds, _, _ = measure(
                ["sh", "-c", command, str(parts), str(directory / "cat.bin"), str(directory / "cat.idx")]
            )
            runs["cat"].append(seconds)
            seconds, _, peak = measure(
                [cairn, "corpus", "merge", "--input", parts, "--output-prefix", directory / "all"],
                stdout=subprocess.DEVNULL,
            )
            runs["merge"].append(seconds)
            resident = peak
            seconds, _, _ = measure(["sh", "-c", 'cat "$0".bin "$0".idx > /dev/null', str(directory / "all")])
            runs["read"].append(seconds)
            seconds, _, peak = measure([cairn, "corpus", "verify", directory / "all"], stdout=subprocess.DEVNULL)
            runs["verify"].append(seconds)
            resident = max(resident, peak)
            for name in ("all.bin", "all.idx", "cat.bin", "cat.idx"):
                (directory / name).unlink()
    finally:
        shutil.rmtree(directory)
    median = {name: statistics.median(values) for name, values in runs.items()}
    print(
        f"merge {median['merge']:.2f} s, cat {median['cat']:.2f} s: {median['cat'] / median['merge']:.2f} x cat's speed "  # noqa: E501
        "(target 0.9)"
    )
    print(
        f"verify {median['verify']:.2f} s, cat {median['read']:.2f} s: {median['read'] / median['verify']:.2f} x cat's speed "  # noqa: E501
        "(target 0.8)"
    )
    print(f"resident {resident / (1 << 20):.0f} MiB (target 64)")
    print(json.dumps({"documents": arguments.documents, "seconds": runs, "median": median, "resident": resident}))


if __name__ == "__main__":
    main()
