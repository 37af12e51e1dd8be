"""`--resume` says whether it goes on from an earlier run: what that has done, and what is left."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
BYTES = 60 << 20


def run(*command, expect=0):
    done = subprocess.run([str(CAIRN), "corpus", *map(str, command)], capture_output=True, text=True, timeout=120)
    assert done.returncode == expect, done.stderr
    return done


def shuffle(directory):
    return ("shuffle", directory / "in", "--output", directory / "out", "--memory", "32MiB", "--threads", 1,
            "--resume", "--checkpoint-interval", "4MiB")


def notes(done):
    return [line for line in done.stderr.splitlines() if line.startswith("note: --resume: ")]


def killed(command, journal, kind):
    """Runs the command until its journal has an entry of this kind. Returns whether it was killed then."""
    process = subprocess.Popen([str(CAIRN), "corpus", *map(str, command)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if any(f'"kind":"{kind}"'.encode() in path.read_bytes() for path in journal()):
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.0005)
    process.wait()
    return process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["ranges", "output"])
def test_a_shuffle_says_what_an_earlier_run_has_done(tmp_path, kind):
    with open(tmp_path / "in", "w", encoding="ascii") as text:
        for number in range(BYTES // 100):
            text.write(f"{number:099}\n")
    command = shuffle(tmp_path)
    assert notes(run(*command)) == ["note: --resume: there is no earlier run to go on from, so all is done"]
    expected = (tmp_path / "out").read_bytes()
    (tmp_path / "out").unlink()
    for _ in range(50):
        if killed(command, lambda: tmp_path.glob(".out.*.shuffle/journal"), kind):
            break
        (tmp_path / "out").unlink()
    else:
        raise AssertionError("it always ended before it was killed")
    (note,) = notes(run(*command))
    whole, part = rf"{BYTES / 2**20:.1f} MiB", r"[0-9.]+ [KM]iB"
    known = {"ranges": rf"has read (all, {whole}; what is left is to write|{part}; the rest is read, and written)",
             # It may end between the journal's line and the first written piece.
             "output": rf"has read all(, {whole}; what is left is to write| and written {part} of {whole}; the rest is "
                       rf"written)"}[kind]
    assert re.fullmatch(f"note: --resume: an earlier run {known}", note), note
    assert (tmp_path / "out").read_bytes() == expected


def test_a_shuffle_with_another_seed_says_that_it_begins_anew(tmp_path):
    (tmp_path / "in").write_text("".join(f"{number:099}\n" for number in range(BYTES // 100)))
    command = shuffle(tmp_path)
    while not killed(command, lambda: tmp_path.glob(".out.*.shuffle/journal"), "ranges"):
        (tmp_path / "out").unlink()
    (note,) = notes(run(*command, "--seed", 1))
    assert note == "note: --resume: an earlier run had other inputs, seed or output options, so all is done anew"


def test_a_training_says_what_an_earlier_run_has_done(tmp_path):
    """A bad line ends each run after the same work."""
    good = "".join(json.dumps({"text": f"word{number % 977} and more"}) + "\n" for number in range(60_000))
    (tmp_path / "a.jsonl").write_text(good)
    (tmp_path / "b.jsonl").write_text(good + "broken\n")
    command = ("bpe", "train", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--vocab-size", 300, "--output",
               tmp_path / "out", "--threads", 1, "--resume", "--checkpoint-every", "64KB")
    none = "note: --resume: there is no earlier run to go on from, so all is done"
    assert notes(run(*command, expect=1)) == [none]
    (note,) = notes(run(*command, expect=1))
    assert re.fullmatch(r"note: --resume: an earlier run has counted the words of 1 of 2 inputs, and of [0-9.]+ [KM]iB "
                        r"of the next one, and made 0 merges; the rest is done now", note), note
    groups = ("bpe", "train", "--group", f"x={tmp_path / 'a.jsonl'}", "--group", f"y={tmp_path / 'b.jsonl'}",
              "--vocab-size", 300, "--output", tmp_path / "grouped", "--threads", 1, "--resume", "--checkpoint-every",
              "64KB")
    assert [note.split("--resume: ")[1][:2] for note in notes(run(*groups, expect=1))] == ["x:", "y:"]
    first, second = notes(run(*groups, expect=1))
    assert "x: an earlier run has counted the words of all inputs" in first
    assert "y: an earlier run has counted the words of 0 of 1 inputs, and of " in second
