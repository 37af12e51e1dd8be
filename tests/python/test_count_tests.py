"""tools/count_tests: nothing that failed, crashed or never ran is counted as passed."""

import json
import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/count_tests"
JUNIT = "<testsuites><testsuite>{}</testsuite></testsuites>"
GOOD, SKIPPED = "<testcase name='a'/>", "<testcase name='s'><skipped/></testcase>"
BAD, ERROR = "<testcase name='b'><failure/></testcase>", "<testcase name='e'><error/></testcase>"


def run(directory, targets, python, bazel_status=0, pytest_status=0):
    """targets: label -> (overall status, test cases or None)."""
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
