"""Tests the alarms of real trainings: none where nothing is wrong, and the right one for each fault that is planted."""

from __future__ import annotations

import functools
import itertools
import shutil

import pytest
from faults import FAULTS, Movements, Past, plant
from saver import Saver, save_all
from trainings import states_of

SAVES = 70
# Saves before a fault. Each rule needs three to five to know a tensor.
HISTORY = 10


# test_planted.py judges all trainings. These have other names, dtypes or runs.
@pytest.mark.parametrize("name", ["resumed", "fine_tuning", "quantized", "bfloat16_weights", "batch_norm"])
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


TRAINING_OF = {"doubled": "mixture", "transposed": "dense", "exchanged_moments": "settled", "old_weights": "settled",
               "old_averages": "moving_average", "old_statistics": "batch_norm", "batches_anew": "batch_norm",
               "parted": "tied", "zero_averages": "batch_norm", "exchanged_averages": "moving_average",
               "scaled_moments": "settled"}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_planted_fault_is_named_at_its_first_commit(tmp_path, tmp_path_factory, kind):
    for seed, name in enumerate([TRAINING_OF[kind]] if kind in TRAINING_OF else ["dense", "moving_average"]):
        root = tmp_path_factory.getbasetemp() / f"history-{name}"
        states = history_of(root, name)
        fault = plant(kind, seed, Past(Movements(states), HISTORY + 1))
        shutil.copytree(root, tmp_path / f"{seed}")
        with Saver(tmp_path / f"{seed}") as saver:
            # The first save of a coordinator compares all replicas, and ends if they differ.
            assert saver.save(HISTORY + 1, states[-2]) == {}
            alarms = saver.save(HISTORY + 2, fault.state, fault.change)
        assert fault.named_in(alarms), f"{kind} of seed {seed} in {name}: {fault.words}, {alarms}"
