"""Fingerprints of a program's arrays, against the CRC64 that xz writes."""

import lzma
import random

import numpy
import pytest

import cairn


def crc64(data: bytes) -> str:
    """The check that xz writes behind a block, before the index. The footer of 12 bytes has the index's size."""
    stream = lzma.compress(data, lzma.FORMAT_XZ, lzma.CHECK_CRC64)
    index = (int.from_bytes(stream[-8:-4], "little") + 1) * 4
    check = stream[:-12 - index][-8:]
    return f"{int.from_bytes(check, 'little'):016x}"


def state_of(array: numpy.ndarray, places: list[tuple[slice, ...]]) -> dict[str, object]:
    return {"w": [cairn.Shard(array[place], array.shape, [part.start for part in place]) for place in places]}


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float32", "complex128"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (4, 5), (2, 3, 4, 5)])
def test_whole_tensor_has_the_crc64_of_its_bytes(shape, dtype):
    array = (numpy.arange(numpy.prod(shape, dtype=int)) % 7).astype(dtype).reshape(shape)
    found = cairn.fingerprint({"w": array})["w"]
    assert found.complete
    assert str(found) == crc64(array.tobytes())


def test_known_values():
    """Those of docs/storage_format.md."""
    assert str(cairn.fingerprint({"w": numpy.frombuffer(b"123456789", numpy.uint8)})["w"]) == "995dc9bbdf1939fa"
    matrix = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    assert str(cairn.fingerprint({"w": matrix})["w"]) == crc64(matrix.tobytes()) == "06437ffef82d272f"


def test_empty_tensor_has_that_of_no_bytes():
    assert str(cairn.fingerprint({"w": numpy.zeros((0, 4), numpy.float32)})["w"]) == "0" * 16


@pytest.mark.parametrize("turned", [lambda a: a.T, lambda a: a[::-1], lambda a: a[:, ::2], lambda a: a[1:3, 1:4]])
def test_arrays_of_any_strides_count_in_row_major_order(turned):
    array = turned(numpy.random.default_rng(1).random((6, 8)))
    assert str(cairn.fingerprint({"w": array})["w"]) == crc64(array.tobytes())


@pytest.mark.parametrize("seed", range(20))
def test_shards_add_up_to_the_tensor_however_they_are_cut(seed):
    chance = random.Random(seed)
    shape = [chance.randint(2, 9) for _ in range(chance.randint(1, 3))]
    array = numpy.random.default_rng(seed).integers(0, 1 << 16, shape, numpy.uint16)
    axis, cut = chance.randrange(len(shape)), 1
    cut = chance.randint(1, shape[axis] - 1)
    low = tuple(slice(0, cut) if i == axis else slice(0, n) for i, n in enumerate(shape))
    high = tuple(slice(cut, n) if i == axis else slice(0, n) for i, n in enumerate(shape))
    whole = str(cairn.fingerprint({"w": array})["w"])
    assert str(cairn.fingerprint(state_of(array, [low, high]))["w"]) == whole, "two shards of one rank"
    ranks = [cairn.fingerprint(state_of(array, [place])) for place in (low, high)]
    assert not ranks[0]["w"].complete and str(ranks[0]["w"]).startswith("part of")
    assert str(cairn.fingerprints.add(ranks)["w"]) == whole, "of two ranks"
    flat = array.reshape(-1)
    at = chance.randint(0, flat.size)
    pieces = [cairn.Shard(flat[begin:end], shape, [0] * len(shape), shape, (begin, end))
              for begin, end in ((0, at), (at, flat.size))]
    assert str(cairn.fingerprint({"w": pieces})["w"]) == whole, "flat pieces"


def test_each_bit_counts():
    array = numpy.zeros((4, 4), numpy.float32)
    zeros = str(cairn.fingerprint({"w": array})["w"])
    array[2, 1] = -0.0
    assert str(cairn.fingerprint({"w": array})["w"]) != zeros


def test_what_cannot_be_added_is_refused():
    array = numpy.ones((4, 4), numpy.float32)
    whole = cairn.fingerprint({"w": array})["w"]
    for other, reason in [(whole, "BAD_REQUEST"),
                          (cairn.fingerprint({"w": array.astype(numpy.float64)})["w"], "DTYPE_MISMATCH"),
                          (cairn.fingerprint({"w": array.reshape(2, 8)})["w"], "SHAPE_MISMATCH")]:
        with pytest.raises(cairn.Error) as error:
            whole + other
        assert error.value.reason == reason


def test_a_shard_outside_its_tensor_is_named():
    with pytest.raises(cairn.Error) as error:
        cairn.fingerprint({"v": cairn.Shard(numpy.ones((2, 2)), (2, 2), (1, 0))})
    assert error.value.reason == "BAD_SHAPE"
    assert error.value.metadata["tensor"] == "v"


def test_state_dict_of_torch():
    torch = pytest.importorskip("torch")
    import cairn.torch
    weight = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    found = cairn.torch.fingerprint({"model": {"w": weight.T}, "step": 5})
    assert list(found) == ["model.w"]
    assert str(found["model.w"]) == crc64(weight.T.contiguous().view(torch.uint8).numpy().tobytes())
