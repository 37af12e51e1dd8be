"""Where corpus commands write: links are followed and never replaced, devices and pipes get a stream, directories of
prefixes are made."""

import json
import os
import pathlib
import re
import subprocess
import sys

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
LINES = [f"line {i} of {i % 13}" for i in range(3000)]


def corpus(*arguments, **more):
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    return subprocess.run([str(CAIRN), "corpus", *map(str, arguments)], timeout=120, **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A text, the same as JSON lines, and a tokenizer."""
    directory = tmp_path_factory.mktemp("made")
    (directory / "text").write_text("\n".join(LINES) + "\n")
    (directory / "text.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES))
    result = corpus("bpe", "train", directory / "text", "--vocab-size", 280, "--special-token",
                    "<|endoftext|>", "--output", directory / "tokenizer")
    assert result.returncode == 0, result.stderr
    return directory


def streams(made):
    """The commands whose output is one file, without it."""
    return {"encode": ("bpe", "encode", "--tokenizer", made / "tokenizer", made / "text", "--output"),
            "shuffle": ("shuffle", made / "text", "--output"),
            "scratch": ("shuffle", made / "text", "--memory", "32MiB", "--no-scratch", "--compress", "gz", "--output")}


@pytest.fixture(scope="module")
def expected(made):
    whole = {}
    for name, command in streams(made).items():
        result = corpus(*command, made / f"whole-{name}")
        assert result.returncode == 0, result.stderr
        whole[name] = (made / f"whole-{name}").read_bytes()
    return whole


@pytest.mark.parametrize("name", ["encode", "shuffle", "scratch"])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed_and_stays(made, expected, tmp_path, name, there):
    (tmp_path / "disk").mkdir()
    if there:
        (tmp_path / "disk" / "real").write_text("old")
    (tmp_path / "second").symlink_to("disk/real")
    (tmp_path / "out").symlink_to(tmp_path / "second")
    result = corpus(*streams(made)[name], tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out").is_symlink() and (tmp_path / "second").is_symlink()
    assert not (tmp_path / "disk" / "real").is_symlink()
    assert (tmp_path / "disk" / "real").read_bytes() == expected[name]
    assert {path.name for path in tmp_path.rglob("*")} == {"disk", "real", "second", "out"}, "something is left"


@pytest.mark.parametrize("name", ["encode", "shuffle", "scratch"])
@pytest.mark.parametrize("out", ["-", "/dev/stdout", "/proc/self/fd/1", "link"])
def test_standard_output_gets_the_bytes_behind_what_it_has(made, expected, tmp_path, name, out):
    if out == "link":
        (tmp_path / "link").symlink_to("/dev/stdout")
        out = tmp_path / "link"
    command = streams(made)[name]
    assert corpus(*command, out).stdout == expected[name], "a pipe"
    with open(tmp_path / "seen", "wb") as seen:
        seen.write(b"before ")
        seen.flush()
        result = corpus(*command, out, stdout=seen)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "seen").read_bytes() == b"before " + expected[name], "a file"
    assert not (tmp_path / "link").exists() or (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", ["encode", "shuffle", "scratch"])
def test_a_fifo_is_streamed_into(made, expected, tmp_path, name):
    os.mkfifo(tmp_path / "fifo")
    process = subprocess.Popen([str(CAIRN), "corpus", *map(str, streams(made)[name]), str(tmp_path / "fifo")],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert (tmp_path / "fifo").read_bytes() == expected[name]
    assert process.wait(60) == 0, process.stderr.read()
    assert (tmp_path / "fifo").is_fifo()


@pytest.mark.parametrize("name", ["encode", "shuffle", "scratch"])
def test_a_device_that_is_full_is_no_success(made, tmp_path, name):
    (tmp_path / "full").symlink_to("/dev/full")
    result = corpus(*streams(made)[name], tmp_path / "full")
    assert result.returncode == 1 and b"NO_SPACE" in result.stderr, result.stderr
    assert (tmp_path / "full").is_symlink()


def test_a_stream_has_no_parts_and_is_not_resumed(made, tmp_path):
    for more in (("--split-files", 2), ("--resume",)):
        result = corpus("shuffle", made / "text", *more, "--output", "-", "--temp-dir", tmp_path)
        assert result.returncode == 1 and b"stream" in result.stderr and b"next: Give --output" in result.stderr
        assert result.stdout == b"" and not list(tmp_path.iterdir())


def test_a_part_that_is_a_link_is_refused(made, tmp_path):
    (tmp_path / "real").write_text("kept")
    (tmp_path / "out-00001").symlink_to("real")
    result = corpus("shuffle", made / "text", "--split-files", 3, "--output", tmp_path / "out")
    assert result.returncode == 1 and b"out-00001: it is a link" in result.stderr, result.stderr
    assert (tmp_path / "real").read_text() == "kept" and (tmp_path / "out-00001").is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


def files_of_sets(made, out):
    """The commands that write several files, and those files."""
    preprocess = ("preprocess", "--input", made / "text.jsonl", "--tokenizer-type", "HuggingFaceTokenizer",
                  "--tokenizer-model", made / "tokenizer", "--output-prefix", out / "data")
    pair = [out / "data_text_document.bin", out / "data_text_document.idx"]
    return {
        "train": (("bpe", "train", made / "text", "--vocab-size", 280, "--output", out),
                  [out / "tokenizer.json", out / "vocab.json", out / "merges.txt"]),
        "preprocess": (preprocess, pair),
        "merge": (("merge", "--input", made / "pair", "--output-prefix", out / "merged"),
                  [out / "merged.bin", out / "merged.idx"]),
    }


@pytest.mark.parametrize("name", ["train", "preprocess", "merge"])
def test_sets_of_files_follow_links_and_make_their_directory(made, tmp_path, name):
    if not (made / "pair").exists():
        assert corpus(*files_of_sets(made, made / "pair")["preprocess"][0]).returncode == 0
    command, files = files_of_sets(made, tmp_path / "new" / "below")[name]
    result = corpus(*command)
    assert result.returncode == 0, result.stderr
    whole = [path.read_bytes() for path in files]
    (tmp_path / "disk").mkdir()
    for path in files:
        path.unlink()
        (tmp_path / "disk" / path.name).write_text("old")
        path.symlink_to(tmp_path / "disk" / path.name)
    result = corpus(*command)
    assert result.returncode == 0, result.stderr
    for path, content in zip(files, whole):
        assert path.is_symlink() and (tmp_path / "disk" / path.name).read_bytes() == content, path
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("name", ["train", "preprocess", "merge", "encode", "shuffle"])
def test_an_output_that_stands_is_replaced_and_a_note_names_it(made, tmp_path, name):
    if not (made / "pair").exists():
        assert corpus(*files_of_sets(made, made / "pair")["preprocess"][0]).returncode == 0
    if name in ("encode", "shuffle"):
        command, files = (*streams(made)[name], tmp_path / "out"), [tmp_path / "out"]
    else:
        command, files = files_of_sets(made, tmp_path)[name]
    first = corpus(*command)
    assert first.returncode == 0 and b"replaces" not in first.stderr, first.stderr
    whole = [path.read_bytes() for path in files]
    files[0].write_text("old")
    second = corpus(*command)
    assert second.returncode == 0, second.stderr
    # Where little is to be done, the work is known to have begun only when it is done.
    assert re.search(f"note: replace[sd] {files[0]}", second.stderr.decode()), second.stderr
    assert all(str(path) in second.stderr.decode() for path in files), second.stderr
    assert [path.read_bytes() for path in files] == whole


def test_parts_that_stand_are_replaced_and_a_note_names_the_first(made, tmp_path):
    command = ("shuffle", made / "text", "--split-files", 3, "--output", tmp_path / "out")
    first, second = (corpus(*command).stderr.decode() for _ in range(2))
    assert "replaces" not in first, first
    assert f"note: replaces {tmp_path}/out-00000 and the parts behind it, when" in second, second


def test_plain_text_is_no_json_lines_and_the_advice_of_the_page_works(made, tmp_path):
    out = tmp_path / "data"
    command = ("preprocess", "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", made / "tokenizer",
               "--output-prefix", out, "--input")
    refused = corpus(*command, made / "text")
    assert refused.returncode == 1 and b"docs/corpus.md" in refused.stderr, refused.stderr
    page = (REPOSITORY / "docs/corpus.md").read_text()
    (told,) = [line.removeprefix("$ ") for line in page.splitlines() if line.startswith("$ python3")]
    (tmp_path / "raw").mkdir()
    (tmp_path / "corpus.txt").write_bytes((made / "text").read_bytes())
    subprocess.run(told, shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "raw/corpus.jsonl").read_bytes() == (made / "text.jsonl").read_bytes()
    assert corpus(*command, tmp_path / "raw/corpus.jsonl").returncode == 0


def run_measured(command, **more):
    """Returns the exit status, what was said, and the largest resident size in MiB."""
    result = subprocess.run([sys.executable, "-c", LAUNCHER, str(CAIRN), "corpus", *map(str, command)],
                            stderr=subprocess.PIPE, text=True, timeout=120, **more)
    *said, resident = result.stderr.splitlines()
    return result.returncode, "\n".join(said), int(resident) >> 10


@pytest.mark.parametrize("name", ["preprocess", "pack", "encode"])
def test_a_line_beyond_the_limit_is_refused_by_its_number_in_little_memory(made, tmp_path, name):
    """200 MB of one line take less than the limit and its multiple."""
    if name == "pack":
        pytest.importorskip("pyarrow")
    long = tmp_path / "long.jsonl"
    with open(long, "wb") as out:
        out.write(b'{"text": "short"}\n{"text": "')
        for _ in range(200):
            out.write(b"a " * 500_000)
        out.write(b'"}\n')
    model, out = ("--tokenizer-model", made / "tokenizer"), ("--output-prefix", tmp_path / "out")
    command = {
        "preprocess": ("preprocess", "--input", long, *model, *out, "--tokenizer-type", "HuggingFaceTokenizer"),
        "pack": ("pack", "--input", long, *model, *out, "--pack-size", 9, "--prompt-key", "text", "--answer-key",
                 "text"),
        "encode": ("bpe", "encode", "--tokenizer", made / "tokenizer", long, "--output", tmp_path / "out"),
    }[name]
    status, error, resident = run_measured([*command, "--threads" if name == "encode" else "--workers", 2],
                                           env={**os.environ, "CAIRN_PYTHON": sys.executable})
    assert status == 1
    assert f"{long}: line 2" in error and "is longer than 32.0 MiB" in error and "--max-line" in error, error
    assert resident < 400, resident
    assert not [path for path in tmp_path.iterdir() if path != long]


def test_encoding_takes_lines_up_to_the_limit(made, tmp_path):
    """Also where several lines are in one block, and where a line is longer than a block."""
    for longest in (1000, 3 << 20):
        lines = ["a " * (longest // 2), "b", "c" * (longest + 1), "d"]
        (tmp_path / "in").write_text("\n".join(lines) + "\n")
        command = ["bpe", "encode", "--tokenizer", made / "tokenizer", tmp_path / "in", "--output", tmp_path / "out",
                   "--max-line"]
        result = corpus(*command, longest)
        assert result.returncode == 1 and b"in: line 3: the line is longer than " in result.stderr, result.stderr
        assert not (tmp_path / "out").exists()
        assert corpus(*command, longest + 1).returncode == 0
        assert len((tmp_path / "out").read_bytes().splitlines()) == 4
        (tmp_path / "out").unlink()


def test_a_line_of_gigabytes_takes_no_memory_where_it_is_left_out_or_moved(made, tmp_path):
    for name, size in (("long.jsonl", 2 << 30), ("moved.jsonl", 300 << 20)):
        with open(tmp_path / name, "wb") as long:
            long.write(b'{"text": "before"}\n')
            long.seek(size, os.SEEK_CUR)  # zeros that take no disk
            long.write(b'\n{"text": "behind"}\n')
    command = ["preprocess", "--input", "/dev/stdin", "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model",
               made / "tokenizer", "--workers", 2, "--skip-bad-lines", "--output-prefix", tmp_path / "out"]
    with open(tmp_path / "long.jsonl", "rb") as long:
        status, error, resident = run_measured(command, stdin=long)
    assert status == 0 and resident < 300, (error, resident)
    (bad,) = (tmp_path / "out_bad_lines.log").read_text().splitlines()
    assert '"line":2,' in bad.replace(" ", "") and "is longer than 32.0 MiB" in bad, bad
    assert corpus("inspect", tmp_path / "out_text_document").stdout.decode().split("documents")[1].split()[0] == "2"
    status, error, resident = run_measured(["shuffle", tmp_path / "moved.jsonl", "--output", tmp_path / "shuffled",
                                            "--memory", "32MiB", "--seed", 1, "--no-scratch"])
    assert status == 0 and resident < 64, (error, resident)
    assert (tmp_path / "shuffled").stat().st_size == (tmp_path / "moved.jsonl").stat().st_size


def test_lines_up_to_the_limit_are_taken(made, tmp_path):
    lines = ['{"text": "%s"}' % ("a " * 2000), '{"text": "short"}', '{"text": "%s"}' % ("b " * 1994)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    command = ["preprocess", "--input", tmp_path / "in.jsonl", "--tokenizer-type", "HuggingFaceTokenizer",
               "--tokenizer-model", made / "tokenizer", "--output-prefix", tmp_path / "out", "--max-line"]
    longest = max(map(len, lines))
    assert corpus(*command, longest).returncode == 0
    result = corpus(*command, longest - 1)
    assert result.returncode == 1 and b"in.jsonl: line 1: the line is longer" in result.stderr, result.stderr
