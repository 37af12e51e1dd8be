"""Tests what a manifest keeps of tensors against the reference in numpy."""

import math

import numpy as np
import reference

import cairn
from testing.ranks import command_json, on_ranks


def test_the_manifest_has_what_the_reference_computes(tmp_path):
    random = np.random.default_rng(3)
    whole = {
        "floats": random.standard_normal((30, 17)).astype(np.float32),
        "halves": random.standard_normal((12, 5)).astype(np.float16),
        "doubles": random.standard_normal((6, 3)),
        "numbers": random.integers(-500, 500, (8, 4)),
        "bytes": random.integers(0, 256, (7,), np.uint8),
        "holes": np.where(random.random((20, 9)) < 0.2, np.nan, random.standard_normal((20, 9))).astype(np.float32),
        "zeros": np.zeros((40, 2), np.float32),
    }
    whole["holes"][3, 4] = np.inf

    def save(rank, client):
        columns = {name: array for name, array in whole.items() if array.ndim == 2}
        cut = {name: array.shape[1] // 2 for name, array in columns.items()}
        state = {name: cairn.Shard(np.ascontiguousarray(array[:, :cut[name]] if rank == 0 else array[:, cut[name]:]),
                                   array.shape, (0, cut[name] * rank)) for name, array in columns.items()}
        client.save(1, {**state, "bytes": whole["bytes"]}).wait()

    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        on_ranks(cluster, save)
    shown = {tensor["name"]: tensor for tensor in command_json("show", "demo@1", "--root", str(tmp_path))["tensors"]}
    assert set(shown) == set(whole)
    for name, array in whole.items():
        assert shown[name]["fingerprint"] == reference.fingerprint(array), name
        wanted = reference.numbers(array)
        for key in ("zeros", "non_finite", "min", "max"):
            assert shown[name][key] == wanted[key], (name, key)
        assert math.isclose(shown[name]["norm"], math.sqrt(wanted["sum_squares"]), rel_tol=1e-5), name


def test_the_signs_of_the_sketch_are_those_of_the_program():
    # common/tensor/statistics_test.cc has the same numbers.
    assert reference.numbers(np.arange(1, 81, dtype=np.float32))["sketches"] == [
        54, 208, 40, 112, 98, -348, -88, 24]
