"""Does what Megatron-LM's tools/preprocess_data.py does, in Python, with the libraries that it uses.

The tokenizers are transformers' own, and megatron-core's IndexedDatasetBuilder writes the files; this code only
calls them in the right order. It is the oracle of tests/corpus/test_preprocess*.py.
"""
import json
import os
import pathlib
import subprocess

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

from testing.library import Library

numpy = pytest.importorskip("numpy")
transformers = pytest.importorskip("transformers")
indexed_dataset = Library("megatron.core.datasets.indexed_dataset")

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", ROOT / "dist" / "bin")) / "cairn"

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def cairn_preprocess(*arguments, check=True, **options):
    """Runs `cairn corpus preprocess`; returns the finished process."""
    command = [str(CAIRN), "corpus", "preprocess", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stderr}")
    return done


class BertPeer:
    """BertWordPieceCase or BertWordPieceLowerCase from a vocab.txt."""

    def __init__(self, vocab, lower_case, include_special_tokens=True):
        self.hf = transformers.BertTokenizer(vocab=str(vocab), do_lower_case=lower_case)
        if not lower_case:
            self.hf.add_special_tokens({"additional_special_tokens": [f"<extra_id_{i}>" for i in range(100)]})
        self.include = include_special_tokens
        self.eod = self.hf.convert_tokens_to_ids("[SEP]")

    def __len__(self):
        return len(self.hf)

    def __call__(self, text):
        return self.hf(text, add_special_tokens=self.include).input_ids


class HfPeer:
    """GPT2BPETokenizer and HuggingFaceTokenizer around any transformers tokenizer."""

    def __init__(self, tokenizer, include_special_tokens=True):
        self.hf = tokenizer
        self.include = include_special_tokens
        self.eod = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id

    def __len__(self):
        return len(self.hf)

    def __call__(self, text):
        return self.hf(text, add_special_tokens=self.include).input_ids


def preprocess(files, prefix, tokenizer, keys=("text",), append_eod=False, partitions=1, keep_sequential=False,
               splitter=None):
    """Writes the pairs PREFIX_KEY_document (or _sentence) as Megatron-LM does."""
    level = "sentence" if splitter else "document"
    lines = []
    for name in files:
        with open(name, encoding="utf-8") as file:
            lines += list(file)
    if partitions > 1 and not keep_sequential:
        lines = [line for part in range(partitions) for line in lines[part::partitions]]
    dtype = indexed_dataset.DType.optimal_dtype(len(tokenizer))
    builders = {key: indexed_dataset.IndexedDatasetBuilder(f"{prefix}_{key}_{level}.bin", dtype=dtype) for key in keys}
    for line in lines:
        record = json.loads(line)
        for key in keys:
            value = record[key]
            if splitter:
                sentences = [s for i in range(0, len(value), 1000000) for s in splitter(value[i : i + 1000000])]
            else:
                sentences = value if isinstance(value, list) else [value]
            ids, lengths = [], []
            for sentence in sentences:
                tokens = tokenizer(sentence)
                if tokens:
                    ids += tokens
                    lengths.append(len(tokens))
            if ids and append_eod:
                ids.append(tokenizer.eod)
                lengths[-1] += 1
            builders[key].add_document(ids, lengths)
    for key in keys:
        builders[key].finalize(f"{prefix}_{key}_{level}.idx")


def assert_same_pairs(expected, actual, keys=("text",), level="document"):
    for key in keys:
        for suffix in ("bin", "idx"):
            want = pathlib.Path(f"{expected}_{key}_{level}.{suffix}").read_bytes()
            have = pathlib.Path(f"{actual}_{key}_{level}.{suffix}").read_bytes()
            assert have == want, f"{key} {suffix}: {len(have)} bytes, {len(want)} expected"


def write_jsonl(path, records, end="\n"):
    with open(path, "w", encoding="utf-8", newline="") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=bool(len(str(record)) % 2)) + end)
    return path
