"""Tests that any number of ranks sees each sample of a run once, whatever loads the samples."""

import collections
import random

import numpy
import pytest

import cairn
from cairn.samples import Cursor
from testing.errors import raises_error
from testing.library import Library

torch_data = Library("torch.utils.data")
torchdata = Library("torchdata.stateful_dataloader")


class Numbers:
    """A dataset whose samples are their own places."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, place):
        return place


def one_step(iterations, batch_size):
    """Takes a step's micro-batches from each rank; returns them as they come."""
    taken = []
    for rank, iteration in enumerate(iterations):
        part = batch_size * (rank + 1) // len(iterations) - batch_size * rank // len(iterations)
        while part > 0:
            taken.append(next(iteration))
            part -= len(taken[-1])
        assert part == 0
    return taken


def joined(batches):
    return [int(sample) for batch in batches for sample in batch]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shuffle_seed", [None, 1234])
def test_Batches_WorldsComeAndGo_EachEpochHasEachSampleOnce(seed, shuffle_seed):
    draw = random.Random(seed)
    samples, batch_size = draw.randint(50, 300), draw.randint(12, 48)
    cursor = Cursor(samples, batch_size, shuffle_seed=shuffle_seed)
    seen = []
    while len(seen) < 3 * samples:
        world = draw.choice([1, 2, 3, 4, 6, 8, 12])
        resumed = Cursor(samples, batch_size, shuffle_seed=shuffle_seed)
        resumed.load_state_dict(cursor.state_dict())
        cursor, micro_batch_size = resumed, draw.randint(1, 7)
        iterations = [iter(cursor.batches(rank, world, micro_batch_size)) for rank in range(world)]
        for _ in range(draw.randint(1, 4)):
            seen += joined(one_step(iterations, batch_size))
            cursor.advance()
    assert cursor.consumed_samples == len(seen)
    epochs = [seen[begin:begin + samples] for begin in range(0, 3 * samples, samples)]
    assert all(sorted(epoch) == list(range(samples)) for epoch in epochs)
    assert (epochs[0] == epochs[1]) == (shuffle_seed is None)


def test_Batches_SameStepOfAnotherWorld_HasTheSameSamplesInTheSameOrder():
    cursor = Cursor(1000, 24, shuffle_seed=7)
    steps = {world: joined(one_step([iter(cursor.batches(rank, world, 2)) for rank in range(world)], 24))
             for world in (1, 2, 3, 4, 6, 8, 12, 24)}
    assert len({tuple(step) for step in steps.values()}) == 1


# What RandomState([1234, epoch]).permutation(10) of numpy 2.4 gives; a checkpoint relies on it.
def test_Batches_Shuffled_OrderNeverChanges():
    cursor = Cursor(10, 10, shuffle_seed=1234)
    iteration = iter(cursor.batches(0, 1, 10))
    assert [next(iteration) for _ in range(2)] == GOLDEN


GOLDEN = [[3, 8, 6, 4, 9, 1, 5, 2, 0, 7], [3, 9, 7, 6, 4, 1, 8, 2, 5, 0]]


def test_Batches_EpochsEnd_LeaveOutWhatFillsNoBatch():
    cursor = Cursor(10, 4, epochs=2)
    assert joined(cursor.batches(0, 1, 4)) == [*range(10), *range(10)]
    cursor = Cursor(10, 6, epochs=1)
    assert joined(cursor.batches(0, 1, 4)) == [*range(6)]


def test_Cursor_LoaderReadsAhead_CountsOnlyWhatWasUsed():
    cursor = Cursor(100, 10)
    iteration = iter(cursor.batches(0, 1, 10))
    for _ in range(5):
        next(iteration)
    cursor.advance()
    assert cursor.state_dict()["consumed_samples"] == 10
    assert next(iter(cursor.batches(0, 1, 10))) == [*range(10, 20)]


def test_Cursor_StateOfOtherSamples_IsRefusedByName():
    state = Cursor(100, 10, shuffle_seed=1).state_dict()
    for cursor, name in ((Cursor(101, 10, shuffle_seed=1), "samples=100"), (Cursor(100, 10), "shuffle_seed=1")):
        with raises_error("BAD_REQUEST") as caught:
            cursor.load_state_dict(state)
        assert name in caught.value.message and name in caught.value.metadata["next"]
    for broken in ({}, {"consumed_samples": -3}, {"consumed_samples": "7"}):
        with raises_error("BAD_REQUEST") as caught:
            Cursor(100, 10).load_state_dict({"samples": 100, "shuffle_seed": None, **broken})
        assert "consumed_samples" in caught.value.message


def test_Cursor_ImpossibleNumbers_AreRefused():
    for arguments in ((0, 1), (1, 0), (1.5, 1), (True, 1)):
        with raises_error("BAD_REQUEST"):
            Cursor(*arguments)
    with raises_error("BAD_REQUEST"):
        Cursor(5, 6, epochs=1)
    with raises_error("BAD_REQUEST"):
        Cursor(5, 5, shuffle_seed=2**32)
    with raises_error("RANK_OUT_OF_RANGE"):
        Cursor(10, 8).batches(3, 3, 1)
    with raises_error("BAD_REQUEST"):
        Cursor(10, 8).batches(0, 9, 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_StatefulDataLoader_StateOfOneRank_ServesAnotherWorld(workers):
    def loaders(world, state):
        cursor = Cursor(200, 24, shuffle_seed=3)
        made = [torchdata.StatefulDataLoader(Numbers(200), batch_sampler=cursor.batches(rank, world, 2),
                                             num_workers=workers) for rank in range(world)]
        for loader in made:
            if state is not None:
                loader.load_state_dict(state)
        return made

    seen, state = [], None
    for world, steps in ((8, 2), (6, 3), (8, 2)):
        made = loaders(world, state)
        iterations = [iter(loader) for loader in made]
        for _ in range(steps):
            seen += joined(one_step(iterations, 24))
        state = made[1].state_dict()  # with workers, several batches are fetched beyond
        for iteration in iterations:
            next(iteration)  # work that is lost when the world changes
    assert sorted(seen) == sorted(set(seen)) and len(seen) == 7 * 24


def test_StatefulDataLoader_SavedWithinAStep_ResumesInTheSameWorldAlone():
    cursor = Cursor(200, 24)
    loader = torchdata.StatefulDataLoader(Numbers(200), batch_sampler=cursor.batches(0, 2, 4))
    iteration = iter(loader)
    first = [next(iteration).tolist() for _ in range(2)]
    state = loader.state_dict()
    again = torchdata.StatefulDataLoader(Numbers(200), batch_sampler=cursor.batches(0, 2, 4))
    again.load_state_dict(state)
    assert joined([*first, next(iter(again))]) == [*range(12)]
    other = torchdata.StatefulDataLoader(Numbers(200), batch_sampler=cursor.batches(0, 3, 4))
    other.load_state_dict(state)
    with raises_error("BAD_REQUEST") as caught:
        iter(other)
    assert "after 2 micro-batches" in caught.value.message


def test_DataLoader_WorkersReadAhead_YieldsTheRanksBatches():
    cursor = Cursor(100, 20, epochs=1)
    loaded = [joined(torch_data.DataLoader(Numbers(100), batch_sampler=cursor.batches(rank, 2, 3), num_workers=2))
              for rank in range(2)]
    assert collections.Counter(loaded[0] + loaded[1]) == collections.Counter(range(100))
    assert loaded[0][:10] == [*range(10)] and loaded[1][:10] == [*range(10, 20)]


def test_Module_IsPublic():
    assert cairn.samples.Cursor is Cursor
    assert isinstance(Cursor(10, 5).state_dict()["consumed_samples"], int)
    assert not isinstance(next(iter(Cursor(10, 5, shuffle_seed=1).batches(0, 1, 5)))[0], numpy.integer)
