"""A loop of accelerate that saves by save_state, as it is before it goes over to Cairn (docs/migration.md)."""

import argparse

import torch
from accelerate import Accelerator


def load(accelerator, step):
    if step:
        accelerator.load_state(f"checkpoints/{step}")
    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--resume", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    start = load(accelerator, arguments.resume)
    for step in range(start + 1, arguments.steps + 1):
        loss = model(torch.randn(4, 8, generator=torch.Generator().manual_seed(step))).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item()!r}", flush=True)
        if step % 3 == 0:
            accelerator.save_state(f"checkpoints/{step}")


if __name__ == "__main__":
    main()
