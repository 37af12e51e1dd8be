"""Fingerprints of a training's state."""

from __future__ import annotations

from typing import Any

from cairn.fingerprints import Fingerprint
from cairn.fingerprints import fingerprint as compute_fingerprint
from cairn.torch._state_dict.flatten import flatten
from cairn.torch._training.stateful import Gathered


def fingerprint(state: dict[str, Any], timeout: float = 600) -> dict[str, Fingerprint]:
    """Calls cairn.fingerprint for a state dict, or for the objects that a CheckpointManager saves.

    Args:
      state: as for save(), or as for CheckpointManager.step(), such as {"model": model, "optimizer": optimizer}.
      timeout: as for cairn.fingerprint.

    Returns:
      Name, as in a checkpoint of this state -> fingerprint of what this rank holds of the tensor: a DTensor's local
      part.

    Raises:
      Error: as save() of what the state holds, and as cairn.fingerprint.
    """
    flat = flatten(Gathered(state).state)
    flat.copies.from_devices()
    return compute_fingerprint(flat.state, timeout)
