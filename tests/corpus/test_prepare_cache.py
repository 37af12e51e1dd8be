"""`cairn corpus prepare-cache` against megatron-core's own builder of GPTDataset and BlendedDataset indices."""

import json
import os
import pathlib
import random
import subprocess

import numpy
import pytest

from testing.library import Library

builder = Library("megatron.core.datasets.blended_megatron_dataset_builder")
gpt = Library("megatron.core.datasets.gpt_dataset")
indexed = Library("megatron.core.datasets.indexed_dataset")
tokenizers = Library("megatron.core.tokenizers")
utils = Library("megatron.core.datasets.utils")
torch = pytest.importorskip("torch")

pytestmark = pytest.mark.interop

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
SPLITS = ("train", "valid", "test")
EVEN_SPLITS = ("1,1,1", "0,3,7", "100", ".5,.25,.25", "7,0,1", "6/3/1")


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory):
    """Makes a process group of one rank, which BlendedDataset asks for its rank."""
    store = tmp_path_factory.mktemp("group") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def tokenizer():
    return tokenizers.MegatronTokenizer.from_pretrained(metadata_path={"library": "null"}, vocab_size=1000)


def prepare_cache(*arguments, check=True):
    command = [str(CAIRN), "--format=json", "corpus", "prepare-cache", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, timeout=120)
    if check:
        assert result.returncode == 0, (command, result.stderr.decode())
        return json.loads(result.stdout)["datasets"]
    return result


def write_pair(prefix, lengths, rng):
    """Writes a dataset with a sequence of each length; the tokens are random."""
    pathlib.Path(prefix).parent.mkdir(parents=True, exist_ok=True)
    pair = indexed.IndexedDatasetBuilder(f"{prefix}.bin", dtype=numpy.uint16)
    for length in lengths:
        pair.add_item(torch.from_numpy(rng.integers(0, 1000, length)))
        pair.end_document()
    pair.finalize(f"{prefix}.idx")


def megatrons(cache, case, tokenizer):
    """Builds a case by megatron-core, as Megatron-LM's prepare_cache.py does; returns its datasets."""
    paths = {split: utils.get_blend_from_list(case[f"{split}_data_path"]) for split in SPLITS}
    config = gpt.GPTDatasetConfig(
        random_seed=case["seed"],
        sequence_length=case["seq_length"],
        blend=utils.get_blend_from_list(case["data_path"]),
        blend_per_split=None if case["data_path"] else [paths[split] for split in SPLITS],
        split=case["split"] if case["data_path"] else None,
        multiple_validation_sets=case["multiple_validation_sets"],
        full_validation=case["full_validation"],
        path_to_cache=str(cache),
        mid_level_dataset_surplus=case["surplus"],
        tokenizer=tokenizer,
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
    )
    samples = [case["train_samples"], None if case["full_validation"] else case["valid_samples"], case["test_samples"]]
    return builder.BlendedMegatronDatasetBuilder(gpt.GPTDataset, samples, lambda: True, config).build()


def options(cache, case, tokenizer):
    """Returns the same case as options of our command."""
    identifiers = pathlib.Path(cache).parent / "tokenizer.json"
    identifiers.write_text(json.dumps(tokenizer.unique_identifiers))
    arguments = ["--data-cache-path", cache, "--tokenizer-identifiers", identifiers, "--seed", case["seed"]]
    arguments += ["--seq-length", case["seq_length"], "--mid-level-dataset-surplus", case["surplus"]]
    arguments += [f"--{split}-samples={case[f'{split}_samples']}" for split in SPLITS]
    for name in ("data_path", *(f"{split}_data_path" for split in SPLITS)):
        if case[name]:
            arguments += ["--" + name.replace("_", "-"), *case[name]]
    if case["data_path"]:
        arguments += ["--split", case["split"]]
    for flag in ("multiple_validation_sets", "full_validation"):
        if case[flag]:
            arguments.append("--" + flag.replace("_", "-"))
    return arguments


def files_of(directory):
    return {path.name: path.read_bytes() for path in pathlib.Path(directory).iterdir()}


def assert_equal_caches(ours, theirs):
    ours, theirs = files_of(ours), files_of(theirs)
    assert sorted(ours) == sorted(theirs)
    for name in theirs:
        assert ours[name] == theirs[name], name


def random_case(seed, directory, **fixed):
    """Makes datasets and a way to blend them. All sizes are small, so that epochs, odd ends and ties are frequent.

    Every split has tokens, because megatron-core loops for ever over one that has none.
    """
    draw, rng = random.Random(seed), numpy.random.default_rng(seed)
    split, fewest = draw.choice([("969, 30, 1", 2000), ("99,1", 300), *((text, 20) for text in EVEN_SPLITS)])
    prefixes = []
    for i in range(draw.choice([1, 1, 2, 3, 7, 20])):
        longest = draw.choice([2, 9, 60, 700])
        lengths = rng.integers(0, longest, fewest + draw.choice([0, 21, 280]), endpoint=True)
        lengths[:: len(lengths) // 10] = lengths[-2:] = longest
        prefix = directory / draw.choice(["data", "größe \"1\"", "名"]) / f"part{i}_text_document"
        write_pair(prefix, lengths, rng)
        prefixes.append(str(prefix))
    kind = draw.choice(["plain", "weights", "weights", "own", "own weights", "own sets"])
    weights = draw.choice([[1] * len(prefixes), [draw.uniform(0.01, 3) for _ in prefixes], [2**-i for i in range(20)]])
    if "weights" in kind:
        words = [word for weight, prefix in zip(weights, prefixes) for word in (str(weight), prefix)]
    else:
        words = prefixes
    if len(words) % 2 == 0 and "weights" not in kind and draw.random() < 0.5:
        words = words[1:]
    case = dict.fromkeys(["data_path", *(f"{split}_data_path" for split in SPLITS)])
    if kind in ("plain", "weights"):
        case["data_path"] = words
    else:
        for split in draw.sample(SPLITS, draw.randint(1, 3)):
            case[f"{split}_data_path"] = words
    case |= {
        "split": split,
        "seed": draw.choice([0, 1, 1234, 2**31, 2**32 - 1]),
        "seq_length": draw.choice([2, 3, 16, 64]),
        "surplus": draw.choice([0.005, 0.0, 0.5]),
        "train_samples": draw.choice([0, 1, 50, 1000, 5000]),
        "valid_samples": draw.choice([0, 1, 10, 400]),
        "test_samples": draw.choice([0, 1, 10, 400]),
        "multiple_validation_sets": kind == "own sets",
        "full_validation": kind in ("plain", "own", "own sets") and draw.random() < 0.5,
    }
    return case | fixed


@pytest.mark.parametrize("seed", range(60))
def test_random_cases_are_megatrons_byte_for_byte(tmp_path, tokenizer, seed):
    case = random_case(seed, tmp_path)
    theirs, fault = tmp_path / "theirs", None
    try:
        megatrons(theirs, case, tokenizer)
    except (AssertionError, IndexError) as error:
        fault = error
    result = prepare_cache(*options(tmp_path / "ours", case, tokenizer), check=False)
    if fault is None:
        assert result.returncode == 0, (case, result.stderr.decode())
        assert_equal_caches(tmp_path / "ours", theirs)
    else:
        assert b"BAD_REQUEST" in result.stderr, (case, fault, result.stderr.decode())
