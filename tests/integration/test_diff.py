"""cairn diff: which tensors of two checkpoints differ, whatever their layouts."""

import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

import cairn
from testing.ranks import command, command_json, noise, on_ranks, rows

WHOLE = {f"layers.{n}.w": noise((37, 50), np.float32, n) for n in range(4)} | {
    "embed": noise((99, 8), np.float16, 50), "scalar": noise((), np.float64, 51), "empty": np.zeros((0, 3), np.int8)}


def save(root, whole, ranks, step, how, **more):
    """Saves the same tensors under a layout: by rows, by columns, or in flat pieces."""

    def shard(rank, array):
        if array.ndim == 0 or array.size == 0:
            return array
        if how == "flat":
            begin, end = (array.size * edge // ranks for edge in (rank, rank + 1))
            return cairn.Shard(array.reshape(-1)[begin:end].copy(), array.shape, (0,) * array.ndim, array.shape,
                               (begin, end))
        return rows(array, rank, ranks, axis=0 if how == "rows" else array.ndim - 1)

    with cairn.local.Cluster(ranks=ranks, root=root) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(
            step, {name: shard(rank, array) for name, array in whole.items()} | more).wait())


def differing(answer):
    return {name["name"]: name["difference"] for name in answer["names"]}


def fingerprint(array: np.ndarray) -> str:
    return str(cairn.fingerprint({"w": array})["w"])


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    top = tmp_path_factory.mktemp("roots")
    more = {"note": {"epoch": 1}, "tied": cairn.alias("embed")}
    save(top / "a", WHOLE, 3, 1, "rows", **more)
    save(top / "b", WHOLE, 2, 1, "columns", **more)
    save(top / "c", WHOLE, 2, 1, "flat", **more)
    return top


@pytest.mark.parametrize("other", ["b", "c"])
def test_other_layouts_of_the_same_tensors_are_equal(roots, other):
    answer = command_json("diff", "demo@1", "demo", "--root", str(roots / "a"), "--second-root", str(roots / other),
                          "--all")
    assert answer["equal"] and answer["differing"] == 0
    assert sorted(differing(answer)) == sorted([*WHOLE, "note"])
    for name in answer["names"]:
        assert name["first"] == name["second"]
        if name["kind"] == "tensor":
            assert name["first"]["fingerprint"] == fingerprint(WHOLE[name["name"]]), name["name"]
    assert "equal" in command("diff", "demo@1", "demo@1", "--root", str(roots / "a")).stdout


def test_each_kind_of_difference_is_named(roots, tmp_path):
    changed = {name: array.copy() for name, array in WHOLE.items()}
    changed["layers.2.w"].view(np.uint32)[30, 7] ^= 1
    changed["layers.2.w"].view(np.uint32)[36, 49] ^= 1 << 31
    changed["embed"] = changed["embed"].view(np.int16)
    changed["layers.3.w"] = changed["layers.3.w"].T.copy()
    del changed["layers.0.w"]
    changed["new"] = noise((3,), np.float32)
    save(tmp_path / "d", changed, 2, 1, "rows", note={"epoch": 2})
    answer = command_json("diff", "demo@1", "demo@1", "--root", str(roots / "a"), "--second-root",
                          str(tmp_path / "d"), "--memory", "64MiB", expect=1)
    assert differing(answer) == {"embed": "DTYPE", "layers.0.w": "ONLY_FIRST", "layers.2.w": "VALUES",
                                 "layers.3.w": "SHAPE", "new": "ONLY_SECOND", "note": "VALUES", "tied": "ONLY_FIRST"}
    values = next(name for name in answer["names"] if name["name"] == "layers.2.w")
    assert (values["differing"], values["first_differing"]) == (2, 30 * 50 + 7)
    assert values["second"]["fingerprint"] == fingerprint(changed["layers.2.w"])
    table = command("diff", "demo@1", "demo@1", "--root", str(roots / "a"), "--second-root", str(tmp_path / "d"),
                    expect=1).stdout
    assert "ONLY_SECOND" in table and "7 of 10 names differ" in table


def test_the_largest_difference_is_told_and_many_names_are_put_together(tmp_path):
    whole = {f"layers.{n}.w": np.arange(12, dtype=np.float32).reshape(3, 4) for n in range(60)}
    changed = {name: array.copy() for name, array in whole.items()}
    for n, array in enumerate(changed.values()):
        array[1, 2] += 1 + n / 64
        array[0, 0] -= 0.5
    changed["layers.7.w"][2, 3] = np.nan
    changed["bias"] = np.ones(3)
    save(tmp_path / "a", whole, 2, 1, "rows")
    save(tmp_path / "b", changed, 2, 1, "rows")
    roots = ["--root", str(tmp_path / "a"), "--second-root", str(tmp_path / "b")]
    answer = command_json("diff", "demo@1", "demo@1", *roots, expect=1)
    for number in (3, 7):
        (name,) = [name for name in answer["names"] if name["name"] == f"layers.{number}.w"]
        apart = np.abs(changed[name["name"]] - whole[name["name"]])
        assert (name["largest_difference"], name["largest_at"]) == (np.nanmax(apart), np.nanargmax(apart))
        assert name["nan_on_one_side"] == np.count_nonzero(np.isnan(apart))
    assert answer["groups"] == [
        {"pattern": "bias", "kind": "tensor", "difference": "ONLY_SECOND", "names": 1},
        {"pattern": "layers.*.w", "kind": "tensor", "difference": "VALUES", "names": 60, "differing": 121,
         "largest_difference": 1 + 59 / 64, "largest_in": "layers.59.w", "nan_on_one_side": 1}]
    table = command("diff", "demo@1", "demo@1", *roots, expect=1).stdout
    assert "layers.*.w (60 names)" in table and "largest difference 1.92188 in layers.59.w at 6" in table, table
    assert "layers.3.w" not in table and "61 of 61 names differ" in table
    table = command("diff", "demo@1", "demo@1", *roots, "--all", expect=1).stdout
    assert "2 elements, from 0, largest difference 1.04688 at 6" in table, table


def test_files_of_hugging_face_are_compared_through_a_mapping(roots, tmp_path, monkeypatch):
    source = tmp_path / "model"
    source.mkdir()
    safetensors.numpy.save_file({f"h.{n}": np.ascontiguousarray(WHOLE[f"layers.{n}.w"].T) for n in range(4)},
                                source / "model.safetensors")
    (tmp_path / "m.aoa").write_text("h.$LAYER_ID^T -> layers.$LAYER_ID.w")
    answer = command_json("diff", str(source), "demo@1", "--root", str(roots / "b"), "--mapping",
                          str(tmp_path / "m.aoa"), expect=1)
    assert set(differing(answer).values()) == {"ONLY_SECOND"} and "layers.0.w" not in differing(answer)
    # A directory that is there is taken without a dot before it.
    monkeypatch.chdir(tmp_path)
    for name in ("model", "model/"):
        assert command_json("diff", name, "./model")["equal"]
    assert "NOT_COMMITTED" in command("diff", "other@1", "model", "--root", str(roots / "b"), expect=1).stderr


def test_a_damaged_block_is_an_error_and_no_difference(roots, tmp_path):
    # Equal tensors would not be read.
    changed = {name: array.copy() for name, array in WHOLE.items()}
    for array in changed.values():
        array.reshape(-1).view(np.uint8)[:1] ^= 1
    save(tmp_path / "d", changed, 1, 1, "rows")
    file = next((tmp_path / "d").glob("demo/*/*/*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    failed = command("diff", "demo@1", "demo@1", "--root", str(roots / "a"), "--second-root", str(tmp_path / "d"),
                     expect=1)
    assert "CHECKSUM_MISMATCH" in failed.stderr


def test_tensors_above_the_memory_are_streamed(tmp_path):
    whole = {"w": noise((6000, 5001), np.float32, 1)}
    for step, edge in ((1, 0), (2, 1)):
        whole["w"].view(np.uint32)[-1, -1] = edge
        (tmp_path / str(step)).mkdir()
        safetensors.numpy.save_file(whole, tmp_path / str(step) / "x.safetensors")
    # A process's peak counts from before it ran the command, so a small process starts it.
    measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=sys.stderr);"
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    done = subprocess.run([sys.executable, "-S", "-c", measure, str(cairn.local.binary("cairn")), "diff",
                           str(tmp_path / "1"), str(tmp_path / "2"), "--memory", "64MiB"],
                          check=True, capture_output=True, text=True)
    assert "1 element, from 30005999" in done.stderr
    assert int(done.stdout) * 1024 < 90 << 20
