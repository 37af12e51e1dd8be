"""The client that calls share which are not given one."""

from __future__ import annotations

import os
import threading

from cairn.client import Client, connect

_lock = threading.Lock()
_clients: dict[int, Client] = {}  # by process, since a fork inherits none


def own_client(given: Client | None) -> Client:
    """Returns the client that was given, else one that cairn.connect() gives, which is kept for later calls."""
    if given is not None:
        return given
    with _lock:
        client = _clients.get(os.getpid())
        if client is None:
            client = _clients[os.getpid()] = connect()
        return client
