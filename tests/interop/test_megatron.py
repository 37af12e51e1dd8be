"""Saves and loads Megatron-core's sharded state dicts under several layouts; Megatron-core reads what Cairn exports."""

import argparse
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import cairn
from testing.dcp import assert_equal, tensor
from testing.library import Library
from testing.ranks import command, command_json, on_ranks

mapping = Library("megatron.core.dist_checkpointing.mapping")
megatron = Library("cairn.torch.megatron")

pytestmark = pytest.mark.interop

WORKER = pathlib.Path(__file__).with_name("megatron_worker.py")
LAYERS = 4
WHOLE = {"decoder.w": tensor((LAYERS, 8, 6), torch.bfloat16, 1), "embedding": tensor((16, 6), torch.float32, 2),
         "fused": tensor((16, 6), torch.float32, 3), "norm": tensor((6,), torch.float64, 4)}


def gate_and_up(key, data, replica_id, tp, world):
    """Makes a factory as Megatron does it for a fused SwiGLU layer: both halves are cut among the ranks."""
    def build(key, data, replica_id, flattened_range):
        gate, up = data.chunk(2)
        return [mapping.ShardedTensor.from_rank_offsets(key, part, (0, tp + offset, 2 * world), replica_id=replica_id)
                for part, offset in ((gate, 0), (up, world))]

    return mapping.ShardedTensorFactory(key, data, build, torch.cat, replica_id)


def state(rank, tp_world, pp_world, fill=True):
    """Is what rank `rank` of tp_world x pp_world ranks has; zeros, or no data at all, if it is to be loaded."""
    tp, pp = rank % tp_world, rank // tp_world

    def part(name, dim, *index):
        value = WHOLE[name][index] if index else WHOLE[name]
        value = value.chunk(tp_world, dim)[tp].clone() if dim is not None else value.clone()
        return value if fill else torch.zeros_like(value)

    gate, up = (half.chunk(tp_world)[tp] for half in WHOLE["fused"].chunk(2))
    fused = torch.cat([gate, up])
    layers = range(pp * LAYERS // pp_world, (pp + 1) * LAYERS // pp_world)
    result = {
        "layers": [mapping.ShardedTensor.from_rank_offsets(
            "decoder.w", part("decoder.w", 0, layer), (0, layer, LAYERS), (1, tp, tp_world), replica_id=0,
            prepend_axis_num=1) for layer in layers],
        "embedding": mapping.ShardedTensor.from_rank_offsets("embedding", part("embedding", 0), (0, tp, tp_world),
                                                             replica_id=pp),
        "norm": mapping.ShardedTensor.from_rank_offsets("norm", part("norm", None), replica_id=(tp, pp)),
        "mlp": gate_and_up("fused", fused if fill else torch.zeros_like(fused), pp, tp, tp_world),
        "extra": [mapping.ShardedObject(
            "decoder.extra", {"amax": [1.5, layer], "state": torch.full((3,), float(layer))}, (LAYERS,), (layer,),
            replica_id=tp) for layer in layers],
        "local": mapping.LocalNonpersistentObject({"rank": rank})}
    if fill:
        result |= {"iteration": 7, "optimizer": {"param_groups": [{"lr": 0.1, "betas": (0.9, 0.95)}]}}
    return result


def check(loaded, rank, tp_world, pp_world):
    expected = state(rank, tp_world, pp_world)
    for name in ("embedding", "norm"):
        assert_equal(loaded[name], expected[name].data, name)
    for one, other in zip(loaded["layers"], expected["layers"], strict=True):
        assert_equal(one, other.data)
    for one, other in zip(loaded["extra"], expected["extra"], strict=True):
        assert_equal(one, other.data)
    assert_equal(loaded["mlp"], expected["mlp"].data)
    assert loaded["local"] == {"rank": rank} and loaded["iteration"] == 7
    assert loaded["optimizer"] == {"param_groups": [{"lr": 0.1, "betas": (0.9, 0.95)}]}


@pytest.fixture(scope="module", autouse=True)
def megatron_core():
    pytest.importorskip("megatron.core")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two by two ranks have saved step 3."""
    root = tmp_path_factory.mktemp("root")
    with cairn.local.Cluster(ranks=4, root=root) as cluster:
        on_ranks(cluster, lambda rank, client: megatron.save(client, 3, state(rank, 2, 2)).wait())
    return root


@pytest.mark.parametrize("tp_world, pp_world", [(2, 2), (1, 1), (4, 1), (1, 2), (2, 1)])
def test_Load_AnotherLayout_GivesEveryRankItsParts(saved, tp_world, pp_world):
    def work(rank, client):
        return megatron.load(client, state(rank, tp_world, pp_world, fill=False))

    with cairn.local.Cluster(ranks=tp_world * pp_world, root=saved) as cluster:
        for rank, loaded in enumerate(on_ranks(cluster, work)):
            check(loaded, rank, tp_world, pp_world)


def test_Load_TensorsWithoutData_AreMade(saved):
    wanted = {"embedding": state(0, 1, 1)["embedding"].without_data()}
    with cairn.local.Cluster(ranks=1, root=saved) as cluster, cluster.connect(0) as client:
        assert_equal(megatron.load(client, wanted)["embedding"], WHOLE["embedding"])


def test_Load_NamesThatAreNotThere_AreRefused(saved):
    wanted = {"a": mapping.ShardedTensor.from_rank_offsets("other", torch.zeros(2)),
              "b": mapping.ShardedObject("decoder.extra", None, (9,), (8,))}
    with cairn.local.Cluster(ranks=1, root=saved) as cluster, cluster.connect(0) as client:
        with pytest.raises(cairn.Error) as refused:
            megatron.load(client, wanted)
    assert refused.value.reason == "MISSING_NAMES"
    assert "other" in str(refused.value) and "decoder.extra/shard_8_9" in str(refused.value)


def test_Save_ValueOfAClass_IsRefusedByItsPath(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        with pytest.raises(cairn.Error) as refused:
            megatron.save(client, 3, state(0, 1, 1) | {"args": argparse.Namespace(layers=2)})
    assert refused.value.reason == "BAD_REQUEST" and "args" in str(refused.value)


def worker(*arguments):
    subprocess.run([sys.executable, WORKER, *map(str, arguments)], check=True, capture_output=True, timeout=120)


def test_Export_AsMegatron_IsLoadedByMegatron(saved, tmp_path):
    answer = command_json("export", "demo@3", "--root", str(saved), "--to", str(tmp_path / "iter_0000003"), "--as",
                          "megatron", "--max-shard-size", "1KB")
    assert answer["values"] == LAYERS and answer["left_out"] == []
    torch.save((LAYERS, {name: (value.shape, value.dtype) for name, value in WHOLE.items()}), tmp_path / "wanted.pt")
    worker("load", tmp_path / "iter_0000003", tmp_path / "wanted.pt", tmp_path / "loaded.pt")
    loaded = torch.load(tmp_path / "loaded.pt", weights_only=True)
    assert loaded["unexpected"] == loaded["missing"] == []
    for name in ("embedding", "norm", "fused"):
        assert_equal(torch.cat(loaded[name]), WHOLE[name], name)
    assert_equal(torch.stack(loaded["decoder.w"]), WHOLE["decoder.w"])
    for layer, value in enumerate(loaded["extra"]):
        assert_equal(value, {"amax": [1.5, layer], "state": torch.full((3,), float(layer))})
    assert loaded["iteration"] == 7
    assert loaded["optimizer"] == {"param_groups": [{"lr": 0.1, "betas": (0.9, 0.95)}]}


def test_Export_OfAnImport_NamesTheCommonValuesThatItLeavesOut(tmp_path):
    (tmp_path / "in").mkdir()
    worker("save", tmp_path / "in")
    root = ["--root", str(tmp_path / "root")]
    command("import", str(tmp_path / "in"), "--to", "demo@3", *root)
    answer = command_json("export", "demo@3", *root, "--to", str(tmp_path / "out"), "--as", "megatron")
    assert answer["left_out"] == ["args (argparse.Namespace)"]
    command("import", str(tmp_path / "out"), "--to", "demo@4", *root)
    answer = command_json("diff", "demo@3", "demo@4", *root, "--exclude", "common.pt")
    assert answer["equal"] and answer["compared"] == 4


def test_Load_DirectoryOfMegatron_IsASource(tmp_path):
    (tmp_path / "in").mkdir()
    worker("save", tmp_path / "in")
    wanted = {"w": mapping.ShardedTensor.from_rank_offsets("decoder.w", torch.zeros(8, 6)),
              "extra": mapping.ShardedObject("decoder._extra_state", None, (1,), (0,))}
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        loaded = megatron.load(client, wanted, source=tmp_path / "in")
    assert_equal(loaded["w"], torch.arange(48.0).reshape(8, 6))
    assert loaded["extra"] == {"amax": [1.5, 2]} and loaded["iteration"] == 7
    assert isinstance(loaded["args"], cairn.Opaque)
