"""Tests shards that one rank holds and another writes, because the load is uneven, with real agents and files."""

import pathlib
import signal
import threading

import numpy as np
import pytest

import cairn
from cairn._base import probes
from testing.ranks import blank, call_coordinator, command_json, noise, on_ranks, reasons, rows, until

FLAGS = {"coordinator_flags": ["--phase-timeout=20s", "--lease-ttl=2s"]}
# This is like an unevenly wrapped FSDP unit, of which rank 0 has most. Each of the names is one shard of one rank.
SIZES = {0: [20, 20, 20, 10, 10, 10, 10, 5, 5, 5, 5, 2, 2, 2, 1, 1], 1: [15], 2: [5]}


def whole(rank: int, index: int, step: int = 1) -> np.ndarray:
    return noise((SIZES[rank][index] * 1024, 4), np.float32, 100 * rank + index + 1000 * step)


def state(rank: int, step: int = 1) -> dict:
    tensors = {f"unit{rank}.w{i}": cairn.Shard(whole(rank, i, step), (SIZES[rank][i] * 1024, 4), (0, 0))
               for i in range(len(SIZES[rank]))}
    # All ranks hold uneven flat ranges of one parameter, and all of another tensor.
    edge = [0, 50_000, 50_010, 50_011]
    flat = noise((50_011,), np.float32, 7 + step)
    tensors["flat"] = cairn.Shard(flat[edge[rank]:edge[rank + 1]].copy(), (50_011,), (0,), (50_011,),
                                  (edge[rank], edge[rank + 1]))
    return tensors | {"all": noise((64,), np.int32, 5), "step": step, "seed": cairn.per_rank(rank)}


def check_load(cluster, step: int, make=state):
    """Loads under the layout that was saved and under another one, and compares every byte."""
    def same(rank, client):
        target = {name: blank(value) if isinstance(value, cairn.Shard) else value
                  for name, value in make(rank, step).items() if name not in ("step", "seed", "all")}
        target["all"] = np.zeros(64, np.int32)
        report = client.load(target, step)
        assert report.objects["step"] == step and report.objects["seed"] == rank
        assert report.total_bytes_read == report.unique_bytes
        for name, value in make(rank, step).items():
            if isinstance(value, cairn.Shard):
                assert target[name].array.tobytes() == value.array.tobytes(), name
        return report

    def other(rank, client):
        target = {f"unit{r}.w{i}": blank(rows(whole(r, i, step), rank, cluster.ranks))
                  for r in SIZES for i in range(len(SIZES[r]))}
        target |= {"flat": np.zeros(50_011, np.float32), "all": np.zeros(64, np.int32)}
        client.load(target, step)
        for r in SIZES:
            for i in range(len(SIZES[r])):
                expected = rows(whole(r, i, step), rank, cluster.ranks)
                assert target[f"unit{r}.w{i}"].array.tobytes() == expected.array.tobytes()
        assert target["flat"].tobytes() == noise((50_011,), np.float32, 7 + step).tobytes()

    on_ranks(cluster, same)
    on_ranks(cluster, other)


def written(cluster, step: int) -> list[int]:
    """Returns the bytes that each rank wrote."""
    directory = cluster.root / command_json(
        "show", f"demo@{step}", f"--coordinator={cluster.coordinator.address}")["data_directory"]
    sizes = [0] * cluster.ranks
    for file in directory.glob("*.safetensors"):
        sizes[int(file.name[4:9])] += file.stat().st_size
    return sizes


@pytest.mark.parametrize("agent_flags, transport", [([], "shared-memory"), (["--shared-memory=never"], "grpc")])
def test_uneven_load_is_written_evenly(root, agent_flags, transport):
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags, **FLAGS) as cluster:
        for step in (1, 2):
            on_ranks(cluster, lambda rank, client: client.save(step, state(rank, step), timeout=30).wait(60))
            sizes = written(cluster, step)
            largest = SIZES[0][0] * 1024 * 16
            # Headers of 4096 bytes and slots come on top.
            assert max(sizes) <= max(1.02 * sum(sizes) / 3, largest) + 64 * 1024, sizes
            log = cluster.agents[2].log.read_text()
            assert f"transport={transport}" in log and "moved_in=0" not in log.split("event=written")[-1]
            check_load(cluster, step)


def test_moves_can_be_switched_off(root):
    with cairn.local.Cluster(ranks=3, root=root, coordinator_flags=["--moves=never"]) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, state(rank), timeout=30).wait(60))
        sizes = written(cluster, 1)
        assert sizes[0] > 3 * sizes[1] > 0
        assert "save_source" not in cluster.agents[2].log.read_text()


def test_save_goes_on_when_the_coordinator_restarts_while_shards_move(root):
    with cairn.local.Cluster(ranks=3, root=root, **FLAGS) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, state(rank), timeout=30).wait(60))
        go = threading.Event()
        saves = held_save(cluster, 2, go)
        until(lambda: "step=2" in cluster.agents[2].log.read_text(), text="rank 2 waiting for rank 0")
        cluster.coordinator.kill(signal.SIGKILL)
        cluster.coordinator.restart()
        go.set()
        saves.join()
        assert saves.reasons() == ["", "", ""], saves.answers
        check_load(cluster, 2)


def job_of(cluster):
    return call_coordinator(cluster, "GetJob", job="demo")


class Held:
    """Runs a save of all ranks in the background. Rank 0 stages only when it is told to."""

    def __init__(self, cluster, step, go, make):
        def work(rank, client):
            return client.save(step, make(rank, step), timeout=60).wait(90)

        def wait(rank, **_):
            if rank == 0:
                assert go.wait(60)

        def run():
            with probes.at("stage", wait):
                self.answers = on_ranks(cluster, work, errors=True)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def join(self):
        self._thread.join(120)
        assert not self._thread.is_alive()

    def reasons(self):
        return reasons(self.answers)


def held_save(cluster, step, go, make=state) -> Held:
    return Held(cluster, step, go, make)


def test_rank_that_does_not_stage_is_late_and_not_those_that_wait_for_its_shards(root):
    with cairn.local.Cluster(ranks=3, root=root, coordinator_flags=["--phase-timeout=4s", "--lease-ttl=2s"]) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, state(rank), timeout=30).wait(60))
        go = threading.Event()
        saves = held_save(cluster, 2, go)
        # A rank that waits for another rank's shards says so.
        until(lambda: any("waits for shards of rank 0" in rank.note for rank in job_of(cluster).checkpoint.ranks),
              text="the note of a rank that waits")
        until(lambda: "RANK_LATE" in cluster.coordinator.log.read_text() or
              "state=ABORT" in cluster.coordinator.log.read_text(), text="the end of the save")
        go.set()
        saves.join()
        assert set(saves.reasons()) == {"RANK_LATE"}, saves.answers
        for answer in saves.answers:
            assert answer.metadata["ranks"] == "0" and answer.metadata["phase"] == "staging", answer.metadata
        on_ranks(cluster, lambda rank, client: client.save(3, state(rank, 3), timeout=30).wait(60))
        check_load(cluster, 3)


@pytest.mark.parametrize("agent_flags", [[], ["--shared-memory=never"]])
def test_rank_whose_agent_is_killed_before_its_shards_have_moved_is_named(root, agent_flags):
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags, **FLAGS) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, state(rank), timeout=30).wait(60))
        go = threading.Event()
        saves = held_save(cluster, 2, go)
        until(lambda: "step=2" in cluster.agents[2].log.read_text(), text="rank 2 waiting for rank 0")
        cluster.agents[0].kill(signal.SIGKILL)
        until(lambda: "state=ABORTED" in cluster.coordinator.log.read_text(), text="the end of the save")
        go.set()
        cluster.agents[0].restart()
        saves.join()
        for answer in saves.answers[1:]:
            assert answer.reason == "RANK_LOST" and answer.metadata["ranks"] == "0", answer
        with cluster.connect(1) as client:
            assert client.checkpoints() == [1]
        on_ranks(cluster, lambda rank, client: client.save(3, state(rank, 3), timeout=30).wait(60))
        check_load(cluster, 3)


def test_agent_that_is_killed_in_the_middle_leaves_a_whole_checkpoint_or_none(root):
    def big(rank, step):
        return {f"w{i}": noise((1 << 20, 4), np.float32, i + step) for i in range(12 if rank == 0 else 0)} | {
            f"r{rank}": np.full(7, rank)}

    with cairn.local.Cluster(ranks=3, root=root, agent_flags=["--shared-memory=never"], **FLAGS) as cluster:
        go = threading.Event()
        saves = held_save(cluster, 1, go, big)
        go.set()
        until(lambda: "save_source" in cluster.agents[1].log.read_text() or
              "event=written" in cluster.agents[1].log.read_text(), text="rank 1 moving shards in")
        cluster.agents[0].kill(signal.SIGKILL)
        until(lambda: "state=ABORTED" in cluster.coordinator.log.read_text() or
              "state=COMMITTED" in cluster.coordinator.log.read_text(), text="the outcome")
        cluster.agents[0].restart()
        saves.join()
        with cluster.connect(1) as client:
            committed = client.checkpoints()
        answer = saves.answers[1]
        if isinstance(answer, cairn.Error):
            assert committed == [] and answer.reason in ("RANK_LOST", "TRANSPORT_FAILED"), answer
            assert "0" in answer.metadata["ranks"], answer.metadata
            attempts = list((pathlib.Path(root) / "demo" / "000000000001").glob("0001/*"))
            assert attempts == [], "files of an aborted attempt"
        else:
            assert committed == [1]
        on_ranks(cluster, lambda rank, client: client.save(2, big(rank, 2), timeout=30).wait(60))
        report = on_ranks(cluster, lambda rank, client: client.load(
            {name: np.zeros_like(value) for name, value in big(rank, 2).items()}, 2))[0]
        assert report.unique_bytes == report.total_bytes_read


def test_layout_that_changes_moves_other_shards(root):
    """The ranks stage under the old plan, and take over what the new plan moves to them all the same."""
    with cairn.local.Cluster(ranks=3, root=root, **FLAGS) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, state(rank), timeout=30).wait(60))

        def changed(rank, step):
            more = {"late": noise((60 * 1024, 4), np.float32, 9)} if rank == 1 else {}
            return state(rank, step) | more

        answers = on_ranks(cluster, lambda rank, client: client.save(2, changed(rank, 2), timeout=30).wait(60),
                           errors=True)
        if any(reasons(answers)):
            assert set(reasons(answers)) == {"LAYOUT_CHANGED"}, answers
            on_ranks(cluster, lambda rank, client: client.save(2, changed(rank, 2), timeout=30).wait(60))
        sizes = written(cluster, 2)
        assert max(sizes) <= max(1.02 * sum(sizes) / 3, 60 * 1024 * 16) + 64 * 1024, sizes

        def load(rank, client):
            target = {name: blank(value) if isinstance(value, cairn.Shard) else np.zeros_like(value)
                      for name, value in changed(rank, 2).items() if isinstance(value, (cairn.Shard, np.ndarray))}
            client.load(target, 2)
            for name, value in changed(rank, 2).items():
                if isinstance(value, cairn.Shard):
                    assert target[name].array.tobytes() == value.array.tobytes()
            if rank == 1:
                assert target["late"].tobytes() == changed(1, 2)["late"].tobytes()

        on_ranks(cluster, load)
