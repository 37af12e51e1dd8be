"""The one exception of the package, made from the errors that cross the wire."""

from __future__ import annotations


class Error(Exception):
    """A refusal or failure with a reason to switch on.

    Attributes:
      reason: one word of docs/errors.md, such as "RANK_LATE".
      message: what happened, in words, with names and numbers.
      metadata: the same names and numbers by key ("job", "step", "rank", "ranks", "phase", "tensor", "file" ...); all
        values are strings. For a late or lost rank `metadata["ranks"]` lists the ranks ("0, 3") and
        `metadata["phase"]` names the phase.
    """

    def __init__(self, reason: str, message: str, metadata: dict[str, str] | None = None) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, dict[str, str]]]:
        return (Error, (self.reason, self.message, self.metadata))
