"""Reads the step from the checkpoint_id that users of torch.distributed.checkpoint give."""

from __future__ import annotations

import os
import re
import threading
import weakref

from cairn._base.errors import Error
from cairn.client import Client

# The last part of a path is the step, or a word and the step: "1200", "step-1200", "global_step1200", "epoch=1-step=9".
# In "1.5", "2024-01-05" or "1e3" nobody could say which number is meant.
_STEP = re.compile(r"(?:.*[^\W\d_]{2}[-_=]?)?([0-9]{1,12})")

_lock = threading.Lock()
_directories: weakref.WeakKeyDictionary[Client, str] = weakref.WeakKeyDictionary()


def number_of(checkpoint_id: str | os.PathLike[str] | None) -> int | None:
    """Returns the number at the end of a checkpoint_id, if there is one."""
    path = os.fspath(checkpoint_id) if isinstance(checkpoint_id, (str, os.PathLike)) else ""
    found = _STEP.fullmatch(path.rstrip("/").rpartition("/")[2]) if isinstance(path, str) else None
    return None if found is None else int(found.group(1))


def step_of(checkpoint_id: str | os.PathLike[str] | None) -> int:
    """Returns the number at the end of a checkpoint_id. Raises BAD_REQUEST if there is none."""
    number = number_of(checkpoint_id)
    if number is None:
        raise Error("BAD_REQUEST", f"checkpoint_id={checkpoint_id!r} does not end in the number of a step: write it as "
                    "\"checkpoints/1200\"; a directory that PyTorch wrote can be loaded if it has a .metadata")
    return number


def check_series(checkpoint_id: str | os.PathLike[str] | None, client: Client) -> None:
    """Refuses the id of another directory than that of the client's earlier calls.

    The directory of an id is no part of the job's name, so "model/100" and "ema/100" are one step, of which only the
    last one saved would stay.

    Raises:
      Error: BAD_REQUEST.
    """
    if checkpoint_id is None:
        return
    directory = os.path.dirname(os.path.normpath(os.fspath(checkpoint_id)))
    if not directory:
        return
    with _lock:
        known = _directories.setdefault(client, directory)
    if known != directory:
        raise Error("BAD_REQUEST", f"checkpoint_id={os.fspath(checkpoint_id)!r} is in another directory than "
                    f"{known!r}, where this process has saved or loaded; job {client.job} has one step of that number, "
                    "so one would replace the other",
                    {"job": client.job,
                     "next": "Save both in one state dict, or run a second job with agents of its own. If the same "
                             "checkpoints are meant, give the number alone as checkpoint_id."})
