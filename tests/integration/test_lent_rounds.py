"""Tests loads in which trainers read files themselves: rounds that only one rank takes, and that are in memory."""

import errno
import os
import sys
import threading

import numpy as np
import pytest

import cairn
from cairn._agent import shared_memory
from cairn._base import native
from cairn._load import receiver
from testing.ranks import blank, files_below, noise, on_ranks, open_descriptors, rows

RANKS = 2
WHOLE = noise((64, 32 << 10), np.float32, 1)  # 8 MiB: several rounds and checksum blocks for a rank
FLAGS = {"coordinator_flags": ["--phase-timeout=30s"]}
# Through the page cache, also on machines that give huge pages.
FROM_FILES = {"agent_flags": ["--round-bytes=1MiB", "--slab-loads=never", "--io=buffered"]}
FROM_SLABS = {"agent_flags": ["--round-bytes=1MiB"]}


def state_of(rank: int) -> dict:
    return {"w": rows(WHOLE, rank, RANKS), "meta": {"lr": 0.25}, "mine": cairn.per_rank([rank, "x" * 100])}


def load(rank: int, client, axis: int = 0, **options):
    target = {"w": blank(rows(WHOLE, rank, RANKS, axis))}
    report = client.load(target, **options)
    assert target["w"].array.tobytes() == rows(WHOLE, rank, RANKS, axis).array.tobytes(), f"rank {rank}"
    assert report.objects == {"meta": {"lr": 0.25}, "mine": [rank, "x" * 100]}
    return report


@pytest.fixture
def cluster(root, request):
    with cairn.local.Cluster(ranks=RANKS, root=root, **FLAGS, **request.param) as made:
        on_ranks(made, lambda rank, client: client.save(5, state_of(rank)).wait())
        yield made


@pytest.fixture
def seen(probe):
    """What was seen of batches: the number of those of pieces, and the number of others."""
    counts = {"pieces": 0, "buffers": 0}

    def count(key):
        counts[key] += 1

    probe("pieces", lambda batch: count("pieces"))
    probe("receive", lambda batch, buffer: count("buffers"))
    return counts


def log_of(cluster) -> str:
    return "".join(agent.log.read_text() for agent in cluster.agents)


@pytest.mark.parametrize("cluster, path", [(FROM_FILES, "cached"), (FROM_SLABS, "slab")], indirect=["cluster"])
def test_own_bytes_are_read_by_the_trainer_and_no_buffer_is_used_for_them(cluster, path, seen):
    reports = on_ranks(cluster, load)
    assert [report.path for report in reports] == [path] * RANKS
    assert seen["pieces"] >= 4, seen
    # Objects of all ranks are taken by all, so they come in buffers.
    assert seen["buffers"] <= 4, seen
    assert reports[0].total_bytes_read == reports[0].unique_bytes


@pytest.mark.parametrize("cluster", [FROM_FILES], indirect=True)
def test_what_others_take_too_or_is_cut_otherwise_comes_in_buffers(cluster, seen):
    on_ranks(cluster, lambda rank, client: load(rank, client, axis=1))
    assert seen == {"pieces": 0, "buffers": seen["buffers"]} and seen["buffers"] >= 4


@pytest.mark.parametrize("cluster", [FROM_FILES], indirect=True)
def test_cold_files_are_fetched_by_the_agent_before_the_trainer_reads(cluster, seen):
    for path in files_below(cluster.root, ".safetensors"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert [report.path for report in on_ranks(cluster, load)] == ["cached"] * RANKS
    assert seen["pieces"] >= 4, seen
    assert "lent_round_refused" not in log_of(cluster)


def test_a_few_bytes_that_were_just_saved_are_read_by_the_trainer(root):
    """Their file is one page and a part of another, which a direct write leaves in the cache half made."""
    with cairn.local.Cluster(1, root, agent_flags=["--slab-loads=never"]) as cluster, cluster.connect(0) as client:
        client.save(1, {"w": np.arange(3.0)}).wait()
        client.load({"w": np.zeros(3)})
        assert "lent_round_refused" not in log_of(cluster)


@pytest.mark.parametrize("cluster", [FROM_FILES, FROM_SLABS], indirect=True)
@pytest.mark.parametrize("why", [errno.EAGAIN, errno.EOPNOTSUPP, errno.EIO])
def test_a_trainer_that_cannot_read_gets_buffers(cluster, seen, monkeypatch, why):
    monkeypatch.setattr(native.PieceList, "read", lambda pieces: ([], os.strerror(why)))
    on_ranks(cluster, load)
    assert 1 <= seen["pieces"] <= 4 * RANKS, f"it is asked twice, and for what was lent meanwhile: {seen}"
    assert seen["buffers"] >= 4
    assert os.strerror(why) in log_of(cluster)


@pytest.mark.parametrize("cluster", [FROM_FILES], indirect=True)
def test_a_trainer_without_descriptors_gets_buffers(cluster, seen, monkeypatch):
    right = shared_memory.receive_descriptor

    def refuse(path, descriptor_id, lender, patience):
        if sys._getframe(1).f_code.co_name == "_open":  # a buffer needs one for all rounds
            raise shared_memory._no_descriptor_left(path)
        return right(path, descriptor_id, lender, patience)

    monkeypatch.setattr(shared_memory, "receive_descriptor", refuse)
    on_ranks(cluster, load)
    assert seen["buffers"] >= 4
    assert "has none left" in log_of(cluster)


@pytest.mark.parametrize("cluster", [FROM_SLABS], indirect=True)
def test_a_forked_child_has_no_staging_buffer(cluster, seen, monkeypatch):
    right, children = native.PieceList.read, []

    def fork(pieces):
        child = os.fork()
        if child == 0:
            os._exit(open_descriptors("cairn-slab"))
        children.append(os.waitpid(child, 0)[1])
        return right(pieces)

    monkeypatch.setattr(native.PieceList, "read", fork)
    with cairn.connect(cluster.agents[0].address) as first, cairn.connect(cluster.agents[1].address) as second:
        other = threading.Thread(target=load, args=(1, second))
        other.start()
        load(0, first)
        other.join()
    assert children == [0] * len(children) and children


@pytest.mark.parametrize("cluster", [FROM_FILES, FROM_SLABS], indirect=True)
def test_bytes_that_changed_on_their_way_are_noticed_and_read_again(cluster, seen, monkeypatch):
    right = native.PieceList.read

    def spoil(pieces):
        checksums, refusal = right(pieces)
        return [checksums[0] ^ 1, *checksums[1:]], refusal

    monkeypatch.setattr(native.PieceList, "read", spoil)
    on_ranks(cluster, load)
    assert seen["buffers"] >= 4
    assert "lent_round_refused" in log_of(cluster)


@pytest.mark.parametrize("cluster", [FROM_FILES], indirect=True)
def test_a_damaged_file_is_named_with_its_tensor(cluster, seen):
    path = max(files_below(cluster.root, ".safetensors"))
    with open(path, "r+b") as file:
        file.seek(2 << 20)
        byte = file.read(1)
        file.seek(2 << 20)
        file.write(bytes([byte[0] ^ 4]))
    errors = on_ranks(cluster, load, errors=True)
    assert [error.reason for error in errors] == ["CHECKSUM_MISMATCH"] * RANKS
    assert {error.metadata["file"] for error in errors} == {str(path)}
    assert all("w" in error.metadata["tensor"] for error in errors)
    assert seen["pieces"] > 0


@pytest.mark.parametrize("cluster", [FROM_SLABS], indirect=True)
def test_no_descriptor_of_a_load_is_left_in_the_trainer(cluster, seen):
    before = open_descriptors("/memfd:cairn")
    on_ranks(cluster, load)
    assert seen["pieces"] > 0
    assert open_descriptors("/memfd:cairn") == before


@pytest.mark.parametrize("cluster", [FROM_FILES], indirect=True)
def test_a_trainer_that_ends_without_reading_is_refused(cluster, monkeypatch):
    """The agent must not take for loaded what nobody has compared."""
    monkeypatch.setattr(receiver, "receive", lambda agent, incarnation, number, declared, begun, *rest:
                        ([bytearray(entry.bytes) for entry in begun.objects], None))
    def end_at_once(rank, client):
        client.load({"w": blank(rows(WHOLE, rank, RANKS))}, timeout=10)

    errors = on_ranks(cluster, end_at_once, errors=True)
    assert [error.reason for error in errors] == ["BAD_REQUEST"] * RANKS
    assert "batches of pieces" in str(errors[0])
