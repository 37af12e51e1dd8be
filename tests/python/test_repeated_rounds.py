"""tools/test: each kind of run counts its suites. Rounds are added up, and a test that fails in one is named with
it."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"

# This stands in for Bazel: three C++ tests pass, but one fails in the rounds that FAIL_IN names. It notes its
# arguments.
BAZEL = """#!{python}
import json, os, pathlib, sys
rounds = pathlib.Path("rounds")
number = len(rounds.read_text().splitlines()) + 1 if rounds.exists() else 1
with rounds.open("a") as file:
    print(*sys.argv[1:], file=file)
bad = str(number) in os.environ.get("FAIL_IN", "").split()
case = "<testcase classname='S' name='c'>" + ("<failure/>" if bad else "") + "</testcase>"
xml, log = pathlib.Path("test.xml").absolute(), pathlib.Path("test.log").absolute()
xml.write_text("<testsuites><testsuite>" + "<testcase name='g'/>" * 2 + case + "</testsuite></testsuites>")
log.write_text(f"what round {{number}} said")
outputs = [{{"name": file.name, "uri": file.as_uri()}} for file in (xml, log)]
events = [{{"id": {{"testResult": {{"label": "//a:b", "run": 1}}}}, "testResult": {{"testActionOutput": outputs}}}},
          {{"id": {{"testSummary": {{"label": "//a:b"}}}}, "testSummary": {{"overallStatus": "FAILED" if bad else "PASSED"}}}}]
place = next(word.split("=", 1)[1] for word in sys.argv if word.startswith("--build_event_json_file="))
pathlib.Path(place).write_text("\\n".join(map(json.dumps, events)))
sys.exit(3 if bad else 0)
"""  # noqa: E501
# This stands in for pytest: two tests pass. It notes how many children of tools/test keep a core busy.
PYTEST = """#!{python}
import os, pathlib, sys
place = next(word.split("=", 1)[1] for word in sys.argv if word.startswith("--junitxml="))
pathlib.Path(place).write_text("<testsuites><testsuite>" + "<testcase name='p'/>" * 2 + "</testsuite></testsuites>")
def parent(pid):
    try:
        return int(pathlib.Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
siblings = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid() and parent(pid) == os.getppid()]
with open("siblings", "a") as file:
    print(len(siblings), file=file)
with open("arguments", "a") as file:
    print(*sys.argv[1:], file=file)
"""  # noqa: E501


# This stands in for tools/fuzz: one target of two fails.
FUZZ = """#!/bin/sh
[ "$1" = --results ] || exit 2
echo "<testsuite><testcase name='f'/><testcase name='g'><failure/></testcase></testsuite>" >"$2"
exit 1
"""


def script(path: pathlib.Path, text: str) -> None:
    path.write_text(text.format(python=sys.executable))
    path.chmod(0o755)


@pytest.fixture
def house(tmp_path):
    tools, bin_ = tmp_path / "house/tools", tmp_path / "bin"
    tools.mkdir(parents=True)
    bin_.mkdir()
    for name in ("test", "count_tests"):
        shutil.copy(TOOLS / name, tools / name)
    for name in ("install_packages", "build"):
        script(tools / name, "#!/bin/sh\n")
    script(tools / "python_env", f"#!/bin/sh\necho {bin_}/python\n")
    script(tools / "lint", "#!/bin/sh\necho what is wrong\necho \"$@\" > lint_arguments\nexit ${{LINT_ENDS:-0}}\n")
    script(tools / "fuzz", FUZZ)
    script(bin_ / "bazel", BAZEL)
    script(bin_ / "python", PYTEST)
    return tmp_path / "house"


def run(house, *arguments, fail_in=""):
    environment = {**os.environ, "PATH": f"{house.parent / 'bin'}:{os.environ['PATH']}", "FAIL_IN": fail_in,
                   "TMPDIR": str(house.parent)}
    done = subprocess.run([str(house / "tools/test"), *arguments], capture_output=True, text=True, env=environment,
                          timeout=120)
    return done, done.stdout.splitlines()


def test_one_round_as_ever(house):
    done, lines = run(house, "--base", "HEAD~1")
    assert (lines[-1], done.returncode) == ("6 passed, 0 failed", 0), done
    assert (house / "lint_arguments").read_text() == "--base HEAD~1\n"
    assert "--nocache_test_results" not in (house / "rounds").read_text()
    done, lines = run(house, "--no-lint", fail_in="2")
    assert (lines[-1], done.returncode) == ("4 passed, 1 failed", 1), done


def test_lint_that_found_something_is_a_failure(house, monkeypatch):
    monkeypatch.setenv("LINT_ENDS", "1")
    done, lines = run(house)
    assert (lines[-1], done.returncode) == ("5 passed, 1 failed", 1), done
    assert "what is wrong" in done.stderr


def test_rounds_add_up_and_every_second_one_is_busy(house):
    done, lines = run(house, "--repeat", "4", "--busy", "-k", "some", fail_in="3")
    assert (lines[-1], done.returncode) == ("19 passed, 1 failed", 1), done
    named = [line for line in lines if line.startswith("failed: ")]
    assert len(named) == 1 and named[0].startswith("failed: round 3: //a:b S.c: see "), lines
    assert "what round 3 said" in pathlib.Path(named[0].rpartition(": see ")[2]).read_text()
    assert [int(count) for count in (house / "siblings").read_text().split()] == [0, len(os.sched_getaffinity(0))] * 2
    rounds = (house / "rounds").read_text().splitlines()
    assert len(rounds) == 4 and all("--nocache_test_results" in round_ for round_ in rounds)
    assert all("-k some tests" in line for line in (house / "arguments").read_text().splitlines())


def test_sanitizers_run_the_cpp_tests_alone(house):
    for sanitizer in ("asan", "tsan"):
        done, lines = run(house, f"--{sanitizer}")
        assert (lines[-1], done.returncode) == ("3 passed, 0 failed", 0), done
        done, lines = run(house, f"--{sanitizer}", "--repeat", "2", "//a:b")
        assert (lines[-1], done.returncode) == ("6 passed, 0 failed", 0), done
    rounds = (house / "rounds").read_text().splitlines()
    assert ["--config=asan" in round_ for round_ in rounds] == [True] * 3 + [False] * 3
    assert ["--config=tsan" in round_ for round_ in rounds] == [False] * 3 + [True] * 3
    assert [round_.split()[-1] for round_ in rounds] == ["//...", "//a:b", "//a:b"] * 2
    assert not (house / "arguments").exists() and not (house / "lint_arguments").exists()
    done, lines = run(house, "--asan", fail_in="7")
    assert (lines[-1], done.returncode) == ("2 passed, 1 failed", 1), done


def test_interop_runs_only_the_tests_that_are_marked(house):
    done, lines = run(house, "--interop", "-k", "some")
    assert (lines[-1], done.returncode) == ("2 passed, 0 failed", 0), done
    assert "-m interop -k some tests" in (house / "arguments").read_text()
    assert not (house / "rounds").exists() and not (house / "lint_arguments").exists()


def test_exhaustive_draws_more_cases_and_fuzzes(house):
    done, lines = run(house, "--exhaustive")
    assert (lines[-1], done.returncode) == ("6 passed, 1 failed", 1), done
    assert "--test_env=CAIRN_SIMULATION_SEEDS=1000" in (house / "rounds").read_text()


@pytest.mark.parametrize("arguments", [["--repeat"], ["--repeat", "0"], ["--repeat=many"], ["--asan", "--tsan"],
                                       ["--exhaustive", "--interop"]])
def test_bad_arguments_are_told(house, arguments):
    done, _ = run(house, *arguments)
    assert done.returncode == 2 and "usage: tools/test" in done.stderr
    assert not (house / "rounds").exists()
