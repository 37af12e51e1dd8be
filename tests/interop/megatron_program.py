"""Trains the model of examples/megatron with Megatron-core's own dist_checkpointing, for example_worker.py.

It prints the losses to their last bit. With --direct it saves by cairn.torch.megatron.save.
"""

import argparse
import pathlib
import runpy

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing import ShardedTensor
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue
from megatron.core.dist_checkpointing.strategies.base import StrategyAction, get_default_strategy
from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper
from megatron.core.transformer.transformer_config import TransformerConfig

import cairn
from cairn.torch import megatron

example = runpy.run_path(str(pathlib.Path(__file__).resolve().parents[2] / "examples/megatron/train.py"))

# Megatron-core asks for a GPU and psutil here, for nothing that is saved.
torch.cuda.synchronize = lambda *_: None
torch.cuda.current_device = lambda: "cpu"
filesystem_async._process_memory = lambda: 0

DIRECTORY = pathlib.Path("checkpoints")


def save_strategy_of(how):
    """Returns how a step is to be saved; None is Megatron-core's default. (Its parallel load needs a GPU.)"""
    if how != "parallel":
        return None
    return FullyParallelSaveStrategyWrapper(get_default_strategy(StrategyAction.SAVE_SHARDED, "torch_dist", 1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--tensor", type=int, default=1)
    parser.add_argument("--how", default="sync")
    parser.add_argument("--load", type=int, default=0, help="the step")
    for flag in ("direct", "other-name", "delete"):
        parser.add_argument(f"--{flag}", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # a forked process would wait for OpenMP's threads, which it does not have
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=arguments.tensor)
    megatron.register()
    model = example["Model"](TransformerConfig(num_layers=1, hidden_size=example["WIDTH"], num_attention_heads=4,
                                               tensor_model_parallel_size=arguments.tensor,
                                               use_cpu_initialization=True))
    optimizer = example["Optimizer"](model)
    sharded_state = example["sharded_state"]
    save_strategy = save_strategy_of(arguments.how)
    step = arguments.load
    if step:
        directory = str(DIRECTORY / f"iter_{step:07d}")
        if arguments.delete:
            with cairn.connect() as client:
                client.delete(step)
        wanted = sharded_state(model, optimizer, is_loading=True)
        if arguments.other_name:
            del wanted["model"]["expand.bias"], wanted["optimizer"]
            wanted["other"] = ShardedTensor.from_rank_offsets("other.weight", torch.zeros(3))
            _, missing, unexpected = dist_checkpointing.load(wanted, directory, strict="return_all")
            print(f"\nunexpected {sorted(unexpected)} "
                  f"missing {sorted(name for name in missing if not name.startswith('optimizer'))}", flush=True)
            return
        state = dist_checkpointing.load(wanted, directory)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        assert state["iteration"] == step
    queue = AsyncCallsQueue()
    while step < arguments.steps:
        batch = example["batch_of_step"](step)
        loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if dist.get_rank() == 0:
            print(f"\nloss {loss.item().hex()}", flush=True)
        queue.maybe_finalize_async_calls()
        if step % 3 == 0 and arguments.direct:
            with cairn.connect() as client:
                megatron.save(client, step, sharded_state(model, optimizer) | {"iteration": step}).wait()
        elif step % 3 == 0:
            directory = DIRECTORY / f"iter_{step:07d}"
            if dist.get_rank() == 0:
                directory.mkdir(parents=True, exist_ok=True)
            dist.barrier()
            request = dist_checkpointing.save(sharded_state(model, optimizer) | {"iteration": step}, str(directory),
                                              save_strategy, async_sharded_save=arguments.how == "async")
            if request is not None:
                queue.schedule_async_request(request)
    queue.maybe_finalize_async_calls(blocking=True)
    queue.close()
    dist.barrier()
