"""Saves and loads in the place of Megatron-core's "torch_dist", wherever its dist_checkpointing is called."""

from __future__ import annotations

import os
import pathlib
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor
from megatron.core.dist_checkpointing.strategies import torch as torch_strategies
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from megatron.core.dist_checkpointing.strategies.base import (
    AsyncSaveShardedStrategy,
    LoadShardedStrategy,
    StrategyAction,
    register_default_strategy,
)

from cairn._base import timeouts
from cairn._base.errors import Error
from cairn.client import Client, Saving
from cairn.torch._dcp.checkpoint_id import check_series, step_of
from cairn.torch._dcp.default_client import own_client
from cairn.torch._megatron.sharded_state import Wanted, declared
from cairn.torch._tensors.host_copies import DeviceCopies

# The name that stands in the metadata.json of a directory whose tensors are in Cairn.
BACKEND = "cairn"
_VERSION = 1
_ASK_AGAIN = 0.05
_LOAD_SECONDS = 1800.0


class SaveStrategy(AsyncSaveShardedStrategy):  # type: ignore[misc]  # Megatron-core is not needed to check
    """Saves the tensors and objects of a directory "iter_0001200" as step 1200 of the job.

    Megatron-core itself writes the directory's metadata.json and common.pt, which holds what is no tensor. save()
    returns when the step is committed. async_save() returns when it is staged; Megatron-core's request is done when it
    is committed, and finalizing it raises the error of a save that failed.
    """

    def __init__(self, client: Client | None = None) -> None:
        """
        Args:
          client: this rank's; by default that of cairn.connect(), which is made by the first save.
        """
        super().__init__(BACKEND, _VERSION)
        self._client = client

    @property
    def can_handle_sharded_objects(self) -> bool:
        return True

    def save(self, sharded_state_dict: Any, checkpoint_dir: str | os.PathLike[str]) -> None:
        """Saves, and waits for the commit. Every rank calls it.

        Raises:
          Error: BAD_REQUEST (the directory's name does not end in the number of a step, or is beside no earlier one);
            and as Client.save and Saving.wait.
        """
        self._begin(sharded_state_dict, checkpoint_dir).wait(timeouts.LONGEST)

    def async_save(self, sharded_state_dict: Any, checkpoint_dir: str | os.PathLike[str]) -> AsyncRequest:
        """Saves, and returns when the state is staged. Every rank calls it.

        Returns:
          A request, to be scheduled as every other. Its process only waits.

        Raises:
          Error: as save(), of what is known before the state is staged.
        """
        saving = self._begin(sharded_state_dict, checkpoint_dir)
        outcome: list[Error] = []
        directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-megatron-"))
        ended = directory / "ended"

        def wait() -> None:
            try:
                saving.wait(timeouts.LONGEST)
            except Error as error:
                outcome.append(error)
            finally:
                ended.touch()

        waiting = threading.Thread(target=wait, name="cairn-megatron-save", daemon=True)
        waiting.start()

        def finalize() -> None:
            waiting.join()
            ended.unlink()
            directory.rmdir()
            if outcome:
                raise outcome[0]

        return AsyncRequest(_await_file, (str(ended), os.getpid()), [finalize])

    def _begin(self, sharded_state_dict: Any, checkpoint_dir: str | os.PathLike[str]) -> Saving:
        client = own_client(self._client)
        check_series(checkpoint_dir, client)
        copies = DeviceCopies()
        state = declared(sharded_state_dict, copies)
        copies.from_devices()
        # Megatron-core replaces a directory that is there, and does not compare it with earlier ones.
        return client.save(step_of(checkpoint_dir), state, allow_dropped_names=True, overwrite=True)


class LoadStrategy(LoadShardedStrategy):  # type: ignore[misc]
    """Loads the tensors and objects of a directory that SaveStrategy saved, under any layout."""

    def __init__(self, client: Client | None = None) -> None:
        """
        Args:
          client: as for SaveStrategy.
        """
        self._client = client

    @property
    def can_handle_sharded_objects(self) -> bool:
        return True

    def check_backend_compatibility(self, loaded_backend: str) -> None:
        """Raises BAD_REQUEST for a directory that another strategy saved."""
        if loaded_backend != BACKEND:
            raise Error("BAD_REQUEST", f"this directory was saved as {loaded_backend!r}, not by Cairn",
                        {"next": "Leave sharded_strategy out: Megatron-core then takes the one that saved it."})

    def check_version_compatibility(self, loaded_version: int) -> None:
        """Raises UNSUPPORTED for a directory of a later version of Cairn."""
        if loaded_version > _VERSION:
            raise Error("UNSUPPORTED", f"this directory has version {loaded_version}, and this Cairn knows {_VERSION}",
                        {"next": "Load it with the Cairn that saved it, or a later one."})

    def load(self, sharded_state_dict: Any, checkpoint_dir: str | os.PathLike[str]) -> Any:
        """Fills the tensors and returns the state dict with them and the objects. Every rank calls it.

        Raises:
          Error: BAD_REQUEST (the directory's name, as for a save), NOT_COMMITTED (the step was deleted meanwhile),
            MISSING_NAMES, UNSUPPORTED; and as Client.load.
        """
        device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
        wanted = Wanted(sharded_state_dict, device)
        return wanted.put(self._read(wanted.state, checkpoint_dir))

    def load_tensors_metadata(self, checkpoint_dir: str | os.PathLike[str]) -> Any:
        """Is not supported: it would have to tell shapes and dtypes.

        Raises:
          Error: UNSUPPORTED.
        """
        raise Error("UNSUPPORTED", "load_tensors_metadata and load_plain_tensors are not there for Cairn's steps",
                    {"next": "`cairn show JOB@STEP --tensors` tells shapes; cairn.torch.load fills tensors."})

    def load_sharded_metadata(self, checkpoint_dir: str | os.PathLike[str]) -> dict[str, Any]:
        """Returns the keys that the step has, by which Megatron-core compares names (`strict`). Every rank calls it.

        Of the tensors, nothing but the key is told.
        """
        report = self._read({}, checkpoint_dir)
        empty = torch.empty(0, device="meta")
        found = {name: ShardedTensor.from_rank_offsets(name, empty) for name in report.unexpected}
        return found | {name: ShardedObject.empty_from_unique_key(name) for name in report.objects}

    def remove_sharded_tensors(self, checkpoint_dir: str | os.PathLike[str], key_prefix: str) -> None:
        """Is not supported: a committed step never changes.

        Raises:
          Error: UNSUPPORTED.
        """
        raise Error("UNSUPPORTED", f"the tensors {key_prefix}* cannot be taken out of a step: it never changes",
                    {"next": "Load the step and save it without them."})

    def _read(self, state: dict[str, Any], checkpoint_dir: str | os.PathLike[str]) -> Any:
        client = own_client(self._client)
        check_series(checkpoint_dir, client)
        return client._load(state, step_of(checkpoint_dir), None, False, None, True, _LOAD_SECONDS)


def register(client: Client | None = None) -> None:
    """Makes Megatron-core save by Cairn wherever "torch_dist" is asked for, and load what was saved so.

    It loads directories that "torch_dist" wrote as before. To be called once, before the first save; every rank does.

    Args:
      client: as for SaveStrategy.
    """
    original: Callable[[], None] = getattr(torch_strategies.register_default_torch_strategies, "cairn_replaces",
                                           torch_strategies.register_default_torch_strategies)
    save, load = SaveStrategy(client), LoadStrategy(client)

    def register_strategies() -> None:
        """Is called by Megatron-core whenever it looks for a strategy."""
        original()
        register_default_strategy(StrategyAction.SAVE_SHARDED, "torch_dist", 1, save)
        register_default_strategy(StrategyAction.SAVE_SHARDED, BACKEND, _VERSION, save)
        register_default_strategy(StrategyAction.LOAD_SHARDED, BACKEND, _VERSION, load)

    register_strategies.cairn_replaces = original  # type: ignore[attr-defined]
    torch_strategies.register_default_torch_strategies = register_strategies
    register_strategies()


def _await_file(path: str, parent: int) -> None:
    """Waits for a file, in a process of its own, until the process that is to make it has ended."""
    while not os.path.exists(path):
        try:
            os.kill(parent, 0)
        except ProcessLookupError:
            return
        time.sleep(_ASK_AGAIN)
