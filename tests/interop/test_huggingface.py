"""Trains, stops and resumes the real Trainer of transformers with CairnCallback."""

import os
import signal

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import cairn
from cairn.huggingface import CairnCallback
from testing.ranks import until

pytestmark = pytest.mark.interop


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.dropout = torch.nn.Dropout(0.3)

    def forward(self, x, labels=None):
        y = self.layer(self.dropout(x)).squeeze(-1)
        return {"loss": (y - labels).square().mean(), "logits": y}


class Spy(transformers.TrainerCallback):
    """Notes the weights after each step; stops the training after one, or calls a function there."""

    def __init__(self, stop=None, at=None):
        self.weights, self.stop, self.at = {}, stop, at

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.weights[state.global_step] = model.layer.weight.detach().clone()
        if state.global_step == self.stop:
            control.should_training_stop = True
        if self.at is not None and state.global_step == self.at[0]:
            self.at[1]()


def data(count, seed):
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, generator=chance)
    return [{"x": row, "labels": row.sum()} for row in x]


def trainer(tmp_path, callbacks, **arguments):
    torch.manual_seed(0)
    arguments = {"save_strategy": "steps", "save_steps": 4, "learning_rate": 0.05, "num_train_epochs": 3} | arguments
    options = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=4, report_to=[], disable_tqdm=True, use_cpu=True,
        logging_strategy="no", seed=3, **arguments)
    return transformers.Trainer(Model(), options, train_dataset=data(24, 1), eval_dataset=data(8, 2),
                                callbacks=callbacks)


@pytest.fixture
def client(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        yield client


@pytest.mark.parametrize("every, last", [(4, 8), (6, 6)], ids=["within an epoch", "between epochs"])
def test_Callback_TrainingIsInterrupted_GoesOnAsIfItWereNot(client, tmp_path, every, last):
    reference = Spy()
    trainer(tmp_path, [reference], save_strategy="no").train()  # 6 steps an epoch, 18 in all
    first = Spy(stop=10)
    trainer(tmp_path, [first, CairnCallback(client)], save_steps=every).train()
    assert client.checkpoints() == list(range(every, last + 1, every))
    assert not list((tmp_path / "out").glob("checkpoint-*"))  # the Trainer wrote nothing itself
    second, callback = Spy(), CairnCallback(client)
    resumed = trainer(tmp_path, [second, callback], save_steps=every)
    torch.rand(5)  # the generator is elsewhere than where the first run began
    resumed.train(resume_from_checkpoint=callback.resume_directory(resumed))
    assert sorted(second.weights) == list(range(last + 1, 19))
    for step, weight in {**first.weights, **second.weights}.items():
        assert torch.equal(weight, reference.weights[step]), step
    assert resumed.state.global_step == 18
    assert client.checkpoints() == sorted({*range(every, 19, every), 18})


def test_Callback_NoDirectoryIsGiven_GoesOnFromTheLatestStep(client, tmp_path, caplog):
    trainer(tmp_path, [Spy(stop=5), CairnCallback(client)]).train()
    spy = Spy()
    trainer(tmp_path, [spy, CairnCallback(client)]).train()
    assert min(spy.weights) == 5 and max(spy.weights) == 18
    assert "begins its data anew" in caplog.text and "resume_directory" in caplog.text
    assert "every_steps" not in caplog.text, "the Trainer says when to save"


class Counter(transformers.TrainerCallback, transformers.trainer_callback.ExportableState):
    """Counts steps in a state of its own, as EarlyStoppingCallback counts evaluations."""

    def __init__(self, start=0):
        self.count = start

    def on_step_end(self, args, state, control, **kwargs):
        self.count += 1

    def state(self):
        return {"args": {"start": 0}, "attributes": {"count": self.count}}


def test_Callback_AnotherCallbackHasAState_TheTrainerRestoresIt(client, tmp_path):
    def run(counter, stop):
        callback = CairnCallback(client)
        trained = trainer(tmp_path, [counter, Spy(stop=stop), callback], restore_callback_states_from_checkpoint=True)
        trained.train(resume_from_checkpoint=callback.resume_directory(trained))
        return next(each.count for each in trained.callback_handler.callbacks if isinstance(each, Counter))

    assert run(Counter(start=100), stop=10) == 110
    assert run(Counter(), stop=12) == 108 + 4, "step 8 was saved"


def test_Callback_NoCheckpoint_TrainsFromTheBeginning(client, tmp_path):
    callback, spy = CairnCallback(client), Spy()
    made = trainer(tmp_path, [spy, callback], num_train_epochs=1)
    made.train(resume_from_checkpoint=callback.resume_directory(made))
    assert sorted(spy.weights) == list(range(1, 7)) and client.checkpoints() == [4, 6]


@pytest.mark.parametrize("strategy", ["steps", "best", "epoch"])
def test_Callback_LoadBestModelAtEnd_TheBestStepIsInTheModel(client, tmp_path, strategy):
    callback, spy = CairnCallback(client), Spy()
    steps = {"save_strategy": strategy, "eval_strategy": "epoch" if strategy == "epoch" else "steps",
             "save_steps": 2, "eval_steps": 2}
    made = trainer(tmp_path, [spy, callback], load_best_model_at_end=True, learning_rate=0.6, **steps)
    made.train()
    history = {entry["step"]: entry["eval_loss"] for entry in made.state.log_history if "eval_loss" in entry}
    best = min(history, key=history.get)
    assert best in client.checkpoints() and made.state.best_global_step == best
    assert torch.equal(made.model.layer.weight, spy.weights[best])
    assert not list((tmp_path / "out").glob("checkpoint-*"))
    if strategy == "best":
        assert client.checkpoints() == [step for step in sorted(history)
                                        if history[step] == min(v for s, v in history.items() if s <= step)]


def test_Callback_LoadBestModelAtEnd_ARuleOfItsOwnBoundsWhatIsKept(client, tmp_path, caplog):
    spy = Spy()
    steps = {"save_strategy": "steps", "eval_strategy": "steps", "save_steps": 2, "eval_steps": 2,
             "save_total_limit": 1}
    made = trainer(tmp_path, [spy, CairnCallback(client, keep_last=1, keep_best="eval_loss:min")],
                   load_best_model_at_end=True, learning_rate=0.6, **steps)
    made.train()
    best = made.state.best_global_step
    assert torch.equal(made.model.layer.weight, spy.weights[best])
    until(lambda: set(client.checkpoints()) == {best, 18}, text="pruning")
    assert "save_total_limit is not applied" not in caplog.text
    trainer(tmp_path, [CairnCallback(client)], load_best_model_at_end=True, **steps).train()
    assert "save_total_limit is not applied" in caplog.text and "keep_best='eval_loss:min'" in caplog.text


def test_Callback_SaveTotalLimit_BecomesTheJobsRule(client, tmp_path):
    trainer(tmp_path, [CairnCallback(client)], save_total_limit=2).train()
    until(lambda: client.checkpoints() == [16, 18], text="pruning")


def test_Callback_Sigterm_StopsAfterASave(client, tmp_path):
    spy = Spy(at=(3, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)  # the program's own
    try:
        made = trainer(tmp_path, [spy, CairnCallback(client)], save_strategy="no", num_train_epochs=100_000)
        made.train()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert client.checkpoints() == [made.state.global_step] and made.state.global_step > 3
