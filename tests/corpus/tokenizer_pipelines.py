"""Tokenizers of distinct pipelines, trained small by Hugging Face tokenizers. They are the same in each run."""

import json
import struct

from tokenizers import AddedToken, Regex, Tokenizer, models, trainers
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p

from bpe_testing import multilingual

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def isolated(pattern):
    return p.Split(Regex(pattern), "isolated")


def byte_level(prefix=False, use_regex=True):
    return p.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def sequence(*parts):
    return p.Sequence(list(parts))


def charsmap(pairs):
    """A precompiled_charsmap, that is a double-array trie and its replacements."""
    texts = b""
    root = {}
    for key, value in sorted(pairs.items()):
        node = root
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = len(texts)
        texts += value.encode() + b"\0"
    units = {0: 0}
    queue = [(root, 0)]
    free = 1
    while queue:
        node, place = queue.pop(0)
        # Children stand at offset ^ byte, and the value at the offset itself. Each node gets a block of its own.
        offset = free * 256
        free += 1
        relative = offset ^ place
        units[place] = (
            units.get(place, 0)
            | (relative << 10 if relative < 1 << 21 else (relative >> 8) << 10 | 1 << 9)
            | ((None in node) << 8)
        )
        if None in node:
            units[offset] = node[None] | 1 << 31
        for byte, child in node.items():
            if byte is not None:
                units[offset ^ byte] = byte
                queue.append((child, offset ^ byte))
    trie = b"".join(struct.pack("<I", units.get(i, 0xFF)) for i in range(free * 256))
    return struct.pack("<I", len(trie)) + trie + texts


CHARSMAP = charsmap(
    {
        "\t": " ",
        "\r": " ",
        "\r\n": " ",
        "\u00a0": " ",
        "\u3000": " ",
        "\u200b": "",
        "\u00ad": "",
        "ﬁ": "fi",
        "①": "1",
        "e\u0301": "é",
        "é": "é",
        "Å": "Å",
        "ｶ": "カ",
        "ｶﾞ": "ガ",
        "a\u0308": "ä",
        "™": "TM",
        "½": "1⁄2",
        "\u0344": "\u0308\u0301",
    }
)


def bpe(**arguments):
    return models.BPE(**arguments)


def bpe_trainer(**arguments):
    return trainers.BpeTrainer(vocab_size=900, show_progress=False, **arguments)


def with_alphabet():
    return bpe_trainer(initial_alphabet=p.ByteLevel.alphabet())


def unigram_trainer(**arguments):
    return trainers.UnigramTrainer(vocab_size=2500, show_progress=False, unk_token="<unk>", **arguments)


def fallback_trainer(**arguments):
    return trainers.BpeTrainer(vocab_size=1000, show_progress=False, special_tokens=["<unk>", *BYTES], **arguments)


def llama(**arguments):
    return bpe(byte_fallback=True, unk_token="<unk>", fuse_unk=True, **arguments)


LLAMA = n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")])
ADDED = [
    AddedToken("<mask>", lstrip=True, special=True, normalized=False),
    AddedToken("<r>", rstrip=True, special=True, normalized=False),
    AddedToken("<W>", single_word=True, normalized=False),
    AddedToken("Ünïcode Token", normalized=True),
    AddedToken("two  blanks", normalized=True, lstrip=True, rstrip=True),
]

# Cairn matches other regular expressions than published ones by PCRE2, which may know an older Unicode version.
EXPRESSIONS = {"deepseek", "split-contiguous", "split-inverted", "split-inverted-next", "clip"}

# name: normalizer, pre-tokenizer, model, trainer
PIPELINES = {
    "qwen2": (n.NFC(), sequence(isolated(QWEN2), byte_level(use_regex=False)), bpe(), with_alphabet()),
    "neox": (n.NFC(), byte_level(), bpe(), with_alphabet()),
    "nfkc-prefix": (n.NFKC(), byte_level(prefix=True), bpe(), with_alphabet()),
    "nfd": (n.NFD(), byte_level(), bpe(), with_alphabet()),
    "nfkd": (n.NFKD(), p.Whitespace(), bpe(unk_token="<unk>"), bpe_trainer(special_tokens=["<unk>"])),
    "deepseek": (
        None,
        sequence(
            isolated(r"\p{N}{1,3}"), isolated("[一-龥\u3040-ゟ゠-ヿ]+"), isolated(DEEPSEEK), byte_level(use_regex=False)
        ),
        bpe(),
        with_alphabet(),
    ),
    "digits-bytes": (None, sequence(p.Digits(individual_digits=True), byte_level()), bpe(), with_alphabet()),
    "digits-together": (None, sequence(p.Digits(), byte_level(prefix=True)), bpe(), with_alphabet()),
    "split-removed": (None, sequence(p.Split(" ", "removed"), byte_level(use_regex=False)), bpe(), with_alphabet()),
    "split-previous": (
        None,
        sequence(p.Split(Regex(r"[.,;]"), "merged_with_previous"), byte_level(use_regex=False)),
        bpe(),
        with_alphabet(),
    ),
    "split-next": (
        None,
        sequence(p.Split(Regex(r"\s"), "merged_with_next"), byte_level(use_regex=False)),
        bpe(),
        with_alphabet(),
    ),
    "split-contiguous": (
        None,
        sequence(p.Split(Regex(r"[aeiou ]"), "contiguous"), byte_level(use_regex=False)),
        bpe(),
        with_alphabet(),
    ),
    "split-inverted": (
        None,
        sequence(p.Split(Regex(r"\w+"), "removed", invert=True), byte_level(use_regex=False)),
        bpe(),
        with_alphabet(),
    ),
    "split-inverted-next": (
        None,
        sequence(p.Split(Regex(r"\w*"), "merged_with_next", invert=True), byte_level(use_regex=False)),
        bpe(),
        with_alphabet(),
    ),
    "byte-level-normalizer": (n.ByteLevel(), None, bpe(), with_alphabet()),
    "bytes-then-digits": (None, sequence(byte_level(), p.Digits()), bpe(), with_alphabet()),
    "bytes-unknown": (None, byte_level(), bpe(unk_token="<unk>", fuse_unk=True), bpe_trainer(special_tokens=["<unk>"])),
    "bytes-ignore-merges": (n.Lowercase(), byte_level(), bpe(ignore_merges=True), with_alphabet()),
    "llama": (LLAMA, None, llama(), fallback_trainer()),
    "mistral": (None, p.Metaspace(prepend_scheme="first", split=False), llama(), fallback_trainer()),
    "gemma": (n.Replace(" ", "▁"), p.Split(" ", "merged_with_previous"), llama(), fallback_trainer()),
    "llama-no-fuse": (LLAMA, None, bpe(byte_fallback=True, unk_token="<unk>"), bpe_trainer(special_tokens=["<unk>"])),
    "fallback-with-gaps": (LLAMA, None, llama(), bpe_trainer(special_tokens=["<unk>", *BYTES[:0xE5]])),
    "metaspace-always": (None, p.Metaspace(), llama(ignore_merges=True), fallback_trainer()),
    "metaspace-never": (
        None,
        p.Metaspace(replacement="_", prepend_scheme="never"),
        bpe(unk_token="<unk>"),
        bpe_trainer(special_tokens=["<unk>"]),
    ),
    "metaspace-first-stripped": (
        n.Strip(),
        p.Metaspace(prepend_scheme="first"),
        bpe(unk_token="<unk>"),
        bpe_trainer(special_tokens=["<unk>"]),
    ),
    "metaspace-first-replaced": (
        n.Replace(Regex(" {2,}"), " "),
        sequence(p.Punctuation(), p.Metaspace(prepend_scheme="first")),
        bpe(unk_token="<unk>"),
        bpe_trainer(special_tokens=["<unk>"]),
    ),
    "clip": (
        n.Sequence([n.NFC(), n.Replace(Regex(r"\s+"), " "), n.Lowercase()]),
        sequence(p.Whitespace(), p.Digits()),
        bpe(unk_token="<unk>", end_of_word_suffix="</w>"),
        bpe_trainer(special_tokens=["<unk>"], end_of_word_suffix="</w>"),
    ),
    "bpe-prefix": (
        None,
        p.BertPreTokenizer(),
        bpe(unk_token="<unk>", continuing_subword_prefix="##"),
        bpe_trainer(special_tokens=["<unk>"], continuing_subword_prefix="##"),
    ),
    "no-unknown": (None, p.WhitespaceSplit(), bpe(), bpe_trainer(limit_alphabet=60)),
    "t5": (n.Precompiled(CHARSMAP), p.Metaspace(), models.Unigram(), unigram_trainer(special_tokens=["<unk>"])),
    "xlm-roberta": (
        n.Sequence([n.Precompiled(CHARSMAP), n.Replace(Regex(" {2,}"), " ")]),
        sequence(p.WhitespaceSplit(), p.Metaspace()),
        models.Unigram(),
        unigram_trainer(special_tokens=["<unk>"]),
    ),
    "albert": (
        n.Sequence([n.Replace("``", '"'), n.Replace("''", '"'), n.NFKD(), n.StripAccents(), n.Lowercase(), n.Strip()]),
        p.Metaspace(),
        models.Unigram(),
        unigram_trainer(special_tokens=["<unk>"]),
    ),
    "unigram-scripts": (
        n.NFKC(),
        sequence(p.UnicodeScripts(), p.WhitespaceSplit()),
        models.Unigram(),
        unigram_trainer(special_tokens=["<unk>"]),
    ),
    "unigram-bytes": (None, p.Metaspace(), models.Unigram(), unigram_trainer(special_tokens=["<unk>", *BYTES])),
    "unigram-whole-text": (n.Nmt(), None, models.Unigram(), unigram_trainer(special_tokens=["<unk>"])),
    "bert": (
        n.BertNormalizer(),
        p.BertPreTokenizer(),
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(vocab_size=600, show_progress=False, special_tokens=["[UNK]"]),
    ),
    "bert-cased": (
        n.BertNormalizer(lowercase=False),
        p.BertPreTokenizer(),
        models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=9),
        trainers.WordPieceTrainer(vocab_size=600, show_progress=False, special_tokens=["[UNK]"]),
    ),
    "bert-dirty": (
        n.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False),
        p.Punctuation("merged_with_previous"),
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(vocab_size=600, show_progress=False, special_tokens=["[UNK]"]),
    ),
    "bert-accents": (
        n.BertNormalizer(strip_accents=False, lowercase=True),
        p.Punctuation("contiguous"),
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(
            vocab_size=600, show_progress=False, special_tokens=["[UNK]"], continuing_subword_prefix="@@"
        ),
    ),
    "word-level": (
        n.Sequence([n.NFD(), n.StripAccents(), n.Lowercase()]),
        p.Whitespace(),
        models.WordLevel(unk_token="[UNK]"),
        trainers.WordLevelTrainer(vocab_size=500, show_progress=False, special_tokens=["[UNK]"]),
    ),
    "word-level-characters": (
        n.Strip(left=True, right=False),
        p.Split(Regex(r"(?m:.)"), "isolated"),
        models.WordLevel(unk_token="[UNK]"),
        trainers.WordLevelTrainer(vocab_size=300, show_progress=False, special_tokens=["[UNK]"]),
    ),
    "char-delimiter": (
        None,
        p.CharDelimiterSplit("e"),
        models.WordLevel(unk_token="[UNK]"),
        trainers.WordLevelTrainer(vocab_size=300, show_progress=False, special_tokens=["[UNK]"]),
    ),
    "fixed-length": (
        None,
        p.FixedLength(3),
        models.WordLevel(unk_token="[UNK]"),
        trainers.WordLevelTrainer(vocab_size=300, show_progress=False, special_tokens=["[UNK]"]),
    ),
    "nothing": (
        None,
        None,
        models.WordLevel(unk_token="[UNK]"),
        trainers.WordLevelTrainer(vocab_size=300, show_progress=False, special_tokens=["[UNK]"]),
    ),
}


def make(name, directory):
    """Trains a pipeline, writes directory/tokenizer.json and returns its path."""
    normalizer, pre_tokenizer, model, trainer = PIPELINES[name]
    tokenizer = Tokenizer(model)
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    text = multilingual(60_000, 5) + "naïve Zürich İstanbul ΟΔΟΣ 12345 x=1; // ﬁn ½ <0x41>\n" * 3
    tokenizer.train_from_iterator([line[:200] for line in text.split("\n")], trainer)
    tokenizer.add_tokens(ADDED)
    path = directory / "tokenizer.json"
    described = json.loads(tokenizer.to_str())
    model_json = described["model"]
    # The trainers forget these, and make the bytes added tokens, which they are not in published files.
    if model_json["type"] == "BPE":
        model_json |= {"byte_fallback": model.byte_fallback, "ignore_merges": model.ignore_merges}
    elif model_json["type"] == "Unigram":
        model_json["byte_fallback"] = any(token == BYTES[0] for token, _ in model_json["vocab"])
    described["added_tokens"] = [token for token in described["added_tokens"] if token["content"] not in BYTES]
    path.write_text(json.dumps(described))
    return path
