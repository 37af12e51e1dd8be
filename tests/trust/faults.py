"""Faults that are planted into the state of a training, and the alarms that each must raise."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import re
from collections.abc import Callable

import reference
import torch
from saver import Change, part_of
from trainings import State

import cairn


@dataclasses.dataclass
class Fault:
    """What is saved in the place of the right state.

    Attributes:
      kinds: one of these alarms must come.
      words: what its message must name; of names with numbers, either the name or its pattern.
      change: what one rank hands over.
    """

    kinds: set[str]
    words: list[str]
    state: State
    change: Change | None = None

    def named_in(self, alarms: dict[str, str]) -> bool:
        """Returns whether an alarm of one of the kinds names all that it must."""
        messages = [message for kind, message in alarms.items() if kind in self.kinds]
        return any(all(word in message or re.search(rf"{re.escape(pattern_of(word))} \(", message)
                       for word in self.words) for message in messages)


def pattern_of(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


class NotHere(Exception):
    """The state has nothing into which the fault could be planted, or nothing of which alarms know enough by then."""


class Movements:
    """How far each tensor of a training has moved from save to save, as a share of its norm."""

    def __init__(self, states: list[State]):
        self.states = states
        self.of: dict[str, list[float | None]] = {}
        for name in {name for state in states for name in state.tensors}:
            self.of[name] = [self._distance(name, number) for number in range(len(states))]
        moments = [name for name in self.of if name.startswith("optimizer.") and not name.endswith(".step")]
        # Saves in which nothing moved that is trained.
        self.rests = [not any(self.of[name][number] for name in moments or self.of) for number in range(len(states))]

    def _distance(self, name: str, number: int) -> float | None:
        was, now = (self.states[each].tensors.get(name) if each >= 0 else None for each in (number - 1, number))
        if was is None or now is None or was.shape != now.shape or was.dtype != now.dtype:
            return None
        if torch.equal(was, now):
            return 0.0
        return float((now.double() - was.double()).norm() / max(was.double().norm(), now.double().norm()))


    @functools.cache  # noqa: B019
    def _numbers(self, name: str, number: int) -> dict:
        return reference.numbers(self.states[number].tensors[name].double().numpy())

    def estimate(self, name: str, number: int) -> float:
        """Returns how far a tensor has moved, as alarms estimate it."""
        if not self.of[name][number]:
            return 0.0
        was, now = self._numbers(name, number - 1), self._numbers(name, number)
        norms = [math.sqrt(each["sum_squares"]) for each in (was, now)]
        elements = self.states[number].tensors[name].numel()
        return max(math.dist(was["sketches"], now["sketches"]), abs(norms[0] - norms[1]),
                   abs(was["sum"] - now["sum"]) / math.sqrt(elements)) / max(norms)


class Past:
    """A training up to the state into which a fault is planted.

    Attributes:
      state: that state; `before` and `older` are the two that were saved before it.
    """

    def __init__(self, movements: Movements, number: int):
        self._movements, self._number = movements, number
        self.older, self.before, self.state = movements.states[number - 2:number + 1]
        run = max((each for each in range(number + 1) if movements.states[each].resumed), default=0)
        self.saves_of_run = number - run
        self.rests = movements.rests[number]

    def now(self, name: str) -> float:
        """Returns how far a tensor moves to the state."""
        return self._movements.of[name][self._number] or 0.0

    def farthest(self, name: str) -> float:
        """Returns how far a tensor has moved before at most."""
        return max(filter(None, self._movements.of[name][:self._number]), default=0.0)

    def known(self, names: list[str]) -> list[str]:
        """Returns those that have changed in five saves before this one."""
        return [name for name in names if sum(map(bool, self._movements.of[name][:self._number])) >= 5]

    def steady(self, names: list[str]) -> list[str]:
        """Returns those that change in each save, also in this one: a rest of them is new."""
        return [name for name in self.known(names) if self._is_steady(name)]

    def _is_steady(self, name: str) -> bool:
        moved = self._movements.of[name][:self._number + 1]
        first = next(number for number, each in enumerate(moved) if each)
        rested = any(not each and not self._movements.rests[number] for number, each in enumerate(moved)
                     if number > first)
        # Less is rounded away now and then.
        return not rested and min(moved[-1] or 0, moved[-2] or 0) > 1e-4 and not self._is_narrow(name)

    def _is_narrow(self, name: str) -> bool:
        return self.state.tensors[name].element_size() < 4

    def stood_out(self, name: str) -> bool:
        """Returns whether the tensor moved less than it had moved before, so that it may come to rest by itself."""
        movement = 0.0
        for number in range(1, self._number):
            movement = max(self._movements.estimate(name, number), 0.9 * movement)
        return self._movements.estimate(name, self._number - 1) < 0.52 * movement

    def trained_as_much(self) -> bool:
        """Returns whether most weights move as far as before, or have a count of their steps."""
        if self.moments(".step") or any("num_batches" in name for name in self.state.tensors):
            return True
        moved = [(self.now(name), self._movements.of[name][self._number - 1]) for name in self.weights()]
        far = [now > 0.9 * (before or 0.0) for now, before in moved if now > 0]
        return 2 * sum(far) >= len(far)

    def moments(self, *keys: str) -> list[str]:
        return sorted(name for name in self.state.tensors if name.startswith("optimizer.") and name.endswith(keys)
                      and name in self.before.tensors)

    def weights(self) -> list[str]:
        """Returns the weights that an optimizer has moments for; all, if it keeps none."""
        kept = {name.removeprefix("optimizer.state.").rpartition(".")[0] for name in self.state.tensors
                if name.startswith("optimizer.")}
        return sorted(name for name, tensor in self.state.tensors.items() if name.startswith("model.")
                      and tensor.is_floating_point() and "running_" not in name
                      and (not kept or any(each.startswith(name.removeprefix("model.")) for each in kept)))

    def known_matrices(self) -> list[str]:
        """Returns those that are known, if others tell how far weights move now."""
        others = sum(bool(self.now(name)) for name in self.known(self.weights()))
        return self.known(self.matrices()) if self.rests or others > 3 else []

    def matrices(self) -> list[str]:
        return [name for name in self.weights() if self.state.tensors[name].ndim == 2
                and self.state.tensors[name].numel() >= 64]


def with_old(past: Past, names: list[str]) -> State:
    return with_tensors(past.state, **{name: past.before.tensors[name] for name in names})


def one_of(random: random.Random, names: list[str]) -> str:
    if not names:
        raise NotHere
    return random.choice(names)


def all_of(names: list[str], at_least: int = 1) -> list[str]:
    if len(names) < at_least:
        raise NotHere
    return names


def with_tensors(state: State, **tensors) -> State:
    return dataclasses.replace(state, tensors=state.tensors | tensors)


def old_copy(random, past):
    """A rank hands over the tensors that it handed over before."""
    all_of(past.steady(past.moments(".exp_avg", ".momentum_buffer") + past.weights()), 2)
    stale = random.randrange(2)
    return Fault({"stale_rank"}, [f"rank {stale} wrote"], past.state,
                 lambda rank, part: part | {name: value for name, value in part_of(past.before, rank, 2).items()
                                            if name in past.before.tensors} if rank == stale else part)


def frozen_optimizer(random, past):
    all_of(past.steady(past.moments(".exp_avg", ".momentum_buffer")), 2)
    all_of(past.steady(past.weights()), 2)
    names = [name for name in past.state.tensors if name.startswith("optimizer.") and name in past.before.tensors]
    return Fault({"frozen_optimizer"}, [], with_old(past, names))


def stale_weight(random, past):
    # One name of a tied weight has the optimizer's state.
    kept = [name for name in past.steady(past.matrices()) if not past.stood_out(name)
            and past.steady([each for each in past.moments(".exp_avg", ".momentum_buffer", ".exp_avg_sq")
                            if each.startswith(f"optimizer.state.{name.removeprefix('model.')}.")])]
    name = one_of(random, kept)
    return Fault({"stale_tensor"}, [name], with_old(past, [name]))


def same_again(random, past):
    if past.rests or past.saves_of_run < 5:
        raise NotHere
    all_of(past.known(sorted(past.before.tensors)))
    return Fault({"same_step"}, [], past.before, lambda rank, part: part_of(past.before, rank, 2))


def swapped_halves(random, past):
    """Each rank hands over the other's rows."""
    name = one_of(random, past.known_matrices())
    whole = past.state.tensors[name]
    half = whole.shape[0] // 2
    return Fault({"jump"}, [name], with_tensors(past.state, **{name: torch.cat([whole[half:], whole[:half]])}))


def transposed(random, past):
    name = one_of(random, [name for name in past.known_matrices()
                           if past.state.tensors[name].shape[0] == past.state.tensors[name].shape[1]])
    return Fault({"jump"}, [name], with_tensors(past.state, **{name: past.state.tensors[name].T.contiguous()}))


def swapped_tensors(random, past):
    names, tensors = past.known_matrices(), past.state.tensors
    one = one_of(random, names)
    # The two names of a tied weight have nothing to swap.
    other = one_of(random, [name for name in names if tensors[name].shape == tensors[one].shape
                            and not torch.equal(tensors[name], tensors[one])])
    return Fault({"jump"}, [one, other], with_tensors(past.state, **{one: tensors[other], other: tensors[one]}))


def alike(past, one: str, names: list[str]) -> list[str]:
    """Returns the same tensors of other layers or experts."""
    return [name for name in names if name != one and pattern_of(name) == pattern_of(one)
            and past.state.tensors[name].shape == past.state.tensors[one].shape]


def doubled(random, past):
    """One layer is saved in the place of another."""
    names = past.matrices()
    one = one_of(random, [name for name in names if alike(past, name, names)])
    other = one_of(random, alike(past, one, names))
    return Fault({"equal_tensors"}, [one, other], with_tensors(past.state, **{one: past.state.tensors[other]}))


def no_moments(random, past):
    if past.state.resumed:
        raise NotHere  # its optimizer may begin anew
    name = one_of(random, [name for name in past.moments(".exp_avg", ".momentum_buffer")
                           if int((past.before.tensors[name] == 0).sum()) < past.before.tensors[name].numel() // 2])
    return Fault({"zero_moments"}, [name], with_tensors(past.state, **{
        name: torch.zeros_like(past.state.tensors[name])}))


def not_a_number(random, past):
    name = one_of(random, sorted(name for name, tensor in past.state.tensors.items() if name in past.before.tensors
                                 and tensor.is_floating_point() and tensor.ndim))
    tensor = past.state.tensors[name].clone()
    tensor.view(-1)[random.randrange(tensor.numel())] = random.choice([torch.nan, torch.inf, -torch.inf])
    return Fault({"non_finite"}, [name], with_tensors(past.state, **{name: tensor}))


def scaled(random, past):
    name = one_of(random, past.known_matrices())
    factor = random.choice([0.0, 0.01, 3.0, -1.0, 1000.0])
    return Fault({"jump"}, [name], with_tensors(past.state, **{name: past.state.tensors[name] * factor}))


def stopped_loader(random, past):
    if past.saves_of_run < 7 or not past.trained_as_much():
        raise NotHere
    all_of(past.steady(past.moments(".exp_avg", ".momentum_buffer", ".scale") + past.weights()))
    name = random.choice(["loader", "global_step"])
    return Fault({"counter_stopped"}, [name], dataclasses.replace(
        past.state, objects=past.state.objects | {name: past.before.objects[name]}))


def other_dtype(random, past):
    if past.state.resumed:
        raise NotHere
    name = one_of(random, past.matrices())
    return Fault({"state_drift"}, [name], with_tensors(past.state, **{name: past.state.tensors[name].double()}))


def earlier_step(random, past):
    if past.state.resumed:
        raise NotHere
    name = one_of(random, past.moments(".step"))
    return Fault({"counter_stopped"}, [name], with_tensors(past.state, **{name: past.state.tensors[name] * 0}))


def far_step(random, past):
    name = one_of(random, past.moments(".step"))
    return Fault({"counter_stopped"}, [name], with_tensors(past.state, **{name: past.state.tensors[name] + 1e6}))


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).norm() / max(one.double().norm(), other.double().norm(), 1e-30))


def exchanged_moments(random, past):
    """Two weights of one shape have each other's moments."""
    names = [name for name in past.known(past.moments(".exp_avg_sq")) if past.state.tensors[name].ndim == 2]

    def apart(one, other):
        # Moments that move far from save to save are nowhere.
        apart = distance(past.state.tensors[other], past.before.tensors[one])
        return apart > 0.5 and apart > 10 * past.now(other) and apart > 3 * past.farthest(one)

    random.shuffle(names)
    pairs = ((one, other) for one in names for other in alike(past, one, names)
             if apart(one, other) and apart(other, one))
    one, other = next(pairs, (None, None))
    if one is None:
        raise NotHere
    moments = [(one, other), (one.removesuffix("_sq"), other.removesuffix("_sq"))]
    return Fault({"wrong_place"}, [one, other], with_tensors(past.state, **{
        name: past.state.tensors[by] for pair in moments for name, by in (pair, pair[::-1])}))


def other_moment(random, past):
    """The first moment of a weight is saved as its second, and the other way round."""
    second = one_of(random, [name for name in past.moments(".exp_avg_sq") if past.state.tensors[name].ndim == 2
                             and past.before.tensors[name].max() > 0])
    first = second.removesuffix("_sq")
    return Fault({"wrong_place"}, [second], with_tensors(past.state, **{
        first: past.state.tensors[second], second: past.state.tensors[first]}))


def two_saves_ago(random, past):
    all_of(past.moments(".exp_avg", ".momentum_buffer", ".scale"))
    name = one_of(random, past.steady(past.matrices()))
    return Fault({"returned"}, [name], with_tensors(past.state, **{name: past.older.tensors[name]}))


def old_averages(random, past):
    if past.saves_of_run < 2:
        raise NotHere
    names = all_of([name for name in past.state.tensors if name.startswith("ema.")])
    all_of(past.steady(names))
    return Fault({"stale_tensor"}, ["averages of weights"], with_old(past, names))


def old_statistics(random, past):
    if past.saves_of_run < 2:
        raise NotHere
    names = all_of([name for name in past.state.tensors if "running_" in name])
    all_of(past.steady(names))
    return Fault({"stale_tensor"}, ["running statistics"], with_old(past, names))


def old_weights(random, past):
    stale = all_of([name for name in past.steady(past.weights())
                    if past.steady([each for each in past.moments(".exp_avg", ".momentum_buffer", ".exp_avg_sq")
                                    if each.startswith(f"optimizer.state.{name.removeprefix('model.')}.")])], 2)
    if sum(map(past.stood_out, stale)) * 5 > len(stale):
        raise NotHere
    names = [name for name in past.state.tensors if name.startswith("model.")]
    return Fault({"stale_tensor"}, [], with_old(past, names))


def one_old_moment(random, past):
    key = random.choice(["exp_avg", "step"])
    names = past.moments(f".{key}")
    all_of(past.steady(past.moments(".exp_avg")), 2)
    all_of(past.steady(past.weights()), 2)
    return Fault({"frozen_optimizer"}, [key], with_old(past, names))


def old_part_of_a_rank(random, past):
    """A rank hands over its old weights, or its old moments."""
    stale, word = random.randrange(2), random.choice(["model.", ".exp_avg"])
    all_of(past.moments(".exp_avg", ".momentum_buffer"))
    names = [name for name, tensor in past.state.tensors.items() if word in name and tensor.ndim > 0]
    all_of([name for name in past.steady(names) if past.state.tensors[name].shape[0] > 1], 2)
    return Fault({"stale_rank"}, [f"rank {stale} wrote"], past.state,
                 lambda rank, part: part | {name: part_of(past.before, rank, 2)[name] for name in names}
                 if rank == stale else part)


def batches_anew(random, past):
    name = one_of(random, [name for name in past.state.tensors if name.endswith("num_batches_tracked")])
    return Fault({"counter_stopped"}, [name], with_tensors(past.state, **{name: torch.tensor(random.randrange(5))}))


def parted(random, past):
    """One name of a tied weight is an old one, or has lost bits."""
    if past.state.resumed:
        raise NotHere
    name, other = "model.head.weight", "model.embedding.weight"
    all_of(past.known([each for each in (name, other) if each in past.state.tensors]), 2)
    if not torch.equal(past.before.tensors[name], past.before.tensors[other]) or past.rests:
        raise NotHere
    now = random.choice([past.before.tensors[name], past.state.tensors[name].bfloat16().float()])
    return Fault({"untied"}, [name, other], with_tensors(past.state, **{name: now}))


def rank_of_zeros(random, past):
    """A rank hands over zeros, of either sign, in the place of its moments or weights."""
    empty, moments = random.randrange(2), past.moments(".exp_avg", ".exp_avg_sq", ".momentum_buffer")
    others = past.known([name for name, tensor in past.state.tensors.items() if not name.startswith("optimizer.")
                         and tensor.is_floating_point() and tensor.ndim])
    all_of(past.known(past.weights()), 2)
    names = moments if moments and random.random() < 0.5 else others
    halves = {name: past.before.tensors[name].tensor_split(2) for name in names
              if past.state.tensors[name].numel() >= 32 and past.state.tensors[name].shape[0] > 1}
    all_of([name for name, parts in halves.items() if parts[empty].any()], max(2, len(halves)))

    def emptied(shard):
        return cairn.Shard(shard.array * 0, shard.global_shape, shard.offset, dtype=shard.dtype)

    return Fault({"zero_moments"} if names is moments else {"jump"}, [f"all that rank {empty} wrote of these is zeros"],
                 past.state, lambda rank, part: part | {name: emptied(part[name]) for name in names
                                                        if isinstance(part[name], cairn.Shard)}
                 if rank == empty else part)


def zero_averages(random, past):
    if past.state.resumed:
        raise NotHere
    name = one_of(random, past.known([name for name, tensor in past.state.tensors.items() if tensor.ndim
                                      and (name.startswith("ema.") or "running_" in name)]))
    return Fault({"jump"}, [name], with_tensors(past.state, **{name: past.state.tensors[name] * 0}))


def exchanged_averages(random, past):
    names = past.known([name for name, tensor in past.state.tensors.items() if name.startswith("ema.")
                        and tensor.ndim == 2])
    one = one_of(random, [name for name in names if alike(past, name, names)])
    other = one_of(random, alike(past, one, names))
    return Fault({"wrong_place"}, [one, other], with_tensors(past.state, **{
        one: past.state.tensors[other], other: past.state.tensors[one]}))


def scaled_moments(random, past):
    """Moments have other units."""
    def of_squared(state, second):
        first = state.tensors[second.removesuffix("_sq")]
        return float(first.double().square().sum() / state.tensors[second].double().sum().clamp(min=1e-300))

    second = one_of(random, [name for name in past.known(past.moments(".exp_avg_sq")) if past.now(name) < 0.1
                             and past.before.tensors[name].numel() >= 16 and of_squared(past.before, name) > 2e-3
                             and 0.2 < of_squared(past.state, name) / of_squared(past.before, name) < 5])
    first = second.removesuffix("_sq")
    scaled = random.choice([[first], [second], [first, second]])
    return Fault({"jump"}, [scaled[-1]], with_tensors(past.state, **{
        name: past.state.tensors[name] * 1e4 for name in scaled}))


FAULTS: dict[str, Callable[[random.Random, Past], Fault]] = {
    each.__name__: each for each in (
        old_copy, frozen_optimizer, stale_weight, same_again, swapped_halves, transposed, swapped_tensors, doubled,
        no_moments, not_a_number, scaled, stopped_loader, other_dtype, earlier_step, exchanged_moments,
        other_moment, two_saves_ago, old_averages, old_statistics, old_weights, one_old_moment, old_part_of_a_rank,
        batches_anew, parted, far_step, rank_of_zeros, zero_averages, exchanged_averages, scaled_moments)}


def plant(kind: str, seed: int, past: Past) -> Fault:
    """Plants a fault into a state. Raises NotHere."""
    return FAULTS[kind](random.Random(seed), past)
