"""Holds what the tests of the mapping language share: the binary, requests, and an evaluator of answers on numpy
arrays."""

import ast
import json
import os
import pathlib
import re
import subprocess

import numpy as np

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"

FIELDS = ("key", "local_shape", "global_shape", "global_offset", "dtype")


def desc(value):
    """Returns a description as the command takes it, from the short form [key, local, global, offset, dtype]."""
    return dict(zip(FIELDS, value)) if isinstance(value, (list, tuple)) else value


def descs(values):
    return None if values is None else [desc(value) for value in values]


def whole(key, shape, dtype="float32"):
    shape = list(shape)
    return {"key": key, "local_shape": shape, "global_shape": shape, "global_offset": [0] * len(shape), "dtype": dtype}


def request(aoa_config, source, destination=None, queries=()):
    return {
        "aoa_config": aoa_config,
        "source": descs(source),
        "destination": descs(destination),
        "queries": descs(queries),
    }


def run(*arguments, stdin=None, check=None):
    done = subprocess.run(
        [str(BINARY), *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    if check is not None:
        assert done.returncode == check, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def resolve(body):
    """Returns (exit status, answer)."""
    done = run("aoa", "resolve", "-", stdin=json.dumps(body))
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


_NUMPY = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


def cast(array, dtype):
    if dtype == "bfloat16":  # round to nearest even, kept in float32
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return rounded.astype(np.uint32).view(np.float32)
    return array.astype(_NUMPY[dtype])


def box(description):
    return tuple(
        slice(start, start + size)
        for start, size in zip(description["global_offset"], description["local_shape"])
    )


def apply_steps(part, steps, target_shape):
    """Applies the steps of an entry to the source part."""
    for step in steps or []:
        if step.startswith("["):
            part = part.transpose(ast.literal_eval(step))
        elif step.startswith("reshape:"):
            canonical = ast.literal_eval(step[len("reshape:"):])
            part = part.reshape(part.shape[0] // canonical[1], *canonical[1:])
        elif step.startswith("flatten:"):
            part = part.reshape(part.shape[0] * part.shape[1], -1)
        else:
            part = cast(part, step)
    assert list(part.shape) == list(target_shape), (part.shape, target_shape)
    return part


def evaluate(answer, sources):
    """Returns the target's values by executing the entries, which must write every element exactly once."""
    target = answer["target"]
    values = np.zeros(target["local_shape"])
    written = np.zeros(target["local_shape"], dtype=int)
    for entry in answer["entries"]:
        part = sources[entry["source"]["key"]][box(entry["source"])]
        part = apply_steps(part, entry["postprocess"], entry["target"]["local_shape"])
        local = tuple(
            slice(start - base, start - base + size)
            for start, base, size in zip(
                entry["target"]["global_offset"], target["global_offset"], entry["target"]["local_shape"]
            )
        )
        values[local] = part
        written[local] += 1
    assert (written == 1).all(), "an element is not written exactly once"
    return values


def tokens(statement):
    """Returns a statement's tokens, to compare texts whatever their blanks."""
    return re.findall(r"->|[=:\[\],]|\d+|\"[^\"]*\"|'[^']*'|[A-Za-z_][A-Za-z.$_*\d^]*", statement)
