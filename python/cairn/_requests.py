"""Asks the coordinator through the agent: for a save at a step of the job's choice, and for what is kept."""

from __future__ import annotations

import secrets

from cairn import _session, _wire
from cairn._errors import Error
from cairn._results import Checkpoint


def request_save(session: _session.Session, request_id: str | None, timeout: float) -> str:
    """See Client.request_save."""
    number = request_id or f"trainer-{secrets.token_hex(12)}"
    request = _wire.LOCAL_AGENT["RequestLocalSave"].request(trainer_incarnation=session.incarnation, request_id=number)
    _wire.set_duration(request.timeout, timeout)
    checkpoint = session.call("RequestLocalSave", request).checkpoint
    if checkpoint.state == _wire.CHECKPOINT_STATES["ABORTED"]:
        raise _wire.error_from_status(checkpoint.error)
    return number


# The agent's call for each of CheckpointService's that changes what is kept.
_LOCAL = {
    "DeleteCheckpoint": "DeleteLocalCheckpoint",
    "PinCheckpoint": "PinLocalCheckpoint",
    "PruneCheckpoints": "PruneLocalCheckpoints",
    "TagCheckpoint": "TagLocalCheckpoint",
}


def change(session: _session.Session, name: str, request: _wire.Message) -> _wire.Message:
    """Asks for a change of what the job keeps; see _keeping.Keeper."""
    if name == "SetRetention":
        return session.call("SetLocalRetention", _wire.LOCAL_AGENT["SetLocalRetention"].request(
            trainer_incarnation=session.incarnation, policy=request.policy))
    wrapped = _wire.LOCAL_AGENT[_LOCAL[name]].request(trainer_incarnation=session.incarnation, request=request)
    return session.call(_LOCAL[name], wrapped).response


def committed(session: _session.Session) -> list[Checkpoint]:
    """Returns the committed checkpoints of the session's job, by ascending step."""
    request = _wire.LOCAL_AGENT["ListLocalCheckpoints"].request(trainer_incarnation=session.incarnation)
    response = session.call("ListLocalCheckpoints", request)
    state = _wire.CHECKPOINT_STATES["COMMITTED"]
    return [Checkpoint.from_wire(message) for message in response.checkpoints if message.state == state]


def tags(session: _session.Session) -> dict[str, int]:
    """See Client.tags."""
    request = _wire.LOCAL_AGENT["ListLocalCheckpoints"].request(trainer_incarnation=session.incarnation)
    listed = session.call("ListLocalCheckpoints", request).checkpoints
    return {tag: checkpoint.step for checkpoint in listed for tag in checkpoint.tags}


def tagged(session: _session.Session, name: str) -> int:
    """Returns the step of a tag. Raises NOT_COMMITTED."""
    known = tags(session)
    if name not in known:
        raise Error("NOT_COMMITTED", f"no checkpoint of {session.job} has the tag {name!r}; "
                    + (f"its tags are {', '.join(sorted(known))}" if known else "it has no tags"),
                    {"job": session.job, "tag": name})
    return known[name]
