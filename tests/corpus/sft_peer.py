"""Does what Megatron-Bridge does to make packed samples, with its own packing (megatron-bridge, which is loaded without
the packages that it needs for training). It is the oracle of test_pack_*.py, which say what else is written after its
source."""
import importlib.util
import os
import pathlib
import subprocess

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", ROOT / "dist" / "bin")) / "cairn"
WORDS = "the quick brown fox jumps over lazy dogs ask me tell you über 漢字 🙂 x=1; don't 12345".split()


def corpus(*arguments, expect=0, **more):
    done = subprocess.run([str(CAIRN), "corpus", *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          **more)
    assert done.returncode == expect, done.stderr
    return done


def words(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count))


def bridge_packing():
    """megatron.bridge.data.datasets.packing_utils, without what its package imports."""
    import megatron

    for place in megatron.__path__:
        path = pathlib.Path(place) / "bridge/data/datasets/packing_utils.py"
        if path.exists():
            spec = importlib.util.spec_from_file_location("bridge_packing_utils", path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    pytest.skip("not run: no megatron-bridge")


def prepare(data, path, pack_size, multiple, pad, algorithm, seed):
    """prepare_gpt_sft_packed_data from the tokenized samples on. Returns the metadata."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    data = [{key: list(value) for key, value in item.items()} for item in data]
    if multiple > 1:
        for item in data:
            most = pack_size // multiple * multiple
            runtime = max(len(item["input_ids"]) - 1, 0)
            size = min(most, (runtime + multiple - 1) // multiple * multiple) + 1
            for key, value in (("input_ids", pad), ("loss_mask", 0)):
                item[key] = (item[key] + [value] * (size - len(item[key])))[:size]
    packing = bridge_packing()
    # Version 0.3.1 has no place for these, and later ones leave them out.
    data = [item for item in data if len(item["input_ids"]) - 1 <= pack_size]
    sequences, histogram = packing.create_hist(data, pack_size)
    numpy.random.seed(seed)
    assignments, metadata = packing.create_packing_strategy(histogram, pack_size, algorithm)
    rows = packing.fill_packing_strategy(assignments, sequences, pack_size, pad)
    table = pyarrow.table({  # write_packed_parquet
        "input_ids": [row["input_ids"] for row in rows],
        "loss_mask": pyarrow.array([[int(value) for value in row["loss_mask"]] for row in rows],
                                   type=pyarrow.list_(pyarrow.int8())),
        "seq_start_id": [row["seq_start_id"] for row in rows]})
    pyarrow.parquet.write_table(table, str(path), row_group_size=500)
    return metadata


def read_packs(path):
    """What GPTSFTPackedParquetDataset reads, with the checks of its validate_row."""
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(path, columns=["input_ids", "seq_start_id", "loss_mask"]).to_pylist()
    for row in rows:
        starts = row["seq_start_id"]
        assert len(row["loss_mask"]) == len(row["input_ids"]) and starts[0] == 0
        assert starts == sorted(starts) and starts[-1] < len(row["input_ids"])
    return rows


def make_tokenizer(directory, chat_template=None, **options):
    """Trains a byte-level BPE and saves it as transformers does."""
    import tokenizers
    import transformers

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"])
    made.train_from_iterator([" ".join(WORDS)] * 20 + ["user assistant system\n\n"] * 20, trainer)
    given = {"eos_token": "<|endoftext|>", "bos_token": "<s>", **options}
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **given)
    if chat_template is not None:
        wrapped.chat_template = chat_template
    wrapped.save_pretrained(directory)
    return transformers.AutoTokenizer.from_pretrained(directory)
