"""What a user reads when something goes wrong: each important error, made for real, must be that of
tests/golden/messages.txt.

Other tests switch on an error's reason and metadata; the words are looked at here alone.
"""

from __future__ import annotations

import difflib
import os
import pathlib
import re
import socket
import tempfile

import numpy as np

import cairn
from testing.ranks import command, files_below, on_ranks

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/messages.txt"
HEAD = """The important errors of Cairn, as its user reads them. tests/integration/test_messages.py makes each of them.
What differs from run to run is in capitals: ROOT and SOCKETS (directories), ADDRESS, PID, NODE, TIME.
"""
DIFFERS = [(r", agent last heard [\d.]+m?s ago", ""),  # where the machine is busy
           (rf"{tempfile.gettempdir()}/cairn-\w+/sockets-", "SOCKETS/"), (r"127\.0\.0\.1:\d+", "ADDRESS"),
           (r"\bprocess \d+", "process PID"), (r"\bfor [\d.]+m?s\b", "for TIME"),
           (rf"\b(node|on) {re.escape(socket.gethostname())}\b", r"\1 NODE")]


class Messages:
    """Collects errors by what the user did, under headings."""

    def __init__(self, root: pathlib.Path):
        self._root = str(root)
        self.text = HEAD

    def head(self, title: str) -> None:
        self.text += f"\n== {title}\n"

    def python(self, what: str, call) -> None:
        try:
            call()
        except cairn.Error as error:
            self.told(what, str(error))
        else:
            raise AssertionError(f"nothing was refused: {what}")

    def command(self, *arguments: str) -> None:
        done = command(*arguments, expect=None)
        assert done.returncode != 0, (arguments, done.stdout)
        self.told(f"$ cairn {' '.join(arguments)}   (exit status {done.returncode})", done.stderr)

    def told(self, what: str, said: str) -> None:
        text = f"\n-- {what}\n{said.rstrip()}\n"
        for pattern, name in [(re.escape(self._root), "ROOT"), *DIFFERS]:
            text = re.sub(pattern, name, text)
        self.text += text


def rows(rank: int, values=2, offset=None) -> cairn.Shard:
    """Returns rank's half of a tensor of four numbers."""
    return cairn.Shard(np.zeros(values, np.float32), (4,), (2 * rank if offset is None else offset,))


def connections(messages: Messages, cluster, monkeypatch) -> None:
    messages.head("Connecting a trainer with its agent")
    messages.python("cairn.connect(), and nothing says where the agent is", cairn.connect)
    messages.python("no agent runs", lambda: cairn.connect("unix:/nowhere/agent.sock", timeout=0.1))
    messages.python("the agent has gone from its port", lambda: cairn.connect("127.0.0.1:1", timeout=0.1))
    agent = cluster.agents[0].address
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "1")
        messages.python("the agent is that of another rank", lambda: cairn.connect(agent))
        patch.setenv("RANK", "0")
        patch.setenv("WORLD_SIZE", "4")
        messages.python("the agent is that of a job of another size", lambda: cairn.connect(agent))
    messages.python("a rank that is no rank", lambda: cairn.connect(agent, rank=-1))


def saves(messages: Messages, cluster) -> None:
    messages.head("Saving")

    def refused(what: str, state_of_rank, step=1, **options) -> None:
        answers = on_ranks(cluster, lambda rank, client: client.save(step, state_of_rank(rank), **options).wait(),
                           errors=True)
        first = next(answer for answer in answers if isinstance(answer, cairn.Error))
        messages.told(what, str(first))

    refused("the state is no dict", lambda rank: [1])
    circle: list = []
    circle.append(circle)
    refused("a list that has itself as a member", lambda rank: {"x": circle})
    refused("a step that is no step", lambda rank: {"w": rows(rank)}, step=-1)
    refused("no rank has a part of a tensor", lambda rank: {"w": rows(rank, 1)})
    refused("two ranks have the same part of a tensor", lambda rank: {"w": rows(rank, 2, rank)})
    refused("ranks disagree about a dtype",
            lambda rank: {"w": cairn.Shard(np.zeros(2, np.float32 if rank else np.int32), (4,), (2 * rank,))})
    refused("a metric with a name that is no name", lambda rank: {"w": rows(rank)}, metrics={"a b": 1})
    refused("ranks have random numbers of their own",
            lambda rank: {"w": rows(rank), "rng": np.full(16, rank, np.uint8)})
    on_ranks(cluster, lambda rank, client: client.save(5, {"w": rows(rank)}).wait())
    refused("the step was saved before", lambda rank: {"w": rows(rank)}, step=5)
    refused("the next save lacks a tensor", lambda rank: {"v": rows(rank)}, step=6)
    on_ranks(cluster, lambda rank, client: client.save(6, {"w": rows(rank)}).wait())
    with cluster.connect(0) as client, cluster.connect(1) as other:
        other.report_step(6)
        saving = client.save(7, {"w": rows(0)})  # later saves return when they are staged
        messages.python("another rank has not called save yet", lambda: saving.wait(timeout=2))
        messages.python("another rank never calls save", saving.wait)
    messages.python("a client that was closed", lambda: client.save(8, {"w": rows(0)}))


def loads(messages: Messages, cluster) -> None:
    messages.head("Loading")

    def refused(what: str, state_of_rank, **options) -> None:
        answers = on_ranks(cluster, lambda rank, client: client.load(state_of_rank(rank), **options), errors=True)
        messages.told(what, str(next(answer for answer in answers if isinstance(answer, cairn.Error))))

    read_only = np.zeros(4, np.float32)
    read_only.flags.writeable = False
    refused("an array that cannot be filled", lambda rank: {"w": read_only})
    refused("a step that was not saved", lambda rank: {"w": rows(rank)}, step=99)
    refused("a tensor that the checkpoint lacks", lambda rank: {"w": rows(rank), "bias": np.zeros(3)})
    refused("a tensor of another shape", lambda rank: {"w": np.zeros((2, 3), np.float32)})
    refused("a tensor of another dtype", lambda rank: {"w": np.zeros(4, np.int64)})
    refused("a mapping that does not parse", lambda rank: {"w": rows(rank)}, mapping="w -> ")
    refused("a mapping's file that is not there", lambda rank: {"w": rows(rank)}, mapping=pathlib.Path("absent.aoa"))
    refused("a tag that no checkpoint has", lambda rank: {"w": rows(rank)}, step="paper")


def commands(messages: Messages, cluster) -> None:
    messages.head("Commands")
    coordinator = f"--coordinator={cluster.coordinator.address}"
    root = f"--root={cluster.root}"
    messages.command("jobs")
    messages.command("jobs", "--coordinator=127.0.0.1:1")
    messages.command("prune", "demo", "--keep-last=1")
    messages.command("pin", "demo@5", "--coordinator=127.0.0.1:1")
    for address in (None, "127.0.0.1:1"):
        messages.python(f"pin of cairn.checkpoints at {address}",
                        lambda: cairn.checkpoints.pin("demo", 5, coordinator=address))
    messages.command("lsit", "demo")
    messages.command("save", "demo", "--timeout=5x", coordinator)
    messages.command("save", "demo@500", coordinator)
    messages.command("list", "other", root)
    messages.command("list", "demo", "--root=/nowhere")
    messages.command("show", "demo@99", root)
    messages.command("list", "Bad Name", root)
    command("pin", "demo@5", coordinator)
    messages.command("delete", "demo@5", coordinator)
    command("unpin", "demo@5", coordinator)
    command("delete", "demo@5", coordinator)
    messages.command("delete", "demo@6", coordinator)


def damages(messages: Messages, cluster) -> None:
    messages.head("Damaged checkpoints")
    (data,) = files_below(cluster.root / "demo/000000000006", "rank00000-bin00.safetensors")
    with open(data, "r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"\xff\xff")
    messages.command("verify", "demo@6", f"--root={cluster.root}")
    data.unlink()
    messages.command("verify", "demo@6", f"--root={cluster.root}")


def test_each_important_error_says_what_it_has_always_said(tmp_path, monkeypatch):
    messages = Messages(tmp_path / "root")
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with cairn.local.Cluster(2, tmp_path / "root", coordinator_flags=["--phase-timeout=6s"]) as cluster:
        connections(messages, cluster, monkeypatch)
        saves(messages, cluster)
        loads(messages, cluster)
        commands(messages, cluster)
        damages(messages, cluster)
        messages.head("Services that do not start")
        messages.python("a second coordinator of a root", cairn.local.Cluster(1, cluster.root).__enter__)
        messages.python("a flag that cannot be read", cairn.local.Cluster(
            1, tmp_path / "other", coordinator_flags=["--metrics-listen=nowhere"]).__enter__)
    if os.environ.get("CAIRN_WRITE_GOLDEN"):
        GOLDEN.write_text(messages.text)
    difference = list(difflib.unified_diff(GOLDEN.read_text().splitlines(), messages.text.splitlines(), str(GOLDEN),
                                           "what is printed now", lineterm=""))
    mends = "If the errors should say that: CAIRN_WRITE_GOLDEN=yes python -m pytest tests/integration/test_messages.py"
    assert not difference, "\n".join([*difference[:40], mends])
