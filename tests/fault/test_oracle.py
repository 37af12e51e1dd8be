"""Tests that the oracle of the sweep finds what must not be."""

import pytest

import cairn
from sweep.oracle import Book, Suspects, Violation, check_error, leftovers

ABORTED = cairn.Error("NO_SPACE", "demo@5: rank 1: write /root/demo: No space left on device")
UNKNOWN = cairn.Error("RANK_LOST", "demo@5: rank 1: its agent ended", {"outcome": "unknown"})


def book(*answers):
    made = Book()
    made.saved(5, 50, list(answers))
    return made


def test_a_step_that_was_told_must_be_listed():
    book("committed", UNKNOWN).check_listed([5], {})
    with pytest.raises(Violation, match="not listed"):
        book("committed", "committed").check_listed([], {})


def test_a_step_that_was_aborted_must_not_be_listed():
    book(ABORTED, ABORTED).check_listed([], {})
    with pytest.raises(Violation, match="never told"):
        book(ABORTED, UNKNOWN).check_listed([5], {})


def test_a_step_of_unknown_outcome_may_be_listed_or_not():
    for committed in ([], [5]):
        book(UNKNOWN, UNKNOWN).check_listed(committed, {})


def test_ranks_that_are_told_two_outcomes_are_found():
    with pytest.raises(Violation, match="some ranks were told COMMITTED"):
        book("committed", ABORTED)


def test_a_damaged_step_is_found():
    with pytest.raises(Violation, match="damaged"):
        book("committed").check_listed([5], {4: "DAMAGED"})


@pytest.mark.parametrize("answers", [[(5, 50), (5, 49)], [(5, 49)] * 2, [(4, 50)] * 2, [(5, None)] * 2, [ABORTED] * 2])
def test_a_load_of_other_bytes_is_found(answers):
    with pytest.raises(Violation):
        book("committed").check_loaded(5, answers)


@pytest.mark.parametrize("error", [cairn.Error("NO_SPACE", "no space"), cairn.Error("INTERNAL", "rank 1: it failed"),
                                   cairn.Error("OOPS", "rank 1: it failed"), ValueError("rank 1")])
def test_an_error_that_says_nothing_is_found(error):
    check_error(ABORTED)
    with pytest.raises(Violation):
        check_error(error)


def test_what_is_left_behind_is_found(tmp_path):
    step = tmp_path / "demo/000000000005"
    (step / "0001").mkdir(parents=True)
    (step / "0002").mkdir()
    whole = ["0001.verdict", "0002.verdict", "0001/.owner", "0001/rank00000-bin00.safetensors", "0002/.owner"]
    for name in [*whole, ".tmp-0123456789abcdef", "0001/rank00000-bin00.partial"]:
        (step / name).touch()
    (tmp_path / ".cairn").mkdir()
    (tmp_path / ".cairn/epoch").touch()
    (tmp_path / ".cairn/probe-01").touch()
    assert leftovers(tmp_path, {5: 1}) == {
        ".cairn/probe-01", *(f"demo/000000000005/{name}" for name in (
            "0002", "0002/.owner", ".tmp-0123456789abcdef", "0001/rank00000-bin00.partial"))}


def test_a_leftover_is_that_of_the_point_which_made_it():
    suspects = Suspects()
    suspects.look("first", {"a"})
    suspects.look("second", {"a", "b"})
    assert suspects.found() == [("first", "a"), ("second", "b")]
    suspects.look("third", {"b"})
    assert suspects.found() == [("second", "b")] and suspects.waiting(0)
