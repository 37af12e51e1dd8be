"""Trains, stops and resumes the real Trainer of lightning with CairnCheckpoint."""

import os
import signal
import threading

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")

import cairn
from cairn.lightning import CairnCheckpoint
from cairn.torch import CheckpointManager
from testing.ranks import until

pytestmark = pytest.mark.interop


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.dropout = torch.nn.Dropout(0.3)
        self.seen = {}

    def training_step(self, batch, index):
        loss = self.layer(self.dropout(batch)).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        return {"optimizer": optimizer,
                "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3), "interval": "step"}}

    def on_train_batch_end(self, outputs, batch, index):
        self.seen[self.trainer.global_step] = self.layer.weight.detach().clone()


class At(lightning.Callback):
    """Does something after a step."""

    def __init__(self, step, what):
        self.step, self.what = step, what

    def on_train_batch_end(self, trainer, module, *rest):
        if trainer.global_step == self.step:
            self.what(trainer)


def fit(callbacks, epochs=3, loader=None, **options):
    torch.manual_seed(0)
    module = Module()
    chance = torch.Generator().manual_seed(1)
    loader = loader or torch.utils.data.DataLoader(torch.randn(24, 3, generator=chance), batch_size=4)
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=epochs, callbacks=callbacks, logger=False,
                                enable_progress_bar=False, enable_model_summary=False,
                                enable_checkpointing=any(isinstance(each, CairnCheckpoint) for each in callbacks),
                                **options)
    trainer.fit(module, loader)
    return module, trainer


def stop(trainer):
    trainer.should_stop = True


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        yield client


def test_Checkpoint_TrainingIsInterrupted_GoesOnAsIfItWereNot(client, tmp_path):
    reference, _ = fit([])  # 6 steps an epoch, 18 in all
    first, _ = fit([At(12, stop), CairnCheckpoint(client, every_steps=6)])
    assert client.checkpoints() == [6, 12]
    torch.rand(5)
    second, trainer = fit([CairnCheckpoint(client, every_steps=6)])
    assert sorted(second.seen) == list(range(13, 19)) and trainer.current_epoch == 3
    for step, weight in {**first.seen, **second.seen}.items():
        assert torch.equal(weight, reference.seen[step]), step
    assert client.checkpoints() == [6, 12, 18]
    assert not list(tmp_path.rglob("*.ckpt"))


def test_Checkpoint_LoaderHasAState_GoesOnWithinTheEpoch(client):
    StatefulDataLoader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader():
        chance = torch.Generator().manual_seed(1)
        return StatefulDataLoader(torch.randn(24, 3, generator=chance), batch_size=4, shuffle=True,
                                  generator=torch.Generator().manual_seed(2))

    reference, _ = fit([], loader=loader())
    fit([At(10, stop), CairnCheckpoint(client, every_steps=4)], loader=loader(), epochs=2)
    assert 8 in client.checkpoints()
    second, _ = fit([CairnCheckpoint(client, every_steps=100)], loader=loader(), epochs=2)
    begun = min(second.seen)
    for step, weight in second.seen.items():
        assert torch.equal(weight, reference.seen[step]), (begun, step)


def test_Checkpoint_KeepLastAndAccumulation_AreRespected(client):
    _, trainer = fit([CairnCheckpoint(client, every_steps=1, keep_last=2)], accumulate_grad_batches=2)
    assert trainer.global_step == 9
    until(lambda: client.checkpoints() == [8, 9], text="pruning")


def test_Checkpoint_Sigterm_StopsAfterASave(client):
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)  # the program's own
    try:
        kill = At(3, lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
        _, trainer = fit([kill, CairnCheckpoint(client)], epochs=100_000)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert client.checkpoints() == [trainer.global_step] and trainer.global_step > 3


@pytest.fixture
def average():
    callbacks = pytest.importorskip("lightning.pytorch.callbacks")
    if not hasattr(callbacks, "EMAWeightAveraging"):
        pytest.skip("this version of lightning has no averages of weights")
    return lambda: callbacks.EMAWeightAveraging(decay=0.8)


def test_Checkpoint_ACallbackAveragesTheWeights_TheAverageGoesOn(client, average):
    reference, _ = fit([average()])
    fit([average(), At(12, stop), CairnCheckpoint(client, every_steps=6)])
    second, _ = fit([CairnCheckpoint(client, every_steps=6), average()])
    assert min(second.seen) == 13
    for step, weight in second.seen.items():
        assert torch.equal(weight, reference.seen[step]), step
    assert torch.equal(second.layer.weight, reference.layer.weight)  # the average, at the end


class Keeper(lightning.Callback):
    """Keeps a sum of what it saw, of which nothing is there before the first step, and notes when it is called."""

    def __init__(self):
        self.sum, self.notes, self.called = None, {}, []

    def on_fit_start(self, trainer, module):
        self.called.append("fit start")

    def on_train_batch_end(self, trainer, module, *rest):
        self.sum = module.layer.weight.detach().clone() + (0 if self.sum is None else self.sum)
        self.notes[trainer.global_step] = "seen"

    def state_dict(self):
        return {"steps": len(self.notes)}

    def load_state_dict(self, state):
        self.called.append(f"load state {state['steps']}")

    def on_save_checkpoint(self, trainer, module, checkpoint):
        checkpoint["keeper"] = {"sum": self.sum, "notes": [dict(self.notes), trainer.global_rank]}
        checkpoint["keeper_notes"] = dict(self.notes)

    def on_load_checkpoint(self, trainer, module, checkpoint):
        self.called.append(f"load hook {checkpoint['global_step']} {checkpoint['epoch']}")
        if "keeper" in checkpoint:
            self.sum, self.notes = checkpoint["keeper"]["sum"], checkpoint["keeper_notes"]
            assert checkpoint["keeper"]["notes"] == [self.notes, trainer.global_rank]


class HookedModule(Module):
    """A module that keeps something by its hooks, too."""

    extra = None

    def on_save_checkpoint(self, checkpoint):
        assert "keeper" in checkpoint, "the hooks of callbacks come first"
        checkpoint["extra"] = {"seen": torch.tensor(max(self.seen))}
        del checkpoint["state_dict"]["layer.bias"]

    def on_load_checkpoint(self, checkpoint):
        self.extra = checkpoint["extra"]["seen"].item()
        self.names = set(checkpoint["state_dict"])


class Data(lightning.LightningDataModule):
    position = 0

    def train_dataloader(self):
        chance = torch.Generator().manual_seed(1)
        return torch.utils.data.DataLoader(torch.randn(24, 3, generator=chance), batch_size=4)

    def state_dict(self):
        return {"position": self.trainer.global_step}

    def load_state_dict(self, state):
        self.position = state["position"]


def test_Checkpoint_HooksOfCallbackModuleAndData_GetWhatTheySaved(client):
    def run(*callbacks):
        torch.manual_seed(0)
        module, keeper, data = HookedModule(), Keeper(), Data()
        trainer = lightning.Trainer(accelerator="cpu", max_epochs=3, callbacks=[*callbacks, keeper], logger=False,
                                    enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(module, data)
        return module, keeper, data

    _, reference, _ = run(CairnCheckpoint(client))
    run(At(12, stop), CairnCheckpoint(client, every_steps=6))
    module, keeper, data = run(CairnCheckpoint(client, every_steps=6))
    assert keeper.called == ["load hook 12 1", "load state 12", "fit start"]
    assert torch.equal(keeper.sum, reference.sum) and keeper.notes == reference.notes
    assert module.extra == 11 and data.position == 12  # the module sees a step after the callbacks
    assert module.names == {"layer.weight"}  # of what the hook took away


def test_Checkpoint_OfAnEarlierVersion_HasNothingOfHooksAndIsLoaded(client, average, monkeypatch):
    class Earlier(CheckpointManager):
        def step(self, step, state, metrics=None):
            return super().step(step, lambda: {key: value for key, value in state().items() if key != "hooks"}, metrics)

    monkeypatch.setattr("cairn.lightning.CheckpointManager", Earlier)
    fit([At(12, stop), CairnCheckpoint(client, every_steps=6)])
    monkeypatch.undo()
    second, _ = fit([CairnCheckpoint(client, every_steps=6), average()])
    assert min(second.seen) == 13


def test_Checkpoint_AHookKeepsWhatCannotBeStored_IsToldAtTheFirstSave(client):
    class Bad(lightning.Callback):
        def on_save_checkpoint(self, trainer, module, checkpoint):
            checkpoint["bad"] = threading.Lock()

    with pytest.raises(cairn.Error) as caught:
        fit([Bad(), CairnCheckpoint(client, every_steps=6)])
    assert caught.value.reason == "BAD_REQUEST" and "bad" in caught.value.message
