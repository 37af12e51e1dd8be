"""What newcomers give by mistake to `cairn corpus` is refused at once, with what to do; and notes come in time."""
import gzip
import json
import os
import pathlib
import resource
import shutil
import subprocess

import pytest
from flags_in_errors import check

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"


def corpus(*arguments, expect=0, **more):
    done = subprocess.run([str(CAIRN), "corpus", *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          **more)
    assert done.returncode == expect, done.stderr
    return done


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("text").write_text("".join(f"line {i}\n" for i in range(500)))
    pathlib.Path("text.jsonl").write_text("".join(json.dumps({"text": f"line {i}"}) + "\n" for i in range(500)))
    pathlib.Path("ids.json").write_text('{"class": "NullTokenizer"}')
    return tmp_path


def test_a_flag_of_another_command_in_an_error_is_found():
    with pytest.raises(AssertionError, match="has no --memory-budget"):
        check([str(CAIRN), "corpus", "shuffle", "in"], "error: MEMORY_LIMIT: x\n  next: --memory-budget.")
    check([str(CAIRN), "corpus", "shuffle", "in"], "error: x: more than --memory\n  next: `ls --all`")
    check([str(CAIRN), "corpus", "bpe", "train", "--mystery"], "error: not expected: --mystery")


def test_a_limit_of_memory_names_no_flag_of_an_agent(made):
    done = corpus("shuffle", "text", "--output", "out", "--memory", "8GiB", expect=1,
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)))
    assert "MEMORY_LIMIT: the system refused memory" in done.stderr and "--memory-budget" not in done.stderr
    assert "next: Raise the limit that the message names" in done.stderr


CACHE = ("prepare-cache", "--seq-length", 8, "--train-samples", 1, "--global-batch-size", 1, "--data-cache-path", "out",
         "--tokenizer-identifiers")


def test_weights_behind_their_prefixes_are_told_in_the_right_order(made):
    done = corpus(*CACHE, "ids.json", "--data-path", "a_text_document", "30", "b_text_document", ".7", expect=1)
    assert "has 30 behind a_text_document, but a weight comes before its prefix" in done.stderr
    assert "as 30 a_text_document .7 b_text_document." in done.stderr, done.stderr
    assert not pathlib.Path("out").exists()


@pytest.mark.parametrize("split, what", [("90,5,x", "x"), ("90,-5,5", "-5"), ("9e1,5,5", "e1"), ("90%,10%", "%"),
                                         ("ninety", "ninety")])
def test_a_split_that_is_no_numbers_is_refused(made, split, what):
    done = corpus(*CACHE, "ids.json", "--data-path", "a", "--split", split, expect=1)
    assert f'--split "{split}" has "{what}", where a number is expected' in done.stderr, done.stderr
    assert "--split 99,1,0" in done.stderr


PREPROCESS = ("preprocess", "--input", "text.jsonl", "--output-prefix", "out", "--tokenizer-type")
PACK = ("pack", "--input", "text.jsonl", "--output-prefix", "out", "--pack-size", 9, "--tokenizer-model")


@pytest.mark.parametrize("command", [
    (*PREPROCESS, "HuggingFaceTokenizer", "--tokenizer-model"), (*PREPROCESS, "SentencePieceTokenizer",
                                                                 "--tokenizer-model"),
    (*PREPROCESS, "BertWordPieceCase", "--vocab-file"), PACK, ("bpe", "encode", "text", "--tokenizer"),
    ("bpe", "compare", "--text", "a=text"), ("bpe", "train", "text", "--vocab-size", 300, "--output", "o", "--extend")])
def test_a_name_of_the_hub_is_told_with_how_to_get_its_files(made, command):
    done = corpus(*command, "Qwen/Qwen2.5-7B", expect=1)
    assert "INPUT_UNREADABLE: Qwen/Qwen2.5-7B: no such file or directory" in done.stderr, done.stderr
    assert "`hf download Qwen/Qwen2.5-7B --include 'tokenizer*' --local-dir Qwen2.5-7B`" in done.stderr
    assert not list(made.glob("o*"))


def test_identifiers_that_are_missing_are_told_with_how_to_make_them(made):
    done = corpus(*CACHE, "Qwen/Qwen2.5-7B", "--data-path", "a", expect=1)
    assert "Write json.dumps(tokenizer.unique_identifiers)" in done.stderr, done.stderr


def test_columns_without_a_table_are_told_before_an_engine_starts(made):
    more = {"env": {**os.environ, "CAIRN_PYTHON": "/none"}}  # which would be told otherwise
    done = corpus("shuffle", "text", "--output", "out", "--column", "a", "--engine", "ray", expect=1, **more)
    assert "--column has no effect" in done.stderr, done.stderr


REFUSED = {
    "shuffle": ("shuffle", "text", "--output", "old", "--column", "a"),
    "header": ("shuffle", "text", "text.jsonl", "--output", "old", "--header", 1),
    "engine": ("shuffle", "text", "--output", "old", "--no-scratch", "--engine", "ray"),
    "train": ("bpe", "train", "text", "--vocab-size", 100, "--output", "tokenizer"),
    "preprocess": (*PREPROCESS, "NullTokenizer", "--vocab-size", 9, "--json-keys", "text", "text"),
    "merge": ("merge", "--input", ".", "--output-prefix", "out_text_document"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_replaces_nothing_and_says_nothing_of_it(made, name):
    pathlib.Path("old").write_text("old")
    pathlib.Path("tokenizer").mkdir()
    for path in ("tokenizer/vocab.json", "out_text_document.bin", "out_text_document.idx"):
        pathlib.Path(path).write_text("old")
    done = corpus(*REFUSED[name], expect=1)
    assert "error: " in done.stderr and "note:" not in done.stderr, done.stderr


def test_a_missing_output_directory_is_made_by_every_command(made):
    corpus("bpe", "train", "text", "--vocab-size", 270, "--output", "new/a/tokenizer")
    corpus("bpe", "encode", "text", "--tokenizer", "new/a/tokenizer", "--output", "new/b/ids")
    corpus("bpe", "compare", "new/a/tokenizer", "--text", "a=text", "--html", "new/c/page.html")
    corpus("shuffle", "text", "--output", "new/d/text")
    corpus("shuffle", "text", "--output", "new/e/text", "--split-files", 2)
    corpus("shuffle", "text", "--output", "new/f/text", "--resume")
    pathlib.Path("numbers.jsonl").write_text('{"text": "1 2 3"}\n')
    corpus("preprocess", "--input", "numbers.jsonl", "--tokenizer-type", "NullTokenizer", "--vocab-size", 9,
           "--output-prefix", "new/g/data")
    corpus("merge", "--input", "new/g", "--output-prefix", "new/h/data")
    corpus("mds", "new/h/data", "--output", "new/i/mds")
    corpus(*CACHE[:-3], "--data-cache-path", "new/j/cache", "--tokenizer-identifiers", "ids.json", "--split", "1",
           "--data-path", "new/h/data", "--eval-iters", 0)
    assert sorted(path.name for path in pathlib.Path("new").iterdir()) == list("abcdefghij")


WRITING = {
    "train": ("bpe", "train", "text", "--vocab-size", 270, "--output"),
    "part": ("bpe", "train", "text", "--vocab-size", 270, "--part", "1/2", "--output"),
    "encode": ("bpe", "encode", "text", "--tokenizer", "tokenizer", "--output"),
    "compare": ("bpe", "compare", "tokenizer", "--text", "a=text", "--html"),
    "shuffle": ("shuffle", "text", "--output"),
    "parts": ("shuffle", "text", "--split-files", 2, "--output"),
    "scatter": ("shuffle", "text", "--part", "1/2", "--buckets", 2, "--output"),
    "preprocess": ("preprocess", "--input", "bad.jsonl", "--tokenizer-type", "HuggingFaceTokenizer",
                   "--tokenizer-model", "tokenizer", "--output-prefix"),
    "pack": ("pack", "--input", "bad.jsonl", "--tokenizer-model", "tokenizer", "--pack-size", 64, "--output-prefix"),
    "merge": ("merge", "--input", "pairs", "--output-prefix"),
    "mds": ("mds", "pairs/data", "--output"),
    "cache": (*CACHE[:-3], "--tokenizer-identifiers", "ids.json", "--split", "1", "--data-path", "pairs/data",
              "--eval-iters", 0, "--data-cache-path"),
}


@pytest.fixture
def inputs(made):
    """A tokenizer and a pair, and lines of which the last is bad."""
    corpus("bpe", "train", "text", "--vocab-size", 270, "--special-token", "<|endoftext|>", "--output", "tokenizer")
    pathlib.Path("numbers.jsonl").write_text('{"text": "1 2 3"}\n')
    corpus("preprocess", "--input", "numbers.jsonl", "--tokenizer-type", "NullTokenizer", "--vocab-size", 9,
           "--output-prefix", "pairs/data")
    for end in ("bin", "idx"):
        os.rename(f"pairs/data_text_document.{end}", f"pairs/data.{end}")
    pathlib.Path("bad.jsonl").write_text('{"text": "a", "input": "a", "output": "b"}\nbad\n')
    return made


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize("output, says", [("gs+x://models/out", "it knows s3:// and gs://"),
                                          ("s3:models/out", "it knows s3:// and gs://"),
                                          ("a/s3://models/out", "If it is an address, give it alone")])
def test_an_address_that_is_written_wrong_makes_no_directory(inputs, name, output, says):
    before = set(inputs.rglob("*"))
    done = corpus(*WRITING[name], output, expect=1)
    assert says in done.stderr, done.stderr
    assert set(inputs.rglob("*")) == before


FAILING = {
    "train": ("bpe", "train", "bad.jsonl", "--vocab-size", 300, "--output"),
    "train --resume": ("bpe", "train", "bad.jsonl", "--vocab-size", 300, "--resume", "--output"),
    "train --skip-bad-lines": ("bpe", "train", "bad.jsonl", "gone.jsonl.gz", "--vocab-size", 300, "--skip-bad-lines",
                               "--output"),
    "train --part": ("bpe", "train", "bad.jsonl", "--vocab-size", 300, "--part", "1/1", "--output"),
    "encode": ("bpe", "encode", "bad.jsonl", "--tokenizer", "tokenizer", "--output"),
    "compare": ("bpe", "compare", "tokenizer", "--text", "a=bad.jsonl", "--html"),
    "shuffle": ("shuffle", "gone.jsonl.gz", "--output"),
    "shuffle --resume": ("shuffle", "gone.jsonl.gz", "--resume", "--output"),
    "shuffle --split-lines": ("shuffle", "gone.jsonl.gz", "--split-lines", 3, "--output"),
    "shuffle --part": ("shuffle", "gone.jsonl.gz", "--part", "1/1", "--buckets", 2, "--output"),
    "preprocess": WRITING["preprocess"],
    "pack": WRITING["pack"],
    "merge": ("merge", "--input", "damaged", "--output-prefix"),
    "cache": (*CACHE[:-3], "--tokenizer-identifiers", "ids.json", "--split", "1", "--data-path", "damaged/data",
              "--eval-iters", 0, "--data-cache-path"),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_fails_leaves_no_directory(inputs, name):
    pathlib.Path("gone.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 1000)[:-9])
    shutil.copytree("pairs", "damaged")
    pathlib.Path("damaged/data.idx").write_bytes(b"")
    before = set(inputs.rglob("*"))
    corpus(*FAILING[name], "new/below/out", expect=1)
    assert set(inputs.rglob("*")) == before


LOSING = {
    "a tokenizer": (("bpe", "encode", "text", "--tokenizer", "tokenizer", "--output", "tokenizer/tokenizer.json"),
                    "tokenizer/tokenizer.json"),
    "a page": (("bpe", "compare", "tokenizer", "--text", "a=text", "--html", "text"), "text"),
    "a page on a tokenizer": (("bpe", "compare", "tokenizer", "--text", "a=text", "--html", "tokenizer/vocab.json"),
                              "tokenizer/vocab.json"),
    "train": (("bpe", "train", "here/merges.txt", "--vocab-size", 300, "--output", "here"), "here/merges.txt"),
    "preprocess": (("preprocess", "--input", "out_text_document.bin", "--tokenizer-type", "NullTokenizer",
                    "--vocab-size", 9, "--output-prefix", "out"), "out_text_document.bin"),
    "pack": (("pack", "--input", "out_metadata.json", "--tokenizer-model", "tokenizer", "--pack-size", 9,
              "--output-prefix", "out"), "out_metadata.json"),
}


@pytest.mark.parametrize("name", LOSING)
def test_what_a_command_reads_is_no_output(inputs, name):
    for path in ("here/merges.txt", "out_text_document.bin", "out_metadata.json"):
        pathlib.Path(path).parent.mkdir(exist_ok=True)
        pathlib.Path(path).write_text('{"text": "1 2"}\n')
    command, path = LOSING[name]
    before = pathlib.Path(path).read_bytes()
    done = corpus(*command, expect=1)
    assert f"{path}: it is the input, which would be lost" in done.stderr, done.stderr
    assert pathlib.Path(path).read_bytes() == before


@pytest.mark.parametrize("command", [
    ("bpe", "train", "text", "--vocab-size", 300, "--output", ""), ("mds", "pairs/data", "--output", ""),
    (*WRITING["cache"], ""), ("shuffle", "", "--output", "o"), ("bpe", "encode", "", "--tokenizer", "tokenizer")])
def test_an_empty_name_is_refused(inputs, command):
    done = corpus(*command, expect=1)
    assert "is empty" in done.stderr and "next: " in done.stderr, done.stderr


def test_a_file_in_place_of_a_directory_is_named(inputs):
    for command in (("bpe", "train", "text", "--vocab-size", 300, "--output", "text"),
                    ("mds", "pairs/data", "--output", "text"), ("shuffle", "text.jsonl", "--output", "text/out")):
        assert ": text is no directory" in corpus(*command, expect=1).stderr


def test_what_can_be_read_once_is_neither_resumed_nor_read_twice(made):
    os.mkfifo("pipe")
    for name in ("pipe", "-", "/dev/stdin"):
        done = corpus("bpe", "train", name, "--vocab-size", 300, "--output", "o", "--resume", expect=1,
                      stdin=subprocess.DEVNULL)
        assert f"can be read again; {name} is a pipe" in done.stderr, done.stderr
    done = corpus("shuffle", "pipe", "./pipe", "--output", "o", expect=1)
    assert "./pipe is given twice, but can be read only once" in done.stderr, done.stderr


def test_a_byte_order_mark_is_named(inputs):
    pathlib.Path("bom.jsonl").write_text('\ufeff{"text": "a"}\n')
    done = corpus("bpe", "encode", "bom.jsonl", "--tokenizer", "tokenizer", expect=1)
    assert "bom.jsonl: line 1: the line begins with a byte order mark" in done.stderr, done.stderr


def test_a_pair_may_be_named_by_one_of_its_files(inputs):
    for end in (".bin", ".idx"):
        assert "1 samples" in corpus("mds", f"pairs/data{end}", "--output", f"mds{end}").stdout


# ---- bpe train


TRAIN = ("bpe", "train", "text", "--vocab-size", 280, "--special-token", "<|endoftext|>", "--output", "tokenizer")
EDITS = [
    lambda config: {**config, "eos_token": "<|other|>"}, lambda config: {**config, "chat_template": "x"},
    lambda config: {key: value for key, value in config.items() if key != "clean_up_tokenization_spaces"},
    lambda config: {**config, "tokenizer_class": "GPT2Tokenizer"}]


@pytest.mark.parametrize("number", range(len(EDITS)))
def test_an_edited_configuration_is_not_lost(made, number):
    corpus(*TRAIN)
    config = pathlib.Path("tokenizer/tokenizer_config.json")
    edited = json.dumps(EDITS[number](json.loads(config.read_text())), indent=2) + "\n"
    config.write_text(edited)
    done = corpus(*TRAIN, expect=1)
    assert "tokenizer/tokenizer_config.json is not as this command writes it" in done.stderr
    assert "note:" not in done.stderr and config.read_text() == edited
    config.unlink()
    corpus(*TRAIN)


def test_a_configuration_that_nobody_edited_is_replaced_and_told(made):
    corpus(*TRAIN)
    before = pathlib.Path("tokenizer/tokenizer_config.json").read_text()
    assert "note: replaces tokenizer/tokenizer.json, tokenizer/tokenizer_config.json" in corpus(*TRAIN).stderr
    assert pathlib.Path("tokenizer/tokenizer_config.json").read_text() == before
    corpus("bpe", "train", "text", "--vocab-size", 280, "--special-token", "</s>", "--output", "tokenizer")
    assert json.loads(pathlib.Path("tokenizer/tokenizer_config.json").read_text())["eos_token"] == "</s>"


def test_groups_without_development_text_are_told_what_that_means(made):
    pathlib.Path("little").write_text("few words\n")
    command = ("bpe", "train", "--vocab-size", 280, "--group", "big=text", "--group", "small=little", "--output", "out")
    done = corpus(*command)
    assert "note: without --development" in done.stderr and "small has 10 B, big has " in done.stderr, done.stderr
    for more in (("--development", "big=text", "--development", "small=little"), ("--ratio", "big=1", "--ratio",
                                                                                  "small=1")):
        assert "without --development" not in corpus(*command, *more).stderr
