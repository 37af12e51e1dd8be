"""`cairn corpus shuffle` from outside: one seed, one output; kills; hostile lines; full disks."""

import collections
import gzip
import hashlib
import json
import lzma
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"

# Runs a command and tells its largest resident size in KiB.
LAUNCHER = """
import os, sys
_, status, usage = os.wait4(os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]), 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def shuffle(*arguments, check=True, **more):
    command = [str(CAIRN), "--format=json", "corpus", "shuffle", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, timeout=300, **more)
    if check:
        assert result.returncode == 0, result.stderr.decode()
    return result


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def lines_of(data, separator=b"\n"):
    """Is the independent oracle: returns the lines of `data`, with a last separator added if it is missing."""
    if not data:
        return []
    return (data[:-1] if data.endswith(separator) else data).split(separator)


def hostile_text(seed, size):
    rng = random.Random(seed)
    lines, total = [], 0
    while total < size:
        length = rng.choice([0, 0, 1, 8, 100, 900]) if rng.random() < 0.999 else rng.randrange(3 << 20)
        lines.append(rng.randbytes(length).replace(b"\n", b"\xff") + rng.choice([b"", b"\r", b"\0"]))
        total += length + 1
    return b"\n".join(lines) + b"end without newline"


def leftovers(directory, *expected):
    return sorted(set(os.listdir(directory)) - set(expected))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    directory = tmp_path_factory.mktemp("text")
    path = directory / "a.txt"
    path.write_bytes(hostile_text(1, 52 << 20))
    with gzip.open(str(path) + ".gz", "wb", compresslevel=1) as file:
        file.write(path.read_bytes())
    subprocess.run(["zstd", "-q", "-1", str(path)], check=True)
    subprocess.run(["xz", "-k", "-0", str(path)], check=True)
    shuffle(path, "--output", directory / "expected", "--seed", 9)
    return path


def test_one_seed_one_output(text, tmp_path):
    expected = digest(text.with_name("expected"))
    data = lines_of(text.read_bytes())
    assert collections.Counter(lines_of(text.with_name("expected").read_bytes())) == collections.Counter(data)
    inputs = [text, text.with_name("a.txt.gz"), text.with_name("a.txt.zst"), text.with_name("a.txt.xz")]
    for source in inputs:
        budgets = (("32MiB", 1), ("40MiB", 4), ("200MiB", 2))
        for memory, threads in budgets if source == text else budgets[1:2]:
            shuffle(source, "--output", tmp_path / "o", "--seed", 9, "--memory", memory, "--threads", threads)
            assert digest(tmp_path / "o") == expected, (source, memory, threads)
    for extra in (["--no-scratch"], ["--resume"], ["--buffered"]):
        shuffle(text, "--output", tmp_path / "o", "--seed", 9, "--memory", "48MiB", *extra)
        assert digest(tmp_path / "o") == expected, extra
    shuffle("-", "--output", tmp_path / "o", "--seed", 9, "--memory", "48MiB", input=text.read_bytes())
    assert digest(tmp_path / "o") == expected
    assert leftovers(tmp_path, "o") == []


def test_killed_at_random_moments_and_resumed(text, tmp_path):
    rng = random.Random(4)
    output, expected = tmp_path / "o", digest(text.with_name("expected"))
    command = [str(CAIRN), "corpus", "shuffle", str(text), "--output", str(output), "--seed", "9", "--memory", "36MiB",
               "--resume", "--checkpoint-interval", "4MiB"]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    duration = time.monotonic() - began
    output.unlink()
    kills = 0
    for _ in range(60):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(rng.uniform(0, duration))
        process.kill()
        _, error = process.communicate()
        # The run may have ended before the signal came, or have just given the output its name.
        assert process.returncode in (0, -signal.SIGKILL), error
        assert process.returncode == -signal.SIGKILL or output.exists()
        kills += process.returncode == -signal.SIGKILL
        if output.exists():
            assert digest(output) == expected
            output.unlink()
        if kills == 12:
            break
    assert kills > 0
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert digest(output) == expected
    assert leftovers(tmp_path, "o") == []


def journals_hold(directory, entry: bytes) -> bool:
    try:
        return any(entry in journal.read_bytes() for journal in directory.glob(".o.*.shuffle/journal"))
    except FileNotFoundError:
        return False  # the shuffle has removed its journal meanwhile, so it is at its end


@pytest.mark.parametrize("gone", ["scratch", "partial"])
def test_resume_without_what_the_journal_promises_begins_anew(text, tmp_path, gone):
    """A run that was done was killed while it tidied up: its output has its name, and its journal is still there."""
    output = tmp_path / "o"
    command = [str(CAIRN), "corpus", "shuffle", str(text), "--output", str(output), "--seed", "9", "--memory", "36MiB",
               "--resume", "--checkpoint-interval", "4MiB"]
    for _ in range(40):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None and not journals_hold(tmp_path, b'"kind":"output"'):
            os.sched_yield()
        process.kill()
        _, error = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), error
        found = list(tmp_path.glob(".o.*.shuffle/scratch" if gone == "scratch" else ".o.*.partial.*"))
        if not output.exists() and found:
            break
        output.unlink(missing_ok=True)
    else:
        pytest.fail("no run was killed in its second pass")
    for path in found:
        path.unlink()
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert digest(output) == digest(text.with_name("expected"))
    assert leftovers(tmp_path, "o") == []


def test_sigterm_leaves_nothing(text, tmp_path):
    process = subprocess.Popen([str(CAIRN), "corpus", "shuffle", "-", "--output", str(tmp_path / "o")],
                               stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(b"a line\n" * 1000)
    process.stdin.flush()
    deadline = time.monotonic() + 30
    while not os.listdir(tmp_path) and time.monotonic() < deadline:
        os.sched_yield()
    process.terminate()
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    assert b"INTERRUPTED" in error
    assert leftovers(tmp_path) == []


def test_line_larger_than_the_budget(tmp_path):
    big = random.Random(2).randbytes(44 << 20).replace(b"\n", b".")
    (tmp_path / "in").write_bytes(b"first\n" + big + b"\n\nlast")
    for extra in ([], ["--no-scratch"], ["--compress", "gz"]):
        shuffle(tmp_path / "in", "--output", tmp_path / "o", "--memory", "32MiB", *extra)
        found = (tmp_path / "o").read_bytes()
        found = gzip.decompress(found) if extra == ["--compress", "gz"] else found
        assert sorted(lines_of(found)) == sorted([b"first", big, b"", b"last"])


@pytest.mark.parametrize("extra", [[], ["--no-scratch"]])
def test_resident_size_with_eight_byte_lines(tmp_path, extra):
    (tmp_path / "in").write_bytes(b"".join(b"%07x\n" % i for i in range(5_000_000)))
    command = [
        str(CAIRN),
        "corpus",
        "shuffle",
        str(tmp_path / "in"),
        "--output",
        str(tmp_path / "o"),
        "--memory",
        "32MiB",
    ]
    # A small process starts it: a child begins with the peak of the process that forked it, and this one is large.
    launcher = [sys.executable, "-S", "-c", LAUNCHER]
    result = subprocess.run(
        [*launcher, *command, *extra], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True
    )
    assert int(result.stderr.split()[-1]) <= (32 + 16) * 1024
    with open(tmp_path / "o", "rb") as output:
        assert sum(1 for _ in output) == 5_000_000


def test_files_patterns_directories_and_empty_files(tmp_path):
    source = tmp_path / "in"
    (source / "sub").mkdir(parents=True)
    expected = []
    for i in range(300):
        content = b"" if i % 7 == 0 else b"".join(b"%d-%d\n" % (i, j) for j in range(i % 5)) + b"%d-end" % i
        (source / ("sub" if i % 2 else ".") / f"f{i:03}.txt").write_bytes(content)
        expected += lines_of(content)
    (source / ".hidden").write_bytes(b"not this\n")
    shuffle(source, "--output", tmp_path / "o")
    assert sorted(lines_of((tmp_path / "o").read_bytes())) == sorted(expected)
    shuffle(source / "f*.txt", source / "sub", "--output", tmp_path / "p")
    assert sorted(lines_of((tmp_path / "p").read_bytes())) == sorted(expected)
    result = shuffle(source / "*.none", "--output", tmp_path / "q", check=False)
    assert result.returncode == 1 and b"INPUT_UNREADABLE" in result.stderr


def test_splits(tmp_path):
    (tmp_path / "in").write_bytes(b"".join(b"line %d\n" % i for i in range(1000)))
    shuffle(tmp_path / "in", "--output", tmp_path / "whole", "--seed", 3)
    whole = (tmp_path / "whole").read_bytes()
    for name, arguments in (("l", ["--split-lines", 300]), ("b", ["--split-bytes", 2048]), ("f", ["--split-files", 7])):
        report = json.loads(
            shuffle(tmp_path / "in", "--output", tmp_path / f"{name}.txt", "--seed", 3, *arguments).stdout
        )
        parts = [pathlib.Path(path).read_bytes() for path in report["outputs"]]
        assert b"".join(parts) == whole
        counts = [part.count(b"\n") for part in parts]
        if name == "l":
            assert counts == [300, 300, 300, 100]
        if name == "b":
            assert all(len(part) <= 2048 for part in parts) and len(parts) < len(whole) / 2048 + 2
        if name == "f":
            assert len(parts) == 7 and max(counts) - min(counts) <= 1
        assert report["outputs"][0].endswith(f"{name}-00000.txt")


def test_the_ending_of_the_output_decides(tmp_path):
    text = b"".join(b"line %d\n" % i for i in range(1000))
    (tmp_path / "in").write_bytes(text)
    shuffle(tmp_path / "in", "--output", tmp_path / "plain.jsonl")
    expected = (tmp_path / "plain.jsonl").read_bytes()
    for name, more, expand in (("o.jsonl.gz", [], ["gzip", "-dc"]), ("o.jsonl.zst", [], ["zstd", "-dcq"]),
                               ("o.gz", ["--compress", "gz"], ["gzip", "-dc"]),
                               ("o", ["--compress", "zst"], ["zstd", "-dcq"]),
                               ("p.jsonl.gz", ["--split-files", 3], ["gzip", "-dc"])):
        report = json.loads(shuffle(tmp_path / "in", "--output", tmp_path / name, *more).stdout)
        found = [subprocess.run(expand, input=pathlib.Path(path).read_bytes(), capture_output=True, check=True).stdout
                 for path in report["outputs"]]
        assert b"".join(found) == expected, name
    # What it has written it reads again by its name.
    shuffle(tmp_path / "p-*.jsonl.gz", "--output", tmp_path / "again.jsonl")
    assert sorted(lines_of((tmp_path / "again.jsonl").read_bytes())) == sorted(lines_of(text))
    assert gzip.decompress(shuffle(tmp_path / "in", "--output", "-", "--compress", "gz").stdout) == expected


@pytest.mark.parametrize("engine", [(), ("--engine", "ray", "--engine-address", "10.0.0.5:6379")])
@pytest.mark.parametrize("name, more, message, advice", [
    ("o.jsonl.gz", ["--compress", "zst"], "--compress zst and --output o.jsonl.gz disagree", "o.jsonl.zst"),
    ("o.jsonl", ["--compress", "zst"], "--compress zst and --output o.jsonl disagree", "o.jsonl.zst"),
    ("o.jsonl", ["--compress", "gz", "--split-files", "2"], "--output o.jsonl disagree", "o.jsonl.gz"),
    ("o.jsonl.xz", [], "lines are not written as .xz", ".gz or .zst"),
    ("o.parquet", [], "lines are not written as .parquet", "as .jsonl"),
    ("o.arrow", ["--compress", "gz"], "lines are not written as .arrow", "as .jsonl"),
    ("o.tar.gz", [], "lines are not written as a tar", "as .jsonl")])
def test_an_ending_that_would_say_another_format_is_refused(tmp_path, name, more, message, advice, engine):
    (tmp_path / "in").write_bytes(b"1\n2\n")
    error = shuffle("in", "--output", name, *more, *engine, check=False, cwd=tmp_path)
    assert error.returncode == 2 and os.listdir(tmp_path) == ["in"], error.stderr
    told = json.loads(error.stderr)["error"]
    assert told["reason"] == "BAD_REQUEST" and message in told["message"], told
    assert advice in told["metadata"]["next"], told


@pytest.mark.parametrize("engine", [(), ("--engine", "ray", "--engine-address", "10.0.0.5:6379")])
def test_an_output_among_the_inputs_is_refused(tmp_path, engine):
    (tmp_path / "big").mkdir()
    for name in ("a.jsonl", "b-00001.jsonl"):
        (tmp_path / "big" / name).write_bytes(b"1\n2\n")
    for more in (["big/a.jsonl"], ["big/b.jsonl", "--split-files", 4], ["big/b.jsonl", "--split-lines", 1]):
        error = shuffle("big/", "--output", *more, *engine, check=False, cwd=tmp_path)
        assert error.returncode == 1, error.stderr
        assert b"BAD_REQUEST" in error.stderr and b"is among the inputs" in error.stderr, error.stderr
        assert b"Give --output another name" in error.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "big").iterdir()} == {
        "a.jsonl": b"1\n2\n", "b-00001.jsonl": b"1\n2\n"}


@pytest.mark.parametrize("ending", [".gz", ".zst", ".zstd", ".xz", ".GZ"])
def test_a_plain_file_with_the_name_of_a_compressed_one_is_told_so(tmp_path, ending):
    (tmp_path / f"a.jsonl{ending}").write_bytes(b'{"text": "plain"}\n')
    error = shuffle(tmp_path / f"a.jsonl{ending}", "--output", tmp_path / "o", check=False)
    told = json.loads(error.stderr)["error"]
    assert error.returncode == 1 and told["reason"] == "INPUT_UNREADABLE", told
    assert f"a.jsonl{ending} is not compressed" in told["message"], told
    assert f"Rename it without {ending} " in told["metadata"]["next"], told


def test_header_and_separator(tmp_path):
    (tmp_path / "a").write_bytes(b"id,text\n1,a\n2,b")
    (tmp_path / "b").write_bytes(b"id,text\n3,c\n")
    shuffle(tmp_path / "a", tmp_path / "b", "--output", tmp_path / "o", "--header", 1)
    found = lines_of((tmp_path / "o").read_bytes())
    assert found[0] == b"id,text" and sorted(found[1:]) == [b"1,a", b"2,b", b"3,c"]
    (tmp_path / "c").write_bytes(b"other\n4,d\n")
    result = shuffle(tmp_path / "a", tmp_path / "c", "--output", tmp_path / "p", "--header", 1, check=False)
    assert result.returncode == 1 and not (tmp_path / "p").exists()
    (tmp_path / "z").write_bytes(b"x\ny\0\0z")
    shuffle(tmp_path / "z", "--output", tmp_path / "o", "--separator", "\\0")
    assert sorted(lines_of((tmp_path / "o").read_bytes(), b"\0")) == [b"", b"x\ny", b"z"]


def test_damaged_input_and_existing_output(tmp_path):
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(random.Random(1).randbytes(100_000))
    whole = (tmp_path / "a.gz").read_bytes()
    (tmp_path / "o").write_bytes(b"older\n")
    for damaged in (whole[:-10], whole[:5000] + b"\0" * 9 + whole[5009:], whole + b"garbage", b"text"):
        (tmp_path / "a.gz").write_bytes(damaged)
        result = shuffle(tmp_path / "a.gz", "--output", tmp_path / "o", check=False)
        assert result.returncode == 1 and b"a.gz" in result.stderr, result.stderr
        assert (tmp_path / "o").read_bytes() == b"older\n"
    (tmp_path / "a.gz").write_bytes(whole + whole + b"\0" * 512)
    shuffle(tmp_path / "a.gz", "--output", tmp_path / "o")
    assert leftovers(tmp_path, "a.gz", "o") == []


def test_damaged_xz(tmp_path):
    data = random.Random(1).randbytes(100_000)
    whole = lzma.compress(data)
    for damaged in (whole[:-10], whole[:12], whole[:5000] + b"\0" * 9 + whole[5009:], whole + b"garbage",
                    whole + b"\0" * 3, b"text", whole[:9] + b"\x0f" + whole[10:]):
        (tmp_path / "a.xz").write_bytes(damaged)
        result = shuffle(tmp_path / "a.xz", "--output", tmp_path / "o", check=False)
        assert result.returncode == 1 and b"a.xz" in result.stderr, result.stderr
    # Its dictionary needs more than the budget leaves.
    (tmp_path / "a.xz").write_bytes(lzma.compress(data, preset=9))
    result = shuffle(tmp_path / "a.xz", "--output", tmp_path / "o", "--memory", "40MiB", check=False)
    assert result.returncode == 1 and b"MEMORY_LIMIT" in result.stderr and b"a.xz" in result.stderr, result.stderr
    shuffle(tmp_path / "a.xz", "--output", tmp_path / "o")
    assert collections.Counter(lines_of((tmp_path / "o").read_bytes())) == collections.Counter(lines_of(data))
    (tmp_path / "a.xz").write_bytes(b"")
    shuffle(tmp_path / "a.xz", "--output", tmp_path / "o")
    assert (tmp_path / "o").read_bytes() == b"" and leftovers(tmp_path, "a.xz", "o") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
@pytest.mark.parametrize("which", ["temp", "output"])
def test_full_disk(tmp_path, which):
    small, roomy = tmp_path / "small", tmp_path / "roomy"
    small.mkdir()
    roomy.mkdir()
    (roomy / "in").write_bytes(b"".join(b"%0500d\n" % i for i in range(160_000)))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", small], capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        temp, output = (small, roomy) if which == "temp" else (roomy, small)
        result = shuffle(roomy / "in", "--output", output / "o", "--temp-dir", temp, "--memory", "32MiB", check=False)
        assert result.returncode == 1 and b"NO_SPACE" in result.stderr, result.stderr
        assert leftovers(small) == [] and leftovers(roomy, "in") == []
    finally:
        subprocess.run(["umount", small], check=True)
