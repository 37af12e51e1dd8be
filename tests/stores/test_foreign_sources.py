"""Checkpoints of other libraries in an object store: imported, compared, and loaded without an import."""

import json
import pathlib
import pickle
import shutil
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import safetensors.torch

import cairn
import cairn.torch
from stores.fault_proxy import FaultProxy
from stores.server import amazons_client
from testing.dcp import assert_equal, state, tensor, write
from testing.ranks import blank, command, command_json, noise, on_ranks, reasons, rows

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


@pytest.fixture
def put(use, endpoint):
    """Puts a file or all files of a directory below a prefix: put(PATH, PREFIX). Returns the address."""
    client = amazons_client(endpoint)

    def put(path, prefix):
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file():
                key = prefix if file == path else f"{prefix}/{file.relative_to(path)}"
                client.put_object(Bucket="models", Key=key, Body=file.read_bytes())
        return f"s3://models/{prefix}"

    return put


def sharded(directory, files=3, seed=1):
    """Writes a model of Hugging Face in several files. Returns its tensors."""
    directory.mkdir()
    whole, index = {}, {}
    for number in range(files):
        name = f"model-{number + 1:05}-of-{files:05}.safetensors"
        tensors = {f"layer.{number}.weight": tensor((33, 17), torch.bfloat16, seed + 10 * number),
                   f"layer.{number}.bias": tensor((5,), torch.float32, seed + 10 * number + 1)}
        safetensors.torch.save_file(tensors, directory / name, {"format": "pt"})
        whole |= tensors
        index |= dict.fromkeys(tensors, name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (directory / "config.json").write_text("{}")
    return whole


def source_of(form, directory):
    """Makes what a library wrote; returns its path."""
    if form == "huggingface":
        sharded(directory)
    elif form == "huggingface without index":
        sharded(directory)
        (directory / "model.safetensors.index.json").unlink()
    elif form == "dcp":
        write(directory, state(1), thread_count=3, single_file_per_rank=False)
    elif form == "torch.save":
        torch.save({"model": {"a": tensor((7, 9), torch.float16, 1)}, "epoch": 3}, directory)
    else:
        return GOLDEN / form
    return directory


FORMS = ["huggingface", "huggingface without index", "dcp", "torch.save", "deepspeed_v0_19/stage1",
         "deepspeed_v0_19/stage2/global_step2_universal", "paddle_v3/flex", "paddle_v3/flex_safetensors",
         "paddle_v3/whole.pdparams", "torchsnapshot_v1"]


@pytest.mark.parametrize("form", FORMS)
def test_import_from_a_store_is_that_from_a_directory(put, tmp_path, form):
    path = source_of(form, tmp_path / "source")
    address = put(path, f"sources/{form}")
    place = form.replace(" ", "-").replace("/", "-")
    roots = {"of a directory": tmp_path / "from-directory", "here": tmp_path / "here",
             "in a store": f"s3://models/roots/{place}"}
    for name, root in roots.items():
        given = str(path) if name == "of a directory" else address + "/" * (path.is_dir())
        command("import", given, "--to", "demo@3", "--root", str(root))
    for name in ("here", "in a store"):
        same = command_json("diff", "demo@3", "demo@3", "--root", str(roots["of a directory"]), "--second-root",
                            str(roots[name]))
        assert same["equal"] and same["compared"] > 0
        command("verify", "demo@3", "--root", str(roots[name]))
    if form != "dcp":  # whose values of Python an import keeps in another form
        assert command_json("diff", address, "demo@3", "--root", str(roots["here"]))["equal"]


def test_ranks_load_a_source_and_read_each_byte_once(put, tmp_path):
    whole = {"large": noise((4096, 1400), np.float32, 1), "small": noise((33, 17), np.float16, 2)}
    (tmp_path / "model").mkdir()
    safetensors.torch.save_file({name: torch.from_numpy(array) for name, array in whole.items()},
                                tmp_path / "model" / "model.safetensors", {"format": "pt"})
    source = put(tmp_path / "model", "direct/model")
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        def work(rank, client):
            target = {name: blank(rows(array, rank, 2)) for name, array in whole.items()}
            report = client.load(target, source=source)
            assert report.total_bytes_read == report.unique_bytes == sum(array.nbytes for array in whole.values())
            for name, array in whole.items():
                assert target[name].array.tobytes() == rows(array, rank, 2).array.tobytes(), name

        on_ranks(cluster, work)


def test_a_state_dict_is_loaded_from_a_directory_of_torch(put, tmp_path):
    write(tmp_path / "dcp", state(1))
    source = put(tmp_path / "dcp", "direct/dcp")
    target = state(None)
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        cairn.torch.load(client, target, source=source)
    assert_equal(target, state(1))


def test_the_header_of_a_file_takes_one_request(put, use, endpoint, tmp_path):
    sharded(tmp_path / "model")
    source = put(tmp_path / "model", "counted/model")
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    try:
        command("import", source, "--to", "demo@3", "--root", str(tmp_path / "root"))
    finally:
        proxy.close()
    asked = [method for method, path in proxy.requests if path.startswith("/models/counted/model/model-")]
    # The headers are read at the begin and at the end, to see that nothing has changed; between, the tensors, which are
    # small enough to come with the header.
    assert asked == ["GET"] * (3 * 3), proxy.requests


class Replacing(FaultProxy):
    """Calls a function before a key is opened for the second time: with its first bytes its length is asked for."""

    def __init__(self, endpoint, key, replace):
        super().__init__(endpoint)
        self._key, self._replace, self._seen = key, replace, 0

    def _draw(self, method, path, probability):
        if method == "GET" and path == self._key:
            self._seen += 1
            if self._seen == 2:
                self._replace()
        return super()._draw(method, path, probability)


@pytest.mark.parametrize("way", ["load", "import"])
def test_a_file_that_is_replaced_after_the_plan_is_refused(put, use, endpoint, tmp_path, way):
    for name, seed in (("model", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        safetensors.torch.save_file({"a": tensor((64, 64), torch.float32, seed)}, tmp_path / name / "w.safetensors")
    source = put(tmp_path / "model", f"replaced/{way}")

    def replace():
        time.sleep(3)  # stores keep times in whole seconds
        put(tmp_path / "other", f"replaced/{way}")

    proxy = Replacing(endpoint, f"/models/replaced/{way}/w.safetensors", replace)
    use(proxy.endpoint)
    try:
        if way == "import":
            refused = command("import", source, "--to", "demo@3", "--root", str(tmp_path / "root"), expect=1).stderr
            assert "BAD_FOREIGN_FILE" in refused and "written anew" in refused
        else:
            with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
                answers = on_ranks(cluster, lambda rank, client: client.load(
                    {"a": np.zeros((64, 64), np.float32)}, source=source), errors=True)
            assert reasons(answers) == ["BAD_FOREIGN_FILE"] * 2
    finally:
        proxy.close()


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "s3://other/x.safetensors", ".."])
def test_an_index_that_leads_out_of_its_directory_is_refused(put, tmp_path, name):
    (tmp_path / "secret.safetensors").write_bytes(safetensors.torch.save({"a": torch.ones(2)}))
    put(tmp_path / "secret.safetensors", "hostile/secret.safetensors")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    source = put(tmp_path / "model", "hostile/model")
    refused = command("import", source, "--to", "demo@3", "--root", str(tmp_path / "root"), expect=1).stderr
    assert "BAD_SAFETENSORS" in refused or "PATH_ESCAPE" in refused, refused


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "s3://other/x", "a//b"])
def test_metadata_that_lead_out_of_their_directory_are_refused(put, tmp_path, name):
    write(tmp_path / "dcp", {"a": torch.ones(4)})
    metadata = pickle.loads((tmp_path / "dcp" / ".metadata").read_bytes())
    for info in metadata.storage_data.values():
        info.relative_path = name
    (tmp_path / "dcp" / ".metadata").write_bytes(pickle.dumps(metadata))
    source = put(tmp_path / "dcp", "hostile/dcp")
    refused = command("import", source, "--to", "demo@3", "--root", str(tmp_path / "root"), expect=1).stderr
    assert "PATH_ESCAPE" in refused, refused


def test_a_latest_that_leads_out_of_its_directory_is_refused(put, tmp_path):
    for tag, reason in (("../other", "PATH_ESCAPE"), ("s3://models/other", "PATH_ESCAPE"), ("none", "FILE_MISSING")):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / "latest").write_text(tag)
        source = put(tmp_path / "run", "hostile/run")
        refused = command("import", source, "--to", "demo@3", "--root", str(tmp_path / "root"), expect=1).stderr
        assert reason in refused, (tag, refused)


@pytest.mark.parametrize("source, says", [
    ("s3://models/no/such/prefix", "Check the path of the source"),
    ("s3://no-such-bucket/model", "Correct the name of the bucket"),
    ("s3:/models/model", "Write s3://models/model"),
    ("az://models/model", "s3://BUCKET/PREFIX"),
    ("s3://models/model?endpoint=http://store:9000", "set AWS_ENDPOINT_URL_S3"),
])
def test_what_is_no_source_is_refused_with_what_to_do(use, tmp_path, source, says):
    for arguments in (("import", source, "--to", "demo@3"), ("diff", source, source)):
        refused = command(*arguments, "--root", str(tmp_path / "root"), expect=1).stderr
        if arguments[0] == "import" or "Check" not in says:
            assert says in refused, refused
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        with pytest.raises(cairn.Error) as caught:
            client.load({"a": np.zeros(2)}, source=source)
    assert says in caught.value.metadata["next"], caught.value
    shutil.rmtree(tmp_path / "root")
