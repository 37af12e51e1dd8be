"""Has written torchsnapshot_v1, by torchsnapshot 0.1.0, and says what stands in it.

    python torchsnapshot_v1.py DIRECTORY        # with torchsnapshot installed; it starts the second rank itself
"""

import os
import subprocess
import sys

import torch

WORLD = 2
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128]
# torchsnapshot has no name for these, so it calls torch.save.
SHARDED = torch.arange(7 * 3, dtype=torch.float32).reshape(7, 3)
LARGE = torch.arange(40, dtype=torch.float64).reshape(10, 4)


def own(rank):
    """Returns what a rank has for itself, and what is the same on all."""
    return {"weight": torch.full((2, 3), float(rank)), "step": 7, "name": 'é"\\\n\x01', "rate": 0.1, "flag": True,
            "raw": b"\x00\xff", "none": None, "pair": (1, 2.0), "wide": -2**80, "rank": rank,
            "a/b%": {"list": [torch.tensor(3.5), {"x": 1}]}}


def replicated():
    return {str(dtype).removeprefix("torch."): torch.arange(6).reshape(2, 3).to(dtype) for dtype in DTYPES} | {
        "transposed": torch.arange(6.0).reshape(2, 3).t(), "scalar": torch.tensor(2.5), "large": LARGE}


def main(directory):
    import torch.distributed as dist
    import torchsnapshot
    from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor, init_from_local_shards  # noqa: F401

    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    begin, end = ((0, 4), (4, 7))[rank]
    local = Shard.from_tensor_and_offsets(SHARDED[begin:end].clone(), [begin, 0], rank)
    local.metadata.placement = torch.distributed._remote_device(f"rank:{rank}/cpu")
    sharded = init_from_local_shards([local], 7, 3)
    with torchsnapshot.knobs.override_max_chunk_size_bytes(100):
        torchsnapshot.Snapshot.take(directory, {
            "own": torchsnapshot.StateDict(**own(rank)), "sharded": torchsnapshot.StateDict(table=sharded),
            "same": torchsnapshot.StateDict(**replicated())}, replicated=["same/**"])
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(sys.argv[1])
    else:
        environment = {"WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
        ranks = [subprocess.Popen([sys.executable, *sys.argv], env=os.environ | environment | {"RANK": str(rank)})
                 for rank in range(WORLD)]
        sys.exit(max(rank.wait() for rank in ranks))
