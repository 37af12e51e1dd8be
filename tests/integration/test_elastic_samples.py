"""Trains with 8, 6 and again 8 ranks from one job's checkpoints, and records each sample that a saved step has used."""

import collections

import numpy as np
import pytest

import cairn
from testing.library import Library
from testing.ranks import blank, on_ranks, rows

torch_data = Library("torch.utils.data")
torchdata = Library("torchdata.stateful_dataloader")

SAMPLES = 24 * 40  # one epoch
BATCH = 24


class Places:
    def __len__(self):
        return SAMPLES

    def __getitem__(self, place):
        return place


def train(root, ranks, steps, lost, make_loader):
    """Loads the last checkpoint, trains and saves after `steps`, and trains on for `lost` steps that nobody saves.

    Returns the samples of the saved steps, in the order of the steps.
    """
    with cairn.local.Cluster(ranks=ranks, root=root) as cluster:
        def work(rank, client):
            weights = rows(np.arange(960.0), rank, ranks)
            cursor = cairn.samples.Cursor(SAMPLES, BATCH, shuffle_seed=1234, epochs=1)
            loader_state = None
            if client.checkpoints():
                state = {"weights": blank(weights), "cursor": {}, "loader": cairn.per_rank({})}
                report = client.load(state)
                weights = state["weights"]
                cursor.load_state_dict(report.objects["cursor"])
                loader_state = report.objects["loader"]
                if isinstance(loader_state, cairn.PerRankValues):
                    loader_state = loader_state[0]
            loader = make_loader(cursor.batches(rank, ranks, micro_batch_size=2), loader_state)
            iteration, used = iter(loader), []
            part = BATCH // ranks

            def step():
                taken = []
                while len(taken) < part:
                    taken += next(iteration).tolist()
                cursor.advance()
                return taken

            for _ in range(steps):
                used.append(step())
            state = {"weights": weights, "cursor": cursor.state_dict()}
            state["loader"] = cairn.per_rank(loader.state_dict() if hasattr(loader, "state_dict") else {})
            client.save(cursor.consumed_samples // BATCH, state).wait()
            for _ in range(lost):
                step()
            return used

        of_ranks = on_ranks(cluster, work)
    return [[sample for used in of_ranks for sample in used[step]] for step in range(steps)]


def plain_loader(batches, state):
    return torch_data.DataLoader(Places(), batch_sampler=batches, num_workers=1)


def stateful_loader(batches, state):
    loader = torchdata.StatefulDataLoader(Places(), batch_sampler=batches)
    if state:
        loader.load_state_dict(state)
    return loader


@pytest.mark.parametrize("make_loader", [plain_loader, stateful_loader])
def test_eight_six_eight_ranks_see_each_sample_once(root, make_loader):
    used = []
    for ranks, steps, lost in ((8, 10, 3), (6, 13, 2), (8, 17, 0)):
        used += train(root, ranks, steps, lost, make_loader)
    assert len(used) == 40 and all(len(step) == BATCH for step in used)
    seen = collections.Counter(sample for step in used for sample in step)
    assert seen == collections.Counter(range(SAMPLES))
    cursor = cairn.samples.Cursor(SAMPLES, BATCH, shuffle_seed=1234, epochs=1)
    assert used == [list(batch) for batch in cursor.batches(0, 1, BATCH)], "the order depends on the world"
