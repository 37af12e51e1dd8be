"""Trains a small GPT on the text of this repository, saving and resuming through Cairn.

It is started once for each rank, with torch's usual environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and
CAIRN_AGENT for the agent beside the rank; without CAIRN_AGENT it trains without checkpoints. Everything is seeded, and
a step's batch depends only on its number, so a resumed run does what an uninterrupted one would.

    RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python examples/gpt/train.py --steps 20

Rank 0 logs these lines: "step N loss X" with all digits of X, "saved N", "resumed N", "state N SHA256".
"""

import argparse
import hashlib
import os
import pathlib
import time

import torch
import torch.distributed as dist
from model import GPT, Config
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SEED = 20


def text_of_repository() -> torch.Tensor:
    """Returns the bytes of all documents, protos and sources, in order of their paths."""
    paths = [path for pattern in ("docs/**/*.md", "*.md", "proto/**/*.proto", "common/**/*.h", "common/**/*.cc",
                                  "python/**/*.py", "examples/**/*.py")
             for path in REPOSITORY.glob(pattern)]
    data = b"\n".join(path.read_bytes() for path in sorted(set(paths)))
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long()


def batch_of_step(text: torch.Tensor, step: int, size: int, context: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the global batch of a step: inputs and targets, [size, context]."""
    chance = torch.Generator().manual_seed(SEED * 1_000_003 + step)
    starts = torch.randint(len(text) - context - 1, (size,), generator=chance)
    rows = torch.stack([text[start:start + context + 1] for start in starts])
    return rows[:, :-1], rows[:, 1:]


def shard_model(model: GPT, layout: str, world: int) -> None:
    """Distributes the parameters: "fsdp" splits each by rows, "tensor" splits heads, hidden units and vocabulary."""
    mesh = init_device_mesh("cpu", (world,))
    if layout == "fsdp":
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return
    parallelize_module(model, mesh, {
        "token": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    })
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "attention.query": ColwiseParallel(), "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(), "attention.output": RowwiseParallel(),
            "expand": ColwiseParallel(), "contract": RowwiseParallel(),
        })


def state_of(model, optimizer, step: int) -> dict:
    model_state, optimizer_state = get_state_dict(model, optimizer, options=StateDictOptions())
    return {"model": model_state, "optimizer": optimizer_state, "progress": {"step": step}}


def digest_of(state: dict) -> str:
    """Returns a SHA-256 over the names and bytes of all whole tensors, which is the same under every layout.

    It is a collective call."""
    digest = hashlib.sha256()

    def walk(value, path):
        if isinstance(value, dict):
            for key in sorted(value):
                walk(value[key], f"{path}.{key}")
        elif isinstance(value, torch.Tensor):
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            digest.update(path.encode())
            digest.update(whole.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())

    walk(state, "")
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=60, help="train up to this step")
    parser.add_argument("--layout", choices=["fsdp", "tensor"], default="fsdp", help="how the parameters are split")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a step, over all ranks")
    parser.add_argument("--save-every", type=int, default=0, help="save every so many steps; 0: only when asked to")
    parser.add_argument("--resume", action="store_true", help="load the latest checkpoint, if there is one")
    parser.add_argument("--digests", action="store_true", help="log the digest of the state when it is saved or loaded")
    parser.add_argument("--log", help="append rank 0's lines to this file too")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to sleep after each step")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    log = open(arguments.log, "a") if arguments.log and rank == 0 else None  # noqa: SIM115  until the end

    def say(line: str) -> None:
        if rank == 0:
            print(line, flush=True)
            if log:
                print(line, file=log, flush=True)

    client = None
    if os.environ.get("CAIRN_AGENT"):
        import cairn
        import cairn.torch

        client = cairn.connect()

    config = Config()
    text = text_of_repository()
    model = GPT(config)
    shard_model(model, arguments.layout, world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), foreach=False)

    step = 0
    if client and arguments.resume and client.checkpoints():
        state = state_of(model, optimizer, 0)
        report = cairn.torch.load(client, state)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        step = state["progress"]["step"]
        say(f"resumed {step} (read {report.total_bytes_read} bytes of {report.unique_bytes} needed, {report.path})")
        if arguments.digests:
            say(f"state {step} {digest_of(state_of(model, optimizer, step))}")

    if arguments.layout == "fsdp":
        if arguments.batch % world:
            parser.error(f"--batch {arguments.batch} cannot be split between {world} ranks")
        mine = slice(rank * arguments.batch // world, (rank + 1) * arguments.batch // world)
    else:
        mine = slice(None)  # every rank sees the whole batch

    saving = None
    while step < arguments.steps:
        inputs, targets = batch_of_step(text, step, arguments.batch, config.context)
        logits = model(inputs[mine])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[mine].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        total = loss.detach().double()
        if arguments.layout == "fsdp":
            dist.all_reduce(total)
            total /= world
        say(f"step {step} loss {total.item()!r}")

        if client:
            client.report_step(step)
            due = arguments.save_every and step % arguments.save_every == 0
            if client.save_requested() == step or due:
                if saving:
                    saving.wait()
                state = state_of(model, optimizer, step)
                started = time.perf_counter()
                saving = cairn.torch.save(client, step, state)
                say(f"saved {step} (training was blocked for {time.perf_counter() - started:.3f} s)")
                if arguments.digests:
                    say(f"state {step} {digest_of(state)}")
        if arguments.pause:
            time.sleep(arguments.pause)

    if saving:
        saving.wait()
    if client:
        client.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # With meshes, torch's gloo threads outlive destroy_process_group(). One that drops the tensors of the last
    # collective while Python ends would abort this process (https://github.com/pytorch/pytorch/issues/190489).
    os._exit(0)
