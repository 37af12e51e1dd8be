"""Tests processes that die or freeze in each phase: every rank must learn the same by a deadline, with names, and
the next save must work."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import cairn
from cairn._base import probes
from testing.ranks import blank, command, ended, freeze, noise, on_ranks, reasons, rows, until

FLAGS = {"coordinator_flags": ["--phase-timeout=3s", "--lease-ttl=2s"]}
WHOLE = noise((64, 16), np.float32, 1)


def state(rank, world):
    return {"w": rows(WHOLE, rank, world), "o": {"step": 1}}


def save(step, world, timeout=20):
    def work(rank, client):
        return client.save(step, state(rank, world), timeout=timeout).wait(timeout=60)
    return work


def assert_next_save_works(cluster, step):
    def all_back():
        answers = on_ranks(cluster, save(step, cluster.ranks), errors=True)
        # An earlier try may have committed the step, of which another rank learnt too late.
        return all(reason in ("", "STEP_COMMITTED") for reason in reasons(answers))

    until(all_back, 60, "a save after the fault")

    def load(rank, client):
        target = {"w": blank(rows(WHOLE, rank, cluster.ranks))}
        client.load(target, step=step)
        assert target["w"].array.tobytes() == rows(WHOLE, rank, cluster.ranks).array.tobytes()

    on_ranks(cluster, load)


def assert_no_partial_checkpoint(root, committed):
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        with cluster.connect(0) as client:
            assert client.checkpoints() == committed


def save_without(cluster, rank, happens, ends):
    """Saves step 1 on all ranks; then something happens to the agent of `rank`, and the others save step 2 until they
    hear what came of that, and it ends. Returns the others' answers.

    The trainers stay attached meanwhile. One that took another's place while a save waits would be taken for that of a
    restarted job, whose call is answered in the next save.
    """
    begun, ended = threading.Barrier(cluster.ranks, happens), threading.Barrier(cluster.ranks, ends)

    def work(each, client):
        save(1, cluster.ranks)(each, client)
        begun.wait(60)
        try:
            if each != rank:
                save(2, cluster.ranks)(each, client)
        finally:
            ended.wait(60)

    answers = on_ranks(cluster, work, errors=True)
    return answers[:rank] + answers[rank + 1:]


def test_agent_that_is_dead_is_named(root):
    with cairn.local.Cluster(ranks=3, root=root, **FLAGS) as cluster:
        started = time.monotonic()
        answers = save_without(cluster, 2, cluster.agents[2].kill, None)
        assert time.monotonic() - started < 30
        for error in answers:
            assert isinstance(error, cairn.Error) and error.reason in ("RANK_LOST", "RANK_LATE", "WORLD_INCOMPLETE"), (
                error
            )
            assert error.metadata["ranks"] == "2" and error.metadata["phase"]
        assert len({error.reason for error in answers}) == 1
        cluster.agents[2].restart()
        assert_next_save_works(cluster, 3)


def test_calls_beside_a_frozen_coordinator_blame_it_and_no_rank(root):
    """No rank is late: nobody could tell. What a call has begun must not keep the next save from its end."""
    more = noise((8, 4), np.float32, 2)

    def call(what):
        def work(rank, client):
            if what == "prepare":
                client.prepare({**state(rank, 2), "new": rows(more, rank, 2)}, timeout=2)
            elif what == "save":
                client.save(2, {**state(rank, 2), "new": rows(more, rank, 2)}, timeout=2)
            elif what == "load":
                client.load({"w": blank(rows(WHOLE, rank, 2))}, step=1, timeout=2)
            else:
                client.reshard(state(rank, 2), {"w": blank(rows(WHOLE, 1 - rank, 2))}, timeout=2)
        return work

    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        on_ranks(cluster, save(1, 2))
        freeze(cluster.coordinator.pid)
        for what in ("prepare", "save", "load", "reshard"):
            for answer in on_ranks(cluster, call(what), errors=True):
                assert answer.reason == "COORDINATOR_UNREACHABLE", (what, answer)
                assert "ranks" not in answer.metadata, (what, answer.metadata)
        cluster.coordinator.kill(signal.SIGCONT)
        assert_next_save_works(cluster, 3)


def test_save_that_waits_for_a_slab_in_vain_ends_for_all_ranks_at_once(root):
    """Ranks 1 and 2 have staged step 5, to which rank 0 has not come: they have no room for step 6. The one that would
    wait longer must not begin an attempt of its own, to which nobody would come."""
    with cairn.local.Cluster(ranks=3, root=root) as cluster, contextlib.ExitStack() as clients:
        ranks = [clients.enter_context(cluster.connect(rank)) for rank in range(3)]
        pool = clients.enter_context(concurrent.futures.ThreadPoolExecutor(3))

        def begin(rank, step, timeout=60):
            return pool.submit(ranks[rank].save, step, state(rank, 3), timeout=timeout)

        for saving in [begin(rank, 1) for rank in range(3)]:
            saving.result().wait(60)
        held = [begin(rank, 5).result() for rank in (1, 2)]
        staged = begin(0, 6).result()
        longer = begin(2, 6)
        shorter = begin(1, 6, timeout=4)  # by then a busy machine has let the others begin, too
        for answer in (lambda: shorter.result(30), lambda: longer.result(30), lambda: staged.wait(30)):
            with pytest.raises(cairn.Error) as refused:
                answer()
            assert refused.value.reason == "SAVE_IN_PROGRESS", refused.value
        assert {saving.wait(60).step for saving in (begin(0, 5).result(), *held)} == {5}


def test_agent_that_is_frozen_is_named_and_thaws(root):
    with cairn.local.Cluster(ranks=3, root=root, **FLAGS) as cluster:
        agent = cluster.agents[1]
        answers = save_without(cluster, 1, lambda: freeze(agent.pid), lambda: agent.kill(signal.SIGCONT))
        for error in answers:
            assert isinstance(error, cairn.Error) and error.reason in ("RANK_LOST", "RANK_LATE"), error
            assert error.metadata["ranks"] == "1"
        assert_next_save_works(cluster, 3)


def test_rank_that_never_saves_is_named(root):
    with cairn.local.Cluster(ranks=3, root=root, **FLAGS) as cluster:
        answers = on_ranks(cluster, save(1, 3), ranks=[0, 2], errors=True)
        for error in answers:
            assert isinstance(error, cairn.Error) and error.reason == "RANK_LATE", error
            assert error.metadata["ranks"] == "1" and error.metadata["phase"]
        assert_next_save_works(cluster, 2)


TRAINER = """
import sys, threading
import numpy as np
import cairn
address, step, when = sys.argv[1], int(sys.argv[2]), sys.argv[3]
from testing.ranks import noise, rows
whole = noise((64, 16), np.float32, 1)
client = cairn.connect(address)
state = {"w": rows(whole, client.rank, client.world_size), "o": {"step": 1}}
print("ready", flush=True)
def stop():
    print("now", flush=True)
    threading.Event().wait()
if when == "attached":
    stop()
if when == "saving":
    print("now", flush=True)
if when == "staging":
    from cairn._base import probes
    probes.add("copy", lambda **_: stop())
client.save(step, state)
stop()
"""


def trainer_process(cluster, rank, step, when, at_ready=lambda: None):
    """Starts a trainer in a process of its own that stops at a point of its save and says so. `at_ready` is called when
    it is about to go there, which a busy machine takes long for."""
    paths = os.pathsep.join([str(pathlib.Path(cairn.__file__).parents[1]), str(pathlib.Path(__file__).parents[1])])
    process = cluster.spawn([sys.executable, "-c", TRAINER, cluster.agents[rank].address, str(step), when],
                            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths})
    assert process.stdout.readline() == "ready\n"
    at_ready()
    assert process.stdout.readline() == "now\n"
    return process


@pytest.mark.parametrize("when", ["attached", "staging"])
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGSTOP])
def test_trainer_that_dies_or_freezes_before_it_has_staged(root, when, stop):
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        on_ranks(cluster, save(1, 2))
        answers = []
        other = threading.Thread(target=lambda: answers.extend(on_ranks(cluster, save(2, 2), ranks=[0], errors=True)))
        process = trainer_process(cluster, 1, 2, when, at_ready=other.start if when == "staging" else lambda: None)
        process.send_signal(stop)
        if when == "attached":
            other.start()
        other.join(60)
        assert isinstance(answers[0], cairn.Error), answers
        assert answers[0].reason in ("RANK_LATE", "TRAINER_LOST", "RANK_LOST"), answers
        assert answers[0].metadata["ranks"] == "1"
        process.kill()
        process.wait()
        assert_next_save_works(cluster, 3)


def test_outcome_of_a_dead_trainer_is_not_its_successors(root):
    """The trainer that was killed waited for the other rank, so nobody has heard how its save ended."""
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        waiting = trainer_process(cluster, 0, 1, "saving")
        until(lambda: "step=1 state=COLLECTING" in cluster.coordinator.log.read_text(), text="its save")
        waiting.kill()
        waiting.wait()
        until(lambda: "state=ABORTED" in cluster.coordinator.log.read_text(), text="the end of its save")
        assert reasons(on_ranks(cluster, save(1, 2), errors=True)) == ["", ""]


def test_trainer_that_dies_after_it_has_staged_changes_nothing(root):
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        processes = []
        ready = threading.Event()
        starter = threading.Thread(
            target=lambda: processes.append(trainer_process(cluster, 1, 1, "staged", at_ready=ready.set)))
        starter.start()
        with cluster.connect(0) as client:
            ready.wait(60)
            saving = client.save(1, state(0, 2))
            starter.join()
            processes[0].kill()
            processes[0].wait()
            assert saving.wait().step == 1
            assert client.checkpoints() == [1]


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGSTOP])
def test_coordinator_that_goes_away_during_a_save(root, stop):
    """It is killed and restarted, or frozen and thawed, while ranks wait for one another. The save must be committed
    or aborted, and the next one must work."""
    with cairn.local.Cluster(
        ranks=2, root=root, coordinator_flags=["--phase-timeout=20s", "--lease-ttl=2s"]
    ) as cluster:
        on_ranks(cluster, save(1, 2))
        answers = {}

        def one(rank):
            answers[rank] = on_ranks(cluster, save(2, 2, timeout=40), ranks=[rank], errors=True)[0]

        first = threading.Thread(target=one, args=(0,))
        first.start()
        time.sleep(0.3)  # rank 0 is in the save; no state of another process says so
        cluster.coordinator.kill(stop)
        second = threading.Thread(target=one, args=(1,))
        second.start()
        time.sleep(0.5)
        if stop == signal.SIGKILL:
            cluster.coordinator.restart()
        else:
            cluster.coordinator.kill(signal.SIGCONT)
        first.join(90)
        second.join(90)
        outcomes = reasons([answers[0], answers[1]])
        assert outcomes[0] == outcomes[1] or "" not in outcomes, answers
        assert_next_save_works(cluster, 3)
        with cluster.connect(0) as client:
            committed = client.checkpoints()
        assert committed == ([1, 2, 3] if outcomes[0] == "" else [1, 3])


def test_whole_job_killed_during_writing_leaves_nothing_half(root):
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        on_ranks(cluster, save(1, 2))
        large = noise((16 << 20,), np.uint8, 3)
        for _ in range(3):
            staged = []

            def work(rank, client):
                client.save(2, {"w": rows(large, rank, 2), "o": {"step": 2}}, allow_dropped_names=True)
                staged.append(rank)

            try:
                on_ranks(cluster, work)
            except cairn.Error as error:
                assert error.reason == "STEP_COMMITTED"
                break
            for service in (*cluster.agents, cluster.coordinator):
                service.kill()
            cluster.coordinator.restart()
            for agent in cluster.agents:
                agent.restart()
            with cluster.connect(0) as client:
                steps = client.checkpoints()
            assert steps in ([1], [1, 2])
            for step in steps:
                command("verify", f"demo@{step}", f"--root={root}")


def test_agent_killed_during_a_load_is_named_or_the_load_succeeds(root):
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        on_ranks(cluster, save(1, 2))
        cluster.agents[1].kill()

        def load(rank, client):
            return client.load({"w": blank(rows(WHOLE, rank, 2))})

        started = time.monotonic()
        answers = on_ranks(cluster, load, ranks=[0], errors=True)
        assert time.monotonic() - started < 30
        assert isinstance(answers[0], cairn.Error) and answers[0].reason in (
            "RANK_LOST",
            "RANK_LATE",
            "WORLD_INCOMPLETE",
        )
        assert answers[0].metadata["ranks"] == "1"
        cluster.agents[1].restart()

        def both(rank, client):
            target = {"w": blank(rows(WHOLE, rank, 2))}
            client.load(target)
            assert target["w"].array.tobytes() == rows(WHOLE, rank, 2).array.tobytes()

        until(lambda: reasons(on_ranks(cluster, both, errors=True)) == ["", ""], 40, "a load after the fault")


def test_agent_killed_when_its_buffer_is_about_to_be_mapped_is_named(root):
    """The trainer finds that a socket is gone, and its error names the rank that the coordinator has lost."""
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        on_ranks(cluster, save(1, 2))
        own = threading.local()

        def killed_first(path, **_):
            own.__dict__.setdefault("socket", path)  # a client maps something of its own agent first
            if getattr(own, "rank", None) == 0 and path != own.socket:
                cluster.agents[1].kill(signal.SIGKILL)
                pathlib.Path(path).unlink(missing_ok=True)

        def load(rank, client):
            own.rank = rank
            return client.load({"w": np.zeros_like(WHOLE)})

        with probes.at("map", killed_first):
            answer = on_ranks(cluster, load, errors=True)[0]
        assert isinstance(answer, cairn.Error) and answer.reason == "RANK_LOST", answer
        assert answer.metadata["ranks"] == "1"


def test_cluster_ends_with_a_process_that_is_killed(root):
    code = ("import sys, threading, cairn\n"
            "with cairn.local.Cluster(ranks=2, root=sys.argv[1]) as cluster:\n"
            "    print(cluster.coordinator.pid, *[agent.pid for agent in cluster.agents], flush=True)\n"
            "    threading.Event().wait()\n")
    paths = str(pathlib.Path(cairn.__file__).parents[1])
    process = subprocess.Popen([sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": paths})
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 3
    process.kill()
    process.wait()

    until(lambda: all(map(ended, pids)), 10, "the end of the cluster's processes")


def test_commit_of_a_later_save_is_not_taken_for_that_of_one_whose_agent_restarted(tmp_path):
    # However slow the machine is, the next process of the agent comes before the lease of the first one ends. Else the
    # error would say that the rank has no agent.
    with cairn.local.Cluster(ranks=2, root=tmp_path, coordinator_flags=["--lease-ttl=60s"]) as cluster:
        clients = [cluster.connect(rank) for rank in range(2)]

        def state(value):
            return {"w": np.full(1024, value, np.float32)}

        def on_both(work):
            with concurrent.futures.ThreadPoolExecutor(2) as threads:
                return list(threads.map(work, clients))

        on_both(lambda client: client.prepare(state(0.0)))
        lost = clients[0].save(5, state(7.0), timeout=30)  # alone: its agent opens the slab under the plan that it has
        # save() returns when its agent has the state, and the coordinator may not have heard of it yet. If the agent is
        # killed before it has, nobody knows the save by its number.
        until(lambda: "event=save_state job=demo step=5 state=COLLECTING" in cluster.coordinator.log.read_text(),
              text="the coordinator has heard of the save")
        cluster.agents[0].kill()
        cluster.agents[0].restart()

        def save_again(client):  # a rank may hear first how the lost one's save ended
            for last in (False, False, True):
                try:
                    return client.save(5, state(9.0), timeout=30).wait(30)
                except cairn.Error as error:
                    if last or error.reason not in ("RANK_LOST", "RANK_LATE"):
                        raise

        assert [checkpoint.step for checkpoint in on_both(save_again)] == [5, 5]
        with pytest.raises(cairn.Error) as told:
            lost.wait(30)
        assert told.value.reason == "RANK_LOST" and "its agent was restarted" in told.value.message, told.value
        assert "outcome" not in told.value.metadata, "the coordinator knows this save by its number"


def test_save_given_up_while_it_waits_for_others_ends_for_them_too(root):
    """Ctrl-C before this rank knows where its state goes: the others need not wait for its timeout."""
    state = {"w": np.zeros(16, np.float32)}
    soon = cairn.Limits(held_call=0.05)
    with (cairn.local.Cluster(ranks=2, root=root) as cluster, cluster.connect(0, limits=soon) as zero,
          cluster.connect(1) as one):

        def interrupted(name, answer, **_):
            if name == "BeginSave" and answer.pending:
                raise KeyboardInterrupt

        with probes.at("answered", interrupted), pytest.raises(KeyboardInterrupt):
            zero.save(1, state)
        with pytest.raises(cairn.Error) as caught:
            one.save(1, state, timeout=60).wait(60)
        assert caught.value.reason == "INTERRUPTED" and caught.value.metadata["ranks"] == "0", caught.value
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            saves = [threads.submit(lambda client: client.save(2, state).wait(60), client) for client in (zero, one)]
            assert [save.result(90).step for save in saves] == [2, 2]


def test_another_directory_at_the_root_gets_nothing_and_the_job_goes_on_when_the_root_is_back(root):
    flags = {**FLAGS, "agent_flags": ["--register-timeout=60s"]}
    with cairn.local.Cluster(ranks=2, root=root, **flags) as cluster:
        on_ranks(cluster, save(1, 2))
        away = root.with_name("away")
        root.rename(away)
        root.mkdir()
        refused = on_ranks(cluster, lambda rank, client: client.save(2, state(rank, 2)).wait(timeout=3), errors=True)
        assert reasons(refused) == ["ROOT_MISMATCH"] * 2, refused
        assert f"{root}/.cairn/root-proof" in str(refused[0]), refused[0]
        assert list(root.iterdir()) == []
        root.rmdir()
        away.rename(root)
        assert_next_save_works(cluster, 3)
    assert_no_partial_checkpoint(root, [1, 3])
