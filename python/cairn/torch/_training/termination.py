"""Puts off the end that SIGTERM asks for until a save has ended."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from cairn._base.signals import Handlers


class DeferredTermination:
    """Handles SIGTERM from start() to stop(): takes note of it, and calls the handler that was there before."""

    def __init__(self, chain: bool) -> None:
        """`chain`: call the handler that was there before."""
        self.asked = False
        self._chain = chain
        self._handlers = Handlers()
        self._installed = False

    def start(self) -> bool:
        """Returns False if this is not the main thread, the only one that may handle signals."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self._handlers.set(signal.SIGTERM, self._handle)
        self._installed = True
        return True

    def stop(self) -> None:
        """Puts the handler back that was there before. Idempotent; only in the main thread."""
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        self._handlers.restore()
        self._installed = False

    def end_process(self) -> None:
        """Ends the process as the signal would have, unless the program had a handler of its own, which was called.

        Raises:
          SystemExit: in the first process of a container, which gets no signal that it has no handler for.
        """
        if not self._installed:
            return
        before = self._handlers.before(signal.SIGTERM)
        if callable(before) or before == signal.SIG_IGN:
            return
        self.stop()
        os.kill(os.getpid(), signal.SIGTERM)
        raise SystemExit(128 + signal.SIGTERM)

    def _handle(self, number: int, frame: Any) -> None:
        self.asked = True
        if self._chain and callable(self._handlers.before(signal.SIGTERM)):
            self._handlers.pass_on(number, frame)
