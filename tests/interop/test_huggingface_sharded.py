"""Hugging Face's Trainer, and loops of accelerate, with FSDP2 and with DeepSpeed's ZeRO are saved and resumed."""

import functools
import shutil
import statistics

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from testing import trainer_runs
from testing.dcp import assert_equal
from testing.ranks import command, command_json, until

pytestmark = pytest.mark.interop

train = functools.partial(trainer_runs.train, program="huggingface_program.py")


@pytest.fixture(params=["fsdp", "zero1", "zero2", "zero3"])
def sharding(request):
    if request.param != "fsdp":
        pytest.importorskip("deepspeed")
    return f"--sharding={request.param}"


def weights(root, step):
    """Returns the weights of a checkpoint, as another library would read them."""
    safetensors = pytest.importorskip("safetensors.torch")
    out = root.parent / f"{root.name}-{step}"
    command("export", f"demo@{step}", "--root", str(root), "--to", str(out), "--include", "model.*", "--as",
            "huggingface")
    return {name: value for path in sorted(out.glob("*.safetensors"))
            for name, value in safetensors.load_file(path).items()}


def test_Callback_ShardedTrainer_GoesOnAsIfItWereNotInterrupted(tmp_path, sharding):
    whole, part, other = (tmp_path / name for name in ("whole", "part", "other"))
    (reference,) = train(whole, 2, [sharding])
    train(part, 2, [sharding, "--steps=8"])
    shutil.copytree(part, other)
    (resumed,) = train(part, 2, [sharding])
    assert list(reference.steps) == list(range(1, 13))
    assert resumed.steps == {step: reference.steps[step] for step in range(9, 13)}
    assert statistics.median(resumed.idle) < 0.005
    # One rank that sums up the gradients of what two ranks had does the same.
    train(other, 1, [sharding, "--accumulate=2"])
    expected = weights(whole, 12)
    assert_equal(weights(part, 12), expected)
    assert_equal(weights(other, 12), expected)
    assert not torch.equal(weights(whole, 8)["model.transformer.wte.weight"], expected["model.transformer.wte.weight"])


def test_Callback_ShardedTrainer_KeepsAndLoadsTheBest(tmp_path, sharding):
    root = tmp_path / "root"
    (run,) = train(root, 2, [sharding, "--best"])
    assert len(run.best) == 2 and run.best[0] == run.best[1], run.text
    step, metric, now = run.best[0]
    assert step != "12" and now == metric, "the model is that of another step when the training ends"
    train(root, 2, [sharding, "--steps=20", "--limit=2"])
    until(lambda: [each["step"] for each in command_json("list", "demo", "--root", str(root))["checkpoints"]] ==
          [16, 20], text="pruning")


def test_Manager_ShardedLoopOfAccelerate_GoesOnAsIfItWereNotInterrupted(tmp_path, sharding):
    program = "accelerate_program.py"
    (whole,) = train(tmp_path / "whole", 2, [sharding], program=program)
    root = tmp_path / "part"
    _, resumed = train(root, 2, [sharding, "--steps=4"], [sharding], program=program)
    assert list(whole.steps) == list(range(1, 9))
    assert resumed.steps == {step: whole.steps[step] for step in range(5, 9)}
    (alone,) = train(root, 1, [sharding, "--steps=10"], program=program)
    (further,) = train(tmp_path / "whole", 2, [sharding, "--steps=10"], program=program)
    assert [float(alone.steps[step][0]) for step in (9, 10)] == pytest.approx(
        [float(further.steps[step][0]) for step in (9, 10)], rel=1e-5)
