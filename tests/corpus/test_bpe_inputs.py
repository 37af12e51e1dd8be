"""How `cairn corpus bpe train`, `encode` and `compare` read their inputs: by one rule, which goes by the names."""
import gzip
import importlib.util
import json
import subprocess
import sys

import pytest

from bpe_testing import CAIRN, cairn, encode, load, multilingual, train

# Runs a command and tells its largest resident size in KiB. (Of a child of this process that size would be this one's.)
LAUNCHER = """
import os, sys
_, status, usage = os.wait4(os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]), 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""
LINES = multilingual(20_000, 1).splitlines()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The same texts as plain lines and as JSON lines under each kind of name, and a tokenizer."""
    directory = tmp_path_factory.mktemp("inputs")
    (directory / "a.txt").write_text("\n".join(LINES) + "\n")
    for key, name in (("text", "a.jsonl"), ("text", "a.ndjson"), ("body", "body.jsonl"), ("body", "named_otherwise")):
        (directory / name).write_text("".join(json.dumps({"id": 1, key: line}) + "\n" for line in LINES))
    (directory / "a.jsonl.gz").write_bytes(gzip.compress((directory / "a.jsonl").read_bytes()))
    if importlib.util.find_spec("pyarrow"):
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"id": [1] * len(LINES), "text": LINES}), directory / "a.parquet")
    train(directory / "a.txt", directory / "tokenizer", 400)
    return directory


NAMES = ["a.jsonl", "a.ndjson", "a.jsonl.gz", "a.parquet", "body.jsonl", "named_otherwise"]


def key_of(name):
    return ["--json-key", "body"] if name in ("body.jsonl", "named_otherwise") else []


@pytest.fixture(params=NAMES)
def name(request, monkeypatch):
    if request.param == "a.parquet":
        pytest.importorskip("pyarrow")
        monkeypatch.setenv("CAIRN_PYTHON", sys.executable)
    return request.param


def test_encode_takes_the_texts_of_json_lines(made, name):
    expected = encode(made / "tokenizer", (made / "a.txt").read_bytes())
    done = cairn("encode", "--tokenizer", made / "tokenizer", made / name, *key_of(name))
    assert done.returncode == 0, done.stderr
    assert [[int(i) for i in line.split()] for line in done.stdout.splitlines()] == expected


def test_compare_takes_the_texts_of_json_lines(made, name):
    answers = []
    for text, flags in ((made / "a.txt", []), (made / name, key_of(name))):
        done = subprocess.run([CAIRN, "--format=json", "corpus", "bpe", "compare", made / "tokenizer",
                               f"--text=a={text}", *flags], capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1] and answers[0][0]["texts"][0]["tokens"] > 1000


def test_train_takes_the_texts_of_json_lines(made, name, tmp_path):
    (tmp_path / "lines").write_text("".join(json.dumps(line) for line in LINES))
    expected = train(made / "a.jsonl", tmp_path / "one", 400)
    assert train(made / name, tmp_path / "two", 400, *key_of(name)) == expected


def test_a_text_of_several_lines_is_one_line_of_ids(made, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a\\nb\\n"}\n\n{"text": ""}\n{"text": "c"}')
    done = cairn("encode", "--tokenizer", made / "tokenizer", tmp_path / "in.jsonl")
    assert done.returncode == 0, done.stderr
    ids = [[int(i) for i in line.split()] for line in done.stdout.splitlines()]
    assert [len(line) > 0 for line in ids] == [True, False, False, True], "a blank line and an empty text have no ids"
    assert ids[3] == encode(made / "tokenizer", b"c")[0]
    assert len(ids[0]) == 4, "newlines of a text belong to it"


@pytest.mark.parametrize("command", ["encode", "compare", "train"])
def test_a_bad_line_and_a_missing_key_are_named(made, tmp_path, command):
    def run(*more):
        return {"encode": lambda: cairn("encode", "--tokenizer", made / "tokenizer", tmp_path / "in.jsonl", *more),
                "compare": lambda: cairn("compare", made / "tokenizer", f"--text=a={tmp_path / 'in.jsonl'}", *more),
                "train": lambda: cairn("train", tmp_path / "in.jsonl", "--vocab-size", 300, "--output",
                                       tmp_path / "out", *more)}[command]()

    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": "b"\n')
    done = run()
    assert done.returncode == 1 and f"BAD_JSON_LINE: {tmp_path}/in.jsonl: line 2: not JSON" in done.stderr.decode()
    done = run("--json-key", "body")
    assert done.returncode == 1 and b"line 1: has no key 'body'" in done.stderr and b"--json-key" in done.stderr


@pytest.mark.parametrize("command", ["compare", "train"])
def test_inputs_of_two_kinds_are_refused_by_their_names(made, tmp_path, command):
    flags = ([made / "tokenizer", f"--text=a={made / 'a.txt'}", f"--text=a={made / 'a.jsonl'}"] if command == "compare"
             else [made / "a.txt", made / "a.jsonl", "--vocab-size", 300, "--output", tmp_path / "out"])
    done = cairn(command, *flags)
    assert done.returncode == 1 and b"some inputs are JSON lines" in done.stderr, done.stderr
    assert b"a.jsonl" in done.stderr and b"a.txt" in done.stderr and b"next: " in done.stderr
    if command == "compare":  # but other texts may be of another kind
        assert cairn(command, made / "tokenizer", f"--text=a={made / 'a.txt'}",
                     f"--text=b={made / 'a.jsonl'}").returncode == 0


def write_long(path, begin, end):
    """A line of 200 MB between two short ones."""
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"{begin}short{end}\n{begin}")
        for _ in range(200):
            out.write("a " * 500_000)
        out.write(f"{end}\n{begin}behind{end}\n")


def run_measured(*command):
    """Returns the exit status, what was said, and the largest resident size in MiB."""
    result = subprocess.run([sys.executable, "-c", LAUNCHER, str(CAIRN), "corpus", "bpe", *map(str, command)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    *said, resident = result.stderr.splitlines()
    return result.returncode, "\n".join(said), int(resident) >> 10


@pytest.mark.parametrize("kind", ["json", "lines", "compare"])
def test_a_line_beyond_the_limit_is_refused_by_its_number_in_little_memory(made, tmp_path, kind):
    long = tmp_path / ("in.jsonl" if kind == "json" else "in.txt")
    write_long(long, *(('{"text": "', '"}') if kind == "json" else ("", "")))
    if kind == "compare":
        command = ["compare", made / "tokenizer", f"--text=a={long}"]
    else:
        command = ["train", long, "--vocab-size", 300, "--output", tmp_path / "out"]
    status, error, resident = run_measured(*command, *(["--by-line"] if kind == "lines" else []), "--threads", 2)
    assert status == 1 and f"{long}: line 2: the line is longer than 32.0 MiB" in error, error
    assert "--max-line" in error and resident < 300, (error, resident)


def test_a_line_beyond_the_limit_is_left_out_with_the_bad_ones(tmp_path):
    write_long(tmp_path / "in.jsonl", '{"text": "', '"}')
    (tmp_path / "short.jsonl").write_text('{"text": "short"}\n{"text": "behind"}\n')
    expected = train(tmp_path / "short.jsonl", tmp_path / "expected", 262)
    status, error, resident = run_measured("train", tmp_path / "in.jsonl", "--vocab-size", 262, "--skip-bad-lines",
                                           "--output", tmp_path / "out", "--threads", 2)
    assert status == 0 and resident < 300, (error, resident)
    assert load(tmp_path / "out") == expected
    (bad,) = map(json.loads, (tmp_path / "out" / "bad_lines.log").read_text().splitlines())
    assert bad["line"] == 2 and "longer than 32.0 MiB" in bad["cause"], bad


def test_max_line_decides_which_lines_are_taken(tmp_path):
    lines = ['{"text": "%s"}' % ("a " * 2000), '{"text": "b"}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    command = ("train", tmp_path / "in.jsonl", "--vocab-size", 270, "--output", tmp_path / "out", "--max-line")
    assert cairn(*command, len(lines[0])).returncode == 0
    done = cairn(*command, len(lines[0]) - 1)
    assert done.returncode == 1 and b"in.jsonl: line 1: the line is longer" in done.stderr, done.stderr
