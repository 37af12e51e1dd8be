"""Trains a tiny language model with FSDP2, tensor and pipeline parallelism, as torchtitan does; Cairn saves it.

    cairn run --root /tmp/checkpoints -- \
        torchrun --nproc-per-node 4 examples/parallel/train.py --pipeline 2 --tensor 2 --steps 40

Start it again with more steps, and with any other number of ranks or of parts: it goes on where it ended. What
--pipeline and --tensor leave of the ranks is FSDP's.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import cairn
import cairn.torch

TEXT = b"Cairns are piles of stones that mark a path. " * 40
LAYERS, WIDTH, CONTEXT, BATCH = 4, 32, 32, 16


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.expand = nn.Linear(WIDTH, 2 * WIDTH)
        self.contract = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, hidden):
        return hidden + self.contract(nn.functional.gelu(self.expand(self.norm(hidden))))


class Model(nn.Module):
    """Guesses a byte from the one before. A stage of a pipeline has some of the layers, under their own names."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, WIDTH)
        self.layers = nn.ModuleDict({str(index): Layer() for index in range(LAYERS)})
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, hidden):
        if self.embedding is not None:
            hidden = self.embedding(hidden)
        for layer in self.layers.values():
            hidden = layer(hidden)
        return hidden if self.head is None else self.head(hidden)


def stage_of(model: Model, stage: int, stages: int) -> Model:
    """Takes out what other stages have."""
    for index in range(LAYERS):
        if index * stages // LAYERS != stage:
            del model.layers[str(index)]
    if stage > 0:
        model.embedding = None
    if stage < stages - 1:
        model.head = None
    return model


def shard(model: Model, mesh: DeviceMesh) -> None:
    """Splits the parameters among the ranks of tensor parallelism, then among those of FSDP."""
    if mesh["tensor"].size() > 1:
        if model.head is not None:
            parallelize_module(model, mesh["tensor"], {"head": ColwiseParallel(output_layouts=Replicate())})
        for layer in model.layers.values():
            parallelize_module(layer, mesh["tensor"], {"expand": ColwiseParallel(), "contract": RowwiseParallel()})
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])


class ModelState:
    """The state of a stage's model, by the names of the whole model."""

    def __init__(self, model: Model):
        self.model = model

    def state_dict(self):
        return get_model_state_dict(self.model)

    def load_state_dict(self, state):
        set_model_state_dict(self.model, state)


class OptimizerState:
    """The state of a stage's optimizer. It is flat, so that each name is that of a parameter of the whole model."""

    OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)

    def __init__(self, model: Model, optimizer: torch.optim.Optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        return get_optimizer_state_dict(self.model, self.optimizer, options=self.OPTIONS)

    def load_state_dict(self, state):
        set_optimizer_state_dict(self.model, self.optimizer, state, options=self.OPTIONS)


def batch_of_step(step: int) -> torch.Tensor:
    """Returns the whole batch of a step, [BATCH, CONTEXT + 1]. It depends on nothing but the step."""
    starts = torch.randint(len(TEXT) - CONTEXT, (BATCH,), generator=torch.Generator().manual_seed(step))
    return torch.stack([torch.tensor(list(TEXT[start:start + CONTEXT + 1])) for start in starts.tolist()])


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-steps", type=int, default=10)
    parser.add_argument("--pipeline", type=int, default=1, help="stages of the pipeline")
    parser.add_argument("--tensor", type=int, default=1, help="parts of a layer")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    data = dist.get_world_size() // (arguments.pipeline * arguments.tensor)
    mesh = init_device_mesh("cpu", (arguments.pipeline, data, arguments.tensor),
                            mesh_dim_names=("pipeline", "data", "tensor"))
    stage, stages = mesh.get_local_rank("pipeline"), arguments.pipeline
    model = stage_of(Model(), stage, stages)
    shard(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    if stages > 1:
        schedule = ScheduleGPipe(PipelineStage(model, stage, stages, torch.device("cpu"),
                                               group=mesh.get_group("pipeline")), n_microbatches=2, loss_fn=loss_of)

    def train(step: int) -> float | None:
        """Returns the loss of the whole batch; None if this rank does not have the last stage."""
        mine = batch_of_step(step).chunk(data)[mesh.get_local_rank("data")]
        inputs, targets = mine[:, :-1], mine[:, 1:]
        if stages == 1:
            loss = loss_of(model(inputs), targets)
            loss.backward()
        else:
            losses = []
            schedule.step(*[inputs][:stage == 0], target=targets if stage == stages - 1 else None, losses=losses)
            loss = torch.stack(losses).mean() if losses else None
        optimizer.step()
        optimizer.zero_grad()
        if loss is None:
            return None
        dist.all_reduce(loss.detach_(), group=mesh.get_group("data"))
        return loss.item() / data

    # The last rank has the last stage.
    speaks = dist.get_rank() == dist.get_world_size() - 1
    state = {"model": ModelState(model), "optimizer": OptimizerState(model, optimizer)}
    with (cairn.connect() as client,
          cairn.torch.CheckpointManager(client, every_steps=arguments.save_steps, keep_last=3) as manager):
        start = manager.restore_or_initialize(state) or 0
        for step in range(start + 1, arguments.steps + 1):
            loss = train(step)
            if speaks:
                print(f"step {step} loss {loss:.4f}", flush=True)
            manager.step(step, state)
        manager.wait()
        if speaks:
            print(f"trained to step {arguments.steps}; the job has the steps {client.checkpoints()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
