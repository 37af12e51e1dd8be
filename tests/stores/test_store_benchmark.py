"""The benchmark of object stores runs, and every figure has its peer."""

import json
import os
import pathlib
import subprocess
import sys

import cairn

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/stores/store_benchmark.py"


def test_a_small_run_measures_cairn_and_a_limit():
    result = subprocess.run(
        [sys.executable, PROGRAM, "--server=moto", "--size=8MB", "--tensors=2", "--ranks=2", "--rounds=1", "--steps=3",
         "--files=4", "--tuning=0", "--sides=cairn,boto3", "--json"], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])})
    assert result.returncode == 0, result.stderr[-4000:]
    answer = json.loads(result.stdout)
    assert answer["absent"] == {} and set(answer["settings"]["boto3"]) == {"save", "load"}
    assert answer["tried"] == {"boto3": "1 of 6"}, "--tuning is over after the first"
    (round_,) = answer["rounds"]
    assert {side: list(phases) for side, phases in round_["sides"].items()} == {
        "cairn": ["save", "load", "reshard"], "boto3": ["save", "load"]}
    for side, phases in round_["sides"].items():
        for phase, operation in phases.items():
            place = (side, phase, operation)
            assert operation["seconds"] > 0 and operation["cpu_ranks"] >= 0 and operation["cpu_store"] >= 0, place
            assert operation["requests"].get("PUT" if phase == "save" else "GET", 0) >= 4, place
    save = round_["sides"]["cairn"]["save"]
    assert 0 < save["blocked"] <= save["seconds"] and save["commit"] > 0 and save["commit requests"] >= 1, save
    for phase in ("load", "reshard"):
        # Headers of files are read too.
        assert 1 <= round_["sides"]["cairn"][phase]["read / unique"] < 1.1
    # The peer makes one request for each verdict, and at least one for the names.
    assert round_["listing"]["peer_requests"] >= 4 and round_["listing"]["asked_requests"] >= 1, round_["listing"]
    assert round_["removal"]["peer_requests"] == 1 and round_["removal"]["requests"] >= 1, round_["removal"]
    assert 0 < round_["removal"]["returned"] <= round_["removal"]["gone"]
    assert set(round_["small"]) == {"put", "list"}
