"""Judges the states of a training without a cluster: a thousand times as fast as the Saver, and by the same rules."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import zlib

import torch
from saver import Change, part_of
from trainings import State

import cairn

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("CAIRN_JUDGE", REPOSITORY / "bazel-bin/tests/trust/judge/judge"))


def as_shard(value: torch.Tensor | cairn.Shard) -> tuple[str, tuple[int, ...], dict, bytes]:
    """Returns dtype, shape, offset and shape of the shard, and its bytes."""
    if isinstance(value, cairn.Shard):
        part = value.array
        return (value.dtype or str(part.dtype), tuple(value.global_shape),
                {"offset": list(value.offset), "shape": list(part.shape)}, part.tobytes())
    value = value.detach().contiguous()
    data = value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    shape = tuple(value.shape)
    return str(value.dtype).removeprefix("torch."), shape, {"offset": [0] * len(shape), "shape": list(shape)}, data


class Judge:
    """Takes the place of a Saver.

    Args:
      ranks: how many there are. What all have is written by one of them.

    Attributes:
      line: a number of the run that saves.
    """

    def __init__(self, ranks: int = 2):
        if not PROGRAM.is_file():
            raise FileNotFoundError(f"{PROGRAM}: run bazel build //tests/trust/judge")
        self.ranks, self.line = ranks, 1
        self._program = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def connect(self) -> None:
        """Ends the trainers, and begins new ones."""

    def load(self, state: State, step: int | None = None) -> None:
        """Begins another line, which goes on from the newest step."""
        self.line += 1

    def save(self, step: int, state: State, change: Change | None = None, *, keep: str | None = None,
             go_back_to: str | None = None) -> dict[str, str]:
        """Judges a step, and returns the alarms: kind -> message.

        Args:
          keep: the step is kept under this name.
          go_back_to: the step builds on the one that was kept under this name, and not on the last one.
        """
        parts = [part_of(state, rank, self.ranks) for rank in range(self.ranks)]
        if change is not None:
            parts = [change(rank, part) for rank, part in enumerate(parts)]
        tensors, objects, data = [], [], []
        for name in sorted({name for part in parts for name in part}):
            values = {rank: part[name] for rank, part in enumerate(parts) if name in part}
            first = next(iter(values.values()))
            if not isinstance(first, torch.Tensor | cairn.Shard):
                each = [value.value for value in values.values()] if isinstance(first, cairn.PerRank) else [first]
                objects.append({"name": name, "crc32c": [zlib.crc32(repr(value).encode()) for value in each]})
                continue
            if isinstance(first, torch.Tensor):
                writer = sorted(values)[zlib.crc32(name.encode()) % len(values)]
                values = {writer: values[writer]}
            shards = []
            for rank, value in values.items():
                dtype, shape, shard, bytes_of = as_shard(value)
                shards.append({"rank": rank, **shard})
                data.append(bytes_of)
            tensors.append({"name": name, "dtype": dtype, "shape": shape, "shards": shards})
        plan = [(tensor["name"], tensor["shape"], tensor["shards"]) for tensor in tensors]
        order = {"step": step, "line": self.line, "ranks": self.ranks, "tensors": tensors, "objects": objects,
                 "plan": f"{zlib.crc32(json.dumps(plan).encode()):08x}"}
        if keep is not None:
            order["keep"] = keep
        if go_back_to is not None:
            order["go_back_to"] = go_back_to
        self._program.stdin.write(b"".join([json.dumps(order).encode(), b"\n", *data]))
        self._program.stdin.flush()
        return json.loads(self._program.stdout.readline())

    def close(self) -> None:
        self._program.stdin.close()
        assert self._program.wait(60) == 0
        self._program.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *about):
        self.close()
