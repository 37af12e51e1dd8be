"""`cairn corpus bpe encode` against Hugging Face tokenizers and tiktoken."""
import base64
import gzip
import json
import random

import pytest
import tiktoken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from bpe_testing import any_text, cairn, encode, multilingual, random_text, rng, to_bytes, train

pytestmark = pytest.mark.interop

RULES = ["gpt2", "gpt4", "cl100k", "llama3", "qwen2", "o200k", "whitespace"]
SPECIALS = ["<|endoftext|>", "<|end|>", "<|end|>x", "[SEP]"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "text"
    path.write_bytes((multilingual(250_000, 3) + random_text(rng(1), 20_000) + any_text(rng(2), 5000)).encode())
    return path


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            flags = [flag for special in SPECIALS for flag in ("--special-token", special)]
            train(corpus, made[name], 6000, "--pretokenizer", name, *flags)
        return made[name]

    return get


def some_lines(seed, count=250):
    r = rng(seed)
    lines = multilingual(40_000, seed).split("\n")
    for _ in range(count):
        lines.append(random_text(r, r.randrange(60)).replace("\n", "\t"))
        lines.append(any_text(r, r.randrange(1, 40)).replace("\n", ""))
        lines.append(random_text(r, r.randrange(20), [*SPECIALS, "<|", "|>", "end", "[SEP", " ", "a"]))
    lines += [
        "",
        " ",
        "\r",
        "a\r",
        "\t\t",
        "\x00",
        "\x00\x00a",
        "trailing  ",
        "a" * 5000,
        "=" * 300,
        " " * 999,
        "中" * 800,
    ]
    return lines


def joined(lines):
    return "".join(line + "\n" for line in lines).encode()


@pytest.mark.parametrize("name", RULES)
def test_encodes_as_hugging_face_does_with_our_files(trained, name):
    directory = trained(name)
    peer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    lines = some_lines(7)
    expected = [e.ids for e in peer.encode_batch(lines, add_special_tokens=False)]
    ours = encode(directory, joined(lines))
    for line, a, b in zip(lines, ours, expected, strict=True):
        assert a == b, repr(line)


@pytest.mark.parametrize("name", RULES)
def test_encodes_as_tiktoken_does(trained, name, tmp_path):
    directory = trained(name)
    ranks = {}
    for line in (directory / "tokenizer.tiktoken").read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    specials = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    step = tokenizer["pre_tokenizer"].get("pretokenizers", [None])[0]
    pattern = (
        step["pattern"]["Regex"]
        if step
        else r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    )
    if name == "cl100k":
        pattern = (
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
            r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        )
    peer = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    # tiktoken takes special tokens in the order of a hash map, so texts in which one token begins another are left to
    # the test above.
    lines = [line for line in some_lines(8) if "<|end|>x" not in line]
    ours = encode(directory / "tokenizer.tiktoken", joined(lines))
    for line, a in zip(lines, ours, strict=True):
        assert a == peer.encode(line, allowed_special="all"), repr(line)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n")), max_size=30))
def test_any_text(trained, lines):
    directory = trained("o200k")
    peer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert encode(directory, joined(lines)) == [peer.encode(line).ids for line in lines]


def test_binary_lines_come_back(trained):
    r = rng(4)
    lines = [bytes(r.choices([b for b in range(256) if b != 10], k=r.randrange(200))) for _ in range(500)]
    lines += [b"\xff" * 1000, b"\x00", b"\xc3", b"abc\xe4\xb8", b"\xed\xa0\x80"]
    for name in RULES:
        directory = trained(name)
        vocab = json.loads((directory / "vocab.json").read_text())
        tokens = {i: token.encode() if token in SPECIALS else to_bytes(token) for token, i in vocab.items()}
        ours = encode(directory, b"".join(line + b"\n" for line in lines))
        assert [b"".join(tokens[i] for i in ids) for ids in ours] == lines


def test_lines_and_files(trained, tmp_path):
    directory = trained("gpt2")
    assert encode(directory, b"") == []
    assert encode(directory, b"\n") == [[]]
    assert encode(directory, b"a\n\n") == [encode(directory, b"a")[0], []]
    assert encode(directory, b"a\r\nb") == [encode(directory, b"a\r")[0], encode(directory, b"b")[0]]
    lines = some_lines(5, 1500)
    data = joined(lines)
    expected = encode(directory, data, "--threads", 1)
    assert encode(directory, data, "--threads", 7) == expected
    (tmp_path / "text.gz").write_bytes(gzip.compress(data))
    result = cairn("encode", "--tokenizer", directory, tmp_path / "text.gz", "--output", tmp_path / "ids")
    assert result.returncode == 0 and result.stdout == b""
    assert [[int(i) for i in line.split()] for line in (tmp_path / "ids").read_text().splitlines()] == expected


def test_lines_of_megabytes(trained):
    directory = trained("gpt4")
    peer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    r = rng(6)
    lines = [
        (multilingual(300_000, 2) * 4).replace("\n", " "),
        "".join(r.choices("abcde", k=100_000)),
        "中文" * 50_000,
        "-" * 100_000,
        "short",
    ]
    assert encode(directory, joined(lines)) == [e.ids for e in peer.encode_batch(lines)]


@pytest.fixture(scope="module")
def pair(corpus, tmp_path_factory):
    """Trains a vocabulary as Hugging Face does, with special tokens first."""
    directory = tmp_path_factory.mktemp("pair")
    train(corpus, directory, 5000, "--tie-break", "huggingface", "--by-line")
    return directory


def test_gpt2_pair(pair, tmp_path):
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((pair / name).read_bytes())
    lines = some_lines(9)
    expected = encode(pair, joined([line.replace("<|endoftext|>", "") for line in lines]))
    assert encode(tmp_path, joined([line.replace("<|endoftext|>", "") for line in lines])) == expected
    assert encode(tmp_path / "vocab.json", b"<|endoftext|>a") == [[5000, *encode(pair, b"a")[0]]]
    vocab = json.loads((pair / "vocab.json").read_text())
    vocab["<|endoftext|>"] = 5000
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text((pair / "merges.txt").read_text().split("\n", 1)[1].replace("\n", "\r\n"))
    result = cairn(
        "encode", "--tokenizer", tmp_path / "vocab.json", "--merges", tmp_path / "merges.txt", "-",
        stdin=b"<|endoftext|>a b\n")
    assert [int(i) for i in result.stdout.split()] == [5000, *encode(pair, b"a b")[0]]


def build(pair, tmp_path, change):
    tokenizer = json.loads((pair / "tokenizer.json").read_text())
    change(tokenizer)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tokenizer))
    return path


def same_as_peer(path, lines):
    peer = Tokenizer.from_file(str(path))
    ours = encode(path, joined(lines))
    for line, a, b in zip(lines, ours, peer.encode_batch(lines, add_special_tokens=False), strict=True):
        assert a == b.ids, repr(line)


def split_by(pattern):
    def change(tokenizer):
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, level]}

    return change


# A tokenizer.json may hold these; they have all that Oniguruma reads otherwise than PCRE2.
OTHER_PATTERNS = [
    r"\p{Lu}?\p{Ll}+|[0-9]{2}",
    r"(?<= )\w+|x*",
    r"[\s\S]{1,7}",
    r"\d+|\s|[^\d\s]+",
    r"\w+|\W",
    r"\b|[\W_]{2}",
    r"\B.",
    r"[^\W\d]+|\S",
    r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^\p{Han}]]+|\p{Han}{1,3}|[a-f[x-z\p{P}]]+",
    r"[\w&&\D]+|\H\h?",
    r"^.|.$",
    r"(?m)a.+?b|(?i)THE.",
    r"(?:[a-z]{1,2})+x|\p{N}{1,3}+|\p{Nd}{2}+.",
    r"[[:punct:]]+|[^[:alpha:]\h]",
    r"(?i:[^a-f\W])++.?",
]


@pytest.mark.parametrize("pattern", OTHER_PATTERNS)
def test_other_regular_expressions(pair, tmp_path, pattern):
    # These characters are older than the Unicode version of either engine.
    lines = multilingual(30_000, 4).split("\n") + [
        "".join(map(chr, range(256))).replace("\n", ""),
        "a\u180eb \u200d\u0940",
    ]
    same_as_peer(
        build(pair, tmp_path, split_by(pattern)), [*lines, "ab1234567", "1234", "the\u2028The thx abx", "x" * 99]
    )


def test_switches_of_the_model_and_the_pretokenizer(pair, tmp_path):
    lines = some_lines(11, 60)

    def prefix(tokenizer):
        tokenizer["pre_tokenizer"]["add_prefix_space"] = True
        tokenizer["added_tokens"] = [dict(added("<|end|>", 6000))]

    same_as_peer(build(pair, tmp_path, prefix), lines)

    def whole(tokenizer):
        tokenizer["pre_tokenizer"]["use_regex"] = False

    same_as_peer(build(pair, tmp_path, whole), [line[:200] for line in lines])

    def ignore(tokenizer):
        tokenizer["model"]["ignore_merges"] = True
        tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:2000] + tokenizer["model"]["merges"][3000:3001]

    tokenizer = json.loads((pair / "tokenizer.json").read_text())
    first = {"".join(m) for m in tokenizer["model"]["merges"][:2000]}
    left, right = tokenizer["model"]["merges"][3000]
    if {left, right} <= first | {t for t in tokenizer["model"]["vocab"] if len(t) == 1}:
        same_as_peer(build(pair, tmp_path, ignore), lines)

    def strings(tokenizer):
        tokenizer["model"]["merges"] = [" ".join(m) for m in tokenizer["model"]["merges"]]

    same_as_peer(build(pair, tmp_path, strings), lines)

    def missing(tokenizer):
        gone = {"z", "Ĥ", "Q"}
        tokenizer["model"]["merges"] = [m for m in tokenizer["model"]["merges"] if not gone & set("".join(m))]
        tokenizer["model"]["vocab"] = {t: i for t, i in tokenizer["model"]["vocab"].items() if not gone & set(t)}

    same_as_peer(build(pair, tmp_path, missing), lines)

    def unknown(tokenizer):
        missing(tokenizer)
        tokenizer["model"]["vocab"]["<unk>"] = 7000
        tokenizer["model"]["unk_token"] = "<unk>"

    same_as_peer(build(pair, tmp_path, unknown), lines)


def added(content, number, **flags):
    token = {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False}
    return {**token, "normalized": False, "special": True, **flags}


def test_added_tokens(pair, tmp_path):
    tokens = [
        added("<mask>", 6000, lstrip=True),
        added("<right>", 6001, rstrip=True),
        added("word", 6002, single_word=True),
        added("<a>", 6003),
        added("<a>b", 6004),
        added("plain", 6005, special=False, normalized=True),
        added("plainly", 6006, special=False, normalized=True),
        added("lain", 6007),
    ]
    path = build(pair, tmp_path, lambda tokenizer: tokenizer.update(added_tokens=tokens))
    r = rng(12)
    pieces = [t["content"] for t in tokens] + [" ", "  ", "\u3000", "x", "é", "_", "-", "1", "中", "s", "<a", "ly"]
    same_as_peer(path, [random_text(r, r.randrange(1, 9), pieces) for _ in range(1500)])


def test_a_token_may_begin_in_the_white_space_that_another_took(pair, tmp_path):
    """The search goes on behind the token itself, not behind the blanks that belong to it by its flags."""
    tokens = [
        added("<right>", 6000, rstrip=True),
        added("<both>", 6001, lstrip=True, rstrip=True),
        added(" mid", 6002),
        added("    ", 6003),
        added("\t<tab>", 6004, lstrip=True),
        added(" word", 6005, single_word=True),
        added("  norm", 6006, special=False, normalized=True),
        added("<end>", 6007, rstrip=True, special=False, normalized=True),
        added(" ", 6008, special=False, normalized=True, rstrip=True),
        added(" ", 6009, lstrip=True, rstrip=True),
    ]
    r = rng(13)
    pieces = [t["content"] for t in tokens] + [" ", "  ", "   ", "\t", "\u3000", "x", "é", "mid", "<tab>"]
    for kept in (tokens[:9], tokens[:4], tokens[4:9], tokens[9:]):
        path = build(pair, tmp_path, lambda tokenizer: tokenizer.update(added_tokens=kept))
        same_as_peer(path, ["a<right> mid b", "a<right>  mid b", "a<right>     b"]
                     + [random_text(r, r.randrange(1, 9), pieces) for _ in range(1500)])


def test_ids_of_added_tokens_are_hugging_faces(pair, tmp_path):
    """Hugging Face numbers added tokens anew: as the vocabulary has them, else one after the other behind it."""
    known = json.loads((pair / "vocab.json").read_text())
    size = len(known)

    def change(tokenizer):
        tokenizer["added_tokens"] = [
            added("<a>", 9),
            added("the", 3),
            added("<b>", 70_000),
            added("<b>", 5),
            added("<far>", 1),
            added("<c>", size + 1),
        ]
        tokenizer["model"]["vocab"]["<far>"] = size + 50

    path = build(pair, tmp_path, change)
    same_as_peer(path, ["<a> the<b>x<c><far>", "<b>the the"])
    assert encode(path, b"<a><b><c>")[0] == [size + 1, size + 2, size + 3]


def test_damaged_and_unknown_files_are_refused(pair, tmp_path):
    def refused(change, reason, word):
        result = cairn("encode", "--tokenizer", build(pair, tmp_path, change), "-", stdin=b"text")
        assert result.returncode == 1 and reason in result.stderr and word in result.stderr, result.stderr

    refused(lambda t: t["model"].update(type="Unigram"), b"BAD_TOKENIZER", b"model.vocab is no list")
    refused(lambda t: t["model"].update(dropout=0.1), b"UNSUPPORTED", b"dropout")
    refused(lambda t: t["model"]["merges"].append(["a", "zzzz"]), b"BAD_TOKENIZER", b"zzzz")
    refused(lambda t: t["model"]["merges"].append("a b c"), b"BAD_TOKENIZER", b"not two tokens")
    refused(lambda t: t["model"]["vocab"].update(a=-1), b"BAD_TOKENIZER", b"id of 'a'")
    refused(lambda t: t["model"].pop("merges"), b"BAD_TOKENIZER", b"merges")
    refused(lambda t: t.pop("model"), b"BAD_TOKENIZER", b"model")
    (tmp_path / "x.tiktoken").write_text("IQ== 0\n")
    result = cairn("encode", "--tokenizer", tmp_path / "x.tiktoken", "--pretokenizer", "gpt2", "-", stdin=b"")
    assert result.returncode == 1 and b"256 single bytes" in result.stderr
    (tmp_path / "empty").mkdir()
    result = cairn("encode", "--tokenizer", tmp_path / "empty", "-", stdin=b"")
    assert result.returncode == 1 and b"INPUT_UNREADABLE" in result.stderr


@pytest.mark.parametrize("change", [
    lambda t: t.update(normalizer={"type": "NFC"}),
    lambda t: t["model"].update(byte_fallback=True),
    lambda t: t["model"].update(end_of_word_suffix="</w>"),
    lambda t: t.update(pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}),
    lambda t: t.update(pre_tokenizer=None),
])
def test_files_that_are_not_byte_level_bpe_are_read_too(pair, tmp_path, change):
    path = build(pair, tmp_path, change)
    lines = [line for line in some_lines(9, 30) if line]
    expected = [e.ids for e in Tokenizer.from_file(str(path)).encode_batch(lines, add_special_tokens=False)]
    assert encode(path, joined(lines)) == expected


def test_damaged_files_never_crash(pair, tmp_path):
    """Flips, cuts and doubles parts of all four kinds of files. The result must be ids or an error, never a signal."""
    r = random.Random(0)
    for name in ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer.tiktoken"):
        content = (pair / name).read_bytes()
        for i in range(12):
            data = bytearray(content if i % 4 == 0 else content[:3000])
            for _ in range(r.randrange(1, 5)):
                at = r.randrange(len(data))
                if r.random() < 0.4:
                    data[at] = r.randrange(256)
                elif r.random() < 0.5:
                    del data[at : at + r.randrange(1, 50)]
                else:
                    data[at:at] = data[at : at + r.randrange(1, 50)]
            directory = tmp_path / f"{name}-{i}"
            directory.mkdir()
            for other in ("vocab.json", "merges.txt"):
                (directory / other).write_bytes((pair / other).read_bytes())
            (directory / name).write_bytes(data)
            target = directory / ("vocab.json" if name == "merges.txt" else name)
            result = cairn("encode", "--tokenizer", target, "--pretokenizer", "gpt2", "-", stdin=b"some text\n")
            assert result.returncode in (0, 1), (name, i, result.stderr)
            assert result.returncode == 0 or result.stderr.startswith(b"error: "), result.stderr
