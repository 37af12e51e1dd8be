"""Numbers the samples of a training run, so that any number of data-parallel ranks sees each of them once.

    cursor = cairn.samples.Cursor(samples=len(dataset), global_batch_size=48, shuffle_seed=1234)
    cursor.load_state_dict(client.load(state).objects["cursor"])          # if there is a checkpoint
    loader = DataLoader(dataset, batch_sampler=cursor.batches(rank, world, micro_batch_size=2), num_workers=4)
    for micro_batch in loader: ...
    cursor.advance()                                                      # once for each step of the optimizer
    client.save(step, state | {"cursor": cursor.state_dict()})

A run's samples have the global numbers 0, 1, 2 ... over all epochs, and step k takes the numbers from
k * global_batch_size on, whatever the number of ranks is. So one number says where a run stands, and it has the same
meaning for every world size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy

from cairn._base.errors import Error, shown

__all__ = ["Batches", "Cursor"]

# What a state must have in common with the cursor that loads it, or the numbers mean other samples.
_SAME_SAMPLES = ("samples", "shuffle_seed")


class Cursor:
    """Says where a training run stands in its samples.

    Not thread-safe; `batches` may be iterated by another thread meanwhile.

    Args:
      samples: how many samples the dataset has, such as len(dataset).
      global_batch_size: how many samples one step of the optimizer takes on all ranks together.
      shuffle_seed: each epoch has an order of its own, drawn from this number. By default the order is that of the
        dataset; a GPTDataset of Megatron-core is shuffled already.
      epochs: how many there are; by default without end. Samples at the end that fill no global batch are left out.

    Attributes:
      consumed_samples: how many samples the run has used, over all epochs: the `consumed_train_samples` of Megatron-LM.

    Raises:
      Error: BAD_REQUEST, if a number is not positive, `shuffle_seed` is not from 0 to 2^32 - 1, or all epochs have
        fewer samples than one global batch.
    """

    def __init__(self, samples: int, global_batch_size: int, *, shuffle_seed: int | None = None,
                 epochs: int | None = None) -> None:
        self.samples = _positive("samples", samples)
        self.global_batch_size = _positive("global_batch_size", global_batch_size)
        self.epochs = None if epochs is None else _positive("epochs", epochs)
        self.shuffle_seed = None if shuffle_seed is None else _whole("shuffle_seed", shuffle_seed)
        if self.shuffle_seed is not None and self.shuffle_seed >= 2**32:
            raise Error("BAD_REQUEST", f"shuffle_seed is from 0 to 2^32 - 1, not {shown(shuffle_seed)}")
        if self.epochs is not None and self.samples * self.epochs < self.global_batch_size:
            raise Error("BAD_REQUEST", f"{self.epochs} epochs of {self.samples} samples have no global batch of "
                        f"{self.global_batch_size}")
        self.consumed_samples = 0

    @property
    def epoch(self) -> int:
        """The epoch of the next sample, from 0."""
        return self.consumed_samples // self.samples

    def advance(self, steps: int = 1) -> None:
        """Counts the samples of steps of the optimizer that are done.

        A loader reads ahead of the training, so what it has fetched does not count. Call it on every rank.
        """
        self.consumed_samples += steps * self.global_batch_size

    def batches(self, rank: int, world: int, micro_batch_size: int) -> Batches:
        """Returns this rank's micro-batches from where the cursor stands: the `batch_sampler` of a DataLoader.

        The ranks share each global batch in contiguous parts. If `world` does not divide it, parts differ by one
        sample, and so may the number of micro-batches: then weight the gradients by the samples behind them.

        Args:
          rank, world: those of the data-parallel group.
          micro_batch_size: how many samples one micro-batch has; the last one of a step may have fewer.

        Raises:
          Error: RANK_OUT_OF_RANGE (`rank` is not below `world`), BAD_REQUEST (`micro_batch_size` is not positive, or
            there are more ranks than samples in a global batch).
        """
        return Batches(self, rank, world, micro_batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps: a value without tensors, the same on all ranks."""
        return {"consumed_samples": self.consumed_samples, "samples": self.samples, "shuffle_seed": self.shuffle_seed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to where a saved run stood. World, micro-batches and global batch size may have changed since.

        Raises:
          Error: BAD_REQUEST, if the dataset has another size or another order than that of the saved run, or `state`
            is none of state_dict().
        """
        self.consumed_samples = self._saved_number(state)

    def _saved_number(self, state: Mapping[str, Any]) -> int:
        """Returns the number in a state, after a check that it counts the samples of this cursor."""
        missing = [key for key in ("consumed_samples", *_SAME_SAMPLES) if key not in state]
        if missing:
            raise Error("BAD_REQUEST", f"the state of a cursor lacks {', '.join(missing)}")
        for key in _SAME_SAMPLES:
            if state[key] != getattr(self, key):
                raise Error("BAD_REQUEST", f"the saved run had {key}={shown(state[key])}, this one has "
                            f"{key}={shown(getattr(self, key))}: its numbers would mean other samples",
                            {"next": f"Make the cursor with {key}={shown(state[key])}, or begin the data anew."})
        return _whole("consumed_samples", state["consumed_samples"])

    def _end(self) -> int | None:
        """Returns the number behind the last sample that is used."""
        return None if self.epochs is None else self.samples * self.epochs


class Batches:
    """One rank's micro-batches, as lists of places in the dataset; each iteration begins where the cursor stands.

    torchdata's StatefulDataLoader takes it as a `batch_sampler` and keeps where its iteration stands in the loader's
    state, in global numbers, so a state that one rank saved serves every rank of another world.
    """

    def __init__(self, cursor: Cursor, rank: int, world: int, micro_batch_size: int) -> None:
        if world < 1 or not 0 <= rank < world:
            raise Error("RANK_OUT_OF_RANGE", f"rank {shown(rank)} is not one of {shown(world)}")
        self.micro_batch_size = _positive("micro_batch_size", micro_batch_size)
        if world > cursor.global_batch_size:
            raise Error("BAD_REQUEST", f"{world} ranks cannot share a global batch of {cursor.global_batch_size} "
                        "samples")
        self.cursor = cursor
        self.rank = rank
        self.world = world

    def __iter__(self) -> _Iteration:
        return _Iteration(self)


class _Iteration(Iterator[list[int]]):
    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._next_step = batches.cursor.consumed_samples  # the first sample of the step
        self._done = 0  # micro-batches of it
        self._epoch = -1  # that of _order
        self._order: numpy.ndarray[Any, Any] | None = None

    def __next__(self) -> list[int]:
        cursor, batches = self._batches.cursor, self._batches
        end = cursor._end()
        if end is not None and self._next_step + cursor.global_batch_size > end:
            raise StopIteration
        begin, end_of_part = (self._next_step + part * cursor.global_batch_size // batches.world
                              for part in (batches.rank, batches.rank + 1))
        begin += self._done * batches.micro_batch_size
        stop = min(begin + batches.micro_batch_size, end_of_part)
        if stop == end_of_part:
            self._next_step += cursor.global_batch_size
            self._done = 0
        else:
            self._done += 1
        return [self._place(number) for number in range(begin, stop)]

    def _place(self, number: int) -> int:
        """Returns where the dataset has the sample of this global number."""
        cursor = self._batches.cursor
        epoch, place = divmod(number, cursor.samples)
        if cursor.shuffle_seed is None:
            return place
        if self._order is None or epoch != self._epoch:
            # numpy keeps the stream of RandomState as it is (NEP 19), so a checkpoint outlives versions of numpy.
            self._order = numpy.random.RandomState([cursor.shuffle_seed, epoch % 2**32]).permutation(cursor.samples)
            self._epoch = epoch
        return int(self._order[place])

    def state_dict(self) -> dict[str, Any]:
        return {**self._batches.cursor.state_dict(), "consumed_samples": self._next_step, "micro_batches": self._done,
                "world": self._batches.world, "micro_batch_size": self._batches.micro_batch_size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        number = self._batches.cursor._saved_number(state)
        same = all(state[key] == getattr(self._batches, key) for key in ("world", "micro_batch_size"))
        if state["micro_batches"] and not same:
            raise Error("BAD_REQUEST", f"the loader was saved after {state['micro_batches']} micro-batches of a step, "
                        f"of {state['world']} ranks with {state['micro_batch_size']} samples each; other ranks can "
                        "begin only at a step", {"next": "Save the loader between two steps of the optimizer."})
        self._next_step = number
        self._done = state["micro_batches"]


def _positive(name: str, value: int) -> int:
    if _whole(name, value) == 0:
        raise Error("BAD_REQUEST", f"{name} is 0")
    return value


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Error("BAD_REQUEST", f"{name} is a whole number, not {shown(value)}")
    return value
