"""Tests CheckpointManager with real processes: when it saves, what it keeps, how it resumes and ends."""

import itertools
import logging
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import cairn
import cairn.torch
from cairn.torch import CheckpointManager
from testing.errors import raises_error
from testing.ranks import command_json, on_ranks, until

WORKER = pathlib.Path(__file__).with_name("manager_worker.py")


@pytest.fixture
def cluster(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        yield cluster


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def make(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    return model, optimizer, scheduler


def train(model, optimizer, scheduler):
    loss = model(torch.randn(5, 4)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss.item()


def test_Step_EveryStepsIsDue_SavesAndCloseWaits(cluster):
    committed = []
    with cluster.connect(0) as client:
        with CheckpointManager(client, every_steps=3, on_commit=lambda *seen: committed.append(seen)) as manager:
            assert manager.restore_or_initialize({"w": torch.zeros(3)}) is None
            for step in range(8):
                manager.step(step, {"w": torch.full((3,), float(step))}, metrics={"loss": step / 2})
        assert client.checkpoints() == [0, 3, 6]
        assert [(checkpoint.step, metrics) for checkpoint, metrics in committed] == [
            (0, {"loss": 0.0}), (3, {"loss": 1.5}), (6, {"loss": 3.0})]
        target = {"w": torch.zeros(3)}
        with CheckpointManager(client) as manager:
            assert manager.restore_or_initialize(target) == 6
        assert target["w"].tolist() == [6, 6, 6]


def test_Fingerprint_OfTheObjectsThatAreSaved_IsThatOfTheCheckpoint(cluster):
    model, optimizer, scheduler = make(1)
    state = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    train(model, optimizer, scheduler)
    with cluster.connect(0) as client, CheckpointManager(client) as manager:
        manager.save(0, state)
        manager.wait()
        found = cairn.torch.fingerprint(state)
    shown = command_json("show", "demo@0", "--tensors", f"--root={cluster.root}")["tensors"]
    assert {each["name"]: each["fingerprint"] for each in shown} == {name: str(one) for name, one in found.items()}
    assert any(name.startswith("optimizer.") for name in found)


def test_RestoreOrInitialize_OlderStep_TrainingGoesOnFromIt(cluster, caplog):
    with cluster.connect(0) as client, CheckpointManager(client, every_steps=3) as manager:
        for step in range(7):
            manager.step(step, {"w": torch.full((3,), float(step))})
    target = {"w": torch.zeros(3)}
    with cluster.connect(0) as client:
        with CheckpointManager(client, every_steps=1) as manager:
            with raises_error("NOT_COMMITTED"):
                manager.restore_or_initialize(target, step=4)
            assert manager.restore_or_initialize(target, step=3) == 3
            assert "goes on from step 3: its newer checkpoints (step 6) are superseded" in caplog.text
            assert target["w"].tolist() == [3, 3, 3]
            manager.step(4, target)
        assert client.checkpoints() == [0, 3, 4], "6 is superseded"


def test_RestoreOrInitialize_ObjectsWithStates_GoOnAsIfNeverStopped(cluster):
    reference = make(1)
    expected = [train(*reference) for _ in range(6)]
    with cluster.connect(0) as client:
        parts = make(1)
        with CheckpointManager(client, every_steps=3) as manager:
            for step in range(1, 5):
                assert train(*parts) == expected[step - 1]
                manager.step(step, lambda: {"model": parts[0], "optim": {"optimizer": parts[1], "scheduler": parts[2]},
                                            "rng": cairn.torch.rng_state(), "note": {"step": step}})
        parts = make(2)
        state = {"model": parts[0], "optim": {"optimizer": parts[1], "scheduler": parts[2]},
                 "rng": cairn.torch.rng_state(), "note": {"step": 0}}
        with CheckpointManager(client) as manager:
            assert manager.restore_or_initialize(state) == 3
        assert state["note"] == {"step": 3}
        assert [train(*parts) for _ in range(3)] == expected[3:]


def test_RestoreOrInitialize_NoCheckpoint_LeavesEverythingFresh(cluster):
    model, optimizer, _ = make(3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = {"model": model, "optimizer": optimizer, "epoch": 7}
    with cluster.connect(0) as client, CheckpointManager(client) as manager:
        assert manager.restore_or_initialize(state) is None
    assert not optimizer.state and optimizer.param_groups[0]["lr"] == 0.1 and state["epoch"] == 7
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_RestoreOrInitialize_OptimizerHadDoneNoStep_BeginsFreshAndMaySaveLater(cluster):
    with cluster.connect(0) as client:
        with CheckpointManager(client, every_steps=1) as manager:
            manager.step(0, {"optimizer": make(1)[1]})
        model, optimizer, scheduler = make(2)
        with CheckpointManager(client, every_steps=1) as manager:
            assert manager.restore_or_initialize({"optimizer": optimizer}) == 0
            assert not optimizer.state
            train(model, optimizer, scheduler)
            assert manager.step(1, {"optimizer": optimizer}).wait().step == 1
        fresh = make(3)[1]
        with CheckpointManager(client) as manager:
            assert manager.restore_or_initialize({"optimizer": fresh}) == 1
        for one, other in zip(fresh.state.values(), optimizer.state.values()):
            assert all(torch.equal(one[key], other[key]) for key in other)


def test_RestoreOrInitialize_DataLoader_GoesOnAtItsPosition(cluster):
    StatefulDataLoader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    loader = StatefulDataLoader(list(range(20)), batch_size=2, shuffle=True)
    torch.manual_seed(5)
    batches = iter(loader)
    seen = [next(batches).tolist() for _ in range(4)]
    with cluster.connect(0) as client:
        with CheckpointManager(client, every_steps=1) as manager:
            manager.step(1, {"loader": loader})
        rest = [batch.tolist() for batch in batches]
        other = StatefulDataLoader(list(range(20)), batch_size=2, shuffle=True)
        with CheckpointManager(client) as manager:
            assert manager.restore_or_initialize({"loader": other}) == 1
        assert [batch.tolist() for batch in other] == rest and len(seen) + len(rest) == 10


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("generators", ["by the manager", "once more by the program"])
def test_RestoreOrInitialize_LoaderAndGenerators_TheLossesAreThoseWithoutAStop(tmp_path, shuffle, generators):
    StatefulDataLoader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def run(root, steps):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        loader = StatefulDataLoader(torch.arange(48.0).reshape(12, 4) / 48, batch_size=2, shuffle=shuffle)
        losses = {}
        with cairn.local.Cluster(ranks=1, root=root) as cluster:
            with CheckpointManager(cluster.connect(0), every_steps=4, handle_sigterm=False) as manager:
                state = {"rng": cairn.torch.rng_state(), "model": model, "optimizer": optimizer, "loader": loader}
                start = manager.restore_or_initialize(state)
                step = 0 if start is None else start
                if start is not None and generators == "once more by the program":
                    batches = iter(loader)
                    cairn.torch.set_rng_state(state["rng"])
                else:
                    batches = iter(loader)
                while step < steps:
                    for batch in batches:
                        step += 1
                        loss = model(batch).square().mean()
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                        losses[step] = loss.item()
                        manager.step(step, lambda: {**state, "rng": cairn.torch.rng_state()})
                        if step == steps:
                            break
                    else:
                        batches = iter(loader)
        return losses

    whole = run(tmp_path / "whole", 20)  # 6 steps an epoch
    for stop, begun in ((6, 4), (13, 12)):  # 12 is the last step of an epoch
        run(tmp_path / f"stopped-{stop}", stop)
        again = run(tmp_path / f"stopped-{stop}", 20)
        assert again == {step: loss for step, loss in whole.items() if step > begun}


def test_RestoreOrInitialize_NoGeneratorsAreLoaded_TheyStayAsTheyAre(cluster):
    with cluster.connect(0) as client:
        with CheckpointManager(client, every_steps=1) as manager:
            manager.step(1, {"w": torch.zeros(1)})
        state = {"w": torch.zeros(1), "rng": cairn.torch.rng_state()}
        torch.rand(3)
        expected = torch.get_rng_state()
        with CheckpointManager(client) as manager:
            assert manager.restore_or_initialize(state, strict=False) == 1
        assert torch.equal(torch.get_rng_state(), expected)


def test_RestoreOrInitialize_BytesOfTheLatestAreDamaged_TakesTheNextOlderOne(tmp_path, caplog):
    def saved(step):
        return {"w": torch.full((3,), float(step)), "step": step}

    flags = ["--slab-loads=never"]  # the agent has step 3 in memory, undamaged
    with cairn.local.Cluster(ranks=1, root=tmp_path, agent_flags=flags) as cluster, cluster.connect(0) as client:
        checkpoints = [client.save(step, {name: np.asarray(value) for name, value in saved(step).items()}).wait()
                       for step in (1, 2, 3)]
        for checkpoint in checkpoints[1:]:
            for file in (tmp_path / checkpoint.data_directory).glob("*.safetensors"):
                with open(file, "r+b") as handle:
                    handle.seek(-8, os.SEEK_END)
                    handle.write(b"\xff" * 8)
        target = {"w": torch.zeros(3), "step": torch.zeros((), dtype=torch.int64)}
        with CheckpointManager(client) as manager:
            for refused in ({"fallback": False}, {"strict": False}, {"step": 3}):
                with pytest.raises(cairn.Error) as caught:
                    manager.restore_or_initialize(target, **refused)
                assert caught.value.reason == "CHECKSUM_MISMATCH", refused
            assert manager.restore_or_initialize(target) == 1
        assert target["w"].tolist() == [1, 1, 1] and target["step"] == 1
        told = [record.getMessage() for record in caplog.records if "is loaded in its place" in record.getMessage()]
        assert len(told) == 2 and "step 3 is damaged" in told[0] and "step 2 is damaged" in told[1], told


def test_RestoreOrInitialize_AnotherNumberOfRanks_LeavesRanksOwnStates(tmp_path, caplog):
    class Position:
        at = 0

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

    def save(rank, client):
        position = Position()
        position.at = 10 + rank
        with CheckpointManager(client, every_steps=1) as manager:
            manager.step(1, {"position": cairn.per_rank(position), "rng": cairn.torch.rng_state()})

    def load(rank, client):
        position = Position()
        state = {"position": cairn.per_rank(position), "rng": cairn.torch.rng_state()}
        with CheckpointManager(client) as manager:
            assert manager.restore_or_initialize(state) == 1
        return position.at, cairn.torch.set_rng_state(state["rng"])

    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        on_ranks(cluster, save)
        assert on_ranks(cluster, load) == [(10, True), (11, True)]
    with cairn.local.Cluster(ranks=1, root=tmp_path) as cluster, caplog.at_level(logging.WARNING, "cairn"):
        assert on_ranks(cluster, load) == [(0, False)]
    assert "'position' was saved by another number of ranks" in caplog.text


def test_Step_MinutesHavePassed_AllRanksAgreeOnAStep(tmp_path):
    clock = Clock()

    def work(rank, client):
        saved = []
        # Only the clock of rank 0 counts.
        with CheckpointManager(client, every_minutes=5, clock=clock if rank == 0 else Clock()) as manager:
            for step in range(1, 100_000):
                time.sleep(0.002)  # a step of training
                if step == 3 and rank == 0:
                    clock.now += 301
                if manager.step(step, lambda: {"w": np.full(4, step)}) is not None:
                    saved.append(step)
                    break
        return saved

    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        first, second = on_ranks(cluster, work)
        assert first == second and len(first) == 1 and first[0] > 3
        with cluster.connect(0) as client:
            assert client.checkpoints() == first


def test_KeepLast_IsGiven_TheCoordinatorDeletesOlderOnes(cluster):
    with cluster.connect(0) as client:
        with CheckpointManager(client, every_steps=1, keep_last=2, keep_every=4) as manager:
            for step in range(1, 8):
                manager.step(step, {"w": torch.ones(2)})
        until(lambda: client.checkpoints() == [4, 6, 7], text="pruning")
        CheckpointManager(client).close()  # says nothing about what is kept
        policy = command_json("prune", "demo", "--dry-run", f"--coordinator={cluster.coordinator.address}")
        assert (policy["keep_last"], policy["keep_every"]) == (2, 4)


def test_KeepBest_IsGiven_TheBestAndTheNewestStay(cluster, caplog):
    with cluster.connect(0) as client:
        with CheckpointManager(client, every_steps=1, keep_best="loss:min") as manager:
            for step, loss in enumerate((3.0, torch.tensor(1.0), 2.0), 1):
                # What cannot be a metric is for on_commit alone.
                manager.step(step, {"w": torch.ones(2)}, metrics={"loss": loss, "note": "late", "a b": 1})
            until(lambda: client.checkpoints() == [2, 3], text="pruning")
            assert "cannot be the best" not in caplog.text
            assert caplog.text.count("is saved without the metric 'note': the metric 'note' is no number: 'late'") == 1
            assert caplog.text.count("is saved without the metric 'a b'") == 1
            manager.step(4, {"w": torch.ones(2)})
            assert "demo@4 is saved without the metric 'loss'" in caplog.text
            until(lambda: client.checkpoints() == [2, 4], text="pruning")
        listed = command_json("show", "demo@2", f"--coordinator={cluster.coordinator.address}")
        assert listed["metrics"] == {"loss": 1.0}


def test_Step_ASaveFailed_IsToldAtALaterStepAndTrainingGoesOn(tmp_path, caplog):
    failures, told = [], threading.Event()

    def work(rank, client):
        with CheckpointManager(client, every_steps=2,
                               on_failure=failures.append if rank == 0 else None) as manager:
            manager.step(2, {"w": torch.ones(2)})
            if rank == 1:
                assert told.wait(60)
            else:
                assert manager.step(4, {"w": torch.ones(2)}) is not None  # the other rank does not come
                odd = itertools.count(5, 2)
                until(lambda: manager.step(next(odd), {}) or failures, text="the save failed")
                told.set()
            manager.step(10**6, {"w": torch.ones(2)})
        return client.checkpoints()

    with cairn.local.Cluster(ranks=2, root=tmp_path, coordinator_flags=("--phase-timeout=1s",)) as cluster:
        assert on_ranks(cluster, work)[0] == [2, 10**6]
    assert [(error.reason, error.metadata["step"]) for error in failures] == [("RANK_LATE", "4")]
    assert "the save of demo@4 failed, training goes on: RANK_LATE" in caplog.text


@pytest.mark.parametrize("arguments, warned", [({}, 1), ({"every_steps": 10**6}, 0), ({"every_minutes": 60}, 0)])
def test_Step_NoScheduleIsGiven_WarnsOnce(cluster, caplog, arguments, warned):
    with cluster.connect(0) as client, CheckpointManager(client, **arguments) as manager:
        manager.save(1, {"w": torch.ones(2)})
        assert "only on request" not in caplog.text
        manager.step(2, {"w": torch.ones(2)})
        manager.step(3, {"w": torch.ones(2)})
    assert caplog.text.count("step() saves only on request (`cairn save demo`) and on SIGTERM") == warned


def test_Step_SavesFail_OneRankLogsThemAndRepeatsAreShort(tmp_path, caplog):
    """The steps are committed, so every rank's own call fails; the ranks other than 0 say so in a line."""
    def work(rank, client):
        for step in (1, 2):
            client.save(step, {"w": np.ones(2)}).wait()
        manager = CheckpointManager(client, every_steps=1)
        for step in (1, 2):
            assert manager.step(step, {"w": torch.ones(2)}) is None
        with raises_error("STEP_COMMITTED"):
            manager.close()

    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        on_ranks(cluster, work)
    told = sorted(record.getMessage() for record in caplog.records if record.getMessage().startswith("the save of"))
    first, second = ("demo@1 is committed already", "demo@2 is committed already")
    assert [text for text in told if "\n" in text] == [
        f"the save of demo@1 failed, training goes on: STEP_COMMITTED: {first}\nnext: Save another step. To replace "
        "this one, save it with overwrite=True on all ranks."]
    assert [text for text in told if "\n" not in text] == [
        f"the save of demo@1 failed: STEP_COMMITTED: {first}",
        f"the save of demo@2 failed again: STEP_COMMITTED: {second}",
        f"the save of demo@2 failed again: STEP_COMMITTED: {second}"]


def test_Step_ASaveFailedOnAllRanks_OnlyRank0LogsIt(tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "cairn")
    ended = threading.Barrier(3)

    def work(rank, client):
        manager = CheckpointManager(client, every_steps=1)
        manager.step(1, {"w": torch.ones(2)}).wait(60)
        if rank == 2:
            ended.wait(60)  # it never comes to step 2
            return manager.close()
        assert manager.step(2, {"w": torch.ones(2)}) is not None
        with raises_error("RANK_LATE"):
            manager.close()
        ended.wait(60)

    with cairn.local.Cluster(ranks=3, root=tmp_path, coordinator_flags=("--phase-timeout=1s",)) as cluster:
        on_ranks(cluster, work)
    told = [record for record in caplog.records if record.getMessage().startswith("the save of")]
    assert sorted((record.levelname, record.getMessage().split(":")[0]) for record in told) == [
        ("DEBUG", "the save of demo@2 failed"), ("ERROR", "the save of demo@2 failed, training goes on")]


def test_Close_TheNewestSaveFailed_Raises(cluster):
    with cluster.connect(0) as client:
        client.save(1, {"w": np.ones(2)}).wait()
        manager = CheckpointManager(client, every_steps=1)
        assert manager.step(1, {"w": torch.ones(2)}) is None
        with raises_error("STEP_COMMITTED"):
            manager.close()
        manager.close()
        with pytest.raises(cairn.Error) as caught:
            manager.step(3, {})
        assert caught.value.reason == "BAD_REQUEST" and "closed" in caught.value.message


def test_Close_TheLastSavesFailedAndWereTold_RaisesAllTheSame(cluster, caplog):
    with cluster.connect(0) as client:
        for step in (1, 2):
            client.save(step, {"w": np.ones(2)}).wait()
        manager = CheckpointManager(client, every_steps=1)
        for step in (1, 2):
            assert manager.step(step, {"w": torch.ones(2)}) is None
        manager.wait()  # tells both
        with pytest.raises(cairn.Error) as caught:
            manager.close()
    assert (caught.value.reason, caught.value.metadata["step"]) == ("STEP_COMMITTED", "2")
    assert "the last 2 saves of this run failed (steps 1 and 2)" in caplog.text


@pytest.mark.parametrize("arguments, reason, word", [
    ({"every_steps": 0}, "BAD_REQUEST", "every_steps"), ({"every_steps": 1.5}, "BAD_REQUEST", "every_steps"),
    ({"every_minutes": 0}, "BAD_REQUEST", "every_minutes"), ({"every_minutes": "5"}, "BAD_REQUEST", "every_minutes"),
    ({"keep_last": 0}, "BAD_REQUEST", "keep_last"), ({"keep_every": -1}, "BAD_REQUEST", "keep_every"),
    ({"keep_best": ("loss", "lowest")}, "BAD_REQUEST", "keep_best"), ({"save_timeout": -1}, "BAD_REQUEST", "timeout"),
])
def test_Manager_WrongArguments_AreRefusedByName(cluster, arguments, reason, word):
    with cluster.connect(0) as client, pytest.raises(cairn.Error) as caught:
        CheckpointManager(client, **arguments)
    assert caught.value.reason == reason and word in caught.value.message
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_Step_AStateThatCannotBeStored_IsRaised(cluster):
    with cluster.connect(0) as client, CheckpointManager(client, every_steps=1) as manager:
        with pytest.raises(cairn.Error) as caught:
            manager.step(1, {"a": {"b": object()}})
        assert caught.value.reason == "BAD_REQUEST" and "a['b']" in caught.value.message
        with pytest.raises(cairn.Error) as caught:
            manager.step(2, torch.nn.Linear(1, 1))
        assert '{"model": model}' in caught.value.message


def start(cluster, rank, log, *options, words=()):
    environment = {**os.environ, "CAIRN_AGENT": cluster.agents[rank].address, "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])}
    return cluster.spawn([*words, sys.executable, str(WORKER), str(log), *options], env=environment,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("receivers", [(0, 1), (1,)])
def test_Sigterm_WhileTraining_EndsAfterACommittedSave(tmp_path, receivers):
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        logs = [tmp_path / f"{rank}.log" for rank in range(2)]
        workers = [start(cluster, rank, logs[rank]) for rank in range(2)]
        until(lambda: all(log.exists() and len(log.read_text().split()) > 5 for log in logs), limit=240,
              text="training")
        for rank in receivers:
            workers[rank].send_signal(signal.SIGTERM)
        outputs = [workers[rank].communicate(timeout=240)[0] for rank in receivers]
        assert [workers[rank].returncode for rank in receivers] == [-signal.SIGTERM] * len(receivers), outputs
        with cluster.connect(0) as client:
            committed = client.checkpoints()
        # It went on until the step on which all ranks had agreed, and not further.
        for rank, output in zip(receivers, outputs, strict=True):
            assert committed == [int(logs[rank].read_text().split()[-1])], outputs
            assert output == f"rank {rank} got SIGTERM: demo@{committed[0]} is saved\n"


def test_Sigterm_FirstProcessOfAContainer_EndsAfterACommittedSave(tmp_path):
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no process namespace here: {tried.stderr.strip()}")
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        log = tmp_path / "log"
        worker = start(cluster, 0, log, words=words)
        until(lambda: log.exists() and len(log.read_text().split()) > 5, limit=240, text="training")
        first = int(pathlib.Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text())
        os.kill(first, signal.SIGTERM)
        output = worker.communicate(timeout=240)[0]
        assert worker.returncode == 128 + signal.SIGTERM, output
        with cluster.connect(0) as client:
            assert client.checkpoints() == [int(log.read_text().split()[-1])], output


INTERRUPTED = """
import signal
# Whoever starts the tests in the background has it ignored, and processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
import torch, cairn
from cairn.torch import CheckpointManager
with cairn.connect() as client, CheckpointManager(client, every_steps=1) as manager:
    manager.step(1, {"w": torch.zeros(9)})
    manager.wait()
    manager.step(2, {"w": torch.zeros(9)})
    print("staged", flush=True)
    while not @closing@:
        pass
"""


@pytest.mark.parametrize("closing", [False, True])
def test_Interrupt_ASaveIsUnderWay_EndsAtOnceWithOneTracebackAndTheSaveGoesOn(tmp_path, closing):
    """Ctrl-C in the training, or in the waiting of close(), while the other rank keeps a staged save waiting."""
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster, cluster.connect(1) as client:
        environment = {**os.environ, "CAIRN_AGENT": cluster.agents[0].address,
                       "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])}
        worker = cluster.spawn([sys.executable, "-c", INTERRUPTED.replace("@closing@", str(closing))], env=environment,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        cairn.torch.save(client, 1, {"w": torch.zeros(9)}).wait(60)
        assert worker.stdout.readline() == "staged\n"
        worker.send_signal(signal.SIGINT)
        errors = worker.communicate(timeout=60)[1]
        assert worker.returncode == -signal.SIGINT and errors.count("Traceback") == 1, errors
        assert "interrupted: the save of demo@2 is staged and goes on without this process" in errors, errors
        assert cairn.torch.save(client, 2, {"w": torch.zeros(9)}).wait(60).step == 2


FORKS = """
import multiprocessing, signal, time
import cairn, cairn.eviction
from cairn.torch import CheckpointManager
with cairn.connect() as client, {handler} as handler:
    ours = signal.getsignal(signal.SIGTERM)
    fork = multiprocessing.get_context("fork")
    runs, found = fork.Event(), fork.Value("i", -1)
    def work():
        found.value = signal.getsignal(signal.SIGTERM)
        runs.set()
        time.sleep(600)
    child = fork.Process(target=work)
    child.start()
    # Python forgets a signal that comes between fork() and its first instruction in the child, whoever handles it.
    runs.wait()
    child.terminate()
    child.join(60)
    print(child.exitcode == -signal.SIGTERM, found.value == signal.SIG_DFL, signal.getsignal(signal.SIGTERM) == ours)
"""


@pytest.mark.parametrize("handler", ["CheckpointManager(client, every_steps=1)", "cairn.eviction.Watch(client)"])
def test_Sigterm_AForkedChild_EndsAtOnce(tmp_path, handler):
    with cairn.local.Cluster(ranks=1, root=tmp_path) as cluster:
        environment = {**os.environ, "CAIRN_AGENT": cluster.agents[0].address,
                       "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])}
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS.format(handler=handler)], env=environment,
                              capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True True\n", "")


NESTED = """
import multiprocessing, os, signal, time
import cairn, cairn.eviction
from cairn.torch import CheckpointManager
def over(number, frame):
    ours(number, frame)
with cairn.connect() as client, CheckpointManager(client, every_steps=1), cairn.eviction.Watch(client), \\
        cairn.eviction.Watch(client):
    fork = multiprocessing.get_context("fork")
    for chained in (False, True):
        ours = signal.getsignal(signal.SIGTERM)
        if chained:
            signal.signal(signal.SIGTERM, over)
        runs = fork.Event()
        def work():
            runs.set()
            while True:  # else a signal that comes before a long sleep would be seen at its end alone
                time.sleep(0.01)
        child = fork.Process(target=work)
        child.start()
        runs.wait()
        child.terminate()
        child.join(60)
        print(child.exitcode == -signal.SIGTERM)
        signal.signal(signal.SIGTERM, ours)
# They are taken off in the order in which they were set, which is the wrong one.
first, second = cairn.eviction.Watch(None), cairn.eviction.Watch(None)
first.__enter__(), second.__enter__()
first.__exit__(None, None, None), second.__exit__(None, None, None)
print("ends", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""


def test_Sigterm_SeveralHandlers_EachProcessEndsAtOnce(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path) as cluster:
        environment = {**os.environ, "CAIRN_AGENT": cluster.agents[0].address,
                       "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])}
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", NESTED], env=environment, capture_output=True,
                              text=True, timeout=200)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "True\nTrue\nends\n", "")


def test_Sigterm_TheProgramHasAHandler_ItIsCalledAndTheProgramDecides(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        log = tmp_path / "log"
        worker = start(cluster, 0, log, "--own-handler")
        until(lambda: log.exists() and len(log.read_text().split()) > 5, limit=240, text="training")
        worker.send_signal(signal.SIGTERM)
        output = worker.communicate(timeout=240)[0]
        step = int(log.read_text().split()[-1])
        assert worker.returncode == 0
        assert output == f"own handler\nrank 0 got SIGTERM: demo@{step} is saved\nshould stop\n"
        with cluster.connect(0) as client:
            assert client.checkpoints() == [step]


def test_Sigterm_TheSaveCannotBeMade_TheLogSaysSo(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        log = tmp_path / "log"
        worker = start(cluster, 0, log)
        until(lambda: log.exists() and len(log.read_text().split()) > 5, limit=240, text="training")
        shutil.rmtree(tmp_path / "root")
        worker.send_signal(signal.SIGTERM)
        output = worker.communicate(timeout=240)[0]
        assert "rank 0 got SIGTERM, and no step of this run of demo is saved\n" in output


def test_RngState_OfAnotherNumberOfRanks_IsLeftAloneAndTheLogSaysSo(caplog):
    before = torch.get_rng_state()
    assert not cairn.torch.set_rng_state(cairn.PerRankValues([cairn.torch.rng_state().value] * 3))
    assert torch.equal(torch.get_rng_state(), before)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "saved by 3 ranks" in caplog.text and "seed them anew" in caplog.text


def test_RngState_HasNoneOfTheDeviceInUse_TheLogSaysSo(caplog, monkeypatch):
    state = cairn.torch.rng_state()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert cairn.torch.set_rng_state(state)
    assert "has none of CUDA" in caplog.text


def test_RngState_IsPutBack_AllGeneratorsRepeat():
    def draw():
        return random.random(), np.random.rand(3).tolist(), np.random.randn(), torch.rand(3).tolist()

    np.random.randn()  # leaves a second normal number behind
    state = cairn.torch.rng_state()
    first = draw()
    assert cairn.torch.set_rng_state(state) and draw() == first
    with raises_error("BAD_REQUEST"):
        cairn.torch.set_rng_state({"torch": 1})
