"""Changes what a job keeps, for scripts that are no trainers: they ask the coordinator themselves.

    import cairn.checkpoints
    cairn.checkpoints.tag("demo", 1200, "paper", coordinator="10.0.0.1:7420")
    for choice in cairn.checkpoints.prune("demo", keep_last=3, keep_best="loss:min", dry_run=True):
        print(choice)

Every function takes the job's name, what the method of the same name of cairn.Client takes, and where the coordinator
is. It raises the same errors; besides, BAD_JOB_NAME, BAD_REQUEST (no coordinator is known) and BAD_TOKEN.
"""

from __future__ import annotations

import os
from typing import SupportsIndex

import grpc

from cairn._agent import connection
from cairn._base import wire
from cairn._base.errors import Error, next_action
from cairn._coordinator import retention, tokens
from cairn._coordinator.channel import coordinator_channel
from cairn._coordinator.retention import BestRule, PruneChoice

__all__ = ["PruneChoice", "delete", "pin", "prune", "set_retention", "tag", "unpin", "untag"]

# The coordinator answers within 8 s, if its storage does.
_TIMEOUT = 20.0
_START_ONE = ("If none runs for the root, start the script by `cairn run --root DIR -- `, which starts one for as long "
              "as it takes.")


class _Remote(retention.RetentionCalls):
    """A job of a coordinator."""

    def __init__(self, job: str, coordinator: str | None, token_file: str | os.PathLike[str] | None) -> None:
        address = coordinator or os.environ.get("CAIRN_COORDINATOR")
        if not address:
            raise Error("BAD_REQUEST", "no coordinator was given: pass coordinator=\"HOST:PORT\" or set "
                        "CAIRN_COORDINATOR",
                        {"job": job,
                         "next": f"`cairn up` and `cairn run` print the coordinator's address. {_START_ONE}"})
        self._job = job
        self._address = address
        self._tokens = tokens.of_coordinator(address, token_file)

    def _change(self, name: str, request: wire.Message) -> wire.Message:
        method = wire.CHECKPOINTS[name]
        request.job = self._job
        with coordinator_channel(self._address, self._tokens) as channel:
            call = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            try:
                with connection.calling():
                    return call(request, timeout=_TIMEOUT)
            except grpc.RpcError as error:
                refused = connection.error_from_rpc(error, f"coordinator {self._address}")
        if refused.reason == "AGENT_UNREACHABLE":
            known = {**refused.metadata, "job": self._job}
            known["next"] = f"{next_action('COORDINATOR_UNREACHABLE', {})} {_START_ONE}"
            raise Error("COORDINATOR_UNREACHABLE", refused.message, known)
        raise refused


def delete(job: str, step: SupportsIndex, cause: str = "", *, coordinator: str | None = None,
           token_file: str | os.PathLike[str] | None = None) -> None:
    """Deletes a checkpoint; see Client.delete.

    Args:
      coordinator: its address, host:port; by default CAIRN_COORDINATOR.
      token_file: of the coordinator; by default CAIRN_TOKEN_FILE, else the copies that a coordinator on this machine
        leaves in the user's runtime directory. With CAIRN_INSECURE there is none.
    """
    _Remote(job, coordinator, token_file).delete(step, cause)


def prune(job: str, keep_last: SupportsIndex | None = None, keep_every: SupportsIndex | None = None,
          keep_best: BestRule | None = None, *, dry_run: bool = False, coordinator: str | None = None,
          token_file: str | os.PathLike[str] | None = None) -> list[PruneChoice]:
    """Deletes what no rule keeps; see Client.prune, and delete() for where the coordinator is."""
    return _Remote(job, coordinator, token_file).prune(keep_last, keep_every, keep_best, dry_run=dry_run)


def pin(job: str, step: SupportsIndex, note: str = "", *, coordinator: str | None = None,
        token_file: str | os.PathLike[str] | None = None) -> None:
    """Keeps a checkpoint from being deleted; see Client.pin, and delete() for where the coordinator is."""
    _Remote(job, coordinator, token_file).pin(step, note)


def unpin(job: str, step: SupportsIndex, *, coordinator: str | None = None,
          token_file: str | os.PathLike[str] | None = None) -> None:
    """Lets a pinned checkpoint be deleted again; see delete() for where the coordinator is."""
    _Remote(job, coordinator, token_file).unpin(step)


def tag(job: str, step: SupportsIndex, name: str, *, coordinator: str | None = None,
        token_file: str | os.PathLike[str] | None = None) -> None:
    """Gives a checkpoint a name; see Client.tag, and delete() for where the coordinator is."""
    _Remote(job, coordinator, token_file).tag(step, name)


def untag(job: str, name: str, *, coordinator: str | None = None,
          token_file: str | os.PathLike[str] | None = None) -> None:
    """Takes a name away; see Client.untag, and delete() for where the coordinator is."""
    _Remote(job, coordinator, token_file).untag(name)


def set_retention(job: str, keep_last: SupportsIndex | None = None, keep_every: SupportsIndex | None = None,
                  keep_best: BestRule | None = None, *, coordinator: str | None = None,
                  token_file: str | os.PathLike[str] | None = None) -> None:
    """Sets which checkpoints are kept; see Client.set_retention, and delete() for where the coordinator is."""
    _Remote(job, coordinator, token_file).set_retention(keep_last, keep_every, keep_best)
