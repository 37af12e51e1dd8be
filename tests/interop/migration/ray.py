"""A training of Ray Train that reports directories, as it is before it goes over to Cairn (docs/trainers.md)."""

import argparse
import os
import pathlib
import tempfile

import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer


def load(state, checkpoint):
    if checkpoint is None:
        return 0
    found = torch.load(os.path.join(checkpoint.path, "state.pt"))
    for name, part in state.items():
        part.load_state_dict(found[name])
    return found["step"]


def report(loss, state, step):
    with tempfile.TemporaryDirectory() as folder:
        torch.save({name: part.state_dict() for name, part in state.items()} | {"step": step}, f"{folder}/state.pt")
        ray.train.report({"loss": loss}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def train(config):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = {"model": model, "optimizer": optimizer}
    start = load(state, ray.train.get_checkpoint())
    with open(config["losses"], "w") as losses:
        for step in range(start + 1, config["steps"] + 1):
            loss = model(torch.randn(4, 8, generator=torch.Generator().manual_seed(step))).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {step} loss {loss.item()!r}", file=losses, flush=True)
            if step % 3 == 0:
                report(loss.item(), state, step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    losses = pathlib.Path("losses").absolute()
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    TorchTrainer(train, train_loop_config={"steps": arguments.steps, "losses": str(losses)},
                 scaling_config=ray.train.ScalingConfig(num_workers=1),
                 run_config=ray.train.RunConfig(name="run", storage_path=os.path.abspath("checkpoints"))).fit()
    print(losses.read_text())
    ray.shutdown()


if __name__ == "__main__":
    main()
