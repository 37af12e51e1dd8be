"""Decides when a job saves: every so many steps, every so many minutes."""

from __future__ import annotations

from collections.abc import Callable

from cairn._base import timeouts
from cairn._base.errors import Error, shown


class Schedule:
    """When saves are due.

    Every rank sees by itself that a step is due. That time has passed is seen by one rank, which asks the job for a
    save, because the clocks of the ranks differ.
    """

    def __init__(self, every_steps: int | None, every_minutes: float | None, clock: Callable[[], float]) -> None:
        """
        Args:
          clock: seconds since any moment, never backwards.

        Raises:
          Error: BAD_REQUEST (a number that is not positive).
        """
        if every_steps is not None and (isinstance(every_steps, bool) or not isinstance(every_steps, int)
                                        or every_steps < 1):
            raise Error("BAD_REQUEST", f"every_steps is an integer from 1, not {shown(every_steps)}")
        if every_minutes is not None and (isinstance(every_minutes, bool) or not isinstance(every_minutes, (int, float))
                                          or not every_minutes > 0):
            raise Error("BAD_REQUEST", f"every_minutes is a number above 0, not {shown(every_minutes)}")
        self._every_steps = every_steps
        self._seconds = None if every_minutes is None else timeouts.seconds(every_minutes, "every_minutes") * 60.0
        self._clock = clock
        self._since = clock()

    def step_is_due(self, step: int) -> bool:
        return self._every_steps is not None and step % self._every_steps == 0

    def time_is_due(self) -> bool:
        """Returns whether the minutes have passed since the last restart()."""
        return self._seconds is not None and self._clock() - self._since >= self._seconds

    def restart(self) -> None:
        """Begins the minutes anew: a save has begun, or was asked for."""
        self._since = self._clock()
