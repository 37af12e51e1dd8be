"""Loads of safetensors files without an agent, against the safetensors library and the definition of a shard."""

import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

import cairn
from cairn import shards
from testing.errors import raises_error
from testing.library import Library
from testing.safetensors_files import write, write_raw

torch = Library("torch")
numpy_files = Library("safetensors.numpy")
torch_files = Library("safetensors.torch")

PACKAGE = pathlib.Path(cairn.__file__).parents[1]
DTYPES = ["bool", "uint8", "int16", "float16", "int32", "float32", "uint64", "float64", "complex64"]

# It stands between a process and the reads of files whose names end with SHIM_FILE, from the byte SHIM_FROM on.
SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
static int calls;
static int met(int fd, long offset) {
  char link[64], path[4096];
  const char *name = getenv("SHIM_FILE");
  if (name == NULL || offset < atol(getenv("SHIM_FROM"))) return 0;
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  long length = readlink(link, path, sizeof(path) - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return length >= (long)strlen(name) && strcmp(path + length - strlen(name), name) == 0;
}
static int fails(int fd, long offset, size_t *size) {
  if (!met(fd, offset)) return 0;
  const char *what = getenv("SHIM_FAULT");
  if (strcmp(what, "error") == 0) { errno = EIO; return 1; }
  if (strcmp(what, "interrupted") == 0 && __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) % 2) {
    errno = EINTR;
    return 1;
  }
  if (strcmp(what, "short") == 0 && *size > 5000) *size = 4096 + *size % 904;
  if (strcmp(what, "nothing") == 0) *size = 0;
  if (strcmp(what, "direct") == 0 && (fcntl(fd, F_GETFL) & O_DIRECT)) { errno = EINVAL; return 1; }
  while (access(what, F_OK) == 0) usleep(10000);
  return 0;
}
ssize_t pread(int fd, void *to, size_t size, off_t offset) {
  if (fails(fd, offset, &size)) return -1;
  return syscall(SYS_pread64, fd, to, size, offset);
}
ssize_t pread64(int fd, void *to, size_t size, off_t offset) { return pread(fd, to, size, offset); }
ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) {
  struct iovec first = parts[0];
  if (fails(fd, offset, &first.iov_len)) return -1;
  if (first.iov_len != parts[0].iov_len) return syscall(SYS_preadv, fd, &first, 1, offset, 0);
  return syscall(SYS_preadv, fd, parts, count, offset, 0);
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    path = tmp_path_factory.mktemp("shim") / "shim.so"
    done = subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", path], input=SHIM, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


def forget(directory):
    """Takes the files out of the page cache."""
    for path in pathlib.Path(directory).glob("*.safetensors"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def random_tensor(chance, values, large=False):
    axes = chance.randint(0, 4)
    shape = [chance.randint(1, 12) for _ in range(axes)]
    if large and axes:
        shape[chance.randrange(axes)] *= chance.randint(1, 3000)
        while np.prod(shape) > 4_000_000:
            shape[int(np.argmax(shape))] //= 2
    return values.integers(0, 2, shape).astype("bool") if (name := chance.choice(DTYPES)) == "bool" else (
        values.integers(0, 255, shape).astype(name))


def random_part(chance, tensor):
    """Returns an array of any strides, its shard, and the slices of the tensor that it must become."""
    box = tuple(slice(begin := chance.randint(0, size), chance.randint(begin, size)) for size in tensor.shape)
    part = tensor[(*box, ...)]  # of a scalar numpy would give a number
    offset = [one.start for one in box]
    kind = chance.randrange(4)
    if kind == 0:
        begin = chance.randint(0, part.size)
        end = chance.randint(begin, part.size)
        array = np.zeros(2 * (end - begin), tensor.dtype)[::2]
        return array, cairn.Shard(array, tensor.shape, offset, part.shape, (begin, end)), part.reshape(-1)[begin:end]
    if kind == 1:
        array = np.zeros(part.shape[::-1], tensor.dtype).T
    elif kind == 2:
        array = np.zeros([size + 1 for size in part.shape], tensor.dtype)[(*(slice(0, n) for n in part.shape), ...)]
    else:
        array = np.zeros(part.shape, tensor.dtype)
    return array, cairn.Shard(array, tensor.shape, offset), part


@pytest.mark.interop
@pytest.mark.parametrize("seed", range(12))
def test_any_slices_of_any_tensors_are_what_safetensors_reads(tmp_path, seed):
    chance, values = random.Random(seed), np.random.default_rng(seed)
    weight_map = {}
    for number in range(chance.randint(1, 4)):
        name = f"part{number}.safetensors"
        tensors = {f"t{number}.{i}": random_tensor(chance, values, large=chance.random() < 0.2)
                   for i in range(chance.randint(1, 20))}
        numpy_files.save_file(tensors, tmp_path / name)
        weight_map |= dict.fromkeys(tensors, name)
    if chance.random() < 0.5:
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    state, expected = {}, []
    for name, file in weight_map.items():
        tensor = numpy_files.load_file(tmp_path / file)[name]
        parts = [random_part(chance, tensor) for _ in range(chance.randint(1, 3))]
        unique = {(shard.offset, shard.shape, shard.flat_range): (array, shard, part) for array, shard, part in parts}
        state[name] = [shard for _, shard, _ in unique.values()]
        expected += [(name, array, part) for array, _, part in unique.values()]
    for shared in (True, False):
        if chance.random() < 0.7:
            forget(tmp_path)
        files = cairn.load_safetensors(tmp_path, state, shared=shared, threads=chance.randint(1, 6))
        for name, array, part in expected:
            assert np.array_equal(array, part, equal_nan=True), (seed, name, shared)
            array[...] = 0
        assert files.bytes == sum(array.nbytes for _, array, _ in expected)
        assert files.direct_bytes == 0 or not shared


@pytest.mark.interop
def test_every_dtype_of_torch_comes_back_bit_for_bit(tmp_path):
    names = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16",
             "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64"]
    bits = torch.randint(0, 2, (64, 32), dtype=torch.uint8)
    tensors = {name: bits.view(getattr(torch, name)).clone() for name in names}
    tensors |= {"scalar": torch.tensor(2.5), "empty": torch.empty(0, 3)}
    torch_files.save_file(tensors, tmp_path / "model.safetensors")
    import cairn.torch

    index = cairn.safetensors_index(tmp_path / "model.safetensors")
    assert {name: tensor.dtype for name, tensor in index.items() if name in names} == {name: name for name in names}
    made = cairn.torch.load_safetensors(index, lambda name, shape, dtype: ...).tensors
    filled = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    cairn.torch.load_safetensors(tmp_path, filled)
    for found in (made, filled):
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
            assert found[name].contiguous().numpy(force=True).tobytes() == tensor.numpy().tobytes() if (
                name not in ("bfloat16", "float8_e4m3fn", "float8_e5m2")) else (
                torch.equal(found[name].view(torch.uint8), tensor.view(torch.uint8))), name


@pytest.mark.interop
def test_tensors_of_torch_hold_slices(tmp_path):
    import cairn.torch

    tensors = {"rows": torch.randn(8, 6).bfloat16(), "columns": torch.randn(8, 6), "whole": torch.randn(3)}
    torch_files.save_file(tensors, tmp_path / "model.safetensors")
    mine = {"rows": torch.zeros(4, 6).bfloat16(), "columns": torch.zeros(3, 8).T, "whole": torch.zeros(3)}
    slices = {"rows": slice(2, 6), "columns": (slice(None), slice(3, 6)), "whole": ()}
    files = cairn.torch.load_safetensors(tmp_path, lambda name, *_: (mine[name], slices[name]))
    for name, tensor in mine.items():
        assert torch.equal(tensor, tensors[name][slices[name]]) and files.tensors[name] is tensor, name


@pytest.mark.interop
def test_a_model_with_tied_weights_loads_its_own_state_dict(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(50, 8)
            self.norm = torch.nn.LayerNorm(8)
            self.head = torch.nn.Linear(8, 50, bias=False)
            self.head.weight = self.embed.weight

    import cairn.torch

    source, target = Model(), Model()
    torch_files.save_model(source, tmp_path / "model.safetensors")
    cairn.torch.load_safetensors(tmp_path, target.state_dict())
    for name, value in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], value), name
    assert target.head.weight is target.embed.weight
    separate = {name: torch.zeros_like(value) for name, value in source.state_dict().items()}
    cairn.torch.load_safetensors(tmp_path, separate)
    assert torch.equal(separate["head.weight"], separate["embed.weight"])
    assert torch.equal(separate["head.weight"], source.embed.weight)


RANK = """
import pathlib, sys, time
import numpy as np
import cairn
directory, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def placement(name, shape, dtype):
    if name.startswith("row"):
        return slice(shape[0] // world * rank, shape[0] // world * (rank + 1))
    if name.startswith("column"):
        return slice(None), slice(shape[1] // world * rank, shape[1] // world * (rank + 1))
    return ...
def storage_bytes():
    text = pathlib.Path("/proc/self/io").read_text()
    return int(text.split("\\nread_bytes: ")[1].split()[0])
print("ready", flush=True)
sys.stdin.readline()
before = storage_bytes()
files = cairn.load_safetensors(directory, placement)
read = storage_bytes() - before
for name, array in files.tensors.items():
    np.save(f"{directory}/{rank}.{name}.npy", array)
print(read, flush=True)
"""


def test_four_ranks_read_every_byte_from_storage_once(tmp_path):
    """Rows, columns and whole tensors; nothing but the kernel's page cache stands between the ranks."""
    values, world = np.random.default_rng(3), 4
    tensors = {"row.0": values.random((1024, 2048), "float32"), "column.0": values.random((1024, 2048), "float32"),
               "whole.0": values.random((512, 1024), "float32"), "column.1": values.random((4096, 512), "float32"),
               "whole.1": values.random(2048, "float32"), "row.1": values.random((4096, 512), "float32")}
    write(tmp_path / "a.safetensors", dict(list(tensors.items())[:3]))
    write(tmp_path / "b.safetensors", dict(list(tensors.items())[3:]))
    size = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    # The first ranks of a job may be slower to start than others: all wait for a line here.
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, tmp_path, str(rank), str(world)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)})
             for rank in range(world)]
    assert [rank.stdout.readline() for rank in ranks] == ["ready\n"] * world
    forget(tmp_path)
    for rank in ranks:
        rank.stdin.write("\n")
        rank.stdin.flush()
    read = [int(rank.communicate(timeout=120)[0]) for rank in ranks]
    for name, tensor in tensors.items():
        parts = [np.load(tmp_path / f"{rank}.{name}.npy") for rank in range(world)]
        for rank, part in enumerate(parts):
            whole = part if name.startswith("whole") else None
            assert whole is None or np.array_equal(whole, tensor), (name, rank)
        if not name.startswith("whole"):
            assert np.array_equal(np.concatenate(parts, axis=int(name.startswith("column"))), tensor), name
    if sum(read) == 0:
        pytest.skip("not run: this file system does not count what is read from storage")
    assert size <= sum(read) + 8 * 4096 and sum(read) < 1.02 * size, (read, size)


def test_one_process_alone_reads_past_the_page_cache_what_is_not_in_it(tmp_path):
    array = np.random.default_rng(1).integers(0, 255, (3000, 1000)).astype("uint8")
    write(tmp_path / "a.safetensors", {"w": array})
    forget(tmp_path)
    first = cairn.load_safetensors(tmp_path, lambda *_: ..., shared=False)
    assert np.array_equal(first.tensors["w"], array)
    if first.direct_bytes == 0:
        pytest.skip("not run: this file system has no direct reads")
    assert first.direct_bytes > 2_900_000
    again = cairn.load_safetensors(tmp_path, lambda *_: ..., shared=False)
    assert again.direct_bytes > 2_900_000, "a direct read leaves nothing in the page cache"
    cached = cairn.load_safetensors(tmp_path, lambda *_: ..., shared=True)
    assert cached.direct_bytes == 0 and cached.buffered_bytes > 2_900_000
    assert cairn.load_safetensors(tmp_path, lambda *_: ..., shared=False).cached_bytes > 2_900_000


def test_local_world_size_says_whether_others_read(tmp_path, monkeypatch):
    write(tmp_path / "a.safetensors", {"w": np.ones((1000, 1000), "uint8")})
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    forget(tmp_path)
    assert cairn.load_safetensors(tmp_path, lambda *_: ...).direct_bytes == 0
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    forget(tmp_path)
    files = cairn.load_safetensors(tmp_path, lambda *_: ...)
    assert files.buffered_bytes < 100_000 or files.direct_bytes == 0


# What the caller says.


@pytest.fixture
def model(tmp_path):
    write(tmp_path / "a.safetensors", {"model.w": np.arange(24, dtype="float32").reshape(4, 6),
                                       "model.b": np.arange(4, dtype="float32")})
    write(tmp_path / "b.safetensors", {"model.n": np.arange(3, dtype="int32")})
    return tmp_path


def test_missing_and_unexpected_names_come_together_and_nothing_is_written(model):
    w = np.full((4, 6), 7, "float32")
    with raises_error("MISSING_NAMES", names="x, y", count="2") as caught:
        cairn.load_safetensors(model, {"model.w": w, "x": np.zeros(1), "y": {"no": "tensor"}})
    assert "does not want: model.b, model.n" in str(caught.value) and "strict=False" in str(caught.value)
    with raises_error("UNEXPECTED_NAMES", count="2"):
        cairn.load_safetensors(model, {"model.w": w})
    assert (w == 7).all()
    files = cairn.load_safetensors(model, {"model.w": w, "x": np.zeros(1)}, strict=False)
    assert files.missing == ["x"] and files.unexpected == ["model.b", "model.n"] and list(files.tensors) == ["model.w"]
    assert (w.reshape(-1) == np.arange(24)).all()


def test_names_are_changed_and_left_out(model):
    def names(name):
        return None if name == "model.n" else name.removeprefix("model.")

    state = {"w": np.zeros((4, 6), "float32"), "b": np.zeros(4, "float32")}
    cairn.load_safetensors(model, state, names=names)
    assert (state["b"] == np.arange(4)).all()
    cairn.load_safetensors(model, {**state, "other": np.zeros(3, "int32")},
                           names={"model.w": "w", "model.b": "b", "model.n": "other"})
    swapped = {"model.w": "model.b", "model.b": "model.w"}
    files = cairn.load_safetensors(model, {"model.w": np.zeros(4, "float32")}, names=swapped, strict=False)
    assert files.unexpected == ["model.b", "model.n"] and files.tensors["model.w"].tolist() == [0, 1, 2, 3]
    with raises_error("NAME_COLLISION", tensor="x"):
        cairn.load_safetensors(model, {}, names=lambda name: "x")
    with raises_error("BAD_NAME", tensor="model.w"):
        cairn.load_safetensors(model, {}, names=lambda name: 3)
    with raises_error("BAD_REQUEST"):
        cairn.load_safetensors(model, {}, names="x")


def test_all_that_does_not_fit_is_told_at_once(model):
    w = np.zeros((4, 6), "float64")
    with raises_error("SHAPE_MISMATCH", tensor="model.b") as caught:
        cairn.load_safetensors(model, {"model.w": w, "model.b": np.zeros(5, "float32"),
                                       "model.n": np.zeros(3, "int32")})
    assert "(5,)" in str(caught.value) and "float64" in str(caught.value) and "safetensors_index" in str(caught.value)
    with raises_error("DTYPE_MISMATCH", tensor="model.w"):
        cairn.load_safetensors(model, {"model.w": w}, strict=False)
    with raises_error("BAD_SHAPE", tensor="model.w"):
        part = np.zeros((2, 6), "float32")
        cairn.load_safetensors(model, {"model.w": cairn.Shard(part, (4, 6), (3, 0))}, strict=False)
    with raises_error("BAD_REQUEST", tensor="model.b"):
        array = np.zeros(4, "float32")
        array.flags.writeable = False
        cairn.load_safetensors(model, {"model.b": array}, strict=False)


def test_placements_and_the_shards_of_parallel_layers(model):
    def placement(name, shape, dtype):
        assert dtype in ("float32", "int32")
        return {"model.w": (slice(1, 3), slice(-2, None)), "model.b": slice(1, None), "model.n": None}[name]

    files = cairn.load_safetensors(model, placement)
    assert files.tensors["model.w"].tolist() == [[10, 11], [16, 17]] and files.tensors["model.b"].tolist() == [1, 2, 3]
    assert "model.n" not in files.tensors and not files.unexpected
    array = np.zeros((2, 6), "float32")
    files = cairn.load_safetensors(model, lambda name, *_: shards.column_parallel(array, 1, 2) if name == "model.w"
                                   else None)
    assert array.tolist() == [list(range(12, 18)), list(range(18, 24))]
    array[...] = 0
    files = cairn.load_safetensors(model, lambda name, *_: (array, slice(1, 3)) if name == "model.w" else None)
    assert array.tolist() == [list(range(6, 12)), list(range(12, 18))] and files.tensors["model.w"].array is array
    with raises_error("BAD_SHAPE", tensor="model.w"):
        cairn.load_safetensors(model, lambda name, *_: (array, slice(1, 4)) if name == "model.w" else None)
    for wrong in (3, "all", (array, 3), (array, slice(None), slice(None)), (1, 2), slice(0, 4, 2), (slice(None),) * 3):
        with raises_error("BAD_REQUEST", tensor="model.w"):
            cairn.load_safetensors(model, lambda *_, wrong=wrong: wrong)


@pytest.mark.parametrize("arguments", [{"threads": 0}, {"threads": True}, {"threads": 1000}, {"threads": "2"},
                                       {"timeout": -1}, {"timeout": "x"}])
def test_wrong_arguments_are_refused(model, arguments):
    with raises_error("BAD_REQUEST"):
        cairn.load_safetensors(model, {}, strict=False, **arguments)
    for wrong in (None, 3, [1]):
        with raises_error("BAD_REQUEST"):
            cairn.load_safetensors(model, wrong)
    with raises_error("BAD_REQUEST"):
        cairn.load_safetensors(3, {})


# What the files say. Nothing in them is trusted.


@pytest.mark.parametrize("content", [
    b"", b"\1\0\0", struct.pack("<Q", 2**63), struct.pack("<Q", 100_000_001) + b"{}",
    struct.pack("<Q", 3) + b"{}", struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 2) + b"{}x",
    struct.pack("<Q", 200_000) + b"[" * 200_000])
def test_what_is_no_header_is_refused(tmp_path, content):
    (tmp_path / "a.safetensors").write_bytes(content)
    with raises_error("BAD_SAFETENSORS", file=str(tmp_path / "a.safetensors")):
        cairn.safetensors_index(tmp_path)


def entry(begin, end, shape=None, dtype="U8"):
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(("header", "reason"), [
    ({"a": entry(0, 60), "b": entry(50, 100)}, "BAD_SAFETENSORS"),
    ({"a": entry(0, 40), "b": entry(50, 100)}, "BAD_SAFETENSORS"),
    ({"a": entry(0, 90)}, "BAD_SAFETENSORS"),
    ({"a": entry(0, 101)}, "FILE_TRUNCATED"),
    ({"a": entry(0, 2**62)}, "FILE_TRUNCATED"),
    ({"a": entry(0, 100, [2**40, 2**40])}, "BAD_SAFETENSORS"),
    ({"a": entry(0, 100, [-100])}, "BAD_SAFETENSORS"),
    ({"a": entry(100, 0, [0])}, "BAD_SAFETENSORS"),
    ({"a": entry(0, 100, [100], "F32")}, "BAD_SAFETENSORS"),
    ({"a": entry(0, 100, [100], "Q7")}, "UNSUPPORTED"),
    ({"a" * 2000: entry(0, 100)}, "BAD_SAFETENSORS"),
    ({"a": 3}, "BAD_SAFETENSORS"),
])
def test_headers_that_lie_are_refused(tmp_path, header, reason):
    write_raw(tmp_path / "a.safetensors", json.dumps(header).encode(), bytes(100))
    with raises_error(reason, file=str(tmp_path / "a.safetensors")):
        cairn.safetensors_index(tmp_path)


def test_a_tensor_of_two_files_and_one_of_two_entries_are_refused(tmp_path):
    write(tmp_path / "a.safetensors", {"w": np.zeros(3)})
    write(tmp_path / "b.safetensors", {"w": np.zeros(3)})
    with raises_error("BAD_SAFETENSORS", tensor="w"):
        cairn.safetensors_index(tmp_path)
    (tmp_path / "b.safetensors").unlink()
    text = json.dumps(entry(0, 8))
    write_raw(tmp_path / "a.safetensors", f'{{"w": {text}, "w": {text}}}'.encode(), bytes(8))
    with raises_error("BAD_SAFETENSORS"):
        cairn.safetensors_index(tmp_path)


def test_a_directory_that_is_not_complete_is_refused(tmp_path):
    with raises_error("FILE_MISSING"):
        cairn.safetensors_index(tmp_path / "none")
    with raises_error("FILE_MISSING", file=str(tmp_path)):
        cairn.safetensors_index(tmp_path)
    write(tmp_path / "model-00001-of-00002.safetensors", {"a": np.zeros(3)})
    with raises_error("FILE_MISSING", file=str(tmp_path)):
        cairn.safetensors_index(tmp_path)
    write(tmp_path / "model-00002-of-00002.safetensors", {"b": np.zeros(3)})
    assert list(cairn.safetensors_index(tmp_path)) == ["a", "b"]


def test_an_index_that_does_not_fit_its_files_is_refused(tmp_path):
    write(tmp_path / "model-00001-of-00002.safetensors", {"a": np.zeros(3)})
    write(tmp_path / "model-00002-of-00002.safetensors", {"b": np.zeros(3)})
    write(tmp_path / "other.safetensors", {"a": np.ones(3)})
    index = tmp_path / "model.safetensors.index.json"

    def say(weight_map):
        index.write_text(json.dumps({"weight_map": weight_map}))

    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    say({"a": first, "b": second})
    assert list(cairn.safetensors_index(tmp_path)) == ["a", "b"], "what the index does not list is not read"
    for wrong in ({"a": second, "b": second}, {"a": first}, {"a": first, "b": second, "c": first}, {"b": second}):
        say(wrong)
        with raises_error("BAD_SAFETENSORS", file=str(index)):
            cairn.safetensors_index(tmp_path)
    for wrong in ({"a": "../a.safetensors"}, {"a": ""}, {"a": 3}):
        say(wrong)
        with raises_error("BAD_SAFETENSORS", file=str(index)):
            cairn.safetensors_index(tmp_path)
    say({"a": first, "b": "gone.safetensors"})
    with raises_error("FILE_MISSING", file=str(tmp_path / "gone.safetensors")):
        cairn.safetensors_index(tmp_path)
    (tmp_path / second).unlink()
    say({"a": first})
    with raises_error("FILE_MISSING", file=str(index)):
        cairn.safetensors_index(tmp_path)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "a.safetensors")
    begun = time.monotonic()
    with raises_error("STORAGE_ERROR", file=str(tmp_path / "a.safetensors")):
        cairn.safetensors_index(tmp_path)
    assert time.monotonic() - begun < 5


def test_a_file_that_changes_after_its_header_was_read_is_refused(tmp_path):
    path = write(tmp_path / "a.safetensors", {"w": np.zeros(100_000)})
    index = cairn.safetensors_index(tmp_path)
    os.truncate(path, path.stat().st_size - 1)
    with raises_error("FILE_TRUNCATED", file=str(path)):
        cairn.load_safetensors(index, lambda *_: ...)
    path.unlink()
    with raises_error("FILE_MISSING", file=str(path)):
        cairn.load_safetensors(index, lambda *_: ...)


# Faults of storage.

LOAD = """
import sys, time, pathlib
import numpy as np
import cairn
directory, shared, timeout = sys.argv[1], sys.argv[2] == "shared", float(sys.argv[3])
print("begins", flush=True)
begun = time.monotonic()
try:
    files = cairn.load_safetensors(directory, lambda name, shape, dtype: ... if name != "columns" else
                                   (slice(None), slice(10, 700)), shared=shared, timeout=timeout)
    for name, array in files.tensors.items():
        expected = np.load(f"{directory}/{name}.npy")
        assert np.array_equal(array, expected if name != "columns" else expected[:, 10:700]), name
    print("loaded", files.direct_bytes > 0)
except cairn.Error as error:
    print(error.reason, error.metadata.get("file"), error.metadata.get("errno"), time.monotonic() - begun < 10)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begun < 20)
"""


@pytest.fixture
def faulty(tmp_path, shim):
    values = np.random.default_rng(5)
    tensors = {"w": values.random((800, 1000)), "columns": values.random((500, 800)),
               **{f"small.{i}": values.random(30) for i in range(50)}}
    write(tmp_path / "a.safetensors", {"first": np.arange(10.0)})
    write(tmp_path / "b.safetensors", tensors)
    for name, tensor in {**tensors, "first": np.arange(10.0)}.items():
        np.save(tmp_path / f"{name}.npy", tensor)

    def start(fault, shared, timeout=60, begin=4096):
        forget(tmp_path)
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "LD_PRELOAD": str(shim),
                       "SHIM_FILE": "/b.safetensors", "SHIM_FAULT": fault, "SHIM_FROM": str(begin)}
        return subprocess.Popen([sys.executable, "-c", LOAD, tmp_path, shared, str(timeout)], stdout=subprocess.PIPE,
                                text=True, env=environment)
    return start


@pytest.mark.parametrize("shared", ["shared", "alone"])
def test_faults_of_reads_are_mended_or_named(tmp_path, faulty, shared):
    bad = str(tmp_path / "b.safetensors")
    outcomes = {"none": "loaded", "interrupted": "loaded", "short": "loaded", "direct": "loaded False",
                "error": f"STORAGE_ERROR {bad} 5 True", "nothing": f"FILE_TRUNCATED {bad} None True"}
    for fault, expected in outcomes.items():
        process = faulty(fault, shared)
        output = process.communicate(timeout=120)[0].split("\n")
        assert process.returncode == 0 and output[1].startswith(expected), (fault, output)


@pytest.mark.parametrize(("shared", "begin"), [("shared", 4096), ("alone", 4096), ("shared", 0)],
                         ids=["shared", "alone", "header"])
def test_storage_that_hangs_ends_in_time_and_does_not_keep_the_process(tmp_path, faulty, shared, begin):
    hangs = tmp_path / "hangs"
    hangs.touch()
    process = faulty(str(hangs), shared, timeout=1, begin=begin)
    output = process.communicate(timeout=120)[0].split("\n")  # the process ends while a thread hangs
    assert output[1] == f"TIMED_OUT {tmp_path / 'b.safetensors'} None True", output


def test_a_header_that_cannot_be_read_is_named(tmp_path, faulty):
    output = faulty("error", "shared", begin=0).communicate(timeout=120)[0].split("\n")
    assert output[1] == f"STORAGE_ERROR {tmp_path / 'b.safetensors'} 5 True", output


@pytest.mark.parametrize("begin", [4096, 0], ids=["data", "header"])
def test_ctrl_c_ends_a_read_that_hangs(tmp_path, faulty, begin):
    hangs = tmp_path / "hangs"
    hangs.touch()
    process = faulty(str(hangs), "shared", begin=begin)
    process.stdout.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=120)[0] == "interrupted True\n"
