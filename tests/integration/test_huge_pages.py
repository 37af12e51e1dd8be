"""Tests agents that take staging and read buffers from huge pages that an administrator has set aside."""

import fcntl
import pathlib

import numpy as np
import pytest

import cairn
from testing.ranks import blank, noise, on_ranks, rows

RANKS = 2
WHOLE = noise((64, 32 << 10), np.float32, 1)  # 4 MiB for a rank
SET_ASIDE = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
NEEDED = 64
FLAGS = {"agent_flags": ["--huge-pages", "--round-bytes=2MiB"], "coordinator_flags": ["--phase-timeout=30s"]}


@pytest.fixture
def alone(tmp_path_factory):
    """One test at a time changes what the machine's processes may take."""
    with open(tmp_path_factory.getbasetemp().parent / "huge-pages.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def set_aside(alone):
    try:
        before = SET_ASIDE.read_text()
        SET_ASIDE.write_text(str(int(before) + NEEDED))
    except OSError as error:
        pytest.skip(f"huge pages cannot be set aside here: {error}")
    try:
        if int(SET_ASIDE.read_text()) < int(before) + NEEDED:
            pytest.skip("the kernel cannot gather as many huge pages now")
        yield
    finally:
        SET_ASIDE.write_text(before)


def load_all(cluster, axis: int) -> list:
    def load(rank, client):
        target = {"w": blank(rows(WHOLE, rank, RANKS, axis))}
        report = client.load(target)
        assert target["w"].array.tobytes() == rows(WHOLE, rank, RANKS, axis).array.tobytes()
        return report

    return on_ranks(cluster, load)


def save_and_load(cluster, axis: int) -> list:
    on_ranks(cluster, lambda rank, client: client.save(5, {"w": rows(WHOLE, rank, RANKS)}).wait())
    return load_all(cluster, axis)


@pytest.mark.parametrize("more", [[], ["--slab-loads=never"], ["--shared-memory=never"]])
@pytest.mark.parametrize("axis", [0, 1])
def test_saves_and_loads_are_those_of_other_memory(root, set_aside, more, axis):
    flags = {**FLAGS, "agent_flags": FLAGS["agent_flags"] + more}
    with cairn.local.Cluster(ranks=RANKS, root=root, **flags) as cluster:
        save_and_load(cluster, axis)
        log = "".join(agent.log.read_text() for agent in cluster.agents)
    assert "huge_pages=set_aside" in log
    assert "huge_pages_refused" not in log, log


def test_the_first_load_of_a_step_goes_past_the_page_cache(root, set_aside):
    flags = {**FLAGS, "agent_flags": [*FLAGS["agent_flags"], "--slab-loads=never"]}
    with cairn.local.Cluster(ranks=RANKS, root=root, **flags) as cluster:
        reports = [save_and_load(cluster, 0), load_all(cluster, 0), load_all(cluster, 0)]
    assert [report.path for rank in zip(*reports) for report in rank] == ["direct", "cached", "cached"] * RANKS


def test_where_none_are_free_the_log_says_so_and_saves_go_on(root, alone):
    if SET_ASIDE.exists() and int(SET_ASIDE.read_text()):
        pytest.skip("this machine has huge pages set aside")
    with cairn.local.Cluster(ranks=RANKS, root=root, **FLAGS) as cluster:
        save_and_load(cluster, 0)
        log = cluster.agents[0].log.read_text()
    assert "huge_pages_refused" in log
    assert "nr_hugepages" in log
    assert "huge_pages=set_aside" not in log
