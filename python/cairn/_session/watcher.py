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

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def start(self, session: Session) -> threading.Thread:
        thread = threading.Thread(target=self._run, args=(weakref.ref(session), session.limits.watch_period),
                                  name="cairn-watch", daemon=True)
        thread.start()
        return thread

    def _run(self, session_reference: weakref.ref[Session], period: float) -> None:
        while not self._stopped.wait(period):
            session = session_reference()
            if session is None or not session.look():
                return
            del session

    def stop(self) -> None:
        self._stopped.set()
