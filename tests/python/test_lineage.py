"""Tests which load a save goes on from, as the client says it to the coordinator."""

from cairn._session import lineage


def test_first_load_is_what_the_saves_go_on_from():
    checkpoints = lineage.Lineage()
    checkpoints.note_load(7, 40)
    assert [checkpoints.resume_point_at(step) for step in (60, 70)] == [lineage.ResumePoint(7, 40)] * 2


def test_training_that_loads_nothing_goes_on_from_nothing():
    assert lineage.Lineage().resume_point_at(10) is None


def test_load_between_two_saves_counts_only_if_the_next_step_is_not_higher():
    checkpoints = lineage.Lineage()
    assert checkpoints.resume_point_at(10) is None
    checkpoints.note_load(7, 5)
    assert checkpoints.resume_point_at(20) is None, "it has loaded only to compare"
    assert checkpoints.resume_point_at(20) is None, "that load is over"
    checkpoints.note_load(8, 10)
    assert checkpoints.resume_point_at(20) == lineage.ResumePoint(8, 10)
    checkpoints.note_load(9, 10)
    assert checkpoints.resume_point_at(30) == lineage.ResumePoint(8, 10)


def test_last_of_several_loads_counts():
    checkpoints = lineage.Lineage()
    checkpoints.note_load(7, 40)
    checkpoints.note_load(8, 20)
    assert checkpoints.resume_point_at(30) == lineage.ResumePoint(8, 20)
