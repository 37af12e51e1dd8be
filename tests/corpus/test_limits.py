"""Corpus commands where the system refuses threads or memory, where the output is a directory, or after a kill."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import time

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"


def corpus(*arguments, address_space=None, **more):
    limits = (address_space, address_space)
    before = (lambda: resource.setrlimit(resource.RLIMIT_AS, limits)) if address_space else None
    return subprocess.run([str(CAIRN), "corpus", *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          preexec_fn=before, **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A text, the same as JSON lines, and a tokenizer."""
    directory = tmp_path_factory.mktemp("made")
    lines = [f"line {i} of a text that has {i % 97} words, or {i % 89}" for i in range(20_000)]
    (directory / "text").write_text("\n".join(lines) + "\n")
    (directory / "text.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    result = corpus("bpe", "train", directory / "text", "--vocab-size", 300, "--output", directory / "tokenizer")
    assert result.returncode == 0, result.stderr
    return directory


def commands(made, out):
    preprocess = ("preprocess", "--input", made / "text.jsonl", "--tokenizer-type", "HuggingFaceTokenizer",
                  "--tokenizer-model", made / "tokenizer")
    return {
        "train": ("bpe", "train", made / "text", "--vocab-size", 300, "--output", out, "--threads", 1024),
        "encode": ("bpe", "encode", "--tokenizer", made / "tokenizer", made / "text", "--output", out,
                   "--threads", 1024),
        "preprocess": (*preprocess, "--output-prefix", out, "--workers", 1024),
        "shuffle": ("shuffle", made / "text", "--output", out, "--threads", 1024, "--memory", "8GiB"),
        "compress": ("shuffle", made / "text", "--output", out, "--threads", 64, "--memory", "600MiB", "--compress",
                     "zst", "--split-lines", 7000),
        "reread": ("shuffle", made / "text", "--output", out, "--threads", 64, "--memory", "600MiB", "--no-scratch"),
    }


@pytest.mark.parametrize("name", ["train", "encode", "preprocess", "shuffle", "compress", "reread"])
@pytest.mark.parametrize("mebibytes", [300, 800, 2000])
def test_little_address_space_is_enough_or_is_told(made, tmp_path, name, mebibytes):
    result = corpus(*commands(made, tmp_path / "out")[name], address_space=mebibytes << 20)
    assert result.returncode == 0 or (result.returncode == 1 and "MEMORY_LIMIT" in result.stderr), (
        result.returncode, result.stderr)
    assert not list(tmp_path.glob(".*")), "a hidden file is left"


@pytest.mark.parametrize("name", ["encode", "shuffle", "compress", "reread"])
def test_an_output_that_is_a_directory_is_told_so_at_once(made, tmp_path, name):
    (tmp_path / "out").mkdir()
    for out in (tmp_path / "out", f"{tmp_path}/new/"):
        result = corpus(*commands(made, out)[name])
        assert result.returncode == 1 and "it is a directory" in result.stderr, result.stderr
        assert f"next: Give the file's name too: {str(out).rstrip('/')}/NAME" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("name, hidden", [("train", "out/.bpe-count-*"), ("shuffle", ".out.*.partial"),
                                          ("compress", ".out-*.partial"), ("preprocess", ".out_text_document.bin.*")])
def test_what_a_killed_run_has_left_is_removed_by_the_next(made, tmp_path, name, hidden):
    command = [str(argument) for argument in commands(made, tmp_path / "out")[name]]
    for _ in range(50):
        process = subprocess.Popen([str(CAIRN), "corpus", *command], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(tmp_path.glob(hidden)):
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if list(tmp_path.glob(hidden)):
            break
    assert list(tmp_path.glob(hidden)), "it was never killed while it wrote"
    result = corpus(*command)
    assert result.returncode == 0, result.stderr
    assert not list(tmp_path.glob(".*")) and not list(tmp_path.glob("out/.*"))
