"""Trains a tiny language model with accelerate; Cairn saves and resumes it.

    cairn run --root /tmp/checkpoints -- torchrun --nproc-per-node 2 examples/accelerate/train.py --steps 40

Start it again with more steps: it goes on where it ended.
"""

import argparse

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torchdata.stateful_dataloader import StatefulDataLoader

import cairn
import cairn.torch

TEXT = b"Cairns are piles of stones that mark a path. " * 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-steps", type=int, default=10)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    # A loader with a state goes on within the epoch; any other would begin it anew.
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    windows = [torch.tensor(list(TEXT[start:start + 32])) for start in range(0, len(TEXT) - 32, 3)]
    model = torch.nn.Sequential(torch.nn.Embedding(256, 32), torch.nn.Linear(32, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100)
    model, optimizer, scheduler, loader = accelerator.prepare(
        model, optimizer, scheduler, StatefulDataLoader(windows, batch_size=8, shuffle=True))

    # The wrapped model would give its names a "module." in front, and every rank has its own place in the data.
    state = {"model": accelerator.unwrap_model(model), "optimizer": optimizer, "scheduler": scheduler,
             "loader": cairn.per_rank(loader), "rng": cairn.torch.rng_state()}
    with (cairn.connect() as client,
          cairn.torch.CheckpointManager(client, every_steps=arguments.save_steps, keep_last=3) as manager):
        step = manager.restore_or_initialize(state) or 0
        while step < arguments.steps:
            for batch in loader:
                logits = model(batch[:, :-1])
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                step += 1
                accelerator.print(f"step {step} loss {loss.item():.4f}")
                manager.step(step, lambda: state | {"rng": cairn.torch.rng_state()})
                if step == arguments.steps:
                    break
        manager.wait()
        accelerator.print(f"trained to step {step}; the job has the steps {client.checkpoints()}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
