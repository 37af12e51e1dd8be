"""Loads and imports directories that DCP of PyTorch 2.4 to 2.15 wrote: tests/golden/dcp_versions.py says how."""

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")

import cairn
import cairn.torch
from testing.dcp import assert_equal
from testing.ranks import command_json

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
import dcp_versions as written

FILES = GOLDEN / "dcp_versions"
VERSIONS = list(written.VERSIONS)

pytestmark = pytest.mark.interop


def blank(value):
    """The same state with other values, which a load must replace."""
    if isinstance(value, torch.Tensor):
        return torch.full_like(value, 1)
    if isinstance(value, dict):
        return {key: blank(item) for key, item in value.items()}
    if isinstance(value, list):
        return [blank(item) for item in value]
    return None


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with cairn.local.Cluster(ranks=1, root=tmp_path_factory.mktemp("root")) as cluster:
        with cluster.connect(0) as client:
            yield client


def test_every_version_has_a_directory():
    assert {path.name for path in FILES.iterdir()} == set(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_Load_DirectoryOfAVersion_GivesWhatWasSaved(client, version, caplog):
    """The source has a value that only its own code could make. The state has no key for it, and the log names it."""
    target = blank(written.state())
    report = cairn.torch.load(client, target, source=FILES / version)
    assert_equal(target, written.state())
    assert "progress['stateful']" in caplog.text
    assert report.missing == [] and report.unexpected == []
    assert report.total_bytes_read == report.unique_bytes


@pytest.mark.parametrize("version", VERSIONS)
def test_Import_DirectoryOfAVersion_BecomesACheckpoint(tmp_path, version):
    root = str(tmp_path / "root")
    said = command_json("import", str(FILES / version), "--to", "demo@3", "--root", root)
    assert said["opaque"] == ["progress.stateful"] and said["left_out"] == []
    assert command_json("diff", str(FILES / version), "demo@3", "--root", root)["equal"]
