"""Parquet and Arrow files as inputs of `cairn corpus`: pyarrow writes them, and they give what the same texts give as
JSON lines."""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.feather
import pyarrow.parquet as pq

pytestmark = pytest.mark.interop

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
NUMBERS = 60000


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    monkeypatch.setenv("CAIRN_PYTHON", sys.executable)


def corpus(*arguments, expect=0, **more):
    done = subprocess.run([str(CAIRN), "corpus", *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          **more)
    assert done.returncode == expect, done.stderr
    return done


def preprocess(source, prefix, *more, **options):
    """Texts are numbers, so that every token is known."""
    return corpus("preprocess", "--input", source, "--output-prefix", prefix, "--tokenizer-type", "NullTokenizer",
                  "--vocab-size", NUMBERS, *more, **options)


def content(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def write_parquet(table, path, **options):
    pq.write_table(table, path, **({"row_group_size": 700} | options))


def write_stream(table, path):
    with pa.ipc.new_stream(path, table.schema) as out:
        out.write_table(table, max_chunksize=700)


def write_file(table, path, **options):
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table, max_chunksize=700)


WRITERS = {
    "zstd.parquet": lambda table, path: write_parquet(table, path, compression="zstd"),
    "snappy.parquet": lambda table, path: write_parquet(table, path, compression="snappy", use_dictionary=False),
    "v2.parquet": lambda table, path: write_parquet(table, path, compression="brotli", data_page_version="2.0"),
    "one.parquet": lambda table, path: write_parquet(table, path, row_group_size=10**6, data_page_size=2000),
    "file.arrow": write_file,
    "lz4.arrow": lambda table, path: write_file(table, path, compression="lz4"),
    "stream.arrow": write_stream,
    "a.feather": lambda table, path: pyarrow.feather.write_feather(table, path, chunksize=900),
}


def write_lines(table, path):
    with open(path, "w") as out:
        for row in table.to_pylist():
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


def texts(count, seed=1):
    rng = random.Random(seed)
    alphabet = "abc  de\"\\\n\r\t\0\x1f\x7f\u2028äß漢🙂"
    return ["".join(rng.choices(alphabet, k=rng.randrange(200))) for _ in range(count)]


@pytest.mark.parametrize("kind", WRITERS)
def test_texts_give_what_they_give_as_json_lines(tmp_path, kind):
    table = pa.table({"id": list(range(3000)), "text": texts(3000), "score": [i / 7 for i in range(3000)]})
    write_lines(table, tmp_path / "lines.jsonl")
    source = tmp_path / kind
    WRITERS[kind](table, source)
    outputs = []
    for given in (tmp_path / "lines.jsonl", source):
        out = tmp_path / f"out-{given.name}"
        out.mkdir()
        corpus("bpe", "train", given, "--vocab-size", 500, "--output", out / "tokenizer")
        corpus("shuffle", given, "--output", out / "shuffled", "--seed", 5)
        corpus("shuffle", given, "--output", out / "reread", "--seed", 5, "--memory", "32MiB", "--no-scratch")
        corpus("preprocess", "--input", given, "--output-prefix", out / "data", "--tokenizer-type",
               "HuggingFaceTokenizer", "--tokenizer-model", out / "tokenizer")
        outputs.append(content(out / "tokenizer"))
        (out / "tokenizer").rename(tmp_path / f"tokenizer-{given.name}")
        outputs[-1] |= content(out)
    assert len(outputs[0]) > 5 and outputs[0] == outputs[1]


@pytest.mark.parametrize("kind", ["zstd.parquet", "file.arrow", "stream.arrow"])
def test_columns_are_keys(tmp_path, kind):
    numbers = [str(i) for i in range(2000)]
    table = pa.table({"title": numbers[::-1], "time": [0.5] * 2000,
                      "text": pa.array([[n, n] for n in numbers], pa.large_list(pa.large_string())),
                      "a.b": pa.array(numbers).dictionary_encode()})
    WRITERS[kind](table, tmp_path / kind)
    keys = ["text", "title", "a.b"]
    (tmp_path / "ours").mkdir()
    (tmp_path / "lines").mkdir()
    preprocess(tmp_path / kind, tmp_path / "ours/p", "--json-keys", *keys)
    preprocess(write_lines(table, tmp_path / "lines.jsonl"), tmp_path / "lines/p", "--json-keys", *keys)
    assert len(content(tmp_path / "ours")) == 6 and content(tmp_path / "ours") == content(tmp_path / "lines")
    corpus("shuffle", tmp_path / kind, "--column", "title", "time", "--output", tmp_path / "some")
    corpus("shuffle", write_lines(table.select(["title", "time"]), tmp_path / "two.jsonl"), "--output",
           tmp_path / "expected")
    assert (tmp_path / "some").read_bytes() == (tmp_path / "expected").read_bytes()


def test_many_readers_keep_the_order(tmp_path):
    """A file of more than 64 MiB has two readers, which take turns."""
    rng = random.Random(3)
    rows = [" ".join(str(rng.randrange(10000, NUMBERS)) for _ in range(rng.randrange(1, 500))) for _ in range(48_000)]
    table = pa.table({"text": rows})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=7_001, compression="none", use_dictionary=False)
    assert (tmp_path / "in.parquet").stat().st_size > 64 << 20
    outputs = []
    for workers in (1, 8):
        prefix = tmp_path / f"w{workers}"
        process = subprocess.Popen([CAIRN, "corpus", "preprocess", "--input", tmp_path / "in.parquet",
                                    "--output-prefix", prefix, "--tokenizer-type", "NullTokenizer", "--vocab-size",
                                    str(NUMBERS), "--workers", str(workers)], stdout=subprocess.DEVNULL)
        most = 0
        while process.poll() is None:
            most = max(most, len(children(process)))
            time.sleep(0.01)
        assert process.returncode == 0 and most == min(workers, 2)
        outputs.append([pathlib.Path(f"{prefix}_text_document.{ending}").read_bytes() for ending in ("bin", "idx")])
    want = b"".join(int(n).to_bytes(2, "little") for row in rows for n in row.split(" "))
    assert outputs[0][0] == want and outputs[1] == outputs[0]


def children(process):
    found = []
    for thread in pathlib.Path(f"/proc/{process.pid}/task").glob("*"):
        try:
            found += map(int, (thread / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            pass  # the thread has ended
    return found


def test_bad_rows_are_bad_lines(tmp_path):
    values = ["1", None, "x", "2", "3"] * 500
    texts = pa.array(values)
    texts = pa.StringArray.from_buffers(5, *[pa.py_buffer(b) for b in (
        b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\6\0\0\0", b"1\xff2312")])  # the second is no UTF-8
    table = pa.table({"text": pa.chunked_array([texts, pa.array(values)])})
    for kind, write in (("in.parquet", write_parquet), ("in.arrow", write_file)):
        write(table, tmp_path / kind)
        first = preprocess(tmp_path / kind, tmp_path / "none", expect=1)
        assert f"BAD_JSON_LINE: {tmp_path / kind}: line 2: the line is not UTF-8" in first.stderr, first.stderr
        preprocess(tmp_path / kind, tmp_path / "out", "--skip-bad-lines")
        told = [json.loads(line) for line in (tmp_path / "out_bad_lines.log").read_text().splitlines()]
        bad = [i for i, value in enumerate(values, 6) if value in (None, "x")]
        assert [entry["line"] for entry in told] == [2] + bad
        want = [1, 2, 3, 12] + [int(value) for value in values if value not in (None, "x")]
        assert (tmp_path / "out_text_document.bin").read_bytes() == b"".join(n.to_bytes(2, "little") for n in want)


def test_tables_without_rows_or_groups(tmp_path):
    empty = pa.table({"text": pa.array([], pa.string())})
    for kind in WRITERS:
        WRITERS[kind](empty, tmp_path / kind)
        preprocess(tmp_path / kind, tmp_path / "out")
        assert (tmp_path / "out_text_document.bin").read_bytes() == b""


def test_what_is_refused_is_named(tmp_path):
    table = pa.table({"text": ["1"], "at": pa.array([0], pa.timestamp("us")), "number": [7]})
    source = tmp_path / "in.parquet"
    pq.write_table(table, source)
    done = preprocess(source, tmp_path / "out", "--json-keys", "body", expect=1)
    assert f"BAD_REQUEST: {source}: there is no column 'body'; the columns are text, at, number" in done.stderr
    done = corpus("shuffle", source, "--output", tmp_path / "out", expect=1)
    assert f"UNSUPPORTED: {source}: column 'at' has the type timestamp[us]" in done.stderr, done.stderr
    done = preprocess(source, tmp_path / "out", "--json-keys", "number", expect=1)
    assert f"BAD_JSON_LINE: {source}: line 1: column 12: the value of 'number' must be a text" in done.stderr
    os.mkfifo(tmp_path / "pipe.parquet")
    done = preprocess(tmp_path / "pipe.parquet", tmp_path / "out", expect=1)
    assert "INPUT_UNREADABLE" in done.stderr and "no regular file" in done.stderr, done.stderr
    assert not list(tmp_path.glob("out*")) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("kind", ["zstd.parquet", "file.arrow", "lz4.arrow", "stream.arrow"])
def test_damaged_files_end_the_run_or_change_a_text(tmp_path, kind):
    """No damage may hang, crash or silently shorten the output. (The formats have no checksums over texts.)"""
    rng = random.Random(7)
    table = pa.table({"text": [str(rng.randrange(NUMBERS)) for _ in range(2000)]})
    WRITERS[kind](table, tmp_path / "whole.arrow")
    whole = (tmp_path / "whole.arrow").read_bytes()
    damaged = [b"", b"PAR1", whole[:4], whole[:-1], whole[:len(whole) // 2], b'{"text": "1"}\n', whole[8:]]
    for _ in range(6):
        at = rng.randrange(len(whole))
        damaged.append(whole[:at] + rng.randbytes(40) + whole[at + 40:])
    refused = 0
    for i, data in enumerate(damaged):
        source = tmp_path / f"in{i}.{'parquet' if i % 2 else 'arrow'}"
        source.write_bytes(data)
        done = subprocess.run([CAIRN, "corpus", "shuffle", source, "--output", tmp_path / "out"], capture_output=True,
                              text=True, timeout=60)
        if done.returncode == 0:
            assert (tmp_path / "out").read_bytes().count(b"\n") == 2000, i
            continue
        refused += 1
        assert done.returncode == 1 and source.name in done.stderr, (i, done.stderr)
        assert any(word in done.stderr for word in ("INPUT_UNREADABLE", "MEMORY_LIMIT", "column")), done.stderr
        assert "Traceback" not in done.stderr, done.stderr
    assert refused >= 7


def test_a_bomb_is_refused(tmp_path):
    """A dictionary has one text of 4 MB, which stands in each of 2,000 rows."""
    table = pa.table({"text": pa.DictionaryArray.from_arrays([0] * 2000, ["1 " * 2_000_000])})
    pq.write_table(table, tmp_path / "in.parquet", compression="zstd")
    assert (tmp_path / "in.parquet").stat().st_size < 100_000
    done = preprocess(tmp_path / "in.parquet", tmp_path / "out", expect=1)
    assert f"MEMORY_LIMIT: {tmp_path}/in.parquet: a batch of its rows needs more than 2 GiB" in done.stderr, done.stderr
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_reader_ends_the_run_by_its_name(tmp_path, how):
    write_parquet(pa.table({"text": ["1"] * 3000}), tmp_path / "in.parquet")
    process = run_until_it_reads(tmp_path)
    (reader,) = children(process)
    process.send_signal(signal.SIGSTOP)  # so that the reader is not done before
    os.kill(reader, how)
    process.send_signal(signal.SIGCONT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"the reader of {tmp_path}/in.parquet" in error, error
    assert f"process {reader} was ended by signal {int(how)}" in error, error
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_an_interrupted_run_leaves_no_reader(tmp_path):
    write_parquet(pa.table({"text": ["1"] * 3000}), tmp_path / "in.parquet")
    process = run_until_it_reads(tmp_path)
    (reader,) = children(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130, process.stderr.read()
    assert not pathlib.Path(f"/proc/{reader}").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def run_until_it_reads(tmp_path):
    process = subprocess.Popen([CAIRN, "corpus", "preprocess", "--input", tmp_path / "in.parquet", "--output-prefix",
                                tmp_path / "out", "--tokenizer-type", "NullTokenizer", "--vocab-size", "9"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not children(process):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.001)
    return process


def test_what_is_missing_is_told(tmp_path, monkeypatch):
    write_parquet(pa.table({"text": ["1"]}), tmp_path / "in.parquet")
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    bare.chmod(0o755)
    monkeypatch.setenv("CAIRN_PYTHON", str(bare))
    done = preprocess(tmp_path / "in.parquet", tmp_path / "out", expect=1)
    assert "UNSUPPORTED" in done.stderr and "cannot load pyarrow" in done.stderr, done.stderr
    assert "-m pip install pyarrow" in done.stderr and "CAIRN_PYTHON" in done.stderr
    monkeypatch.setenv("CAIRN_PYTHON", str(tmp_path / "none"))
    done = preprocess(tmp_path / "in.parquet", tmp_path / "out", expect=1)
    assert "UNSUPPORTED" in done.stderr and f"{tmp_path}/none" in done.stderr, done.stderr
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho some reason >&2\nexit 3\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CAIRN_PYTHON", str(failing))
    done = preprocess(tmp_path / "in.parquet", tmp_path / "out", expect=1)
    assert "has ended with status 3: some reason" in done.stderr, done.stderr
    assert not list(tmp_path.glob("out*"))


def test_modules_of_the_working_directory_are_not_loaded(tmp_path):
    write_parquet(pa.table({"text": ["1"]}), tmp_path / "in.parquet")
    for name in ("json", "struct", "pyarrow", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('loaded')\n")
    preprocess(tmp_path / "in.parquet", tmp_path / "out", cwd=tmp_path)
    assert (tmp_path / "out_text_document.bin").read_bytes() == b"\1\0"


def test_the_commands_of_the_wheel_name_their_own_python(tmp_path, monkeypatch):
    (tmp_path / "cairn/_bin").mkdir(parents=True)
    program = tmp_path / "cairn/_bin/cairn"
    program.write_text('#!/bin/sh\necho "$CAIRN_PYTHON $@"\n')
    program.chmod(0o755)
    (tmp_path / "_cairn_programs.py").write_bytes((REPOSITORY / "python/_cairn_programs.py").read_bytes())
    command = [sys.executable, "-c", "import _cairn_programs; _cairn_programs.cairn()", "corpus"]
    for named, expected in ((None, sys.executable), ("/other", "/other")):
        monkeypatch.delenv("CAIRN_PYTHON")
        if named:
            monkeypatch.setenv("CAIRN_PYTHON", named)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.stdout == f"{expected} corpus\n", done.stderr
        monkeypatch.setenv("CAIRN_PYTHON", expected)
