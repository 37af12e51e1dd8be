"""Copies between tensors on devices and tensors on the host that stand in for them."""

from __future__ import annotations

from collections.abc import Callable

import torch


class DeviceCopies:
    """Tensors on devices, each with its stand-in on the host, of one call of the trainer."""

    def __init__(self) -> None:
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._streams: dict[torch.device, int] = {}

    def stream_of(self, device: torch.device) -> int:
        """Returns the stream of CUDA on which the trainer works now. A save or load comes after what is enqueued
        there. torch takes microseconds to say it, so it is asked once for each device."""
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = int(torch.cuda.current_stream(device).cuda_stream)
        return stream

    def add(self, tensor: torch.Tensor, host: torch.Tensor) -> None:
        self._pairs.append((tensor, host))

    def from_devices(self) -> None:
        self._copy([(host, tensor) for tensor, host in self._pairs])

    def to_devices(self) -> None:
        self._copy(self._pairs)

    def _copy(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Copies each second tensor to the first, between all that was begun before and all that comes after."""
        waits = {tensor.device: _synchronizer(tensor.device) for tensor, _ in self._pairs}
        # Work that computes the tensors, or still reads them, may run on another stream than the copies.
        for wait in waits.values():
            if wait is not None:
                wait()
        for (to, source), (tensor, _) in zip(pairs, self._pairs, strict=True):
            to.copy_(source, non_blocking=waits[tensor.device] is not None)
        for wait in waits.values():
            if wait is not None:
                wait()


def _synchronizer(device: torch.device) -> Callable[[], None] | None:
    """Returns what waits for all streams of a device; None if the device has no such call, so its copies must wait."""
    synchronize = getattr(getattr(torch, device.type, None), "synchronize", None)
    if synchronize is None:
        return None
    return synchronize if device.type == "mps" else lambda: synchronize(device)  # of Metal there is one device
