"""Judges real trainings without a cluster: as they are, and with faults that are planted into them by seed.

CAIRN_EXHAUSTIVE plants 10,000 faults, which takes minutes, and not some hundreds.
"""

from __future__ import annotations

import functools
import itertools
import os
import random

import pytest
from faults import FAULTS, Movements, NotHere, Past, plant
from judge import Judge
from saver import save_all
from trainings import TRAININGS, State, states_of

SAVES = 200
# Faults are planted into one of these saves. Each rule needs three to five saves to know a tensor.
FIRST, END = 11, 48
# So many of each kind are planted in each training.
PLANTED = 32 if os.environ.get("CAIRN_EXHAUSTIVE") else 2

# What need not be planted: a training has nothing of the kind, or seldom shows what is usual of it.
# docs/decisions/alarms.md has the reasons.
NO_STATE = {"no_moments", "earlier_step", "far_step", "other_moment", "one_old_moment", "scaled_moments"}
RESTS_TELL_NOTHING = {"frozen_optimizer", "stale_weight", "two_saves_ago", "old_weights", "one_old_moment",
                      "old_part_of_a_rank"}
NEVER: dict[str, set[str]] = {
    # Most saves are within a step of the optimizer.
    "accumulation": RESTS_TELL_NOTHING | {"old_copy", "stopped_loader"},
    # The weights never move.
    "rate_zero": RESTS_TELL_NOTHING | {"earlier_step", "far_step", "other_moment", "scaled_moments", "swapped_halves",
                                       "transposed", "swapped_tensors", "scaled", "rank_of_zeros"},
    # There are no moments.
    "plain_sgd": RESTS_TELL_NOTHING | NO_STATE,
    # There is one matrix, and no layer is like another.
    "batch_norm": {"transposed", "swapped_tensors", "doubled", "earlier_step", "far_step", "other_moment",
                   "one_old_moment", "scaled_moments"},
    # Alarms do not know this optimizer's names.
    "quantized": RESTS_TELL_NOTHING - {"two_saves_ago"} | {"no_moments", "other_moment", "scaled_moments"},
    # Updates are rounded away.
    "bfloat16_weights": RESTS_TELL_NOTHING | NO_STATE | {"old_copy", "stopped_loader"},
    "falling_rate": RESTS_TELL_NOTHING - {"old_part_of_a_rank"},
    # No matrix of those that are trained is square, or like another one.
    "low_rank": {"transposed"},
}
# These are in some trainings only.
ONLY_IN = {
    "old_averages": {"moving_average"}, "zero_averages": {"moving_average", "batch_norm"},
    "exchanged_averages": {"moving_average"}, "old_statistics": {"batch_norm"}, "batches_anew": {"batch_norm"},
    "parted": {"tied", "target_network"},
    # In the others, moments still move as far as they are apart.
    "exchanged_moments": {"settled"},
}


@functools.cache
def states(name: str) -> list[State]:
    return list(itertools.islice(states_of(name), END))


@pytest.mark.parametrize("name", TRAININGS)
def test_a_right_training_raises_no_alarm(name):
    with Judge() as judge:
        assert save_all(judge, itertools.islice(states_of(name), SAVES)) == {}


@pytest.mark.parametrize("name", TRAININGS)
def test_each_planted_fault_is_named(name):
    movements = Movements(states(name))
    planted, silent = dict.fromkeys(FAULTS, 0), []
    with Judge() as judge:
        lines = []
        for number, state in enumerate(states(name)):
            if state.resumed:
                judge.load(state)
            lines.append(judge.line)
            assert judge.save(number + 1, state, keep=str(number)) == {}
        for kind, seed in itertools.product(FAULTS, range(4 * PLANTED + 8)):
            if planted[kind] == PLANTED:
                continue
            number = random.Random(f"{kind} {seed}").randrange(FIRST, END)
            try:
                fault = plant(kind, seed, Past(movements, number))
            except NotHere:
                continue
            planted[kind] += 1
            judge.line = lines[number]
            alarms = judge.save(number + 1, fault.state, fault.change, go_back_to=str(number - 1))
            if not fault.named_in(alarms):
                silent.append((kind, seed, number, fault.words, alarms))
    assert not silent, f"{len(silent)} of {sum(planted.values())}: {silent[:5]}"
    never = NEVER.get(name, set()) | {kind for kind, trainings in ONLY_IN.items() if name not in trainings}
    assert {kind for kind, count in planted.items() if count == 0} <= never
    print(f"{name}: {sum(planted.values())} faults were planted and named")
