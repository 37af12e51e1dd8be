"""`cairn corpus preprocess --skip-bad-lines`: the output is that of the good lines, and each bad one is described.

Which lines are good is what Python's json module says.
"""
import json
import lzma
import os
import pathlib
import random
import re
import subprocess
import sys
import zlib

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
# Runs a command and tells its largest resident size in KiB. (Of a child of this process that size would be this one's.)
LAUNCHER = """
import os, sys
_, status, usage = os.wait4(os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]), 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""
NUMBERS = 60000
KEYS = ("text", "title")
LONGEST = 3000


def command(source, prefix, *more):
    """Texts are numbers, so that every token is known."""
    return [str(CAIRN), "corpus", "preprocess", "--input", str(source), "--output-prefix", str(prefix),
            "--tokenizer-type", "NullTokenizer", "--vocab-size", str(NUMBERS), *map(str, more)]


def preprocess(source, prefix, *more, expect=0):
    done = subprocess.run(command(source, prefix, *more), capture_output=True, text=True, timeout=120)
    assert done.returncode == expect, done.stderr
    return done


def pairs(prefix, keys=KEYS):
    return [pathlib.Path(f"{prefix}_{key}_document.{ending}").read_bytes() for key in keys for ending in ("bin", "idx")]


def described(prefix):
    return [json.loads(line) for line in pathlib.Path(f"{prefix}_bad_lines.log").read_text().splitlines()]


def is_good(line):
    if len(line) > LONGEST:
        return False
    try:
        record = json.loads(line.decode())
        texts = [record[key] for key in KEYS]
    except (ValueError, KeyError, TypeError):
        return False
    texts = [text for value in texts for text in (value if isinstance(value, list) else [value])]
    return all(isinstance(text, str) and re.fullmatch("[0-9]+( [0-9]+)*", text)
               and all(int(number) < NUMBERS for number in text.split(" ")) for text in texts)


def some_line(rng):
    def text():
        return " ".join(str(rng.randrange(NUMBERS)) for _ in range(rng.randrange(1, 12)))

    record = {"text": text(), "title": [text(), text()] if rng.random() < 0.2 else text(), "id": rng.random()}
    line = json.dumps(record).encode()
    return rng.choice([
        line, line, line, line,
        lambda: json.dumps(record | {"title": text() + " x"}).encode(),  # the first key is good already
        lambda: json.dumps(record | {"title": [text(), str(NUMBERS)]}).encode(),
        lambda: json.dumps(record | {"text": None}).encode(),
        lambda: line[:rng.randrange(len(line))],
        lambda: line[:20] + bytes([rng.randrange(256)]) + line[20:],
        lambda: b"",
        lambda: json.dumps(record | {"more": "x" * rng.randrange(2 * LONGEST)}).encode(),
        lambda: json.dumps(record | {"more": "x" * 5 * rng.choice([1] * 30 + [300_000])}).encode(),
    ])


@pytest.mark.parametrize("seed", range(6))
def test_good_lines_are_kept_and_bad_ones_described(tmp_path, seed):
    rng = random.Random(seed)
    lines = []
    for _ in range(4000):
        line = some_line(rng)
        line = line() if callable(line) else line
        lines.extend(re.split(rb"\r\n|\r|\n", line))  # a changed byte may have cut it
    ends = [rng.choice([b"\n", b"\n", b"\r\n", b"\r"]) for _ in lines]
    for i, line in enumerate(lines[1:]):
        if ends[i] == b"\r" and line == b"":
            ends[i] = b"\n"  # else this end and that of the blank line could be one
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"".join(line + end for line, end in zip(lines, ends)))
    good = [line for line in lines if is_good(line)]
    bad = [number for number, line in enumerate(lines, 1) if not is_good(line)]
    assert len(good) > 1000 and len(bad) > 1000, (len(good), len(bad), f"seed {seed}")
    (tmp_path / "good.jsonl").write_bytes(b"\n".join(good) + b"\n")
    flags = ["--json-keys", *KEYS, "--max-line", LONGEST, "--workers", 3, "--partitions", rng.choice([1, 3])]
    preprocess(tmp_path / "good.jsonl", tmp_path / "good", *flags)
    done = preprocess(source, tmp_path / "out", *flags, "--skip-bad-lines", "--format=json")
    assert pairs(tmp_path / "out") == pairs(tmp_path / "good"), f"seed {seed}"
    found = described(tmp_path / "out")
    assert [entry["line"] for entry in found] == bad, f"seed {seed}"
    assert all(entry["file"] == str(source) and entry["cause"] for entry in found)
    report = json.loads(done.stdout)
    assert (report["documents"], report["bad_lines"]) == (len(good), len(bad))
    assert report["bad_lines_report"] == f"{tmp_path}/out_bad_lines.log"
    first = preprocess(source, tmp_path / "none", *flags, expect=1)
    assert f"BAD_JSON_LINE: {source}: line {bad[0]}" in first.stderr, first.stderr
    assert not list(tmp_path.glob("none*")) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("length", [5_000_000, (5 << 20) - 1, 5 << 20])
def test_a_dropped_line_ends_with_all_of_its_end(tmp_path, length, end):
    """Also where one piece of 1 MiB that is read ends between CR and LF."""
    (tmp_path / "in.jsonl").write_bytes(b"x" * length + end + b'{"text": "7"}' + end + b"{}" + end)
    preprocess(tmp_path / "in.jsonl", tmp_path / "out", "--skip-bad-lines", "--max-line", 3000)
    assert [entry["line"] for entry in described(tmp_path / "out")] == [1, 3]
    assert (tmp_path / "out_text_document.bin").read_bytes() == b"\7\0"


def test_causes_files_and_an_empty_report(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "1"}\n{"text": 7}\n')
    (tmp_path / "b\udcff.jsonl").write_text('\n{"title": "1"}\n{"text": "2"}')
    preprocess(tmp_path / "*.jsonl", tmp_path / "out", "--skip-bad-lines")
    assert described(tmp_path / "out") == [
        {"file": f"{tmp_path}/a.jsonl", "line": 2,
         "cause": "column 10: the value of 'text' must be a text or a list of texts"},
        {"file": f"{tmp_path}/b\ufffd.jsonl", "line": 1, "cause": "the line is blank; each must hold one JSON object"},
        {"file": f"{tmp_path}/b\ufffd.jsonl", "line": 2, "cause": "the object has no key 'text'"}]
    (tmp_path / "b\udcff.jsonl").unlink()
    (tmp_path / "a.jsonl").write_text('{"text": "1"}\n')
    done = preprocess(tmp_path / "*.jsonl", tmp_path / "out", "--skip-bad-lines")
    assert described(tmp_path / "out") == [] and "0 bad lines" in done.stdout
    assert f"note: replaces {tmp_path}/out_text_document.bin" in done.stderr and "out_bad_lines.log" in done.stderr


def test_a_damaged_file_is_no_bad_line(tmp_path):
    whole = lzma.compress(b'{"text": "1"}\nno JSON\n' * 2000)
    (tmp_path / "in.jsonl.xz").write_bytes(whole[:-20])
    done = preprocess(tmp_path / "in.jsonl.xz", tmp_path / "out", "--skip-bad-lines", expect=1)
    assert "INPUT_UNREADABLE" in done.stderr and "it ends inside an xz stream" in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl.xz"]


def write_compressed(path, pieces):
    """Compresses the pieces while they come, because they are large."""
    if path.suffix == ".zst":
        process = subprocess.Popen(["zstd", "-q", "-1", "-o", path], stdin=subprocess.PIPE)
        with process.stdin as into:
            for piece in pieces:
                into.write(piece)
        assert process.wait(60) == 0
        return
    worker = zlib.compressobj(1, wbits=31) if path.suffix == ".gz" else lzma.LZMACompressor(preset=0)
    path.write_bytes(b"".join([worker.compress(piece) for piece in pieces] + [worker.flush()]))


@pytest.mark.parametrize("ending", ["gz", "xz", "zst"])
def test_a_bomb_is_one_long_line_in_little_memory(tmp_path, ending):
    def pieces():
        yield b'{"text": "1"}\n{"text": "'
        for _ in range(400):
            yield b"1 " * 500_000
        yield b'"}\n{"text": "2 3"}\n'

    source = tmp_path / f"in.jsonl.{ending}"
    write_compressed(source, pieces())
    assert source.stat().st_size < 4_000_000
    done = subprocess.run([sys.executable, "-c", LAUNCHER, *command(source, tmp_path / "out", "--workers", 2,
                                                                    "--skip-bad-lines")],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-1]) < 250 << 10, "KiB"
    cause = "the line is longer than 32.0 MiB"
    assert described(tmp_path / "out") == [{"file": str(source), "line": 2, "cause": cause}]
    assert pathlib.Path(f"{tmp_path}/out_text_document.bin").read_bytes() == b"\1\0\2\0\3\0"


@pytest.mark.parametrize("threads", [1, 4])
def test_bpe_train_leaves_bad_lines_out(tmp_path, threads):
    """The tokenizer is that of the good lines, and the report has the bad ones in their order."""
    rng = random.Random(threads)
    lines, bad = [], []
    for number in range(1, 60_001):
        good = json.dumps({"text": " ".join(rng.choice(["low", "lower", "newest", "wide"]) for _ in range(12))})
        line = rng.choice([good] * 8 + [good[:-9], '{"title": "x"}', '{"text": 7}', "[]", "x"])
        lines.append(line)
        if line != good:
            bad.append(number)
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "good.jsonl").write_text("".join(line + "\n" for i, line in enumerate(lines, 1) if i not in set(bad)))

    def train(source, out, *more, expect=0):
        done = subprocess.run([str(CAIRN), "corpus", "bpe", "train", source, "--vocab-size", "300", "--threads",
                               str(threads), "--output", out, *more], capture_output=True, text=True, timeout=120)
        assert done.returncode == expect, done.stderr
        return done

    first = train(tmp_path / "in.jsonl", tmp_path / "none", expect=1)
    assert "BAD_JSON_LINE" in first.stderr and not list(tmp_path.glob("none/*"))
    train(tmp_path / "good.jsonl", tmp_path / "good")
    done = train(tmp_path / "in.jsonl", tmp_path / "out", "--skip-bad-lines", "--format=json")
    report = json.loads(done.stdout)
    assert (report["bad_lines"], report["bad_lines_report"]) == (len(bad), f"{tmp_path}/out/bad_lines.log")
    told = [json.loads(line) for line in (tmp_path / "out/bad_lines.log").read_text().splitlines()]
    assert [entry["line"] for entry in told] == bad and {entry["file"] for entry in told} == {f"{tmp_path}/in.jsonl"}
    causes = [entry["cause"].split(":")[0] for entry in told]
    assert set(causes) == {"not JSON", "has no key 'text'", "the value of 'text' is no string", "not a JSON object"}
    for name in ("tokenizer.json", "merges.txt", "vocab.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "good" / name).read_bytes()


def test_bpe_train_refuses_what_is_no_bad_line(tmp_path):
    def train(source, *more):
        done = subprocess.run([str(CAIRN), "corpus", "bpe", "train", source, "--vocab-size", "300", "--output",
                               tmp_path / "out", "--skip-bad-lines", *more], capture_output=True, text=True,
                              timeout=120)
        assert done.returncode == 1 and not list(tmp_path.glob("out/*")), done.stderr
        return done.stderr

    (tmp_path / "in.jsonl.xz").write_bytes(lzma.compress(b'{"text": "1"}\nno JSON\n' * 2000)[:-20])
    assert "INPUT_UNREADABLE" in train(tmp_path / "in.jsonl.xz")
    (tmp_path / "in.txt").write_text("text\n")
    assert "BAD_REQUEST: --skip-bad-lines is for JSON lines" in train(tmp_path / "in.txt")
    (tmp_path / "in.jsonl").write_text("x\n")
    assert "BAD_REQUEST" in train(tmp_path / "in.jsonl", "--resume")
