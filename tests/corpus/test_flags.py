"""A flag of `cairn corpus` that would change nothing is refused by its name, with what it needs. A run that seems to
obey a flag, and does not, is found out only by its result."""
import json
import os
import pathlib
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"

TRAIN = ("bpe", "train", "text", "--vocab-size", 300, "--output", "out")
ENCODE = ("bpe", "encode", "text", "--output", "out")
COMPARE = ("bpe", "compare", "--text", "a=text", "--html", "out")
SHUFFLE = ("shuffle", "text", "--output", "out")
PREPROCESS = ("preprocess", "--input", "text.jsonl", "--output-prefix", "out", "--tokenizer-type")
HUGGING_FACE = (*PREPROCESS, "HuggingFaceTokenizer", "--tokenizer-model", "tokenizer")
PACK = ("pack", "--input", "text.jsonl", "--output-prefix", "out", "--tokenizer-model", "tokenizer", "--pack-size", 9)
MERGE = ("merge", "--input", ".", "--output-prefix", "out")
CACHE = ("prepare-cache", "--seq-length", 8, "--train-samples", 1, "--global-batch-size", 1, "--data-cache-path", "out",
         "--tokenizer-identifiers", "ids.json")

REFUSED = [
    ((*TRAIN, "--window", 5), "--window requires --group"),
    ((*TRAIN, "--global-merges", 5), "--global-merges requires --group"),
    ((*TRAIN, "--development", "a=text"), "--development requires --group"),
    ((*TRAIN, "--ratio", "a=1"), "--ratio requires --group"),
    ((*TRAIN, "--alpha", 3), "--alpha requires --window"),
    (("bpe", "train", "--vocab-size", 300, "--output", "out", "--group", "a=text", "--alpha", 3),
     "--alpha requires --window"),
    ((*TRAIN, "--checkpoint-every", "1MiB"), "--checkpoint-every requires --resume"),
    ((*TRAIN, "--temp-dir", "."), "--temp-dir has no effect"),
    ((*TRAIN, "--parts", 3), "--parts requires --engine"),
    ((*TRAIN, "--engine-address", "a:1"), "--engine-address requires --engine"),
    ((*ENCODE, "--tokenizer", "tokenizer", "--pretokenizer", "gpt2"), "--pretokenizer has no effect on tokenizer"),
    ((*COMPARE, "tokenizer", "--pretokenizer", "gpt2"), "--pretokenizer has no effect on tokenizer"),
    ((*SHUFFLE, "--checkpoint-interval", "1MiB"), "--checkpoint-interval requires --resume"),
    ((*SHUFFLE, "--buckets", 3), "--buckets requires --part"),
    ((*SHUFFLE, "--no-scratch", "--temp-dir", "."), "--temp-dir excludes --no-scratch"),
    ((*SHUFFLE, "--no-scratch", "--resume"), "--resume excludes --no-scratch"),
    ((*SHUFFLE, "--part", "1/2", "--buckets", 2, "--compress", "gz"), "--compress excludes --part"),
    ((*SHUFFLE, "--part", "1/2", "--buckets", 2, "--split-files", 2), "--split-files excludes --part"),
    ((*SHUFFLE, "--part", "1/2", "--bucket", "1/2"), "--part excludes --bucket"),
    ((*SHUFFLE, "--column", "text"), "--column has no effect"),
    ((*SHUFFLE, "--part", "1/2", "--buckets", 2, "--column", "text"), "--column has no effect"),
    ((*HUGGING_FACE, "--vocab-file", "text"), "--vocab-file has no effect with --tokenizer-type HuggingFaceTokenizer"),
    ((*HUGGING_FACE, "--vocab", "text"), "--vocab has no effect"),
    ((*HUGGING_FACE, "--merge-file", "text"), "--merge-file has no effect"),
    ((*HUGGING_FACE, "--vocab-size", 9), "--vocab-size has no effect"),
    ((*HUGGING_FACE, "--tiktoken-pattern", "v2"), "it is for TikTokenizer"),
    ((*HUGGING_FACE, "--tiktoken-num-special-tokens", 1000), "--tiktoken-num-special-tokens has no effect"),
    ((*HUGGING_FACE, "--tokenizer-legacy-wordpiece"), "it is for BertWordPieceCase, BertWordPieceLowerCase"),
    ((*PREPROCESS, "BertWordPieceCase", "--vocab-file", "text", "--tokenizer-model", "tokenizer"),
     "--tokenizer-model has no effect"),
    ((*HUGGING_FACE, "--punkt-model", "."), "--punkt-model requires --split-sentences"),
    ((*PACK, "--chat-template", "text"), "--chat-template requires --chat"),
    ((*PACK, "--chat", "--prompt-key", "a"), "--chat excludes --prompt-key"),
    ((*PACK, "--chat", "--answer-key", "a"), "--chat excludes --answer-key"),
    ((*PACK, "--chat", "--separator", "a"), "--chat excludes --separator"),
    ((*MERGE, "--into", "a"), "--into requires --part"),
    ((*CACHE, "--train-data-path", "a", "--split", "1,1,1"), "--split requires --data-path"),
]

WRONG = [
    ((*PACK, "--seed", -1), "--seed: Value -1 not in range 0 to 4294967295"),
    ((*PACK, "--seed", 2**32), "not in range 0 to 4294967295"),
    ((*CACHE, "--data-path", "a", "--seed", -1), "--seed: Value -1 not in range 0 to 4294967295"),
    ((*SHUFFLE, "--seed", 2**64), 'no whole number from -2^63 to 2^64 - 1'),
    ((*SHUFFLE, "--seed", "1.5"), '--seed "1.5" is no whole number'),
    ((*TRAIN, "--veto", "("), "BAD_PATTERN: --veto '(': the regular expression cannot be compiled"),
    ((*TRAIN, "--pattern", "("), "BAD_PATTERN: --pattern: the regular expression cannot be compiled"),
    ((*ENCODE, "--tokenizer", "tokenizer", "--pretokenizer", "("), "BAD_PATTERN: --pretokenizer: "),
]


def corpus(*arguments, **more):
    return subprocess.run([str(CAIRN), "corpus", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made")
    (directory / "text").write_text("some text\n")
    (directory / "text.jsonl").write_text(json.dumps({"text": "some text"}) + "\n")
    (directory / "ids.json").write_text("{}")
    done = corpus("bpe", "train", "text", "--vocab-size", 260, "--output", "tokenizer", cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.mark.parametrize("command, message", REFUSED + WRONG)
def test_what_would_change_nothing_or_makes_no_sense_is_refused_by_name(made, command, message):
    done = corpus(*command, cwd=made)
    assert done.returncode in (1, 2) and message in done.stderr and "next: " in done.stderr, done.stderr
    assert not list(made.glob("out*")) and not list(made.glob(".*"))


def test_a_veto_that_matches_without_an_end_is_named(made, tmp_path):
    """PCRE2 gives up only when the training has begun."""
    (tmp_path / "in").write_text("a" * 40 + "b " + "a" * 40 + "b ")
    done = corpus("bpe", "train", "in", "--vocab-size", 300, "--output", "out", "--veto", "(a|aa|a+)+$", cwd=tmp_path)
    assert done.returncode == 1 and "BAD_PATTERN: --veto '(a|aa|a+)+$'" in done.stderr, done.stderr
