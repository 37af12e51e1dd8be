"""Cuts a small model as TP x PP x DP with ZeRO-1 states does, with numpy alone. Real processes are compared with it."""

from __future__ import annotations

import numpy as np

import cairn
from testing.ranks import noise, rows

LAYERS, HIDDEN = 4, 36
# name -> (shape, axis that tensor parallelism cuts; None: replicated)
PARAMETERS = {}
for _layer in range(LAYERS):
    PARAMETERS |= {
        f"layers.{_layer}.qkv.weight": ((3 * HIDDEN, HIDDEN), 0),
        f"layers.{_layer}.qkv.bias": ((3 * HIDDEN,), 0),
        f"layers.{_layer}.out.weight": ((HIDDEN, HIDDEN), 1),
        f"layers.{_layer}.norm": ((HIDDEN,), None),
    }
PARAMETERS |= {"embedding": ((48, HIDDEN), 0), "scale": ((), None)}
WHOLE = {name: noise(shape, np.float32, index) for index, (name, (shape, _)) in enumerate(PARAMETERS.items())}


def layout(tensor: int, pipeline: int, data: int):
    """Returns rank -> state under TP x PP x DP with ZeRO-1 states. Tensor-parallel ranks are innermost; DP is the
    rest."""
    def make(rank: int) -> dict:
        tp, dp, pp = rank % tensor, rank // tensor % data, rank // tensor // data
        state: dict = {}
        for name, (shape, axis) in PARAMETERS.items():
            stage = int(name.split(".")[1]) * pipeline // LAYERS if name.startswith("layers.") else 0
            if stage != pp:
                continue
            shard = rows(WHOLE[name], tp, tensor, axis) if axis is not None else cairn.Shard(
                WHOLE[name].copy(), shape, (0,) * len(shape))
            state[name] = shard
            elements = shard.array.size
            size = -(-elements // data)
            begin, end = min(dp * size, elements), min((dp + 1) * size, elements)
            state[f"optimizer.{name}"] = cairn.Shard(shard.array.reshape(-1)[begin:end].copy(), shape, shard.offset,
                                                     shard.shape, (begin, end))
        return state

    return make
