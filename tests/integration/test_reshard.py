"""Tests client.reshard, from one live layout to another, through memory alone."""

import pathlib
import random
import signal
import threading

import grpc
import numpy as np
import pytest

import cairn
from cairn._base import wire
from testing.parallel import WHOLE, layout
from testing.ranks import blank, call_coordinator, noise, on_ranks, reasons, rows, until

FLAGS = {"coordinator_flags": ["--phase-timeout=20s", "--lease-ttl=2s"]}


def empty(state: dict) -> dict:
    return {name: blank(shard) for name, shard in state.items()}


def reshard(cluster, source, target, **options) -> list:
    """Makes every rank reshard from source(rank) to target(rank) (None: nothing) and compare with numpy's own cut."""
    def work(rank, client):
        wanted = target(rank) or {}
        given = empty(wanted)
        report = client.reshard(source(rank) or {}, given, **options)
        for name, shard in wanted.items():
            assert given[name].array.tobytes() == shard.array.tobytes(), (rank, name)
        return report

    return on_ranks(cluster, work)


def first(ranks: int, make):
    return lambda rank: make(rank) if rank < ranks else None


def no_files(root) -> bool:
    return not list(pathlib.Path(root).glob("**/*.safetensors"))


@pytest.mark.parametrize("agent_flags", [[], ["--shared-memory=never", "--round-bytes=2MiB"]])
def test_pairs_of_layouts(root, agent_flags):
    layouts = {(1, 1, 4): layout(1, 1, 4), (4, 1, 1): layout(4, 1, 1), (2, 2, 1): layout(2, 2, 1),
               (1, 4, 1): layout(1, 4, 1), (2, 1, 2): layout(2, 1, 2), (3, 1, 1): first(3, layout(3, 1, 1)),
               (1, 1, 1): first(1, layout(1, 1, 1))}
    pairs = [(a, b) for a in layouts for b in layouts if a != b]
    random.Random(5).shuffle(pairs)
    unique = 4 * sum(2 * array.size for array in WHOLE.values())
    with cairn.local.Cluster(ranks=4, root=root, agent_flags=agent_flags, **FLAGS) as cluster:
        for source, target in pairs[:12] + [((2, 1, 2), (2, 1, 2))]:
            for report in reshard(cluster, layouts[source], layouts[target]):
                assert report.unique_bytes == unique, (source, target)
                assert (report.bytes_read, report.storage_bytes, report.path, report.step) == (0, 0, "memory", None)
        assert no_files(root)
        text = "".join(agent.log.read_text() for agent in cluster.agents)
        assert ("transport=grpc" if agent_flags else "transport=shared-memory") in text


def test_large_tensors_cross_in_pieces(root):
    """Without shared memory, no window is larger than a round may be."""
    whole = noise((3000, 1024), np.float32, 3)
    flags = ["--shared-memory=never", "--round-bytes=2MiB"]
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=flags, **FLAGS) as cluster:
        def columns(rank):
            return {"w": rows(whole, rank, 2, 1)}

        reshard(cluster, lambda rank: {"w": rows(whole, rank, 2)}, columns)
        reshard(cluster, columns, lambda rank: {"w": rows(whole, 1 - rank, 2)})


def test_objects_aliases_and_saves_beside(root):
    whole = noise((64, 16), np.float32, 1)
    with cairn.local.Cluster(ranks=3, root=root, **FLAGS) as cluster:
        def work(rank, client):
            saving = client.save(1, {"w": rows(whole, rank, 3)}, timeout=30)
            source = {"w": rows(whole, rank, 3), "tied": cairn.alias("w"), "step": 7, "big": b"x" * 5000,
                      "mine": cairn.per_rank([rank, "of", 3])}
            target = {"tied": np.zeros_like(whole)}
            report = client.reshard(source, target)
            assert target["tied"].tobytes() == whole.tobytes()
            assert report.objects == {"step": 7, "big": b"x" * 5000, "mine": [rank, "of", 3]}
            saving.wait(60)
            target = {"w": np.zeros_like(whole)}
            client.load(target)
            assert target["w"].tobytes() == whole.tobytes()

        on_ranks(cluster, work)


def test_what_does_not_fit_is_refused_on_all_ranks_and_the_next_works(root):
    whole = noise((64, 16), np.float32, 1)
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        def say(source, target, **options):
            return on_ranks(cluster, lambda rank, client: client.reshard(source(rank), target(rank), **options),
                            errors=True)

        half = lambda rank: {"w": rows(whole, rank, 2)}
        answers = say(half, lambda rank: {"w": np.zeros((64, 16), np.float64)})
        assert reasons(answers) == ["DTYPE_MISMATCH"] * 2
        answers = say(lambda rank: {"w": cairn.Shard(whole[:20].copy(), (64, 16), (32 * rank, 0))}, half)
        assert reasons(answers) == ["SHARD_GAP"] * 2 and "w" in answers[0].message
        answers = say(half, lambda rank: {"w": np.zeros_like(whole), "v": np.zeros(3)})
        assert reasons(answers) == ["MISSING_NAMES"] * 2 and "v" in answers[0].message
        answers = say(lambda rank: half(rank) | {"u": np.zeros(3)}, half)
        assert reasons(answers) == ["UNEXPECTED_NAMES"] * 2
        for report in say(lambda rank: half(rank) | {"u": np.zeros(3)},
                          lambda rank: {"w": np.zeros_like(whole), "v": np.zeros(3)}, strict=False):
            assert (report.missing, report.unexpected) == (["v"], ["u"])
        target = lambda rank: {"w": np.zeros_like(whole)}
        for value in (lambda rank: rank, lambda rank: b"abc" + b"\0" * rank):
            answers = say(lambda rank: half(rank) | {"the.object": value(rank)}, target)
            assert reasons(answers) == ["OBJECT_MISMATCH"] * 2 and "the.object" in answers[0].message
        for report in say(lambda rank: half(rank) | {"the.object": 5, "own": cairn.per_rank(rank)}, target):
            assert report.objects["the.object"] == 5
        # One rank loads, the other reshards.
        answers = on_ranks(cluster, lambda rank, client: client.load({"w": np.zeros_like(whole)}) if rank else
                           client.reshard(half(rank), {"w": np.zeros_like(whole)}), errors=True)
        assert reasons(answers) == ["BAD_REQUEST"] * 2, answers
        reshard(cluster, half, lambda rank: {"w": rows(whole, 1 - rank, 2)})


def test_rank_that_never_calls_is_named(root):
    whole = noise((64, 16), np.float32, 1)
    with cairn.local.Cluster(ranks=3, root=root, coordinator_flags=["--phase-timeout=2s"]) as cluster:
        answers = on_ranks(
            cluster,
            lambda rank, client: client.reshard({"w": rows(whole, rank, 3)}, {"w": np.zeros_like(whole)}),
            [0, 2],
            errors=True,
        )
        assert reasons(answers) == ["RANK_LATE"] * 2
        assert answers[0].metadata["ranks"] == "1" and "reshard" in answers[0].message


@pytest.mark.parametrize("what", ["agent", "trainer", "late"])
def test_rank_that_is_lost_before_it_has_lent_its_source_is_named(root, probe, what):
    whole = noise((64, 16), np.float32, 1)
    timeout = "4s" if what == "late" else "20s"
    with cairn.local.Cluster(ranks=3, root=root,
                             coordinator_flags=[f"--phase-timeout={timeout}", "--lease-ttl=2s"]) as cluster:
        lending, go = threading.Event(), threading.Event()

        def lend(rank):
            if rank == 1 and not lending.is_set():
                lending.set()
                assert go.wait(60)
                raise RuntimeError("the trainer of rank 1 is over")

        probe("lend", lend)

        def work(rank, client):
            return client.reshard({"w": rows(whole, rank, 3)}, {"w": np.zeros_like(whole)})

        results = {}
        threads = [threading.Thread(target=lambda rank=rank: results.update({
            rank: on_ranks(cluster, work, [rank], errors=True)[0]}), daemon=True) for rank in range(3)]
        for thread in threads:
            thread.start()
        assert lending.wait(60)
        if what == "agent":
            cluster.agents[1].kill(signal.SIGKILL)
        elif what == "trainer":
            go.set()
        until(lambda: 0 in results and 2 in results, limit=60, text="the error of the others")
        go.set()
        for rank in (0, 2):
            error = results[rank]
            assert isinstance(error, cairn.Error) and error.metadata.get("ranks") == "1", error
            assert error.reason == {"agent": "RANK_LOST", "trainer": "INTERNAL", "late": "RANK_LATE"}[what], error
        for thread in threads:
            thread.join(60)
        if what == "agent":
            cluster.agents[1].restart()
        reshard(cluster, lambda rank: {"w": rows(whole, rank, 3)}, lambda rank: {"w": rows(whole, 2 - rank, 3)})


def plan_reshard(cluster, **fields):
    return call_coordinator(cluster, "PlanReshard", **fields)


def rank_layouts(ranks, make):
    from cairn._state.layout import LayoutBuilder

    entry = wire.message("cairn.v1.RankLayouts")
    return [entry(ranks=[rank], node="a", layout=LayoutBuilder().declare(make(rank)).layout) for rank in range(ranks)]


def test_dry_run_says_what_would_move(root):
    whole = noise((64, 16), np.float32, 1)
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(3, {"w": rows(whole, rank, 2)}, timeout=30).wait(60))
        live = plan_reshard(cluster, sources=rank_layouts(2, lambda rank: {"w": rows(whole, rank, 2)}),
                            targets=rank_layouts(4, lambda rank: {"w": rows(whole, rank, 4, 1)}))
        assert (live.unique_bytes, live.read_bytes, live.fault_count) == (4096, 4096, 0)
        assert [(rank.rank, rank.read_bytes, rank.fan_in, rank.fan_out) for rank in live.ranks] == [
            (0, 2048, 1, 3), (1, 2048, 1, 3), (2, 0, 2, 0), (3, 0, 2, 0)]
        assert live.copy_bytes == sum(rank.sent_bytes for rank in live.ranks) == 4096 - 2 * 512
        stored = plan_reshard(cluster, job="demo", targets=rank_layouts(3, lambda rank: {"w": rows(whole, rank, 3)}))
        assert stored.unique_bytes == stored.read_bytes == 4096
        bad = plan_reshard(
            cluster,
            targets=rank_layouts(2, lambda rank: {"w": rows(whole, rank, 2)}),
            sources=rank_layouts(2, lambda rank: {"w": cairn.Shard(whole[:20].copy(), (64, 16), (32 * rank, 0))}),
        )
        assert bad.fault_count == 2 and {fault.reason for fault in bad.faults} == {"SHARD_GAP"}
        assert bad.faults[0].name == "w" and list(bad.faults[0].shape)
        with pytest.raises(grpc.RpcError) as error:
            plan_reshard(cluster, job="demo")
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as error:
            plan_reshard(cluster, job="demo", step=9, targets=rank_layouts(1, lambda rank: {"w": whole}))
        assert error.value.code() == grpc.StatusCode.NOT_FOUND


def test_source_that_does_not_fit_the_budget_of_memory(root):
    whole = noise((1024, 1024), np.float32, 1)
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=["--memory-budget=1MiB"], **FLAGS) as cluster:
        answers = on_ranks(cluster, lambda rank, client: client.reshard({"w": rows(whole, rank, 2)},
                                                                        {"w": np.zeros_like(whole)}), errors=True)
        assert reasons(answers) == ["MEMORY_LIMIT"] * 2, answers
        small = noise((64, 16), np.float32, 2)
        reshard(cluster, lambda rank: {"w": rows(small, rank, 2)}, lambda rank: {"w": rows(small, 1 - rank, 2)})


def test_coordinator_that_restarts_in_the_middle(root, probe):
    """The reshard goes on if all ranks have the plan; else all hear why it does not. The next one works."""
    whole = noise((64, 16), np.float32, 1)
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        lending, go = threading.Event(), threading.Event()

        def held(rank):
            if rank == 1:
                lending.set()
                assert go.wait(60)

        def work(rank, client):
            target = {"w": np.zeros_like(whole)}
            client.reshard({"w": rows(whole, rank, 2)}, target)
            return target["w"].tobytes()

        answers = []
        thread = threading.Thread(target=lambda: answers.extend(on_ranks(cluster, work, errors=True)), daemon=True)
        probe("lend", held)
        thread.start()
        assert lending.wait(60)
        cluster.coordinator.kill(signal.SIGKILL)
        cluster.coordinator.restart()
        go.set()
        thread.join(120)
        assert len(answers) == 2
        if isinstance(answers[0], bytes):
            assert answers == [whole.tobytes()] * 2
        else:
            assert reasons(answers) == ["COORDINATOR_RESTARTED"] * 2, answers
        reshard(cluster, lambda rank: {"w": rows(whole, rank, 2)}, lambda rank: {"w": rows(whole, 1 - rank, 2)})
