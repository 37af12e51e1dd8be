"""Puts off the end that SIGTERM asks for until a save has ended."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any


class Termination:
    """Handles SIGTERM from start() to stop(): takes note of it, and calls the handler that was there before."""

    def __init__(self, chain: bool) -> None:
        """`chain`: call the handler that was there before."""
        self.asked = False
        self._chain = chain
        self._before: Any = None
        self._process = 0
        self._installed = False

    def start(self) -> bool:
        """Returns False if this is not the main thread, the only one that may handle signals."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self._before = signal.signal(signal.SIGTERM, self._handle)
        self._process = os.getpid()
        self._installed = True
        return True

    def stop(self) -> None:
        """Puts the handler back that was there before. Idempotent; only in the main thread."""
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)
        self._installed = False

    def end_process(self) -> None:
        """Ends the process as the signal would have, unless the program had a handler of its own, which was called."""
        if callable(self._before) or self._before == signal.SIG_IGN or not self._installed:
            return
        self.stop()
        os.kill(os.getpid(), signal.SIGTERM)

    def _handle(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:
            # A fork inherits the handler, but not what would save and end it: it ends as if nobody had set one.
            signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self.asked = True
        if self._chain and callable(self._before):
            self._before(number, frame)
