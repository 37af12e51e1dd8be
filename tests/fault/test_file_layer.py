"""Tests the file layer below a real command."""

import signal

import pytest

from sweep import record
from sweep.control import Control
from sweep.world import environment
from testing.ranks import command


@pytest.fixture
def control(tmp_path):
    swept = tmp_path / "swept"
    (swept / "root/demo").mkdir(parents=True)
    return Control(tmp_path, swept, ["command"])


def listed(control, **fault):
    """Lists the jobs of an empty root while a call goes wrong."""
    control.arm("command", **fault)
    with environment(control.environment()):
        return command("jobs", "--root", str(control.root / "root"), expect=None)


def test_calls_are_counted_and_one_goes_wrong(control):
    quiet = listed(control)
    calls = control.calls("command")
    assert quiet.returncode == 0 and calls > 3 and control.met("command") is None
    failed = listed(control, at=1, action="fail")
    assert failed.returncode == 1 and "Input/output error" in failed.stderr
    assert control.met("command").kind == "open" and "EIO" in control.met("command").text
    assert listed(control, at=calls + 1, action="fail").returncode == 0 and control.met("command") is None


@pytest.mark.parametrize("action", ["kill-before", "kill-middle", "kill-after"])
def test_a_process_is_killed(control, action):
    assert listed(control, at=2, action=action).returncode == -signal.SIGKILL
    assert control.met("command") is not None


def test_calls_elsewhere_are_not_counted(control):
    control.arm()
    with environment({**control.environment(), "FAULTS_ROOT": "/nowhere"}):
        command("jobs", "--root", str(control.root / "root"))
    assert control.calls("command") == 0


def test_what_is_changed_is_recorded_in_its_order(control, tmp_path):
    source = control.root / "model"
    source.mkdir()
    header = b'{"weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    (source / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    control.record(True)
    with environment(control.environment()):
        command("import", str(source), "--to", "demo@1", "--root", str(control.root / "root"))
    events = [event for event, _ in record.read_with_ends(control.record_path, control.root)]
    [outcome] = [at for at, event in enumerate(events) if event.kind == record.LINK and "0001.verdict" in event.other]
    [bin] = [at for at, event in enumerate(events) if "safetensors" in event.other]
    written = [event for event in events[:bin] if event.kind == record.WRITE and event.path == events[bin].path]
    synced = [event for event in events[:bin] if event.kind == record.SYNC and event.path == events[bin].path]
    assert b"weight" in b"".join(event.data for event in written) and synced, "bytes, fsync, name"
    assert bin < outcome and events[-1].kind in (record.SYNC, record.UNLINK)
