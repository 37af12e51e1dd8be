"""Tests saves that are written while their trainers still copy: what is in the files, and what ends such a save."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import cairn
from cairn._base import native
from testing.ranks import blank, command, files_below, noise, on_ranks, rows, until

RANKS = 2
FLAGS = ["--phase-timeout=60s", "--lease-ttl=3s"]
TENSORS = 6
# 4 MiB for each tensor and rank, a fourth of what the agent writes at once.
WHOLE = {f"w{number}": noise((2 * 1024, 1024), np.float32, number + 1) for number in range(TENSORS)}


def state_of(rank: int, scale: int = 1) -> dict:
    state = {name: rows(whole if scale == 1 else (whole.view(np.uint32) * np.uint32(scale)).view(np.float32), rank,
                        RANKS) for name, whole in WHOLE.items()}
    return {**state, "meta": {"lr": 0.25 * scale}}


def halves_of(copies: native.CopyList) -> tuple[native.CopyList, native.CopyList]:
    first, second = native.CopyList(), native.CopyList()
    middle = len(copies) // 2 * native._COLUMNS
    first._rows, first._dimensions = copies._rows[:middle], copies._dimensions
    second._rows, second._dimensions = copies._rows[middle:], copies._dimensions
    return first, second


class Halfway:
    """Holds each copy of a save to the staging buffer after its first half, of which the agent is told."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.copied = threading.Semaphore(0)
        self._run = native.CopyList.run

    def run(self, copies: native.CopyList, base: int = 0, written: int | None = None) -> None:
        if written is None or self.go_on.is_set():
            return self._run(copies, base, written)
        first, second = halves_of(copies)
        self._run(first, base, written)
        self.copied.release()
        assert self.go_on.wait(100)
        self._run(second, base, written)

    def await_halves(self, count: int = RANKS) -> None:
        for _ in range(count):
            assert self.copied.acquire(timeout=60)


@pytest.fixture
def halfway(monkeypatch):
    held = Halfway()
    monkeypatch.setattr(native.CopyList, "run", lambda copies, base=0, written=None: held.run(copies, base, written))
    yield held
    held.go_on.set()


@contextlib.contextmanager
def saving_ranks(cluster, work):
    """Runs on_ranks() in the background, and gives a list for its answers, which are complete at the end."""
    answers: list = []
    thread = threading.Thread(target=lambda: answers.extend(on_ranks(cluster, work, errors=True)))
    thread.start()
    try:
        yield answers
    finally:
        thread.join()


def written_early(root: pathlib.Path, step: int, rank: int, scale: int = 1) -> bool:
    """Returns whether the first megabyte of one of the rank's tensors stands in its file, which has no name yet."""
    begins = [shard.array.tobytes()[:1 << 20] for name, shard in state_of(rank, scale).items() if name != "meta"]
    for path in files_below(root / "demo" / f"{step:012}", ".partial"):
        if path.name.startswith(f"rank{rank:05}"):
            with contextlib.suppress(FileNotFoundError):
                content = path.read_bytes()
                return any(begin in content for begin in begins)
    return False


def check(cluster, step: int, scale: int = 1) -> None:
    def load(rank, client):
        target = {name: blank(shard) for name, shard in state_of(rank).items() if name != "meta"}
        report = client.load(target, step)
        for name, shard in state_of(rank, scale).items():
            if name != "meta":
                assert target[name].array.tobytes() == shard.array.tobytes(), (rank, name)
        assert report.objects == {"meta": {"lr": 0.25 * scale}}
        return report

    on_ranks(cluster, load)
    command("verify", f"demo@{step}", "--root", str(cluster.root))


@pytest.fixture
def cluster(root):
    with cairn.local.Cluster(ranks=RANKS, root=root, job="demo", coordinator_flags=FLAGS,
                             agent_flags=["--slab-loads=never"]) as made:
        yield made


def test_files_are_written_before_all_is_copied_and_hold_what_was_saved(cluster, halfway):
    with saving_ranks(cluster, lambda rank, client: client.save(7, state_of(rank)).wait()) as answers:
        halfway.await_halves()
        for rank in range(RANKS):
            until(lambda rank=rank: written_early(cluster.root, 7, rank), text=f"the first half of rank {rank}")
        assert "7" not in command("list", "demo", "--root", str(cluster.root), expect=None).stdout.split()
        halfway.go_on.set()
    assert all(isinstance(answer, cairn.Checkpoint) for answer in answers), answers
    check(cluster, 7)
    assert not files_below(cluster.root, ".partial")


class Interrupt(BaseException):
    """What ends a call in its middle."""


def test_call_that_was_interrupted_leaves_nothing_of_its_state_in_the_files(cluster, monkeypatch):
    run = native.CopyList.run
    first_call = threading.local()  # of the thread of a rank

    def run_half(copies, base=0, written=None):
        rank = getattr(first_call, "rank", None)
        if written is None or rank is None:
            return run(copies, base, written)
        run(halves_of(copies)[0], base, written)
        until(lambda: written_early(cluster.root, 7, rank), text=f"the first half of rank {rank}")
        raise Interrupt

    monkeypatch.setattr(native.CopyList, "run", run_half)
    interrupted = threading.Barrier(RANKS)

    def save_twice(rank, client):
        # The agent hears no word of the end: a second interrupt met the one about the first.
        with pytest.MonkeyPatch.context() as silent:
            silent.setattr(client._stager, "_cancel", lambda *_: None)
            first_call.rank = rank
            with pytest.raises(Interrupt):
                client.save(7, state_of(rank))
        first_call.rank = None
        interrupted.wait(60)
        return client.save(7, state_of(rank, scale=3)).wait()

    on_ranks(cluster, save_twice)
    check(cluster, 7, scale=3)


@pytest.mark.parametrize("victim", ["agent", "coordinator"])
def test_killed_service_in_the_middle_ends_or_completes_the_save(cluster, halfway, victim):
    with saving_ranks(cluster, lambda rank, client: client.save(7, state_of(rank)).wait()) as answers:
        halfway.await_halves()
        until(lambda: written_early(cluster.root, 7, 1), text="the first half of rank 1")
        process = cluster.agents[1] if victim == "agent" else cluster.coordinator
        process.kill()
        process.restart()
        halfway.go_on.set()
    done = [isinstance(answer, cairn.Checkpoint) for answer in answers]
    assert all(done) or not any(done), answers
    if all(done):
        check(cluster, 7)
    else:
        assert all(answer.reason in ("RANK_LOST", "SAVE_CANCELLED") for answer in answers), answers
        until(lambda: not files_below(cluster.root / "demo", ".partial"), text="no file is left of the attempt")
    on_ranks(cluster, lambda rank, client: client.save(8, state_of(rank, scale=5)).wait())
    check(cluster, 8, scale=5)


TRAINER = """
import sys
import cairn
from cairn._base import native
from test_early_writing import Halfway, state_of
held = Halfway()
run = native.CopyList.run
native.CopyList.run = lambda copies, base=0, written=None: held.run(copies, base, written)
client = cairn.connect(sys.argv[1])
rank = int(sys.argv[2])
import threading
threading.Thread(target=lambda: (held.await_halves(1), print("half", flush=True)), daemon=True).start()
client.save(7, state_of(rank)).wait()
"""


def test_killed_trainer_in_the_middle_leaves_no_file(cluster):
    paths = [pathlib.Path(cairn.__file__).parents[1], pathlib.Path(__file__).parents[1], pathlib.Path(__file__).parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    trainers = [cluster.spawn([sys.executable, "-c", TRAINER, cluster.agents[rank].address, str(rank)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
                for rank in range(RANKS)]
    for trainer in trainers:
        assert trainer.stdout.readline().strip() == "half"
    until(lambda: written_early(cluster.root, 7, 0), text="the first half of rank 0")
    trainers[0].send_signal(signal.SIGKILL)
    until(lambda: "state=ABORTED" in cluster.coordinator.log.read_text(), text="the end of the attempt")
    trainers[1].kill()
    for trainer in trainers:
        trainer.communicate()
    assert not files_below(cluster.root / "demo", ".partial") and not files_below(cluster.root, ".safetensors")
    assert "TRAINER_LOST" in cluster.coordinator.log.read_text()
    on_ranks(cluster, lambda rank, client: client.save(8, state_of(rank)).wait())
    check(cluster, 8)
