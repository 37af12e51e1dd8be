"""Trains a tiny model by Lightning's Trainer, sharded by one of its strategies, for example_worker.py.

All ranks get the same batches. So any number of ranks, in powers of two, and any strategy do the same to the last bit.
It prints the losses and learning rates.
"""

import argparse
import os

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torchdata.stateful_dataloader import StatefulDataLoader

import cairn
from cairn.lightning import CairnCheckpoint

BATCH = 8


class FsdpWithoutGpu(FSDPStrategy):
    """Lightning takes FSDPStrategy itself on GPUs alone; what it does then needs none."""

    def _setup_model(self, model):
        return FullyShardedDataParallel(model, sharding_strategy=self.sharding_strategy, device_id=torch.device("cpu"),
                                        **self.kwargs)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(7, 10)
        self.down = torch.nn.Linear(10, 7)

    def forward(self, inputs):
        return self.down(torch.tanh(self.up(inputs)))


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(Block(), torch.nn.Linear(7, 1))

    def training_step(self, batch, index):
        return self.net(batch).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2, foreach=False)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_batch_end(self, outputs, batch, index):
        if self.global_rank == 0:
            print(f"\nstep {self.trainer.global_step} loss {outputs['loss'].item()!r} norm "
                  f"{self.lr_schedulers().get_last_lr()[0]!r}\n", end="", flush=True)


class ShardedModule(Module):
    """A module that shards itself, as ModelParallelStrategy wants it."""

    def configure_model(self):
        if self.device_mesh["tensor_parallel"].size() > 1:
            # No sum is split between the ranks: they would add in another order.
            parallelize_module(self.net[0], self.device_mesh["tensor_parallel"],
                               {"up": ColwiseParallel(output_layouts=Replicate())})
        data = self.device_mesh["data_parallel"]
        if data.size() > 1:
            fully_shard(self.net[0], mesh=data)
            fully_shard(self.net, mesh=data)


def made(sharding: str, ranks: int):
    """Returns a strategy and the module for it."""
    if sharding == "ddp":
        return DDPStrategy(process_group_backend="gloo"), Module
    if sharding == "fsdp":
        return FsdpWithoutGpu(process_group_backend="gloo", auto_wrap_policy=ModuleWrapPolicy({Block})), Module
    tensor = ranks if sharding == "tensor" else 1
    return ModelParallelStrategy(ranks // tensor, tensor, process_group_backend="gloo"), ShardedModule


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sharding", required=True, choices=["ddp", "fsdp", "fsdp2", "tensor"])
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    os.environ["TORCHELASTIC_RUN_ID"] = "job"
    torch.manual_seed(0)
    ranks = int(os.environ["WORLD_SIZE"])
    strategy, kind = made(arguments.sharding, ranks)
    # An epoch has 4 steps: another number of ranks begins it anew.
    rows = torch.randn(4 * BATCH, 7, generator=torch.Generator().manual_seed(1))
    loader = StatefulDataLoader(rows, batch_size=BATCH)
    with cairn.connect() as client:
        trainer = pl.Trainer(accelerator="cpu", devices=ranks, strategy=strategy, max_epochs=-1,
                             max_steps=arguments.steps, plugins=[TorchElasticEnvironment()],
                             callbacks=[CairnCheckpoint(client, every_steps=4)], use_distributed_sampler=False,
                             logger=False, enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(kind(), loader)
    dist.destroy_process_group()
