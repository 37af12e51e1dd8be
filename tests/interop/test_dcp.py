"""Loads directories that the real torch.distributed.checkpoint wrote, and gives Cairn's calls DCP's signatures."""

import argparse
import io
import os
import pathlib
import pickle
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as torch_dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter

import cairn
import cairn.torch
import cairn.torch.dcp
from cairn.torch._dcp.checkpoint_id import step_of
from testing.dcp import assert_equal, bits, state, tensor, write
from testing.errors import raises_error
from testing.ranks import noise, on_ranks


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with cairn.local.Cluster(ranks=1, root=tmp_path_factory.mktemp("root")) as cluster:
        yield cluster


def test_a_directory_of_torch_loads_bit_for_bit(cluster, tmp_path):
    write(tmp_path / "dcp", state(1))
    target = state(None)
    with cluster.connect(0) as client:
        report = cairn.torch.load(client, target, source=tmp_path / "dcp")
    assert_equal(target, state(1))
    assert report.missing == [] and report.unexpected == []
    assert report.total_bytes_read == report.unique_bytes


def test_files_of_several_threads_load_bit_for_bit(cluster, tmp_path):
    write(tmp_path / "dcp", state(2), thread_count=3, single_file_per_rank=False)
    assert len(list((tmp_path / "dcp").glob("*.distcp"))) > 3
    target = state(None)
    with cluster.connect(0) as client:
        cairn.torch.dcp.load(target, checkpoint_id=tmp_path / "dcp", client=client)
    assert_equal(target, state(2))


def test_tensors_that_torch_conjugates_when_they_are_read_are_refused(cluster, tmp_path):
    state = {"conj": torch.tensor([1 + 2j, 3 - 4j]).conj(), "neg": torch._neg_view(torch.ones(2))}
    torch.save({"conj": state["conj"]}, tmp_path / "conj.pt")
    torch.distributed.checkpoint.save({"neg": state["neg"]}, checkpoint_id=str(tmp_path / "dcp"))
    with cluster.connect(0) as client:
        for name, source in (("conj", tmp_path / "conj.pt"), ("neg", tmp_path / "dcp")):
            with pytest.raises(cairn.Error) as caught:
                cairn.torch.load(client, {name: torch.zeros(2, dtype=state[name].dtype)}, source=source)
            assert caught.value.reason == "UNSUPPORTED" and "bit" in caught.value.message
            assert "resolve_conj" in str(caught.value)


def test_a_directory_that_is_older_than_the_job_is_told(tmp_path, caplog):
    """A program that looks for its latest step among directories finds none of Cairn's."""
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        for step, told in ((3, False), (5, True)):
            write(tmp_path / "4", state(1))
            cairn.torch.dcp.save(state(1), checkpoint_id=tmp_path / str(step), client=client)
            caplog.clear()
            cairn.torch.dcp.load(state(None), checkpoint_id=tmp_path / "4", client=client)
            assert ("a later checkpoint, job@5" in caplog.text.replace(client.job, "job")) == told, caplog.text


def test_a_directory_goes_to_the_shards_of_another_layout(tmp_path):
    whole = torch.from_numpy(noise((10, 6), np.float32, 3))
    write(tmp_path / "dcp", {"w": whole, "step": 3})

    def work(rank, client):
        begin, end = ((0, 4), (4, 10))[rank]
        part = np.zeros((end - begin, 6), np.float32)
        report = client.load({"w": cairn.Shard(part, (10, 6), (begin, 0)), "step": 0}, source=tmp_path / "dcp")
        assert report.objects == {"step": 3}
        return part, report

    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        answers = on_ranks(cluster, work)
    assert np.concatenate([part for part, _ in answers]).tobytes() == whole.numpy().tobytes()
    assert answers[0][1].total_bytes_read == answers[0][1].unique_bytes


def test_save_and_load_have_the_signatures_of_torch(cluster):
    class Progress:
        def __init__(self, step):
            self.step = step

        def state_dict(self):
            return {"step": self.step}

        def load_state_dict(self, state_dict):
            self.step = state_dict["step"]

    with cluster.connect(0) as client:
        saved = cairn.torch.dcp.save(state(4) | {"p": Progress(4)}, checkpoint_id="somewhere/step-4", client=client)
        assert saved.step == 4
        future = cairn.torch.dcp.async_save(state(5) | {"p": Progress(5)}, checkpoint_id="5", client=client)
        assert future.result(60).step == 5
        for step in (4, 5):
            target, progress = state(None), Progress(0)
            cairn.torch.dcp.load(target | {"p": progress}, checkpoint_id=f"somewhere/step-{step}", client=client)
            assert progress.step == step
            loaded = target | {"p": progress}
            cairn.torch.dcp.load(loaded, checkpoint_id=f"{step}/", client=client)
            assert_equal({key: loaded[key] for key in target}, state(step))


@pytest.mark.parametrize("checkpoint_id, step", [
    ("1200", 1200), ("runs/a/1200/", 1200), ("step-7", 7), ("global_step12", 12), ("a/checkpoint_0003", 3),
    ("epoch=1-step=90", 90), ("a/1.5", None), ("run-2024-01-05", None), ("a/-7", None), ("a/1e3", None),
    ("a/0x10", None), ("checkpoints/1234567890123456", None), ("a/1200\n", None), ("", None), (b"a/5", None), (7, None),
    ("a/best", None), ("v1.2/latest", None)])
def test_the_step_of_an_id_is_never_guessed(checkpoint_id, step):
    if step is not None:
        assert step_of(checkpoint_id) == step
        return
    with raises_error("BAD_REQUEST"):
        step_of(checkpoint_id)


@pytest.mark.parametrize("call, reason, word", [
    (lambda dcp, client: dcp.save({"a": 1}, checkpoint_id="latest", client=client), "BAD_REQUEST", "checkpoints/1200"),
    (lambda dcp, client: dcp.save({"a": 1}, client=client), "BAD_REQUEST", "checkpoints/1200"),
    (lambda dcp, client: dcp.load({"a": 1}, checkpoint_id="/nowhere", client=client), "BAD_REQUEST", ".metadata"),
    (lambda dcp, client: dcp.load({"a": 1}, checkpoint_id="999", client=client), "NOT_COMMITTED", "999"),
    (lambda dcp, client: dcp.save({"a": 1}, checkpoint_id="9", planner=object(), client=client),
     "UNSUPPORTED", "planner"),
    (lambda dcp, client: dcp.save({"a": 1}, checkpoint_id="9", storage_writer=FileSystemWriter("x"), client=client),
     "UNSUPPORTED", "storage_writer"),
])
def test_what_cannot_be_done_is_refused_by_name(cluster, call, reason, word):
    with cluster.connect(0) as client, pytest.raises(cairn.Error) as caught:
        call(cairn.torch.dcp, client)
    assert caught.value.reason == reason and word in caught.value.message


def test_ids_of_two_directories_are_refused_because_they_would_be_one_step(cluster):
    with cluster.connect(0) as client:
        cairn.torch.dcp.save({"a": torch.ones(2)}, checkpoint_id="runs/model/100", client=client)
        for call in (cairn.torch.dcp.save, cairn.torch.dcp.load):
            with pytest.raises(cairn.Error) as caught:
                call({"a": torch.zeros(2)}, checkpoint_id="runs/ema/100", client=client)
            assert caught.value.reason == "BAD_REQUEST" and "'runs/model'" in caught.value.message
        for same in ("runs/model/101/", "102"):
            cairn.torch.dcp.save({"a": torch.ones(2)}, checkpoint_id=same, client=client)
        loaded = {"a": torch.zeros(2)}
        cairn.torch.dcp.load(loaded, checkpoint_id="100", client=client)
        assert loaded["a"].tolist() == [1, 1]


def test_objects_of_classes_are_refused_only_where_they_are_wanted(cluster, tmp_path):
    write(tmp_path / "dcp", {"w": torch.ones(3), "args": argparse.Namespace(lr=1), "plain": 5})
    with cluster.connect(0) as client:
        target = {"w": torch.zeros(3), "plain": 0}
        report = cairn.torch.load(client, target, source=tmp_path / "dcp")
        assert target["plain"] == 5 and target["w"].tolist() == [1, 1, 1]
        assert report.objects["args"] == cairn.Opaque("argparse.Namespace")
        with pytest.raises(cairn.Error) as caught:
            cairn.torch.load(client, {"w": torch.zeros(3), "args": None, "plain": 0}, source=tmp_path / "dcp")
    assert caught.value.reason == "UNSUPPORTED"
    assert "'args' is argparse.Namespace" in caught.value.message


def test_missing_names_are_refused_and_partial_loads_allowed(cluster, tmp_path):
    write(tmp_path / "dcp", {"a": torch.ones(2), "other": torch.ones(2)})
    with cluster.connect(0) as client:
        with pytest.raises(cairn.Error) as caught:
            cairn.torch.dcp.load({"a": torch.zeros(2), "b": torch.zeros(2)}, checkpoint_id=tmp_path / "dcp",
                                 client=client)
        assert caught.value.reason == "MISSING_NAMES" and "b" in caught.value.message
        target = {"a": torch.zeros(2), "b": torch.zeros(2)}
        cairn.torch.dcp.load(target, checkpoint_id=tmp_path / "dcp", client=client,
                             planner=torch_dcp.DefaultLoadPlanner(allow_partial_load=True))
        assert target["a"].tolist() == [1, 1] and target["b"].tolist() == [0, 0]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_file_of_torch_save_loads_bit_for_bit(cluster, tmp_path, protocol):
    saved = state(6)
    saved["model"]["tied"] = saved["model"]["float32"]
    saved["model"]["view"] = torch.arange(10.0)[3:7]
    saved["model"]["parameter"] = torch.nn.Parameter(torch.ones(3))
    torch.save(saved | {"args": argparse.Namespace(a=1)}, tmp_path / "all.pt", pickle_protocol=protocol)
    names = {f"model.{name}": value for name, value in saved["model"].items()}
    names |= {"optimizer.state.0.step": saved["optimizer"]["state"][0]["step"], "nested.0": saved["nested"][0]}
    target = {name: torch.zeros(value.shape, dtype=value.dtype) for name, value in names.items()}
    with cluster.connect(0) as client:
        report = cairn.torch.load(client, target, source=tmp_path / "all.pt")
    for name, value in names.items():
        assert bits(target[name]) == bits(value.detach()), name
    assert report.total_bytes_read == report.unique_bytes and report.objects == {}


def shared_views():
    """Tensors of few storages: slices of a flat buffer that overlap, tied weights in other forms, expanded values."""
    flat = tensor((6000,), torch.float32, 11)
    weight = tensor((40, 30), torch.bfloat16, 12)
    return {"flat": flat, "slice": flat[100:3700].view(60, 60), "overlap": flat[2000:5000], "same": flat.view(60, 100),
            "weight": weight, "tied": weight, "transposed": weight.t(), "rows": weight[3:9],
            "expanded": torch.arange(7).expand(5, 7), "scalar": torch.tensor(3.5).expand(1000)}


def test_views_of_one_storage_load_bit_for_bit(cluster, tmp_path):
    views = shared_views()
    torch.save(views, tmp_path / "views.pt")
    torch.distributed.checkpoint.save(views, checkpoint_id=str(tmp_path / "dcp"))
    for source in ("views.pt", "dcp"):
        target = {name: torch.zeros(value.shape, dtype=value.dtype) for name, value in views.items()}
        with cluster.connect(0) as client:
            cairn.torch.load(client, target, source=tmp_path / source)
        for name, value in views.items():
            assert bits(target[name]) == bits(value.contiguous()), (source, name)
    # A terabyte that the file says by 8 bytes.
    torch.save({"w": torch.zeros(1, dtype=torch.int64).expand(1 << 16, 1 << 21)}, tmp_path / "bomb.pt")
    with cluster.connect(0) as client, pytest.raises(cairn.Error) as caught:
        client.load({"w": np.zeros((1,), np.int64)}, source=tmp_path / "bomb.pt")
    assert caught.value.reason == "UNSUPPORTED" and "contiguous" in str(caught.value)


def rewrite(directory, change):
    """Changes the metadata of a directory, as an attacker would."""
    path = directory / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(pickle.dumps(metadata))


def refusal(cluster, directory):
    with cluster.connect(0) as client, pytest.raises(cairn.Error) as caught:
        client.load({"w": np.zeros((4, 6), np.float32)}, source=directory)
    return caught.value


def set_infos(**fields):
    def change(metadata):
        for info in metadata.storage_data.values():
            for name, value in fields.items():
                setattr(info, name, value)
    return change


@pytest.mark.parametrize("change, reason", [
    (set_infos(relative_path="../w.distcp"), "PATH_ESCAPE"),
    (set_infos(relative_path="/etc/passwd"), "PATH_ESCAPE"),
    (set_infos(relative_path="a/../../w"), "PATH_ESCAPE"),
    (set_infos(relative_path="absent.distcp"), "FILE_MISSING"),
    (set_infos(offset=10**6), "FILE_TRUNCATED"),
    (set_infos(length=2**62), "FILE_TRUNCATED"),
    (set_infos(offset=-1), "BAD_FOREIGN_FILE"),
    (set_infos(offset=1), "FILE_TRUNCATED"),
    (set_infos(length=1000), "BAD_FOREIGN_FILE"),
    (set_infos(transform_descriptors=["zstd"]), "UNSUPPORTED"),
    (lambda metadata: metadata.storage_data.clear(), "BAD_FOREIGN_FILE"),
    (lambda metadata: metadata.state_dict_metadata["w"].chunks.clear(), "BAD_FOREIGN_FILE"),
    (lambda metadata: setattr(metadata.state_dict_metadata["w"], "size", torch.Size([8, 6])), "BAD_FOREIGN_FILE"),
    (lambda metadata: setattr(metadata.state_dict_metadata["w"].chunks[0], "sizes", torch.Size([3, 6])),
     "BAD_FOREIGN_FILE"),
])
def test_metadata_that_lies_is_refused(cluster, tmp_path, change, reason):
    directory = write(tmp_path / "dcp", {"w": torch.ones(4, 6)})
    rewrite(directory, change)
    assert refusal(cluster, directory).reason == reason


def test_a_link_out_of_the_directory_is_refused(cluster, tmp_path):
    directory = write(tmp_path / "dcp", {"w": torch.ones(4, 6)})
    data = next(directory.glob("*.distcp"))
    data.rename(tmp_path / "outside")
    data.symlink_to(tmp_path / "outside")
    assert refusal(cluster, directory).reason == "PATH_ESCAPE"


def test_a_file_that_was_cut_is_refused(cluster, tmp_path):
    directory = write(tmp_path / "dcp", {"w": torch.ones(4, 6)})
    data = next(directory.glob("*.distcp"))
    data.write_bytes(data.read_bytes()[:-100])
    assert refusal(cluster, directory).reason == "FILE_TRUNCATED"


class Calls:
    """Pickles itself as a call."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def hostile(marker: pathlib.Path):
    """Yields pickles that do something when Python loads them."""
    path, source = str(marker), f"open({str(marker)!r}, 'w')"
    for call in (Calls(os.mkdir, path), Calls(os.system, f"mkdir {marker}"), Calls(exec, source), Calls(eval, source),
                 Calls(open, path, "w"),
                 Calls(getattr, Calls(__import__, "os"), "mkdir"), Calls(pathlib.Path.touch, marker)):
        for protocol in (2, 3, 4, 5):
            yield pickle.dumps(call, protocol)
            yield pickle.dumps({"a": [1, call], "b": (call,)}, protocol)
    text = path.encode()
    short, long = bytes([len(text)]) + text, len(text).to_bytes(4, "little") + text
    yield b"\x80\x02cos\nmkdir\nX" + long + b"\x85R."
    yield b"\x80\x04\x8c\x02os\x8c\x05mkdir\x93\x8c" + short + b"\x85R."
    yield b"\x80\x02cos\nmkdir\n(X" + long + b"tb."
    yield b"\x80\x02(X" + long + b"ios\nmkdir\n."
    yield b"cos\nmkdir\n(V" + text + b"\ntR."


def archive(pickled: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, data in (("data.pkl", pickled), ("byteorder", b"little"), ("version", b"3\n")):
            made.writestr(f"archive/{name}", data)
    return stream.getvalue()


def test_no_hostile_pickle_is_executed(cluster, tmp_path):
    """Each is the metadata of a directory once, and the value of an entry once."""
    marker = tmp_path / "executed"
    directory = write(tmp_path / "dcp", {"w": torch.ones(4, 6), "value": "x" * 4000})
    metadata = (directory / ".metadata").read_bytes()
    loaded = pickle.loads(metadata)
    index = next(index for index in loaded.storage_data if index.fqn == "value")
    data = directory / loaded.storage_data[index].relative_path
    good = data.read_bytes()
    count = 0
    for attack in hostile(marker):
        (directory / ".metadata").write_bytes(attack)
        assert refusal(cluster, directory).reason in ("BAD_FOREIGN_FILE", "UNSUPPORTED")
        entry = archive(attack)
        change = pickle.loads(metadata)
        change.storage_data[index].offset, change.storage_data[index].length = len(good), len(entry)
        (directory / ".metadata").write_bytes(pickle.dumps(change))
        data.write_bytes(good + entry)
        with cluster.connect(0) as client:
            try:
                report = client.load({"w": np.zeros((4, 6), np.float32), "value": None}, source=directory)
                assert "Opaque" in repr(report.objects["value"])
            except cairn.Error as error:
                assert error.reason in ("BAD_FOREIGN_FILE", "UNSUPPORTED"), error
        assert not marker.exists()
        count += 1
    assert count > 50
    pickle.loads(next(iter(hostile(marker))))
    assert marker.exists()  # so the attacks are real ones
