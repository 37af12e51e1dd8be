"""Checks what a caller gives as a timeout."""

from __future__ import annotations

import math

from cairn._base.errors import Error, shown

# "As long as it takes" means a year: long enough for everybody, and within what clocks and messages can hold.
LONGEST = 365 * 86400.0


def seconds(timeout: float, what: str) -> float:
    """Returns a timeout in seconds, a year at most; infinity becomes a year.

    Raises BAD_REQUEST, which names the call `what`, if it is negative or no number.
    """
    try:
        if isinstance(timeout, (bool, str, bytes)):
            raise TypeError
        value = float(timeout)
    except OverflowError:  # an integer beyond what a float holds
        value = math.inf if timeout > 0 else -math.inf
    except (TypeError, ValueError):
        raise Error("BAD_REQUEST", f"{what}: timeout={shown(timeout)} is no number of seconds") from None
    if math.isnan(value) or value < 0:
        raise Error("BAD_REQUEST", f"{what}: timeout={shown(timeout)}: a timeout is 0 seconds or more")
    return min(value, LONGEST)
