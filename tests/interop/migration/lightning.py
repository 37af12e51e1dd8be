"""A Trainer of Lightning that saves by ModelCheckpoint, as it is before it goes over to Cairn (docs/migration.md)."""

import argparse

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def training_step(self, batch, index):
        loss = self.net(batch).square().mean()
        print(f"step {self.trainer.global_step + 1} loss {loss.item()!r}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--resume", help="the file")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    batches = torch.randn(12, 8, generator=torch.Generator().manual_seed(1))  # 3 steps an epoch
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=arguments.steps, logger=False, enable_progress_bar=False, callbacks=[
            ModelCheckpoint("checkpoints", every_n_train_steps=3, save_top_k=-1, filename="{step}"),
        ])
    trainer.fit(Module(), torch.utils.data.DataLoader(batches, batch_size=4), ckpt_path=arguments.resume)


if __name__ == "__main__":
    main()
