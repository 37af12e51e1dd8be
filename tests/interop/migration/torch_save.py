"""A training that saves by torch.save, as it is before it goes over to Cairn (docs/migration.md)."""

import argparse
import os

import torch


def load(state, path):
    found = torch.load(path)
    for name, part in state.items():
        part.load_state_dict(found[name])
    return found["step"]


def save(state, path, step):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save({name: part.state_dict() for name, part in state.items()} | {"step": step}, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--resume", help="the file")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = {"model": model, "optimizer": optimizer}
    start = load(state, arguments.resume) if arguments.resume else 0
    for step in range(start + 1, arguments.steps + 1):
        loss = model(torch.randn(4, 8, generator=torch.Generator().manual_seed(step))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item()!r}", flush=True)
        if step % 3 == 0:
            save(state, f"checkpoints/{step}.pt", step)


if __name__ == "__main__":
    main()
