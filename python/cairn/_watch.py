"""Noticing that the agent was restarted."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from cairn._errors import Error

if TYPE_CHECKING:
    from cairn.client import Client


class RestartWatch:
    """Attaches again when another agent process serves the client's address.

    A training loop that only reports its steps makes no calls, so nothing else would notice. A restarted agent binds its
    socket anew, which shows as another file: looking costs the agent nothing.
    """

    _PERIOD = 0.5

    def __init__(self, address: str):
        self._path = address.removeprefix("unix:")
        self._seen: tuple | None = None
        self._stopped = threading.Event()

    def start(self, client: "Client") -> None:
        if self._seen is not None:
            threading.Thread(target=self._run, args=(weakref.ref(client),), name="cairn-watch", daemon=True).start()

    def attached(self) -> None:
        self._seen = self._look()

    def _look(self) -> tuple | None:
        try:
            status = os.stat(self._path)
            return status.st_ino, status.st_ctime_ns  # a number alone may be used again
        except OSError:
            return None

    def restarted(self) -> bool:
        """Whether the agent is, or may be, another process than the one last attached to."""
        return self._seen is None or self._look() != self._seen

    def _run(self, client_reference) -> None:
        while not self._stopped.wait(self._PERIOD):
            seen = self._look()
            client = client_reference()
            if client is None:
                return
            if seen is not None and seen != self._seen:
                try:
                    client._attach(0.0)
                except Error:
                    pass  # not serving yet: looked at again; the trainer's next call would raise what remains wrong
            del client

    def stop(self) -> None:
        self._stopped.set()
