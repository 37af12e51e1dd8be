"""`cairn corpus prepare-cache` against megatron-core's own builder of GPTDataset and BlendedDataset indices."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

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


def blend_case(directory, **fixed):
    """A blend of three datasets by weights, with every split."""
    rng = numpy.random.default_rng(5)
    words = []
    for i, weight in enumerate(("0.3", "0.5", "0.2")):
        prefix = directory / f"part{i}_text_document"
        write_pair(prefix, rng.integers(1, 90, 300), rng)
        words += [weight, str(prefix)]
    case = dict.fromkeys(f"{split}_data_path" for split in SPLITS)
    case |= {"data_path": words, "split": "8,1,1", "seed": 1234, "seq_length": 32, "surplus": 0.005}
    case |= {"train_samples": 2000, "valid_samples": 100, "test_samples": 50}
    return case | {"multiple_validation_sets": False, "full_validation": False} | fixed


def test_megatron_finds_everything_and_builds_nothing(tmp_path, tokenizer, monkeypatch):
    case = blend_case(tmp_path)
    built = megatrons(tmp_path / "theirs", case, tokenizer)
    prepare_cache(*options(tmp_path / "ours", case, tokenizer))
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "ours").iterdir()}

    def refuse(*_, **__):
        raise AssertionError("megatron-core builds an index")

    monkeypatch.setattr(numpy, "save", refuse)
    loaded = megatrons(tmp_path / "ours", case, tokenizer)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "ours").iterdir()} == before
    for ours, theirs in zip(loaded, built):
        assert len(ours) == len(theirs) > 0
        for number in (0, 1, len(theirs) // 2, len(theirs) - 1):
            assert torch.equal(ours[number]["tokens"], theirs[number]["tokens"])


def test_second_run_keeps_what_is_whole_and_rebuilds_the_rest(tmp_path, tokenizer):
    case = blend_case(tmp_path)
    arguments, cache = options(tmp_path / "ours", case, tokenizer), tmp_path / "ours"
    datasets = prepare_cache(*arguments)
    assert len(datasets) == 12 and not any(dataset["kept"] for dataset in datasets)
    expected = files_of(cache)
    assert all(dataset["kept"] for dataset in prepare_cache(*arguments))

    names = [dataset["name"] for dataset in datasets]
    (cache / f"{names[0]}-sample_index.npy").unlink()
    (cache / f"{names[1]}-shuffle_index.npy").write_bytes(expected[f"{names[1]}-shuffle_index.npy"][:-1])
    (cache / f"{names[2]}-description.txt").write_text("")
    write_pair(case["data_path"][3], numpy.full(301, 40), numpy.random.default_rng(6))  # other data of the same name
    changed = {dataset["name"] for dataset in prepare_cache(*arguments) if not dataset["kept"]}
    others = {dataset["name"] for dataset in datasets if dataset.get("prefix") == case["data_path"][3]}
    assert changed == {*names[:3], *others}
    megatrons(tmp_path / "theirs", case, tokenizer)
    assert_equal_caches(cache, tmp_path / "theirs")
    assert not any(dataset["kept"] for dataset in prepare_cache(*arguments, "--rebuild"))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_stopped_run_leaves_whole_sets_and_is_continued(tmp_path, tokenizer, sent):
    rng, words = numpy.random.default_rng(3), []
    for i in range(6):
        write_pair(tmp_path / f"part{i}", [5, 1], rng)
        words += ["1", str(tmp_path / f"part{i}")]
    case = blend_case(tmp_path, data_path=words, split="1", seq_length=2, train_samples=12_000_000)
    cache = tmp_path / "ours"
    arguments = options(cache, case, tokenizer) + ["--num-dataset-builder-threads", 1]
    command = [str(CAIRN), "corpus", "prepare-cache", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not list(cache.glob("*description.txt")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.005)
    process.send_signal(sent)
    _, error = process.communicate(timeout=60)
    if sent == signal.SIGINT:
        assert process.returncode == 130 and b"INTERRUPTED" in error
        assert not list(cache.glob(".*"))
    whole = {path.name.removesuffix("-description.txt") for path in cache.glob("*-description.txt")}
    again = prepare_cache(*arguments)
    assert whole <= {dataset["name"] for dataset in again if dataset["kept"]}
    assert len(again) == 7 and not list(cache.glob(".*"))
    for dataset in again[:-1]:
        sample_index = numpy.load(cache / f"{dataset['name']}-sample_index.npy", mmap_mode="r")
        assert len(sample_index) == dataset["samples"] + 1


def test_sample_numbers_follow_from_the_training_arguments(tmp_path, tokenizer):
    case = blend_case(tmp_path)
    arguments = [word for word in options(tmp_path / "c", case, tokenizer) if "-samples=" not in str(word)]
    # 70 steps, a validation of 3 steps after each 20 and one at the end, a test of 3 steps: as in Megatron-LM.
    arguments += ["--global-batch-size", 10, "--eval-interval", 20, "--eval-iters", 3]
    for length in (["--train-iters", 70], ["--train-samples", 700]):
        blends = [dataset for dataset in prepare_cache(*arguments, *length) if "prefix" not in dataset]
        samples = {blend["split"]: blend["samples"] for blend in blends}
        assert samples == {"train": 700, "valid": 120, "test": 30}
    result = prepare_cache(*arguments[:-6], "--train-samples", 700, check=False)
    assert result.returncode == 2 and b"--global-batch-size is missing" in result.stderr


def test_tokenizer_comes_from_an_earlier_description(tmp_path, tokenizer):
    case = blend_case(tmp_path)
    arguments = options(tmp_path / "first", case, tokenizer)
    names = [dataset["name"] for dataset in prepare_cache(*arguments)]
    for name in (names[0], names[-1]):
        arguments[arguments.index("--tokenizer-identifiers") + 1] = tmp_path / "first" / f"{name}-description.txt"
        arguments[1] = tmp_path / "again"
        assert [dataset["name"] for dataset in prepare_cache(*arguments)] == names


@pytest.mark.parametrize("change, reason, words", [
    ({"split": "1,2,3,4"}, "BAD_REQUEST", "more than three"),
    ({"split": "0,0"}, "BAD_REQUEST", "leaves nothing"),
    ({"split": "1.2.3"}, "BAD_REQUEST", "1.2.3"),
    ({"split": "999,1,0"}, "BAD_REQUEST", "valid split: its 0 sequences have 0 tokens"),
    ({"data_path": ["1", "{part}", "x", "{part}"]}, "BAD_REQUEST", "1 words in the places of weights"),
    ({"data_path": ["-1", "{part}"]}, "BAD_REQUEST", "the weight -1"),
    ({"data_path": ["{part}none"]}, "INPUT_UNREADABLE", "none.idx"),
    ({"train_data_path": ["{part}"]}, "BAD_REQUEST", "one for a single split"),
    ({"data_path": None}, "BAD_REQUEST", "there is no data path"),
    ({"full_validation": True}, "BAD_REQUEST", "valid split has weights"),
    ({"train_samples": 10**15}, "MEMORY_LIMIT", "train split: its indices"),
    ({"train_samples": 2**62}, "BAD_REQUEST", "too many"),
    ({"surplus": -1}, "BAD_REQUEST", "--mid-level-dataset-surplus"),
])
def test_bad_options_are_named(tmp_path, tokenizer, change, reason, words):
    case = blend_case(tmp_path)
    part = case["data_path"][1]
    case |= {name: [word.format(part=part) for word in value] if isinstance(value, list) else value
             for name, value in change.items()}
    result = prepare_cache(*options(tmp_path / "c", case, tokenizer), check=False)
    assert result.returncode in (1, 2), result.stdout
    error = json.loads(result.stderr)["error"] if result.stderr.startswith(b"{") else result.stderr.decode()
    assert reason in str(error) and words in str(error)


@pytest.mark.parametrize("content", [
    "", "[1]", '{"class"', '{"tokenizer": 3}', '{"a": 1}', '{"class": ' + "[" * 40 + "]" * 40 + "}", " " * 70_000,
])
def test_bad_tokenizer_identifiers_are_named(tmp_path, tokenizer, content):
    arguments = options(tmp_path / "c", blend_case(tmp_path), tokenizer)
    (tmp_path / "tokenizer.json").write_text(content)
    result = prepare_cache(*arguments, check=False)
    assert result.returncode == 1 and b"BAD_TOKENIZER" in result.stderr and b"tokenizer.json" in result.stderr
    assert not (tmp_path / "c").exists()


def test_blend_that_takes_too_much_of_a_dataset_is_refused_as_in_megatron(tmp_path, tokenizer):
    rng, words = numpy.random.default_rng(0), []
    for i in range(40):
        write_pair(tmp_path / f"part{i}", [33], rng)
        words += [str(1 + i % 3 * 0.37), str(tmp_path / f"part{i}")]
    for samples in range(40, 400, 7):
        case = blend_case(tmp_path, data_path=words, split="1", train_samples=samples, surplus=0.0)
        try:
            megatrons(tmp_path / "theirs", case, tokenizer)
        except IndexError:
            break
    else:
        pytest.fail("no number of samples oversamples a dataset")
    result = prepare_cache(*options(tmp_path / "ours", case, tokenizer), check=False)
    assert result.returncode == 1 and b"BAD_REQUEST" in result.stderr
    assert b"--mid-level-dataset-surplus" in result.stderr and not list((tmp_path / "ours").glob("*Blended*"))


def test_negative_length_is_a_corrupt_index(tmp_path, tokenizer):
    case = blend_case(tmp_path)
    path = pathlib.Path(case["data_path"][1] + ".idx")
    index = bytearray(path.read_bytes())
    index[34 + 4 * 7:34 + 4 * 8] = b"\xff\xff\xff\xff"
    path.write_bytes(index)
    result = prepare_cache(*options(tmp_path / "c", case, tokenizer), check=False)
    assert result.returncode == 1 and b"INDEX_CORRUPT" in result.stderr and b"sequence 7 has -1" in result.stderr


def test_blend_of_many_weights_is_megatrons(tmp_path, tokenizer):
    draw, rng, words = random.Random(11), numpy.random.default_rng(11), []
    for i in range(5):
        write_pair(tmp_path / f"part{i}", rng.integers(1, 50, 60), rng)
    for i in range(300):
        words += [repr(10 ** draw.uniform(-1, 1) if i else 1e-6), str(tmp_path / f"part{i % 5}")]
    case = blend_case(tmp_path, data_path=words, surplus=0.5, **{f"{split}_samples": 30_000 for split in SPLITS})
    megatrons(tmp_path / "theirs", case, tokenizer)
    prepare_cache(*options(tmp_path / "ours", case, tokenizer))
    assert_equal_caches(tmp_path / "ours", tmp_path / "theirs")


@pytest.mark.parametrize("name", [
    "größe", "\U0001f600", "tab\t and \x7f", "quote\"\\", "no UTF-8: \udcff\udc80", " ends ",
])
def test_prefix_with_an_odd_name_is_described_as_python_does(tmp_path, tokenizer, name):
    prefix = tmp_path / name
    write_pair(prefix, [40, 50, 60], numpy.random.default_rng(0))
    write_pair(str(prefix).strip(), [40, 50, 60], numpy.random.default_rng(0))
    case = blend_case(tmp_path, data_path=[str(prefix)], split="1")
    megatrons(tmp_path / "theirs", case, tokenizer)
    prepare_cache(*options(tmp_path / "ours", case, tokenizer))
    assert_equal_caches(tmp_path / "ours", tmp_path / "theirs")


def test_memory_holds_for_all_threads_together(tmp_path, tokenizer):
    # A dataset takes 4 + 8 bytes for each of its sequences, 24 MB in all; four of them would not fit in 100 MiB.
    words = []
    for i in range(6):
        prefix = tmp_path / f"part{i}"
        lengths = numpy.full(2_000_000, 8, numpy.int32)
        counts = numpy.array([len(lengths), len(lengths) + 1], numpy.uint64)
        header = b"MMIDIDX\0\0" + numpy.uint64(1).tobytes() + b"\x08" + counts.tobytes()
        ends = numpy.arange(len(lengths) + 1, dtype=numpy.int64)
        prefix.with_suffix(".idx").write_bytes(header + lengths.tobytes() + (ends[:-1] * 16).tobytes() + ends.tobytes())
        with open(prefix.with_suffix(".bin"), "wb") as file:
            file.truncate(int(lengths.sum()) * 2)
        words += ["1", str(prefix)]
    case = blend_case(tmp_path, data_path=words, split="1", seq_length=32, train_samples=2_900_000)
    arguments = options(tmp_path / "c", case, tokenizer) + ["--num-dataset-builder-threads", 6]
    command = [str(CAIRN), "corpus", "prepare-cache", *map(str, arguments)]
    # A small process of its own measures: a child begins with the peak of the one that forked it.
    script = ("import os, sys; process = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:]); "
              "_, status, usage = os.wait4(process, 0); print(status, usage.ru_maxrss)")
    peaks = {}
    for memory in ("40MiB", "1GiB"):
        done = subprocess.run([sys.executable, "-c", script, *command, "--rebuild", "--memory", memory],
                              capture_output=True, timeout=120)
        status, peaks[memory] = map(int, done.stdout.split()[-2:])
        assert status == 0, done.stderr.decode()
    assert peaks["40MiB"] < 90 * 1024 < peaks["1GiB"], peaks
    result = prepare_cache(*arguments, "--rebuild", "--memory", "20MiB", check=False)
    assert result.returncode == 1 and b"MEMORY_LIMIT" in result.stderr and b"2000000 documents" in result.stderr
