"""Tests restarts beside living agents: what their slabs hold of the last committed step is loaded without storage."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import cairn
from testing.parallel import layout
from testing.ranks import blank, files_below, freeze, noise, on_ranks, rows, until

RANKS = 2
WHOLE = noise((64, 16 << 10), np.float32, 1)  # 4 MiB
SHARED = noise((3000,), np.int16, 2)
FLAGS = {"coordinator_flags": ["--phase-timeout=30s", "--lease-ttl=2s"]}

# Saves step 5 and then only waits; told by a line, it writes once more what it was told of the slab for.
TRAINER = """
import sys
import numpy as np
import cairn
from cairn._base import probes
from cairn._staging.slab_copies import copy_host_items
from test_slab_loads import state_of
rank = int(sys.argv[2])
client = cairn.connect(sys.argv[1])
seen = []
probes.add("copy", lambda **told: seen.append(told))
state = state_of(rank)
client.save(5, state).wait()
print("saved", flush=True)
sys.stdin.readline()
state["w"].array[:] = -1
copy_host_items(**seen[0])
print("written late", flush=True)
sys.stdin.readline()
"""


def state_of(rank: int, axis: int = 0) -> dict:
    return {"w": rows(WHOLE, rank, RANKS, axis), "shared": SHARED.copy(), "meta": {"lr": 0.25},
            "mine": cairn.per_rank([rank, "x" * 100])}


def target_of(rank: int, axis: int = 0) -> dict:
    return {"w": blank(rows(WHOLE, rank, RANKS, axis)), "shared": np.zeros_like(SHARED)}


def load(rank: int, client, axis: int = 0, step: int | None = None):
    target = target_of(rank, axis)
    report = client.load(target, step)
    assert target["w"].array.tobytes() == rows(WHOLE, rank, RANKS, axis).array.tobytes(), f"rank {rank}"
    assert target["shared"].tobytes() == SHARED.tobytes()
    assert report.objects == {"meta": {"lr": 0.25}, "mine": [rank, "x" * 100]}
    return report


@pytest.fixture
def cluster(root):
    with cairn.local.Cluster(ranks=RANKS, root=root, **FLAGS) as made:
        yield made


def start(cluster) -> list[subprocess.Popen]:
    """Starts trainers, which save."""
    paths = [pathlib.Path(cairn.__file__).parents[1], pathlib.Path(__file__).parents[1], pathlib.Path(__file__).parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    trainers = [
        cluster.spawn([sys.executable, "-c", TRAINER, cluster.agents[rank].address, str(rank)], stdin=subprocess.PIPE,
                      stdout=subprocess.PIPE, text=True, env=environment) for rank in range(RANKS)
    ]
    for trainer in trainers:
        assert trainer.stdout.readline().strip() == "saved"
    return trainers


def kill(trainers: list[subprocess.Popen]) -> None:
    for trainer in trainers:
        trainer.kill()
        trainer.wait()


def await_ends(cluster) -> None:
    """Waits until the agents know that their trainers have ended."""
    for agent in cluster.agents:
        until(lambda agent=agent: "event=trainer_ended" in agent.log.read_text(), text="the end of a trainer")


def spoil(root: pathlib.Path) -> None:
    """Overwrites all bins with zeros, in their lengths: whoever reads them finds that."""
    bins = files_below(root, ".safetensors")
    assert bins
    for path in bins:
        path.write_bytes(bytes(path.stat().st_size))


def rchar(cluster) -> int:
    return sum(
        int(line.split(": ")[1]) for agent in cluster.agents
        for line in pathlib.Path(f"/proc/{agent.pid}/io").read_text().splitlines() if line.startswith("rchar"))


def slab_of(agent) -> pathlib.Path:
    for entry in pathlib.Path(f"/proc/{agent.pid}/fd").iterdir():
        if "memfd:cairn-slab" in os.readlink(entry):
            return entry
    raise AssertionError("the agent has no slab")


def change_in_slab(agent, content: bytes) -> None:
    """Flips a bit of one of these bytes, which stand in the agent's slab."""
    path = slab_of(agent)
    at = path.read_bytes().find(content)
    assert at >= 0
    with open(path, "r+b") as slab:
        slab.seek(at + len(content) // 2)
        byte = slab.read(1)[0]
        slab.seek(at + len(content) // 2)
        slab.write(bytes([byte ^ 4]))


@pytest.mark.parametrize("axis", [0, 1], ids=["same-layout", "other-layout"])
def test_killed_trainers_load_from_slabs_and_without_them_by_name(root, cluster, axis):
    kill(start(cluster))
    await_ends(cluster)
    spoil(root)
    before = rchar(cluster)
    for report in on_ranks(cluster, lambda rank, client: load(rank, client, axis)):
        assert (report.step, report.path, report.storage_bytes) == (5, "slab", 0), report
        assert report.total_bytes_read == report.unique_bytes
    assert rchar(cluster) - before < WHOLE.nbytes // 16, "the agents have read files"
    for agent in cluster.agents:
        until(lambda agent=agent: re.search("event=load_ended .*path=slab ", agent.log.read_text()),
              text="the word of the report in the agent's log")
    # Again, and of the step by its number.
    for report in on_ranks(cluster, lambda rank, client: load(rank, client, axis, 5)):
        assert report.path == "slab"
    cluster.agents[1].kill()
    cluster.agents[1].restart()
    answers = on_ranks(cluster, lambda rank, client: load(rank, client, axis), errors=True)
    for answer in answers:
        assert isinstance(answer, cairn.Error) and answer.reason == "CHECKSUM_MISMATCH", answer
        assert "rank00001" in answer.metadata["file"], answer.metadata


def test_next_save_takes_the_slab(root, cluster):
    kill(start(cluster))
    await_ends(cluster)

    def save_another(rank, client):
        load(rank, client)
        other = state_of(rank)
        other["w"].array[:] = 7
        client.save(6, other).wait()
        target = target_of(rank)
        report = client.load(target)
        assert (report.step, report.path) == (6, "slab") and (target["w"].array == 7).all()
        return load(rank, client, step=5)

    for report in on_ranks(cluster, save_another):
        assert report.path != "slab" and report.storage_bytes > 0, "step 5 stands in files only"


def test_ranks_without_a_slab_read_files_beside_those_that_have_one(root, cluster):
    kill(start(cluster))
    await_ends(cluster)
    # One begins to save another step into its slab, which the others do not.
    other = state_of(0)
    other["w"].array[:] = 7
    failed, = on_ranks(cluster, lambda rank, client: client.save(6, other, timeout=1).wait(), [0], errors=True)
    assert isinstance(failed, cairn.Error), failed
    for axis in (0, 1):
        for report in on_ranks(cluster, lambda rank, client: load(rank, client, axis)):
            assert report.step == 5 and report.path in ("cached", "direct"), report
            assert 0 < report.storage_bytes < report.unique_bytes, report


@pytest.mark.parametrize("grids", [((2, 2, 1), (1, 2, 2)), ((4, 1, 1), (2, 1, 2)), ((1, 3, 2), (3, 1, 2))], ids=str)
@pytest.mark.parametrize("moves", ["auto", "never"])
def test_slabs_hold_what_the_files_hold_under_any_layout(root, grids, moves):
    source, target = (layout(*grid) for grid in grids)
    ranks = int(np.prod(grids[0]))

    def load_both(rank, client):
        reports = []
        for make in (source, target):
            wanted = make(rank)
            state = {name: blank(shard) for name, shard in wanted.items()}
            reports.append(client.load(state))
            for name, shard in wanted.items():
                assert state[name].array.tobytes() == shard.array.tobytes(), (rank, name)
        return reports

    flags = [*FLAGS["coordinator_flags"], f"--moves={moves}", "--bins-per-rank=2"]
    with cairn.local.Cluster(ranks=ranks, root=root, coordinator_flags=flags) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, source(rank)).wait())
        for reports in on_ranks(cluster, load_both):
            for report in reports:
                assert (report.path, report.storage_bytes) == ("slab", 0), report
                assert report.total_bytes_read == report.unique_bytes
        for agent in cluster.agents:
            agent.kill()
            agent.restart()
        for reports in on_ranks(cluster, load_both):
            for report in reports:
                assert report.path in ("cached", "direct") and report.storage_bytes >= report.unique_bytes, report


def test_changed_byte_in_a_slab_is_found_and_the_file_is_read(root, cluster):
    kill(start(cluster))
    await_ends(cluster)
    part = rows(WHOLE, 1, RANKS).array.tobytes()
    change_in_slab(cluster.agents[1], part)
    assert {report.step for report in on_ranks(cluster, load)} == {5}
    log = cluster.agents[1].log.read_text()
    found = next(line for line in log.splitlines() if "event=slab_differs" in line)
    assert "CHECKSUM_MISMATCH" in found and "rank00001" in found and " w" in found, found
    spoil(root)
    answers = on_ranks(cluster, load, errors=True)
    for answer in answers:
        assert isinstance(answer, cairn.Error) and answer.reason == "CHECKSUM_MISMATCH", answer
        assert "rank00001" in answer.metadata["file"], answer.metadata


def test_late_write_into_a_slab_is_found(root, cluster):
    trainers = start(cluster)
    for trainer in trainers:  # as a copy that was believed to have ended
        trainer.stdin.write("\n")
        trainer.stdin.flush()
        assert trainer.stdout.readline().strip() == "written late"
    kill(trainers)
    await_ends(cluster)
    on_ranks(cluster, load)
    for agent in cluster.agents:
        assert "event=slab_differs" in agent.log.read_text()


def test_slab_that_a_frozen_trainer_may_still_write_is_not_loaded_from(root, cluster):
    trainers = start(cluster)
    for trainer in trainers:
        freeze(trainer.pid)
    for rank, report in enumerate(on_ranks(cluster, load)):  # new trainers have taken their place
        assert report.path in ("cached", "direct") and report.storage_bytes > 0
        log = cluster.agents[rank].log.read_text()
        assert 'slab="no: an earlier trainer may still write into the staging buffer"' in log
    kill(trainers)
    await_ends(cluster)
    for report in on_ranks(cluster, load):
        assert report.path == "slab"


def test_agents_that_were_told_never_to(root):
    with cairn.local.Cluster(ranks=RANKS, root=root, agent_flags=["--slab-loads=never"], **FLAGS) as cluster:
        kill(start(cluster))
        await_ends(cluster)
        for report in on_ranks(cluster, load):
            assert report.path in ("cached", "direct") and report.storage_bytes > 0
