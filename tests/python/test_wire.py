"""Tests that the classes of messages live as long as the process: threads read messages while others are collected."""

import gc
import weakref

from cairn import _wire


def test_classes_of_fields_outlive_their_messages():
    status = _wire.Status()
    detail = weakref.ref(type(status.details.add()))
    info = weakref.ref(type(_wire.CHECKPOINTS["PruneCheckpoints"].response().choices.add()))
    entry = weakref.ref(_wire.ErrorInfo.MetadataEntry)
    del status
    gc.collect()
    assert detail() is not None and info() is not None and entry() is not None
    assert type(_wire.Status().details.add()) is detail()
