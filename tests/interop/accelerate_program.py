"""Trains with a loop of accelerate on several ranks, sharded by FSDP2 or DeepSpeed, for example_worker.py.

It prints the losses to their last bit.
"""

import argparse
import os

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DeepSpeedPlugin, DistributedType, FullyShardedDataParallelPlugin

import cairn
import cairn.torch
from cairn.torch.deepspeed import states

begin = AcceleratorState.__init__


def without_gpu(state, *arguments, fsdp_plugin=None, **more):
    """accelerate takes FSDP on GPUs alone; what it does then needs none."""
    begin(state, *arguments, fsdp_plugin=fsdp_plugin, **more)
    if fsdp_plugin is not None:
        state.distributed_type, state.fsdp_plugin = DistributedType.FSDP, fsdp_plugin


AcceleratorState.__init__ = without_gpu


def batch_of_step(step: int) -> torch.Tensor:
    return torch.randn(8, 7, generator=torch.Generator().manual_seed(step))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sharding", required=True)
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    PartialState(cpu=True)  # otherwise accelerate takes a machine without a GPU for one process
    if arguments.sharding == "fsdp":
        accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy="no_wrap", cpu_ram_efficient_loading=False))
    else:
        plugin = DeepSpeedPlugin(zero_stage=int(arguments.sharding.removeprefix("zero")))
        plugin.deepspeed_config.update(
            train_batch_size=8, train_micro_batch_size_per_gpu=8 // int(os.environ["WORLD_SIZE"]),
            zero_allow_untested_optimizer=True)
        accelerator = Accelerator(deepspeed_plugin=plugin)
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    model, optimizer = accelerator.prepare(model, optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)

    trained = {"model": model, "optimizer": optimizer} if arguments.sharding == "fsdp" else states(model)
    state = {**trained, "scheduler": scheduler}
    with cairn.connect() as client, cairn.torch.CheckpointManager(client, every_steps=4) as manager:
        start = manager.restore_or_initialize(state) or 0
        for step in range(start + 1, arguments.steps + 1):
            mine = batch_of_step(step).chunk(accelerator.num_processes)[accelerator.process_index]
            loss = model(mine).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            dist.all_reduce(loss := loss.detach() / accelerator.num_processes)
            if accelerator.is_main_process:
                print(f"\nstep {step} loss {loss.item()!r} norm {scheduler.get_last_lr()[0]!r}\n", end="",
                      flush=True)
            manager.step(step, state)
    accelerator.end_training()
