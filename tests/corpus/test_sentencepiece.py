"""`cairn corpus bpe encode` with SentencePiece's .model files, against SentencePiece itself."""

import pytest

from bpe_testing import EXHAUSTIVE, PIECES, any_text, cairn, encode, multilingual, random_text, rng

sentencepiece = pytest.importorskip("sentencepiece")

pytestmark = pytest.mark.interop

USER = ["<user>", "\u2581=\u2581", "\n\n", "中文", "aa", "aaa"]
MODELS = {
    "unigram": dict(model_type="unigram"),
    "bpe": dict(model_type="bpe"),
    "llama": dict(
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
    ),
    "gemma": dict(
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        user_defined_symbols=USER,
    ),
    "unigram-bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="nmt_nfkc_cf"),
    "unigram-control": dict(model_type="unigram", control_symbols=["<ctrl>"]),
    "bpe-user": dict(model_type="bpe", user_defined_symbols=USER, control_symbols=["<ctrl>"]),
    "bpe-suffix": dict(model_type="bpe", treat_whitespace_as_suffix=True, normalization_rule_name="nfkc"),
    "unigram-suffix": dict(model_type="unigram", treat_whitespace_as_suffix=True, split_by_whitespace=False),
    "bpe-over-words": dict(
        model_type="bpe", split_by_whitespace=False, split_by_number=False, split_by_unicode_script=False
    ),
    "few-characters": dict(model_type="bpe", character_coverage=0.98),
    "few-characters-unigram": dict(model_type="unigram", character_coverage=0.98),
}
ODD = [
    "",
    " ",
    "  a  b ",
    "\r",
    "\t\t",
    "\x00a",
    "▁",
    "▁▁a ▁b",
    "a" * 2000,
    " " * 300,
    "中" * 300,
    "<unk>",
    "<s>a</s>",
    "<ctrl>",
    "<user>x <user>",
    "a = b=c = ",
    "中文中文字",
    "aaaaaaa",
    "<0x41>",
    "e\u0301e\u0301",
    "ﬁ①™½ｶﾞ",
    "xyzzy≠∑≠≠",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    paths = {}

    def get(name):
        if name not in paths:
            prefix = tmp_path_factory.mktemp(name) / "spm"
            text = multilingual(60_000, 5) + "int main() { return a[0] = b; }  123 4567\n" * 5
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter([line[:300] for line in text.split("\n")]),
                model_prefix=str(prefix),
                vocab_size=2200,
                hard_vocab_limit=False,
                num_threads=1,
                minloglevel=2,
                **MODELS[name],
            )
            paths[name] = prefix.with_suffix(".model")
        return paths[name]

    return get


def assert_same(path, lines):
    """`lines` are bytes."""
    peer = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ours = encode(path, b"".join(line + b"\n" for line in lines))
    for line, ids in zip(lines, ours, strict=True):
        assert ids == peer.encode(line, out_type=int), line


@pytest.mark.parametrize("name", MODELS)
def test_encodes_as_sentencepiece_does(made, name):
    r = rng(21)
    lines = multilingual(15_000, 21).split("\n") + ODD
    pieces = [*PIECES, "▁", "<user>", " = ", "中文", "aa", "<ctrl>", "<s>", "///", "aaaa"]
    for _ in range(3000 if EXHAUSTIVE else 200):
        lines.append(random_text(r, r.randrange(50), pieces).replace("\n", "\t"))
        lines.append(any_text(r, r.randrange(1, 40)).replace("\n", ""))
    assert_same(made(name), [line.encode() for line in lines])


@pytest.mark.parametrize("name", MODELS)
def test_each_character(made, name):
    step = 1 if EXHAUSTIVE else 97
    scalars = [*range(0x250), *range(0x250, 0x30000, step), *range(0x30000, 0x110000, step * 53)]
    characters = [chr(c) for c in scalars if c != 10 and not 0xD800 <= c < 0xE000]
    assert_same(made(name), [f"a{c}b {c}".encode() for c in characters])


@pytest.mark.parametrize("name", MODELS)
def test_bytes_that_are_no_text(made, name):
    r = rng(22)
    lines = [bytes(r.choices([b for b in range(256) if b != 10], k=r.randrange(60))) for _ in range(400)]
    assert_same(made(name), [*lines, b"\xff" * 50, b"a\xc3", b"\xe4\xb8", b"\xed\xa0\x80x", b"\xf0\x9f\x98"])


def test_damaged_models_are_refused(made, tmp_path):
    content = made("bpe").read_bytes()
    r = rng(23)
    cases = [b"", b"x", content[: len(content) // 2], b"IQ== 0\nIg== 1\n"]
    for _ in range(60):
        changed = bytearray(content)
        for _ in range(r.randrange(1, 20)):
            changed[r.randrange(len(changed))] = r.randrange(256)
        cases.append(bytes(changed))
    for case in cases:
        (tmp_path / "tokenizer.model").write_bytes(case)
        result = cairn("encode", "--tokenizer", tmp_path, "-", stdin=b"some text\n")
        assert result.returncode == 0 or b"tokenizer.model" in result.stderr, result.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (dict(model_type="word"), b"type 3"),
        (dict(model_type="char"), b"type 4"),
        (dict(model_type="unigram", user_defined_symbols=["<user>"]), b"a user-defined piece ('<user>')"),
    ],
)
def test_other_types_are_refused_by_name(tmp_path, flags, words):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e ab cd"] * 9),
        model_prefix=str(tmp_path / "other"),
        vocab_size=12,
        hard_vocab_limit=False,
        minloglevel=2,
        **flags,
    )
    result = cairn("encode", "--tokenizer", tmp_path / "other.model", "-", stdin=b"a\n")
    assert result.returncode != 0 and b"UNSUPPORTED" in result.stderr and words in result.stderr, result.stderr
