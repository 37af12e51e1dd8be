"""Gives torch.distributed.checkpoint's own calls Cairn as their storage."""

import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as torch_dcp
from torch.distributed.checkpoint.api import CheckpointException

import cairn
import cairn.torch
from cairn.torch.dcp import CairnReader, CairnWriter

pytestmark = pytest.mark.interop


class Progress:
    def __init__(self, step):
        self.step = step

    def state_dict(self):
        return {"step": self.step, "pair": (1, 2.5), "list": [1, {"a": b"x"}]}

    def load_state_dict(self, state):
        assert state["pair"] == (1, 2.5) and state["list"] == [1, {"a": b"x"}]
        self.step = state["step"]


def make(fill):
    return {"model": {"w": torch.full((4, 3), float(fill)), "half": torch.full((5,), fill, dtype=torch.bfloat16),
                      "scalar": torch.tensor(fill), "t": torch.full((2, 6), float(fill)).t()},
            "nested": [torch.full((2,), fill), {"n": fill}], "progress": Progress(fill)}


def check(state, fill):
    assert state["progress"].step == fill and state["nested"][1]["n"] == fill
    for tensor in (*state["model"].values(), state["nested"][0]):
        assert (tensor == fill).all()


@pytest.fixture
def client(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        yield client


def test_Writer_SavesOfTorch_AreReadByReaderAndByCairn(client):
    torch_dcp.save(make(3), checkpoint_id="run/300", storage_writer=CairnWriter(client=client))
    torch_dcp.async_save(make(4), storage_writer=CairnWriter("run/400", client=client)).result()
    assert client.checkpoints() == [300, 400]
    for step, fill in ((300, 3), (400, 4)):
        state = make(0)
        torch_dcp.load(state, checkpoint_id=f"run/{step}", storage_reader=CairnReader(client=client))
        check(state, fill)
    state = make(0)
    cairn.torch.dcp.load(state, checkpoint_id="run/400", client=client)
    check(state, 4)


def test_Reader_DirectoryOfTorch_IsRefusedWithWhatToDo(client, tmp_path, caplog):
    directory = tmp_path / "old/300"
    torch_dcp.save(make(3), checkpoint_id=directory)
    with pytest.raises(CheckpointException):
        torch_dcp.load(make(0), checkpoint_id=directory, storage_reader=CairnReader(client=client))
    assert "NOT_COMMITTED" in caplog.text
    assert f"next: {directory} is a directory that PyTorch wrote: load it without this storage_reader" in caplog.text
    for load in (torch_dcp.load, lambda state, **options: cairn.torch.dcp.load(state, client=client, **options)):
        state = make(0)
        load(state, checkpoint_id=directory)
        check(state, 3)


def test_Reader_StepOfAnotherWriter_IsRefusedWithWhatToDo(client, caplog):
    client.save(1, {"a": 1}).wait()
    with pytest.raises(CheckpointException):
        torch_dcp.load({"a": 0}, storage_reader=CairnReader("1", client=client))
    # Torch 2.10 leaves out of its own error what the reader raised.
    (said,) = [record.getMessage() for record in caplog.records if record.name == "cairn"]
    assert "was not saved by CairnWriter" in said and "cairn.torch.load" in said


def test_Writer_ValueOfAClass_IsRefusedByName(client):
    with pytest.raises(CheckpointException) as caught:
        torch_dcp.save({"a": {"b": object()}}, checkpoint_id="1", storage_writer=CairnWriter(client=client))
    assert "a.b" in str(caught.value) and "object" in str(caught.value)
    with pytest.raises(CheckpointException) as caught:
        torch_dcp.save({"a": 1}, checkpoint_id="latest", storage_writer=CairnWriter(client=client))
    assert "latest" in str(caught.value) and "checkpoints/1200" in str(caught.value)
    assert client.checkpoints() == []
    assert CairnWriter.validate_checkpoint_id("a/7") and not CairnReader.validate_checkpoint_id("a/b")
