"""Reads the step from the checkpoint_id that users of torch.distributed.checkpoint give."""

from __future__ import annotations

import os
import re

from cairn._errors import Error


def step_of(checkpoint_id: str | os.PathLike[str] | None) -> int:
    """Returns the number at the end of a checkpoint_id. Raises BAD_REQUEST if there is none."""
    found = None if checkpoint_id is None else re.search(r"([0-9]{1,12})/*$", os.fspath(checkpoint_id))
    if found is None:
        raise Error("BAD_REQUEST", f"checkpoint_id={checkpoint_id!r} does not end in the number of a step: write it as "
                    "\"checkpoints/1200\"; a directory that PyTorch wrote can be loaded if it has a .metadata")
    return int(found.group(1))
