"""`cairn corpus bpe train` against Hugging Face's trainer, a slow oracle, and itself."""
import base64
import collections
import gzip
import itertools
import json
import os
import subprocess

import pytest
import regex
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from bpe_testing import EXHAUSTIVE, any_text, cairn, from_bytes, multilingual, random_text, rng, to_bytes, train

pytestmark = pytest.mark.interop

PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "gpt4": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",  # noqa: E501
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",  # noqa: E501
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",  # noqa: E501
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",  # noqa: E501
    "whitespace": r"\S+|\s+",
}


def hugging_face(texts, vocab_size, pattern=None, specials=(), min_frequency=0, files=None):
    tokenizer = Tokenizer(models.BPE())
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    if files:
        tokenizer.train([str(f) for f in files], trainer)
    else:
        tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())


def agree(ours, theirs):
    vocab, merges = ours
    assert merges == [tuple(pair) for pair in theirs["model"]["merges"]]
    assert vocab == theirs["model"]["vocab"]


@pytest.mark.parametrize("seed, vocab_size", [(0, 300), (1, 4000), (2, 60000)])
def test_by_line_gives_hugging_faces_merges(tmp_path, seed, vocab_size):
    path = tmp_path / "text"
    path.write_text(multilingual(150_000, seed))
    ours = train(path, tmp_path / "out", vocab_size, "--tie-break", "huggingface", "--by-line")
    agree(ours, hugging_face(None, vocab_size, files=[path]))


@pytest.mark.parametrize("name", PATTERNS)
def test_whole_texts_give_hugging_faces_merges_with_every_pretokenizer(tmp_path, name):
    r = rng(5)
    paths, texts = [], []
    for i in range(4):
        text = random_text(r, 4000) + any_text(r, 2000) + multilingual(20_000, i)
        paths.append(tmp_path / f"text{i}")
        paths[-1].write_bytes(text.encode())
        texts.append(text)
    ours = train(paths, tmp_path / "out", 6000, "--tie-break", "huggingface", "--pretokenizer", name)
    agree(ours, hugging_face(texts, 6000, PATTERNS[name]))


@pytest.mark.parametrize("seed", range(12))
def test_repetitive_words_give_hugging_faces_merges(tmp_path, seed):
    """The words have tokens that two paths lead to, overlapping pairs, and ties everywhere."""
    r = rng(seed)
    alphabet = "ab" if seed % 2 else "abc"
    words = ["".join(r.choices(alphabet, k=r.choice((2, 3, 5, 8, 13, 21)))) for _ in range(60 + 40 * seed)]
    text = " ".join(r.choice(words) for _ in range(len(words) * r.choice((1, 2, 5))))
    path = tmp_path / "text"
    path.write_text(text)
    vocab_size = r.choice((300, 700, 3000))
    agree(train(path, tmp_path / "out", vocab_size, "--tie-break", "huggingface"), hugging_face([text], vocab_size))


@pytest.mark.parametrize("minimum", [2, 7, 1000])
def test_min_frequency_and_special_tokens_as_hugging_face(tmp_path, minimum):
    path = tmp_path / "text"
    path.write_text(multilingual(60_000, 9))
    specials = ["<|endoftext|>", "[PAD]"]
    flags = ["--tie-break", "huggingface", "--by-line", "--min-frequency", minimum]
    for special in specials:
        flags += ["--special-token", special]
    ours = train(path, tmp_path / "out", 5000, *flags)
    theirs = hugging_face(None, 5000, specials=specials, min_frequency=minimum, files=[path])
    agree(ours, theirs)
    assert Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).get_vocab_size() == len(ours[0])


@pytest.mark.skipif(not EXHAUSTIVE, reason="CAIRN_EXHAUSTIVE is not set")
def test_every_code_point_is_classed_as_hugging_face_does(tmp_path):
    """Words are merged whole, so that a character of another class would show as another merge."""
    for name in ("gpt2", "gpt4", "o200k"):
        for start in range(0, 0x110000, 0x4000):
            characters = [chr(c) for c in range(start, start + 0x4000) if not 0xD800 <= c < 0xE000]
            text = "".join(f"a{c}b {c}1{c}!{c}'{c}" for c in characters)
            path = tmp_path / "text"
            path.write_bytes(text.encode())
            ours = train(path, tmp_path / "out", 40000, "--tie-break", "huggingface", "--pretokenizer", name)
            agree(ours, hugging_face([text], 40000, PATTERNS[name]))


def oracle(texts, merge_count, pattern, specials=(), minimum=1):
    """Counts all pairs anew for every merge, and takes the greatest pair of byte strings among equal ones."""
    counts = collections.Counter()
    cut = (
        regex.compile("|".join(regex.escape(s) for s in sorted(specials, key=len, reverse=True))) if specials else None
    )
    for text in texts:
        for piece in cut.split(text) if cut else [text]:
            counts.update(m.group().encode() for m in regex.finditer(pattern, piece))
    words = {word: [word[i : i + 1] for i in range(len(word))] for word in counts}
    merges = []
    for _ in range(merge_count):
        pairs = collections.Counter()
        for word, parts in words.items():
            for pair in itertools.pairwise(parts):
                pairs[pair] += counts[word]
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        if pairs[best] < minimum:
            break
        merges.append(best)
        for word, parts in words.items():
            merged, i = [], 0
            while i < len(parts):
                if tuple(parts[i : i + 2]) == best:
                    merged.append(parts[i] + parts[i + 1])
                    i += 2
                else:
                    merged.append(parts[i])
                    i += 1
            words[word] = merged
    return merges


def check_oracle(tmp_path, texts, vocab_size, name="gpt2", specials=(), minimum=1, by_line=False):
    paths = []
    for i, text in enumerate(texts):
        paths.append(tmp_path / f"in{i}")
        paths[-1].write_bytes(text.encode())
    flags = ["--pretokenizer", name, "--min-frequency", minimum]
    for special in specials:
        flags += ["--special-token", special]
    if by_line:
        flags.append("--by-line")
        texts = [line for text in texts for line in text.splitlines(keepends=True)]
    vocab, merges = train(paths, tmp_path / "out", vocab_size, *flags)
    expected = oracle(texts, vocab_size - 256 - len(set(specials)), PATTERNS[name], specials, minimum)
    assert [(to_bytes(a), to_bytes(b)) for a, b in merges] == expected
    for b in range(256):
        assert vocab[from_bytes(bytes([b]))] == b
    for i, special in enumerate(specials):
        assert vocab[special] == len(vocab) - len(specials) + i
    return vocab, merges


@pytest.mark.parametrize("name", PATTERNS)
def test_bytes_ties_follow_the_oracle(tmp_path, name):
    r = rng(3)
    check_oracle(tmp_path, [random_text(r, 400), multilingual(6000, 2), ""], 420, name)


@pytest.mark.parametrize("seed", range(10))
def test_bytes_ties_follow_the_oracle_on_ambiguous_words(tmp_path, seed):
    r = rng(seed)
    words = ["".join(r.choices("ab" if seed % 2 else "aab=", k=r.randrange(1, 14))) for _ in range(50)]
    check_oracle(tmp_path, [" ".join(r.choices(words, k=80))], 256 + 120, minimum=r.choice((1, 2)))


def test_special_tokens_cut_leftmost_then_longest_and_are_not_counted(tmp_path):
    specials = ["<|a|>", "<|a|>b", "|>b<", "xx yy", "endoftext"]
    text = "low<|a|>bow low <|a|>b<low xx yy lowendoftextlow  <|a|><|a|> xx  yy" * 7
    vocab, merges = check_oracle(tmp_path, [text], 300, specials=specials)
    assert not any("|" in a + b for a, b in merges)


def test_by_line_reads_lines_with_their_newlines(tmp_path):
    text = "one two\r\n\n\n  three\n\n four  \nfive\n\n\n" * 5 + "last"
    check_oracle(tmp_path, [text], 300, by_line=True)
    assert check_oracle(tmp_path, [text], 300, "gpt4") != check_oracle(tmp_path, [text], 300, "gpt4", by_line=True)


def test_a_planted_change_of_the_corpus_is_seen(tmp_path):
    """The comparison above can fail: one more occurrence of a word changes the merges."""
    path = tmp_path / "text"
    path.write_text("aab aab zzy zzy")
    first = train(path, tmp_path / "out", 258)[1]
    path.write_text("aab aab aab zzy zzy")
    assert train(path, tmp_path / "out", 258)[1] != first


def test_compressed_and_json_lines_are_the_same_text(tmp_path):
    r = rng(1)
    documents = [random_text(r, 200) for _ in range(300)]
    text = "".join(documents).encode()
    (tmp_path / "plain").write_bytes(text)
    expected = train(tmp_path / "plain", tmp_path / "out", 800)
    half = len(text) // 2
    (tmp_path / "text.gz").write_bytes(gzip.compress(text[:half]) + gzip.compress(text[half:]))
    assert train(tmp_path / "text.gz", tmp_path / "out", 800) == expected
    subprocess.run(["zstd", "-q", tmp_path / "plain", "-o", tmp_path / "text.zst"], check=True)
    assert train(tmp_path / "text.zst", tmp_path / "out", 800) == expected
    subprocess.run(["xz", "-k", tmp_path / "plain"], check=True)
    assert train(tmp_path / "plain.xz", tmp_path / "out", 800) == expected

    for name, key in (("text.jsonl", None), ("other", "body")):
        with open(tmp_path / name, "w") as f:
            for document in documents:
                f.write(json.dumps({"id": 1, key or "text": document}, ensure_ascii=r.random() < 0.5) + "\n")
    (tmp_path / "documents").mkdir()
    files = []
    for i, document in enumerate(documents):
        files.append(tmp_path / "documents" / str(i))
        files[-1].write_bytes(document.encode())
    expected = train(files, tmp_path / "out", 800)
    assert train(tmp_path / "text.jsonl", tmp_path / "out", 800) == expected
    assert train(tmp_path / "other", tmp_path / "out", 800, "--json-key", "body") == expected


@pytest.mark.parametrize("line", ["{", '{"text": 1}', '{"body": "x"}', "[]", '{"text": "\\ud800"}', '{"text":"a"} x'])
def test_a_bad_json_line_is_named(tmp_path, line):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "fine"}\n\n' + line + "\n")
    result = cairn("train", path, "--vocab-size", 300, "--output", tmp_path / "out")
    assert result.returncode == 1
    assert b"BAD_JSON_LINE" in result.stderr and b"bad.jsonl: line 3: " in result.stderr
    assert not (tmp_path / "out").exists()


def test_threads_and_blocks_change_nothing(tmp_path):
    path = tmp_path / "text"
    path.write_text(multilingual(400_000, 4) * 8)
    expected = train(path, tmp_path / "out", 3000, "--threads", 1, "--special-token", "<|x|>")
    assert train(path, tmp_path / "out", 3000, "--threads", 5, "--special-token", "<|x|>") == expected
    lines = path.read_text().splitlines(keepends=True)
    assert train(path, tmp_path / "out", 3000, "--by-line", "--threads", 3) == train(
        path, tmp_path / "out", 3000, "--by-line", "--threads", 1
    )
    assert len(lines) > 1000


def test_special_tokens_across_blocks_are_found(tmp_path):
    path = tmp_path / "text"
    special = "<| end of text |>"
    path.write_text(("word " * 7 + special) * 50_000)
    vocab, merges = train(path, tmp_path / "out", 280, "--special-token", special, "--threads", 2)
    assert {"".join(pair).replace("Ġ", " ").strip() for pair in merges} <= {"wo", "or", "rd", "wor", "ord", "word"}


def test_one_line_of_megabytes(tmp_path):
    r = rng(2)
    text = (
        "".join(r.choices("abcdefghij", k=10_000)) + "中文字" * 2000 + "=" * 10_000 + " x" * 800_000
    )  # HF: quadratic in a word
    path = tmp_path / "text"
    path.write_bytes(text.encode())
    agree(train(path, tmp_path / "out", 600, "--tie-break", "huggingface"), hugging_face([text], 600))


@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"\x00" * 50, b"\xff" * 50, b"\r\n" * 9, b" ", b"\xc3"])
def test_odd_inputs(tmp_path, content):
    path = tmp_path / "text"
    path.write_bytes(content)
    vocab, merges = train(path, tmp_path / "out", 300)
    assert len(vocab) == 256 + len(merges)
    Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))


def test_a_byte_outside_utf8_is_a_character_without_class(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"ab\xff\xfecd ab\xff\xfecd " * 9 + b"\xe4\xb8" * 30)
    _, merges = train(path, tmp_path / "out", 300)
    tokens = {to_bytes(a) + to_bytes(b) for a, b in merges}
    assert b"\xff\xfe" in tokens and b"ab" in tokens
    assert not any(b"b\xff" in t or b"\xfec" in t for t in tokens)


def test_policies_for_invalid_utf8(tmp_path):
    data = b"caf\xc3\xa9 \xff\xfe bad\x80 \xe4\xb8 \xf0\x9f\x98 end " * 40_000 + b"\xc3"
    path = tmp_path / "text"
    path.write_bytes(data)
    result = cairn("train", path, "--vocab-size", 300, "--output", tmp_path / "out", "--invalid-utf8", "error")
    assert result.returncode == 1 and b"INVALID_UTF8" in result.stderr and b"offset 6 " in result.stderr
    for policy, errors in (("skip", "ignore"), ("replace", "replace")):
        (tmp_path / "decoded").write_bytes(data.decode(errors=errors).encode())
        expected = train(tmp_path / "decoded", tmp_path / "out", 320)
        assert train(path, tmp_path / "out", 320, "--invalid-utf8", policy, "--threads", 2) == expected


def test_custom_pattern_as_hugging_face(tmp_path):
    pattern = r"\p{Lu}?\p{Ll}+|[0-9]{2}"
    text = multilingual(50_000, 3) + random_text(rng(1), 2000)
    path = tmp_path / "text"
    path.write_bytes(text.encode())
    ours = train(path, tmp_path / "out", 2000, "--tie-break", "huggingface", "--pattern", pattern)
    agree(ours, hugging_face([text], 2000, pattern))


def test_usage_errors_are_explained(tmp_path):
    path = tmp_path / "text"
    path.write_text("some text")
    base = ["train", path, "--output", tmp_path / "out"]
    for flags, word in (
        (["--vocab-size", 255], b"BAD_REQUEST"),
        (["--vocab-size", 256, "--special-token", "<s>"], b"BAD_REQUEST"),
        (["--vocab-size", 300, "--special-token", "a"], b"BAD_REQUEST"),
        (["--vocab-size", 300, "--pattern", "("], b"BAD_PATTERN"),
        (["--vocab-size", 300, "--memory", "1MiB"], b"BAD_REQUEST"),
    ):
        result = cairn(*base, *flags)
        assert result.returncode == 1 and word in result.stderr, (flags, result.stderr)
    missing = cairn("train", tmp_path / "none", "--vocab-size", 300, "--output", tmp_path / "out")
    assert missing.returncode == 1 and b"INPUT_UNREADABLE" in missing.stderr
    assert cairn(*base).returncode == 2
    assert cairn(*base, "--vocab-size", 300, "--pretokenizer", "gpt9").returncode == 2
    (tmp_path / "cut.gz").write_bytes(gzip.compress(os.urandom(5000))[:-900])
    cut = cairn("train", tmp_path / "cut.gz", "--vocab-size", 300, "--output", tmp_path / "out")
    assert cut.returncode == 1 and b"it ends inside a gzip member" in cut.stderr


def test_tiktoken_file_has_the_ids_of_the_vocabulary(tmp_path):
    path = tmp_path / "text"
    path.write_text(multilingual(50_000, 1))
    for flags in ([], ["--tie-break", "huggingface"]):
        vocab, _ = train(path, tmp_path / "out", 1000, "--special-token", "<s>", *flags)
        ranks = {}
        for line in (tmp_path / "out" / "tokenizer.tiktoken").read_bytes().splitlines():
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
        assert ranks == {to_bytes(token): i for token, i in vocab.items() if token != "<s>"}


@pytest.mark.parametrize("flags", [[], ["--by-line"], ["--pretokenizer", "o200k"]])
def test_an_extended_vocabulary_is_the_larger_one(tmp_path, flags):
    path = tmp_path / "text"
    path.write_text(multilingual(100_000, 8))
    small, small_merges = train(path, tmp_path / "small", 1000, *flags)
    large = train(path, tmp_path / "large", 3000, *flags)
    assert train(path, tmp_path / "out", 3000, "--extend", tmp_path / "small", *flags) == large
    # With another text the old tokens keep their ids; new ones follow, and so do new special tokens.
    other = tmp_path / "other"
    other.write_text(multilingual(100_000, 9))
    vocab, merges = train(other, tmp_path / "out", 2001, "--extend", tmp_path / "small", "--special-token", "<s>")
    assert {token: vocab[token] for token in small} == small
    assert merges[: len(small_merges)] == small_merges
    assert len(vocab) == 2001 and vocab["<s>"] == 2000
    too_small = cairn("train", other, "--vocab-size", 999, "--output", tmp_path / "o", "--extend", tmp_path / "small")
    assert too_small.returncode == 1 and b"BAD_REQUEST" in too_small.stderr
