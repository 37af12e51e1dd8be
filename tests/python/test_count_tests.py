"""tools/count_tests: nothing that failed, crashed or never ran is counted as passed."""

import itertools
import json
import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/count_tests"
JUNIT = "<testsuites><testsuite>{}</testsuite></testsuites>"
GOOD, SKIPPED = "<testcase name='a'/>", "<testcase name='s'><skipped/></testcase>"
BAD, ERROR = "<testcase name='b'><failure/></testcase>", "<testcase name='e'><error/></testcase>"


def result(directory, label, cases, shard=1, attempt=1, run=1, log="the log"):
    """Returns a test's result in the form of Bazel's build events."""
    outputs = []
    for name, text in (("test.xml", JUNIT.format(cases)), ("test.log", log)):
        file = directory / f"{label.strip('/')}-{run}-{shard}-{attempt}-{name}"
        file.write_text(text)
        outputs.append({"name": name, "uri": file.as_uri()})
    number = {"run": run, "shard": shard, "attempt": attempt, "configuration": {"id": "c"}}
    return {"id": {"testResult": {"label": label, **number}}, "testResult": {"testActionOutput": outputs}}


def summary(label, status):
    return {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}}


def count(directory, events, python=GOOD, bazel_status=0, pytest_status=0, options=()):
    """Returns the last line, and what is said about failures."""
    (directory / "bazel.json").write_text("\n".join(map(json.dumps, events)))
    (directory / "bazel.status").write_text(str(bazel_status))
    (directory / "pytest.xml").write_text(JUNIT.format(python))
    (directory / "pytest.status").write_text(str(pytest_status))
    done = subprocess.run(
        [sys.executable, str(TOOL), str(directory), *map(str, options)], capture_output=True, text=True
    )
    return done.stdout.splitlines()[-1], done.stderr.splitlines()


def test_all_shards_count_in_whatever_order_they_end(tmp_path):
    shards = [result(tmp_path, "//a", GOOD * (number + 1), shard=number) for number in range(4)]
    for events in itertools.permutations(shards):
        assert count(tmp_path, [*events, summary("//a", "PASSED")])[0] == "11 passed, 0 failed"


def test_runs_count_each_and_attempts_by_their_last(tmp_path):
    events = [result(tmp_path, "//a", GOOD * 3, run=number) for number in (1, 2, 3)]
    assert count(tmp_path, [*events, summary("//a", "PASSED")])[0] == "10 passed, 0 failed"
    events = [result(tmp_path, "//a", cases, attempt=number) for number, cases in ((1, GOOD + BAD), (2, GOOD * 2))]
    for order in (events, events[::-1]):
        assert count(tmp_path, [*order, summary("//a", "PASSED")])[0] == "3 passed, 0 failed"


def test_failed_tests_are_named_with_their_round_and_output(tmp_path):
    events = [
        result(tmp_path, "//a", GOOD, shard=1, log="nothing"),
        result(tmp_path, "//a", BAD, shard=2, log="why it failed"),
        summary("//a", "FAILED"),
        result(tmp_path, "//b", GOOD, log="hangs"),
        summary("//b", "TIMEOUT"),
    ]
    python = "<testcase classname='tests.x' name='e'><error>its trace</error></testcase>"
    rounds = []
    for number in (1, 2):
        directory = tmp_path / f"round-{number}"
        directory.mkdir()
        line, told = count(directory, events, python, 3, 1, ["--round", number, "--keep", tmp_path / "kept"])
        assert line == "2 passed, 3 failed"
        for name, text in (("//a .b", "why it failed"), ("//b TIMEOUT", "hangs"), ("tests.x.e", "its trace")):
            named = [entry for entry in told if entry.startswith(f"failed: round {number}: {name}: see ")]
            assert len(named) == 1, told
            assert text in pathlib.Path(named[0].rpartition(": see ")[2]).read_text()
        rounds.append(directory)
    done = subprocess.run([sys.executable, str(TOOL), "--sum", *map(str, rounds)], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "4 passed, 6 failed" and done.returncode == 1
    assert sum(line.startswith("failed: round 2: ") for line in done.stdout.splitlines()) == 3
    done = subprocess.run(
        [sys.executable, str(TOOL), "--sum", *map(str, rounds), str(tmp_path)], capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "4 passed, 8 failed"  # a round that left nothing


def run(directory, targets, python, bazel_status=0, pytest_status=0):
    """Runs it on `targets`: label -> (overall status, test cases or None)."""
    events = []
    for number, (label, (status, cases)) in enumerate(targets.items()):
        outputs = []
        if cases is not None:
            file = directory / f"{number}.xml"
            file.write_text(JUNIT.format(cases))
            outputs = [{"name": "test.xml", "uri": file.as_uri()}]
        events.append({"id": {"testResult": {"label": label}}, "testResult": {"testActionOutput": outputs}})
        events.append({"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}})
    (directory / "bazel.json").write_text("\n".join(map(json.dumps, events)))
    (directory / "bazel.status").write_text(str(bazel_status))
    if python is not None:
        (directory / "pytest.xml").write_text(JUNIT.format(python))
    (directory / "pytest.status").write_text(str(pytest_status))
    done = subprocess.run([sys.executable, str(TOOL), str(directory)], capture_output=True, text=True)
    return done.stdout.splitlines()[-1], done.returncode


@pytest.mark.parametrize("targets, python, bazel, pytest_, line", [
    ({"//a": ("PASSED", GOOD * 3), "//b": ("PASSED", None)}, GOOD * 2 + SKIPPED, 0, 0, "6 passed, 0 failed"),
    ({"//a": ("FAILED", GOOD + BAD)}, GOOD, 3, 0, "2 passed, 1 failed"),
    ({"//a": ("TIMEOUT", None)}, GOOD, 3, 0, "1 passed, 1 failed"),
    ({"//a": ("FAILED", GOOD * 2)}, GOOD, 3, 0, "3 passed, 1 failed"),  # crashed behind its last good case
    ({}, GOOD, 1, 0, "1 passed, 1 failed"),  # did not build
    ({"//a": ("NO_STATUS", None)}, GOOD, 1, 0, "1 passed, 1 failed"),
    ({"//a": ("PASSED", GOOD)}, GOOD + BAD + ERROR, 0, 1, "2 passed, 2 failed"),
    ({"//a": ("PASSED", GOOD)}, None, 0, 99, "1 passed, 1 failed"),
    ({"//a": ("PASSED", GOOD)}, GOOD, 0, 2, "2 passed, 1 failed"),  # interrupted
])
def test_sums(tmp_path, targets, python, bazel, pytest_, line):
    answer, status = run(tmp_path, targets, python, bazel, pytest_)
    assert answer == line
    assert status == (0 if line.endswith(" 0 failed") else 1)


def test_nothing_ran(tmp_path):
    done = subprocess.run([sys.executable, str(TOOL), str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 passed, 2 failed" and done.returncode == 1


def test_what_lint_found_is_a_failure_with_its_output(tmp_path):
    events = [result(tmp_path, "//a", GOOD), summary("//a", "PASSED")]
    assert count(tmp_path, events)[0] == "2 passed, 0 failed"
    (tmp_path / "lint.log").write_text("a.cc:1: wrong")
    (tmp_path / "lint.status").write_text("0")
    assert count(tmp_path, events)[0] == "3 passed, 0 failed"
    for status in ("1", ""):
        (tmp_path / "lint.status").write_text(status)
        line, told = count(tmp_path, events, options=["--keep", tmp_path / "kept"])
        assert line == "2 passed, 1 failed" and any("tools/lint" in entry for entry in told), told
    assert any("a.cc:1: wrong" in file.read_text() for file in (tmp_path / "kept").iterdir())


def test_each_test_that_does_not_build_is_a_failure(tmp_path):
    def built(label, success, size="SMALL"):
        configured = {"testSize": size} if size else {}
        return [{"id": {"targetConfigured": {"label": label}}, "configured": configured},
                {"id": {"targetCompleted": {"label": label}}, "completed": {"success": True} if success else {}}]

    events = [*built("//a", True), result(tmp_path, "//a", GOOD), summary("//a", "PASSED"), *built("//b", False),
              *built("//c", False), *built("//a:library", False, size=None)]
    line, told = count(tmp_path, events, bazel_status=1)
    assert line == "2 passed, 2 failed"
    assert [entry for entry in told if "DID_NOT_BUILD" in entry] == told, told


def test_only_the_suites_that_are_named_are_expected(tmp_path):
    (tmp_path / "fuzz.xml").write_text(JUNIT.format(GOOD + GOOD))
    (tmp_path / "fuzz.status").write_text("0")

    def line_of(*suites):
        done = subprocess.run([sys.executable, str(TOOL), str(tmp_path), "--suites", *suites], capture_output=True,
                              text=True)
        return done.stdout.splitlines()[-1]

    assert line_of("Fuzz") == "2 passed, 0 failed"
    assert line_of("Fuzz", "Python") == "2 passed, 1 failed"
    assert line_of("C++", "Fuzz", "Python") == "2 passed, 2 failed"
    (tmp_path / "fuzz.status").write_text("1")
    assert line_of("Fuzz") == "2 passed, 1 failed"  # interrupted
