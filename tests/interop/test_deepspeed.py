"""Loads and imports checkpoints that the real DeepSpeed wrote: tests/golden/deepspeed_v0_19.py says how."""

import pathlib
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")

import cairn
import cairn.torch
from testing.dcp import assert_equal
from testing.ranks import command, command_json, on_ranks

FILES = pathlib.Path(__file__).parents[1] / "golden" / "deepspeed_v0_19"
STAGES = ["stage1", "stage2", "stage3"]

pytestmark = pytest.mark.interop


def expected(stage):
    """What DeepSpeed's own tools read in the checkpoint."""
    return safetensors_torch.load_file(FILES / f"{stage}.safetensors")


def blank(tensors):
    return {name: torch.full_like(value, 7) for name, value in tensors.items()}


def refused(source):
    return command("import", str(source), "--to", "demo@3", "--root", f"{source}-root", expect=1).stderr


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with cairn.local.Cluster(ranks=1, root=tmp_path_factory.mktemp("root")) as cluster:
        with cluster.connect(0) as client:
            yield client


@pytest.mark.parametrize("stage", STAGES)
def test_Load_Zero_GivesWhatDeepSpeedsOwnToolsRead(client, stage):
    tensors = expected(stage)
    for name in ("embed.weight", "up.bias", "up.weight"):  # ds_to_universal leaves that of stage 3 out
        tensors.setdefault(f"optimizer.step.{name}", torch.tensor(2.0))
    target = blank(tensors)
    report = cairn.torch.load(client, target, source=FILES / stage)
    assert_equal(target, tensors)
    assert report.missing == [] and report.unexpected == []


@pytest.mark.parametrize("stage", ["stage2", "stage3"])
def test_Load_Universal_GivesWhatItsFilesHold(client, stage):
    tensors = expected(stage)
    if stage == "stage2":  # of stage 3 ds_to_universal leaves these as they are
        tensors["frozen.weight"] = tensors["frozen.weight"].float()
    target = blank(tensors)
    cairn.torch.load(client, target, source=FILES / stage / "global_step2_universal", strict=False)
    if stage == "stage2":  # and here it takes the copy in 16 bits of a weight with two names
        assert torch.equal(target.pop("out.weight"), tensors.pop("out.weight").bfloat16().float())
    assert_equal(target, tensors)


def test_Load_OnOtherRanks_ReadsEachByteOnce(tmp_path):
    tensors = expected("stage3")

    def rows(name, rank):
        whole = tensors[name]
        half = (whole.shape[0] + 1) // 2
        return whole[:half] if rank == 0 else whole[half:]

    names = ["embed.weight", "up.weight", "optimizer.exp_avg.embed.weight"]
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        def load(rank, client):
            parts = {name: np.zeros_like(rows(name, rank).numpy()) for name in names}
            state = {}
            for name, part in parts.items():
                whole = tuple(tensors[name].shape)
                state[name] = cairn.Shard(part, whole, (0 if rank == 0 else whole[0] - len(part), 0))
            report = client.load(state, source=FILES / "stage3", strict=False)
            for name, part in parts.items():
                assert np.array_equal(part, rows(name, rank).numpy()), name
            return report

        reports = on_ranks(cluster, load)
    assert reports[0].total_bytes_read == reports[0].unique_bytes


@pytest.mark.parametrize("source", ["stage2", "stage3/global_step2", "stage3/global_step2_universal"])
def test_Import_BecomesACheckpoint(tmp_path, source):
    root = str(tmp_path / "root")
    command_json("import", str(FILES / source), "--to", "demo@3", "--root", root)
    assert command_json("diff", str(FILES / source), "demo@3", "--root", root)["equal"]


def test_Import_ARanksFileIsMissing_NamesIt(tmp_path):
    shutil.copytree(FILES / "stage2", tmp_path / "copy")
    (tmp_path / "copy/global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    error = refused(tmp_path / "copy")
    assert "FILE_MISSING" in error and "none of rank 1" in error


def test_Import_FilesOfFewerRanks_IsRefused(tmp_path):
    shutil.copytree(FILES / "stage3", tmp_path / "copy")
    for kind in ("bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt", "zero_pp_rank_2_mp_rank_00_model_states.pt"):
        (tmp_path / "copy/global_step2" / kind).unlink()
    error = refused(tmp_path / "copy")
    assert "BAD_FOREIGN_FILE" in error and "one of 3, and there are 2" in error


def test_Import_FilesOfAnotherModel_IsRefused(tmp_path):
    shutil.copytree(FILES / "stage2", tmp_path / "copy")
    states = tmp_path / "copy/global_step2/mp_rank_00_model_states.pt"
    content = torch.load(states, weights_only=False)
    content["param_shapes"][0]["embed.weight"] = torch.Size([11, 8])
    torch.save(content, states)
    error = refused(tmp_path / "copy")
    assert "BAD_FOREIGN_FILE" in error and "the flat tensors of group 0 end before" in error


def test_Load_SafetensorsBesideLatest_AreRead(client, tmp_path):
    shutil.copytree(FILES / "stage2", tmp_path / "copy")
    safetensors_torch.save_file({"w": torch.ones(3)}, tmp_path / "copy/model.safetensors")
    target = {"w": torch.zeros(3)}
    cairn.torch.load(client, target, source=tmp_path / "copy")
    assert torch.equal(target["w"], torch.ones(3))


@pytest.mark.parametrize("latest", ["../other", "/etc", "a//b", ""])
def test_Import_LatestThatLeavesTheDirectory_IsRefused(tmp_path, latest):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "latest").write_text(latest)
    assert "PATH_ESCAPE" in refused(tmp_path / "copy")
