"""Tests which wheel tools/quickstart takes, and how it ends, with a build and an environment that are made for it."""

import os
import pathlib
import select
import shutil
import signal
import subprocess

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/quickstart"

# Each says that it has started, and then works in a process of its own. It fails once the test says so.
WORK = """#!/usr/bin/env bash
echo started >&"$ALIVE"
if [ "$FAILS" = "${0##*/}" ]; then read -r <failing; exit 7; fi
bash -c 'sleep 600 & wait'
"""


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tools").mkdir()
    shutil.copy(TOOL, tmp_path / "tools/quickstart")
    for name, text in {"install_packages": "#!/bin/sh\n", "build": WORK, "python_env": WORK}.items():
        (tmp_path / "tools" / name).write_text(text)
        (tmp_path / "tools" / name).chmod(0o755)
    os.mkfifo(tmp_path / "failing")
    return tmp_path


# Stands for a Python whose pip installs wheels that hold nothing but the commit which their program names.
PYTHON = """#!/usr/bin/env bash
if [ "$1" != -m ]; then echo "$1 with $PYTHONPATH"; exit; fi
mkdir -p dist/quickstart/bin
echo "echo 'cairn 1 (commit $(cat "${@: -1}"))'" >dist/quickstart/bin/cairn
chmod +x dist/quickstart/bin/cairn
"""


def commit(tree) -> str:
    """Makes a commit and returns its name as programs say it."""
    git = ["git", "-C", tree, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message=first"], check=True)
    return subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("newest_is_right", [True, False])
def test_newest_wheel_of_the_commit_is_taken(tree, newest_is_right):
    right, wheels = commit(tree), tree / "dist/wheel"
    wheels.mkdir(parents=True)
    (tree / "python").write_text(PYTHON)
    (tree / "python").chmod(0o755)
    (tree / "tools/python_env").write_text(f"#!/bin/sh\necho {tree}/python\n")
    for age, glibc in enumerate(("36", "28")):
        wheel = wheels / f"cairn_checkpoint-1-py3-none-manylinux_2_{glibc}_{os.uname().machine}.whl"
        wheel.write_text(right if newest_is_right or age == 1 else "another")
        os.utime(wheel, (2000 - age, 2000 - age))
    done = subprocess.run([tree / "tools/quickstart"], cwd=tree, capture_output=True, text=True, timeout=60,
                          check=False)
    taken = "36" if newest_is_right else "28"
    assert f"\nTaking dist/wheel/cairn_checkpoint-1-py3-none-manylinux_2_{taken}_" in "\n" + done.stderr, done.stderr
    assert ("Not taking" in done.stderr) != newest_is_right
    assert done.stdout == f"examples/gpt/quickstart.py with {tree}/dist/quickstart\n"


def start(tree, fails=""):
    """Returns a quickstart and a pipe that ends when no process of it is left."""
    alive, other = os.pipe()
    quickstart = subprocess.Popen([tree / "tools/quickstart"], cwd=tree, pass_fds=[other], start_new_session=True,
                                  env={**os.environ, "ALIVE": str(other), "FAILS": fails})
    os.close(other)
    return quickstart, alive


def read(alive):
    poll = select.poll()  # select.select takes no descriptors from 1024 on
    poll.register(alive, select.POLLIN)
    assert poll.poll(60_000), "a process that quickstart has started goes on"
    return os.read(alive, 1000)


def wait_for_starts(alive, count):
    said = b""
    while said.count(b"\n") < count:
        said += read(alive)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("wheel", [False, True])
def test_signal_ends_all_that_was_started(tree, number, wheel):
    if wheel:  # whose installation begins with an environment
        (tree / "dist/wheel").mkdir(parents=True)
        (tree / f"dist/wheel/cairn_checkpoint-1-py3-none-manylinux_2_28_{os.uname().machine}.whl").touch()
        commit(tree)
    quickstart, alive = start(tree)
    wait_for_starts(alive, 1 if wheel else 2)
    quickstart.send_signal(number)
    assert quickstart.wait(60) == 128 + number
    assert read(alive) == b""


@pytest.mark.parametrize("fails", ["build", "python_env"])
def test_failure_of_one_ends_the_other(tree, fails):
    quickstart, alive = start(tree, fails)
    wait_for_starts(alive, 2)
    (tree / "failing").write_text("now\n")
    assert quickstart.wait(60) == 7
    assert read(alive) == b""
