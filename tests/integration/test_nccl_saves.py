"""Shards that move between ranks in a save, over NCCL: real agents with their workers, and stand-ins for CUDA's driver
and NCCL."""

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
from testing.ranks import blank, command_json, ended, noise, on_ranks, reasons, rows, until
from testing.stand_in_gpu import LIBRARY as LIBCUDA

LIBNCCL = pathlib.Path(os.environ.get(
    "CAIRN_STAND_IN_NCCL", LIBCUDA.parents[1] / "nccl" / "libcairn_stand_in_nccl.so"))
FIRST = int(os.environ.get("CAIRN_NCCL_SEED", "1"))
RUNS = 200 if os.environ.get("CAIRN_EXHAUSTIVE") else 4
FLAGS = {"coordinator_flags": ["--phase-timeout=60s", "--lease-ttl=2s"]}
# The kilobytes of each rank's tensors: rank 0 has most.
SIZES = {0: [900, 700, 500, 300, 300, 200, 100, 100, 50, 20, 7, 3, 1], 1: [300], 2: [100, 5]}


def agent_flags(*more, saves="auto", loads="never", libnccl=LIBNCCL) -> list[str]:
    return ["--shared-memory=never", "--round-bytes=256KiB", f"--nccl={loads}", f"--nccl-saves={saves}",
            f"--libcuda={LIBCUDA}", f"--libnccl={libnccl}", *more]


@pytest.fixture
def controls(tmp_path, monkeypatch):
    """Sets the stand-in for NCCL; all ranks are on one device."""
    path = tmp_path / "controls"
    monkeypatch.setenv("STAND_IN_NCCL", str(path))

    def write(*settings):
        path.write_text("\n".join(("shared_device 1", *settings)) + "\n")

    write()
    return write


@pytest.fixture
def root(tmp_path):
    return tmp_path / "checkpoints"


def whole(rank: int, index: int, step: int) -> np.ndarray:
    return noise((SIZES[rank][index] * 64, 4), np.float32, 100 * rank + index + 1000 * step)


def state(rank: int, step: int) -> dict:
    tensors = {f"unit{rank}.w{i}": cairn.Shard(whole(rank, i, step), (SIZES[rank][i] * 64, 4), (0, 0))
               for i in range(len(SIZES[rank]))}
    edge = [0, 50_000, 50_010, 50_011]
    flat = noise((50_011,), np.float32, 7 + step)
    tensors["flat"] = cairn.Shard(flat[edge[rank]:edge[rank + 1]].copy(), (50_011,), (0,), (50_011,),
                                  (edge[rank], edge[rank + 1]))
    return tensors | {"all": noise((64,), np.int32, 5), "step": step, "seed": cairn.per_rank(rank)}


def save(cluster, step: int, make=state, errors=False) -> list:
    return on_ranks(cluster, lambda rank, client: client.save(step, make(rank, step), timeout=60).wait(60),
                    errors=errors)


def check_load(cluster, step: int):
    """Loads under another layout, and compares every byte."""
    def work(rank, client):
        target = {f"unit{r}.w{i}": blank(rows(whole(r, i, step), rank, cluster.ranks))
                  for r in SIZES for i in range(len(SIZES[r]))} | {"flat": np.zeros(50_011, np.float32)}
        client.load(target, step, strict=False)  # what else was saved is not of interest
        for r in SIZES:
            for i in range(len(SIZES[r])):
                expected = rows(whole(r, i, step), rank, cluster.ranks)
                assert target[f"unit{r}.w{i}"].array.tobytes() == expected.array.tobytes(), (r, i)
        assert target["flat"].tobytes() == noise((50_011,), np.float32, 7 + step).tobytes()

    on_ranks(cluster, work)


def files(cluster, step: int) -> dict:
    """Returns the bytes of each file of a step."""
    directory = cluster.root / command_json(
        "show", f"demo@{step}", f"--coordinator={cluster.coordinator.address}")["data_directory"]
    return {file.name: file.read_bytes() for file in directory.glob("*.safetensors")}


def log_of(cluster) -> str:
    return "".join(agent.log.read_text() for agent in cluster.agents)


def transports(cluster, step: int) -> list[str]:
    """Returns how the shards came to each rank, by what its agent has written into its log."""
    found = []
    for agent in cluster.agents:
        line = re.findall(rf"event=written .*\bstep={step} .*", agent.log.read_text())[-1]
        found.append(re.search(r'transport=("[^"]*"|\S*)', line).group(1).strip('"'))
    return found


def workers(cluster) -> list[int]:
    """Returns the process of each rank's newest worker."""
    return [int(re.findall(r"gpu_worker_started.* pid=(\d+)", agent.log.read_text())[-1]) for agent in cluster.agents]


def test_files_are_those_of_the_host_transport(tmp_path, controls):
    written = {}
    for saves in ("never", "require"):
        with cairn.local.Cluster(ranks=3, root=tmp_path / saves, agent_flags=agent_flags(saves=saves),
                                 **FLAGS) as cluster:
            for step in (1, 2):
                save(cluster, step)
                written[saves, step] = files(cluster, step)
                check_load(cluster, step)
                expected = "grpc" if saves == "never" else "nccl"
                assert set(transports(cluster, step)) == {"", expected}
            assert ("event=gpu_worker_started" in log_of(cluster)) == (saves == "require")
            if saves == "require":
                assert len(re.findall("event=gpu_worker_started", log_of(cluster))) == 3, "one group carried both"
                assert len(re.findall("event=shards_exchanged", log_of(cluster))) == 6
                until(lambda: "transport=nccl" in cluster.coordinator.log.read_text(), text="the coordinator's word")
    for step in (1, 2):
        host, nccl = written["never", step], written["require", step]
        assert host.keys() == nccl.keys() and len(host) >= 3
        for name in host:
            assert host[name] == nccl[name], (step, name)


def test_ranks_of_one_machine_share_memory_and_others_use_nccl(root, controls):
    flags = [flag for flag in agent_flags() if flag != "--shared-memory=never"]
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=flags, **FLAGS) as cluster:
        save(cluster, 1)
        assert set(transports(cluster, 1)) == {"", "shared-memory"}
        cluster.agents[2].flags.append("--shared-memory=never")  # as if it were on a machine of its own
        cluster.agents[2].restart()
        save(cluster, 2)
        assert transports(cluster, 2) == ["", "shared-memory", "nccl"]
        check_load(cluster, 2)


def test_the_client_that_saves_loads_while_the_shards_are_exchanged(root, controls):
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(loads="auto"), **FLAGS) as cluster:
        save(cluster, 1)  # the group is there from now on
        controls("bytes_per_second 1000000")  # so that the exchange takes longer than the load

        def work(rank, client):
            saving = client.save(2, state(rank, 2), timeout=60)
            report = load_first(rank, client)
            saving.wait(60)
            return report

        def load_first(rank, client):
            shard = rows(whole(0, 0, 1), rank, 3)
            target = {"unit0.w0": blank(shard)}
            report = client.load(target, 1, strict=False)
            assert target["unit0.w0"].array.tobytes() == shard.array.tobytes()
            return report

        for report in on_ranks(cluster, work):
            assert report.transport in ("", "nccl", "grpc (nccl: the save of step 2 uses the group)"), report.transport
        controls()
        check_load(cluster, 2)
        assert "event=group_broken" not in log_of(cluster)
        assert len(re.findall("event=gpu_worker_started", log_of(cluster))) == 3, "one group carried all of them"


def test_a_plan_that_changes_after_staging_moves_its_shards_over_nccl(root, controls):
    def changed(rank, step):
        more = {"late": noise((300 * 64, 4), np.float32, 9)} if rank == 1 else {}
        return state(rank, step) | more

    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        save(cluster, 1)
        answers = save(cluster, 2, changed, errors=True)
        if any(reasons(answers)):
            assert set(reasons(answers)) == {"LAYOUT_CHANGED"}, answers
            save(cluster, 2, changed)
        assert "nccl" in transports(cluster, 2), transports(cluster, 2)
        check_load(cluster, 2)


def test_what_cannot_go_over_nccl_goes_over_the_host_and_says_why(root, controls):
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(libnccl="/nowhere/libnccl.so.2"),
                             **FLAGS) as cluster:
        save(cluster, 1)
        told = [transport for transport in transports(cluster, 1) if transport]
        assert told, "shards moved"
        for transport in told:
            assert re.fullmatch(r"grpc \(nccl: rank 0 on .*: /nowhere/libnccl.so.2: .*\)", transport), transport
        check_load(cluster, 1)


def test_require_fails_instead_and_names_why(root, controls):
    flags = agent_flags(saves="require", libnccl="/nowhere/libnccl.so.2")
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=flags, **FLAGS) as cluster:
        for error in save(cluster, 1, errors=True):
            assert isinstance(error, cairn.Error) and error.reason == "NCCL_UNAVAILABLE", error
            assert "/nowhere/libnccl.so.2" in str(error)
        even = {"w": noise((64, 4))}
        on_ranks(cluster, lambda rank, client: client.save(2, {f"w{rank}": even["w"]}, timeout=60).wait(60))


def test_a_worker_that_fails_in_a_required_exchange_ends_the_save_by_name(root, controls):
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(saves="require"), **FLAGS) as cluster:
        controls("group_stalls.0 2")
        begun = time.monotonic()
        for error in save(cluster, 1, errors=True):
            assert isinstance(error, cairn.Error) and error.reason == "TRANSPORT_FAILED", error
            assert "exchange over NCCL" in str(error), error
        assert time.monotonic() - begun < 20
        controls()
        cluster.agents[0].restart()
        save(cluster, 2)
        check_load(cluster, 2)


@pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_worker_of_a_rank_ends_in_the_midst_and_the_save_does_not(root, controls, what):
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        save(cluster, 1)
        controls("group_stalls.1 9")  # in the next save, so that its exchange goes on until the worker ends
        staged = threading.Event()

        def end():
            assert staged.wait(60)
            os.kill(workers(cluster)[0], what)

        def work(rank, client):
            saving = client.save(2, state(rank, 2), timeout=60)
            staged.set()
            return saving.wait(60)

        killer = threading.Thread(target=end)
        killer.start()
        on_ranks(cluster, work)
        killer.join()
        assert any("grpc (nccl: " in transport for transport in transports(cluster, 2)), transports(cluster, 2)
        check_load(cluster, 2)
        controls()
        save(cluster, 3)
        check_load(cluster, 3)


def test_faults_in_a_step_cost_no_save_and_are_named(root, controls):
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        step = 0
        for seed in range(FIRST, FIRST + RUNS):
            choose = random.Random(seed)
            rank = choose.randrange(3)
            fault = ("group_end_kills", "group_end_stops", "group_end_hangs", "group_stalls")[seed % 4]
            settings = [f"{fault}.{rank} {choose.choice(range(1, 6))}"]
            settings += ["abort_hangs 1"] * choose.randrange(2) + ["deaths_unnoticed 1"] * choose.randrange(2)
            print(f"CAIRN_NCCL_SEED={seed}: {settings}")
            controls(*settings)
            step += 1
            begun = time.monotonic()
            save(cluster, step)
            seconds = time.monotonic() - begun
            by_rank = transports(cluster, step)
            told = [transport for transport in by_rank if transport]
            print(f"{seconds:.1f} s: {told}")
            # A rank that had all of its shards before the fault has them over NCCL.
            assert all(transport == "nccl" or "grpc (nccl: " in transport for transport in told), told
            assert any("grpc (nccl: " in transport for transport in told), told
            # It says so itself, of its worker or of the step that stalls; else the ranks that wait for it name it.
            assert "grpc (nccl: " in by_rank[rank] or any(
                re.search(rf"(rank|ranks) (\d, )*{rank}\b", transport) for transport in told), told
            assert seconds < 30
            check_load(cluster, step)
            pids = workers(cluster)
            step += 1
            save(cluster, step)  # by the same agents, without NCCL for a while
            for transport in transports(cluster, step):
                assert transport == "" or transport.startswith("grpc (nccl: "), transport
            for pid in pids:
                until(lambda pid=pid: ended(pid), text="the end of the worker")
            controls()
            cluster.agents[choose.randrange(3)].restart()  # a new membership may have a new group
            step += 1
            save(cluster, step)
            assert set(transports(cluster, step)) == {"", "nccl"}
            cluster.agents[choose.randrange(3)].restart()


@pytest.mark.parametrize("rank", [0, 2], ids=["which_sends", "which_receives"])
def test_an_agent_is_killed_in_an_exchange(root, controls, rank):
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        save(cluster, 1)
        cluster.agents[1].restart()
        controls("group_stalls.1 3")  # so the exchange goes on until the agent is killed

        def kill():
            until(lambda: log_of(cluster).count("event=group_ready") == 6, text="a second group of all ranks")
            cluster.agents[rank].kill()

        killer = threading.Thread(target=kill)
        killer.start()
        answers = save(cluster, 2, errors=True)
        killer.join()
        for other in {0, 1, 2} - {rank}:
            if isinstance(answers[other], cairn.Error):
                assert answers[other].reason in ("RANK_LOST", "AGENT_UNREACHABLE", "TRANSPORT_FAILED"), answers
        controls()
        cluster.agents[rank].restart()
        save(cluster, 3)
        check_load(cluster, 3)


def test_the_coordinator_restarts_in_an_exchange_and_the_save_goes_on(root, controls):
    with cairn.local.Cluster(ranks=3, root=root, agent_flags=agent_flags(), **FLAGS) as cluster:
        save(cluster, 1)
        cluster.agents[1].restart()
        controls("group_stalls.1 3")

        def restart():
            until(lambda: log_of(cluster).count("event=group_ready") == 6, text="a second group of all ranks")
            cluster.coordinator.kill(signal.SIGKILL)
            cluster.coordinator.restart()

        restarting = threading.Thread(target=restart)
        restarting.start()
        save(cluster, 2)
        restarting.join()
        check_load(cluster, 2)
        controls()
        save(cluster, 3)
        check_load(cluster, 3)
