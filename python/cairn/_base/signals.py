"""Handlers of signals that a forked child does not inherit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


class Handlers:
    """Sets handlers in this process, and gives the ones of before back.

    A forked child (a worker of a data loader) is no rank: it gets the handlers of before at the fork, so that a signal
    ends it as if nobody had set one. A handler that only looked where it runs would not do: Python calls it between two
    of its instructions, and a child that has just begun to wait would wait on. It looks all the same, for a signal that
    comes with the fork, and for a program whose own handler calls this one.

    Only the main thread may use it. A signal may come at any point, and its handler may call restore().
    """

    def __init__(self) -> None:
        self._handler: dict[int, Handler] = {}
        # This has what was there before. It stays when the handler is taken off, since somebody else may still call it.
        self._before: dict[int, Any] = {}
        self._set: dict[int, None] = {}
        self._process = 0

    def set(self, number: signal.Signals, handler: Handler) -> None:
        """Sets a handler. Raises as signal.signal(), and then nothing was changed."""
        self._process = os.getpid()
        self._handler[number] = handler
        self._before[number] = signal.getsignal(number)
        self._set[number] = None
        try:
            signal.signal(number, self._enter)
        except BaseException:
            del self._set[number]
            raise
        if self not in _SET:
            _SET.append(self)

    def before(self, number: signal.Signals) -> Any:
        """Returns the handler that was there, as signal.getsignal() gives it."""
        return self._before[number]

    def restore(self) -> None:
        """Idempotent. A handler that somebody else has set since stays."""
        while self._set:
            try:
                number, _ = self._set.popitem()
            except KeyError:  # a signal came, whose handler was quicker
                break
            if signal.getsignal(number) == self._enter:
                before = self._before[number]
                # None: it was not set by Python, which cannot set it again.
                signal.signal(number, before if before is not None else signal.SIG_DFL)
        if self in _SET:
            _SET.remove(self)

    def pass_on(self, number: int, frame: FrameType | None) -> None:
        """Does what the handler of before would have done."""
        before = self._before[number]
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _enter(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._process and number in self._set:
            self._handler[number](number, frame)
        else:  # in a child; or a handler that was set over this one still calls it
            self.pass_on(number, frame)


_SET: list[Handlers] = []  # in the order in which they were set


def _after_fork() -> None:
    for handlers in reversed(_SET.copy()):  # each finds its own handler then
        handlers.restore()


os.register_at_fork(after_in_child=_after_fork)
