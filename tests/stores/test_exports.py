"""cairn export to an object store: what other libraries read in a copy of it, and what a failure leaves."""

import json
import signal
import subprocess
import time

import pytest

torch = pytest.importorskip("torch")
import safetensors.torch

import cairn
import cairn.torch
from stores.fault_proxy import FaultProxy
from stores.server import amazons_client
from stores.test_root_in_store import assert_parts_have_no_gaps
from testing.dcp import assert_equal, state, tensor
from testing.ranks import command, command_json


@pytest.fixture
def bucket(use, endpoint):
    return Bucket(amazons_client(endpoint))


class Bucket:
    """What stands below a prefix of the bucket "models"."""

    def __init__(self, client):
        self.client = client

    def keys(self, prefix):
        return [one["Key"] for one in
                self.client.list_objects_v2(Bucket="models", Prefix=f"{prefix}/").get("Contents", [])]

    def uploads(self, prefix):
        return [one for one in self.client.list_multipart_uploads(Bucket="models").get("Uploads", [])
                if one["Key"].startswith(f"{prefix}/")]

    def get(self, prefix, directory):
        """Copies what is below a prefix to a directory."""
        for key in self.keys(prefix):
            path = directory / key.removeprefix(f"{prefix}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.client.get_object(Bucket="models", Key=key)["Body"].read())
        return directory


def saved(root, value, step=3):
    with cairn.local.Cluster(ranks=1, root=root) as cluster, cluster.connect(0) as client:
        cairn.torch.save(client, step, value).wait()


def weights(count=5):
    # Each has more than one part of an upload, and ends within a part.
    return {f"w{n}": tensor((2_500_000 + n,), torch.float32, n) for n in range(count)} | {
        "small": tensor((7, 3), torch.bfloat16, 50)}


def export(root, address, *more, expect=0):
    return command_json("export", "demo@3", "--root", str(root), "--to", address, *more, expect=expect, timeout=120)


@pytest.mark.parametrize("where", ["a directory", "a store"])
def test_export_for_hugging_face_is_read_by_safetensors(bucket, tmp_path, where):
    root = tmp_path / "root" if where == "a directory" else "s3://models/exports/root"
    prefix = f"exports/huggingface/{where.split()[-1]}"
    value = weights()
    saved(root, value)
    (tmp_path / "like").mkdir()
    for name, content in (("config.json", b"{}"), ("tokenizer.json", bytes(9 << 20))):
        (tmp_path / "like" / name).write_bytes(content)
    answer = export(root, f"s3://models/{prefix}", "--max-shard-size", "25MB", "--memory", "64MiB", "--like",
                    str(tmp_path / "like"))
    assert len(answer["files"]) > 2 and answer["finished_before"] == 0
    read = bucket.get(prefix, tmp_path / "copy")
    assert {path.name for path in read.iterdir()} == {"cairn_fingerprints.json", "config.json", "tokenizer.json",
                                                      "model.safetensors.index.json",
                                                      *(file["name"] for file in answer["files"])}
    index = json.loads((read / "model.safetensors.index.json").read_text())["weight_map"]
    for name, whole in value.items():
        with safetensors.safe_open(read / index[name], "pt") as file:
            assert torch.equal(file.get_tensor(name).view(torch.uint8), whole.view(torch.uint8)), name
    assert (read / "tokenizer.json").read_bytes() == bytes(9 << 20)
    assert bucket.uploads(prefix) == []
    # And it is a source again.
    assert command_json("diff", f"s3://models/{prefix}", "demo@3", "--root", str(root))["equal"]
    again = export(root, f"s3://models/{prefix}-again", "--like", f"s3://models/{prefix}")
    assert again["index"] == "model.safetensors.index.json"
    assert f"{prefix}-again/tokenizer.json" in bucket.keys(f"{prefix}-again")


def test_export_for_torch_is_read_by_torch(bucket, tmp_path):
    value = state(1) | {"large": tensor((3_000_000,), torch.float32, 90)}
    saved(tmp_path / "root", value)
    export(tmp_path / "root", "s3://models/exports/dcp/", "--as", "dcp")
    target = state(None) | {"large": torch.zeros(3_000_000)}
    copy = bucket.get("exports/dcp", tmp_path / "copy")
    torch.distributed.checkpoint.load(target, checkpoint_id=str(copy))
    assert_equal(target, value)
    loaded = state(None) | {"large": torch.zeros(3_000_000)}
    with cairn.local.Cluster(ranks=1, root=tmp_path / "other") as cluster, cluster.connect(0) as client:
        cairn.torch.load(client, loaded, source="s3://models/exports/dcp")
    assert_equal(loaded, value)


def test_a_prefix_with_a_checkpoint_is_refused_and_kept(bucket, tmp_path):
    saved(tmp_path / "root", {"a": torch.ones(4)})
    bucket.client.put_object(Bucket="models", Key="exports/taken/model.safetensors", Body=b"mine")
    refused = command("export", "demo@3", "--root", str(tmp_path / "root"), "--to", "s3://models/exports/taken",
                      expect=1).stderr
    assert "OUTPUT_EXISTS" in refused and "s3://models/exports/taken/model.safetensors" in refused
    assert bucket.keys("exports/taken") == ["exports/taken/model.safetensors"]


def test_a_prefix_below_a_root_is_refused(bucket, tmp_path):
    saved("s3://models/exports/a-root", {"a": torch.ones(4)})
    before = bucket.keys("exports/a-root")
    for target in ("s3://models/exports/a-root", "s3://models/exports/a-root/model/x"):
        refused = command("export", "demo@3", "--root", "s3://models/exports/a-root", "--to", target, expect=1).stderr
        assert "BAD_REQUEST" in refused and "a root of checkpoints" in refused
    assert bucket.keys("exports/a-root") == before


def test_an_export_that_fails_leaves_nothing(bucket, use, endpoint, tmp_path):
    saved(tmp_path / "root", weights())
    bins = sorted((tmp_path / "root").rglob("*.safetensors"))
    content = bytearray(bins[-1].read_bytes())
    content[-100] ^= 1  # the last tensor is damaged, which is found when others are sent already
    bins[-1].write_bytes(content)
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    try:
        refused = command("export", "demo@3", "--root", str(tmp_path / "root"), "--to", "s3://models/exports/failed",
                          "--max-shard-size", "11MB", expect=1).stderr
    finally:
        proxy.close()
    assert "CHECKSUM_MISMATCH" in refused
    assert sum("partNumber=" in path for _, path in proxy.requests) > 1, "others were sent before"
    assert bucket.keys("exports/failed") == [] and bucket.uploads("exports/failed") == []


def test_the_index_comes_last(bucket, use, endpoint, tmp_path):
    saved(tmp_path / "root", weights())
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    try:
        export(tmp_path / "root", "s3://models/exports/order", "--max-shard-size", "25MB")
    finally:
        proxy.close()
    # What makes an object: a PUT that is no part, and the completion of an upload.
    made = [path.split("?")[0] for method, path in proxy.requests
            if (method == "PUT" and "?" not in path) or (method == "POST" and "uploadId=" in path)]
    assert len(made) > 2 and made[-1] == "/models/exports/order/model.safetensors.index.json"
    assert made[-2].endswith("cairn_fingerprints.json")
    assert all(path.endswith(".safetensors") for path in made[:-2])
    last_part = max(i for i, (method, path) in enumerate(proxy.requests) if "partNumber=" in path)
    first_object = min(i for i, (method, path) in enumerate(proxy.requests) if method == "POST" and "uploadId=" in path)
    assert last_part < first_object, "nothing has its name before all is sent"
    assert_parts_have_no_gaps(proxy.requests)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_export_that_is_stopped_can_be_made_anew(bucket, use, endpoint, tmp_path, how):
    saved(tmp_path / "root", weights())
    prefix = f"exports/stopped-{how.name}"
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    arguments = ["export", "demo@3", "--root", str(tmp_path / "root"), "--to", f"s3://models/{prefix}",
                 "--max-shard-size", "11MB"]
    try:
        process = subprocess.Popen([str(cairn.local.binary("cairn")), *arguments], stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not any("partNumber=" in path for _, path in list(proxy.requests)):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.005)
        process.send_signal(how)
        said = process.communicate(timeout=60)[1]
    finally:
        proxy.close()
    assert process.returncode != 0 and bucket.keys(prefix) == [], said
    if how == signal.SIGINT:
        assert "INTERRUPTED" in said and bucket.uploads(prefix) == []
    use(endpoint)
    command(*arguments)
    assert any(key.endswith("index.json") for key in bucket.keys(prefix))


def test_a_disturbed_store_only_slows_an_export(bucket, use, endpoint, tmp_path):
    value = weights(2)
    saved(tmp_path / "root", value)
    proxy = FaultProxy(endpoint, probability=0.15, kinds=("slow_down", "late_error", "reset", "late_reset"))
    use(proxy.endpoint)
    try:
        export(tmp_path / "root", "s3://models/exports/disturbed", "--max-shard-size", "11MB")
        assert command_json("diff", "s3://models/exports/disturbed", "demo@3", "--root",
                            str(tmp_path / "root"))["equal"]
    finally:
        proxy.close()
    assert sum(proxy.met.values()) > 0


def test_an_import_larger_than_its_memory_goes_into_a_root_in_a_store(bucket, use, endpoint, tmp_path):
    (tmp_path / "model").mkdir()
    value = {f"w{n}": tensor((2_375_001,), torch.float32, n) for n in range(8)}
    safetensors.torch.save_file(value, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    try:
        command("import", str(tmp_path / "model"), "--to", "demo@3", "--root", "s3://models/exports/imported",
                "--memory", "64MiB", timeout=120)
    finally:
        proxy.close()
    assert_parts_have_no_gaps(proxy.requests)
    use(endpoint)
    assert command_json("diff", str(tmp_path / "model"), "demo@3", "--root", "s3://models/exports/imported")["equal"]
