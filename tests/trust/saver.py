"""Saves the states of a training with real agents, and hears the alarms."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable

import torch
from trainings import State

import cairn
import cairn.torch

# Changes what one rank hands over: (rank, its part of the state) -> the part.
Change = Callable[[int, dict], dict]


def shard_of(rows: torch.Tensor, begin: int, shape: Iterable[int]) -> cairn.Shard:
    """Returns rows of a tensor, from row `begin` on."""
    narrow = rows.dtype == torch.bfloat16
    return cairn.Shard(rows.view(torch.int16).numpy() if narrow else rows.numpy(), tuple(shape),
                       (begin,) + (0,) * (rows.ndim - 1), dtype="bfloat16" if narrow else None)


def part_of(state: State, rank: int, ranks: int) -> dict:
    """Returns what a rank holds: a share of the rows of each tensor, as fully sharded data parallelism has it."""
    part = {}
    for name, tensor in state.tensors.items():
        if tensor.ndim == 0 or tensor.shape[0] < ranks:
            part[name] = tensor
            continue
        begin, end = tensor.shape[0] * rank // ranks, tensor.shape[0] * (rank + 1) // ranks
        part[name] = shard_of(tensor[begin:end].clone(), begin, tensor.shape)
    generator = {"rank": rank, "draws": state.objects["progress"]["batches"]}
    return part | state.objects | {"rng": cairn.per_rank(generator)}


class Saver:
    """Holds a client for each rank of a local cluster.

    Args:
      ranks: how many there are.
    """

    def __init__(self, root, job: str = "demo", ranks: int = 2, flags: tuple[str, ...] = ()):
        self.ranks, self._job, self._root, self._flags = ranks, job, root, list(flags)
        self._threads = concurrent.futures.ThreadPoolExecutor(16)
        self.cluster = self._start()
        self.clients: list = []
        self.connect()

    def _start(self):
        cluster = cairn.local.Cluster(self.ranks, self._root, self._job, coordinator_flags=self._flags)
        return cluster.__enter__()

    def connect(self) -> None:
        """Ends the trainers, and begins new ones."""
        for client in self.clients:
            client.close()
        self.clients = [cairn.connect(self.cluster.agents[rank].address) for rank in range(self.ranks)]

    def restart(self, ranks: int) -> None:
        """Goes on with another number of ranks."""
        self.close()
        self._threads = concurrent.futures.ThreadPoolExecutor(16)
        self.ranks = ranks
        self.cluster = self._start()
        self.clients = []
        self.connect()

    def _each(self, work):
        return [future.result() for future in [self._threads.submit(work, rank) for rank in range(self.ranks)]]

    def load(self, state: State, step: int | None = None) -> None:
        """Loads a step as a program does that resumes from it; the state says what it holds."""
        self._each(lambda rank: cairn.torch.load(self.clients[rank], part_of(state, rank, self.ranks), step))

    def save(self, step: int, state: State, change: Change | None = None) -> dict[str, str]:
        """Saves the state, and returns the alarms: kind -> message."""
        def work(rank):
            part = part_of(state, rank, self.ranks)
            if change is not None:
                part = change(rank, part)
            return cairn.torch.save(self.clients[rank], step, part, allow_dropped_names=state.dropped).wait(60)

        first, *others = self._each(work)
        assert all(str(each.warnings) == str(first.warnings) for each in others)
        return {warning.metadata["alarm"]: warning.message for warning in first.warnings}

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self._threads.shutdown()
        self.cluster.__exit__(None, None, None)

    def __enter__(self):
        return self

    def __exit__(self, *about):
        self.close()


def save_all(saver, states: Iterable[State]) -> dict[int, dict[str, str]]:
    """Saves the states of a training with a Saver or a Judge. It loads where it has resumed. Returns step -> alarms."""
    raised = {}
    before = None
    for step, state in enumerate(states, 1):
        if state.resumed:
            saver.connect()
            saver.load(before)
        if alarms := saver.save(step, state):
            raised[step] = alarms
        before = state
    return raised
