"""Descriptors of memory that others may need back: a forked child of this process has none of them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from types import TracebackType

# Held while a descriptor is there and _open does not have it. A fork waits for that, so it must never be held for long.
_changing = threading.RLock()
_open: set[int] = set()


def _close(number: int) -> None:
    with contextlib.suppress(OSError):  # the program has closed it, as it closes all that it does not know
        os.close(number)


class Descriptor:
    """Owns one. It closes it also when it is forgotten, because a signal's handler may raise anywhere."""

    def __init__(self, make: Callable[[], int]):
        """`make` makes it; a fork in another thread waits for it. Raises what it raises."""
        self._number = -1
        with _changing:
            self._among = _open  # a forked child has another set
            self._number = make()
            self._among.add(self._number)

    def number(self) -> int:
        """Returns the descriptor; -1 after close()."""
        return self._number

    def close(self) -> None:
        with _changing:
            number, self._number = self._number, -1
            if number in self._among:
                self._among.remove(number)
                _close(number)

    def __del__(self) -> None:
        if self._number >= 0:
            self.close()

    def __enter__(self) -> Descriptor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()


# A child would hold memory long after the agent, or its parent, has given it up.
def _after_fork() -> None:
    global _open
    for number in _open:
        _close(number)
    _open.clear()
    _open = set()
    _changing.release()


os.register_at_fork(before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_after_fork)
