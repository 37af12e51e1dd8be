"""A training that saves by Megatron-core, as it is before it goes over to Cairn (docs/migration.md)."""

import argparse
import os

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing import ShardedTensor
from megatron.core.dist_checkpointing.strategies import filesystem_async

# Megatron-core asks for a GPU and psutil here, for nothing that is saved.
torch.cuda.synchronize = lambda *_: None
torch.cuda.current_device = lambda: "cpu"
filesystem_async._process_memory = lambda: 0


def sharded_state(model):
    return {name: ShardedTensor.from_rank_offsets(name, value.detach(), replica_id=0)
            for name, value in model.named_parameters()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--resume", type=int, default=0, help="the step")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if arguments.resume:
        state = dist_checkpointing.load(sharded_state(model), f"checkpoints/iter_{arguments.resume:07d}")
        assert state.pop("iteration") == arguments.resume
        model.load_state_dict(state)
    for step in range(arguments.resume + 1, arguments.steps + 1):
        loss = model(torch.randn(4, 8, generator=torch.Generator().manual_seed(step))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item()!r}", flush=True)
        if step % 3 == 0:
            os.makedirs(f"checkpoints/iter_{step:07d}", exist_ok=True)
            dist_checkpointing.save({**sharded_state(model), "iteration": step}, f"checkpoints/iter_{step:07d}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
