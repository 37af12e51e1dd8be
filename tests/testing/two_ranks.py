"""Saves and loads of a job of two ranks, whose one tensor tells by its bytes of which step it is."""

from __future__ import annotations

import numpy as np

from testing.ranks import blank, noise, on_ranks, rows


def whole(step: int) -> np.ndarray:
    return noise((64, 16), np.float32, step)


def save(cluster, *steps: int, **options) -> None:
    """Saves each step on both ranks, and waits until it is committed."""
    for step in steps:
        answers = on_ranks(cluster, lambda rank, client, step=step: client.save(
            step, {"w": rows(whole(step), rank, 2)}, timeout=20, **options).wait(60))
        assert all(answer.step == step for answer in answers)


def load(cluster, **options) -> list:
    """Returns (step, whether the arrays are those of that step) of every rank, or its error."""
    def work(rank, client):
        target = {"w": blank(rows(whole(0), rank, 2))}
        step = client.load(target, **options).step
        return step, target["w"].array.tobytes() == rows(whole(step), rank, 2).array.tobytes()
    return on_ranks(cluster, work, errors=True)
