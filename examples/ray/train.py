"""Trains a tiny language model with Ray Train; Cairn saves it, and Ray knows the steps.

    cairn run --root /tmp/checkpoints --ranks 2 -- python examples/ray/train.py --steps 40

If a worker fails, Ray starts all of them again, and they go on with the step that Ray was told last.
"""

import argparse
import os
import pathlib

import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model

import cairn
import cairn.ray
import cairn.torch

TEXT = b"Cairns are piles of stones that mark a path. " * 40
CONTEXT, BATCH = 32, 16


def batch_of_step(step: int) -> torch.Tensor:
    """Returns the whole batch of a step, [BATCH, CONTEXT + 1]. It depends on nothing but the step."""
    starts = torch.randint(len(TEXT) - CONTEXT, (BATCH,), generator=torch.Generator().manual_seed(step))
    return torch.stack([torch.tensor(list(TEXT[start:start + CONTEXT + 1])) for start in starts.tolist()])


def train(config: dict) -> None:
    """Is what each worker runs."""
    torch.manual_seed(0)
    context = ray.train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    model = prepare_model(torch.nn.Sequential(torch.nn.Embedding(256, 32), torch.nn.Linear(32, 256)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state = {"model": model, "optimizer": optimizer}
    with (cairn.connect() as client,
          cairn.torch.CheckpointManager(client, every_steps=config["save_steps"], keep_last=3) as manager):
        told = cairn.ray.step_of(ray.train.get_checkpoint(), client)
        start = manager.restore_or_initialize(state, step=told) or 0
        print(f"begins at step {start + 1}", flush=True)
        for step in range(start + 1, config["steps"] + 1):
            mine = batch_of_step(step).chunk(ranks)[rank]
            loss = torch.nn.functional.cross_entropy(model(mine[:, :-1]).flatten(0, 1), mine[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if config["fail_at"] == step and rank == 1 and not os.path.exists(config["failed"]):
                pathlib.Path(config["failed"]).touch()
                os._exit(1)
            saving = manager.step(step, state)
            if saving is not None:
                cairn.ray.report({"loss": loss.item(), "step": step}, saving)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-steps", type=int, default=10)
    parser.add_argument("--storage", default="/tmp/ray-results", help="where Ray keeps what it is told")
    parser.add_argument("--fail-at", default="0:", help="STEP:FILE: a worker dies at STEP, if FILE is not there")
    arguments = parser.parse_args()
    step, _, failed = arguments.fail_at.partition(":")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    result = TorchTrainer(
        train, train_loop_config={"steps": arguments.steps, "save_steps": arguments.save_steps, "fail_at": int(step),
                                  "failed": failed},
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(name="example", storage_path=os.path.abspath(arguments.storage),
                                       failure_config=ray.train.FailureConfig(max_failures=3))).fit()
    _, named = cairn.ray.named(result.checkpoint)
    print(f"trained to step {arguments.steps}; Ray's latest checkpoint names step {named}", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
