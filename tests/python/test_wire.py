"""Tests the messages of the wire contract: how long their classes live, and how their enums are shown."""

import gc
import weakref

from cairn._base import wire


def test_classes_of_fields_outlive_their_messages():
    # Threads read messages while others are collected.
    status = wire.Status()
    detail = weakref.ref(type(status.details.add()))
    info = weakref.ref(type(wire.CHECKPOINTS["PruneCheckpoints"].response().choices.add()))
    entry = weakref.ref(wire.ErrorInfo.MetadataEntry)
    del status
    gc.collect()
    assert detail() is not None and info() is not None and entry() is not None
    assert type(wire.Status().details.add()) is detail()


def test_enums_are_shown_by_their_names():
    assert wire.enum_name("cairn.v1.Phase.Value", 6) == "WRITING"
    assert wire.enum_text("cairn.v1.IoPath", 2) == "cached"
    assert wire.enum_text("cairn.v1.Transport", 1) == "shared-memory"


def test_enum_number_of_a_later_version_is_shown_as_unknown():
    assert wire.enum_name("cairn.v1.Phase.Value", 99) == "unknown (99)"
    assert wire.enum_text("cairn.v1.IoPath", 99) == "unknown (99)"


def test_transports_are_joined_and_the_refusal_of_nccl_is_named():
    ended = wire.LOCAL_AGENT["EndLoad"].response(transports=[1, 3], nccl_refusal="rank 3 has --nccl=never")
    assert wire.transport_text(ended) == "shared-memory+grpc (nccl: rank 3 has --nccl=never)"
    assert wire.transport_text(wire.LOCAL_AGENT["EndLoad"].response()) == ""
    assert wire.transport_text(wire.LOCAL_AGENT["EndLoad"].response(transports=[2, 9])) == "nccl+unknown (9)"
