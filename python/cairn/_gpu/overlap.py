"""Overlapped saves: which arrays may be copied while the trainer goes on, and what makes their updates wait."""

from __future__ import annotations

import bisect
import operator
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy

from cairn._base.errors import Error
from cairn._base.results import DeviceReport, StagingReport
from cairn._gpu import device_array
from cairn._gpu.device_array import DeviceArray
from cairn._gpu.devices import OverlappedCopies


def parts_of(overlap: Any) -> list[Any]:
    """Returns the parts of what Client.save was given as `overlap`: several of them, or one alone.

    Raises:
      Error: BAD_REQUEST (it is neither).
    """
    if _is_optimizer(overlap) or isinstance(overlap, (Mapping, numpy.ndarray)) or _is_array(overlap):
        return [overlap]
    if isinstance(overlap, (str, bytes)) or not isinstance(overlap, Iterable):
        raise _wrong_part(overlap)
    return list(overlap)


def _is_optimizer(part: Any) -> bool:
    return hasattr(part, "param_groups")


def _is_array(part: Any) -> bool:
    torch = sys.modules.get("torch")
    return (torch is not None and isinstance(part, torch.Tensor)) or device_array.is_on_device(part)


def _wrong_part(part: object) -> Error:
    return Error("BAD_REQUEST", f"overlap= has optimizers and arrays, and not {type(part).__name__}",
                 {"next": "Give overlap=[optimizer], or the arrays themselves in place of their names."})


class GuardedMemory:
    """The memory of arrays that change only in updates which wait for the copies of a save."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        """`spans` are addresses, from the first byte to the one behind the last."""
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end in sorted(spans):
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def holds(self, array: DeviceArray) -> bool:
        """Returns whether the memory of a contiguous array is all in it."""
        at = bisect.bisect_right(self._begins, array.address) - 1
        return at >= 0 and array.address + array.nbytes <= self._ends[at]


class UpdateGuards:
    """The hooks of one client on optimizers' steps. Thread-safe.

    A hook stays as long as its optimizer, because taking it off in one thread while another one makes a step would
    break that step. Between saves it does nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()
        self._current: OverlappedCopies | None = None

    def cover(self, parts: Iterable[Any]) -> GuardedMemory | str:
        """Puts hooks on optimizers.

        Args:
          parts: see parts_of().

        Returns:
          The memory of their parameters and states; or why one of them cannot be guarded.

        Raises:
          Error: BAD_REQUEST (a part is neither an optimizer nor arrays).
        """
        spans: list[tuple[int, int]] = []
        for part in parts:
            if isinstance(part, (str, bytes, int, float, type(None))):  # which a state of an optimizer may hold
                raise _wrong_part(part)
            if not _is_optimizer(part):
                add_spans(part, spans)
                continue
            name = type(part).__name__
            try:
                groups = list(part.param_groups)
                values = [group["params"] for group in groups] + list(getattr(part, "state", {}).values())
                why = self._put_on(part, name, groups)
            except Exception as error:
                raise Error("BAD_REQUEST", f"overlap= has an optimizer, {name}, that does not let itself be guarded: "
                            f"{error!r}", {"next": "Save without overlap=, or give the arrays themselves and call "
                                           "before_update() before each change."}) from error
            if why:
                return why
            add_spans(values, spans)
        return GuardedMemory(spans)

    def _put_on(self, optimizer: Any, name: str, groups: Sequence[Mapping[str, Any]]) -> str:
        """Returns why it cannot be."""
        torch = sys.modules.get("torch")
        wrapped = torch is not None and isinstance(optimizer, torch.optim.Optimizer) and not getattr(
            type(optimizer).step, "hooked", False)
        if wrapped or not hasattr(optimizer, "register_step_pre_hook"):
            return f"the step of {name} calls no hooks"
        if any(group.get("capturable") for group in groups):
            return f"{name} is capturable, and a CUDA graph with its step calls no hooks"
        with self._lock:
            if optimizer not in self._hooked:
                optimizer.register_step_pre_hook(_Hook(self))
                self._hooked.add(optimizer)
        return ""

    def set(self, overlap: OverlappedCopies | None) -> None:
        """Says whose copies updates wait for."""
        self._current = overlap

    def before_update(self, streams: Mapping[int, int] | None = None) -> None:
        """Lets the given streams (device -> number) wait, or those that torch has current, or the default streams."""
        overlap = self._current
        if overlap is not None:
            overlap.guard(current_streams() if streams is None else _checked(streams))


class _Hook:
    """An optimizer calls it before its step. It keeps no client alive."""

    def __init__(self, guards: UpdateGuards) -> None:
        self._guards = weakref.ref(guards)
        self._process = os.getpid()

    def __call__(self, *_: object) -> None:
        guards = self._guards()
        if guards is not None and os.getpid() == self._process:
            guards.before_update()


class BackgroundStaging:
    """The end of an overlapped save: a thread waits, outside of Python, until all is copied, and makes one call.

    Attributes:
      step: that is saved.
      ended: is set when the save is staged or given up.
      report: how arrays were copied, then.
      error: why it was given up, then.
    """

    def __init__(self, step: int, copies: OverlappedCopies, end: Callable[[], DeviceReport]) -> None:
        """`end` returns when the save is staged, or raises why it was given up. It begins at once."""
        self.step = step
        self.ended = threading.Event()
        self.report: DeviceReport | None = None
        self.error: Error | None = None
        self._copies = copies
        self._end = end
        self._process = os.getpid()
        threading.Thread(target=self._run, name="cairn-overlap", daemon=True).start()

    def staging(self, blocked_seconds: float) -> StagingReport:
        return StagingReport(self._copies.path, blocked_seconds, self._copies.pinned_bytes, self._copies.fallback,
                             overlapped=True)

    def is_of_parent(self) -> bool:
        """Returns whether this is a forked child's copy, in which nothing ever ends: the thread is not there."""
        return os.getpid() != self._process

    def _run(self) -> None:
        try:
            self.report = self._end()
        except Error as error:
            self.error = error
        except Exception as error:  # nobody else would hear of it
            self.error = Error("INTERNAL", f"an overlapped save ended with {error!r}")
        finally:
            self.ended.set()


def _checked(streams: Mapping[int, int]) -> dict[int, int]:
    """Raises BAD_REQUEST."""
    try:
        result = {operator.index(device): operator.index(stream) for device, stream in streams.items()}
    except (AttributeError, TypeError):
        result = {-1: -1}
    if any(not 0 <= device < 2**31 or not 0 <= stream < 2**64 for device, stream in result.items()):
        raise Error("BAD_REQUEST", f"the streams of before_update() are {{device: number}}, not {streams!r:.100}",
                    {"next": "Give such as {0: torch.cuda.current_stream().cuda_stream}, or nothing for torch's own."})
    return result


def current_streams() -> dict[int, int]:
    """Returns the stream in which torch works now, for each device; {} without torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    return {device: int(torch.cuda.current_stream(device).cuda_stream) for device in range(torch.cuda.device_count())}


def add_spans(value: Any, spans: list[tuple[int, int]]) -> None:
    """Adds the memory of all arrays on devices in nested dicts and lists. Arrays on the host have none."""
    torch = sys.modules.get("torch")
    _add_spans_of(value, spans, () if torch is None else torch.Tensor)


def _add_spans_of(value: Any, spans: list[tuple[int, int]], tensors: Any) -> None:
    """Optimizers have thousands of tensors, so these are looked for first. `tensors` is their class."""
    if isinstance(value, tensors):
        if hasattr(type(value), "__tensor_flatten__"):  # DTensors, and others that have no memory of their own
            for name in value.__tensor_flatten__()[0]:
                _add_spans_of(getattr(value, name), spans, tensors)
        elif value.is_cuda and (size := value.nbytes):
            if not value.is_contiguous():
                last = sum((extent - 1) * step for extent, step in zip(value.shape, value.stride(), strict=True))
                size = (last + 1) * value.element_size()
            begin = value.data_ptr()
            spans.append((begin, begin + size))
    elif isinstance(value, (dict, list, tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            _add_spans_of(part, spans, tensors)
    elif (array := device_array.find(value)) is not None:
        if array.nbytes:
            spans.append((array.address, array.end))
    elif not isinstance(value, (numpy.ndarray, numpy.generic, int, float, bool, str, bytes, type(None))):
        raise _wrong_part(value)
