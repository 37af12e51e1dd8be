"""What the tests of `cairn corpus bpe` share."""
import functools
import importlib.util
import json
import os
import pathlib
import random
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", ROOT / "dist" / "bin")) / "cairn"
EXHAUSTIVE = bool(os.environ.get("CAIRN_EXHAUSTIVE"))


def cairn(*arguments, stdin=None, timeout=120):
    return subprocess.run(
        [CAIRN, "corpus", "bpe", *map(str, arguments)], input=stdin, capture_output=True, timeout=timeout
    )


def train(inputs, output, vocab_size, *flags):
    inputs = inputs if isinstance(inputs, list) else [inputs]
    result = cairn("train", *inputs, "--vocab-size", vocab_size, "--output", output, *flags)
    assert result.returncode == 0, result.stderr.decode()
    return load(output)


def load(directory):
    """Returns (vocab by printable token, merges) of an output directory, after checking that its files agree."""
    directory = pathlib.Path(directory)
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    vocab = json.loads((directory / "vocab.json").read_text())
    lines = (directory / "merges.txt").read_text().split("\n")
    assert lines[0].startswith("#version") and lines[-1] == ""
    merges = [tuple(line.split(" ")) for line in lines[1:-1]]
    assert tokenizer["model"]["vocab"] == vocab
    assert [tuple(pair) for pair in tokenizer["model"]["merges"]] == merges
    assert sorted(vocab.values()) == list(range(len(vocab)))
    return vocab, merges


def encode(tokenizer, data, *flags):
    """Returns the ids of each line of `data` (bytes)."""
    result = cairn("encode", "--tokenizer", tokenizer, "-", *flags, stdin=data)
    assert result.returncode == 0, result.stderr.decode()
    lines = result.stdout.split(b"\n")
    assert lines.pop() == b""
    return [[int(i) for i in line.split()] for line in lines]


def byte_to_unicode():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    mapping = {b: chr(b) for b in printable}
    for b in range(256):
        if b not in mapping:
            mapping[b] = chr(256 + len(mapping) - len(printable))
    return mapping


BYTE_TO_UNICODE = byte_to_unicode()
UNICODE_TO_BYTE = {c: b for b, c in BYTE_TO_UNICODE.items()}


def to_bytes(token):
    return bytes(UNICODE_TO_BYTE[c] for c in token)


def from_bytes(data):
    return "".join(BYTE_TO_UNICODE[b] for b in data)


spec = importlib.util.spec_from_file_location("multilingual_text", ROOT / "benchmarks/corpus/multilingual_text.py")
multilingual_text = importlib.util.module_from_spec(spec)
spec.loader.exec_module(multilingual_text)


@functools.cache
def multilingual(size, seed):
    """Returns text of many scripts, from few words so that it is made quickly."""
    return b"".join(multilingual_text.lines(size, seed, words=400)).decode()


PIECES = (
    ["a", "b", "the", "ing", "S", "s", "T", "re", "LL", "'", "'s", "'S", "'\u017f", "'ll", "'VE", "1", "23", "4567"]
    + [" ", " ", " ", "  ", "\n", "\r\n", "\n\n", "\t", "\x0b", "\x0c", "\x1c", "\x00", "!", "?!", "/", "_", "-", "//"]
    + [
        "\xa0", "\x85", "\u2028", "\u3000", "\u200b", "\ufeff", "\u180e", "中", "文字", "。", "é", "É", "e\u0301",
        "\u0301"]
    + [
        "Ж", "жа", "ǅ", "ʰ", "٣", "½", "Ⅷ", "😀", "👩\u200d🔬", "नि", "한", "ไทย", "ß", "ı", "İ", "𝔘", "\ue000",
        "\U0010ffff"]
)


def random_text(rng, count, pieces=PIECES):
    return "".join(rng.choice(pieces) for _ in range(count))


def any_text(rng, count):
    """Returns characters from everywhere, also unassigned ones."""
    result = []
    while len(result) < count:
        c = rng.randrange(rng.choice((0x80, 0x800, 0x3000, 0x10000, 0x32000, 0x110000)))
        if not 0xD800 <= c < 0xE000:
            result.append(chr(c) * rng.choice((1, 1, 1, 2)))
            if rng.random() < 0.4:
                result.append(rng.choice(PIECES))
    return "".join(result)


def rng(seed):
    return random.Random(seed)
