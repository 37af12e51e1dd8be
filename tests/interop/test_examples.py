"""Runs the examples with the real libraries: each trains, is started again, and goes on."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import cairn

pytestmark = pytest.mark.interop

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name, library", [("huggingface", "transformers"), ("lightning", "lightning")])
def test_Example_StartedTwice_GoesOnWhereItEnded(tmp_path, name, library):
    pytest.importorskip(library)

    def run(steps):
        environment = {**os.environ, "CAIRN_AGENT": cluster.agents[0].address, "OMP_NUM_THREADS": "1",
                       "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])}
        done = subprocess.run([sys.executable, str(EXAMPLES / name / "train.py"), f"--steps={steps}", "--save-steps=4"],
                              env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "failed" not in done.stderr  # a run from the beginning would save steps that are committed
        return done.stdout

    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        assert "trained to step 8" in run(8)
        output = run(12)
        assert "trained to step 12" in output
        with cluster.connect(0) as client:
            assert 12 in client.checkpoints()
            assert client.load({}, step=12, strict=False).objects
