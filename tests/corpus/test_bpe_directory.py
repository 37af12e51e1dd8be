"""`cairn corpus bpe train` and `preprocess` on directories, and a tokenizer that goes from one to the other."""

import json
import subprocess

import pytest

from bpe_testing import CAIRN


def cairn(*arguments, check=True):
    done = subprocess.run([CAIRN, "corpus", *map(str, arguments)], capture_output=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr.decode()
    return done


@pytest.fixture
def texts(tmp_path):
    """Returns a directory with JSON lines at two depths, and a hidden file that nobody is to read."""
    directory = tmp_path / "texts"
    (directory / "more").mkdir(parents=True)
    for name in ("b.jsonl", "a.jsonl", "more/c.jsonl"):
        (directory / name).write_text("".join(
            json.dumps({"text": f"the end of {name}, number {number}"}) + "\n" for number in range(20)))
    (directory / ".hidden").write_text("no JSON")
    return directory


def train(source, output, *flags):
    cairn("bpe", "train", source, "--vocab-size", 300, "--output", output, *flags)
    return output


def preprocess(source, prefix, tokenizer, *flags, check=True):
    return cairn("preprocess", "--input", *source, "--output-prefix", prefix, "--tokenizer-type",
                 "HuggingFaceTokenizer", "--tokenizer-model", tokenizer, *flags, check=check)


def test_a_directory_stands_for_the_files_below_it_in_their_order(tmp_path, texts):
    files = [texts / "a.jsonl", texts / "b.jsonl", texts / "more/c.jsonl"]
    flags = ("--special-token", "<|endoftext|>")
    one = train(texts, tmp_path / "one", *flags)
    cairn("bpe", "train", *files, "--vocab-size", 300, "--output", tmp_path / "two", *flags)
    assert (one / "tokenizer.json").read_bytes() == (tmp_path / "two/tokenizer.json").read_bytes()
    preprocess([texts], tmp_path / "from_directory", one, "--append-eod")
    preprocess(files, tmp_path / "from_files", one, "--append-eod")
    for ending in (".bin", ".idx"):
        assert ((tmp_path / f"from_directory_text_document{ending}").read_bytes()
                == (tmp_path / f"from_files_text_document{ending}").read_bytes())


def test_what_bpe_train_wrote_says_which_token_ends_a_document(tmp_path, texts):
    tokenizer = train(texts, tmp_path / "tokenizer", "--special-token", "<|pad|>", "--special-token", "<|endoftext|>")
    config = json.loads((tokenizer / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert (config["eos_token"], config["pad_token"]) == ("<|endoftext|>", "<|pad|>")
    assert "bos_token" not in config
    preprocess([texts], tmp_path / "with", tokenizer, "--append-eod")
    preprocess([texts], tmp_path / "without", tokenizer)
    sizes = [(tmp_path / f"{name}_text_document.bin").stat().st_size for name in ("with", "without")]
    assert sizes[0] - sizes[1] == 60 * 2, "one token of two bytes for each document"


def test_append_eod_without_a_token_is_refused_by_name(tmp_path, texts):
    tokenizer = train(texts, tmp_path / "tokenizer")
    refused = preprocess([texts], tmp_path / "out", tokenizer, "--append-eod", check=False)
    assert refused.returncode == 1 and b"BAD_TOKENIZER" in refused.stderr, refused.stderr
    assert b"no token that ends a document" in refused.stderr and b'Add "eos_token"' in refused.stderr
    assert not list(tmp_path.glob("out*"))


def test_an_empty_directory_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    refused = cairn("bpe", "train", tmp_path / "empty", "--vocab-size", 300, "--output", tmp_path / "out", check=False)
    assert refused.returncode == 1 and b"INPUT_UNREADABLE: no file is below" in refused.stderr


def test_a_quoted_pattern_stands_for_the_files_that_match(tmp_path):
    for name, text in (("a1.txt", "low lower"), ("a2.txt", "lowest low"), ("b.txt", "other words")):
        (tmp_path / name).write_text(text * 20)
    for output, inputs in (("named", ("a1.txt", "a2.txt")), ("pattern", ("a*.txt",))):
        cairn("bpe", "train", *(tmp_path / name for name in inputs), "--vocab-size", 270, "--output", tmp_path / output)
    assert (tmp_path / "pattern/tokenizer.json").read_bytes() == (tmp_path / "named/tokenizer.json").read_bytes()
    refused = cairn("bpe", "train", tmp_path / "c*.txt", "--vocab-size", 300, "--output", tmp_path / "c", check=False)
    assert refused.returncode == 1 and b"no file matches it" in refused.stderr
