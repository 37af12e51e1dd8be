"""GPT2BPETokenizer and HuggingFaceTokenizer of `cairn corpus preprocess` against transformers."""
import json
import pathlib
import random

import pytest

from preprocess_peer import HfPeer, assert_same_pairs, cairn_preprocess, preprocess, transformers, write_jsonl

tokenizers = pytest.importorskip("tokenizers")

pytestmark = pytest.mark.interop

TEXT = (
    "It's the end of a checkpoint; they've 1234 tensors, naïve Zürich  and   blanks.\n\tdef f(x): return x\u2019s 中文 "
    "한국어 😀 THE End!? "
).split(" ")


def documents(rng, count):
    records = []
    for _ in range(count):
        words = [rng.choice(TEXT + ["<|endoftext|>", "", "\u0000", "\u00a0"]) for _ in range(rng.randrange(40))]
        records.append({"text": rng.choice([" ", "", "\n"]).join(words)})
    return records + [{"text": ""}, {"text": []}, {"text": ["one", "", "two"]}, {"text": "<|endoftext|>"}]


def trained(vocab_size=400):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator([" ".join(TEXT)] * 3, tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


@pytest.mark.parametrize("flags", [(), ("--append-eod",)])
def test_gpt2(tmp_path, flags):
    vocab, merges = trained().model.save(str(tmp_path))
    source = write_jsonl(tmp_path / "in.jsonl", documents(random.Random(1), 300))
    peer = HfPeer(transformers.GPT2Tokenizer(vocab=vocab, merges=merges))
    preprocess([source], tmp_path / "peer", peer, append_eod=bool(flags))
    done = cairn_preprocess("--input", source, "--output-prefix", tmp_path / "ours", "--tokenizer-type",
                            "GPT2BPETokenizer", "--vocab-file", vocab, "--merge-file", merges, "--workers", 2, *flags)
    behind = len(json.loads(pathlib.Path(vocab).read_text()))
    assert (f"end of document: id {behind}. The vocabulary has no <|endoftext|>" in done.stdout) == bool(flags)
    assert_same_pairs(tmp_path / "peer", tmp_path / "ours")


# "config" asks for tokens that transformers does not add, because only tokenizer.json counts.
@pytest.mark.parametrize("framing", ["none", "template", "config", "template and config"])
@pytest.mark.parametrize("flags", [("--append-eod",), ("--tokenizer-hf-no-include-special-tokens",)])
def test_hugging_face(tmp_path, framing, flags):
    tokenizer = trained()
    tokenizer.add_special_tokens(["<|begin|>", "<|endoftext|>"])
    begin = tokenizer.token_to_id("<|begin|>")
    if "template" in framing:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", begin)])
    directory = tmp_path / "hf"
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "bos_token": "<|begin|>"}
    if "config" in framing:
        config |= {"add_bos_token": True, "add_eos_token": True}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    peer = HfPeer(transformers.AutoTokenizer.from_pretrained(directory), "--append-eod" in flags)
    source = write_jsonl(tmp_path / "in.jsonl", documents(random.Random(2), 200))
    preprocess([source], tmp_path / "peer", peer, append_eod="--append-eod" in flags)
    cairn_preprocess(
        "--input", source, "--output-prefix", tmp_path / "ours", "--tokenizer-type", "HuggingFaceTokenizer",
        "--tokenizer-model", directory, *flags)
    assert_same_pairs(tmp_path / "peer", tmp_path / "ours")


def test_faults(tmp_path):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "a"}])
    vocab, merges = trained().model.save(str(tmp_path))
    trained().save(str(tmp_path / "tokenizer.json"))
    for flags, reason in ((("--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", vocab), "BAD_REQUEST"),
                          (("--tokenizer-type", "HuggingFaceTokenizer"), "BAD_REQUEST"),
                          (("--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", tmp_path / "no"),
                           "INPUT_UNREADABLE"),
                          (("--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", tmp_path, "--append-eod"),
                           "BAD_TOKENIZER")):
        done = cairn_preprocess("--input", source, "--output-prefix", tmp_path / "p", *flags, check=False)
        assert done.returncode == 1 and f"error: {reason}" in done.stderr, done
    assert not list(tmp_path.glob("p_*"))
