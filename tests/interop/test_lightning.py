"""Trains, stops and resumes the real Trainer of lightning with CairnCheckpoint."""

import os
import signal

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")

import cairn
from cairn.lightning import CairnCheckpoint
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
