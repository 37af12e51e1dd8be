"""Seconds of processor that a shuffle takes on an engine, against one process of the same memory for each task.

    CAIRN_PYTHON=PYTHON benchmarks/corpus/engine_benchmark.py --size 2GiB --directory DISK

PYTHON has Ray or pyspark. The engine runs on this machine alone. It needs root, for a control group that counts what all
processes of a run take, also the daemons of the engine. What a few kilobytes take with as many parts is the engine's own. Runs
take turns; medians. The outputs are compared.
"""

import argparse
import filecmp
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

from shuffle_benchmark import REPOSITORY, UNITS, write_text

CONTROL_GROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")  # of version 2, alone or beside version 1


def measure(command):
    """User and system seconds of a command and of all that it has started, which a control group counts."""
    for place in map(pathlib.Path, CONTROL_GROUPS):
        if (place / "cgroup.subtree_control").exists():
            break
    else:
        raise SystemExit("error: there are no control groups of version 2")
    group = pathlib.Path(tempfile.mkdtemp(prefix="engine-benchmark-", dir=place))
    try:
        subprocess.run(["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', group, *map(str, command)],
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
        while "populated 1" in (group / "cgroup.events").read_text():  # daemons end a little later
            time.sleep(0.1)
        used = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    finally:
        group.rmdir()
    return int(used["user_usec"]) / 1e6, int(used["system_usec"]) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="2GiB", help="of the file")
    parser.add_argument("--memory", default="512MiB", help="of the one process, and of each task")
    parser.add_argument("--engine", default="ray", choices=["ray", "spark"])
    parser.add_argument("--parts", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", default=".", help="on the disk to measure")
    arguments = parser.parse_args()
    cairn = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
    directory = pathlib.Path(tempfile.mkdtemp(prefix="engine-benchmark-", dir=arguments.directory))
    used = {"one process": [], "engine": [], "engine's own": []}
    try:
        write_text(directory / "in", int(float(arguments.size[:-3]) * UNITS[arguments.size[-3:]]))
        write_text(directory / "tiny", 64 << 10)
        engine = ["--engine", arguments.engine, "--parts", arguments.parts]
        for _ in range(arguments.rounds):
            for name, source, more in (("one process", "in", []), ("engine", "in", engine),
                                       ("engine's own", "tiny", engine)):
                output = directory / f"out of {name}"
                used[name].append(measure([cairn, "corpus", "shuffle", directory / source, "--output", output,
                                           "--memory", arguments.memory, *more]))
            if not filecmp.cmp(directory / "out of one process", directory / "out of engine", shallow=False):
                raise SystemExit("error: the outputs differ")
    finally:
        shutil.rmtree(directory)
    median = {name: statistics.median(user + system for user, system in values) for name, values in used.items()}
    for name, values in used.items():
        told = ", ".join(f"{user:.2f} + {system:.2f}" for user, system in values)
        print(f"{name:13} {median[name]:6.2f} s of processor (user + system: {told})")
    ratio = (median["engine"] - median["engine's own"]) / median["one process"]
    print(f"without the engine's own, {ratio:.2f} times one process")
    print(json.dumps({"seconds": used, "ratio": ratio}))


if __name__ == "__main__":
    main()
