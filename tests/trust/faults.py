"""Faults that are planted into the state of a training, and the alarms that each must raise."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable

import torch
from saver import Change, part_of
from trainings import State


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


def pattern_of(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def matrices(state: State) -> list[str]:
    return sorted(name for name, tensor in state.tensors.items()
                  if name.startswith("model.") and tensor.ndim == 2 and tensor.numel() >= 64)


def moving(before: State, state: State, names: list[str]) -> list[str]:
    """Returns those that the training has changed since the state before."""
    return [name for name in names if not torch.equal(before.tensors[name], state.tensors[name])]


def with_tensors(state: State, **tensors) -> State:
    return dataclasses.replace(state, tensors=state.tensors | tensors)


def old_copy(random, older, before, state):
    """A rank hands over the tensors that it handed over before."""
    stale = random.randrange(2)
    return Fault({"stale_rank"}, [f"rank {stale} wrote"], state,
                 lambda rank, part: part | {name: value for name, value in part_of(before, rank, 2).items()
                                            if name in before.tensors} if rank == stale else part)


def frozen_optimizer(random, older, before, state):
    names = [name for name in state.tensors if name.startswith("optimizer.")]
    return Fault({"frozen_optimizer"}, [], with_tensors(state, **{name: before.tensors[name] for name in names}))


def stale_weight(random, older, before, state):
    # One name of a tied weight has the optimizer's state.
    kept = [name for name in matrices(state) if any(each.startswith(f"optimizer.state.{name.removeprefix('model.')}.")
                                                   for each in state.tensors)]
    name = random.choice(moving(before, state, kept))
    return Fault({"stale_tensor"}, [name], with_tensors(state, **{name: before.tensors[name]}))


def same_again(random, older, before, state):
    return Fault({"same_step"}, [], before, lambda rank, part: part_of(before, rank, 2))


def swapped_halves(random, older, before, state):
    """Each rank hands over the other's rows."""
    name = random.choice(matrices(state))
    whole = state.tensors[name]
    half = whole.shape[0] // 2
    return Fault({"jump"}, [name], with_tensors(state, **{name: torch.cat([whole[half:], whole[:half]])}))


def transposed(random, older, before, state):
    square = [name for name in matrices(state) if state.tensors[name].shape[0] == state.tensors[name].shape[1]]
    name = random.choice(square)
    return Fault({"jump"}, [name], with_tensors(state, **{name: state.tensors[name].T.contiguous()}))


def swapped_tensors(random, older, before, state):
    names = matrices(state)
    one = random.choice(names)
    shape = state.tensors[one].shape
    # The two names of a tied weight have nothing to swap.
    other = random.choice([name for name in names if state.tensors[name].shape == shape
                           and not torch.equal(state.tensors[name], state.tensors[one])])
    return Fault({"jump"}, [one, other],
                 with_tensors(state, **{one: state.tensors[other], other: state.tensors[one]}))


def doubled(random, older, before, state):
    """One layer is saved in the place of another."""
    names = matrices(state)
    one = random.choice([name for name in names if pattern_of(name) != name])
    other = random.choice([name for name in names if name != one and pattern_of(name) == pattern_of(one)
                           and state.tensors[name].shape == state.tensors[one].shape])
    return Fault({"equal_tensors"}, [one, other], with_tensors(state, **{one: state.tensors[other]}))


def no_moments(random, older, before, state):
    names = [name for name, tensor in state.tensors.items() if name.endswith((".exp_avg", ".momentum_buffer"))
             and int((before.tensors[name] == 0).sum()) < tensor.numel() // 2]
    name = random.choice(names)
    return Fault({"zero_moments"}, [name], with_tensors(state, **{name: torch.zeros_like(state.tensors[name])}))


def not_a_number(random, older, before, state):
    name = random.choice([name for name, tensor in state.tensors.items() if tensor.is_floating_point() and tensor.ndim])
    tensor = state.tensors[name].clone()
    tensor.view(-1)[random.randrange(tensor.numel())] = random.choice([torch.nan, torch.inf, -torch.inf])
    return Fault({"non_finite"}, [name], with_tensors(state, **{name: tensor}))


def scaled(random, older, before, state):
    name = random.choice(matrices(state))
    factor = random.choice([0.0, 0.01, 3.0, -1.0, 1000.0])
    return Fault({"jump"}, [name], with_tensors(state, **{name: state.tensors[name] * factor}))


def stopped_loader(random, older, before, state):
    return Fault({"counter_stopped"}, ["loader"],
                 dataclasses.replace(state, objects=state.objects | {"loader": before.objects["loader"]}))


def other_dtype(random, older, before, state):
    name = random.choice(matrices(state))
    return Fault({"state_drift"}, [name], with_tensors(state, **{name: state.tensors[name].double()}))


def earlier_step(random, older, before, state):
    name = random.choice([name for name in state.tensors if name.endswith(".step")])
    return Fault({"counter_stopped"}, [name], with_tensors(state, **{name: state.tensors[name] * 0}))


def moments(state: State, key: str) -> list[str]:
    return sorted(name for name, tensor in state.tensors.items()
                  if name.endswith(f".{key}") and tensor.ndim == 2 and tensor.numel() >= 64)


def exchanged_moments(random, older, before, state):
    """Two weights of one shape have each other's moments."""
    names = moments(state, "exp_avg_sq")
    one = random.choice([name for name in names if pattern_of(name) != name])
    other = random.choice([name for name in names if name != one and pattern_of(name) == pattern_of(one)
                           and state.tensors[name].shape == state.tensors[one].shape])
    pairs = [(one, other), (one.removesuffix("_sq"), other.removesuffix("_sq"))]
    return Fault({"wrong_place"}, [one, other], with_tensors(state, **{
        name: state.tensors[by] for pair in pairs for name, by in (pair, pair[::-1])}))


def other_moment(random, older, before, state):
    """The first moment of a weight is saved as its second, and the other way round."""
    second = random.choice(moments(state, "exp_avg_sq"))
    first = second.removesuffix("_sq")
    return Fault({"wrong_place"}, [second], with_tensors(state, **{
        first: state.tensors[second], second: state.tensors[first]}))


def two_saves_ago(random, older, before, state):
    names = moving(before, state, matrices(state))
    name = random.choice(moving(older, before, names))
    return Fault({"returned"}, [name], with_tensors(state, **{name: older.tensors[name]}))


def old_averages(random, older, before, state):
    names = [name for name in state.tensors if name.startswith("ema.")]
    return Fault({"stale_tensor"}, ["averages of weights"], with_tensors(
        state, **{name: before.tensors[name] for name in names}))


def old_statistics(random, older, before, state):
    names = [name for name in state.tensors if "running_" in name]
    return Fault({"stale_tensor"}, ["running statistics"], with_tensors(
        state, **{name: before.tensors[name] for name in names}))


def old_weights(random, older, before, state):
    names = [name for name in state.tensors if name.startswith("model.")]
    return Fault({"stale_tensor"}, [], with_tensors(state, **{name: before.tensors[name] for name in names}))


def one_old_moment(random, older, before, state):
    key = random.choice(["exp_avg", "step"])
    names = [name for name in state.tensors if name.endswith(f".{key}")]
    return Fault({"frozen_optimizer"}, [key], with_tensors(state, **{name: before.tensors[name] for name in names}))


def old_part_of_a_rank(random, older, before, state):
    """A rank hands over its old weights, or its old moments."""
    stale, word = random.randrange(2), random.choice(["model.", ".exp_avg"])
    names = [name for name, tensor in state.tensors.items() if word in name and tensor.ndim > 0]
    return Fault({"stale_rank"}, [f"rank {stale} wrote"], state,
                 lambda rank, part: part | {name: part_of(before, rank, 2)[name] for name in names}
                 if rank == stale else part)


def batches_anew(random, older, before, state):
    name = random.choice([name for name in state.tensors if name.endswith("num_batches_tracked")])
    return Fault({"counter_stopped"}, [name], with_tensors(state, **{name: torch.tensor(random.randrange(5))}))


def parted(random, older, before, state):
    """One name of a tied weight is an old one, or has lost bits."""
    name = "model.head.weight"
    now = random.choice([before.tensors[name], state.tensors[name].bfloat16().float()])
    return Fault({"untied"}, [name, "model.embedding.weight"], with_tensors(state, **{name: now}))


FAULTS: dict[str, Callable[[random.Random, State, State, State], Fault]] = {
    each.__name__: each for each in (
        old_copy, frozen_optimizer, stale_weight, same_again, swapped_halves, transposed, swapped_tensors, doubled,
        no_moments, not_a_number, scaled, stopped_loader, other_dtype, earlier_step, exchanged_moments,
        other_moment, two_saves_ago, old_averages, old_statistics, old_weights, one_old_moment, old_part_of_a_rank,
        batches_anew, parted)}


def plant(name: str, seed: int, older: State, before: State, state: State) -> Fault:
    """Plants a fault into a state. The two states that were saved before it are `older` and `before`."""
    return FAULTS[name](random.Random(seed), *copy.deepcopy((older, before, state)))
