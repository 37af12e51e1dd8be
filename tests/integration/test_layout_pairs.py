"""Takes random pairs of parallel layouts through real processes and files. A state is saved under one layout and loaded
under the other; it must equal numpy's own cuts, and every byte must be read once.

CAIRN_LAYOUT_PAIRS sets how many (default 6), CAIRN_LAYOUT_SEED the first seed.
"""

import os
import random

import pytest

import cairn
from testing.parallel import WHOLE, layout
from testing.ranks import blank, on_ranks

SHAPES = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (3, 1, 1), (1, 1, 3), (2, 2, 1), (2, 1, 2), (1, 2, 2), (4, 1, 1),
          (1, 4, 1), (1, 1, 5), (3, 1, 2), (1, 3, 2), (2, 3, 1)]
FIRST = int(os.environ.get("CAIRN_LAYOUT_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("CAIRN_LAYOUT_PAIRS", "6")))
UNIQUE = 4 * sum(2 * array.size for array in WHOLE.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_pair(tmp_path, seed):
    choose = random.Random(seed)
    source, target = choose.choice(SHAPES), choose.choice(SHAPES)
    bins = choose.randint(1, 3)
    make = layout(*source)
    ranks = source[0] * source[1] * source[2]
    flags = [f"--bins-per-rank={bins}", f"--moves={choose.choice(['auto', 'never'])}"]
    with cairn.local.Cluster(ranks=ranks, root=tmp_path, coordinator_flags=flags) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(seed, make(rank), timeout=60).wait(60))
    wanted = layout(*target)

    def load(rank, client):
        state = {name: blank(shard) for name, shard in wanted(rank).items()}
        report = client.load(state)
        for name, shard in wanted(rank).items():
            assert state[name].array.tobytes() == shard.array.tobytes(), (source, target, rank, name)
        return report

    ranks = target[0] * target[1] * target[2]
    agent_flags = choose.choice([[], ["--shared-memory=never"]])
    with cairn.local.Cluster(ranks=ranks, root=tmp_path, agent_flags=agent_flags) as cluster:
        reports = on_ranks(cluster, load)
    for report in reports:
        assert report.step == seed and report.total_bytes_read == report.unique_bytes == UNIQUE, (source, target)
    assert sum(report.bytes_read for report in reports) == UNIQUE
