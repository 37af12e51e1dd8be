"""Asks the coordinator through the agent: for a save at a step of the job's choice, and for what is kept."""

from __future__ import annotations

import secrets

from cairn._base import wire
from cairn._base.errors import Error
from cairn._base.results import Checkpoint
from cairn._session.session import Session


def request_save(session: Session, request_id: str | None, timeout: float) -> str:
    """See Client.request_save."""
    number = request_id or f"trainer-{secrets.token_hex(12)}"
    request = wire.CHECKPOINTS["CreateCheckpoint"].request(job=session.job, request_id=number)
    wire.set_duration(request.timeout, timeout)
    checkpoint = session.call("CreateCheckpoint", request)
    if checkpoint.state == wire.PHASES["ABORTED"]:
        raise wire.error_from_status(checkpoint.error)
    return number


def change(session: Session, name: str, request: wire.Message) -> wire.Message:
    """Asks for a change of what the job keeps; see retention.RetentionCalls."""
    request.job = session.job
    return session.call(name, request)


def _listed(session: Session) -> list[wire.Message]:
    """The steps of the job that are committed or damaged, by ascending step, with those that only the mirror has.

    Raises:
      Error: there is none, and nobody knows whether the mirror has some.
    """
    listed, page = _pages(session)
    if not listed and page.mirror.HasField("error"):
        # A training that is told that there is nothing begins anew.
        raise wire.error_from_status(page.mirror.error)
    return listed


def _pages(session: Session) -> tuple[list[wire.Message], wire.Message]:
    """The steps, and the last page of the answer."""
    request = wire.CHECKPOINTS["ListCheckpoints"].request(job=session.job)
    listed: list[wire.Message] = []
    while True:
        page = session.call("ListCheckpoints", request)
        listed.extend(page.checkpoints)
        listed.extend(page.mirror_only_checkpoints)
        request.page_token = page.next_page_token
        if not request.page_token:
            return sorted(listed, key=lambda one: one.step), page


def _unread(session: Session, listed: wire.Message, what: str) -> Error:
    """Returns why something is not known of a step: a list without the step would be taken for the truth by one rank,
    while another rank, for which storage has answered, decides otherwise."""
    error = wire.error_from_status(listed.error)
    return Error(error.reason, f"{session.job}@{listed.step}: {what} is not known, because storage did not tell: "
                 f"{error.message}",
                 {**error.metadata, "job": session.job, "step": str(listed.step),
                  "next": "Ask again. If it stays so, mend the storage, or move the step's directory away."})


def committed(session: Session) -> list[Checkpoint]:
    """Returns the committed checkpoints of the session's job, by ascending step.

    Raises:
      Error: as Client.checkpoints.
    """
    listed = _listed(session)
    for one in listed:
        if one.unread:
            raise _unread(session, one, "whether it is committed")
    state = wire.PHASES["COMMITTED"]
    return [Checkpoint.from_wire(message) for message in listed if message.state == state]


def _tags(listed: list[wire.Message]) -> dict[str, int]:
    return {tag: checkpoint.step for checkpoint in listed for tag in checkpoint.tags}


def _check_tags(session: Session, listed: list[wire.Message]) -> None:
    for one in listed:
        if one.unread and one.attempt == 0:
            raise _unread(session, one, "which tags it has")


def tags(session: Session) -> dict[str, int]:
    """See Client.tags."""
    listed = _listed(session)
    _check_tags(session, listed)
    return _tags(listed)


def tagged(session: Session, name: str) -> int:
    """Returns the step of a tag. Raises NOT_COMMITTED, and as Client.tags."""
    listed, page = _pages(session)
    known = _tags(listed)
    if name not in known:
        _check_tags(session, listed)
        if page.mirror.HasField("error"):
            raise wire.error_from_status(page.mirror.error)
        raise Error("NOT_COMMITTED", f"no checkpoint of {session.job} has the tag {name!r}; "
                    + (f"its tags are {', '.join(sorted(known))}" if known else "it has no tags"),
                    {"job": session.job, "tag": name})
    return known[name]
