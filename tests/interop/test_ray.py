"""Ray Train knows the steps that Cairn saves: a worker fails, and Ray begins again with the step that it was told."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ray.train")

import ray.train

import cairn
import cairn.ray

pytestmark = pytest.mark.interop

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "examples/ray/train.py"


def run(cluster, directory, *arguments):
    """Runs the example in a process of its own, because Ray leaves threads behind."""
    places = directory / "agents"
    places.mkdir(exist_ok=True)
    for rank, agent in enumerate(cluster.agents):
        path = places / f"{rank}.sock"
        path.unlink(missing_ok=True)
        path.symlink_to(agent.address.removeprefix("unix:"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CAIRN_AGENT": f"unix:{places}/{{rank}}.sock",
                   "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1]), "RAY_TRAIN_V2_ENABLED": "1",
                   "RAY_DEDUP_LOGS": "0"}
    done = subprocess.run([sys.executable, PROGRAM, f"--storage={directory}/ray", *arguments], env=environment,
                          cwd=directory, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_Example_WorkerFails_RayGoesOnWithTheStepOfTheLastReport(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        output = run(cluster, tmp_path, "--steps=12", "--save-steps=4", f"--fail-at=10:{tmp_path}/failed")
        with cluster.connect(0) as client:
            assert client.checkpoints() == [4, 8, 12]
            assert "trained to step 12; Ray's latest checkpoint names step 12" in output
            # It may fail before Ray has taken note of step 8.
            assert (tmp_path / "failed").exists()
            assert set(re.findall(r"begins at step (\d+)", output)) in ({"1", "5"}, {"1", "9"})
            # A step may be there twice, if Ray has stored it and not taken note. What it stores is one small file.
            found = {json.loads(path.read_text())["step"]: path for path in (tmp_path / "ray").rglob("cairn.json")}
            assert sorted(found) == [4, 8, 12]
            assert [path.name for path in found[8].parent.iterdir()] == ["cairn.json"]
            checkpoint = ray.train.Checkpoint.from_directory(found[8].parent)
            assert cairn.ray.step_of(checkpoint, client) == 8


def test_StepOf_AnotherJobsOrNoneOfCairn_IsRefused(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        assert cairn.ray.step_of(None, client) is None
        for content, text in ((None, "does not name a step"), ("[]", "does not name a step"),
                              ('{"job": "demo", "step": true}', "does not name a step"),
                              ('{"job": "other", "step": 3}', "names other@3")):
            if content is not None:
                (tmp_path / "cairn.json").write_text(content)
            with pytest.raises(cairn.Error) as refused:
                cairn.ray.step_of(ray.train.Checkpoint.from_directory(tmp_path), client)
            assert refused.value.reason == "BAD_REQUEST" and text in str(refused.value)
