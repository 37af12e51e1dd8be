"""Tests what tools/cluster does without a cluster. tests/cluster tests the rest."""

import os
import pathlib
import subprocess

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/cluster"


def run(directory, *arguments):
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, "CAIRN_CLUSTER": str(directory)})


def test_directory_of_something_else_is_not_removed(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/precious").write_text("mine")
    done = run(tmp_path / "work", "stop")
    assert done.returncode == 1
    assert f"{tmp_path / 'work'} is not a cluster's" in done.stderr
    assert (tmp_path / "work/precious").read_text() == "mine"


@pytest.mark.parametrize("arguments", [("kubectl", "get", "nodes"), ("load", "localhost/cairn:dev"), ("run", "true")])
def test_without_a_cluster_it_says_how_one_is_started(tmp_path, arguments):
    done = run(tmp_path / "none", *arguments)
    assert done.returncode == 1
    assert f"no cluster runs in {tmp_path / 'none'} (tools/cluster start)" in done.stderr


def test_directory_that_the_cluster_would_not_see_is_refused():
    done = run("/var/lib/cairn-cluster", "start")
    assert done.returncode == 1
    assert "/var/lib/cairn-cluster is below /var/lib" in done.stderr


def test_stop_without_a_cluster_succeeds(tmp_path):
    assert run(tmp_path / "none", "stop").returncode == 0


@pytest.mark.parametrize("arguments", [(), ("frobnicate",), ("start", "now"), ("stop", "it"), ("load",), ("run",)])
def test_unknown_words_are_refused(tmp_path, arguments):
    done = run(tmp_path / "none", *arguments)
    assert done.returncode == 2
    assert "usage: tools/cluster build" in done.stdout + done.stderr
