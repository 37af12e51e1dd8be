"""Tests how tools/quickstart ends, with a build and an environment that are made for it."""

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


def start(tree, fails=""):
    """Returns a quickstart and a pipe that ends when no process of it is left."""
    alive, other = os.pipe()
    quickstart = subprocess.Popen([tree / "tools/quickstart"], cwd=tree, pass_fds=[other], start_new_session=True,
                                  env={**os.environ, "ALIVE": str(other), "FAILS": fails})
    os.close(other)
    return quickstart, alive


def read(alive):
    assert select.select([alive], [], [], 60)[0], "a process that quickstart has started goes on"
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
        git = ["git", "-C", tree, "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run([*git, "init", "--quiet"], check=True)
        subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message=first"], check=True)
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
