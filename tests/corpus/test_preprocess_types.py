"""Megatron-LM's tokenizer types of `cairn corpus preprocess` against megatron-core's own."""

import argparse
import base64
import json
import random

import pytest

from testing.library import Library

from preprocess_peer import assert_same_pairs, cairn_preprocess, preprocess, write_jsonl

sentencepiece = pytest.importorskip("sentencepiece")
build_tokenizer = Library("megatron.core.tokenizers.text.utils.build_tokenizer")

pytestmark = pytest.mark.interop

TEXT = (
    "It's the end of a checkpoint; they've 1234 tensors, naïve Zürich  and\tblanks. 中文 한국어 😀 "
    "</s> <unk> <SPECIAL_9>"
)
WORDS = TEXT.split(" ")


def records(seed, count):
    rng = random.Random(seed)
    texts = [" ".join(rng.choices([*WORDS, ""], k=rng.randrange(30))) for _ in range(count)]
    return [{"text": text} for text in texts] + [{"text": ""}, {"text": ["one", "", "two"]}]


class Peer:
    def __init__(self, **arguments):
        given = dict(
            vocab_file=None,
            merge_file=None,
            tokenizer_model=None,
            tokenizer_special_tokens=None,
            vocab_size=None,
            tokenizer_sentencepiece_legacy=False,
            tiktoken_pattern=None,
            tiktoken_num_special_tokens=1000,
            tokenizer_metadata=None,
        )
        self.tokenizer = build_tokenizer.build_tokenizer(argparse.Namespace(**given | arguments))
        self.eod = self.tokenizer.eod

    def __len__(self):
        return self.tokenizer.vocab_size

    def __call__(self, text):
        return self.tokenizer.tokenize(text)


def compare(tmp_path, peer, documents, *flags):
    source = write_jsonl(tmp_path / "in.jsonl", documents)
    preprocess([source], tmp_path / "peer", peer, append_eod=True)
    cairn_preprocess("--input", source, "--output-prefix", tmp_path / "ours", "--append-eod", "--workers", 2, *flags)
    assert_same_pairs(tmp_path / "peer", tmp_path / "ours")


@pytest.mark.parametrize("name", ["SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"])
def test_sentencepiece(tmp_path, name):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(WORDS)] * 20),
        model_prefix=str(tmp_path / "spm"),
        vocab_size=500,
        model_type="unigram" if name == "SentencePieceTokenizer" else "bpe",
        hard_vocab_limit=False,
        byte_fallback=True,
        minloglevel=2,
    )
    model = tmp_path / "spm.model"
    peer = Peer(tokenizer_type=name, tokenizer_model=str(model))
    compare(tmp_path, peer, records(1, 200), "--tokenizer-type", name, "--tokenizer-model", model)


@pytest.mark.parametrize("pattern", ["v1", "v2"])
def test_tiktoken(tmp_path, pattern):
    tokens = [bytes([b]) for b in range(256)]
    for word in WORDS:
        for form in (word, " " + word):
            data = form.encode()
            tokens += [data[:i] for i in range(2, len(data) + 1) if data[:i] not in tokens]
    vocab = [
        {"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": t.decode(errors="replace")}
        for i, t in enumerate(tokens)
    ]
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    size = 20 + len(tokens) - 3  # the last three tokens are left out
    peer = Peer(
        tokenizer_type="TikTokenizer",
        tokenizer_model=str(tmp_path / "vocab.json"),
        tiktoken_pattern=pattern,
        vocab_size=size,
        tiktoken_num_special_tokens=20,
    )
    compare(
        tmp_path,
        peer,
        records(2, 200),
        "--tokenizer-type",
        "TikTokenizer",
        "--tokenizer-model",
        tmp_path / "vocab.json",
        "--tiktoken-pattern",
        pattern,
        "--vocab-size",
        size,
        "--tiktoken-num-special-tokens",
        20,
    )


@pytest.mark.parametrize("size", [100, 65_500])
def test_null(tmp_path, size):
    rng = random.Random(3)
    documents = [{"text": " ".join(str(rng.randrange(size)) for _ in range(rng.randrange(1, 30)))} for _ in range(100)]
    peer = Peer(tokenizer_type="NullTokenizer", vocab_size=size)
    compare(tmp_path, peer, documents, "--tokenizer-type", "NullTokenizer", "--vocab-size", size)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--tokenizer-type", "Llama2Tokenizer"), "needs --tokenizer-model"),
        (("--tokenizer-type", "Llama2Tokenizer", "--tokenizer-model", "/"), "--tokenizer-type HuggingFaceTokenizer"),
        (("--tokenizer-type", "TikTokenizer", "--tokenizer-model", "in.jsonl", "--vocab-size", "7"), "special tokens"),
        (("--tokenizer-type", "TikTokenizer", "--tokenizer-model", "in.jsonl"), "in.jsonl: not a JSON list"),
        (("--tokenizer-type", "NullTokenizer"), "needs --vocab-size"),
        (("--tokenizer-type", "NullTokenizer", "--vocab-size", "5"), "'a' is no number below 5"),
        (("--tokenizer-type", "NullTokenizer", "--vocab-size", str(2**31)), "--vocab-size"),
        (("--tokenizer-type", "NullTokenizer", "--vocab-size", str(2**32)), "--vocab-size"),
        (("--tokenizer-type", "SFTTokenizer"), "NullTokenizer"),
    ],
)
def test_faults(tmp_path, flags, words):
    write_jsonl(tmp_path / "in.jsonl", [{"text": "a"}])
    done = cairn_preprocess("--input", "in.jsonl", "--output-prefix", "out", *flags, check=False, cwd=tmp_path)
    assert done.returncode != 0 and words in done.stderr, done.stderr
    assert not list(tmp_path.glob("out*"))
