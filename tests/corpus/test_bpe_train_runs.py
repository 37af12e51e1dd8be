"""Runs of `cairn corpus bpe train` with little memory, that are killed, resumed and interrupted."""
import gzip
import json
import random
import signal
import subprocess
import time

import pytest

from bpe_testing import CAIRN, EXHAUSTIVE, cairn, load, multilingual, rng, train

pytestmark = pytest.mark.interop


def test_little_memory_gives_the_same_result(tmp_path):
    r = rng(11)
    path = tmp_path / "text"
    letters = str.maketrans("0123456789", "ghijklmnop")
    path.write_text(
        "\n".join(f"{r.getrandbits(r.choice((20, 40, 80))):x}".translate(letters) for _ in range(250_000))
    )
    expected = train(path, tmp_path / "out", 700)
    command = [
        CAIRN,
        "--format=json",
        "corpus",
        "bpe",
        "train",
        path,
        "--vocab-size=700",
        f"--output={tmp_path / 'out2'}",
    ]
    result = subprocess.run([*command, "--resume", "--checkpoint-every=200KB"], capture_output=True, check=True)
    assert json.loads(result.stdout)["spilled"]
    assert load(tmp_path / "out2") == expected
    limited = subprocess.run([*command, "--memory=32MiB"], capture_output=True)
    assert limited.returncode == 1 and b"MEMORY_LIMIT" in limited.stderr  # says what merging would take
    enough = subprocess.run([*command, "--memory=200MiB"], capture_output=True, check=True)
    assert enough.returncode == 0 and load(tmp_path / "out2") == expected
    assert sorted(p.name for p in (tmp_path / "out2").iterdir()) == [
        "merges.txt", "tokenizer.json", "tokenizer.tiktoken", "tokenizer_config.json", "vocab.json",
    ]


@pytest.mark.parametrize("seed, compress", [(0, False), (1, True)])
def test_killed_and_resumed(tmp_path, seed, compress):
    text = (multilingual(400_000, seed) * 5).encode()
    path = tmp_path / ("text.gz" if compress else "text")
    path.write_bytes(gzip.compress(text, 1) if compress else text)
    flags = ["--vocab-size", 2000, "--special-token", "the"]
    expected = train(path, tmp_path / "whole", 2000, "--special-token", "the")
    command = [CAIRN, "corpus", "bpe", "train", path, *map(str, flags), "--output", tmp_path / "out", "--resume"]
    command += ["--checkpoint-every", "100KB", "--threads", "2"]
    record = tmp_path / "out" / ".bpe-count" / "count.json"
    r = random.Random(seed)
    kills = 0
    for _ in range(6):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wanted = r.randint(1, 3)  # records to wait for before the kill
        seen = record.stat().st_mtime_ns if record.exists() else None
        while process.poll() is None and wanted > 0:
            now = record.stat().st_mtime_ns if record.exists() else None
            if now != seen:
                seen, wanted = now, wanted - 1
            time.sleep(0.0005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    result = subprocess.run(command, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert kills > 0
    assert load(tmp_path / "out") == expected
    assert not record.parent.exists()


def kill_while_merging(command, record, r):
    """Starts the command and kills it at a random moment of merging. Returns whether it had not ended before."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    begin = record.stat().st_size if record.exists() else 0
    more = r.randint(1, 100_000)  # bytes; the record of a whole run here has a few hundred thousand
    while process.poll() is None and (not record.exists() or record.stat().st_size < begin + more):
        time.sleep(0.0002)
    killed = process.poll() is None
    if killed:
        process.send_signal(signal.SIGKILL)
    process.wait()
    return killed


@pytest.mark.parametrize("seed", range(20 if EXHAUSTIVE else 4))
def test_killed_while_it_merges_and_resumed(tmp_path, seed):
    r = rng(seed)
    path = tmp_path / "text"
    letters = str.maketrans("0123456789", "ghijklmnop")
    path.write_text("\n".join(f"{r.getrandbits(r.choice((20, 40, 60))):x}".translate(letters) for _ in range(80_000)))
    flags = [[], ["--extend", tmp_path / "small"], ["--veto", "[aeiou]{3}", "--min-frequency", "2"]][seed % 3]
    train(path, tmp_path / "small", 400)
    size = 14_000
    expected = train(path, tmp_path / "whole", size, *flags)
    command = [CAIRN, "--format=json", "corpus", "bpe", "train", path, "--output", tmp_path / "out", "--resume", *flags]
    record = tmp_path / "out" / ".bpe-count" / "merges"
    # A smaller vocabulary has the same merges, so they serve the larger one too.
    kills = sum(
        kill_while_merging([*command, f"--vocab-size={r.choice((size, size - 3000))}"], record, r) for _ in range(4)
    )
    assert kills > 0
    recorded = record.exists() and record.read_bytes().count(b"\n") > 64
    result = subprocess.run([*command, f"--vocab-size={size}"], capture_output=True, check=True)
    assert (json.loads(result.stdout)["resumed_merges"] >= 64) == recorded
    assert load(tmp_path / "out") == expected
    for name in ("tokenizer.json", "merges.txt", "tokenizer.tiktoken"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not record.parent.exists()


def test_merges_of_other_options_are_not_resumed(tmp_path):
    r = rng(5)
    path = tmp_path / "text"
    path.write_text(" ".join(f"{r.getrandbits(40):x}".translate(str.maketrans("0123456789", "ghijklmnop"))
                             for _ in range(80_000)))
    command = [CAIRN, "--format=json", "corpus", "bpe", "train", path, "--vocab-size=14000", "--resume"]
    command += ["--output", tmp_path / "out"]
    record = tmp_path / "out" / ".bpe-count" / "merges"
    others = (["--min-frequency=3"], ["--veto=abc"], ["--pretokenizer=gpt4"], ["--tie-break=huggingface"])
    for other in others:
        while not kill_while_merging(command, record, r):
            pass
        result = subprocess.run([*command, *other], capture_output=True, check=True)
        assert json.loads(result.stdout)["resumed_merges"] == 0
        assert load(tmp_path / "out") == train(path, tmp_path / "expected", 14000, *other)


def test_a_resumed_count_of_other_inputs_is_refused(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "fine words"}\n' * 100_000 + "broken\n")
    command = [
        "train",
        path,
        "--output",
        tmp_path / "out",
        "--vocab-size",
        260,
        "--resume",
        "--checkpoint-every",
        "64KB",
    ]
    assert cairn(*command).returncode == 1
    assert (tmp_path / "out" / ".bpe-count" / "count.json").exists()
    path.write_text('{"text": "fine words"}\n' * 100_001)
    result = cairn(*command)
    assert result.returncode == 1 and b"other inputs" in result.stderr


def test_interrupted_training_leaves_nothing(tmp_path):
    path = tmp_path / "text"
    path.write_text(multilingual(400_000, 1) * 50)
    out = tmp_path / "out"
    process = subprocess.Popen(
        [CAIRN, "corpus", "bpe", "train", path, "--vocab-size", "30000", "--output", out], stderr=subprocess.PIPE
    )
    while not out.exists() and process.poll() is None:
        time.sleep(0.0005)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and b"INTERRUPTED" in error
    assert not out.exists()
