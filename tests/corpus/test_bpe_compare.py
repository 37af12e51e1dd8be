"""`cairn corpus bpe compare`: counts against Hugging Face's, its tables, and its page."""
import collections
import gzip
import html.parser
import json
import subprocess

import pytest
import regex
import tokenizer_pipelines
from tokenizers import Tokenizer

from bpe_testing import CAIRN, any_text, cairn, load, multilingual, random_text, rng, to_bytes, train

pytestmark = pytest.mark.interop


def compare(*arguments):
    result = subprocess.run([CAIRN, "--format=json", "corpus", "bpe", "compare", *map(str, arguments)],
                            capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two tokenizers, and texts by name."""
    directory = tmp_path_factory.mktemp("compare")
    r = rng(3)
    texts = {
        "many": multilingual(60_000, 1),
        "odd <&> \"name\"": "\n".join(random_text(r, 30) for _ in range(200)) + any_text(r, 400) + "\n\n",
        "empty": "",
    }
    (directory / "text").write_text(texts["many"])
    train(directory / "text", directory / "small", 500, "--special-token", "<|endoftext|>")
    train(directory / "text", directory / "large", 2000, "--pretokenizer", "o200k")
    for i, text in enumerate(texts.values()):
        (directory / f"{i}.txt").write_bytes(text.encode())
    flags = [f"--text={name}={directory / f'{i}.txt'}" for i, name in enumerate(texts)]
    return directory, texts, flags


def test_counts_are_those_of_hugging_face(files):
    directory, texts, flags = files
    answer = compare(directory / "small", directory / "large" / "tokenizer.json", *flags)
    assert [one["tokenizer"] for one in answer] == [str(directory / "small"),
                                                    str(directory / "large" / "tokenizer.json")]
    for name, one in zip(("small", "large"), answer):
        theirs = Tokenizer.from_file(str(directory / name / "tokenizer.json"))
        assert one["vocab_size"] == theirs.get_vocab_size()
        used = set()
        for (text_name, text), measured in zip(texts.items(), one["texts"]):
            lines = text.split("\n")
            ids = collections.Counter(i for line in lines for i in theirs.encode(line).ids)
            used |= set(ids)
            tokens, words = sum(ids.values()), sum(len(regex.findall(r"[^\p{White_Space}]+", line)) for line in lines)
            size = sum(len(line.encode()) for line in lines)
            assert measured == {
                "text": text_name, "bytes": size, "words": words, "tokens": tokens, "used_tokens": len(ids),
                "bytes_per_token": pytest.approx(size / tokens if tokens else 0),
                "tokens_per_word": pytest.approx(tokens / words if words else 0),
            }
        assert one["unused_tokens"] == one["vocab_size"] - len(used) > 0
        longest = sorted((to_bytes(token).decode(errors="replace") for token in load(directory / name)[0]
                          if token != "<|endoftext|>"), key=len)
        assert [len(token) for token in one["longest_tokens"]] == [len(token) for token in longest[: -11 : -1]]
        assert set(one["longest_tokens"]) <= set(longest)


def test_threads_compression_and_several_files_change_nothing(files):
    directory, texts, flags = files
    expected = compare(directory / "small", *flags[:1])
    assert compare(directory / "small", *flags[:1], "--threads", 5) == expected
    halves = texts["many"].splitlines(keepends=True)
    half = len(halves) // 2
    (directory / "a.gz").write_bytes(gzip.compress("".join(halves[:half]).encode()))
    (directory / "b.gz").write_bytes(gzip.compress("".join(halves[half:]).encode()))
    both = [f"--text=many={directory / name}" for name in ("a.gz", "b.gz")]
    assert compare(directory / "small", *both) == expected


@pytest.mark.parametrize("kind", ["bert", "t5", "llama"])
def test_other_kinds_of_tokenizers(tmp_path, kind):
    tokenizer = Tokenizer.from_file(str(tokenizer_pipelines.make(kind, tmp_path)))
    text = "Some words of text, and more.\n"
    (tmp_path / "text").write_text(text)
    (one,) = compare(tmp_path, f"--text=a={tmp_path / 'text'}")
    assert one["texts"][0]["tokens"] == len(tokenizer.encode(text.strip(), add_special_tokens=False).ids)
    vocabulary = tokenizer.get_vocab()
    assert one["longest_tokens"] and all(token in vocabulary for token in one["longest_tokens"] if "\\x" not in token)


class Page(html.parser.HTMLParser):
    """Holds a page's elements; fails at one that is not closed."""

    VOID = ("meta", "rect", "line")

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], collections.Counter(), []
        self.attributes = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements[tag] += 1
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements[tag] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_whole_and_safe(files):
    directory, texts, flags = files
    page = directory / "page.html"
    result = cairn("compare", directory / "small", directory / "large", *flags, "--html", page)
    assert result.returncode == 0, result.stderr
    assert "odd <&> \"name\"" in result.stdout.decode() and b"BYTES/TOKEN" in result.stdout
    text = page.read_text()
    parsed = Page(text)
    assert parsed.elements["svg"] == 3 and parsed.elements["rect"] == 2 * len(texts) * 2 + 2
    assert parsed.elements["script"] == 0 and "http" not in text and "url(" not in text
    assert not any(name in ("src", "href") or name.startswith("on") for name, _ in parsed.attributes)
    assert "prefers-color-scheme: dark" in text
    words = " ".join(parsed.words)
    answer = compare(directory / "small", directory / "large", *flags)
    assert "odd <&> \"name\"" in words
    for one in answer:
        for measured in one["texts"]:
            assert f"{measured['bytes_per_token']:.3f}" in words and str(measured["tokens"]) in words


def test_what_cannot_be_compared_is_refused(files, tmp_path):
    directory, _, flags = files
    for arguments, words in (
        ([directory / "small", "--text", directory / "0.txt"], "NAME=VALUE"),
        ([directory / "small", f"--text=a={tmp_path / 'none'}"], "INPUT_UNREADABLE"),
        ([tmp_path, *flags], "INPUT_UNREADABLE"),
        ([directory / "small", *flags, "--html", f"{tmp_path}/none/"], "it is a directory"),
    ):
        result = cairn("compare", *arguments)
        assert result.returncode == 1 and words in result.stderr.decode(), result.stderr
    assert cairn("compare", directory / "small").returncode == 2
