"""Compares WordPiece with the installed `tokenizers`, for every character, and for text made of what is hard."""
import os
import random
import sys
import unicodedata

import pytest

from preprocess_peer import SPECIAL, BertPeer, assert_same_pairs, cairn_preprocess, preprocess, write_jsonl

pytestmark = pytest.mark.interop

KINDS = [("BertWordPieceCase", False), ("BertWordPieceLowerCase", True)]


@pytest.fixture(scope="module")
def characters():
    """Are all scalar values with CAIRN_EXHAUSTIVE=1 (minutes); without it, the assigned ones and a sample of the large
    uniform blocks."""
    exhaustive = os.environ.get("CAIRN_EXHAUSTIVE") == "1"
    return [c for c in map(chr, range(sys.maxunicode + 1)) if not 0xD800 <= ord(c) < 0xE000 and
            (exhaustive or ord(c) % 61 == 0 or unicodedata.category(c) not in ("Lo", "Cn", "Co") or ord(c) < 0x3400)]


@pytest.fixture(scope="module")
def all_characters(tmp_path_factory, characters):
    """Makes a vocabulary with every character, alone and continuing, so ids tell exactly what the normalizer made."""
    path = tmp_path_factory.mktemp("vocab") / "all.txt"
    # A character that is trimmed at the end of a line cannot be an entry.
    results = {d for c in characters for form in (c, c.lower(), unicodedata.normalize("NFD", c.lower())) for d in form}
    entries = sorted(c for c in results if not c.isspace() and c not in "\x1c\x1d\x1e\x1f")
    path.write_text("\n".join(SPECIAL + entries + ["##" + c for c in entries]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("kind,lower_case", KINDS)
def test_every_character(tmp_path, characters, all_characters, kind, lower_case):
    """Each character stands between letters, alone, and between marks that may be reordered."""
    records = []
    for first in range(0, len(characters), 1024):
        block = characters[first : first + 1024]
        records += [{"text": " ".join(f"a{c}b" for c in block)}, {"text": " ".join(block)}]
        # Letters and unassigned characters cannot take part in reordering; leaving them out halves the time.
        marks = [c for c in block if unicodedata.category(c) not in ("Lo", "Cn", "Co")]
        records.append({"text": " ".join(f"x\u302e{c}\U0001d165y" for c in marks)})
    source = write_jsonl(tmp_path / "in.jsonl", records)
    peer = BertPeer(all_characters, lower_case)
    preprocess([source], tmp_path / "peer", peer)
    cairn_preprocess("--input", source, "--output-prefix", tmp_path / "ours", "--tokenizer-type", kind,
                     "--vocab-file", all_characters, "--workers", 2)
    assert_same_pairs(tmp_path / "peer", tmp_path / "ours")


def hard_text(rng, words):
    """Returns random text of words, marks, controls, ideographs and special strings."""
    pick = rng.choice
    parts = []
    for _ in range(rng.randrange(0, 80)):
        roll = rng.random()
        if roll < 0.5:
            word = pick(words)
            parts.append(pick([word, word.upper(), word.capitalize(), word + pick(words)]))
        elif roll < 0.6:
            parts.append(pick([" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "\x0b", "\x85", "\x00"]))
        elif roll < 0.7:
            parts.append(pick(".,!?;:'\"()[]{}<>#@-_/\\|~`$%^&*+="))
        elif roll < 0.75:
            parts.append(pick(SPECIAL + ["<extra_id_0>", "<extra_id_99>", "<extra_id_100>", "[sep]", "[ SEP]"]))
        elif roll < 0.85:
            parts.append("".join(chr(rng.choice([rng.randrange(0x20, 0x250), rng.randrange(0x300, 0x370),
                                                  rng.randrange(0x370, 0x600), rng.randrange(0x900, 0x1200),
                                                  rng.randrange(0x1E00, 0x2100)])) for _ in range(rng.randrange(1, 6))))
        elif roll < 0.9:
            parts.append("".join(chr(rng.randrange(0x4E00, 0x5000)) for _ in range(rng.randrange(1, 9))))
        elif roll < 0.95:
            parts.append("".join(chr(rng.randrange(0xAC00, 0xD7A4)) for _ in range(rng.choice([1, 3, 33, 34]))))
        else:
            parts.append(rng.choice("ab\u00e9\u0130\u03a3") * rng.choice([1, 2, 30, 31, 32, 99, 100, 101, 200, 201]))
        if rng.random() < 0.6:
            parts.append(" ")
    return "".join(parts)


WORDS = ("the of and checkpoint training tokens unaffable playing players word piece data naive cafe Zürich naïve "
         "straße ἀρχή ΟΔΟΣ Москва istanbul İstanbul don't it’s 1,000.5 x²").split()


@pytest.fixture(scope="module")
def small_vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "small.txt"
    rng = random.Random(5)
    pieces = {}
    for word in WORDS:
        for form in (word, word.lower(), unicodedata.normalize("NFD", word.lower())):
            for _ in range(6):
                i, j = sorted((rng.randrange(len(form) + 1), rng.randrange(len(form) + 1)))
                if i < j:
                    pieces[("##" if i else "") + form[i:j]] = None
    for c in map(chr, [*range(0x21, 0x250), *range(0x370, 0x500), *range(0x1100, 0x1200), *range(0x4E00, 0x4F80)]):
        if not c.isspace() and rng.random() < 0.8:
            pieces[c] = pieces["##" + c] = None
    path.write_text("\n".join(SPECIAL + list(pieces)) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("kind,lower_case", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_random_text(tmp_path, small_vocabulary, kind, lower_case, seed):
    rng = random.Random(seed)
    records = [{"text": hard_text(rng, WORDS)} for _ in range(500)]
    source = write_jsonl(tmp_path / "in.jsonl", records)
    preprocess([source], tmp_path / "peer", BertPeer(small_vocabulary, lower_case))
    cairn_preprocess("--input", source, "--output-prefix", tmp_path / "ours", "--tokenizer-type", kind,
                     "--vocab-file", small_vocabulary, "--workers", 2)
    assert_same_pairs(tmp_path / "peer", tmp_path / "ours")


def test_a_planted_difference_is_seen(tmp_path, small_vocabulary):
    """The comparison itself can fail: one word of one document changed."""
    rng = random.Random(1)
    records = [{"text": hard_text(rng, WORDS) + " data"} for _ in range(50)]
    preprocess([write_jsonl(tmp_path / "a.jsonl", records)], tmp_path / "peer", BertPeer(small_vocabulary, False))
    records[20]["text"] = records[20]["text"][:-4] + "Data"
    changed = write_jsonl(tmp_path / "b.jsonl", records)
    cairn_preprocess("--input", changed, "--output-prefix", tmp_path / "ours", "--tokenizer-type",
                     "BertWordPieceCase", "--vocab-file", small_vocabulary)
    with pytest.raises(AssertionError):
        assert_same_pairs(tmp_path / "peer", tmp_path / "ours")


VOCABULARIES = {
    "crlf": "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\nhello\r\n##s\r\n",
    "no last newline": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n##s",
    "trailing blanks": "[PAD]\n[UNK] \n[CLS]\t\n[SEP]\u3000\n[MASK]\nhello \n##s\u2029\n",
    "specials missing": "hello\n[UNK]\n##s\nworld\n",
    "lines repeated": "x\nx\n[UNK]\nhello\n\n##s\nhello\n",
    "blank lines": "[PAD]\n\n[UNK]\n\n[CLS]\n[SEP]\n[MASK]\nhello\n##s\n\n\n",
}


@pytest.mark.parametrize("kind,lower_case", KINDS)
@pytest.mark.parametrize("name", VOCABULARIES)
def test_vocabulary_files(tmp_path, kind, lower_case, name):
    vocab = tmp_path / "vocab.txt"
    vocab.write_bytes(VOCABULARIES[name].encode())
    source = write_jsonl(
        tmp_path / "in.jsonl", [{"text": "hellos hello x world [SEP] [MASK] <extra_id_7>"}, {"text": ""}]
    )
    preprocess([source], tmp_path / "peer", BertPeer(vocab, lower_case), append_eod=True)
    cairn_preprocess("--input", source, "--output-prefix", tmp_path / "ours", "--tokenizer-type", kind, "--vocab-file",
                     vocab, "--append-eod")
    assert_same_pairs(tmp_path / "peer", tmp_path / "ours")


def legacy_words(text, lower_case):
    """Is the original BERT's basic tokenizer, from its description, with the Unicode version of this Python."""
    category = unicodedata.category
    out = []
    for c in text:
        code = ord(c)
        if c in "\t\n\r" or category(c) == "Zs":
            out.append(" ")
        elif code in (0, 0xFFFD) or category(c) in ("Cc", "Cf"):
            continue
        elif any(a <= code <= b for a, b in ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
                                             (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF),
                                             (0x2F800, 0x2FA1F))):
            out.append(f" {c} ")
        else:
            out.append(c)
    words = []
    for token in "".join(out).split():
        if lower_case:
            token = "".join(c for c in unicodedata.normalize("NFD", token.lower()) if category(c) != "Mn")
        word = ""
        for c in token:
            if (33 <= ord(c) <= 126 and not c.isalnum()) or category(c).startswith("P"):
                words += [word, c]
                word = ""
            else:
                word += c
        words.append(word)
    return [word for word in words if word]


class LegacyPeer:
    def __init__(self, vocab, lower_case):
        self.vocab = {line.strip(): i for i, line in enumerate(vocab.read_text(encoding="utf-8").split("\n")[:-1])}
        self.size = len(self.vocab) + 2
        self.lower_case = lower_case
        self.eod = len(self.vocab) + 1

    def __len__(self):
        return self.size

    def __call__(self, text):
        ids = []
        for word in legacy_words(text, self.lower_case):
            pieces, start = [], 0
            while start < len(word) and len(word) <= 200:
                end = next(
                    (e for e in range(len(word), start, -1) if ("##" if start else "") + word[start:e] in self.vocab),
                    None,
                )
                if end is None:
                    pieces = []
                    break
                pieces.append(self.vocab[("##" if start else "") + word[start:end]])
                start = end
            ids += pieces or [self.vocab["[UNK]"]]
        return ids


@pytest.mark.parametrize("kind,lower_case", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_legacy(tmp_path, small_vocabulary, kind, lower_case, seed):
    rng = random.Random(100 + seed)
    greek = [
        "\u039f\u0394\u039f\u03a3",
        "\u03a3",
        "\u0391\u03a3.",
        "\u0391\u03a3\u2019\u0391",
        "A\u03a3\u00adB",
        "\u03a3\u4e00",
    ]
    records = [{"text": hard_text(rng, WORDS + greek)} for _ in range(300)]
    source = write_jsonl(tmp_path / "in.jsonl", records)
    preprocess([source], tmp_path / "peer", LegacyPeer(small_vocabulary, lower_case), append_eod=True)
    cairn_preprocess("--input", source, "--output-prefix", tmp_path / "ours", "--tokenizer-type", kind, "--vocab-file",
                     small_vocabulary, "--tokenizer-legacy-wordpiece", "--append-eod")
    assert_same_pairs(tmp_path / "peer", tmp_path / "ours")


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="the legacy tables are those of Unicode 14.0.0")
@pytest.mark.parametrize("kind,lower_case", KINDS)
def test_legacy_every_character(tmp_path, characters, all_characters, kind, lower_case):
    records = []
    for first in range(0, len(characters), 1024):
        block = characters[first : first + 1024]
        records.append({"text": " ".join(f"a{c}b x\u302e{c}\U0001d165 A{c}\u03a3" for c in block)})
    source = write_jsonl(tmp_path / "in.jsonl", records)
    preprocess([source], tmp_path / "peer", LegacyPeer(all_characters, lower_case))
    cairn_preprocess("--input", source, "--output-prefix", tmp_path / "ours", "--tokenizer-type", kind, "--vocab-file",
                     all_characters, "--tokenizer-legacy-wordpiece", "--workers", 2)
    assert_same_pairs(tmp_path / "peer", tmp_path / "ours")
