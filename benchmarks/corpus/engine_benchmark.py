"""Seconds of processor that the tasks of a shuffle on an engine take, against one process.

    benchmarks/corpus/engine_benchmark.py --size 2GiB --directory DISK

It runs what `cairn corpus shuffle --engine` gives to the engine as tasks, one after the other, without the engine.
What Ray or Spark take themselves comes on top; docs/corpus_engines.md has figures. The outputs are compared. Runs take
turns; medians. On a virtual machine whose host takes free memory back, system time depends on who had it before.
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

from shuffle_benchmark import REPOSITORY, UNITS, write_text


class Program:
    """Runs commands, and sums the seconds that they take."""

    def __init__(self, path):
        self.path, self.user, self.system = path, 0.0, 0.0

    def shuffle(self, *arguments):
        child = subprocess.Popen([self.path, "--format=json", "corpus", "shuffle", *map(str, arguments)],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        said = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if status:
            raise SystemExit(f"error: {arguments} ended with status {child.returncode}")
        self.user += used.ru_utime
        self.system += used.ru_stime
        return json.loads(said)


def run_tasks(program, source, directory, parts, memory):
    """As cli/corpus/shuffle_on_engine.cc for an output that is one plain file."""
    task = ("--memory", memory, "--threads", 1)
    reports = [program.shuffle(source, *task, "--buckets", parts, "--part", f"{part}/{parts}", "--output",
                               directory / f"part-{part}") for part in range(1, parts + 1)]
    (directory / "tasks").touch()
    at = 0
    for bucket in range(parts):
        files = [report["files"][bucket] for report in reports]
        program.shuffle(*files, *task, "--bucket", f"{bucket + 1}/{parts}", "--at", at, "--output", directory / "tasks")
        at += sum(lines + size for lines, size, *_ in (report["bucket_lines"][bucket] for report in reports))
    for file in directory.glob("part-*"):
        file.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="2GiB", help="of the file")
    parser.add_argument("--memory", default="512MiB", help="of the one process, and of each task")
    parser.add_argument("--parts", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", default=".", help="on the disk to measure")
    arguments = parser.parse_args()
    cairn = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
    directory = pathlib.Path(tempfile.mkdtemp(prefix="engine-benchmark-", dir=arguments.directory))
    runs = {"one process": [], "tasks": []}
    try:
        write_text(directory / "in", int(float(arguments.size[:-3]) * UNITS[arguments.size[-3:]]))
        for _ in range(arguments.rounds):
            for name in runs:
                program = Program(cairn)
                if name == "tasks":
                    run_tasks(program, directory / "in", directory, arguments.parts, arguments.memory)
                else:
                    program.shuffle(directory / "in", "--memory", arguments.memory, "--output", directory / name)
                runs[name].append((program.user, program.system))
            if not filecmp.cmp(directory / "one process", directory / "tasks", shallow=False):
                raise SystemExit("error: the outputs differ")
            (directory / "one process").unlink()
            (directory / "tasks").unlink()
    finally:
        shutil.rmtree(directory)
    median = {name: statistics.median(map(sum, values)) for name, values in runs.items()}
    for name, values in runs.items():
        told = ", ".join(f"{user:.2f} + {system:.2f}" for user, system in values)
        print(f"{name:11} {median[name]:5.2f} s of processor (user + system: {told})")
    print(json.dumps({"runs": runs, "ratio": median["tasks"] / median["one process"]}))


if __name__ == "__main__":
    main()
