"""Makes the `.metadata` that torch.distributed.checkpoint would write for many ranks, by PyTorch's own classes.

    python dcp_metadata.py DIRECTORY --ranks 4096 --tensors 363     # 212 MB: each rank has a chunk of each tensor
"""

import argparse
import pathlib
import pickle

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

CHUNK_BYTES = 9500


def make(ranks, tensors):
    described, stored, planner = {}, {}, {}
    for t in range(tensors):
        name = f"model.layers.{t // 9}.self_attn.block{t % 9}.weight"
        chunks = []
        for rank in range(ranks):
            offset = torch.Size([2 * rank, 0])
            chunks.append(ChunkStorageMetadata(offset, torch.Size([2, 1024])))
            stored[MetadataIndex(name, torch.Size([2 * rank, 0]), rank)] = _StorageInfo(
                f"__{rank}_0.distcp", CHUNK_BYTES * t, CHUNK_BYTES)
        described[name] = TensorStorageMetadata(TensorProperties(dtype=torch.bfloat16), torch.Size([2 * ranks, 1024]),
                                                chunks)
        planner[name] = ("model", name)
    metadata = Metadata(described, planner, stored)
    metadata.storage_meta = StorageMeta(checkpoint_id="x", save_id="y")
    return metadata


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--tensors", type=int, default=363)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with open(arguments.directory / ".metadata", "wb") as file:
        pickle.dump(make(arguments.ranks, arguments.tensors), file)
