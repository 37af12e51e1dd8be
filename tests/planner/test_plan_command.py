"""Tests the JSON contract of `cairn plan`, against Megatron itself where that is installed."""

import json
import os
import pathlib
import random
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", ROOT / "dist" / "bin")) / "cairn"


def run(command, request):
    text = request if isinstance(request, str) else json.dumps(request)
    done = subprocess.run([CAIRN, "plan", command, "-"], input=text, capture_output=True, text=True, timeout=120)
    assert done.stderr == "", done.stderr
    return done.returncode, json.loads(done.stdout)


def tensor(name, dtype, shape, *shards):
    keys = ("offset", "shape", "flat_range")
    return {"name": name, "dtype": dtype, "global_shape": shape, "shards": [dict(zip(keys, s)) for s in shards]}


def layout(ranks, *tensors, **more):
    return {"ranks": ranks, "tensors": list(tensors), **more}


def rows(world, columns=8, total=16):
    step = total // world
    return [
        layout([r], tensor("w", "float32", [total, columns], ([r * step, 0], [step, columns]))) for r in range(world)
    ]


def test_save_writes_every_byte_once_and_balances_replicas():
    layouts = [
        layout([0, 1], tensor("a", "float32", [4, 8], ([0, 0], [4, 8])), objects=[{"name": "s", "bytes": 100}]),
        layout([2], tensor("b", "bfloat16", [8], ([0], [8], [0, 3])), aliases={"c": "a"}),
        layout([3], tensor("b", "bfloat16", [8], ([0], [8], [3, 8]))),
    ]
    code, plan = run("save", {"layouts": layouts, "bins": 2, "moves": "never"})
    assert code == 0
    assert plan["unique_bytes"] == 4 * 8 * 4 + 8 * 2 + 100
    assert sum(plan["rank_bytes"]) == plan["unique_bytes"] == sum(f["bytes"] for f in plan["files"])
    items = [i for f in plan["files"] for i in f["items"]]
    assert sorted(i["name"] for i in items) == ["a", "b", "b", "s"]
    assert [i["flat_range"] for i in items if i["name"] == "b"] == [[0, 3], [3, 8]]
    assert plan["copies"] == []


def test_load_into_the_same_layout_exchanges_nothing():
    code, plan = run(
        "load", {"source": {"layouts": rows(4)}, "target": {"layouts": rows(4)}, "mapping": None, "bins": 2}
    )
    assert code == 0
    assert plan["copies"] == [] and plan["copy_bytes"] == 0
    assert plan["read_bytes"] == plan["unique_bytes"] == 16 * 8 * 4
    assert [(r["rank"], r["file"][:9]) for r in plan["reads"]] == [(r, f"rank{r:05d}") for r in range(4)]


@pytest.mark.parametrize("source,target", [(4, 2), (2, 8), (1, 4), (8, 1)])
def test_load_reads_each_byte_once(source, target):
    code, plan = run("load", {"source": {"layouts": rows(source)}, "target": {"layouts": rows(target)}})
    assert code == 0
    assert plan["read_bytes"] == plan["unique_bytes"] == sum(r["bytes"] for r in plan["reads"]) == 16 * 8 * 4


def test_load_names_missing_and_unexpected():
    source = [layout([0], tensor("a", "int8", [2], ([0], [2])), tensor("b", "int8", [2], ([0], [2])))]
    target = [layout([0], tensor("a", "int8", [2], ([0], [2])), tensor("c", "int8", [2], ([0], [2])))]
    code, plan = run("load", {"source": {"layouts": source}, "target": {"layouts": target}})
    assert (code, plan["missing"], plan["unexpected"]) == (0, ["c"], ["b"])


def test_load_of_a_tied_name_reads_the_stored_one():
    source = [layout([0], tensor("embed", "int8", [4], ([0], [4])), aliases={"head": "embed"})]
    target = [layout([0], tensor("embed", "int8", [4], ([0], [4])), tensor("head", "int8", [4], ([0], [4])))]
    code, plan = run("load", {"source": {"layouts": source}, "target": {"layouts": target}})
    assert (code, plan["missing"], plan["read_bytes"]) == (0, [], 4)


def test_all_errors_come_in_one_pass():
    layouts = [
        layout(
            [0],
            tensor("gap", "float32", [8], ([0], [4])),
            tensor("overlap", "float32", [8], ([0], [5])),
            tensor("outside", "float32", [8], ([4], [8])),
            tensor("dtype", "float32", [8], ([0], [8])),
            tensor("unknown", "float33", [8], ([0], [8])),
            {"name": "slice", "dtype": "int8", "global_shape": [8], "shards": [{"shape": [4]}]},
            tensor("huge", "float64", [2**61, 2], ([0, 0], [1, 1])),
            aliases={"x": "nothing"},
        ),
        layout([1], tensor("overlap", "float32", [8], ([4], [4])), tensor("dtype", "float16", [8], ([0], [8]))),
    ]
    code, answer = run("save", {"layouts": layouts})
    assert code == 1
    found = {(e["reason"], e["name"]) for e in answer["errors"]}
    assert found == {
        ("SHARD_GAP", "gap"),
        ("SHARD_OVERLAP", "overlap"),
        ("SHARD_OUT_OF_BOUNDS", "outside"),
        ("DTYPE_MISMATCH", "dtype"),
        ("BAD_DTYPE", "unknown"),
        ("BAD_SHAPE", "slice"),
        ("SHAPE_OVERFLOW", "huge"),
        ("ALIAS_UNRESOLVED", "x"),
    }
    overlap = next(e for e in answer["errors"] if e["reason"] == "SHARD_OVERLAP")
    assert (overlap["offset"], overlap["shape"], overlap["ranks"]) == ([4], [1], [0, 1])


def test_moves_bring_the_load_down():
    layouts = [layout([r], *[tensor(f"t{r}.{i}", "int8", [10], ([0], [10])) for i in range(n)]) for r, n in
               enumerate([20, 2, 2])]
    _, never = run("save", {"layouts": layouts, "moves": "never"})
    code, auto = run("save", {"layouts": layouts, "moves": "auto"})
    assert code == 0 and never["copies"] == [] and max(never["rank_bytes"]) == 200
    assert max(auto["rank_bytes"]) <= 90 and sum(auto["rank_bytes"]) == 240
    assert all(c["from"] == 0 and c["bytes"] == 10 for c in auto["copies"])


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"layouts": 3}', '{"layouts": [{"ranks": "0"}]}', "[" * 100000,
                                  '{"layouts": [{"ranks": [0], "tensors": [{"name": 5}]}]}', '{"layouts": []}', "\x00"])
@pytest.mark.parametrize("command", ["save", "load", "bins"])
def test_bad_input_is_an_error_not_a_crash(command, text):
    code, answer = run(command, text)
    assert (
        code == 1
        and answer["errors"]
        and all(set(e) >= {"reason", "name", "ranks", "message"} for e in answer["errors"])
    )


@pytest.mark.interop
def test_bins_equal_megatrons():
    filesystem = pytest.importorskip("megatron.core.dist_checkpointing.strategies.filesystem_async")
    torch = pytest.importorskip("torch")
    planner = pytest.importorskip("torch.distributed.checkpoint.planner")
    metadata = pytest.importorskip("torch.distributed.checkpoint.metadata")
    generator = random.Random(5)
    for _ in range(60):
        bins = generator.randint(1, 7)
        items, writes = [], []
        for i in range(generator.randint(0, 40)):
            name = f"item{i}"
            if generator.random() < 0.3:
                items.append({"name": name, "kind": "object", "bytes": generator.randrange(1000)})
                writes.append(planner.WriteItem(metadata.MetadataIndex(name), planner.WriteItemType.BYTE_IO))
                continue
            size = generator.choice([0, 1, 5, 5, 7, 2**20, 2**53 + 1, 2**55 + generator.randrange(9)])
            items.append({"name": name, "kind": "tensor", "bytes": size})
            data = planner.TensorWriteData(
                chunk=metadata.ChunkStorageMetadata(torch.Size([0]), torch.Size([size])),
                properties=metadata.TensorProperties(dtype=torch.int8),
                size=torch.Size([size]),
            )
            writes.append(
                planner.WriteItem(metadata.MetadataIndex(name), planner.WriteItemType.SHARD, tensor_data=data)
            )
        wanted = [[w.index.fqn for w in bucket] for bucket in filesystem._split_by_size_and_type(bins, writes)]
        code, answer = run("bins", {"bins": bins, "items": items})
        assert code == 0 and answer["bins"] == wanted


def summary(command, request):
    done = subprocess.run(
        [CAIRN, "--format=table", "plan", command, "-"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_summary_for_people_says_who_is_heaviest_and_why():
    heavy = layout([0], *[tensor(f"w{i}", "float32", [1024, 64], ([0, 0], [1024, 64])) for i in range(9)])
    layouts = [heavy, layout([1]), layout([2])]
    text = summary("save", {"layouts": layouts, "bins": 2, "moves": "never"})
    assert "heaviest: rank 0 with 2.25 MiB, 3.000 of the mean" in text
    assert "9 items" in text and "no other rank holds" in text and '"auto"' in text and "no shard moves" in text
    text = summary("save", {"layouts": layouts, "bins": 2, "moves": "auto"})
    assert "1.000 of the mean" in text and "6 shards with 1.50 MiB move" in text and "most from rank 0" in text
    text = summary("load", {"source": {"layouts": layouts}, "target": {"layouts": [dict(heavy, ranks=[0, 1])]}})
    assert "each byte once" in text and "heaviest reader: rank" in text and "takes from 1 rank" in text
    assert "2.25 MiB go from rank to rank" in text
