"""Trains a tiny language model with DeepSpeed's ZeRO; Cairn saves and resumes it.

    cairn run --root /tmp/checkpoints -- torchrun --nproc-per-node 2 examples/deepspeed/train.py --stage 3 --steps 40

Start it again with more steps, and with another number of ranks or another stage: it goes on where it ended.
"""

import argparse

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

import cairn
import cairn.torch
from cairn.torch.deepspeed import states

TEXT = b"Cairns are piles of stones that mark a path. " * 40
WIDTH, CONTEXT, BATCH = 33, 32, 16


class Model(nn.Module):
    """Guesses a byte from the one before."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, WIDTH)
        self.layer = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(),
                                   nn.Linear(2 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, tokens, targets):
        hidden = self.embedding(tokens)
        logits = self.head(hidden + self.layer(hidden))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch_of_step(step: int) -> torch.Tensor:
    """Returns the whole batch of a step, [BATCH, CONTEXT + 1]. It depends on nothing but the step."""
    starts = torch.randint(len(TEXT) - CONTEXT, (BATCH,), generator=torch.Generator().manual_seed(step))
    return torch.stack([torch.tensor(list(TEXT[start:start + CONTEXT + 1])) for start in starts.tolist()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-steps", type=int, default=10)
    parser.add_argument("--stage", type=int, default=2, help="of ZeRO")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    deepspeed.init_distributed("gloo" if not torch.cuda.is_available() else "nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = Model()
    engine, _, _, _ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
        config={"train_batch_size": BATCH, "gradient_accumulation_steps": 1, "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": arguments.stage}})

    state = states(engine)
    with (cairn.connect() as client,
          cairn.torch.CheckpointManager(client, every_steps=arguments.save_steps, keep_last=3) as manager):
        start = manager.restore_or_initialize(state) or 0
        for step in range(start + 1, arguments.steps + 1):
            mine = batch_of_step(step).chunk(ranks)[rank].to(engine.device)
            loss = engine(mine[:, :-1], mine[:, 1:])
            engine.backward(loss)
            engine.step()
            dist.all_reduce(loss := loss.detach() / ranks)
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            manager.step(step, state)
        manager.wait()
        if rank == 0:
            print(f"trained to step {arguments.steps}; the job has the steps {client.checkpoints()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
