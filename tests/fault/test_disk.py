"""Tests which trees a disk may hold after a power cut."""

import pytest

from sweep import record
from sweep.disk import Disk
from sweep.record import Event

CREATE = Event(record.CREATE, 1, "a")
WRITE = Event(record.WRITE, 1, "a", data=b"x" * 1024)
SYNC_FILE, SYNC_ROOT = Event(record.SYNC, 1, "a"), Event(record.SYNC, 9, "")


def trees(tmp_path, *events):
    """All trees that were seen in many cuts: each as {name: bytes}."""
    disk = Disk()
    for event in events:
        disk.take(event)
    seen = []
    for seed in range(200):
        at = tmp_path / str(seed)
        disk.cut(at, str(seed))
        tree = {str(path.relative_to(at)): path.read_bytes() if path.is_file() else None
                for path in at.rglob("*")}
        if tree not in seen:
            seen.append(tree)
    return seen


def test_what_was_synced_stands(tmp_path):
    assert trees(tmp_path, CREATE, WRITE, SYNC_FILE, SYNC_ROOT) == [{"a": b"x" * 1024}]


def test_a_name_stands_without_its_bytes(tmp_path):
    seen = trees(tmp_path, CREATE, WRITE, SYNC_ROOT)
    assert {"a": b""} in seen and {"a": b"x" * 512} in seen and {"a": b"x" * 1024} in seen and {} not in seen


def test_synced_bytes_are_lost_without_their_name(tmp_path):
    seen = trees(tmp_path, CREATE, WRITE, SYNC_FILE)
    assert {} in seen and {"a": b"x" * 1024} in seen and len(seen) == 2


@pytest.mark.parametrize("kind, both", [(record.RENAME, False), (record.LINK, True)])
def test_a_second_name_comes_alone_or_not_at_all(tmp_path, kind, both):
    seen = trees(tmp_path, CREATE, WRITE, SYNC_FILE, SYNC_ROOT, Event(kind, 1, "a", "b"))
    content = b"x" * 1024
    new = {"a": content, "b": content} if both else {"b": content}
    assert {"a": content} in seen and new in seen and len(seen) == 2, "a rename is one change"


def test_a_removal_is_undone_until_it_is_synced(tmp_path):
    gone = Event(record.UNLINK, 0, "a")
    assert {"a": b"x" * 1024} in trees(tmp_path, CREATE, WRITE, SYNC_FILE, SYNC_ROOT, gone)
    (tmp_path / "synced").mkdir()
    assert trees(tmp_path / "synced", CREATE, WRITE, SYNC_FILE, SYNC_ROOT, gone, SYNC_ROOT) == [{}]


def test_names_of_one_directory_are_kept_in_no_order(tmp_path):
    seen = trees(tmp_path, Event(record.MKDIR, 2, "first"), Event(record.MKDIR, 3, "second"))
    assert {"second": None} in seen and {"first": None} in seen


def test_a_tree_that_is_read_is_durable(tmp_path):
    before = tmp_path / "before"
    (before / "d").mkdir(parents=True)
    (before / "d/file").write_bytes(b"abc")
    disk = Disk(before)
    disk.take(Event(record.TRUNCATE, (before / "d/file").stat().st_ino, "d/file", offset=1))
    disk.take(Event(record.SYNC, (before / "d/file").stat().st_ino, "d/file"))
    disk.cut(tmp_path / "after", "1")
    assert (tmp_path / "after/d/file").read_bytes() == b"a"
