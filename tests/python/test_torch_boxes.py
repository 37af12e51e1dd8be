"""Tests where DTensor's local elements lie in the global tensor. torch's own splitting is the oracle."""

import itertools
import random

import pytest

torch = pytest.importorskip("torch")
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from cairn.torch import boxes_of
from testing.errors import raises_error

pytestmark = pytest.mark.interop


def splits_as_fsdp2():
    """Returns whether torch's own _StridedShard splits a size that has no even parts as FSDP2 does, which alone makes
    this placement. In 2.8 it did not."""
    pieces, _ = _StridedShard(0, split_factor=2)._split_tensor(torch.arange(5), 2, with_padding=False, contiguous=True)
    return [piece.tolist() for piece in pieces] == [[0, 1, 3], [2, 4]]


def local_by_torch(whole, mesh_shape, coordinate, placements):
    """Splits the way DTensor does, placement by placement."""
    for mesh_dim, placement in enumerate(placements):
        if isinstance(placement, (Shard, _StridedShard)):
            pieces, _ = placement._split_tensor(whole, mesh_shape[mesh_dim], with_padding=False, contiguous=True)
            whole = pieces[coordinate[mesh_dim]]
    return whole


def local_by_boxes(whole, boxes):
    for dim, intervals in enumerate(boxes):
        whole = torch.cat([whole.narrow(dim, a, b - a) for a, b in intervals], dim)
    return whole


@pytest.mark.parametrize("seed", range(150))
def test_random_meshes_and_placements(seed):
    chance = random.Random(seed)
    shape = [chance.randint(1, 13) for _ in range(chance.randint(1, 3))]
    mesh_shape = [chance.randint(1, 4) for _ in range(chance.randint(1, 3))]
    placements = []
    for _ in mesh_shape:
        dim = chance.randrange(len(shape))
        placements.append(
            chance.choice([Replicate(), Shard(dim), _StridedShard(dim, split_factor=chance.randint(1, 3))])
        )
    if any(isinstance(placement, _StridedShard) for placement in placements) and not splits_as_fsdp2():
        pytest.skip("this torch is no oracle of _StridedShard")
    whole = torch.arange(torch.Size(shape).numel()).view(shape)
    for coordinate in itertools.product(*map(range, mesh_shape)):
        boxes = boxes_of(shape, mesh_shape, coordinate, placements)
        expected = local_by_torch(whole, mesh_shape, coordinate, placements)
        actual = local_by_boxes(whole, boxes)
        assert actual.shape == expected.shape and torch.equal(actual, expected), (shape, mesh_shape, placements)


def test_fsdp_over_tensor_parallelism_is_one_box():
    """With TP first and FSDP inside, the combination of _StridedShard and Shard picks one interval."""
    for coordinate, rows in {(0, 0): (0, 2), (0, 1): (4, 6), (1, 0): (2, 4), (1, 1): (6, 8)}.items():
        assert boxes_of((8, 3), (2, 2), coordinate, [_StridedShard(0, split_factor=2), Shard(0)]) == [[rows], [(0, 3)]]


def test_partial_sums_are_refused():
    from torch.distributed.tensor import Partial

    with raises_error("BAD_REQUEST"):
        boxes_of((8,), (2,), (0,), [Partial()])
