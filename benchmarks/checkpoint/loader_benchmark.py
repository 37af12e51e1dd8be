"""Loads of a directory of safetensors files, beside other loaders of such files.

    tools/build && python=$(tools/python_env run torch loader-peers)
    PYTHONPATH=dist/python $python benchmarks/checkpoint/loader_benchmark.py --size 2GB

A case is a number of processes on this machine. Each has parameters (CPU tensors, which were written to before), and a
load fills them; with --new it may make tensors of its own instead, and some are then mapped pages of the files. One
process takes all tensors whole. Several take what ranks of a tensor-parallel Llama do: rows of most weights, columns of
o_proj and down_proj, norms whole. Each round runs, one after the other, for each case:

  cairn         cairn.torch.load_safetensors; "cairn, alone" with shared=False, if there is one process
  safetensors   safe_open: get_tensor, or get_slice of what the rank wants
  runai         runai_model_streamer: it has no slices on the host, so a rank streams all and keeps its part
  fast          fastsafetensors: each rank reads a part of the files, and torch.distributed (gloo) scatters the rest
  instanttensor which wants a GPU, and is left out by name without one
  read          the files with O_DIRECT, by one process: what this disk gives to anyone (cold)
  memcpy        as many bytes by each rank, from memory to its parameters (warm); pinned memory, if they are on a GPU

With --device cuda the parameters are on the GPU, and the loaders that can load there do so. All ranks share one GPU.

"cold" is with the files' pages dropped from the page cache, "warm" with all files in it.
A time goes from the moment at which all processes are ready, libraries imported, until the last one can read the first
byte of every page of what it wants. Before times are compared, checksums of what each rank has must be equal. `storage`
is what all ranks have read from the disk, as a multiple of the files (read_bytes of /proc/PID/io).

A machine that does other work gives no figures: without --busy nothing is printed but that the results were equal.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from ranks import plain_transfer, size_of

_HIDDEN, _WIDE, _VOCABULARY = 2048, 5632, 16384
# A loader that takes longer, its start and its check included, has hung.
_MOST_SECONDS = 90
# More than this part of the processors is used by others: the machine is busy.
_BUSY = 0.10
_LOADERS = ("cairn", "cairn, alone", "safetensors", "runai", "fast", "instanttensor", "memcpy")
_MODULES = {"runai": "runai_model_streamer", "fast": "fastsafetensors", "instanttensor": "instanttensor"}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="See the head of the file.")
    parser.add_argument("--size", type=size_of, default=size_of("2GB"), help="of the files (default 2GB)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4], help="processes of each case (default 1 4)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=_LOADERS, default=_LOADERS)
    parser.add_argument("--directory", help="where files are written (default: a temporary directory)")
    parser.add_argument("--new", action="store_true", help="loads make tensors, and fill none that are there")
    parser.add_argument("--busy", action="store_true", help="print figures although the machine does other work")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the parameters are")
    parser.add_argument("--json", action="store_true", help="one line with all times, instead of the table")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def axis_of(name: str) -> int | None:
    """Returns the axis along which a tensor is split; None if each rank has it whole."""
    if "norm" in name:
        return None
    return 1 if "o_proj" in name or "down_proj" in name else 0


def write_model(directory: pathlib.Path, size: int) -> None:
    """Writes layers of a small Llama (bfloat16) into some files, until they have `size` bytes."""
    import torch
    from safetensors.torch import save_file

    shapes = {"self_attn.q_proj": (_HIDDEN, _HIDDEN), "self_attn.k_proj": (_HIDDEN // 4, _HIDDEN),
              "self_attn.v_proj": (_HIDDEN // 4, _HIDDEN), "self_attn.o_proj": (_HIDDEN, _HIDDEN),
              "mlp.gate_proj": (_WIDE, _HIDDEN), "mlp.up_proj": (_WIDE, _HIDDEN), "mlp.down_proj": (_HIDDEN, _WIDE),
              "input_layernorm": (_HIDDEN,), "post_attention_layernorm": (_HIDDEN,)}
    generator = torch.Generator().manual_seed(1)
    file: dict[str, Any] = {}
    weight_map: dict[str, str] = {}
    written = layer = 0

    def add(name: str, shape: tuple[int, ...]) -> None:
        file[name] = torch.randint(-(2**15), 2**15, shape, dtype=torch.int16, generator=generator).view(torch.bfloat16)

    def flush() -> None:
        nonlocal written
        name = f"model-{len(set(weight_map.values())) + 1:05}.safetensors"
        save_file(file, directory / name, {"format": "pt"})
        weight_map.update(dict.fromkeys(file, name))
        written += sum(tensor.nbytes for tensor in file.values())
        file.clear()

    add("model.embed_tokens.weight", (_VOCABULARY, _HIDDEN))
    while written + sum(tensor.nbytes for tensor in file.values()) < size:
        for name, shape in shapes.items():
            add(f"model.layers.{layer}.{name}.weight", shape)
        layer += 1
        if sum(tensor.nbytes for tensor in file.values()) > size / 6:
            flush()
    if file:
        flush()
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


# The loaders. Each returns what does the work, which gives the tensors by name.


def part_of(tensor: Any, axis: int | None, rank: int, world: int) -> Any:
    if axis is None or world == 1:
        return tensor
    step = tensor.shape[axis] // world
    return tensor.narrow(axis, rank * step, step)


def with_cairn(directory: str, rank: int, world: int, shared: bool,
               parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    import cairn.torch

    def placement(name: str, shape: tuple[int, ...], dtype: object) -> Any:
        axis = axis_of(name)
        slices: tuple[slice, ...] = ()
        if axis is not None and world > 1:
            step = shape[axis] // world
            slices = (slice(None),) * axis + (slice(rank * step, rank * step + step),)
        return (parameters[name], slices) if parameters else slices

    return lambda: cairn.torch.load_safetensors(directory, placement, shared=shared).tensors


def with_safetensors(directory: str, rank: int, world: int, device: str) -> Callable[[], dict[str, Any]]:
    from safetensors import safe_open

    def load() -> dict[str, Any]:
        result = {}
        for path in sorted(pathlib.Path(directory).glob("*.safetensors")):
            with safe_open(path, "pt", device) as file:
                for name in file.keys():  # noqa: SIM118  # it is no dict
                    axis = axis_of(name)
                    if axis is None or world == 1:
                        result[name] = file.get_tensor(name)
                        continue
                    part = file.get_slice(name)
                    step = part.get_shape()[axis] // world
                    span = slice(rank * step, rank * step + step)
                    result[name] = part[span] if axis == 0 else part[:, span]
        return result

    return load


def with_runai(directory: str, rank: int, world: int, device: str) -> Callable[[], dict[str, Any]]:
    from runai_model_streamer import SafetensorsStreamer

    def load() -> dict[str, Any]:
        result = {}
        with SafetensorsStreamer() as streamer:
            streamer.stream_files([str(path) for path in sorted(pathlib.Path(directory).glob("*.safetensors"))],
                                  device=device)
            for name, tensor in streamer.get_tensors():
                part = part_of(tensor, axis_of(name), rank, world)
                result[name] = tensor if part is tensor else part.clone()
        return result

    return load


def with_instanttensor(directory: str, rank: int, world: int, device: str) -> Callable[[], dict[str, Any]]:
    import instanttensor

    def load() -> dict[str, Any]:
        paths = [str(path) for path in sorted(pathlib.Path(directory).glob("*.safetensors"))]
        result = {}
        with instanttensor.safe_open(paths, framework="pt", device=0) as file:
            for name, tensor in file.tensors():
                part = part_of(tensor, axis_of(name), rank, world)
                result[name] = tensor if part is tensor else part.clone()
        return result

    return load


def with_fastsafetensors(directory: str, rank: int, world: int, device: str) -> Callable[[], dict[str, Any]]:
    import torch.distributed as dist
    from fastsafetensors import SafeTensorsFileLoader

    group = None
    if world > 1:
        dist.init_process_group("gloo", store=dist.FileStore(f"{directory}/store", world), rank=rank, world_size=world)
        group = dist.group.WORLD

    def load() -> dict[str, Any]:
        paths = [str(path) for path in sorted(pathlib.Path(directory).glob("*.safetensors"))]
        loader = SafeTensorsFileLoader(group, device, nogds=True)
        loader.add_filenames({other: paths[other::world] for other in range(world)})
        buffers = loader.copy_files_to_device()
        result = {}
        for name in loader.get_keys():
            axis = axis_of(name)
            result[name] = buffers.get_tensor(name) if axis is None or world == 1 else buffers.get_sharded(name, axis)
        loader.close()
        return result

    return load


def with_memcpy(directory: str, rank: int, world: int, device: str) -> Callable[[], dict[str, Any]]:
    source = with_cairn(directory, rank, world, True, {})()
    if device != "cpu":
        source = {name: tensor.pin_memory() for name, tensor in source.items()}
    return lambda: source


def worker(directory: str, loader: str, rank: int, world: int, new: bool, device: str) -> None:
    """Loads once, when its parent says so, and tells when it was done and what it has."""
    import torch

    torch.set_num_threads(max(len(os.sched_getaffinity(0)) // world, 1))
    make = {"safetensors": with_safetensors, "runai": with_runai, "fast": with_fastsafetensors,
            "instanttensor": with_instanttensor, "memcpy": with_memcpy}
    parameters: dict[str, Any] = {}
    if not new:
        parameters = {name: torch.full_like(tensor, -1, device=device)
                      for name, tensor in with_cairn(directory, rank, world, True, {})().items()}
    load = (with_cairn(directory, rank, world, loader == "cairn", parameters) if loader.startswith("cairn")
            else make[loader](directory, rank, world, device))
    if device != "cpu":
        torch.zeros(1, device=device).sum().item()  # CUDA has started
    print("ready", flush=True)
    sys.stdin.readline()
    storage = storage_bytes()
    begun = time.monotonic()
    tensors = load()
    if not loader.startswith("cairn"):
        tensors = ({name: tensor.clone() for name, tensor in tensors.items()} if loader == "memcpy" and new else
                   {name: parameters[name].copy_(tensor, non_blocking=True) if parameters else tensor
                    for name, tensor in tensors.items()})
    touched = sum(int(tensor.reshape(-1).view(torch.uint8)[::4096].sum()) for tensor in tensors.values()
                  if tensor.is_contiguous())
    ended = time.monotonic()  # int() has waited for the GPU
    storage = storage_bytes() - storage
    total = touched * 0
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        total = zlib.crc32(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode(), total)
        total = zlib.crc32(tensor.view(torch.uint8).cpu().numpy(), total)
    print(json.dumps({"begun": begun, "ended": ended, "storage": storage, "checksum": total,
                      "bytes": sum(tensor.nbytes for tensor in tensors.values())}), flush=True)
    sys.stdin.readline()  # ranks end together: one may still give another its part


def storage_bytes() -> int:
    return int(pathlib.Path("/proc/self/io").read_text().split("\nread_bytes: ")[1].split()[0])


# The parent.


class Absent(Exception):
    """A peer cannot run here."""


def run(directory: pathlib.Path, loader: str, world: int, warm: bool, new: bool,
        device: str) -> tuple[float, int, list[int]]:
    """Returns the seconds that a load took, the bytes that it read from storage, and the checksum of each rank."""
    (directory / "store").unlink(missing_ok=True)
    with tempfile.TemporaryFile("w+") as errors:
        ranks: list[subprocess.Popen[str]] = []
        late = threading.Timer(_MOST_SECONDS, lambda: [process.kill() for process in ranks])
        late.start()
        try:
            for rank in range(world):
                told = json.dumps([str(directory), loader, rank, world, new, device])
                ranks.append(subprocess.Popen([sys.executable, __file__, "--worker", told], stdin=subprocess.PIPE,
                                              stdout=subprocess.PIPE, stderr=errors, text=True,
                                              env={**os.environ, "RUNAI_STREAMER_LOG_LEVEL": "ERROR"}))
            for process in ranks:
                line_of(process, "ready")
            (read_all if warm else forget)(directory)
            for process in ranks:
                process.stdin.write("go\n")
                process.stdin.flush()
            results = [json.loads(line_of(process, "{")) for process in ranks]
            for process in ranks:
                process.communicate("end\n", timeout=60)
        except (EOFError, BrokenPipeError):
            if late.finished.is_set():
                raise Absent(f"it did not end within {_MOST_SECONDS} s") from None
            errors.seek(0)
            raise Absent(f"a process ended: {errors.read()[-400:]}") from None
        finally:
            late.cancel()
            for process in ranks:
                process.kill()
                process.wait()
    return (max(each["ended"] for each in results) - min(each["begun"] for each in results),
            sum(each["storage"] for each in results), [each["checksum"] for each in results])


def line_of(process: subprocess.Popen[str], begin: str) -> str:
    """Returns the next line of a process that begins so; libraries may write others."""
    while not (line := process.stdout.readline()).startswith(begin):
        if not line:
            raise EOFError
    return line


def read_all(directory: pathlib.Path) -> None:
    buffer = bytearray(8 << 20)
    for path in directory.glob("*.safetensors"):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def forget(directory: pathlib.Path) -> None:
    """Takes the files out of the page cache, and leaves the libraries there, which loads would have to read anew."""
    os.sync()
    for path in directory.glob("*.safetensors"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def busy_part() -> float:
    """Returns which part of the processors works, while this program waits a second."""
    def ticks() -> tuple[int, int]:
        numbers = [int(text) for text in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]

    before = ticks()
    time.sleep(1)
    after = ticks()
    return 1 - (after[1] - before[1]) / max(after[0] - before[0], 1)


def why_absent(loader: str, world: int, device: str) -> str:
    """Returns why a loader cannot run; "" if it can."""
    if loader == "cairn, alone" and world > 1:
        return "there are other processes"
    if loader == "instanttensor" and device == "cpu":
        return "it loads to GPUs alone"
    module = _MODULES.get(loader)
    return f"{module} is not installed" if module and importlib.util.find_spec(module) is None else ""


def direct_read(directory: pathlib.Path) -> float:
    begun = time.monotonic()
    for path in sorted(directory.glob("*.safetensors")):
        plain_transfer(path, path.stat().st_size // 4096 * 4096, read=True)
    return time.monotonic() - begun


def measure(options: argparse.Namespace, directory: pathlib.Path) -> int:
    size = sum(path.stat().st_size for path in directory.glob("*.safetensors"))
    times: dict[tuple[int, bool, str], list[float]] = {}
    storage: dict[tuple[int, bool, str], list[float]] = {}
    left_out: dict[tuple[int, str], str] = {}
    checksums: dict[int, list[int]] = {}
    busiest = 0.0
    for _ in range(options.rounds):
        for world in options.ranks:
            for warm in (False, True):
                if not warm:
                    forget(directory)
                    times.setdefault((world, warm, "read"), []).append(direct_read(directory))
                for loader in options.only:
                    if (world, loader) in left_out or (loader == "memcpy" and not warm):
                        continue
                    if why := why_absent(loader, world, options.device):
                        left_out[world, loader] = why
                        continue
                    busiest = max(busiest, busy_part())
                    try:
                        seconds, read, found = run(directory, loader, world, warm, options.new,
                                                   options.device)
                    except Absent as error:
                        left_out[world, loader] = str(error)
                        continue
                    expected = checksums.setdefault(world, found)
                    if found != expected:
                        print(f"{loader} with {world} processes has other bytes than {options.only[0]}")
                        return 1
                    times.setdefault((world, warm, loader), []).append(seconds)
                    print(f"{world} {'warm' if warm else 'cold'} {loader}: {seconds:.3f} s", file=sys.stderr,
                          flush=True)
                    storage.setdefault((world, warm, loader), []).append(read / size)
    if options.json:
        table = {f"{world} {'warm' if warm else 'cold'} {loader}": found
                 for (world, warm, loader), found in times.items()}
        print(json.dumps({"bytes": size, "seconds": table, "others": busiest,
                          "left_out": {f"{world} {loader}": why for (world, loader), why in left_out.items()}}))
        return 0
    for (world, loader), why in left_out.items():
        print(f"not run with {world}: {loader}: {why}")
    print(f"{size} bytes; all that ran had the same bytes in {options.rounds} rounds")
    if busiest > _BUSY:
        print(f"others used {busiest:.0%} of the processors: the machine is busy")
        if not options.busy:
            return 3
    for world in options.ranks:
        for warm in (False, True):
            floor = statistics.median(times.get((world, warm, "memcpy" if warm else "read"), [float("nan")]))
            print(f"\n{world} processes, {'warm' if warm else 'cold'}: median seconds (range), / the floor, storage")
            for loader in ("read", *options.only):
                found = times.get((world, warm, loader), [])
                if found:
                    middle = statistics.median(found)
                    print(f"  {loader:14} {middle:7.2f} ({min(found):.2f}-{max(found):.2f}) {middle / floor:6.2f}"
                          f" {statistics.median(storage.get((world, warm, loader), [1.0])):6.2f}")
    return 0


def main() -> int:
    options = parse()
    if options.worker:
        worker(*json.loads(options.worker))
        return 0
    directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-loader-", dir=options.directory))
    try:
        write_model(directory, options.size)
        return measure(options, directory)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
