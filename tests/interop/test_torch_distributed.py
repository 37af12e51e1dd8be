"""Saves models and optimizers of real torch jobs under one parallel layout and loads them under others, equal bit
for bit."""

import json
import multiprocessing
import os
import pathlib
import time

import pytest

pytest.importorskip("torch")

import dtensor_worker

import cairn
from testing.ports import reserve_port
from testing.ranks import command, command_json

pytestmark = pytest.mark.interop

# Each rank is forked from a process that has imported torch already.
RANKS = multiprocessing.get_context("forkserver")
RANKS.set_forkserver_preload([dtensor_worker.__name__])


@pytest.fixture(autouse=True, scope="module")
def modules_for_the_fork_server():
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        (str(pathlib.Path(cairn.__file__).parents[1]), str(pathlib.Path(__file__).parent),
         str(pathlib.Path(__file__).parents[1])))
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def run(root: pathlib.Path, action: str, layout: str, world: int) -> dict:
    name = f"{action}-{layout}-{world}"
    digests, output = root.parent / f"{name}.json", root.parent / f"{name}.log"
    with reserve_port() as holder, cairn.local.Cluster(ranks=world, root=root) as cluster:
        ranks = []
        for rank in range(world):
            environment = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                           "MASTER_PORT": str(holder.getsockname()[1]), "OMP_NUM_THREADS": "1",
                           "GLOO_SOCKET_IFNAME": "lo", "CAIRN_AGENT": cluster.agents[rank].address,
                           "DIGESTS": str(digests), "DCP_DIRECTORY": str(root.parent / "dcp")}
            ranks.append(RANKS.Process(target=dtensor_worker.run_rank, args=(environment, output, action, layout)))
        try:
            for process in ranks:
                process.start()
            deadline = time.monotonic() + 240
            for process in ranks:
                process.join(max(deadline - time.monotonic(), 0))
            assert [process.exitcode for process in ranks] == [0] * world, output.read_text()[-3000:]
        finally:
            for process in ranks:
                if process.is_alive():
                    process.kill()
    return json.loads(digests.read_text())


def test_every_layout_loads_what_another_saved(tmp_path):
    root = tmp_path / "root"
    saved = run(root, "save", "fsdp+tensor", 4)
    assert len(saved) > 20
    for layout, world in (("fsdp", 3), ("tensor", 2), ("replicated+fsdp", 4), ("plain", 1)):
        loaded = run(root, "load", layout, world)
        assert loaded == saved, (layout, world)


def test_Load_TensorsMadeOfOthersWithinDTensors_AreEqualBitForBit(tmp_path):
    run(tmp_path / "root", "save", "scaled", 2)
    run(tmp_path / "root", "load", "scaled", 2)
    shown = command_json("show", "demo@7", "--tensors", "--root", str(tmp_path / "root"))
    names = [tensor["name"] for tensor in shown["tensors"]]
    assert {"state.0.cut.scale.at_0_0", "state.0.cut.scale.at_2_0", "state.0.whole.scale"} <= set(names)


def test_every_layout_loads_what_torch_saved(tmp_path):
    root = tmp_path / "root"
    saved = run(root, "torch-save", "fsdp+tensor", 4)
    assert len(saved) > 20 and (tmp_path / "dcp/.metadata").exists()
    for layout, world in (("fsdp", 3), ("tensor", 2), ("plain", 1)):
        loaded = run(root, "dcp-load", layout, world)
        assert loaded == saved, (layout, world)


def test_torch_loads_an_export_under_every_layout(tmp_path):
    root = tmp_path / "root"
    saved = run(root, "save", "fsdp+tensor", 4)
    command("export", "demo@7", "--root", str(root), "--to", str(tmp_path / "dcp"), "--as", "dcp")
    for layout, world in (("fsdp", 3), ("tensor", 2), ("plain", 1)):
        assert run(root, "torch-load", layout, world) == saved, (layout, world)


def test_every_layout_loads_what_the_writer_saved_for_torch(tmp_path):
    root = tmp_path / "root"
    saved = run(root, "writer-save", "fsdp+tensor", 4)
    assert len(saved) > 20
    for layout, world in (("fsdp", 3), ("tensor", 2), ("plain", 1)):
        assert run(root, "reader-load", layout, world) == saved, (layout, world)


def test_manager_takes_models_and_optimizers_of_any_layout(tmp_path):
    root = tmp_path / "root"
    saved = run(root, "manager-save", "fsdp+tensor", 4)
    assert len(saved) > 20
    for layout, world in (("fsdp", 2), ("tensor", 2)):
        assert run(root, "manager-load", layout, world) == saved, (layout, world)
