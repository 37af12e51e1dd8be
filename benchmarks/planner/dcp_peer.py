"""The planner of torch.distributed.checkpoint on the layouts of planner_benchmark, as rank 0 runs it: global plan,
dedup, metadata. Prints CPU seconds, to be set beside ours from the same run.

    python benchmarks/planner/dcp_peer.py fsdp RANKS
    python benchmarks/planner/dcp_peer.py megatron RANKS
"""

import sys
import time

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType


def item(name, size, offset, shape, dtype=torch.float32):
    return WriteItem(
        MetadataIndex(name, torch.Size(offset)),
        WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(torch.Size(offset), torch.Size(shape)),
            properties=TensorProperties(dtype=dtype),
            size=torch.Size(size),
        ),
    )


def fsdp(ranks):
    for r in range(ranks):
        items = []
        for i in range(300):
            rows = 32768 + 128 * i
            step = -(-rows // ranks)
            begin = min(rows, r * step)
            end = min(rows, begin + step)
            if begin < end:
                name = f"model.layers.{i // 10}.module.{i % 10}.weight"
                items.append(item(name, [rows, 4096], [begin, 0], [end - begin, 4096]))
        yield SavePlan(items, planner_data={})


def megatron(ranks):
    # Flat pieces are 1-d tensors of their own here, as Megatron's fully sharded format stores them.
    tp, pp = 8, 16
    dp = ranks // (tp * pp)
    for r in range(dp * tp * pp):
        t, d, p = r % tp, r // tp % dp, r // (tp * dp)
        items = []
        for i in range(150):
            name = f"decoder.layers.{p * 15 + i // 10}.block.{i % 10}.weight"
            columns = 4096 + 64 * i
            offset, shape = ([1024 * t, 0], [1024, columns]) if i % 2 else ([0, columns // 8 * t], [8192, columns // 8])
            items.append(item(name, [8192, columns], offset, shape, torch.bfloat16))
            if i < 50:
                size = 1024 * columns
                step = -(-size // dp)
                begin = min(size, d * step)
                end = min(size, begin + step)
                for state in ("exp_avg", "exp_avg_sq", "fp32_param"):
                    items.append(item(f"optimizer.{state}.{name}.{t}", [size], [begin], [end - begin]))
        yield SavePlan(items, planner_data={})


def main():
    style, ranks = sys.argv[1], int(sys.argv[2])
    plans = list({"fsdp": fsdp, "megatron": megatron}[style](ranks))
    planner = DefaultSavePlanner()
    planner.set_up_planner({}, is_coordinator=True)
    start = time.process_time()
    planner.create_global_plan(plans)
    print(f"DCP {torch.__version__} {style} {ranks} ranks: global plan {time.process_time() - start:.2f} s")


if __name__ == "__main__":
    main()
