"""Handlers of signals that a forked child does not inherit."""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any] | int | None


class Handlers:
    """Sets handlers in this process, and gives the ones of before back.

    A forked child (a worker of a data loader) is no rank: it gets the handlers of before at the fork, so that a signal
    ends it as if nobody had set one. A handler that only looked where it runs would not do: Python calls it between two
    of its instructions, and a child that has just begun to wait would wait on.

    Only the main thread may use it.

    Attributes:
      before: signal -> the handler that was there; empty while nothing is set.
    """

    def __init__(self) -> None:
        self.before: dict[signal.Signals, _Handler] = {}
        self._set: dict[signal.Signals, Any] = {}
        _ALL.add(self)

    def set(self, number: signal.Signals, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.before[number] = signal.signal(number, handler)
        self._set[number] = handler

    def restore(self) -> None:
        """Idempotent. A handler that somebody else has set since stays."""
        for number, handler in self.before.items():
            if signal.getsignal(number) == self._set[number]:
                # None: it was not set by Python, which cannot set it again.
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self.before.clear()
        self._set.clear()


_ALL: weakref.WeakSet[Handlers] = weakref.WeakSet()


def _after_fork() -> None:
    for handlers in list(_ALL):
        handlers.restore()


os.register_at_fork(after_in_child=_after_fork)
