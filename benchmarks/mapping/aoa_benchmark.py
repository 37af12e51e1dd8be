"""The mapping engine beside Paddle's, on the same requests, in turns. Prints CPU seconds, their ratio, and growth.

    bazel build //benchmarks/mapping:engine_benchmark //cli:cairn
    python benchmarks/mapping/aoa_benchmark.py --paddle-python VENV/bin/python    # a Python with paddlepaddle 3.3.1

Without --paddle-python only our own figures are printed. Both engines get the same descriptions, built before the clock
starts; `whole` is a command from the request's JSON to the answer's.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import models

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

# Runs inside the peer's interpreter. Its whole time includes reading the request and writing the answer.
PEER = r"""
import json, sys, time
from paddle.distributed.flex_checkpoint.aoa.aoa_engine import AOAEngine
from paddle.distributed.flex_checkpoint.dcp.sharded_weight import ShardedWeightDesc

def desc(d):
    return ShardedWeightDesc(d["key"], tuple(d["local_shape"]), tuple(d["global_shape"]), tuple(d["global_offset"]), d["dtype"])

def side(values):
    shards = {}
    for d in values:
        d = desc(d)
        shards.setdefault(d.key, []).append(d)
    return shards

def plain(d):
    return {"key": d.key, "local_shape": d.local_shape, "global_shape": d.global_shape, "global_offset": d.global_offset, "dtype": d.dtype}

begin = time.process_time()
request = json.load(open(sys.argv[1]))
source, destination = side(request["source"]), side(request["destination"])
queries = [desc(query) for query in request["queries"]]
start = time.process_time()
engine = AOAEngine(request["aoa_config"], source, destination)
answers = [engine.find_shard_sources(query) for query in queries]
stop = time.process_time()
json.dump([[{"target": plain(e.target_slice), "source": plain(e.source_slice), "postprocess": e.postprocess_list} for e in answer]
           for answer in answers], open(sys.argv[2], "w"))
print(json.dumps({"engine": stop - start, "whole": time.process_time() - begin, "entries": sum(map(len, answers))}))
"""  # noqa: E501

MEASURE = r"""
import json, resource, subprocess, sys
with open(sys.argv[1], "w") as out:
    subprocess.run(sys.argv[2:], check=True, stdout=out)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"cpu_s": usage.ru_utime + usage.ru_stime, "rss_mib": usage.ru_maxrss / 1024}))
"""


def ours(binaries, path, answer):
    engine = min(
        (json.loads(line) for line in subprocess.run([binaries / "engine_benchmark", path, "3"], check=True,
                                                     capture_output=True, text=True).stdout.splitlines()),
        key=lambda line: line["total_s"])
    # A process starts with the peak of the one that it is started from: not this one.
    measured = subprocess.run([sys.executable, "-c", MEASURE, answer, binaries / "cairn", "aoa", "resolve", path],
                              check=True, capture_output=True, text=True)
    usage = json.loads(measured.stdout)
    return {"engine": engine["total_s"], "whole": usage["cpu_s"], "entries": engine["entries"],
            "statements": engine["statements"], "rss_mib": usage["rss_mib"]}


def same(answer, peer):
    """Both must answer alike, or the comparison means nothing."""
    mine = [got["entries"] for got in json.loads(pathlib.Path(answer).read_text())["answers"]]
    assert mine == json.loads(pathlib.Path(peer).read_text()), "the engines disagree"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paddle-python", help="a Python that has paddlepaddle")
    parser.add_argument("--models", nargs="*", default=models.MODELS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binaries", type=pathlib.Path, help="directory with cairn and engine_benchmark")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        binaries = arguments.binaries
        if binaries is None:
            binaries = directory / "bin"
            binaries.mkdir()
            for target in ("benchmarks/mapping/engine_benchmark", "cli/cairn"):
                (binaries / pathlib.Path(target).name).symlink_to(REPOSITORY / "bazel-bin" / target)
        for model in arguments.models:
            path, answer, peer_answer = directory / "request.json", directory / "answer.json", directory / "peer.json"
            path.write_text(json.dumps(models.build(model), separators=(",", ":")))
            mine, theirs = [], []
            for _ in range(arguments.rounds):
                mine.append(ours(binaries, path, answer))
                if arguments.paddle_python:
                    done = subprocess.run([arguments.paddle_python, "-c", PEER, path, peer_answer], check=True,
                                          capture_output=True, text=True)
                    theirs.append(json.loads(done.stdout.splitlines()[-1]))
                    same(answer, peer_answer)

            def middle(runs, key):
                return statistics.median(run[key] for run in runs)

            line = {
                "model": model,
                "request_mib": round(path.stat().st_size / 2**20, 1),
                "statements": mine[0]["statements"],
                "entries": mine[0]["entries"],
                "engine_s": round(middle(mine, "engine"), 4),
                "whole_s": round(middle(mine, "whole"), 3),
                "peak_rss_mib": round(max(run["rss_mib"] for run in mine)),
            }
            if theirs:
                line |= {
                    "paddle_engine_s": round(middle(theirs, "engine"), 3),
                    "paddle_whole_s": round(middle(theirs, "whole"), 3),
                }
                line |= {"engine_ratio": round(line["paddle_engine_s"] / line["engine_s"], 1),
                         "whole_ratio": round(line["paddle_whole_s"] / line["whole_s"], 1)}
            print(json.dumps(line), flush=True)
        for scale in (0.25, 0.5, 1):
            path = directory / "request.json"
            path.write_text(json.dumps(models.build("kimi-k2", scale), separators=(",", ":")))
            run = ours(binaries, path, directory / "answer.json")
            print(
                json.dumps(
                    {
                        "growth": "kimi-k2",
                        "scale": scale,
                        "statements": run["statements"],
                        "microseconds_per_statement": round(run["engine"] / run["statements"] * 1e6, 3),
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
