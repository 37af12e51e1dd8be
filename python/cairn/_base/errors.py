"""The one exception of the package, made from the errors that cross the wire."""

from __future__ import annotations

import re

from cairn._reasons import NEXT_ACTIONS

# A terminal would obey these characters, which names in a file of somebody else may have: control characters but new
# lines and tabs, and those that turn the direction of text. common/base/printable.h has the same list.
_UNPRINTABLE = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")

# These words of the table's commands are replaced.
_PLACEHOLDER = re.compile(r"JOB@STEP| JOB`|--root ROOT")


def shown(value: object) -> str:
    """Returns repr() of what a caller gave, for a message; of an integer that Python does not write, its size."""
    try:
        return repr(value)
    except ValueError:  # sys.set_int_max_str_digits()
        size = f" of {value.bit_length()} bits" if isinstance(value, int) else ""
        return f"<{type(value).__name__}{size}>"


class Error(Exception):
    """A refusal or failure with a reason to switch on.

    As text it is "REASON: message", and on a second line "next: " with what its reader should do, unless the message
    says that itself.

    Attributes:
      reason: one word of docs/errors.md, such as "RANK_LATE".
      message: what happened, in words, with names and numbers.
      metadata: the same names and numbers by key ("job", "step", "rank", "ranks", "phase", "tensor", "file" ...); all
        values are strings. For a late or lost rank `metadata["ranks"]` lists the ranks ("0, 3") and
        `metadata["phase"]` names the phase. `metadata["next"]` is a better next action than that of docs/errors.md,
        where whoever made the error knew one.
    """

    __module__ = "cairn"  # where people import it from, and what tracebacks show

    def __init__(self, reason: str, message: str, metadata: dict[str, str] | None = None) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})

    def __str__(self) -> str:
        text = f"{self.reason}: {self.message}"
        action = next_action(self.reason, self.metadata)
        return printable(f"{text}\nnext: {action}" if action else text)

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, dict[str, str]]]:
        return (Error, (self.reason, self.message, self.metadata))


def printable(text: str) -> str:
    """Returns the text with each byte of a character that is not printable as "\\xNN"."""
    return _UNPRINTABLE.sub(
        lambda found: "".join(f"\\x{byte:02x}" for byte in found.group().encode("utf-8", "surrogatepass")), text)


def next_action(reason: str, metadata: dict[str, str]) -> str:
    """Returns what the reader of an error should do; "" for a reason that only a newer version knows.

    It is "" also for a BAD_REQUEST whose message says it. As NextActionOf in common/status/reason.h: the metadata's
    "next", else that of the table with job, step and root of the metadata in its commands.
    """
    if metadata.get("next"):
        return metadata["next"]
    job, step, root = (metadata.get(key, "") for key in ("job", "step", "root"))
    known = {}
    if job:
        known[" JOB`"] = f" {job}`"
        known["JOB@STEP"] = f"{job}@{step or 'STEP'}"
    if root:
        known["--root ROOT"] = f"--root {root}"
    action: str = NEXT_ACTIONS.get(reason, "")
    return _PLACEHOLDER.sub(lambda found: known.get(found.group(), found.group()), action)
