"""Makes reports and errors of what the native helper says of a copy between GPUs and the host."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from cairn._base.errors import Error
from cairn._base.results import DeviceReport

# By the numbers of DevicePath and DeviceOutcome::Kind in gpu/copy/staged_copy.h.
_PATHS = ("pinned-slab", "pinned-ring", "pageable")
DONE, DRIVER_FAILED, STALLED, NOT_ON_DEVICE, MANY_DEVICES, INVALID = 0, 1, 2, 3, 4, -1
NOT_PINNED, CAPTURING, TORN, UNGUARDED, TOO_LONG = 5, 6, 7, 8, 9


class Outcome(ctypes.Structure):
    """Has the fields of struct CairnDeviceOutcome."""

    _fields_ = (("kind", ctypes.c_int64), ("index", ctypes.c_int64), ("path", ctypes.c_int64),
                ("bytes", ctypes.c_int64), ("detour_bytes", ctypes.c_int64), ("reordered", ctypes.c_int64),
                ("calls", ctypes.c_int64), ("pinned_bytes", ctypes.c_int64),
                ("text", ctypes.c_char * 256), ("fallback", ctypes.c_char * 256), ("checked", ctypes.c_int64),
                ("unchecked", ctypes.c_char * 256))


def path_of(outcome: Outcome, names: Sequence[str]) -> tuple[str, str]:
    """Returns the slowest path that was taken, and why it was no better one."""
    fallback = outcome.fallback.decode()
    if outcome.reordered >= 0:
        why = (f"the elements of {names[outcome.reordered]!r} are not in row-major order on the device, so the host "
               "puts them into it")
        fallback = f"{why}; {fallback}" if fallback else why
    return _PATHS[outcome.path], fallback


def report_of(outcome: Outcome, names: Sequence[str], seconds: float) -> DeviceReport:
    """Returns the report of copies that have ended well."""
    path, fallback = path_of(outcome, names)
    straight = outcome.bytes - outcome.detour_bytes
    bytes_by_path = {name: size for name, size in ((_PATHS[0], straight), (path, outcome.detour_bytes)) if size}
    return DeviceReport(path, fallback, outcome.bytes, outcome.calls, seconds, outcome.pinned_bytes, outcome.checked,
                        outcome.unchecked.decode(), bytes_by_path)


def error_of(outcome: Outcome, names: Sequence[str], timeout: float) -> Error | None:
    """Returns the error of copies that have not ended well; None if they have.

    Args:
      names: of the tensors that were copied, by their position.
      timeout: seconds that the caller gave.
    """
    text = outcome.text.decode()
    about = {"tensor": names[outcome.index]} if 0 <= outcome.index < len(names) else {}
    name = repr(about.get("tensor", ""))
    if outcome.kind == STALLED:
        return Error("DEVICE_STALLED", f"{text} ({timeout:.3g} s)", about)
    if outcome.kind == UNGUARDED:
        return Error("DEVICE_STALLED", text, about)
    if outcome.kind == DRIVER_FAILED:
        return Error("DEVICE_ERROR", text, about)
    if outcome.kind == NOT_ON_DEVICE:
        return Error("BAD_REQUEST", f"{name}: its memory is no device's; was it freed?",
                     {**about, "next": "Save the array that is there now."})
    if outcome.kind == TOO_LONG:
        return Error("BAD_REQUEST", f"{name}: its memory ends before it does, as its shape and strides say",
                     {**about, "next": "Look at the shape and the strides that the array says it has."})
    if outcome.kind == MANY_DEVICES:
        return Error("BAD_REQUEST", f"{name}: its memory is of two devices",
                     {**about, "next": "Save the part of each device as a shard of its own."})
    if outcome.kind == CAPTURING:
        return Error("BAD_REQUEST", f"{name}: its stream records a CUDA graph, in which nothing can be copied",
                     {**about, "next": "Save, load and reshard before the capture begins or after it has ended."})
    if outcome.kind == TORN:
        return Error("TORN_SNAPSHOT", f"{name} changed on the GPU before it was copied: its bytes are not those of "
                     "the save", about)
    if outcome.kind == INVALID:
        return Error("BAD_REQUEST", f"{name}: it repeats elements that are to be filled, or does not fit its place",
                     {**about, "next": "Load into a contiguous array, and copy from there."})
    return None
