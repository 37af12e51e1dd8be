"""Tests the alarms of real trainings: none where nothing is wrong, and the right one for each fault that is planted."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil

import pytest
from faults import FAULTS, pattern_of, plant
from saver import Saver
from trainings import TRAININGS, states_of

SAVES = 200
# Saves before a fault. Each rule needs three to five to know a tensor.
HISTORY = 10
# Faults that are planted of each kind.
PLANTED = int(os.environ.get("CAIRN_TEST_PLANTED", "2"))


def save_all(saver: Saver, states) -> dict[int, dict[str, str]]:
    """Saves the states of a training, which loads where it has resumed. Returns step -> alarms."""
    raised = {}
    before = None
    for step, state in enumerate(states, 1):
        if state.resumed:
            saver.connect()
            saver.load(before)
        if alarms := saver.save(step, state):
            raised[step] = alarms
        before = state
    return raised


@pytest.mark.parametrize("name", TRAININGS)
def test_a_right_training_raises_no_alarm(tmp_path, name):
    with Saver(tmp_path / "checkpoints") as saver:
        assert save_all(saver, itertools.islice(states_of(name), SAVES)) == {}


def test_another_number_of_ranks_raises_no_alarm(tmp_path):
    states = list(itertools.islice(states_of("dense"), 40))
    with Saver(tmp_path / "checkpoints") as saver:
        raised = {}
        for step, state in enumerate(states, 1):
            if step % 10 == 0:
                saver.restart(ranks={2: 3, 3: 1, 1: 2}[saver.ranks])
                saver.load(states[step - 2])
            if alarms := saver.save(step, state):
                raised[step] = alarms
        assert raised == {}


def test_a_return_to_an_older_step_raises_no_alarm(tmp_path):
    states = list(itertools.islice(states_of("dense"), 30))
    other = list(itertools.islice(states_of("dense", seed=1), 1))
    assert other
    with Saver(tmp_path / "checkpoints") as saver:
        assert save_all(saver, states[:20]) == {}
        saver.connect()
        saver.load(states[9], step=10)
        assert [saver.save(step, states[step - 1]) for step in range(11, 31)] == [{}] * 20


@functools.cache
def history_of(root, name: str) -> list:
    """Makes a root with ten checkpoints of a training, and returns its states and the next two."""
    states = list(itertools.islice(states_of(name), HISTORY + 2))
    with Saver(root) as saver:
        assert save_all(saver, states[:HISTORY]) == {}
    return states


TRAINING_OF = {"doubled": "mixture", "transposed": "dense", "exchanged_moments": "settled",
               "old_averages": "moving_average", "old_statistics": "batch_norm", "batches_anew": "batch_norm",
               "parted": "tied"}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_planted_fault_is_named_at_its_first_commit(tmp_path, tmp_path_factory, kind):
    for seed in range(PLANTED):
        name = TRAINING_OF.get(kind) or ["dense", "moving_average", "tied", "quantized"][seed % 4]
        if name == "quantized" and kind in ("frozen_optimizer", "no_moments", "stale_weight", "other_moment",
                                            "one_old_moment", "old_part_of_a_rank", "old_weights"):
            name = "dense"  # alarms do not know this optimizer's names
        root = tmp_path_factory.getbasetemp() / f"history-{name}"
        states = history_of(root, name)
        older, before, state = states[-3:]
        fault = plant(kind, seed, older, before, state)
        shutil.copytree(root, tmp_path / f"{seed}")
        with Saver(tmp_path / f"{seed}") as saver:
            # The first save of a coordinator compares all replicas, and ends if they differ.
            assert saver.save(HISTORY + 1, before) == {}
            alarms = saver.save(HISTORY + 2, fault.state, fault.change)
        found = [message for alarm, message in alarms.items() if alarm in fault.kinds]
        assert found, f"{kind} of seed {seed} in {name}: {alarms}"
        for word in fault.words:
            assert word in found[0] or re.search(rf"{re.escape(pattern_of(word))} \(", found[0]), (word, found[0])
