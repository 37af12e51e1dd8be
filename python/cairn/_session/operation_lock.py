"""Lets a client do only one operation at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from cairn._base.errors import Error


class OperationLock:
    """Makes saves, loads and reshards of one client follow one another.

    Not reentrant: a signal's handler that closes the client must not take the slab from under the save it interrupts.
    """

    def __init__(self, after: Callable[[], None]) -> None:
        """`after` is called when an operation has ended, in whatever way."""
        self._lock = threading.Lock()
        self._what = ""
        self._after = after

    @contextlib.contextmanager
    def of(self, what: str, timeout: float) -> Iterator[None]:
        """Holds the client for the operation `what`.

        Raises:
          Error: SAVE_IN_PROGRESS, or TIMED_OUT, if another thread's operation has not ended within `timeout`
          seconds.
        """
        if not self.acquire(timeout):
            other = self._what
            raise Error("SAVE_IN_PROGRESS" if other == "save" else "TIMED_OUT",
                        f"a {other} of another thread has not ended within {timeout:g} s, so this {what} did not begin")
        try:
            self._what = what
            yield
        finally:
            self.release()
            self._after()

    def acquire(self, timeout: float) -> bool:
        return self._lock.acquire(timeout=min(max(timeout, 0.0), threading.TIMEOUT_MAX))

    def release(self) -> None:
        self._lock.release()
