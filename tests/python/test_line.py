"""Tests which load a save goes on from, as the client says it to the coordinator."""

from cairn._session import lineage


def test_first_load_is_what_the_saves_go_on_from():
    line = lineage.Line()
    line.loaded(7, 40)
    assert [line.at_save(step) for step in (60, 70)] == [lineage.ResumePoint(7, 40)] * 2


def test_training_that_loads_nothing_goes_on_from_nothing():
    assert lineage.Line().at_save(10) is None


def test_load_between_two_saves_counts_only_if_the_next_step_is_not_higher():
    line = lineage.Line()
    assert line.at_save(10) is None
    line.loaded(7, 5)
    assert line.at_save(20) is None, "it has loaded only to compare"
    assert line.at_save(20) is None, "that load is over"
    line.loaded(8, 10)
    assert line.at_save(20) == lineage.ResumePoint(8, 10)
    line.loaded(9, 10)
    assert line.at_save(30) == lineage.ResumePoint(8, 10)


def test_last_of_several_loads_counts():
    line = lineage.Line()
    line.loaded(7, 40)
    line.loaded(8, 20)
    assert line.at_save(30) == lineage.ResumePoint(8, 20)
