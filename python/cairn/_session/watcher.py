"""Watches a session while the trainer makes no calls."""

from __future__ import annotations

import threading
import weakref

from cairn._session.session import Session


class AgentWatcher:
    """Lets a session notice that its agent was restarted, or that another trainer has its rank.

    A training loop that only reports its steps makes no calls, so nothing else would notice. Looking costs the agent
    nothing.
    """

    _PERIOD = 0.5

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def start(self, session: Session) -> threading.Thread:
        thread = threading.Thread(target=self._run, args=(weakref.ref(session),), name="cairn-watch", daemon=True)
        thread.start()
        return thread

    def _run(self, session_reference: weakref.ref[Session]) -> None:
        while not self._stopped.wait(self._PERIOD):
            session = session_reference()
            if session is None or not session.look():
                return
            del session

    def stop(self) -> None:
        self._stopped.set()
