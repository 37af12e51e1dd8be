"""torchtitan's own trainer trains its debug model, saves and resumes by Cairn, in several layouts."""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchtitan")

import cairn
from testing.ports import reserve_port
from testing.ranks import command

pytestmark = pytest.mark.interop

FOLDER = pathlib.Path(__file__).parent
# A gradient that is clipped depends on the sum of all, whose last bit depends on the layout.
COMMON = ["--training.steps=8", "--checkpoint.interval=4", "--training.max_norm=1e9",
          "--parallelism.spmd_backend=partial_dtensor"]
PIPELINE = ["--parallelism.pipeline_parallel_degree=2"]
TENSOR = ["--parallelism.tensor_parallel_degree=2"]
# Trains on one sequence at a time and sums up the gradients, as the stages of a pipeline do.
ONE_BY_ONE = ["--training.local_batch_size=1", "--training.global_batch_size=4"]


class Run:
    """What the ranks of a run printed.

    Attributes:
      losses: step -> loss, by the ranks that know it, which all have the same.
      idle: seconds of each call that saved nothing.
    """

    def __init__(self, text):
        losses = {(int(step), float.fromhex(loss)) for step, loss in re.findall(r"^step (\d+) loss (\S+)$", text, re.M)}
        self.losses = {step: loss for step, loss in sorted(losses) if loss >= 0}  # all but the last stage say less
        self.idle = [float(seconds) for seconds in re.findall(r"^idle (\S+)$", text, re.M)]


def train(cluster, directory, *runs, expect=0):
    """Runs the ranks of a cluster, once for each list of arguments. Returns the Runs and what they logged."""
    with reserve_port() as holder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(holder.getsockname()[1]),
                       "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])}
        done = subprocess.run([sys.executable, FOLDER / "example_worker.py", FOLDER / "torchtitan_program.py",
                               json.dumps([agent.address for agent in cluster.agents]), json.dumps(list(runs))],
                              env=environment, cwd=directory, capture_output=True, text=True, timeout=600)
    assert done.returncode == expect, done.stdout + done.stderr
    return [Run(text) for text in done.stdout.split("-----")[:len(runs)]], done.stdout + done.stderr


def test_Manager_PipelineIsResumedWithoutOne_GoesOnFromTheSameState(tmp_path):
    with cairn.local.Cluster(ranks=4, root=tmp_path / "root") as cluster:
        (whole,), _ = train(cluster, tmp_path, [*COMMON, *PIPELINE])
    assert list(whole.losses) == list(range(1, 9)) and whole.losses[8] < whole.losses[1]
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        (resumed,), log = train(cluster, tmp_path, [*COMMON, *ONE_BY_ONE, "--checkpoint.load_step=4"])
        with cluster.connect(0) as client:
            assert client.checkpoints() == [4, 8]
    assert resumed.losses[5] == whole.losses[5]  # of the state as it was loaded
    # A layout without a pipeline adds the gradients in another order.
    assert resumed.losses == pytest.approx({step: whole.losses[step] for step in range(5, 9)}, rel=1e-6)
    assert "the data loaders begin anew" not in log
    assert len(whole.idle) > 12 and statistics.median(whole.idle) < 0.005


def test_Manager_TensorParallelism_ResumesInItAndWithoutIt(tmp_path):
    with cairn.local.Cluster(ranks=4, root=tmp_path / "root") as cluster:
        (whole, again), _ = train(cluster, tmp_path, [*COMMON, *TENSOR], [*COMMON, *TENSOR, "--checkpoint.load_step=4"])
    assert again.losses == {step: whole.losses[step] for step in range(5, 9)}
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        (resumed,), _ = train(cluster, tmp_path, [*COMMON, "--checkpoint.load_step=4"])
    assert list(resumed.losses) == [5, 6, 7, 8]
    assert resumed.losses == pytest.approx({step: whole.losses[step] for step in range(5, 9)}, rel=1e-3)


def test_Manager_AnotherDegreeOfDataParallelism_BeginsTheDataAnew(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        train(cluster, tmp_path, [*COMMON, "--training.steps=4"])
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        (resumed,), log = train(cluster, tmp_path, [*COMMON, "--training.steps=6"])
    assert list(resumed.losses) == [5, 6]
    assert "demo@4 was saved by 2 ranks of data parallelism, and 1 load it" in log


def test_Manager_OwnDirectories_AreTakenOverAndGivenBack(tmp_path):
    own = tmp_path / "outputs/checkpoint"
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        (whole,), _ = train(cluster, tmp_path, ["--own", *COMMON])
        os.rename(own, tmp_path / "old")
        (taken,), _ = train(cluster, tmp_path, [*COMMON, f"--checkpoint.initial_load_path={tmp_path}/old/step-4",
                                                "--checkpoint.no-initial_load_model_only"])
        assert taken.losses == {step: whole.losses[step] for step in range(5, 9)}
        own.mkdir()
        command("export", "demo@8", "--root", tmp_path / "root", "--to", own / "step-8", "--as", "dcp")
        (back, further), _ = train(cluster, tmp_path, ["--own", *COMMON, "--training.steps=10"],
                                   [*COMMON, "--training.steps=10"])
    assert list(back.losses) == [9, 10] and back.losses == further.losses


def test_Manager_ModelsOfOthers_AreTakenAsByTorchtitansOwn(tmp_path):
    """The models are written by torchtitan: as its own directory, and for Hugging Face."""
    model = ["--checkpoint.last_save_model_only", "--training.steps=2"]
    own = tmp_path / "outputs/checkpoint"
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        train(cluster, tmp_path, ["--own", *COMMON, *model])
        os.rename(own, tmp_path / "dcp")
        train(cluster, tmp_path, ["--own", *COMMON, *model, "--checkpoint.last_save_in_hf"])
        os.rename(own, tmp_path / "hf")
        for source in ([f"--checkpoint.initial_load_path={tmp_path}/dcp/step-2"],
                       [f"--checkpoint.initial_load_path={tmp_path}/hf/step-2", "--checkpoint.initial_load_in_hf"]):
            steps = ["--training.steps=3", "--checkpoint.load_only"]
            (expected, taken), _ = train(cluster, tmp_path, ["--own", *COMMON, *source, *steps],
                                         [*COMMON, *source, *steps])
            assert list(taken.losses) == [1, 2, 3] and taken.losses == expected.losses
        with cluster.connect(0) as client:
            assert client.checkpoints() == [], "load_only saves nothing"


def test_Manager_PartsAreExcluded_BeginAnew(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        (first,), _ = train(cluster, tmp_path, [*COMMON, "--training.steps=4"])
        (resumed,), _ = train(cluster, tmp_path, [
            *COMMON, "--checkpoint.exclude_from_loading=dataloader,train_state,lr_scheduler", "--checkpoint.load_only",
            "--training.steps=2"])
        assert list(resumed.losses) == [1, 2], "the step was not loaded"
        assert resumed.losses[1] < first.losses[1], "the model was loaded"
        _, log = train(cluster, tmp_path, [*COMMON, "--checkpoint.exclude_from_loading=nothing"], expect=1)
        assert "BAD_REQUEST" in log and "nothing" in log


def test_Manager_LastStepIsTheModelAlone_SavesItInTheDtypeAsked(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        train(cluster, tmp_path, [*COMMON, "--training.steps=2", "--checkpoint.last_save_model_only",
                                  "--checkpoint.export_dtype=bfloat16"])
    shown = command("show", "demo@2", "--root", tmp_path / "root", "--tensors").stdout
    assert "norm.weight" in shown and "bfloat16" in shown and "optimizer" not in shown and "float32" not in shown


def test_Manager_LastStepForHuggingFace_IsRefused(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        _, log = train(cluster, tmp_path, [*COMMON, "--checkpoint.last_save_model_only",
                                              "--checkpoint.last_save_in_hf"], expect=1)
    assert "UNSUPPORTED" in log and "cairn export" in log
