"""The state that the ranks save: each version has bytes of its own, so a load shows which version it has read."""

from __future__ import annotations

import numpy as np

import cairn
from testing.ranks import blank, noise, rows

# Rank 0 holds most, so other ranks write a part of it.
_HEAVY = 6
_ROWS = 24


def _tensor(version: int, number: int) -> np.ndarray:
    return noise((_ROWS, 32), np.float32, 1000 * version + number)


def state(rank: int, world: int, version: int) -> dict:
    made: dict = {"rows": rows(_tensor(version, 0), rank, world), "all": noise((64,), np.int32, 5),
                  "version": version, "mine": cairn.per_rank([rank, version])}
    if rank == 0:
        made |= {f"heavy.{i}": cairn.Shard(_tensor(version, 1 + i), (_ROWS, 32), (0, 0)) for i in range(_HEAVY)}
    return made


def target(rank: int, world: int, crosswise: bool = False) -> dict:
    """What is filled by a load: the layout that was saved, or all of it by columns, which crosses all files."""
    made: dict = {"all": np.zeros(64, np.int32)}
    if crosswise:
        names = ["rows", *(f"heavy.{i}" for i in range(_HEAVY))]
        return made | {name: blank(rows(_tensor(0, 0), rank, world, 1)) for name in names}
    saved = state(rank, world, 0)
    return made | {name: blank(value) for name, value in saved.items() if isinstance(value, cairn.Shard)}


def same(rank: int, world: int, filled: dict, version: int, crosswise: bool = False) -> bool:
    """Whether every byte of a target is that of the version."""
    if filled["all"].tobytes() != noise((64,), np.int32, 5).tobytes():
        return False
    numbers = {"rows": 0} | {f"heavy.{i}": 1 + i for i in range(_HEAVY)}
    for name, shard in filled.items():
        if name == "all":
            continue
        whole = _tensor(version, numbers[name])
        if crosswise:
            expected = rows(whole, rank, world, 1).array
        else:
            expected = rows(whole, rank, world).array if name == "rows" else whole
        if shard.array.tobytes() != expected.tobytes():
            return False
    return True
