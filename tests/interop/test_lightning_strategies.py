"""Lightning's Trainer with DDP, FSDP, FSDP2 and tensor parallelism is saved, and resumed in any of these layouts."""

import functools

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightning.pytorch")

from testing import trainer_runs

pytestmark = pytest.mark.interop

train = functools.partial(trainer_runs.train, program="lightning_program.py")
STRATEGIES = ["ddp", "fsdp", "fsdp2", "tensor"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Returns what training to step 12 prints that nothing interrupts, by strategy."""
    @functools.cache
    def run(strategy):
        (done,) = train(tmp_path_factory.mktemp("whole") / "root", 2, [f"--sharding={strategy}"])
        assert list(done.steps) == list(range(1, 13))
        return done.steps
    return run


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_Checkpoint_StrategyOfLightning_GoesOnAsIfItWereNotInterrupted(tmp_path, whole, strategy):
    arguments = [f"--sharding={strategy}"]
    first, resumed = train(tmp_path / "root", 2, [*arguments, "--steps=8"], arguments)
    assert first.steps == {step: whole(strategy)[step] for step in range(1, 9)}
    assert resumed.steps == {step: whole(strategy)[step] for step in range(9, 13)}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("before, after", [(2, 1), (1, 2)], ids=["2_to_1", "1_to_2"])
def test_Checkpoint_OfAnotherNumberOfRanks_GoesOnBitForBit(tmp_path, whole, strategy, before, after):
    train(tmp_path / "root", before, [f"--sharding={strategy}", "--steps=8"])
    (resumed,) = train(tmp_path / "root", after, [f"--sharding={strategy}"])
    expected = {step: whole(strategy)[step] for step in range(9, 13)}
    if strategy != "tensor":
        assert resumed.steps == expected
        return
    # Ranks that split a matrix multiply parts of it, which may round otherwise than the whole.
    assert list(resumed.steps) == list(expected)
    for step, values in expected.items():
        assert [float(value) for value in resumed.steps[step]] == pytest.approx(list(map(float, values)), rel=1e-5)


@pytest.mark.parametrize("before, after", [("ddp", "fsdp"), ("fsdp", "ddp"), ("fsdp", "fsdp2"), ("fsdp2", "fsdp")])
def test_Checkpoint_OfAnotherStrategy_GoesOnBitForBit(tmp_path, whole, before, after):
    train(tmp_path / "root", 2, [f"--sharding={before}", "--steps=8"])
    (resumed,) = train(tmp_path / "root", 2, [f"--sharding={after}"])
    assert resumed.steps == {step: whole("ddp")[step] for step in range(9, 13)}
