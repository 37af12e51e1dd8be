"""Reshards whose bytes go over NCCL: real agents with their workers, and stand-ins for CUDA's driver and NCCL."""

import os
import pathlib
import random
import re
import signal
import threading
import time

import numpy as np
import pytest

import cairn
from testing.parallel import WHOLE, layout
from testing.ranks import blank, command, ended, freeze, noise, on_ranks, rows, until
from testing.stand_in_nccl import FIRST, FLAGS, RUNS, agent_flags, next_call


def reshard(cluster, source, target, errors=False) -> list:
    """Makes every rank reshard, and compares with numpy's own cut. Returns the reports."""
    def work(rank, client):
        wanted = target(rank) or {}
        given = {name: blank(shard) for name, shard in wanted.items()}
        report = client.reshard(source(rank) or {}, given, timeout=60)
        for name, shard in wanted.items():
            assert given[name].array.tobytes() == shard.array.tobytes(), (rank, name)
        return report

    return on_ranks(cluster, work, errors=errors)


def halves(whole, ranks):
    return (lambda rank: {"w": rows(whole, rank, ranks)}), (lambda rank: {"w": rows(whole, rank, ranks, 1)})


def log_of(cluster) -> str:
    return "".join(agent.log.read_text() for agent in cluster.agents)


def workers(cluster) -> list[int]:
    """Returns the process of each rank's newest worker."""
    return [int(re.findall(r"gpu_worker_started.* pid=(\d+)", agent.log.read_text())[-1]) for agent in cluster.agents]


def test_pairs_of_layouts_are_byte_equal(root, controls):
    layouts = {(1, 1, 4): layout(1, 1, 4), (4, 1, 1): layout(4, 1, 1), (2, 2, 1): layout(2, 2, 1),
               (1, 4, 1): layout(1, 4, 1), (2, 1, 2): layout(2, 1, 2), (1, 2, 2): layout(1, 2, 2),
               (3, 1, 1): lambda rank: layout(3, 1, 1)(rank) if rank < 3 else None,
               (1, 1, 1): lambda rank: layout(1, 1, 1)(rank) if rank < 1 else None}
    pairs = [(a, b) for a in layouts for b in layouts if a != b]
    random.Random(7).shuffle(pairs)
    unique = 4 * sum(2 * array.size for array in WHOLE.values())
    with cairn.local.Cluster(ranks=4, root=root, agent_flags=agent_flags(nccl="require"), **FLAGS) as cluster:
        used = set()
        for source, target in pairs[:12]:
            for report in reshard(cluster, layouts[source], layouts[target]):
                assert report.unique_bytes == unique, (source, target)
                used.add(report.transport)
        assert used <= {"nccl", ""} and "nccl" in used
        assert len(re.findall("event=gpu_worker_started", log_of(cluster))) == 4, "one group carried all of them"


def test_large_tensors_cross_in_windows(root, controls):
    whole = noise((3000, 1024), np.float32, 3)
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        source, target = halves(whole, 2)
        for report in reshard(cluster, source, target) + reshard(cluster, target, source):
            assert report.transport == "nccl"
        # Contiguous rows go straight from the source.
        for report in reshard(cluster, source, lambda rank: {"w": rows(whole, 1 - rank, 2)}):
            assert report.transport == "nccl"
        assert "reshard 1: done\n  transport: nccl" in command(
            "status", "demo", f"--coordinator={cluster.coordinator.address}").stdout


def test_memory_is_prepared_before_it_is_known_how_the_bytes_go(root, controls):
    whole = noise((3000, 1024), np.float32, 3)
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        source, target = halves(whole, 2)
        for _ in range(3):
            assert [report.transport for report in reshard(cluster, source, target)] == ["nccl"] * 2
        for agent in cluster.agents:
            log = agent.log.read_text()
            assert len(re.findall("event=exchange_prepared .*error=OK", log)) >= 2, "there was a group already"
            assert len(re.findall("event=exchanged .*error=OK", log)) == 3


@pytest.mark.parametrize("policy", ["auto", "require"])
def test_an_exchange_without_room_in_the_memory_budget_goes_over_the_host_at_once(root, controls, policy):
    whole, little = noise((3000, 1024), np.float32, 3), noise((64, 1024), np.float32, 4)
    # Each rank lends 6 MiB and takes 3 MiB. One window of the host transport has room beside that, those of an exchange
    # have not.
    flags = agent_flags("--memory-budget=12MiB", nccl=policy, round_bytes="32MiB")
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=flags, **FLAGS) as cluster:
        if policy == "auto":
            assert [report.transport for report in reshard(cluster, *halves(little, 2))] == ["nccl"] * 2
        reason = (r"rank 0 on .*: .* of shared memory are needed, but of --memory-budget, 12.0 MiB, .* are taken: "
                  r".* are missing")
        for _ in range(4):  # one after the other: the memory of the last one is free
            for ended_with in reshard(cluster, *halves(whole, 2), errors=policy == "require"):
                if policy == "auto":
                    assert re.fullmatch(rf"grpc \(nccl: {reason}\)", ended_with.transport), ended_with.transport
                else:
                    assert ended_with.reason == "NCCL_UNAVAILABLE" and re.search(reason, str(ended_with)), ended_with
        assert [report.transport for report in reshard(cluster, *halves(little, 2))] == ["nccl"] * 2
        assert "group_broken" not in log_of(cluster)


@pytest.mark.parametrize("settings, flags, reason", [
    (["version 0"], agent_flags(), "rank 0 on .* and 1 other: no version of NCCL"),
    ([], agent_flags(libnccl="/nowhere/libnccl.so.2"), "rank 0 on .* and 1 other: /nowhere/libnccl.so.2: .*"),
    ([], agent_flags("--nccl-device=7"),
     r"rank 0 on .* and 1 other: --nccl-device=7 \(or LOCAL_RANK\), but the agent sees 2 GPUs"),
    (["init_result 5"], agent_flags(), "rank . on .*: ncclCommInitRankConfig: ncclInvalidUsage.*"),
    (["shared_device 0"], agent_flags(), "rank . on .*: .*Duplicate GPU detected.*")])
def test_what_cannot_go_over_nccl_goes_over_the_host_and_says_why(root, controls, settings, flags, reason):
    controls(*settings)
    if settings == ["shared_device 0"]:
        pathlib.Path(os.environ["STAND_IN_NCCL"]).write_text("shared_device 0\n")
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=flags, **FLAGS) as cluster:
        for report in reshard(cluster, *halves(noise((64, 64)), 2)):
            assert re.fullmatch(rf"grpc \(nccl: {reason}\)", report.transport), report.transport
        probes = [line for line in log_of(cluster).splitlines() if "event=nccl " in line]
        assert len(probes) == 2 and "error=" not in "".join(probes), "nobody has asked for a GPU"


def test_never_is_not_a_fallback(root, controls):
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(nccl="never"), **FLAGS) as cluster:
        for report in reshard(cluster, *halves(noise((64, 64)), 2)):
            assert report.transport == "grpc"
        assert "gpu_worker" not in log_of(cluster) and "event=nccl " not in log_of(cluster)


def test_require_fails_instead(root, controls):
    flags = agent_flags(nccl="require", libnccl="/nowhere/libnccl.so.2")
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=flags, **FLAGS) as cluster:
        for error in reshard(cluster, *halves(noise((64, 64)), 2), errors=True):
            assert isinstance(error, cairn.Error) and error.reason == "NCCL_UNAVAILABLE", error
            assert "/nowhere/libnccl.so.2" in str(error) and "\nnext: Install NCCL there" in str(error), error
        assert log_of(cluster).count(" warn event=nccl ") == 2, "each agent warns at its start"


def assert_goes_over_nccl(cluster, source, target):
    assert {report.transport for report in reshard(cluster, source, target)} == {"nccl"}


def broken(cluster, source, target):
    """Reshards, which fails; then the host carries the next one. Returns the errors' texts."""
    errors = reshard(cluster, source, target, errors=True)
    for error in errors:
        assert isinstance(error, cairn.Error) and error.reason == "TRANSPORT_FAILED", error
        assert "\nnext: Reshard again on all ranks: the next one goes over gRPC." in str(error), error
    for report in reshard(cluster, source, target):
        assert report.transport.startswith("grpc (nccl: "), report.transport
    assert "gpu_worker_crashed" not in log_of(cluster)
    return [str(error) for error in errors]


def test_a_worker_is_killed_in_a_step(root, controls):
    controls("group_end_kills.1 2")
    source, target = halves(noise((3000, 1024), np.float32, 3), 3)
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        texts = broken(cluster, source, target)
        assert any("was ended by signal 9" in text for text in texts), texts
        # A new membership may have a new group.
        controls()
        cluster.agents[1].restart()
        assert_goes_over_nccl(cluster, source, target)


def test_a_step_that_hangs_names_its_peers_and_a_hung_abort_is_killed(root, controls):
    controls("group_end_hangs.1 2", "abort_hangs 1")
    source, target = halves(noise((3000, 1024), np.float32, 3), 2)
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        texts = broken(cluster, source, target)
        # Its own agent says so, unless the other's word came first. That one knows of no end of the first step either.
        assert re.search("window [01] of the exchange over NCCL with rank (0: cairn-gpu-worker does not answer|"
                         "1 has made no progress for 5s)", texts[0]), texts
        for pid in workers(cluster):
            until(lambda pid=pid: ended(pid), text="the end of a hung worker")


def test_a_worker_that_is_stopped_names_its_rank(root, controls):
    source, target = halves(noise((3000, 1024), np.float32, 3), 2)
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        reshard(cluster, source, target)
        # The trainers have all bytes before the workers have given the memory back.
        until(lambda: log_of(cluster).count("event=exchanged") == 2, text="the end of the exchange")
        freeze(workers(cluster)[1])
        texts = broken(cluster, source, target)
        assert any("with rank 1 has made no progress" in text for text in texts) or any(
            "has not answered" in text for text in texts), texts


def test_an_agent_that_is_stopped_in_an_exchange_is_named(root, controls):
    controls("group_stalls.1 2")  # so the exchange goes on until its agent is stopped
    source, target = halves(noise((3000, 1024), np.float32, 3), 2)
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        def stop():
            until(lambda: log_of(cluster).count("event=group_ready") == 2, text="a group of both ranks")
            freeze(cluster.agents[1].pid)

        def work(rank, client):
            try:
                return client.reshard(source(rank), {name: blank(shard) for name, shard in target(rank).items()},
                                      timeout=60)
            finally:
                if rank == 0:
                    os.kill(cluster.agents[1].pid, signal.SIGCONT)

        stopper = threading.Thread(target=stop)
        stopper.start()
        errors = on_ranks(cluster, work, errors=True)
        stopper.join()
        # Its lease ends, unless a call to it is given up before.
        assert errors[0].reason in ("RANK_LOST", "AGENT_UNREACHABLE") and errors[0].metadata["ranks"] == "1", (
            errors[0], errors[0].metadata)
        assert isinstance(errors[1], cairn.Error), errors[1]
        controls()
        # It has registered anew, so there is a new group; or its lease has not ended, and the host carries for a while.
        for report in reshard(cluster, source, target):
            assert report.transport == "nccl" or report.transport.startswith("grpc (nccl: "), report.transport


def test_faults_in_a_step_end_all_calls_name_the_rank_and_the_next_call_works(root, controls):
    source, target = halves(noise((3000, 1024), np.float32, 3), 3)
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        for seed in range(FIRST, FIRST + RUNS):
            assert_goes_over_nccl(cluster, source, target)
            choose = random.Random(seed)
            rank = choose.randrange(3)
            fault = ("group_end_kills", "group_end_stops", "group_end_hangs", "group_stalls")[seed % 4]
            settings = [f"{fault}.{rank} {next_call(cluster.agents[rank], choose)}"]
            settings += ["abort_hangs 1"] * choose.randrange(2) + ["deaths_unnoticed 1"] * choose.randrange(2)
            print(f"CAIRN_NCCL_SEED={seed}: {settings}")
            controls(*settings)
            begun = time.monotonic()
            text = broken(cluster, source, target)[0]
            print(f"{time.monotonic() - begun:.1f} s: {text}")
            # Its own agent says so, unless the others' word came first.
            assert re.search(rf"rank {rank}: window|exchange over NCCL with ranks (\d, )*{rank}\b", text), text
            controls()
            cluster.agents[choose.randrange(3)].restart()  # a new membership may have a new group


def test_an_agent_ends_its_worker(root, controls):
    source, target = halves(noise((64, 64)), 2)
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        reshard(cluster, source, target)
        pids = workers(cluster)
        cluster.agents[0].kill()
        for pid in pids:  # the other one's because the membership has changed
            until(lambda pid=pid: ended(pid), text="the end of a worker")


def test_a_stopped_worker_does_not_outlive_its_agent(root, controls):
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        reshard(cluster, *halves(noise((64, 64)), 2))
        pid = workers(cluster)[0]
        freeze(pid)
        cluster.agents[0].kill()
        until(lambda: ended(pid), text="the end of a worker that was stopped")


def test_the_id_of_a_group_is_in_no_log(root, controls):
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        reshard(cluster, *halves(noise((64, 64)), 2))
        text = log_of(cluster) + cluster.coordinator.log.read_text()
        assert "group_ready" in text and "cairn-stand-in-nccl-" not in text
