"""The states of the random number generators that a training loop draws from, as one value."""

from __future__ import annotations

import logging
import random
from typing import Any

import numpy
import torch

from cairn._base.errors import Error
from cairn._state.entries import PerRank, PerRankValues

_log = logging.getLogger("cairn")


class RngState(PerRank):
    """The states of a rank's generators. CheckpointManager puts them back when all else is restored."""


def rng_state() -> RngState:
    """Returns the states of the global generators of Python, numpy and torch, and of CUDA's current device.

    It is an entry of a state: every rank has its own. CheckpointManager.restore_or_initialize() puts it back by itself;
    after a load in another way, set_rng_state() does. A device is left out while this process has not used CUDA.
    Generators that a program has made itself (`torch.Generator`, `numpy.random.default_rng`) are not known here.
    """
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": numpy.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return RngState(state)


def set_rng_state(state: Any) -> bool:
    """Puts the generators into a state that rng_state() returned, or that a load brought in its place.

    Where generators stay as they were, a warning in the log "cairn" says so: all of them if another number of ranks
    saved the state, CUDA's if the state has none for a process that uses CUDA.

    Returns:
      False, with all generators as they were, if another number of ranks saved the state: then no rank's numbers can go
      on as they would have. Seed the generators anew in that case.

    Raises:
      Error: BAD_REQUEST (it is no such state).
    """
    if isinstance(state, PerRank):
        state = state.value
    if isinstance(state, PerRankValues):
        _log.warning("the states of the random number generators were saved by %d ranks, so they stay as they are on "
                     "each of this job's: seed them anew if the run depends on it", len(state))
        return False
    if not isinstance(state, dict) or not {"python", "numpy", "torch"} <= state.keys():
        raise Error("BAD_REQUEST", "this is no state that cairn.torch.rng_state() returned")
    random.setstate(state["python"])
    numpy.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    elif torch.cuda.is_available() and torch.cuda.is_initialized():
        _log.warning("the state of the random number generators has none of CUDA, so that of this device stays as it "
                     "is: seed it anew if the run depends on it")
    return True
