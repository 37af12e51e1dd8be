"""Writes directories of torch.distributed.checkpoint, and says what stands in them."""

import numpy as np
import torch
import torch.distributed.checkpoint as torch_dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from testing.ranks import noise

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64,
          torch.complex128, torch.uint16, torch.uint32, torch.uint64]


def tensor(shape, dtype, seed):
    width = torch.empty((), dtype=dtype).element_size()
    raw = torch.from_numpy(noise((*shape, width), np.uint8, seed))
    return (raw & 1).view(dtype).reshape(shape) if dtype is torch.bool else raw.view(dtype).reshape(shape)


def bits(value):
    return value.contiguous().reshape(-1).view(torch.uint8).tolist()


def state(seed=0):
    """Everything that a state dict usually holds; with seed None the same with zeros and other values."""
    def make(shape, dtype, number):
        return torch.zeros(shape, dtype=dtype) if seed is None else tensor(shape, dtype, seed + number)

    model = {str(dtype).removeprefix("torch."): make((6, 5), dtype, n) for n, dtype in enumerate(DTYPES)}
    model |= {"scalar": make((), torch.float32, 50), "empty": torch.zeros(0, 3),
              "transposed": make((7, 4), torch.float32, 51).t(),
              "permuted": make((2, 3, 4), torch.int16, 52).permute(2, 0, 1)}
    fresh = seed is None
    return {
        "model": model,
        "optimizer": {"state": {0: {"step": make((), torch.float32, 53)}},
                      "param_groups": [{"lr": 0.0 if fresh else 0.1, "params": [] if fresh else [0, 1]}]},
        "progress": {"step": 0 if fresh else 7, "name": "" if fresh else "é\"\\", "none": 1 if fresh else None,
                     "pair": () if fresh else (1, 2.0, float("-inf")), "bytes": b"" if fresh else b"\x00\xff"},
        "nested": [make((3,), torch.float32, 54), 0 if fresh else 2**62],
    }


def assert_equal(one, other, path=""):
    assert type(one) is type(other), path
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and one.shape == other.shape and bits(one) == bits(other), path
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        for key in one:
            assert_equal(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), path
        for index, item in enumerate(one):
            assert_equal(item, other[index], f"{path}.{index}")
    else:
        assert one == other, path


def write(directory, state_dict, **options):
    torch_dcp.save(state_dict, storage_writer=FileSystemWriter(str(directory), **options), no_dist=True)
    return directory
