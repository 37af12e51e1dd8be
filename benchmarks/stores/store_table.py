"""Shows to people what the benchmark of stores has measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from checkpointers import CHECKPOINTERS
from transfers import TRANSFERS

# What is compared with whom, in a table of its own each: the title, the phase, and the value that Cairn has there.
_OPERATIONS = (("blocked", "save", "blocked"), ("durable save", "save", "seconds"), ("cold load", "load", "seconds"),
               ("reshard, cold", "reshard", "seconds"))


def _spread(values: list[float], scale: float = 1.0, digits: int = 3) -> str:
    low, middle, high = (f"{scale * value:.{digits}f}" for value in
                         (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} .. {high})"


def _peers_phase(side: str, phase: str) -> str:
    """A limit does not know of splits: what a reshard is compared with is a download."""
    return "load" if side in TRANSFERS and phase == "reshard" else phase


def _pairs(rounds: list[dict[str, Any]], name: str, title: str, phase: str, value: str) -> None:
    """Prints Cairn beside one other side."""
    there = _peers_phase(name, phase)
    ours = [one["sides"]["cairn"][phase][value] for one in rounds]
    theirs = [one["sides"][name][there]["seconds"] for one in rounds]
    ratios = [a / b for a, b in zip(ours, theirs)]
    print(f"{title:15}{_spread(ours):26}{name:22}{_spread(theirs):26}{_spread(ratios, digits=2)}")


def _costs(answer: dict[str, Any], side: str, phase: str) -> str:
    operations = [one["sides"][side][phase] for one in answer["rounds"]]
    gigabytes = answer["bytes"] / 1e9

    def middle(value: Callable[[dict[str, Any]], float | None], digits: int) -> str:
        values = [found for operation in operations if (found := value(operation)) is not None]
        return f"{statistics.median(values):.{digits}f}" if values else "-"

    kinds = sorted({kind for operation in operations for kind in operation["requests"]})
    requests = " ".join(f"{kind} {middle(lambda one, kind=kind: one['requests'].get(kind, 0), 0)}" for kind in kinds)
    cpu = middle(lambda one: (one["cpu_ranks"] + one["cpu_services"]) / gigabytes, 2)
    store = middle(lambda one: one["cpu_store"] / gigabytes, 2)
    memory = middle(lambda one: None if one["memory"] is None else one["memory"] / 2**20, 0)
    got = middle(lambda one: one.get("got / unique"), 3)
    return f"{side:22}{phase:9}{cpu:>8}{store:>8}{memory:>9}{got:>10}  {requests}"


def _work(rounds: list[dict[str, Any]]) -> None:
    """Prints what the coordinator and the commands do without moving state."""
    def line(title: str, ours: list[float], requests: list[float], peer: str, theirs: list[float],
             peer_requests: list[float]) -> None:
        ratios = [a / b for a, b in zip(ours, theirs)]
        print(f"{title:34}{_spread(ours, 1e3, 1):26}{statistics.median(requests):8.0f}   "
              f"{peer:34}{_spread(theirs, 1e3, 1):26}{statistics.median(peer_requests):8.0f}   "
              f"{_spread(ratios, digits=2)}")

    def of(part: str, value: str) -> list[float]:
        return [one[part][value] for one in rounds]

    print(f"\n{'':34}{'Cairn, ms':26}{'requests':11}{'peer':34}{'ms':26}{'requests':11}ratio")
    saves = [one["sides"].get("cairn", {}).get("save", {}) for one in rounds]
    if all("commit requests" in save for save in saves):
        for peer in ("put", "list"):
            line("commit of a save", [save["commit"] for save in saves], [save["commit requests"] for save in saves],
                 f"boto3, a small {peer.upper()}", of("small", peer), [1])
    if all("removal" in one for one in rounds):
        peer = f"boto3, delete_objects of {rounds[0]['removal']['files']} keys"
        for title, value in (("delete: the command returns", "returned"), ("delete: all files are gone", "gone")):
            line(title, of("removal", value), of("removal", "requests"), peer, of("removal", "peer"),
                 of("removal", "peer_requests"))
    if all("listing" in one for one in rounds):
        steps = rounds[0]["listing"]["steps"]
        for title, value in ((f"list of {steps} steps", "asked"), (f"list --root of {steps} steps", "read")):
            line(title, of("listing", value), of("listing", f"{value}_requests"),
                 "boto3, all names and verdicts", of("listing", "peer"), of("listing", "peer_requests"))
        print(f"  a command that asks for nothing takes {_spread(of('listing', 'command'), 1e3, 1)} ms")


def print_table(answer: dict[str, Any]) -> None:
    """Prints the answer of store_benchmark.py."""
    rounds = answer["rounds"]
    sides = [name for name in [*CHECKPOINTERS, *TRANSFERS] if name in rounds[0]["sides"]]
    server = " ".join(filter(None, (answer["server"], answer["frontend"])))
    print(f"{answer['bytes'] / 1e9:.3f} GB in {answer['tensors']} fp32 tensors over {answer['ranks']} ranks, {server}, "
          f"{len(rounds)} rounds, {answer['cores']} cores, parts of {answer['part'] / 2**20:g} MiB")
    for name, phases in answer["settings"].items():
        print(f"{name}: the best of {answer['tried'][name]} settings are {phases['save']} for uploads, "
              f"{phases['load']} for downloads")
    for name, reason in answer["absent"].items():
        print(f"{name}: absent: {reason}")
    if "cairn" in sides:
        print(f"\n{'':15}{'Cairn, s':26}{'peer or limit':22}{'s':26}ratio, round by round")
        for title, phase, value in _OPERATIONS:
            for name in sides:
                if name != "cairn" and (value != "blocked" or name in CHECKPOINTERS):
                    _pairs(rounds, name, title, phase, value)
    print(f"\n{'':31}{'CPU, s/GB':>8}{'store':>7}{'MiB more':>9}{'got/need':>10}  requests")
    for side in sides:
        for phase in rounds[0]["sides"][side]:
            print(_costs(answer, side, phase))
    _work(rounds)
