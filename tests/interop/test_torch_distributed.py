"""Saves models and optimizers of real torch jobs under one parallel layout and loads them under others, equal bit
for bit."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import cairn

pytestmark = pytest.mark.interop

WORKER = pathlib.Path(__file__).with_name("dtensor_worker.py")


def run(root: pathlib.Path, action: str, layout: str, world: int) -> dict:
    digests = root.parent / f"{action}-{layout}-{world}.json"
    with cairn.local._reserve_port() as holder, cairn.local.Cluster(ranks=world, root=root) as cluster:
        port = holder.getsockname()[1]
        processes = []
        for rank in range(world):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                           "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                           "CAIRN_AGENT": cluster.agents[rank].address, "DIGESTS": str(digests),
                           "DCP_DIRECTORY": str(root.parent / "dcp"),
                           "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])}
            processes.append(cluster.spawn([sys.executable, str(WORKER), action, layout], env=environment,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        outputs = [process.communicate(timeout=240)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * world, "\n".join(outputs)[-3000:]
    return json.loads(digests.read_text())


def test_every_layout_loads_what_another_saved(tmp_path):
    root = tmp_path / "root"
    saved = run(root, "save", "fsdp+tensor", 4)
    assert len(saved) > 20
    for layout, world in (("fsdp", 3), ("tensor", 2), ("replicated+fsdp", 4), ("plain", 1)):
        loaded = run(root, "load", layout, world)
        assert loaded == saved, (layout, world)


def test_every_layout_loads_what_torch_saved(tmp_path):
    root = tmp_path / "root"
    saved = run(root, "torch-save", "fsdp+tensor", 4)
    assert len(saved) > 20 and (tmp_path / "dcp/.metadata").exists()
    for layout, world in (("fsdp", 3), ("tensor", 2), ("plain", 1)):
        loaded = run(root, "dcp-load", layout, world)
        assert loaded == saved, (layout, world)


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
