"""Is one rank of a torch job for test_torch_distributed.py: saves or loads a model and its optimizer under a layout."""

import hashlib
import json
import os
import pathlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import cairn
import cairn.torch
import cairn.torch.dcp
from testing.scaled_tensor import ScaledTensor


def build(layout: str):
    """Builds tensors with dimensions that no world divides, so that shards are uneven or empty."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(10, 24), nn.GELU(), nn.Linear(24, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    world = dist.get_world_size()
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    if layout == "fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    elif layout == "tensor":
        parallelize_module(model, init_device_mesh("cpu", (world,)), plan)
    elif layout == "fsdp+tensor":
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
        parallelize_module(model, mesh["tensor"], plan)
        fully_shard(model, mesh=mesh["data"])
    elif layout == "replicated+fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "shard")))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)
    return model, optimizer


def digest(state) -> dict[str, str]:
    result = {}

    def walk(value, path):
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{path}.{key}")
        elif isinstance(value, torch.Tensor):
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            result[path] = hashlib.sha256(whole.detach().contiguous().reshape(-1).view(torch.uint8).numpy()).hexdigest()

    walk(state, "")
    return result


def scaled(seed: int) -> dict[str, DTensor]:
    """Returns tensors that are made of others within DTensors, cut along their first dimension and on each rank whole.

    The ranks' parts differ in length, as those of FSDP2 do where the world does not divide the first dimension.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    rows = len(torch.arange(2 * world - 1).chunk(world)[rank])
    cut = DTensor.from_local(ScaledTensor.random(rows, 8, seed + rank), mesh, [Shard(0)], run_check=False,
                             shape=torch.Size([2 * world - 1, 8]), stride=(8, 1))
    whole = DTensor.from_local(ScaledTensor.random(2, 2, seed), mesh, [Replicate()], run_check=False)
    return {"cut": cut, "whole": whole}


def keep_scaled(client: cairn.Client, save: bool) -> None:
    """Saves such tensors, or loads them and compares."""
    expected = scaled(1)
    if save:
        cairn.torch.save(client, 7, {"state": {0: expected}}).wait()
        return
    loaded = scaled(50)
    held = {name: value._local_tensor for name, value in loaded.items()}
    cairn.torch.load(client, {"state": {0: loaded}})
    for name, value in loaded.items():
        assert value._local_tensor is held[name]
        for one, other in zip(value._local_tensor.copies(), expected[name]._local_tensor.copies(), strict=True):
            assert torch.equal(one, other), name


def run_rank(environment: dict[str, str], output: pathlib.Path, action: str, layout: str) -> None:
    """Is the whole life of a rank's process, which ends without Python's finalization, as all of multiprocessing do.

    Otherwise a gloo thread could abort it: with meshes, these threads outlive destroy_process_group(), and one may drop
    the tensors of the last collective while Python ends (https://github.com/pytorch/pytorch/issues/190489).
    """
    os.environ.update(environment)
    with output.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, optimizer = build(layout)
    with cairn.connect() as client:
        if layout == "scaled":
            keep_scaled(client, action == "save")
            dist.barrier()
            pathlib.Path(os.environ["DIGESTS"]).write_text("{}")
            dist.destroy_process_group()
            return
        # No model has these placements: two mesh dimensions on one tensor dimension, and both on different ones.
        world = dist.get_world_size()
        mesh = init_device_mesh("cpu", (2, world // 2) if world % 2 == 0 else (1, world))
        table = torch.arange(13 * 7, dtype=torch.float64).reshape(13, 7)
        saves = action in ("save", "torch-save", "writer-save", "manager-save")
        if not saves:
            table = torch.zeros_like(table)
        extra = {"twice": distribute_tensor(table.clone(), mesh, [Shard(0), Shard(0)]),
                 "both": distribute_tensor(table.clone(), mesh, [Shard(1), Shard(0)]),
                 "half": distribute_tensor(table.clone(), mesh, [Replicate(), Shard(1)]),
                 "plain": table.clone()}
        if saves:
            for _ in range(2):
                model(torch.ones(4, 10)).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {
            "model": model_state,
            "optimizer": optimizer_state,
            "extra": extra,
            "note": {"epoch": 4, "pair": (1, 2)},
        }
        if action == "save":
            cairn.torch.save(client, 7, state).wait()
        elif action == "torch-save":
            torch.distributed.checkpoint.save(state, checkpoint_id=os.environ["DCP_DIRECTORY"])
        elif action == "writer-save":
            torch.distributed.checkpoint.save(state, checkpoint_id="somewhere/7",
                                              storage_writer=cairn.torch.CairnWriter(client=client))
        elif action == "manager-save":
            with cairn.torch.CheckpointManager(client, every_steps=7) as manager:
                manager.step(7, state | {"model": model, "optimizer": optimizer})
        elif action == "manager-load":
            state["note"] = {"epoch": 0, "pair": None}
            fresh = torch.optim.AdamW(model.parameters(), lr=0.5, foreach=False)
            for parameter in model.parameters():
                torch.nn.init.zeros_(parameter)
            with cairn.torch.CheckpointManager(client) as manager:
                given = state | {"model": model, "optimizer": fresh}
                assert manager.restore_or_initialize(given) == 7
            assert given["note"] == {"epoch": 4, "pair": (1, 2)}
            state["model"], state["optimizer"] = get_state_dict(model, fresh)
        else:
            for value in (*optimizer_state["state"].values(), model_state):
                for tensor in value.values():
                    tensor.zero_()
            state["note"] = {"epoch": 0, "pair": None}
            if action == "load":
                report = cairn.torch.load(client, state)
                assert report.total_bytes_read == report.unique_bytes
            elif action == "torch-load":
                torch.distributed.checkpoint.load(state, checkpoint_id=os.environ["DCP_DIRECTORY"])
            elif action == "reader-load":
                torch.distributed.checkpoint.load(state, storage_reader=cairn.torch.CairnReader("7", client=client))
            else:
                cairn.torch.dcp.load(state, checkpoint_id=os.environ["DCP_DIRECTORY"], client=client)
            assert state["note"] == {"epoch": 4, "pair": (1, 2)}
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
            state["model"], state["optimizer"] = get_state_dict(model, optimizer)
        digests = digest(state)
        if dist.get_rank() == 0:
            with open(os.environ["DIGESTS"], "w") as file:
                json.dump(digests, file)
    dist.destroy_process_group()
