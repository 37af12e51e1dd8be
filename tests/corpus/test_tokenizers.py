"""`cairn corpus bpe encode` with tokenizer.json of every kind, against Hugging Face tokenizers."""

import json
import unicodedata

import pytest
from tokenizer_pipelines import EXPRESSIONS, PIPELINES, make
from tokenizers import Tokenizer

from bpe_testing import EXHAUSTIVE, PIECES, any_text, cairn, encode, multilingual, random_text, rng

pytestmark = pytest.mark.interop

CODE = "def f(self, x):\n\treturn {**x, 'a': 1_000}  # naïve\n#include <vector>\r\nint main() { return a[0]->b; }\n"
ODD = [
    "",
    " ",
    "  a",
    "a  ",
    "\r",
    "\t\t",
    "\x00",
    "\x00\x00a",
    "▁",
    "▁▁a ▁b",
    "_a_b",
    "a" * 3000,
    " " * 500,
    "中" * 500,
    "<unk>",
    "a<unk><unk>b",
    "<0x41><0xFF>",
    "e\u0301" * 40,
    "\u0301" * 300,
    "ÅÅ",
    "ﬁﬁ",
    "각각",
    "😀👩\u200d🔬👍🏽🇩🇪",
    "x<mask>y  <mask>  z",
    "<r>  a<r> <r>",
    "<W>",
    "a<W>",
    " <W> b<W>_",
    "ünïcode token Ünïcode Token",
    "a two  blanks b",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    paths = {}

    def get(name):
        if name not in paths:
            paths[name] = make(name, tmp_path_factory.mktemp(name))
        return paths[name]

    return get


def lines_of_every_kind(seed, count):
    r = rng(seed)
    lines = multilingual(15_000, seed).split("\n") + CODE.split("\n") + ODD
    pieces = [*PIECES, "▁", "<mask>", "<r>", "<W>", "Ünïcode Token", "two  blanks", "<unk>", "<0x41>", "``", "''"]
    for _ in range(count):
        lines.append(random_text(r, r.randrange(50), pieces).replace("\n", "\t"))
        lines.append(any_text(r, r.randrange(1, 40)).replace("\n", ""))
        # A mutation of a line that there is already.
        line = list(r.choice(lines))
        for _ in range(r.randrange(4)):
            line.insert(r.randrange(len(line) + 1), r.choice(pieces))
        lines.append("".join(line).replace("\n", " "))
    return lines


def is_old(text):
    """Returns whether PCRE2 knows all characters as Hugging Face's Oniguruma does."""
    return all(unicodedata.category(c) != "Cn" for c in text)


def assert_same(path, lines):
    peer = Tokenizer.from_file(str(path))
    expected = [e.ids for e in peer.encode_batch(lines, add_special_tokens=False)]
    ours = encode(path, "".join(line + "\n" for line in lines).encode())
    for line, a, b in zip(lines, ours, expected, strict=True):
        assert a == b, ascii(line)


@pytest.mark.parametrize("name", PIPELINES)
def test_encodes_as_hugging_face_does(made, name):
    lines = lines_of_every_kind(11, 3000 if EXHAUSTIVE else 150)
    assert_same(made(name), [line for line in lines if name not in EXPRESSIONS or is_old(line)])


@pytest.mark.parametrize("name", PIPELINES)
def test_each_character(made, name):
    step = 1 if EXHAUSTIVE else 97
    scalars = [
        *range(0x3100 if EXHAUSTIVE else 0x250),
        *range(0x250, 0x30000, step),
        *range(0x30000, 0x110000, step * 53),
    ]
    characters = [chr(c) for c in scalars if c != 10 and not 0xD800 <= c < 0xE000]
    assert_same(made(name), [f"a{c}b {c}" for c in characters if name not in EXPRESSIONS or is_old(c)])


@pytest.mark.parametrize("name", ["qwen2", "nfd", "nfkc-prefix", "nfkd"])
def test_each_mark_between_others(made, name):
    """A mark of a later Unicode version than the peer's keeps its place, and nothing composes across it."""
    marks = [chr(c) for c in range(0x110000) if unicodedata.combining(chr(c))]
    assert_same(made(name), [f"L{mark}\u0301 a{mark}\u0323 \u0301{mark}\u0323" for mark in marks])


@pytest.mark.parametrize("name", ["t5", "xlm-roberta"])
def test_each_character_joins_others(made, name):
    """A short grapheme is replaced as a whole, and marks of the newest Unicode version belong to it."""
    newest = [0x1611F, 0x1ADB, 0x1ADD, 0x1AE2]
    scalars = [*newest, *range(0x300, 0x20000, 1 if EXHAUSTIVE else 17)]
    characters = [chr(c) for c in scalars if not 0xD800 <= c < 0xE000]
    assert_same(made(name), [f"e\u0301{c}e\u0301 {c}e\u0301 ½{c}" for c in characters])


@pytest.mark.parametrize("name", ["qwen2", "llama", "t5", "bert"])
def test_bytes_that_are_no_text(made, name):
    r = rng(12)
    lines = [bytes(r.choices([b for b in range(256) if b != 10], k=r.randrange(60))) for _ in range(400)]
    lines += [b"\xff" * 50, b"a\xc3", b"\xe4\xb8", b"\xed\xa0\x80x", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xe0\x80"]
    peer = Tokenizer.from_file(str(made(name)))
    expected = [peer.encode(line.decode(errors="replace"), add_special_tokens=False).ids for line in lines]
    assert encode(made(name), b"".join(line + b"\n" for line in lines)) == expected


SCORES = "/// //////// \u0301\u0301\u0301 aaa aaaaaaa eeeeeee tttttttttt nnnnn  " * 3


@pytest.mark.parametrize("name", [name for name in PIPELINES if "unigram" in name or name in ("t5", "albert")])
def test_ways_with_equal_scores(made, name):
    r = rng(13)
    lines = ["".join(r.choices(SCORES, k=r.randrange(80))) for _ in range(2000)]
    assert_same(made(name), lines)


def changed(path, directory, change):
    described = json.loads(path.read_text())
    change(described)
    (directory / "tokenizer.json").write_text(json.dumps(described))
    return directory / "tokenizer.json"


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (lambda d: d.update(normalizer={"type": "Shout"}), "UNSUPPORTED", "the normalizer Shout"),
        (lambda d: d.update(pre_tokenizer={"type": "Guess"}), "UNSUPPORTED", "the pre-tokenizer Guess"),
        (lambda d: d["model"].update(type="Markov"), "UNSUPPORTED", "a model of type Markov"),
        (lambda d: d["model"].update(alpha=0.1), "UNSUPPORTED", "alpha"),
        (lambda d: d["model"].update(unk_id=10_000), "BAD_TOKENIZER", "unk_id is beyond the vocabulary"),
        (lambda d: d["model"]["vocab"].append(["a"]), "BAD_TOKENIZER", "is not [token, score]"),
        (lambda d: d["normalizer"].update(precompiled_charsmap="AAAA"), "BAD_TOKENIZER", "precompiled"),
        (lambda d: d["pre_tokenizer"].update(replacement="ab"), "BAD_TOKENIZER", "'replacement' is no character"),
        (
            lambda d: d.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Removed"}),
            "BAD_PATTERN",
            "missing",
        ),
        (
            lambda d: d.update(
                truncation={"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
            ),
            "UNSUPPORTED",
            "truncation",
        ),
        (lambda d: d.update(padding={"strategy": {"Fixed": 9}}), "UNSUPPORTED", "padding to a fixed length"),
    ],
)
def test_what_is_not_known_is_refused_by_name(made, tmp_path, change, reason, words):
    result = cairn("encode", "--tokenizer", changed(made("t5"), tmp_path, change), "-", stdin=b"a\n")
    assert result.returncode != 0 and result.stdout == b""
    message = result.stderr.decode()
    assert reason in message and words in message and "tokenizer.json" in message, message


def test_a_word_that_nothing_stands_for_is_an_error(made, tmp_path):
    path = changed(made("word-level"), tmp_path, lambda d: d["model"].update(unk_token="[GONE]"))
    result = cairn("encode", "--tokenizer", path, "-", stdin=b"the xyzzyx\n")
    assert result.returncode != 0 and b"'xyzzyx' is not in the vocabulary" in result.stderr, result.stderr


def test_a_normalizer_that_makes_texts_huge_is_an_error(made, tmp_path):
    def change(described):
        double = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
        described["normalizer"] = {"type": "Sequence", "normalizers": [double] * 100}

    result = cairn("encode", "--tokenizer", changed(made("word-level"), tmp_path, change), "-", stdin=b"a\n")
    assert result.returncode != 0 and b"makes a text larger than" in result.stderr, result.stderr
