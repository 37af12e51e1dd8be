"""Tests that others can read a committed checkpoint: torch's Hugging Face reader its directory, safetensors every
bin."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

import cairn
import cairn.torch
from testing.ranks import noise, on_ranks, rows

pytestmark = pytest.mark.interop

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool,
          torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.uint16, torch.uint32, torch.uint64]


def tensor(shape, dtype, seed):
    width = torch.empty((), dtype=dtype).element_size()
    raw = torch.from_numpy(noise((*shape, width), np.uint8, seed))
    return (raw & 1).view(dtype).reshape(shape) if dtype is torch.bool else raw.view(dtype).reshape(shape)


def bits(value):
    return value.contiguous().reshape(-1).view(torch.uint8).tolist()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Saves from four ranks: tensors split by rows or columns, replicated, 0-d, or empty on some ranks, in every
    dtype that both know."""
    root = tmp_path_factory.mktemp("root")
    whole = {}
    for number, dtype in enumerate(DTYPES):
        name = str(dtype).removeprefix("torch.")
        whole[f"{name}.rows"] = tensor((10, 6), dtype, number)
        whole[f"{name}.columns"] = tensor((3, 9), dtype, 100 + number)
        whole[f"{name}.whole"] = tensor((5,), dtype, 200 + number)
    whole["scalar"] = tensor((), torch.float32, 300)
    whole["short.rows"] = tensor((2, 4), torch.float32, 301)

    def state_of(rank):
        state = {}
        for name, value in whole.items():
            raw = value.view(
                {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[value.element_size()]
            ).numpy()
            dtype = str(value.dtype).removeprefix("torch.")
            shard = (
                rows(raw, rank, 4, 1 if name.endswith("columns") else 0)
                if raw.ndim and not name.endswith("whole")
                else cairn.Shard(raw, raw.shape, (0,) * raw.ndim)
            )
            state[name] = cairn.Shard(shard.array, shard.global_shape, shard.offset, dtype=dtype)
        return {**state, "progress": {"step": 3}, "rng": cairn.per_rank(b"x" * 5000)}

    with cairn.local.Cluster(ranks=4, root=root) as cluster:
        done = on_ranks(cluster, lambda rank, client: client.save(3, state_of(rank)).wait())[0]
    return root / done.data_directory, whole


def test_torch_reads_the_directory_unmodified(checkpoint):
    directory, whole = checkpoint
    target = {name: torch.zeros_like(value) for name, value in whole.items()}
    dcp.load(target, storage_reader=HuggingFaceStorageReader(str(directory)), no_dist=True)
    for name, value in whole.items():
        assert bits(target[name]) == bits(value), name


def test_safetensors_opens_every_bin(checkpoint):
    directory, whole = checkpoint
    files = sorted(directory.glob("*.safetensors"))
    assert files and {file.name for file in directory.iterdir()} - {file.name for file in files} == {".owner"}
    seen = 0
    for file in files:
        with safetensors.safe_open(str(file), framework="pt") as opened:
            assert opened.metadata()["format"] == "pt"
            for name in opened.keys():  # noqa: SIM118  it is no dict
                part = opened.get_tensor(name)
                seen += part.numel() * part.element_size()
                if name.endswith(".whole") or name == "scalar":
                    assert bits(part) == bits(whole[name]), name
    tensors = sum(value.numel() * value.element_size() for value in whole.values())
    assert seen == tensors + 4096 + 4 * 8192  # and the objects' slots
