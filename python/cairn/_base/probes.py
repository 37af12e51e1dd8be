"""Named points of a client's work, at which a test may look on, hold the work up, or make it fail.

A point costs one look at an empty dict while nobody watches it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

# It gets what POINTS says about its point, as keywords. What it raises, the work raises.
Probe = Callable[..., None]

# Each point, and what a probe is told there.
POINTS = {
    "call": "A call to an agent begins: address, name, request.",
    "answered": "It has ended: address, name, request, answer (None if it has failed).",
    "attach": "An agent has taken this trainer, and the client begins to use its process: address.",
    "map": "Memory of an agent is about to be mapped: path, descriptor_id, size, writable.",
    "stage": "A save is about to copy its state: rank, declared.",
    "copy": "Items on the host are about to be copied to shared memory: declared, placement, memory.",
    "copied": "They are copied: declared, placement, memory.",
    "checksums": "Checksums of replicas are about to be computed: declared, items.",
    "commit": "A save is about to tell the agent that all is staged: rank.",
    "lend": "A reshard is about to copy what this rank lends: rank.",
    "receive": "A load is about to copy a batch from an agent's buffer: batch, buffer.",
    "pieces": "A load is about to read a batch of pieces of files: batch.",
    "blame": "A load whose source of bytes is gone is about to wait for who is to blame: lease.",
}

_probes: dict[str, list[Probe]] = {}


def reach(point: str, **facts: Any) -> None:
    """Calls the probes of a point, in the thread that has come there."""
    for probe in _probes.get(point, ()):
        probe(**facts)


def add(point: str, probe: Probe) -> None:
    """Lets a probe watch a point, in all clients of this process, for good.

    Raises KeyError if there is no such point.
    """
    POINTS[point]
    # Whoever is at the point goes on with the list that was there before.
    _probes[point] = [*_probes.get(point, ()), probe]


@contextlib.contextmanager
def at(point: str, probe: Probe) -> Iterator[None]:
    """Lets a probe watch a point within a `with` block."""
    add(point, probe)
    try:
        yield
    finally:
        _probes[point] = [each for each in _probes[point] if each is not probe]
