"""Compares random programs with an oracle that executes the statements on small arrays, forwards and backwards.

CAIRN_AOA_SEEDS sets how many programs each test takes (default 60).
"""

import os
import random

import numpy as np
import pytest

from aoa_testing import cast, evaluate, request, resolve, whole

SEEDS = range(int(os.environ.get("CAIRN_AOA_SEEDS", "60")))


class Machine:
    """Makes a random valid program and runs it on arrays at the same time. The oracle is numpy alone."""

    def __init__(self, seed, invertible=False):
        self.random = random.Random(seed)
        self.invertible = invertible
        self.statements = []
        self.sources = {}
        self.values = {}  # name -> (array, dtype)
        self.count = 0
        self.reshaped = set()  # their parts may not be cut or joined freely: docs/mapping.md, reshape
        start = 0
        for _ in range(self.random.randint(1, 4)):
            shape = [self.random.choice([1, 2, 3, 4, 6, 8]) for _ in range(self.random.choice([1, 2, 2, 2, 3]))]
            name = self.fresh("src")
            array = np.arange(start, start + np.prod(shape), dtype=np.float32).reshape(shape)
            start += array.size
            self.sources[name] = array
            self.values[name] = (array, "float32")
        for _ in range(self.random.randint(1, 12)):
            self.step()

    def fresh(self, prefix="t"):
        self.count += 1
        return f"{prefix}.{self.count}.w"

    def pick(self):
        return self.random.choice(sorted(self.values))

    def give(self, statement, read, made):
        self.statements.append(statement)
        if self.invertible or self.random.random() < 0.7:  # else the read name lives on, to be read again
            for name in read:
                self.values.pop(name, None)
        self.values.update(made)
        if "reshape" in statement or self.reshaped & set(read):
            self.reshaped.update(made)

    def step(self):
        kinds = ["rename", "split", "sizes", "merge", "permute", "transpose", "reshape", "redefine"]
        if not self.invertible:
            kinds.append("cast")
        getattr(self, "do_" + self.random.choice(kinds))()

    def do_rename(self):
        name, new = self.pick(), self.fresh()
        self.give(f"{name} -> {new}", [name], {new: self.values[name]})

    def do_redefine(self):
        name = self.pick()
        array, dtype = self.values[name]
        if not self.invertible:
            self.statements.append(f"{name}^T -> {name}")
            self.values[name] = (array.T, dtype)

    def do_split(self):
        name = self.pick()
        if name in self.reshaped:
            return
        array, dtype = self.values[name]
        axis = self.random.randrange(array.ndim)
        choices = [n for n in (2, 3, 4) if array.shape[axis] % n == 0]
        if not choices:
            return
        n = self.random.choice(choices)
        new = [self.fresh() for _ in range(n)]
        self.give(f"{name} -> {', '.join(new)}, axis = {axis}", [name],
                  {k: (v, dtype) for k, v in zip(new, np.split(array, n, axis))})

    def do_sizes(self):
        name = self.pick()
        if name in self.reshaped:
            return
        array, dtype = self.values[name]
        axis = self.random.randrange(array.ndim)
        if array.shape[axis] < 2:
            return
        cut = self.random.randrange(1, array.shape[axis])
        a, b = self.fresh(), self.fresh()
        left, right = np.split(array, [cut], axis)
        self.give(f"{name} -> {a}, {b}, axis={axis}, sizes='[{cut}, {array.shape[axis] - cut}]'  # unequal", [name],
                  {a: (left, dtype), b: (right, dtype)})

    def do_merge(self):
        name = self.pick()
        array, dtype = self.values[name]
        axis = self.random.randrange(array.ndim)

        def fits(other):
            o, d = self.values[other]
            return not self.reshaped & {name, other} and d == dtype and o.ndim == array.ndim and all(
                i == axis or o.shape[i] == array.shape[i] for i in range(array.ndim))

        others = [other for other in sorted(self.values) if other != name and fits(other)]
        if not others:
            return
        parts = [name, *self.random.sample(others, min(len(others), self.random.randint(1, 3)))]
        merged = np.concatenate([self.values[p][0] for p in parts], axis)
        if merged.size > 4096:
            return
        sizes = ""
        if self.invertible:  # the way back is a split, which has to know unequal parts
            sizes = f", sizes='{[self.values[p][0].shape[axis] for p in parts]}'"
        new = self.fresh()
        self.give(f"{', '.join(parts)} -> {new}, axis={axis}{sizes}", parts, {new: (merged, dtype)})

    def do_permute(self):
        name, new = self.pick(), self.fresh()
        array, dtype = self.values[name]
        axes = list(range(array.ndim))
        self.random.shuffle(axes)
        self.give(f"{name} -> {new}, permute = '{axes}'", [name], {new: (array.transpose(axes), dtype)})

    def do_transpose(self):
        name, new = self.pick(), self.fresh()
        array, dtype = self.values[name]
        self.give(f"{name}^T -> {new}", [name], {new: (array.T, dtype)})

    def do_reshape(self):
        # Only a whole source is surely aligned; parts have tests of their own.
        name = self.random.choice(sorted(self.sources))
        if name not in self.values or self.values[name][0] is not self.sources[name]:
            return
        array, dtype = self.values[name]
        new = self.fresh()
        if array.ndim == 2 and array.shape[0] % 2 == 0:
            canonical = [array.shape[0] // 2, 2, array.shape[1]]
            self.give(f"{name} -> {new}, reshape='{canonical}'", [name], {new: (array.reshape(canonical), dtype)})
        elif array.ndim == 3:
            canonical = list(array.shape)
            flat = array.reshape(array.shape[0] * array.shape[1], array.shape[2])
            self.give(f"{name} -> {new}, reshape='{canonical}'", [name], {new: (flat, dtype)})

    def do_cast(self):
        name, new = self.pick(), self.fresh()
        array, dtype = self.values[name]
        if dtype != "float32":
            return
        to = self.random.choice(["float16", "bfloat16", "float64"])
        text = f"dtype='{to}'" if self.random.random() < 0.5 else f"src_dtype='float32', dst_dtype='{to}'"
        self.give(f"{name} -> {new}, {text}", [name], {new: (cast(array, to), to)})

    def source_descs(self):
        return [whole(name, array.shape) for name, array in self.sources.items()]

    def target_descs(self):
        return [whole(name, array.shape, dtype) for name, (array, dtype) in self.values.items()]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_program_equals_numpy(seed):
    machine = Machine(seed)
    targets = machine.target_descs()
    queries = list(targets)
    for target in targets:  # and a random part of each, as a rank holds it
        shape = target["global_shape"]
        low = [machine.random.randrange(size) for size in shape]
        high = [machine.random.randrange(start, size) + 1 for start, size in zip(low, shape)]
        queries.append({**target, "global_offset": low, "local_shape": [b - a for a, b in zip(low, high)]})
    status, answer = resolve(request({"aoa_statements": machine.statements}, machine.source_descs(), targets, queries))
    assert status == 0, (machine.statements, answer)
    for got in answer["answers"]:
        name = got["target"]["key"]
        if "error" in got:  # a part that cuts through what a reshape keeps together
            assert "reshape" in str(machine.statements) and got["error"]["reason"] == "MAPPING_SHAPE"
            assert got["target"]["local_shape"] != got["target"]["global_shape"]
            continue
        want = machine.values[name][0]
        index = tuple(slice(o, o + n) for o, n in zip(got["target"]["global_offset"], got["target"]["local_shape"]))
        np.testing.assert_array_equal(evaluate(got, machine.sources), want[index], err_msg=str(machine.statements))


@pytest.mark.parametrize("seed", SEEDS)
def test_reverse_of_forward_is_identity(seed):
    machine = Machine(seed, invertible=True)
    targets = machine.target_descs()
    config = {"aoa_statements": machine.statements, "aoa_config_reverse": True}
    status, answer = resolve(request(config, targets, machine.source_descs(), machine.source_descs()))
    assert status == 0, (machine.statements, answer)
    loaded = {name: array for name, (array, _) in machine.values.items()}
    for got in answer["answers"]:
        np.testing.assert_array_equal(
            evaluate(got, loaded), machine.sources[got["target"]["key"]], err_msg=str(machine.statements))


def test_oracle_notices_a_planted_fault():
    """The same comparison fails when the program that is asked is not the one that was run."""
    machine = Machine(3)
    machine.sources["src.x.w"] = array = np.arange(4, dtype=np.float32).reshape(2, 2)
    machine.values["t.x.w"] = (array, "float32")
    machine.statements.append("src.x.w^T -> t.x.w")  # numpy was told that nothing is transposed
    target = whole("t.x.w", (2, 2))
    status, answer = resolve(
        request({"aoa_statements": machine.statements}, machine.source_descs(), machine.target_descs(), [target]))
    assert status == 0
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(evaluate(answer["answers"][0], machine.sources), array)
