"""Saves and loads with the signatures of torch.distributed.checkpoint.

    import cairn.torch.dcp as dcp                 # was: import torch.distributed.checkpoint as dcp

    dcp.save({"model": model_state}, checkpoint_id="checkpoints/1200")
    dcp.load({"model": model_state}, checkpoint_id="checkpoints/1200")

A number at the end of `checkpoint_id` is the step; the job is that of the agent. load() also takes a directory that
torch.distributed.checkpoint wrote. Every rank of the job makes the call, as in PyTorch. Code that passes a
storage_writer or storage_reader to PyTorch's own calls passes CairnWriter and CairnReader.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import threading
from typing import Any

import torch.distributed
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.stateful import Stateful

from cairn._base.errors import Error
from cairn._base.results import Checkpoint
from cairn._load.loader import tell_unfilled
from cairn.client import Client, Saving
from cairn.torch._dcp.checkpoint_id import check_series, number_of, step_of
from cairn.torch._dcp.default_client import own_client
from cairn.torch._dcp.storage import CairnReader, CairnWriter
from cairn.torch._state_dict.flatten import FlatState, flatten, is_dcp_directory
from cairn.torch._state_dict.save_load import fill, names_error

__all__ = ["CairnReader", "CairnWriter", "async_save", "load", "save"]

_LONGEST = 365 * 24 * 3600.0
_log = logging.getLogger(__name__)


def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None,
         storage_writer: None = None, planner: Any = None, process_group: Any = None, no_dist: bool = False,
         use_collectives: bool = True, client: Client | None = None) -> Checkpoint:
    """Saves a state dict and returns when it is committed.

    Args:
      state_dict: as for torch.distributed.checkpoint.save; values with state_dict() and load_state_dict() are asked for
        their state.
      checkpoint_id: ends in the number of the step: "checkpoints/1200", "step-1200", "1200". Nothing is written there:
        the checkpoint is a step of the agent's job. All ids of a process are in one directory.
      storage_writer: must be None: the agent writes.
      planner: None, or a DefaultSavePlanner as it comes.
      process_group: None, or a group of all ranks.
      no_dist: only in a job of one rank.
      use_collectives: has no effect, because ranks never talk to each other here.
      client: this rank's; by default one that cairn.connect() gives, which is kept for later calls.

    Returns:
      The checkpoint; torch.distributed.checkpoint returns its Metadata here.

    Raises:
      Error: BAD_REQUEST (no step can be read from checkpoint_id, it is in another directory than earlier ones, or the
        group has not all ranks), UNSUPPORTED (an argument asks for what only PyTorch's own writer does); and as
        cairn.torch.save and Saving.wait.
    """
    return _begin(state_dict, checkpoint_id, storage_writer, planner, process_group, no_dist, client).wait(_LONGEST)


def async_save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None,
               storage_writer: None = None, planner: Any = None, process_group: Any = None,
               async_checkpointer_type: Any = None, async_stager: None = None, no_dist: bool = False,
               use_collectives: bool = True, client: Client | None = None) -> concurrent.futures.Future[Checkpoint]:
    """Saves a state dict and returns when it is staged, so that training may go on.

    Args:
      async_checkpointer_type: has no effect: neither a thread nor a process of the trainer writes.
      async_stager: must be None: Cairn stages.
      state_dict, checkpoint_id, storage_writer, planner, process_group, no_dist, use_collectives, client: as for
        save().

    Returns:
      A future, whose result() waits for the commit and returns the checkpoint, or raises Error.

    Raises:
      Error: as save(), of what is known before the state is staged.
    """
    if async_stager is not None:
        raise _unsupported("async_stager", async_stager)
    saving = _begin(state_dict, checkpoint_id, storage_writer, planner, process_group, no_dist, client)
    future: concurrent.futures.Future[Checkpoint] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def wait() -> None:
        """Ends the future with the save."""
        try:
            future.set_result(saving.wait(_LONGEST))
        except BaseException as error:  # the caller of result() gets it, whatever it is
            future.set_exception(error)

    threading.Thread(target=wait, name="cairn-async-save", daemon=True).start()
    return future


def load(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None,
         storage_reader: None = None, planner: Any = None, process_group: Any = None, no_dist: bool = False,
         client: Client | None = None) -> None:
    """Fills the tensors of a state dict in place and replaces its other values.

    Args:
      state_dict: what this rank wants; names of the checkpoint that it lacks are left alone, as in PyTorch. Values with
        load_state_dict() are given their state.
      checkpoint_id: ends in the number of a committed step, or is a directory with a `.metadata`, which
        torch.distributed.checkpoint wrote. If the job has a later step than the number of such a directory, a warning
        names it.
      storage_reader: must be None: the agents read.
      planner: None, or a DefaultLoadPlanner as it comes; with allow_partial_load, names that the checkpoint lacks are
        left as they are.
      process_group, no_dist, client: as for save().

    Raises:
      Error: MISSING_NAMES (the state dict wants what the checkpoint lacks), UNSUPPORTED (a value of the directory is an
        object that only its own code could make), and as save() and cairn.torch.load. Tensors may be partly filled
        then.
    """
    if storage_reader is not None:
        raise _unsupported("storage_reader", storage_reader)
    partial = _plans_as_usual(planner, DefaultLoadPlanner) and bool(getattr(planner, "allow_partial_load", False))
    client = _client_of(client, process_group, no_dist)
    states = {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state_dict.items()}
    if checkpoint_id is not None and is_dcp_directory(checkpoint_id):
        _tell_later_steps(checkpoint_id, client)
        report = fill(client, states, None, None, False, source=checkpoint_id)
    else:
        step = step_of(checkpoint_id)
        check_series(checkpoint_id, client)
        report = fill(client, states, step, None, False, source=None)
    if report.missing and not partial:
        error = names_error("MISSING_NAMES", report.missing, str(checkpoint_id))
        error.metadata["next"] = ("Leave them out of the state, or give planner=DefaultLoadPlanner("
                                  "allow_partial_load=True), which leaves such values alone.")
        raise error
    if partial:
        tell_unfilled(report, client.job, client.rank)
    for key, value in state_dict.items():
        if isinstance(value, Stateful):
            value.load_state_dict(states[key])
        else:
            state_dict[key] = states[key]


def _tell_later_steps(checkpoint_id: str | os.PathLike[str], client: Client) -> None:
    """Says if the job has a later step than a directory: a program that looks for the latest directory misses it."""
    number = number_of(checkpoint_id)
    steps = client.checkpoints() if client.rank == 0 and number is not None else []
    if number is not None and steps and steps[-1] > number:
        _log.warning("%s is loaded, but the job has a later checkpoint, %s@%s: take the step to load from "
                     "Client.checkpoints(), not from the directories there are", os.fspath(checkpoint_id), client.job,
                     steps[-1])


def _begin(state_dict: dict[str, Any], checkpoint_id: str | os.PathLike[str] | None, storage_writer: Any, planner: Any,
           process_group: Any, no_dist: bool, client: Client | None) -> Saving:
    if storage_writer is not None:
        raise _unsupported("storage_writer", storage_writer)
    _plans_as_usual(planner, DefaultSavePlanner)
    step = step_of(checkpoint_id)
    client = _client_of(client, process_group, no_dist)
    check_series(checkpoint_id, client)
    flat: FlatState = flatten({key: value.state_dict() if isinstance(value, Stateful) else value
                               for key, value in state_dict.items()}, as_dcp=True)
    flat.copies.from_devices()
    return client.save(step, flat.state, allow_dropped_names=True, overwrite=True)


def _plans_as_usual(planner: Any, usual: type) -> bool:
    """Returns True for a planner that plans as PyTorch's default; raises UNSUPPORTED for any other."""
    if planner is None:
        return True
    if type(planner) is not usual or not getattr(planner, "flatten_state_dict", False):
        raise _unsupported("planner", planner)
    return True


def _unsupported(argument: str, value: Any) -> Error:
    kind = type(value)
    what = "decides what is written where, which Cairn's coordinator does" if argument != "storage_reader" else (
        "reads by itself, and here the agents read")
    return Error("UNSUPPORTED", f"{argument}={kind.__module__}.{kind.__qualname__} {what}", {
        "argument": argument,
        "next": "Leave it out; give a directory that PyTorch wrote as checkpoint_id." if argument == "storage_reader"
        else f"Leave {argument} out."})


def _client_of(client: Client | None, process_group: Any, no_dist: bool) -> Client:
    client = own_client(client)
    ranks = 1 if no_dist else client.world_size
    if process_group is not None:
        ranks = torch.distributed.get_world_size(process_group)
    if ranks != client.world_size:
        raise Error("BAD_REQUEST", f"the job has {client.world_size} ranks, but the call is made by {ranks}: every "
                    "rank takes part, so leave process_group and no_dist out")
    return client
