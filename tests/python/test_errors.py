"""Tests what an error says: its reason, its message, and what its reader should do."""

import pathlib
import pickle
import traceback

import pytest

import cairn
from cairn._reasons import NEXT_ACTIONS

ERRORS_PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/errors.md"


def documented() -> dict[str, str]:
    """Returns reason -> next action, from the page that is made from the services' own table."""
    rows = [line.split(" | ") for line in ERRORS_PAGE.read_text().splitlines() if line.startswith("| `")]
    return {row[0].strip("| `"): row[3].removesuffix(" |") for row in rows}


def test_every_reason_has_the_next_action_of_the_table():
    assert len(NEXT_ACTIONS) > 50
    assert documented() == NEXT_ACTIONS
    for reason, action in NEXT_ACTIONS.items():
        next_action = [f"next: {action}"] if action else []
        assert str(cairn.Error(reason, "text")).splitlines() == [f"{reason}: text", *next_action]
    assert [reason for reason, action in NEXT_ACTIONS.items() if not action] == ["BAD_REQUEST"]


ALL = {"job": "demo", "step": "7", "root": "/ckpt"}


@pytest.mark.parametrize("reason, metadata, action", [
    ("MANIFEST_CORRUPT", ALL, "`cairn repair demo@7 --root /ckpt`"),
    ("MANIFEST_CORRUPT", {"job": "demo", "step": "7"}, "`cairn repair demo@7 --root ROOT`"),
    ("MANIFEST_CORRUPT", {"job": "demo"}, "`cairn repair demo@STEP --root ROOT`"),
    ("MANIFEST_CORRUPT", {"step": "7"}, "`cairn repair JOB@STEP --root ROOT`"),
    ("CHECKSUM_MISMATCH", {**ALL, "root": r"/a\1"}, r"`cairn verify demo@7 --root /a\1`"),
    ("TIMED_OUT", {"job": "team/demo"}, "`cairn status team/demo`"),
    ("NOT_COMMITTED", {}, "`cairn list JOB`"),
])
def test_commands_name_the_checkpoint(reason, metadata, action):
    first, second = str(cairn.Error(reason, "text", metadata)).splitlines()
    assert first == f"{reason}: text" and second.startswith("next: ") and action in second


def test_whoever_made_the_error_may_know_better():
    error = cairn.Error("TIMED_OUT", "text", {"job": "demo", "next": "Wait for JOB@STEP."})
    assert str(error) == "TIMED_OUT: text\nnext: Wait for JOB@STEP."


def test_text_of_an_error_is_printable():
    error = cairn.Error("BAD_NAME", "a\x1b[2J\u202e\u2067\ud800 of\ncaf\u00e9", {"next": "Rename \x9b."})
    assert str(error) == (r"BAD_NAME: a\x1b[2J\xe2\x80\xae\xe2\x81\xa7\xed\xa0\x80 of" "\ncaf\u00e9\n"
                          r"next: Rename \xc2\x9b.")
    assert error.message.startswith("a\x1b")  # programs get what was said


def test_reason_of_a_newer_version_has_no_next_action():
    assert str(cairn.Error("NOT_INVENTED_YET", "text", ALL)) == "NOT_INVENTED_YET: text"


def test_names_that_come_later_stand_in_the_text_and_the_copy():
    error = cairn.Error("TIMED_OUT", "text")
    error.metadata["job"] = "demo"
    assert "`cairn status demo`" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_traceback_ends_with_the_next_action():
    with pytest.raises(cairn.Error) as caught:
        cairn.shards.replicated("no array")
    text = "".join(traceback.format_exception(caught.value))
    assert "Error: BAD_REQUEST: a numpy array is needed" in text.splitlines()[-1], "the message says what to change"
    text = "".join(traceback.format_exception_only(cairn.Error("BAD_STEP", "text")))
    assert text.splitlines()[-1] == f"next: {NEXT_ACTIONS['BAD_STEP']}"


def test_traceback_names_the_class_as_people_import_it():
    error = cairn.Error("TIMED_OUT", "text")
    assert traceback.format_exception_only(error)[0].startswith("cairn.Error: TIMED_OUT: text")
