"""Runs the examples with the real libraries: each trains, is started again, and goes on."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import cairn
from testing.ports import reserve_port

pytestmark = pytest.mark.interop

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
WORKER = pathlib.Path(__file__).with_name("example_worker.py")


def run_program(arguments, directory, **environment) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1]),
                   **environment}
    done = subprocess.run([sys.executable, *map(str, arguments)], env=environment, cwd=directory, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stderr  # a run from the beginning would save steps that are committed
    return done.stdout


@pytest.mark.parametrize("name, library", [("huggingface", "transformers"), ("lightning", "lightning")])
def test_Example_StartedTwice_GoesOnWhereItEnded(tmp_path, name, library):
    pytest.importorskip(library)

    def run(steps):
        return run_program([EXAMPLES / name / "train.py", f"--steps={steps}", "--save-steps=4"], tmp_path,
                           CAIRN_AGENT=cluster.agents[0].address)

    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        assert "trained to step 8" in run(8)
        output = run(12)
        assert "trained to step 12" in output
        with cluster.connect(0) as client:
            assert 12 in client.checkpoints()
            assert client.load({}, step=12, strict=False).objects


@pytest.mark.parametrize("name, library, ranks, first, second", [
    ("accelerate", "accelerate", 2, [], []),
    ("deepspeed", "deepspeed", 2, ["--stage=2"], ["--stage=3"]),
    ("megatron", "megatron.core", 2, ["--tensor=2"], ["--tensor=1"]),
    ("parallel", "torch", 4, ["--pipeline=2", "--tensor=2"], ["--pipeline=1", "--tensor=2"]),
])
def test_Example_OfSeveralRanks_GoesOnAsIfItHadNotEnded(tmp_path, name, library, ranks, first, second):
    pytest.importorskip(library)
    # Both runs train to step 12. The first one saves step 8, from which the second one goes on in another layout.
    arguments = [[*layout, "--steps=12", "--save-steps=8"] for layout in (first, second)]
    with reserve_port() as holder, cairn.local.Cluster(ranks=ranks, root=tmp_path / "root") as cluster:
        output = run_program([WORKER, EXAMPLES / name / "train.py",
                              json.dumps([agent.address for agent in cluster.agents]), json.dumps(arguments)],
                             tmp_path, MASTER_PORT=str(holder.getsockname()[1]))
    whole, resumed = ({int(step): float(loss) for step, loss in re.findall(r"^step (\d+) loss ([\d.]+)$", run, re.M)}
                      for run in output.split("-----")[:2])
    assert list(whole) == list(range(1, 13)) and list(resumed) == [9, 10, 11, 12], output
    assert [resumed[step] for step in resumed] == pytest.approx([whole[step] for step in resumed], rel=1e-3)
    assert whole[12] < whole[9] < whole[1]
    assert output.count("trained to step 12; the job has the steps [8]") == 2
