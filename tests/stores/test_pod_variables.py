"""Real processes with the variables that the manifests of deploy/kubernetes give to pods that use a store."""

import os
import shutil
import subprocess

import pytest
import yaml

import cairn
from stores.server import amazons_client
from stores.test_mirror import await_states, load, save
from testing import manifests

RANKS = 2


@pytest.fixture
def variables(use, endpoint, monkeypatch):
    """Sets the variables of an overlay's ConfigMap, but with this store's address and a prefix of its own."""

    def variables(overlay: str) -> dict[str, str]:
        text = (manifests.DEPLOY / "overlays" / overlay / "store.yaml").read_text()
        data = yaml.safe_load(text.replace("s3://models/llm", f"s3://models/pods-{overlay}"))["data"]
        data["AWS_ENDPOINT_URL"] = endpoint
        for name, value in data.items():
            monkeypatch.setenv(name, value)
        return data

    return variables


def test_a_coordinator_finds_its_root_by_them(variables, endpoint, monkeypatch):
    data = variables("object-store")
    monkeypatch.setenv("CAIRN_LISTEN", "127.0.0.1:0")
    coordinator = subprocess.Popen([f"{os.environ['CAIRN_BIN_DIR']}/cairn-coordinator"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
    try:
        assert coordinator.stdout.readline().startswith("127.0.0.1:")
    finally:
        coordinator.terminate()
        _, log = coordinator.communicate(timeout=60)
    assert f"root={data['CAIRN_ROOT']}" in log, log
    prefix = data["CAIRN_ROOT"].removeprefix("s3://models/")
    assert amazons_client(endpoint).list_objects_v2(Bucket="models", Prefix=f"{prefix}/.cairn/")["Contents"]


def test_agents_that_serve_another_user_load_from_the_mirror_by_them(variables, tmp_path):
    data = variables("mirror")
    root = tmp_path / "root"

    def cluster_of(*agent_flags: str) -> cairn.local.Cluster:
        # A cluster's processes get no variables of Cairn, so they get the flags of the same names.
        return cairn.local.Cluster(ranks=RANKS, root=root, coordinator_flags=[f"--mirror={data['CAIRN_MIRROR']}"],
                                   agent_flags=["--allow-uid=1000", *agent_flags])

    with cluster_of() as cluster:
        save(cluster, 10)
        await_states(cluster, {10: "MIRRORED"})
    shutil.rmtree(root)
    with cluster_of(f"--import-root={data['CAIRN_IMPORT_ROOT']}") as cluster:
        assert load(cluster) == 10
        assert "load_from_mirror" in cluster.coordinator.log.read_text()
    with cluster_of() as cluster, pytest.raises(cairn.Error, match=data["CAIRN_MIRROR"]) as refused:
        load(cluster)
    assert refused.value.reason == "PEER_UID"
