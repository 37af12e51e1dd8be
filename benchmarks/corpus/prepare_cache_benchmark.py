"""`cairn corpus prepare-cache` against megatron-core's own builder, interleaved, medians; the files are compared.

    $(tools/python_env run torch test) benchmarks/corpus/prepare_cache_benchmark.py --documents 20000000

Makes an .idx of --documents documents with a mean of --tokens tokens (log-normal) and a .bin that is a hole, and builds
the indices of one epoch; then those of a blend of --datasets datasets by weights with --blend-samples samples. The peer
is BlendedMegatronDatasetBuilder in a process of its own, without the time of its imports, with its C++ helper compiled
by the flags of Megatron-LM's Makefile. Cairn's time is that of the whole process, which also syncs its files.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time

import numpy
from shuffle_benchmark import REPOSITORY, measure

SPLIT = "99,1,0"
SEED = 1234
SEQUENCE_LENGTH = 2048


def write_pair(prefix, documents, mean, seed):
    """Writes only the index; the tokens are a hole of the right size, because nobody reads them."""
    rng = numpy.random.default_rng(seed)
    lengths = rng.lognormal(numpy.log(mean) - 0.5, 1, documents).astype(numpy.int32) + 1
    ends = lengths.cumsum(dtype=numpy.int64) * 2
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
        lengths.tofile(file)
        (ends - lengths * 2).tofile(file)
        numpy.arange(documents + 1, dtype=numpy.int64).tofile(file)
    with open(f"{prefix}.bin", "wb") as file:
        file.truncate(int(ends[-1]))
    return int(ends[-1]) // 2


def compile_helper(directory):
    """Compiles megatron-core's helpers.cpp as Megatron-LM's Makefile does; returns the module's path."""
    import megatron.core.datasets
    import torch

    source = pathlib.Path(megatron.core.datasets.__file__).parent / "helpers.cpp"
    module = directory / ("helpers_cpp" + sysconfig.get_config_var("EXT_SUFFIX"))
    headers = [sysconfig.get_paths()["include"], pathlib.Path(torch.__file__).parent / "include"]  # pybind11's too
    flags = ["-O3", "-Wall", "-shared", "-std=c++17", "-fPIC", *(f"-I{path}" for path in headers)]
    subprocess.run(["c++", *flags, str(source), "-o", str(module)], check=True)
    return module


def build_as_megatron(case):
    """The peer's process: prints the seconds of the build, those of CPU, and the rise of its peak of memory in KiB."""
    import importlib.util
    import resource

    import torch

    spec = importlib.util.spec_from_file_location("megatron.core.datasets.helpers_cpp", case["helper"])
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])
    from megatron.core.datasets import helpers  # noqa: F401
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.utils import get_blend_from_list
    from megatron.core.tokenizers import MegatronTokenizer

    tokenizer = MegatronTokenizer.from_pretrained(metadata_path={"library": "null"}, vocab_size=1000)
    pathlib.Path(case["tokenizer"]).write_text(json.dumps(tokenizer.unique_identifiers))
    torch.distributed.init_process_group("gloo", init_method=f"file://{case['cache']}.store", rank=0, world_size=1)
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    config = GPTDatasetConfig(
        random_seed=SEED, sequence_length=SEQUENCE_LENGTH, blend=get_blend_from_list(case["data_path"]), split=SPLIT,
        path_to_cache=case["cache"], tokenizer=tokenizer, reset_position_ids=False, reset_attention_mask=False,
        eod_mask_loss=False, num_dataset_builder_threads=case["threads"],
    )
    BlendedMegatronDatasetBuilder(GPTDataset, case["samples"], lambda: True, config).build()
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps([seconds, cpu, after.ru_maxrss - before.ru_maxrss]))


def compare(ours, theirs):
    names = sorted(path.name for path in theirs.iterdir())
    assert sorted(path.name for path in ours.iterdir()) == names
    for name in names:
        subprocess.run(["cmp", str(ours / name), str(theirs / name)], check=True)
    return sum((theirs / name).stat().st_size for name in names)


def run(name, data_path, samples, directory, helper, arguments):
    cairn = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
    ours, theirs, tokenizer = directory / "ours", directory / "theirs", directory / "tokenizer.json"
    case = {"data_path": data_path, "samples": samples, "cache": str(theirs), "helper": str(helper),
            "tokenizer": str(tokenizer), "threads": arguments.threads}
    command = [cairn, "corpus", "prepare-cache", "--data-path", *data_path, "--split", SPLIT, "--seed", SEED,
               "--seq-length", SEQUENCE_LENGTH, "--train-samples", samples[0], "--valid-samples", samples[1],
               "--test-samples", samples[2], "--data-cache-path", ours, "--tokenizer-identifiers", tokenizer]
    seconds = {"megatron-core": [], "cairn": [], "megatron-core CPU": [], "cairn CPU": []}
    for _ in range(arguments.rounds):
        for cache in (ours, theirs):
            shutil.rmtree(cache, ignore_errors=True)
        pathlib.Path(f"{theirs}.store").unlink(missing_ok=True)
        peer = subprocess.run([sys.executable, __file__, "--peer", json.dumps(case)], check=True, capture_output=True)
        peers_wall, peers_cpu, peers_peak = json.loads(peer.stdout.splitlines()[-1])
        wall, cpu, peak = measure([*map(str, command)], stdout=subprocess.DEVNULL)
        for tool, value in zip(seconds, (peers_wall, wall, peers_cpu, cpu)):
            seconds[tool].append(value)
        size = compare(ours, theirs)
    median = {tool: statistics.median(values) for tool, values in seconds.items()}
    for kind, words in (("", "s"), (" CPU", "s of CPU")):
        peers, own = median["megatron-core" + kind], median["cairn" + kind]
        print(f"{name}: megatron-core {peers:.2f} {words}, cairn {own:.2f} {words}: {peers / own:.1f} x")
    print(f"{name}: {size / 1e6:.0f} MB of files, equal; peak of memory {peers_peak / 1024:.0f} MiB above the imports, "
          f"{peak / (1 << 20):.0f} MiB in all")
    print(json.dumps({"case": name, "seconds": seconds}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000_000)
    parser.add_argument("--tokens", type=int, default=1000, help="of a document, on average")
    parser.add_argument("--datasets", type=int, default=200, help="in the blend")
    parser.add_argument("--blend-samples", type=int, default=5_000_000)
    parser.add_argument("--threads", type=int, default=1, help="that build datasets, of the peer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", default=".", help="on the disk to measure")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        return build_as_megatron(json.loads(arguments.peer))
    directory = pathlib.Path(tempfile.mkdtemp(prefix="prepare-cache-benchmark-", dir=arguments.directory)).absolute()
    try:
        helper = compile_helper(directory)
        if arguments.documents:
            tokens = write_pair(directory / "one", arguments.documents, arguments.tokens, 0)
            samples = [tokens // SEQUENCE_LENGTH * 9 // 10, 1000, 0]
            run("one dataset", [str(directory / "one")], samples, directory, helper, arguments)
        if arguments.datasets:
            data_path, rng = [], numpy.random.default_rng(1)
            for i in range(arguments.datasets):
                documents = 2 * arguments.blend_samples * SEQUENCE_LENGTH // arguments.tokens // arguments.datasets
                write_pair(directory / f"part{i}", documents, arguments.tokens, i)
                data_path += [str(rng.uniform(0.5, 1.5)), str(directory / f"part{i}")]
            samples = [arguments.blend_samples, 1000, 0]
            run(f"blend of {arguments.datasets}", data_path, samples, directory, helper, arguments)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
