"""Manifests that somebody else has put below the root: what they take, and what of them reaches a terminal."""

import pathlib
import re
import struct
import subprocess
import sys

import numpy as np
import pytest

import cairn
from testing.ranks import command, command_json

# A text of one of these characters could make a terminal, or the person before it, believe something else.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
MOST_MEMORY = 512 << 10  # KiB


def number(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(tag: int, value: bytes) -> bytes:
    return number(tag << 3 | 2) + number(len(value)) + value


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF


def put_outcome(root, *more: bytes) -> int:
    """Puts a manifest of demo@1 with these fields besides, and returns its length."""
    fields = (field(1, b"demo") + b"\x10\x01\x18\x01" + field(4, b"request") + b"\x28\x01", *more)
    record = number(1 << 3 | 2) + number(sum(map(len, fields)))
    packed = subprocess.run(["zstd", "-q", "-c", "-3", f"--stream-size={len(record) + sum(map(len, fields))}"],
                            input=b"".join((record, *fields)), capture_output=True, check=True).stdout
    head = b"CAIRNVRD" + struct.pack("<IQ", 1, len(packed))
    step = root / "demo" / "000000000001"
    (step / "0001").mkdir(parents=True)
    (step / "0001.verdict").write_bytes(head + struct.pack("<I", crc32c(head + packed)) + packed)
    return len(packed)


# A child counts what its parent had when it was made, so a small process starts the command and asks what it has used.
MEASURE = """
import resource, subprocess, sys
said = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).stdout
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, said.decode())
"""


def peak(*arguments: str) -> tuple[int, str]:
    """Runs the command, and returns its largest memory in KiB and what it printed."""
    measured = subprocess.run([sys.executable, "-S", "-c", MEASURE, str(cairn.local.binary("cairn")), *arguments],
                              capture_output=True, text=True, check=True, timeout=120)
    used, said = measured.stdout.split(" ", 1)
    return int(used), said


@pytest.mark.parametrize("what, filling", [
    ("names of tensors", b"\xa2\x01\x00" * 30_000_000),
    ("layouts of ranks", field(11, bytes(60_000_000))),
    ("one text", field(7, bytes(300_000_000))),
    ("fields that nobody knows", b"\xb8\x3e\x01" * 30_000_000),
])
def test_a_small_outcome_that_stands_for_gigabytes_is_damaged(root, what, filling):
    assert put_outcome(root, filling) < 200_000
    used, said = peak("list", "demo", "--root", str(root))
    assert used < MOST_MEMORY, what
    assert "DAMAGED" in said and "MANIFEST_CORRUPT" in said, said


def test_a_small_outcome_that_stands_for_gigabytes_does_not_fill_the_coordinator(root):
    put_outcome(root, b"\xa2\x01\x00" * 30_000_000)
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        asking = ["--coordinator", cluster.coordinator.address, "--token-file", str(root / ".cairn/token")]
        assert "DAMAGED" in command("list", "demo", *asking).stdout
        status = pathlib.Path(f"/proc/{cluster.coordinator.pid}/status").read_text()
    assert int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) < MOST_MEMORY


def test_text_of_a_manifest_reaches_no_terminal_as_it_is(root):
    metric = field(18, "loss\u202e\x1b[2J".encode()) + field(19, struct.pack("<d", 1))
    put_outcome(root, field(7, "\x1b]0;title\x07\x1b[31m\u009bred\u2067".encode()), metric,
                field(70, b"\x1b[5mreplicas"))
    for command_line in (["show", "demo@1"], ["show", "demo@1", "--tensors", "--format=json"], ["list", "demo"],
                         ["list", "demo", "--format=json"], ["history", "demo"], ["verify", "demo@1"]):
        done = command(*command_line, "--root", str(root), expect=None)
        assert not UNPRINTABLE.search(done.stdout + done.stderr), command_line
        assert done.returncode == 0, done.stderr
    assert r"\x1b]0;title\x07\x1b[31m" in command("show", "demo@1", "--root", str(root)).stdout


def test_names_that_turn_the_direction_of_text_are_spelled_out(root):
    name = "\u202eevil\u2069"
    with cairn.local.Cluster(ranks=1, root=root) as cluster, cluster.connect(0) as client:
        client.save(1, {name: np.ones(4), "plain": np.ones(2), "\u2066value": cairn.per_rank({"seed": 1})}).wait()
        with pytest.raises(cairn.Error) as caught:
            client.load({name: np.zeros(5), "plain": np.zeros(2)})
    assert not UNPRINTABLE.search(str(caught.value)) and r"\xe2\x80\xaeevil" in str(caught.value)
    for command_line in (["show", "demo@1", "--tensors"], ["show", "demo@1", "--files"],
                         ["show", "demo@1", "--objects"], ["show", "demo@1", "--format=json"],
                         ["diff", "demo@1", "demo@1", "--all"]):
        done = command(*command_line, "--root", str(root))
        assert not UNPRINTABLE.search(done.stdout + done.stderr), command_line
    shown = command_json("show", "demo@1", "--root", str(root))
    assert name in {tensor["name"] for tensor in shown["tensors"]}
