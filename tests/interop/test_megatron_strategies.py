"""Megatron-core's own dist_checkpointing saves and loads by Cairn once its strategies are registered."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("megatron.core")

import cairn
from testing.ports import reserve_port
from testing.ranks import command

pytestmark = pytest.mark.interop

FOLDER = pathlib.Path(__file__).parent


def run(root, ranks, *runs, expect=0):
    """Runs the ranks of a job, once for each list of arguments, and returns what they print."""
    with reserve_port() as holder, cairn.local.Cluster(ranks=ranks, root=root / "root") as cluster:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(holder.getsockname()[1]),
                       "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])}
        done = subprocess.run([sys.executable, FOLDER / "example_worker.py", FOLDER / "megatron_program.py",
                               json.dumps([agent.address for agent in cluster.agents]), json.dumps(list(runs))],
                              env=environment, cwd=root, capture_output=True, text=True, timeout=120)
        assert done.returncode == expect, done.stdout + done.stderr
        with cluster.connect(0) as client:
            return done.stdout, done.stderr, client.checkpoints()


def losses(text):
    return [float.fromhex(loss) for loss in re.findall(r"^loss (\S+)$", text, re.M)]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The losses of nine steps."""
    text, _, _ = run(tmp_path_factory.mktemp("whole"), 2, ["--tensor=2", "--steps=9"])
    return losses(text)


@pytest.mark.parametrize("how", ["sync", "async", "parallel"])
def test_Register_TorchDist_IsSavedAndLoadedByCairn(tmp_path, uninterrupted, how):
    layout = ["--tensor=2", f"--how={how}"]
    text, _, steps = run(tmp_path, 2, [*layout, "--steps=6"], [*layout, "--steps=9", "--load=6"])
    assert steps == [3, 6, 9] and losses(text) == uninterrupted
    directory = tmp_path / "checkpoints/iter_0000006"
    assert json.loads((directory / "metadata.json").read_text())["sharded_backend"] == "cairn"
    assert sorted(path.name for path in directory.iterdir()) == ["common.pt", "metadata.json"]


def test_Register_AnotherLayout_LoadsIt(tmp_path, uninterrupted):
    run(tmp_path, 2, ["--tensor=2", "--steps=6"])
    text, _, steps = run(tmp_path, 1, ["--tensor=1", "--steps=9", "--load=6"])
    assert steps == [3, 6, 9] and losses(text) == pytest.approx(uninterrupted[6:], rel=1e-5)


def test_Register_ADirectoryOfTorchDist_IsLoadedAsBefore(tmp_path, uninterrupted):
    run(tmp_path, 2, ["--tensor=2", "--steps=6", "--direct"])
    (tmp_path / "checkpoints").mkdir()
    command("export", "demo@6", "--root", str(tmp_path / "root"), "--to", str(tmp_path / "checkpoints/iter_0000006"),
            "--as", "megatron")
    shutil.rmtree(tmp_path / "root")
    text, _, steps = run(tmp_path, 2, ["--tensor=2", "--steps=9", "--load=6"])
    assert steps == [9] and losses(text) == uninterrupted[6:]


def test_Register_NamesAreCompared_TheMissingOnesAreTold(tmp_path):
    text, _, _ = run(tmp_path, 1, ["--steps=3"], ["--steps=3", "--load=3", "--other-name"])
    assert re.search(r"^unexpected \['other.weight'\] missing \['expand.bias'\]$", text, re.M), text


def test_Register_TheStepIsGone_SaysSo(tmp_path):
    run(tmp_path, 1, ["--steps=6"])
    _, error, _ = run(tmp_path, 1, ["--steps=6", "--load=3", "--delete"], expect=1)
    assert "NOT_COMMITTED" in error
