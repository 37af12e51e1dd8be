"""Tests the tables of edits that tools/mutate makes: each can be made, and names a test that there is."""

import importlib.machinery
import importlib.util
import pathlib
import re
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def load_tool():
    path = str(REPOSITORY / "tools/mutate")
    loader = importlib.machinery.SourceFileLoader("mutate", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
    sys.modules["mutate"] = module  # dataclasses look there
    loader.exec_module(module)
    return module


mutate = load_tool()
EDITS = mutate.read_tables()


def test_each_edit_can_be_made():
    problems = [problem for edit in EDITS if (problem := mutate.problem_of(edit, REPOSITORY))]
    assert not problems, problems
    assert len(EDITS) >= 105


@pytest.mark.parametrize("text, expected", [("b", "stands 2 times"), ("x", "stands 0 times"), ("a", ""), ("", "times")])
def test_an_edit_whose_text_is_not_there_once_is_named(tmp_path, text, expected):
    (tmp_path / "file").write_text("abb")
    problem = mutate.problem_of(mutate.Edit("name", "file", text, "c", "why", "test"), tmp_path)
    assert expected in problem and (problem == "") == (expected == "")


def test_each_edit_names_a_test_that_there_is():
    lanes = set(re.findall(r'"([a-z0-9-]+)": \(', (REPOSITORY / "tests/fault/sweep/lanes.py").read_text()))
    for edit in EDITS:
        if edit.test.startswith("sweep "):
            _, lane, points = edit.test.split()
            assert lane in lanes and points.isdigit(), edit.name
            continue
        if edit.test.startswith("pytest "):
            file, _, function = edit.test.removeprefix("pytest ").partition("::")
            assert f"def {function}(" in (REPOSITORY / file).read_text() if function else (REPOSITORY / file).is_file()
            continue
        package, name = edit.test.removeprefix("//").split(":")
        assert f'name = "{name}"' in (REPOSITORY / package / "BUILD").read_text(), edit.name
        assert edit.why and edit.name == edit.name.lower(), edit.name
