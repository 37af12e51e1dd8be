"""Out-of-core shuffle against terashuf and against the bound of two direct copies, interleaved, medians.

    benchmarks/corpus/shuffle_benchmark.py --size 2GiB --terashuf PATH

The file is eight times the memory budget. The bound is `dd` with O_DIRECT on both sides, twice: what any two-pass
shuffle reads and writes. terashuf (github.com/alexandres/terashuf, built with -O3) gets the same memory; its output is
synced inside the measured time, as ours is. Caches are dropped before every run (root only; said if not). Prints one
line a figure and a JSON object.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}


def write_text(path, size, mean=625):
    """JSON lines of seeded random lengths; the words repeat, the lines do not."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 11))) for _ in range(5000)]
    pool = " ".join(rng.choices(words, k=400_000))
    with open(path, "wb", buffering=1 << 22) as file:
        written, number = 0, 0
        while written < size:
            start = rng.randrange(len(pool) - 4 * mean)
            line = f'{{"id": {number}, "text": "{pool[start : start + int(rng.expovariate(1 / mean)) % (4 * mean)]}"}}\n'.encode()  # noqa: E501
            file.write(line)
            written += len(line)
            number += 1
        file.flush()
        os.fsync(file.fileno())


def drop_caches():
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    except OSError:
        return False


# In a small process of its own: a child begins with the peak resident size of the one that forked it.
LAUNCHER = """
import json, os, sys, time
report = int(sys.argv[1])
start = time.monotonic()
_, status, usage = os.wait4(os.spawnvp(os.P_NOWAIT, sys.argv[2], sys.argv[2:]), 0)
seconds = time.monotonic() - start
os.write(report, json.dumps([status, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024]).encode())
"""


def measure(command, **more):
    """Wall seconds, CPU seconds and largest resident size of a command that begins with cold caches."""
    drop_caches()
    read_end, write_end = os.pipe()
    subprocess.run(
        [sys.executable, "-S", "-c", LAUNCHER, str(write_end), *map(str, command)],
        pass_fds=[write_end],
        check=True,
        **more,
    )
    os.close(write_end)
    with open(read_end, "rb") as report:
        status, seconds, cpu, resident = json.load(report)
    if status:
        raise SystemExit(f"error: {command[0]} ended with status {status}")
    return seconds, cpu, resident


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="2GiB", help="of the file; the memory is an eighth of it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--terashuf", help="the built program; without it only the bound is compared")
    parser.add_argument("--directory", default=".", help="on the disk to measure")
    arguments = parser.parse_args()
    size = int(float(arguments.size[:-3]) * UNITS[arguments.size[-3:]])
    cairn = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
    directory = pathlib.Path(tempfile.mkdtemp(prefix="shuffle-benchmark-", dir=arguments.directory))
    runs = {"cairn": [], "bound": [], "terashuf": []}
    cpu = {name: [] for name in runs}
    resident = {}
    try:
        source = directory / "in.jsonl"
        write_text(source, size)
        memory = size // 8
        if not drop_caches():
            print("note: not root, caches stay warm")
        for _ in range(arguments.rounds):
            total = 0.0
            for _ in range(2):
                seconds, used, peak = measure(
                    [
                        "dd", f"if={source}", f"of={directory / 'copy'}", "bs=4M", "iflag=direct", "oflag=direct",
                        "conv=fsync", "status=none"]
                )
                total += seconds
                (directory / "copy").unlink()
            runs["bound"].append(total)
            cpu["bound"].append(2 * used)
            seconds, used, peak = measure(
                [
                    cairn, "corpus", "shuffle", source, "--output", directory / "out", "--memory", f"{memory}B",
                    "--threads", str(arguments.threads)],
                stdout=subprocess.DEVNULL,
            )
            runs["cairn"].append(seconds)
            cpu["cairn"].append(used)
            resident["cairn"] = peak
            if os.path.getsize(directory / "out") != os.path.getsize(source):
                raise SystemExit("error: the output has another size than the input")
            (directory / "out").unlink()
            if arguments.terashuf:
                environment = dict(os.environ, MEMORY=str(memory / 1e9), TMPDIR=str(directory))
                seconds, used, peak = measure(
                    [
                        "sh", "-c", '"$0" < "$1" > "$2" 2>/dev/null && sync "$2"', os.path.abspath(arguments.terashuf),
                        str(source), str(directory / "tera")],
                    env=environment,
                )
                runs["terashuf"].append(seconds)
                cpu["terashuf"].append(used)
                resident["terashuf"] = peak
                (directory / "tera").unlink()
    finally:
        shutil.rmtree(directory)
    median = {name: statistics.median(values) for name, values in runs.items() if values}
    result = {
        "size": size,
        "memory": memory,
        "seconds": runs,
        "median": median,
        "cpu_seconds": cpu,
        "resident": resident,
        "to_bound": median["cairn"] / median["bound"],
    }
    print(
        f"cairn {median['cairn']:.2f} s, two direct copies {median['bound']:.2f} s: "
        f"{result['to_bound']:.2f} x (target 1.15)"
    )
    if "terashuf" in median:
        result["to_terashuf"] = median["cairn"] / median["terashuf"]
        print(f"terashuf {median['terashuf']:.2f} s: {result['to_terashuf']:.2f} x (target 0.40)")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
