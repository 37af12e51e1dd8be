"""Saves and loads state dicts through a client, and says in errors what to do about a name or shape."""

from __future__ import annotations

import collections.abc
import dataclasses
import logging
import os
import sys
import weakref
from typing import Any, SupportsIndex

from cairn._base.errors import Error, next_action
from cairn._base.results import LoadReport, listed
from cairn._load.loader import tell_alarms, tell_unfilled
from cairn._state.entries import PerRank
from cairn._state.mapping import MappingLike
from cairn.client import Client, Saving
from cairn.torch._state_dict.flatten import Form, flatten, forms_of, is_dcp_directory
from cairn.torch._state_dict.shard_cache import ShardCache
from cairn.torch._state_dict.stored_values import unplaced_error

_log = logging.getLogger("cairn")
_caches: weakref.WeakKeyDictionary[Client, ShardCache] = weakref.WeakKeyDictionary()


def prepare(client: Client, state_dict: dict[str, Any], timeout: float = 600) -> int:
    """Calls Client.prepare for a state dict.

    Args:
      state_dict: as for save(); only shapes and dtypes of its tensors matter.
      timeout: seconds until all ranks have called it.

    Returns:
      Bytes of this rank's staging memory.

    Raises:
      Error: as save() of what the state dict holds, and as Client.prepare.
    """
    return client.prepare(flatten(state_dict, cache=_cache_of(client)).state, timeout)


def save(client: Client, step: SupportsIndex, state_dict: dict[str, Any], timeout: float = 60, *,
         allow_dropped_names: bool = False, overwrite: bool = False,
         metrics: collections.abc.Mapping[str, float] | None = None, overlap: Any = None,
         check_overlap: bool | None = None) -> Saving:
    """Calls Client.save for a state dict. It returns when all tensors are staged and may change again; with `overlap`
    earlier.

    Args:
      client: this rank's; every rank of the job calls it for the same step.
      step: from 0 to 999999999999.
      state_dict: dicts and lists, nested, of tensors on any device, DTensors, Shards, numpy arrays, alias(),
        per_rank(), bytes and JSON values.
      timeout: seconds until this rank has staged. Copies from devices that are none of CUDA's come before and are not
        counted.
      allow_dropped_names: do not refuse a state that lacks names of the job's last committed step.
      overwrite: replace a checkpoint of this step; see Client.save.
      metrics: what was measured at the step, such as {"loss": 0.25}; see Client.save.
      overlap, check_overlap: as for Client.save, such as overlap=[optimizer].

    Returns:
      The save, which goes on by itself; its wait() gives the outcome.

    Raises:
      Error: NAME_COLLISION (two entries have one name when their keys are joined), BAD_NAME (a key is neither text nor
        a number), BAD_REQUEST (a tensor is on the meta device or a partial sum), BAD_SHAPE (a DTensor's local tensor is
        not what its placements say), BAD_DTYPE, UNSUPPORTED (sparse and quantized tensors, ShardedTensor, tuples with
        tensors); and as Client.save.
    """
    flat = flatten(state_dict, cache=_cache_of(client))
    flat.copies.from_devices()
    return client.save(step, flat.state, timeout, allow_dropped_names=allow_dropped_names, overwrite=overwrite,
                       metrics=metrics, overlap=overlap, check_overlap=check_overlap)


def _cache_of(client: Client) -> ShardCache:
    """Returns what is remembered of the client's last save."""
    return _caches.setdefault(client, ShardCache())


def load(client: Client, state_dict: dict[str, Any], step: SupportsIndex | str | None = None,
         mapping: MappingLike | None = None, strict: bool = True, *, source: str | os.PathLike[str] | None = None,
         fallback: bool = True, verify: str | None = None, timeout: float = 1800) -> LoadReport:
    """Calls Client.load for a state dict. It fills the dict's tensors in place and replaces its other values.

    A model or optimizer takes them over by torch's set_state_dict, or at once where the dict holds its own tensors.

    Args:
      state_dict: as for save(); every rank of the job calls it, with what it wants.
      step, mapping, strict, source, fallback, verify, timeout: as for Client.load. Tensors that are on devices other
        than CUDA's are compared on the host, before they are copied there.

    Returns:
      What was loaded, the objects, and how many bytes were read.

    A dict or list without tensors is one value, and gets all that was saved there, whatever it has before; it is found
    also where another library, or an earlier version, has stored each of its items. Without `strict`, a warning in the
    log "cairn" of rank 0 says how many names were not filled, with the first of them.

    Raises:
      Error: as save() of what the state dict holds, as Client.load; UNEXPECTED_NAMES also if the checkpoint has values
        in a dict with tensors for which the dict has no key, or whose keys cannot be told from their names; UNSUPPORTED
        (a value of the source is an object that only another library's code could make). Tensors on the host may be
        partly filled then, those on devices and other values are as they were.
    """
    report = fill(client, state_dict, step, mapping, strict, source=source, fallback=fallback, verify=verify,
                  timeout=timeout)
    if not strict:
        tell_unfilled(report, client.job, client.rank)
    tell_alarms(report, client.job, client.rank)
    return report


def fill(client: Client, state_dict: dict[str, Any], step: SupportsIndex | str | None, mapping: MappingLike | None,
         strict: bool, *, source: str | os.PathLike[str] | None, fallback: bool = True,
         verify: str | None = None, timeout: float = 1800) -> LoadReport:
    """Does what load() does, without a word in the log about what it did not fill."""
    def attempt(form: Form, strict_names: bool) -> LoadReport:
        flat = flatten(state_dict, to_load=True, form=form)
        report = client._load(flat.state, step, mapping, strict_names, source, fallback, timeout, verify)
        missing, unplaced = flat.put(report.objects, report.missing)
        if strict and (missing or unplaced):
            where = os.fspath(source) if source is not None else f"{client.job}@{report.step}"
            raise names_error("MISSING_NAMES", missing, where) if missing else unplaced_error(unplaced, where)
        if unplaced and client.rank == 0:
            _log.warning("%s: the load left out %d values of dicts that the state does not have the keys of, and their "
                         "names do not tell them: %s", client.job, len(unplaced), listed(unplaced))
        return dataclasses.replace(report, missing=missing, unexpected=[*report.unexpected, *unplaced])

    # A mapping says the names of the checkpoint by itself.
    forms = forms_of(state_dict) if mapping is None else [Form()]
    if not strict and len(forms) == 1:
        return attempt(forms[0], False)
    refused: list[tuple[Form, Error]] = []
    for form in forms:
        try:
            return attempt(form, True)
        except Error as error:
            if error.reason not in ("MISSING_NAMES", "UNEXPECTED_NAMES"):
                _advise_on_shape(error)
                raise
            refused.append((form, error))  # all ranks have this error
    nearest, refusal = min(refused, key=lambda each: distance(each[1]))
    if not strict:
        return attempt(nearest, False)
    _advise(refusal, state_dict)
    _advise_on_ranks_own(refusal, state_dict, source)
    _advise_on_random_values(refusal)
    raise refusal


def names_error(reason: str, names: list[str], where: str) -> Error:
    """Returns the error for names that a checkpoint lacks."""
    return Error(reason, f"{where} lacks {len(names)} names that the state wants: {listed(names)}",
                 {"names": listed(names), "count": str(len(names))})


def distance(error: Error) -> tuple[bool, int]:
    """Returns how far the names of a state are from those of the checkpoint; what is missing weighs more."""
    return error.reason == "MISSING_NAMES", _count(error)


def _advise_on_shape(error: Error) -> None:
    """Says what to do if the shape of a tensor is not the checkpoint's."""
    if error.reason == "SHAPE_MISMATCH":
        name = f"{error.metadata.get('job', 'JOB')}@{error.metadata.get('step', 'STEP')}"
        error.metadata.setdefault("next", (
            f"If the shape follows from the configuration, compare that with the checkpoint's (`cairn show {name} "
            "--tensors`). If it changes as the training goes on, make the tensor in the checkpoint's shape before the "
            "load, as in `module.seen = torch.empty(9)` for [9], or let the module return it by get_extra_state(): "
            "that comes back in the shape in which it was saved."))


def _count(error: Error) -> int:
    """Returns how many names an error is about."""
    text = error.metadata.get("count", "")
    return int(text) if text.isdigit() else sys.maxsize


def _advise(error: Error, state_dict: dict[str, Any], path: str = "") -> None:
    """Says what to do if the names that the state lacks are those of an optimizer's tensors."""
    for key, value in state_dict.items():
        name = f"{path}.{key}" if path else str(key)
        if not isinstance(value, dict):
            continue
        is_optimizer = "param_groups" in value and value.keys() <= {"state", "param_groups"}
        if is_optimizer and _names_parameters(error, name, value):
            error.metadata["next"] = (
                f"This state numbers the tensors of {name!r}, as optimizer.state_dict() does. If the source names them "
                "by parameters, as torch's get_state_dict and cairn.torch.CheckpointManager do, load it by "
                "cairn.torch.load into what get_state_dict returns, and call set_state_dict (docs/import.md), or give "
                "the model and the optimizer themselves to CheckpointManager. strict=False would leave these tensors "
                "of the optimizer out.")
            return
        if is_optimizer and not value.get("state", True):
            error.metadata["next"] = (
                f"{name!r} is the state of an optimizer that has done no step, so it has no tensors to fill: take it "
                "from torch's get_optimizer_state_dict, or give the optimizer itself to cairn.torch.CheckpointManager.")
            return
        _advise(error, value, name)


def _names_parameters(error: Error, name: str, state_of_optimizer: dict[str, Any]) -> bool:
    """Returns whether the state lacks tensors of an optimizer because the source names them by parameters."""
    if not all(isinstance(key, int) for key in state_of_optimizer.get("state", {})):
        return False
    begin = f"{name}.state."
    kept = [each[len(begin):] for each in error.metadata.get("names", "").split(", ") if each.startswith(begin)]
    numbered = [each.partition(".")[0].isdigit() for each in kept]
    return any(numbered) if error.reason == "MISSING_NAMES" else not all(numbered)


def _advise_on_ranks_own(error: Error, state_dict: dict[str, Any], source: str | os.PathLike[str] | None) -> None:
    """Says what to do if some of the names that the checkpoint lacks are values of cairn.per_rank."""
    wanted = [str(key) for key, value in state_dict.items()
              if isinstance(value, PerRank) and str(key) in error.metadata.get("names", "").split(", ")]
    if error.reason != "MISSING_NAMES" or not wanted:
        return
    which = f"{', '.join(map(repr, wanted))} {'is a value' if len(wanted) == 1 else 'are values'} of cairn.per_rank"
    if source is not None and is_dcp_directory(source):
        advice = (f"{which}, of which a directory of torch.distributed.checkpoint holds the parts, and only to be read "
                  "by PyTorch (an export of Cairn has it whole in .cairn_per_rank_values): leave it out of the state, "
                  "and seed random number generators anew.")
    else:
        advice = (f"{which}, which {'the source' if source is not None else 'this checkpoint'} does not have: leave it "
                  "out of the state that you load; the next save can have it.")
    others = _count(error) - len(wanted)
    if others > 0:
        advice += (f" Other names are missing too, {others} of them: find out why first. With strict=False each tensor "
                   "of a model among them would keep the value that it has now, which is a random one in a new model.")
    else:
        advice += " Or load with strict=False, which leaves it as it is and logs a warning."
    before = error.metadata.get("next")
    error.metadata["next"] = advice if before is None else f"{before} {advice}"


def _advise_on_random_values(error: Error) -> None:
    """Says what strict=False leaves behind, where nothing better is known to do about names that are missing."""
    if error.reason == "MISSING_NAMES" and "next" not in error.metadata:
        known = next_action(error.reason, error.metadata)
        error.metadata["next"] = f"{known} So a new model would keep random values in each tensor that is missing."
