"""Trains a tiny language model with Lightning; Cairn saves and resumes it.

    cairn run --root /tmp/checkpoints -- python examples/lightning/train.py --steps 40

Start it again with more steps: it goes on where it ended.
"""

import argparse

import lightning.pytorch as pl
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import cairn
from cairn.lightning import CairnCheckpoint

TEXT = b"Cairns are piles of stones that mark a path. " * 40


class NextByte(pl.LightningModule):
    """Guesses a byte from the one before."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(256, 32)
        self.head = torch.nn.Linear(32, 256)

    def training_step(self, batch, index):
        logits = self.head(self.embedding(batch[:, :-1]))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-steps", type=int, default=10)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    windows = [torch.tensor(list(TEXT[start:start + 32])) for start in range(0, len(TEXT) - 32, 3)]
    # A loader with a state goes on within the epoch; any other would begin it anew.
    loader = StatefulDataLoader(windows, batch_size=8, shuffle=True)
    with cairn.connect() as client:
        checkpoints = CairnCheckpoint(client, every_steps=arguments.save_steps, keep_last=3)
        trainer = pl.Trainer(accelerator="cpu", max_steps=arguments.steps, callbacks=[checkpoints], logger=False,
                             enable_progress_bar=False)
        trainer.fit(NextByte(), loader)
        print(f"trained to step {trainer.global_step}; the job has the steps {client.checkpoints()}")


if __name__ == "__main__":
    main()
