"""cairn export --as dcp: torch's own torch.distributed.checkpoint reads what Cairn wrote."""

import io
import json
import pickle
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as torch_dcp
from torch.distributed.checkpoint import format_utils
from torch.distributed.checkpoint.metadata import MetadataIndex

import cairn
import cairn.torch
from testing.dcp import assert_equal, state, tensor
from testing.ranks import command, command_json, noise, on_ranks, rows, until

pytestmark = pytest.mark.interop

MEASURE = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=sys.stderr);"
           "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")


def save(root, state_dict, ranks=1):
    with cairn.local.Cluster(ranks=ranks, root=root) as cluster:
        on_ranks(cluster, lambda rank, client: cairn.torch.save(client, 3, state_dict).wait())


def exported(root, directory, *more):
    return command_json("export", "demo@3", "--root", str(root), "--to", str(directory), "--as", "dcp", *more)


def load(directory, target):
    torch_dcp.load(target, checkpoint_id=str(directory), no_dist=True)
    return target


def test_Export_StateOfTorch_IsLoadedBitForBit(tmp_path):
    save(tmp_path / "root", state(1), ranks=2)
    answer = exported(tmp_path / "root", tmp_path / "out", "--max-shard-size", "5KB")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        [".metadata", "cairn_fingerprints.json", *(file["name"] for file in answer["files"])])
    assert len(answer["files"]) > 3
    for file in answer["files"]:
        assert (tmp_path / "out" / file["name"]).stat().st_size == file["bytes"] <= 5000
    assert_equal(load(tmp_path / "out", state(None)), state(1))


def test_Export_EveryArchive_IsWhatTorchSaveWrites(tmp_path):
    """Each entry is read by torch.load alone, refuses no checksum, and its elements are aligned."""
    save(tmp_path / "root", state(1))
    exported(tmp_path / "root", tmp_path / "out")
    data = (tmp_path / "out" / "__0_0.distcp").read_bytes()
    metadata = pickle.loads((tmp_path / "out" / ".metadata").read_bytes())
    for index, place in metadata.storage_data.items():
        archive = data[place.offset:place.offset + place.length]
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            assert opened.testzip() is None
            if index.offset is not None:
                begin = archive.index(opened.read("archive/data/0"), opened.getinfo("archive/data/0").header_offset)
                assert (place.offset + begin) % 64 == 0 or not opened.read("archive/data/0")
        value = torch.load(io.BytesIO(archive), weights_only=True)
        assert isinstance(value, torch.Tensor) == (index.offset is not None), index


def test_Export_AnotherLayout_ReadsChunksOfLargeTensors(tmp_path):
    """Rows saved by three ranks are read as columns; a part needs only the chunks that it meets."""
    whole = {"w": noise((3000, 2000), np.float32, 1), "deep": noise((3, 1500, 1001), np.float64, 2)}

    def work(rank, client):
        client.save(3, {name: rows(array, rank, 3, axis=1) for name, array in whole.items()}).wait()

    with cairn.local.Cluster(ranks=3, root=tmp_path / "root") as cluster:
        on_ranks(cluster, work)
    exported(tmp_path / "root", tmp_path / "out", "--memory", "64MiB")
    metadata = pickle.loads((tmp_path / "out" / ".metadata").read_bytes())
    chunks = {name: about.chunks for name, about in metadata.state_dict_metadata.items()}
    assert {name: len(each) for name, each in chunks.items()} == {"w": 4, "deep": 6}
    assert all(MetadataIndex(name, chunk.offsets) in metadata.storage_data for name in chunks for chunk in chunks[name])
    target = load(tmp_path / "out", {name: torch.zeros(array.shape, dtype=torch.from_numpy(array).dtype)
                                     for name, array in whole.items()})
    for name, array in whole.items():
        assert target[name].numpy().tobytes() == array.tobytes()


def test_Export_TiedWeights_AreWrittenOnce(tmp_path):
    weight = tensor((700, 300), torch.bfloat16, 1)
    save(tmp_path / "root", {"embed": weight, "head": weight})
    answer = exported(tmp_path / "root", tmp_path / "out")
    assert answer["bytes"] == 700 * 300 * 2 and answer["files"][0]["bytes"] < 700 * 300 * 2 + 2000
    target = load(tmp_path / "out", {name: torch.zeros(700, 300, dtype=torch.bfloat16) for name in ("embed", "head")})
    assert_equal(target, {"embed": weight, "head": weight})
    fingerprints = json.loads((tmp_path / "out/cairn_fingerprints.json").read_text())
    assert fingerprints == dict.fromkeys(("embed", "head"), str(cairn.torch.fingerprint(target)["embed"]))


def test_Export_ValuesThatAreNoTensors_ComeBackAsTheyWere(tmp_path):
    values = {
        "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}, {"lr": 1e-300, "params": []}],
        "rng": ("MT19937", np.arange(624, dtype=np.uint32).reshape(2, 312)),
        "wide": [2**127 - 1, -2**63 - 1, -2**31, -1, 255, 65536],
        "floats": [float("inf"), -float("inf"), 0.1, -0.0],
        "text": "é\u20ac\U0001f600\"\\\n\x00", "bytes": bytes(range(256)),
        "keys": [{1: "a", None: 2, (1, 2): b"x"}], "flags": (True, False, None), "none": None}
    save(tmp_path / "root", {"w": torch.ones(2)} | values)
    assert exported(tmp_path / "root", tmp_path / "out")["values"] == 13
    target = {"w": torch.zeros(2), "groups": [{"lr": 0, "betas": 0, "params": 0}, {"lr": 0, "params": 0}]}
    target |= {name: None for name in values if name != "groups"}
    load(tmp_path / "out", target)
    name, rng = target.pop("rng")
    assert name == "MT19937" and rng.dtype == np.uint32 and rng.shape == (2, 312) and rng.flags.writeable
    assert rng.tobytes() == values["rng"][1].tobytes()
    for name in target.keys() - {"w"}:
        assert repr(target[name]) == repr(values[name])
    format_utils.dcp_to_torch_save(tmp_path / "out", tmp_path / "one.pt")
    assert torch.load(tmp_path / "one.pt", weights_only=False)["groups"] == values["groups"]


def test_Export_StatesOfRandomNumberGenerators_RestoreThem(tmp_path):
    """They hold tensors of torch and arrays of numpy."""
    torch.manual_seed(5)
    np.random.seed(6)
    save(tmp_path / "root", {"w": torch.ones(2), "rng": cairn.torch.rng_state()})
    expected = torch.rand(3), np.random.rand(3)
    exported(tmp_path / "root", tmp_path / "out")
    format_utils.dcp_to_torch_save(tmp_path / "out", tmp_path / "one.pt")
    cairn.torch.set_rng_state(torch.load(tmp_path / "one.pt", weights_only=False)["rng"])
    assert torch.equal(torch.rand(3), expected[0]) and (np.random.rand(3) == expected[1]).all()


def test_Export_OwnValuesOfRanks_GetTheirRanksNames(tmp_path):
    def work(rank, client):
        client.save(3, {"rng": cairn.per_rank({"seed": rank}), "same": cairn.per_rank([1])}).wait()

    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        on_ranks(cluster, work)
    exported(tmp_path / "root", tmp_path / "out")
    target = load(tmp_path / "out", {"rng.rank0": {"seed": None}, "rng.rank1": {"seed": None}, "same": None})
    assert target == {"rng.rank0": {"seed": 0}, "rng.rank1": {"seed": 1}, "same": [1]}


def own_values(rank):
    """What JSON and PyTorch's names cannot say: tuples, arrays, a dict without entries, keys that are numbers."""
    return {"state": (rank, np.arange(rank + 3)), "none": {}, 3: [b"x" * rank, {"deep.er": 1.5}], "all": [{"a": 1}]}


def same(a, b):
    return repr(a) == repr(b)


def test_Export_OwnValuesOfRanks_ComeBackWhole(tmp_path):
    def state(rank):
        return {"w": np.full(4, 7, np.float32), "loader": cairn.per_rank(own_values(rank)),
                "epoch": cairn.per_rank({"number": 3})}

    def blank():
        return {"w": np.zeros(4, np.float32), "loader": cairn.per_rank(None), "epoch": cairn.per_rank(None)}

    with cairn.local.Cluster(ranks=3, root=tmp_path / "root") as cluster:
        on_ranks(cluster, lambda rank, client: client.save(3, state(rank)).wait())
    exported(tmp_path / "root", tmp_path / "out")
    command_json("import", str(tmp_path / "out"), "--to", "demo@4", "--root", str(tmp_path / "copy"))
    assert command_json("verify", "demo@4", "--root", str(tmp_path / "copy"))
    sources = ({}, {"source": tmp_path / "out"})

    def load_as(rank, client):
        for where in sources:
            report = client.load(blank(), **where)
            assert same(report.objects["loader"], own_values(rank)) and report.objects["epoch"] == {"number": 3}, where
            assert report.step == (None if where else 4)

    with cairn.local.Cluster(ranks=3, root=tmp_path / "copy") as cluster:
        on_ranks(cluster, load_as)
    # Another number of ranks gets all of them, and so is told.
    with cairn.local.Cluster(ranks=1, root=tmp_path / "copy") as cluster, cluster.connect(0) as client:
        for where in sources:
            loader = client.load(blank(), **where).objects["loader"]
            assert isinstance(loader, cairn.PerRankValues)
            assert same(list(loader), [own_values(rank) for rank in range(3)])


def test_Import_AnotherSaveInTheDirectory_HasNoValuesOfTheExport(tmp_path):
    """PyTorch leaves the file of the export where it is. It is of the `.metadata` that was there before."""
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        client.save(3, {"rng": cairn.per_rank({"seed": 1}), "w": np.ones(2, np.float32)}).wait()
    exported(tmp_path / "root", tmp_path / "out")
    torch_dcp.save({"w": torch.zeros(2), "rng": {"seed": 2}}, checkpoint_id=str(tmp_path / "out"), no_dist=True)
    assert (tmp_path / "out/.cairn_per_rank_values").exists()
    command("import", str(tmp_path / "out"), "--to", "demo@4", "--root", str(tmp_path / "root"))
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        assert client.load({"w": np.ones(2, np.float32), "rng.seed": None}, step=4).objects == {"rng.seed": 2}


def test_Import_ValuesOfRanksAreDamaged_NamesTheFile(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        client.save(3, {"rng": cairn.per_rank({"seed": 1}), "w": np.ones(2, np.float32)}).wait()
    exported(tmp_path / "root", tmp_path / "out")
    path = tmp_path / "out/.cairn_per_rank_values"
    path.write_bytes(path.read_bytes()[:-1])
    error = command("import", str(tmp_path / "out"), "--to", "demo@4", "--root", str(tmp_path / "copy"),
                    expect=1).stderr
    assert "BAD_FOREIGN_FILE" in error and str(path) in error


def test_Export_ThroughAMapping_WritesItsOutputs(tmp_path):
    weight = tensor((40, 30), torch.float32, 1)
    save(tmp_path / "root", {"w": weight, "step": 7})
    (tmp_path / "m.aoa").write_text("w^T -> t")
    exported(tmp_path / "root", tmp_path / "out", "--mapping", str(tmp_path / "m.aoa"), "--exclude", "step")
    loaded = load(tmp_path / "out", {"t": torch.zeros(30, 40)})
    assert_equal(loaded["t"], weight.t())
    fingerprints = json.loads((tmp_path / "out/cairn_fingerprints.json").read_text())
    assert fingerprints == {"t": str(cairn.torch.fingerprint(loaded)["t"])}


def test_Export_ImportedAgain_IsTheSameCheckpoint(tmp_path):
    weight = tensor((700, 300), torch.bfloat16, 1)
    save(tmp_path / "root", {"embed": weight, "head": weight, "step": 3, "b": torch.ones(3)})
    exported(tmp_path / "root", tmp_path / "out")
    command("import", str(tmp_path / "out"), "--to", "demo@4", "--root", str(tmp_path / "root"))
    assert command_json("diff", "demo@3", "demo@4", "--root", str(tmp_path / "root"))["equal"]


def test_Export_OpaqueValue_IsRefusedByName(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "w.pt")
    torch_dcp.save({"w": torch.ones(2), "path": [tmp_path]}, checkpoint_id=str(tmp_path / "in"), no_dist=True)
    root = ["--root", str(tmp_path / "root")]
    command("import", str(tmp_path / "in"), "--to", "demo@3", *root)
    arguments = ["export", "demo@3", *root, "--to", str(tmp_path / "out"), "--as", "dcp"]
    refused = command(*arguments, expect=1)
    assert "UNSUPPORTED" in refused.stderr and "path (" in refused.stderr and "--exclude" in refused.stderr
    assert not (tmp_path / "out").exists()
    command(*arguments, "--exclude", "path")


def test_Export_MoreThanTheMemory_IsStreamed(tmp_path):
    whole = noise((40_000_000,), np.float32, 1)
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        client.save(3, {"w": whole}).wait()
    done = subprocess.run(
        [sys.executable, "-S", "-c", MEASURE, str(cairn.local.binary("cairn")), "export", "demo@3", "--root",
         str(tmp_path / "root"), "--to", str(tmp_path / "out"), "--as", "dcp", "--memory", "64MiB"],
        check=True, capture_output=True, text=True)
    assert int(done.stdout) * 1024 < 90 << 20
    assert load(tmp_path / "out", {"w": torch.zeros(40_000_000)})["w"].numpy().tobytes() == whole.tobytes()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_Export_ThatIsEnded_LeavesNoCheckpoint(tmp_path, end):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        client.save(3, {f"w{n}": np.zeros(50_000_000, np.float32) for n in range(2)}).wait()
    process = subprocess.Popen(
        [cairn.local.binary("cairn"), "export", "demo@3", "--root", tmp_path / "root", "--to", tmp_path / "out", "--as",
         "dcp"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: list(tmp_path.glob("out/.tmp-export-*")), text="a file")
    process.send_signal(end)
    assert process.wait(60) == (130 if end == signal.SIGINT else -signal.SIGKILL)
    left = [path.name for path in (tmp_path / "out").iterdir()] if (tmp_path / "out").exists() else []
    assert (left == []) == (end == signal.SIGINT) and all(name.startswith(".tmp-export-") for name in left)
    # The next one removes what was left.
    exported(tmp_path / "root", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        ".metadata", "__0_0.distcp", "cairn_fingerprints.json"]


def test_Export_DirectoryThatHoldsACheckpoint_IsRefused(tmp_path):
    save(tmp_path / "root", {"w": torch.ones(2)})
    exported(tmp_path / "root", tmp_path / "out")
    again = command("export", "demo@3", "--root", str(tmp_path / "root"), "--to", str(tmp_path / "out"), "--as", "dcp",
                    expect=1)
    assert "OUTPUT_EXISTS" in again.stderr
