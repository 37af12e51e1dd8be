"""Writes and loads directories by Megatron-core. Its writer forks, so it has a process of its own.

    megatron_worker.py save DIRECTORY
    megatron_worker.py load DIRECTORY WANTED RESULT
"""

import argparse
import sys

import torch
import torch.distributed
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor
from megatron.core.dist_checkpointing.strategies import filesystem_async


def part(key, rows, number, count, **more):
    torch.manual_seed(number)
    return ShardedTensor.from_rank_offsets(key, torch.randn(rows, 3), (0, number, count), replica_id=0, **more)


def save(directory):
    dist_checkpointing.save(
        {
            "model": {
                "whole": ShardedTensor.from_rank_offsets("decoder.w", torch.arange(48.0).reshape(8, 6), replica_id=0),
                "experts": [part("experts.w", 4, n, 2, prepend_axis_num=1) for n in range(2)],
                "rows": [part("rows.w", 4, n, 3) for n in range(3)],
                "extra": ShardedObject("decoder._extra_state", {"amax": [1.5, 2]}, (1,), (0,), replica_id=0),
            },
            "args": argparse.Namespace(layers=2),
            "iteration": 7,
            "optimizer": {"param_groups": [{"lr": 0.1, "betas": (0.9, 0.95)}]},
        }, directory)


def load(directory, wanted, result):
    """Loads each tensor as two halves, but that of the layers layer by layer, and the layers' objects."""
    layers, tensors = torch.load(wanted, weights_only=True)
    state = {}
    for name, (shape, dtype) in tensors.items():
        if name == "decoder.w":
            state[name] = [ShardedTensor.from_rank_offsets(name, torch.zeros(shape[1:], dtype=dtype), (0, n, layers),
                                                           replica_id=0, prepend_axis_num=1) for n in range(layers)]
        else:
            half = torch.zeros((shape[0] // 2, *shape[1:]), dtype=dtype)
            state[name] = [ShardedTensor.from_rank_offsets(name, half.clone(), (0, n, 2), replica_id=0)
                           for n in range(2)]
    state["extra"] = [ShardedObject("decoder.extra", None, (layers,), (n,), replica_id=0) for n in range(layers)]
    loaded, missing, unexpected = dist_checkpointing.load(state, directory, strict="return_all")
    torch.save(loaded | {"missing": sorted(missing), "unexpected": sorted(unexpected)}, result)


def main() -> None:
    torch.set_num_threads(1)  # a forked process would wait for OpenMP's threads, which it does not have
    # Megatron wants a GPU and psutil here, for nothing that stands in the files.
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    filesystem_async._process_memory = lambda: 0
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    {"save": save, "load": load}[sys.argv[1]](*sys.argv[2:])
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
