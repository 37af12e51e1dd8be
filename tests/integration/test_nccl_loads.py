"""Loads of checkpoints whose bytes go over NCCL from the ranks that read them to those that take them: real agents with
their workers, and stand-ins for CUDA's driver and NCCL."""

import os
import random
import re
import threading
import time

import numpy as np
import pytest

import cairn
from testing.parallel import WHOLE, layout
from testing.ranks import blank, command, noise, on_ranks, rows, until
from testing.stand_in_nccl import FIRST, FLAGS, RUNS, agent_flags, next_call

UNIQUE = 4 * sum(2 * array.size for array in WHOLE.values())


def save(cluster, step: int, source):
    # Each step has names of its own.
    on_ranks(cluster, lambda rank, client: client.save(
        step, source(rank) or {}, timeout=60, allow_dropped_names=True).wait(60))


def load_on(rank, client, target, **options):
    """Loads what one rank takes, and compares it with numpy's own cut. Returns the report."""
    wanted = target(rank) or {}
    given = {name: blank(shard) for name, shard in wanted.items()}
    report = client.load(given, **options)
    for name, shard in wanted.items():
        assert given[name].array.tobytes() == shard.array.tobytes(), (rank, name)
    return report


def load(cluster, target, errors=False, **options) -> list:
    return on_ranks(cluster, lambda rank, client: load_on(rank, client, target, **options), errors=errors)


def halves(whole, ranks):
    """Rows of each rank, and columns of each rank: every rank takes bytes of every other one."""
    return (lambda rank: {"w": rows(whole, rank, ranks)}), (lambda rank: {"w": rows(whole, rank, ranks, 1)})


def log_of(cluster) -> str:
    return "".join(agent.log.read_text() for agent in cluster.agents)


def test_pairs_of_layouts_are_byte_equal(root, controls):
    layouts = {(1, 1, 4): layout(1, 1, 4), (4, 1, 1): layout(4, 1, 1), (2, 2, 1): layout(2, 2, 1),
               (1, 4, 1): layout(1, 4, 1), (2, 1, 2): layout(2, 1, 2), (1, 2, 2): layout(1, 2, 2),
               (3, 1, 1): lambda rank: layout(3, 1, 1)(rank) if rank < 3 else None,
               (1, 1, 1): lambda rank: layout(1, 1, 1)(rank) if rank < 1 else None}
    pairs = [(a, b) for a in layouts for b in layouts if a != b]
    random.Random(11).shuffle(pairs)
    with cairn.local.Cluster(ranks=4, root=root, agent_flags=agent_flags(nccl="require"), **FLAGS) as cluster:
        for step, source in enumerate(layouts):
            save(cluster, step, layouts[source])
        used = set()
        for source, target in pairs[:14]:
            for report in load(cluster, layouts[target], step=list(layouts).index(source)):
                assert report.total_bytes_read == report.unique_bytes == UNIQUE, (source, target)
                used.add(report.transport)
        assert used <= {"nccl", ""} and "nccl" in used
        assert len(re.findall("event=gpu_worker_started", log_of(cluster))) == 4, "one group carried all of them"


def test_many_rounds_cross_in_windows(root, controls):
    whole = noise((3000, 1024), np.float32, 3)
    source, target = halves(whole, 3)
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        save(cluster, 1, source)
        for cut in (target, source, lambda rank: {"w": rows(whole, (rank + 1) % 3, 3)},
                    lambda rank: {"w": rows(whole, 0, 1)}):
            for report in load(cluster, cut):
                assert report.transport in ("nccl", "") and report.total_bytes_read == whole.nbytes
        for report in load(cluster, target):
            assert report.transport == "nccl"
        assert "transport: nccl" in command("status", "demo", f"--coordinator={cluster.coordinator.address}").stdout
        assert len(re.findall("event=gpu_worker_started", log_of(cluster))) == 3


def test_ranks_of_one_machine_share_memory_and_others_use_nccl(root, controls):
    source, target = halves(noise((3000, 1024), np.float32, 3), 4)
    flags = [flag for flag in agent_flags() if flag != "--shared-memory=never"]
    with cairn.local.Cluster(ranks=4, root=root, agent_flags=flags, **FLAGS) as cluster:
        save(cluster, 1, source)
        for report in load(cluster, target):
            assert report.transport == "shared-memory"
        # As if these two were on machines of their own; what they lend, the others can map all the same.
        for rank in (2, 3):
            cluster.agents[rank].flags.append("--shared-memory=never")
            cluster.agents[rank].restart()
        reports = load(cluster, target)
        assert {report.transport for report in reports[:2]} == {"shared-memory"}, reports
        assert {report.transport for report in reports[2:]} == {"nccl"}, reports


def test_what_all_take_alike_is_broadcast(root, controls):
    whole = noise((3000, 1024), np.float32, 3)
    source, _ = halves(whole, 3)
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        save(cluster, 1, source)
        for report in load(cluster, lambda rank: {"w": rows(whole, 0, 1)}):
            assert report.transport == "nccl"
        sent = [int(count) for count in re.findall(r"event=exchanged .*sent_bytes=(\d+)", log_of(cluster))]
        assert len(sent) == 3 and sum(sent) == whole.nbytes, "each byte goes out once, though two ranks take it"


def test_casts_are_those_of_the_host(root, controls):
    whole = np.random.default_rng(5).standard_normal((600, 1024)).astype(np.float32)
    source, _ = halves(whole, 2)
    mapping = "w^T -> turned\nturned -> half, dtype='float16'\n"
    expected = whole.T.astype(np.float16)
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        save(cluster, 1, source)
        for report in load(cluster, lambda rank: {"half": rows(expected, rank, 2)}, mapping=mapping):
            assert report.transport == "nccl"


def test_what_is_little_goes_over_the_host_unless_a_group_is_there(root, controls):
    little, large = noise((64, 64)), noise((1024, 1024), np.float32, 4)
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        save(cluster, 1, halves(little, 2)[0])
        save(cluster, 2, halves(large, 2)[0])
        for report in load(cluster, halves(little, 2)[1], step=1):
            assert report.transport == "grpc (nccl: only 8.00 KiB to move)"
        assert "event=gpu_worker_started" not in log_of(cluster)
        for report in load(cluster, halves(large, 2)[1], step=2) + load(cluster, halves(little, 2)[1], step=1):
            assert report.transport == "nccl"
        # The same rows need no transport, so nothing was wanted of one.
        for report in load(cluster, halves(large, 2)[0], step=2):
            assert report.transport == ""


def test_what_cannot_go_over_nccl_goes_over_the_host_and_says_why(root, controls):
    source, target = halves(noise((1024, 1024)), 2)
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags(libnccl="/nowhere/libnccl.so.2"),
                             **FLAGS) as cluster:
        save(cluster, 1, source)
        for report in load(cluster, target):
            assert re.fullmatch(r"grpc \(nccl: rank 0 on .*: /nowhere/libnccl.so.2: .*\)", report.transport), report
        assert re.search(r"event=load_ended .*transport=\"grpc \(nccl: ", log_of(cluster))


def test_require_fails_instead(root, controls):
    source, target = halves(noise((1024, 1024)), 2)
    flags = agent_flags(nccl="require", libnccl="/nowhere/libnccl.so.2")
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=flags, **FLAGS) as cluster:
        save(cluster, 1, source)
        for error in load(cluster, target, errors=True):
            assert isinstance(error, cairn.Error) and error.reason == "NCCL_UNAVAILABLE", error
        for report in load(cluster, source):
            assert report.transport == "", "nothing needs a transport"


def test_damage_is_what_all_are_told(root, controls):
    source, target = halves(noise((3000, 1024), np.float32, 3), 3)
    flags = agent_flags("--slab-loads=never")  # the agents have the step in memory, undamaged
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=flags, **FLAGS) as cluster:
        save(cluster, 1, source)
        file = sorted((root / "demo").rglob("*rank00001*.safetensors"))[0]
        with file.open("r+b") as damaged:
            damaged.seek(-100, os.SEEK_END)
            byte = damaged.read(1)
            damaged.seek(-100, os.SEEK_END)
            damaged.write(bytes([byte[0] ^ 1]))
        for error in load(cluster, target, errors=True):
            assert isinstance(error, cairn.Error) and error.reason == "CHECKSUM_MISMATCH", error


def after_a_fault(cluster, target, step: int, reasons: tuple) -> list:
    """Makes every rank load until it fails, then save a little, then load again, by one client. Returns what it was
    told, after how many seconds, and how the last load's bytes came, of each rank."""
    def work(rank, client):
        for _ in range(6):  # until the fault's step is reached
            begun = time.monotonic()
            try:
                load_on(rank, client, target, step=1)
            except cairn.Error as error:
                assert error.reason in reasons, error
                seconds = time.monotonic() - begun
                client.save(step, {"little": rows(noise((64,)), rank, cluster.ranks)}, timeout=60,
                            allow_dropped_names=True).wait(60)
                return str(error), seconds, load_on(rank, client, target, step=1).transport
        raise AssertionError("no load failed")

    return on_ranks(cluster, work)


def test_faults_in_a_step_end_all_calls_name_the_rank_and_the_next_call_works(root, controls):
    source, target = halves(noise((3000, 1024), np.float32, 3), 3)
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        save(cluster, 1, source)
        for seed in range(FIRST, FIRST + RUNS):
            assert {report.transport for report in load(cluster, target, step=1)} == {"nccl"}
            choose = random.Random(seed)
            rank = choose.randrange(3)
            fault = ("group_end_kills", "group_end_stops", "group_end_hangs", "group_stalls")[seed % 4]
            settings = [f"{fault}.{rank} {next_call(cluster.agents[rank], choose)}"]
            settings += ["abort_hangs 1"] * choose.randrange(2) + ["deaths_unnoticed 1"] * choose.randrange(2)
            print(f"CAIRN_NCCL_SEED={seed}: {settings}")
            controls(*settings)
            answers = after_a_fault(cluster, target, 1 + seed, ("TRANSPORT_FAILED",))
            text, seconds, _ = answers[0]
            print(f"{seconds:.1f} s: {text}")
            assert re.search(rf"rank {rank}: window|exchange over NCCL with ranks? (\d, )*{rank}\b", text), text
            for _, _, transport in answers:
                assert transport.startswith("grpc (nccl: "), transport
            controls()
            cluster.agents[choose.randrange(3)].restart()  # a new membership may have a new group


@pytest.mark.parametrize("rank", [0, 1], ids=["which_keeps_the_gate", "which_does_not"])
def test_an_agent_is_killed_in_an_exchange(root, controls, rank):
    source, target = halves(noise((3000, 1024), np.float32, 3), 3)
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        save(cluster, 1, source)
        controls("group_stalls.2 4")  # so the exchange goes on until the agent is killed

        def kill():
            until(lambda: log_of(cluster).count("event=group_ready") == 3, text="a group of all ranks")
            cluster.agents[rank].kill()

        killer = threading.Thread(target=kill)
        killer.start()
        answers = load(cluster, target, errors=True)
        killer.join()
        for other in {0, 1, 2} - {rank}:
            assert isinstance(answers[other], cairn.Error), answers
            assert answers[other].reason in ("RANK_LOST", "AGENT_UNREACHABLE", "TRANSPORT_FAILED"), answers
        assert isinstance(answers[rank], BaseException), answers
        controls()
        cluster.agents[rank].restart()
        assert {report.transport for report in load(cluster, target)} == {"nccl"}
        save(cluster, 2, source)
