"""Example cases: Paddle's own tests as data, and cases computed from the semantics."""

import json
import pathlib

import numpy as np
import pytest

from aoa_testing import desc, evaluate, request, resolve, tokens

CASES = json.loads(pathlib.Path(__file__).with_name("cases.json").read_text())
USER_CODES = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "OUT_OF_RANGE", "ALREADY_EXISTS", "UNIMPLEMENTED"}
STAGES = ["layer_id_offset", "id", "array", "star", "transpose", "fused_qkv_old", "fused_ffn", "fused_qkv"]


def sources_of(case):
    arrays = {}
    for key, fill in case["source_fill"].items():
        shape = next(d["global_shape"] for d in map(desc, case["source"]) if d["key"] == key)
        arrays[key] = (
            (np.arange(np.prod(shape)) if fill == "arange" else np.array(fill)).reshape(shape).astype(np.float32)
        )
    return arrays


def entries_of(expect):
    return [
        {"target": desc(e["target"]), "source": desc(e["source"]), "postprocess": e["postprocess"]} for e in expect
    ]


@pytest.mark.parametrize("case", CASES["engine_cases"], ids=lambda case: case["id"])
def test_engine(case):
    queries = case.get("queries", [])
    status, answer = resolve(
        request(case["aoa_config"], case["source"], case["destination"], [query["target"] for query in queries])
    )
    wanted = case.get("expect_error")
    if wanted and wanted["stage"] == "build":
        assert status == 1
        error = answer["error"]
        assert error["code"] in USER_CODES and error["message"]
        for text in wanted["message_has"]:
            assert text in error["message"]
        if wanted.get("statement"):
            assert error["statement"] == wanted["statement"]
        for text in wanted.get("chain_has", []):
            assert any(text in step for step in error["chain"])
        return
    assert status == 0, answer
    assert [stage["macro"] for stage in answer["stages"]] == STAGES
    if "expect_outputs" in case:
        assert answer["outputs"] == case["expect_outputs"]
    for query, got in zip(queries, answer["answers"], strict=True):
        assert got["target"] == desc(query["target"])
        if wanted:
            assert got["error"]["code"] in USER_CODES
            for text in wanted["message_has"]:
                assert text in got["error"]["message"]
            continue
        if "expect" in query:
            assert got["entries"] == entries_of(query["expect"])
        if "expect_values" in query:
            assert evaluate(got, sources_of(case)).ravel().tolist() == query["expect_values"]


@pytest.mark.parametrize("case", CASES["macro_cases"], ids=lambda case: case["id"])
def test_macro(case):
    run = case["run"]
    status, answer = resolve(request(run["aoa_config"], run["source"], run["destination"]))
    assert status == 0, answer
    got = next(stage["statements"] for stage in answer["stages"] if stage["macro"] == run["stage"])
    assert [tokens(text) for text in got] == [tokens(text) for text in run["expect"]]


@pytest.mark.parametrize(
    "case", [case for case in CASES["assign_cases"] if "run" in case], ids=lambda case: case["id"]
)
def test_steps_run(case):
    run = case["run"]
    status, answer = resolve(
        request(run["aoa_config"], run["source"], run["destination"], [q["target"] for q in run["queries"]])
    )
    assert status == 0, answer
    for query, got in zip(run["queries"], answer["answers"], strict=True):
        assert evaluate(got, sources_of(run)).ravel().tolist() == query["expect_values"]
