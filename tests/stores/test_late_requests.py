"""Requests of a coordinator that serves take effect at the store after later ones were answered.

Each such request breaks its connection, is sent again, and succeeds. People get their answer, change their mind, and
get that answer too. Then the first request arrives. It must change nothing.
"""

import contextlib
import json
import os
import subprocess
import time

import pytest

import cairn
from stores.fault_proxy import FaultProxy
from stores.server import amazons_client
from stores.test_mirror import RANKS, save

# Long enough for the changes that come meanwhile.
DELAY = 4.0


@pytest.fixture
def late(endpoint, monkeypatch, use):
    """A proxy before the store, whose `delay` a test sets."""
    with contextlib.closing(FaultProxy(endpoint)) as proxy:
        use(proxy.endpoint)
        yield proxy


@contextlib.contextmanager
def root_in_store(name: str, *steps: int):
    with cairn.local.Cluster(ranks=RANKS, root=f"s3://models/{name}") as cluster:
        save(cluster, *steps)
        yield cluster


def run(cluster, *arguments: str) -> subprocess.CompletedProcess:
    command = [f"{os.environ['CAIRN_BIN_DIR']}/cairn", *arguments, "--coordinator", cluster.coordinator.address]
    return subprocess.run(command, capture_output=True, text=True)


def ask(cluster, *arguments: str) -> str:
    result = run(cluster, *arguments)
    assert result.returncode == 0, (arguments, result.stdout, result.stderr)
    return result.stdout


def first_to(words: tuple[str, ...], proxy: FaultProxy):
    """Delays the first request that changes something whose path, or body of keys, has one of the words."""
    seen = []

    def delay(method: str, path: str):
        if method in ("GET", "HEAD") or seen or not any(word in path for word in words):
            return None
        seen.append(path)
        return DELAY

    proxy.delay = delay
    return seen


def await_arrival(proxy: FaultProxy) -> tuple[str, str, int]:
    end = time.monotonic() + DELAY + 30
    while not proxy.arrived:
        assert time.monotonic() < end
        time.sleep(0.05)
    return proxy.arrived[-1]


def one(cluster, step: int) -> dict:
    listed = json.loads(ask(cluster, "list", "demo", "--format=json"))["checkpoints"]
    (found,) = [entry for entry in listed if entry["step"] == step]
    return found


def test_a_pin_that_is_set_anew_stays(late):
    with root_in_store("late-pin", 10, 20) as cluster:
        ask(cluster, "pin", "demo@10")
        seen = first_to(("pin", "?delete"), late)
        ask(cluster, "unpin", "demo@10")
        assert seen, late.requests
        ask(cluster, "pin", "demo@10")
        await_arrival(late)
        assert one(cluster, 10)["pinned"]
        ask(cluster, "prune", "demo", "--keep-last", "1")
        assert one(cluster, 10)["state"] == "COMMITTED"
        assert "CHECKPOINT_PINNED" in run(cluster, "delete", "demo@10").stderr


@pytest.mark.parametrize("words", [("unpinned",), ("?delete", "/pinned")])
def test_neither_request_of_an_unpin_undoes_the_next_pin(late, words):
    with root_in_store(f"late-unpin-{len(words)}", 10, 20) as cluster:
        ask(cluster, "pin", "demo@10")
        first_to(words, late)
        ask(cluster, "unpin", "demo@10")
        ask(cluster, "pin", "demo@10")
        await_arrival(late)
        assert one(cluster, 10)["pinned"]


def test_a_pin_that_was_taken_away_does_not_come_back(late):
    with root_in_store("late-revival", 10, 20) as cluster:
        seen = first_to(("-pinned", "/pinned"), late)
        ask(cluster, "pin", "demo@10")
        assert seen
        ask(cluster, "unpin", "demo@10")
        await_arrival(late)
        assert not one(cluster, 10)["pinned"]


def test_a_tag_follows_the_last_change(late):
    with root_in_store("late-tag", 10, 20) as cluster:
        ask(cluster, "tag", "demo@10", "paper")
        first_to(("untag-paper", "?delete"), late)
        ask(cluster, "untag", "demo@paper")
        ask(cluster, "tag", "demo@10", "paper")
        await_arrival(late)
        assert one(cluster, 10)["tags"] == ["paper"]


def test_rules_that_were_replaced_do_not_come_back(late):
    with root_in_store("late-rules", 10, 20, 30) as cluster:
        ask(cluster, "retention", "demo", "--keep-last", "9")
        seen = first_to((".rules", ".retention"), late)
        ask(cluster, "retention", "demo", "--keep-last", "1")
        assert seen
        ask(cluster, "retention", "demo", "--keep-last", "5")
        await_arrival(late)
        assert "5" in ask(cluster, "retention", "demo")
        save(cluster, 40)
        listed = json.loads(ask(cluster, "list", "demo", "--format=json"))["checkpoints"]
        assert [entry["step"] for entry in listed] == [10, 20, 30, 40]


def test_the_files_of_a_root_that_was_copied_are_read(late, endpoint):
    """A directory has files that come and go; so had earlier versions in stores."""
    with root_in_store("copied", 10, 20) as cluster:
        client = amazons_client(endpoint)
        step = "copied/demo/000000000010"
        for key, text in ((f"{step}/pinned", b"note\n"), (f"{step}/paper.tag", b"time\n"),
                          ("copied/demo/.retention", b"retention/1 keep-last 7 keep-every 0\n")):
            client.put_object(Bucket="models", Key=key, Body=text)
        assert one(cluster, 10)["pinned"] and one(cluster, 10)["tags"] == ["paper"]
        assert "7" in ask(cluster, "retention", "demo")
        ask(cluster, "unpin", "demo@10")
        ask(cluster, "untag", "demo@paper")
        ask(cluster, "retention", "demo", "--off")
        # The requests that had put the files arrive late.
        client.put_object(Bucket="models", Key=f"{step}/pinned", Body=b"note\n")
        assert not one(cluster, 10)["pinned"] and not one(cluster, 10)["tags"]
        assert "7" not in ask(cluster, "retention", "demo")
