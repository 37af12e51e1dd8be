"""What a trainer asks the coordinator for through its agent: a save at a step of the job's choice, what is kept."""

from __future__ import annotations

import secrets

from cairn import _session, _wire
from cairn._errors import Error


def request_save(session: _session.Session, request_id: str | None, timeout: float) -> str:
    """See Client.request_save."""
    number = request_id or f"trainer-{secrets.token_hex(12)}"
    request = _wire.LOCAL_AGENT["RequestLocalSave"].request(trainer_incarnation=session.incarnation, request_id=number)
    _wire.set_duration(request.timeout, timeout)
    checkpoint = session.call("RequestLocalSave", request).checkpoint
    if checkpoint.state == _wire.CHECKPOINT_STATES["ABORTED"]:
        raise _wire.error_from_status(checkpoint.error)
    return number


def set_retention(session: _session.Session, keep_last: int | None, keep_every: int | None) -> None:
    """See Client.set_retention."""
    request = _wire.LOCAL_AGENT["SetLocalRetention"].request(trainer_incarnation=session.incarnation)
    for name, value in (("keep_last", keep_last), ("keep_every", keep_every)):
        if value is None:
            continue
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 1 <= value.__index__() < 2**63:
            raise Error("BAD_REQUEST", f"{name} is an integer from 1, not {value!r}", {"job": session.job})
        setattr(request.policy, name, value.__index__())
    session.call("SetLocalRetention", request)
