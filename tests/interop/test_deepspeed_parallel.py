"""Loads and imports what the real DeepSpeed wrote of models in parallel parts.

tests/golden/deepspeed_parallel_v0_19.py says how: "pipeline" has two stages, "grid" two stages of two slices, "tensor2"
and "tensor3" two slices each, with ZeRO of stages 1, 1, 2 and 3.
"""

import pathlib
import shutil

import pytest

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")

import cairn
import cairn.torch
from testing.dcp import assert_equal
from testing.ranks import command, command_json

FILES = pathlib.Path(__file__).parents[1] / "golden" / "deepspeed_parallel_v0_19"
KINDS = ["pipeline", "grid", "tensor2", "tensor3"]

pytestmark = pytest.mark.interop


def merged(kind):
    """What ds_to_universal made of the trained weights and their states. (Of others it takes one slice alone.)"""
    found = safetensors_torch.load_file(FILES / f"{kind}.safetensors")
    return {name: tensor for name, tensor in found.items() if "frozen" not in name and "scale" not in name}


def expected(kind):
    """All that Cairn gives: the same, the numbers that ds_to_universal leaves out, buffers, frozen weights."""
    tensors = merged(kind)
    for name in list(tensors):
        if not name.startswith("optimizer."):
            tensors.setdefault(f"optimizer.step.{name}", torch.tensor(2.0))
    layers = {"pipeline": ["1.", "2.", "4."], "grid": ["1.", "2.", "4."]}.get(kind, ["first.", "second."])
    for layer in layers:
        tensors[f"{layer}scale"] = torch.arange(6.0) / 8
    if kind.startswith("tensor"):
        tensors |= frozen(kind)
    return tensors


def frozen(kind):
    """The weights that are not trained, which DeepSpeed's tools leave out: put together from each slice's file."""
    found = {"frozen.weight": [], "frozen.bias": []}
    for part in range(2):
        for name, slices in found.items():
            if kind == "tensor2":
                states = torch.load(FILES / kind / f"global_step2/mp_rank_0{part}_model_states.pt", weights_only=False)
                slices.append(states["frozen_param_fragments"][name])
                continue
            flat, shape = [], None
            for rank in range(2):
                path = FILES / kind / f"global_step2/zero_pp_rank_{rank}_mp_rank_0{part}_model_states.pt"
                states = torch.load(path, weights_only=False)
                shape = states["frozen_param_shapes"][name]
                flat.append(states["frozen_param_fragments"][name])
            slices.append(torch.cat(flat)[:shape.numel()].reshape(shape))
    return {name: torch.cat(slices) for name, slices in found.items()}


def blank(tensors):
    return {name: torch.full_like(value, 7) for name, value in tensors.items()}


def copy(kind, tmp_path):
    shutil.copytree(FILES / kind, tmp_path / "copy")
    return tmp_path / "copy/global_step2"


def change(path, edit):
    content = torch.load(path, weights_only=False)
    edit(content)
    torch.save(content, path)


def refused(source):
    return command("import", str(source), "--to", "demo@3", "--root", f"{source}-root", expect=1).stderr


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with cairn.local.Cluster(ranks=1, root=tmp_path_factory.mktemp("root")) as cluster:
        with cluster.connect(0) as client:
            yield client


@pytest.mark.parametrize("kind", KINDS)
def test_Load_ParallelParts_GivesWhatDeepSpeedsOwnToolMakes(client, kind):
    tensors = expected(kind)
    target = blank(tensors)
    report = cairn.torch.load(client, target, source=FILES / kind)
    assert_equal(target, tensors)
    assert report.missing == [] and report.unexpected == []
    assert report.total_bytes_read == report.unique_bytes


@pytest.mark.parametrize("kind", ["grid", "tensor2"])
def test_Load_Universal_GivesTheSameWeights(client, kind):
    """Of a weight that is not trained it holds one slice; the whole one is put together from the models' files."""
    tensors = merged(kind) | (frozen(kind) if kind == "tensor2" else {})
    target = blank(tensors)
    cairn.torch.load(client, target, source=FILES / kind / "global_step2_universal", strict=False)
    assert_equal(target, tensors)


@pytest.mark.parametrize("kind", KINDS)
def test_Import_ParallelParts_BecomesACheckpoint(tmp_path, kind):
    root = str(tmp_path / "root")
    command_json("import", str(FILES / kind), "--to", "demo@3", "--root", root)
    assert command_json("diff", str(FILES / kind), "demo@3", "--root", root)["equal"]


def test_Load_APatternIsAnother_GivesOthers(client, tmp_path):
    """The tensors follow from the patterns, not from chance: one that is taken away changes its tensor's shape."""
    source = copy("tensor2", tmp_path)
    change(source / "mp_rank_00_model_states.pt",
           lambda states: states["universal_checkpoint_info"]["parameter_with_row_parallelism_patterns"].clear())
    target = {"first.down.weight": torch.zeros(12, 15)}
    cairn.torch.load(client, target, source=source, strict=False)
    whole = merged("tensor2")["first.down.weight"]
    assert torch.equal(target["first.down.weight"], torch.cat([whole[:, :15], whole[:, 15:]]))


@pytest.mark.parametrize("kind", ["grid", "tensor2", "tensor3"])
def test_Import_NoPatterns_NamesTheWeights(tmp_path, kind):
    source = copy(kind, tmp_path)
    for path in source.glob("*mp_rank_0*_model_states.pt"):
        change(path, lambda states: states.update(universal_checkpoint_info={"universal_checkpoint_version": 0.2}))
    error = refused(source)
    assert "UNSUPPORTED" in error and "embed.weight'" in error and "universal_checkpoint_info" in error


def test_Load_APipelineWithoutPatterns_NeedsNone(client, tmp_path):
    source = copy("pipeline", tmp_path)
    for path in source.glob("mp_rank_0*_model_states.pt"):
        change(path, lambda states: states.pop("universal_checkpoint_info"))
    target = {"4.down.weight": torch.zeros(6, 30), "tied_modules.embed.weight": torch.zeros(12, 6)}
    cairn.torch.load(client, target, source=source, strict=False)
    tensors = merged("pipeline")
    assert torch.equal(target["4.down.weight"], tensors["4.down.weight"])
    assert torch.equal(target["tied_modules.embed.weight"][:11], tensors["tied_modules.embed.weight"])


@pytest.mark.parametrize("kind", ["pipeline", "grid"])
def test_Load_OldFilesThatDoNotSayTheirDegrees_AreToldByTheirLayers(client, tmp_path, kind):
    source = copy(kind, tmp_path)
    for path in source.glob("mp_rank_0*_model_states.pt"):
        change(path, lambda states: states.pop("checkpoint_parallel_dimensions"))
    tensors = merged(kind)
    target = blank(tensors)
    cairn.torch.load(client, target, source=source, strict=False)
    assert_equal(target, tensors)


@pytest.mark.parametrize("kind, name, says", [
    ("grid", "mp_rank_01_model_states.pt", "FILE_MISSING"),
    ("grid", "layer_02-model_01-model_states.pt", "no slice 1 of layer 2"),
    ("tensor2", "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt", "one of 2, and there are 1"),
    ("tensor3", "zero_pp_rank_0_mp_rank_01_model_states.pt", "none of rank 0"),
])
def test_Import_AFileIsMissing_NamesIt(tmp_path, kind, name, says):
    source = copy(kind, tmp_path)
    (source / name).unlink()
    assert says in refused(source)


def test_Import_AWholePartIsMissing_IsRefused(tmp_path):
    source = copy("tensor2", tmp_path)
    for path in source.glob("*mp_rank_01*"):
        path.unlink()
    error = refused(source)
    assert "BAD_FOREIGN_FILE" in error and "1 stages and 2 slices" in error


def test_Import_BuffersThatDiffer_IsRefusedByName(tmp_path):
    source = copy("tensor2", tmp_path)
    change(source / "mp_rank_01_model_states.pt", lambda states: states["module"]["first.scale"].add_(1))
    error = refused(source)
    assert "UNSUPPORTED" in error and "first.scale" in error


def test_Import_AWeightInTwoStages_IsRefusedByName(tmp_path):
    """Only what stages share on purpose may stand in two of them."""
    source = copy("pipeline", tmp_path)
    change(source / "mp_rank_01_model_states.pt", lambda states: states["param_shapes"].__setitem__(
        0, {name.replace("4.up.weight", "1.up.weight"): shape for name, shape in states["param_shapes"][0].items()}))
    error = refused(source)
    assert "BAD_FOREIGN_FILE" in error and "1.up.weight" in error
