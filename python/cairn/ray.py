"""Lets Ray Train know the steps that Cairn has saved, as Ray's own checkpoints.

    saving = manager.step(step, state)
    cairn.ray.report({"loss": loss}, saving)                                    # in place of ray.train.report
    ...
    manager.restore_or_initialize(state, step=cairn.ray.step_of(ray.train.get_checkpoint(), client))

Such a checkpoint is a directory of one small file, which names a job and a step. Ray copies, ranks and deletes these
names; the tensors stay where the job's agents store them, and its own rules say which are kept. It needs ray[train].
"""

from __future__ import annotations

import json
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import ray.train

from cairn._base.errors import Error
from cairn._base.results import Checkpoint
from cairn._save.save_handle import Saving
from cairn.client import Client

__all__ = ["checkpoint_of", "named", "report", "step_of"]

_FILE = "cairn.json"
_LARGEST = 1 << 16
_WAIT_SECONDS = 600.0


def checkpoint_of(saved: Checkpoint, directory: str | pathlib.Path) -> Any:
    """Makes a ray.train.Checkpoint that names a committed step.

    Args:
      saved: what Saving.wait() returned, or a CheckpointManager's on_commit was given.
      directory: in which its file is written; it must stay until Ray has copied it, which ray.train.report() does.

    Raises:
      OSError: the file cannot be written.
    """
    content = json.dumps({"job": saved.job, "step": saved.step})
    pathlib.Path(directory, _FILE).write_text(content)
    return ray.train.Checkpoint.from_directory(directory)


def report(metrics: Mapping[str, Any], saving: Saving | None = None, timeout: float = _WAIT_SECONDS) -> None:
    """Calls ray.train.report, with a checkpoint if a save has begun. Every worker calls it equally often.

    It waits until the save is committed, so that Ray never goes back to a step that is not there. To let the training
    go on meanwhile, hand it the save of an earlier step.

    Args:
      metrics: as for ray.train.report.
      saving: what CheckpointManager.step() or a save returned; None if none has begun. The same on all workers.
      timeout: seconds for which the save is waited for.

    Raises:
      Error: as Saving.wait(): Ray then takes the worker for failed, and begins again with an earlier step.
    """
    if saving is None:
        ray.train.report(dict(metrics))
        return
    saved = saving.wait(timeout)
    if ray.train.get_context().get_world_rank() != 0:  # one worker names the step
        ray.train.report(dict(metrics))
        return
    with tempfile.TemporaryDirectory(prefix="cairn-ray-") as directory:
        ray.train.report(dict(metrics), checkpoint=checkpoint_of(saved, directory))


def step_of(checkpoint: Any, client: Client) -> int | None:
    """Returns the step that a ray.train.Checkpoint names.

    Args:
      checkpoint: what ray.train.get_checkpoint() or a Result gave; None if Ray has none.
      client: of the job that is to load it.

    Returns:
      The step; None for None: a restore then takes the job's latest step, if it has one.

    Raises:
      Error: BAD_REQUEST (it is none of checkpoint_of(), or names a step of another job).
    """
    if checkpoint is None:
        return None
    job, step = named(checkpoint)
    if job != client.job:
        raise Error("BAD_REQUEST", f"{checkpoint} names {job}@{step}, and this job is {client.job}",
                    {"job": client.job, "step": str(step), "next": "Start the agents with that job's name, or load it "
                     "by source=."})
    return step


def named(checkpoint: Any) -> tuple[str, int]:
    """Returns the job and the step that a ray.train.Checkpoint names.

    Raises:
      Error: BAD_REQUEST (it is none of checkpoint_of()).
    """
    with checkpoint.as_directory() as directory:
        try:
            with open(pathlib.Path(directory, _FILE), encoding="utf-8") as file:
                content = json.loads(file.read(_LARGEST))
            job, step = content["job"], content["step"]
        except (OSError, ValueError, TypeError, KeyError):
            job, step = None, None
    if not isinstance(job, str) or not isinstance(step, int) or isinstance(step, bool):
        raise Error("BAD_REQUEST", f"{checkpoint} does not name a step of Cairn", {
            "next": f"It has no valid {_FILE}: load it as it was saved, and let cairn.ray.report name the steps from "
                    "now on."})
    return job, step
