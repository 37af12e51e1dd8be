"""Holds what saves and loads return."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from cairn._base import wire
from cairn._base.errors import Error


def listed(names: list[str]) -> str:
    """Returns names for people: the first ones, and how many more there are."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if names[8:] else "")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint.

    Attributes:
      data_directory: below the root: holds the bins.
      warnings: what looks wrong in the state, and has not ended the save: STATE_ALARM, with the kind as "alarm" in the
        metadata (docs/trust.md), or replicas of tensors differ (REPLICA_MISMATCH). Told by Saving.wait().
    """

    job: str
    step: int
    attempt: int
    bytes: int
    world_size: int
    data_directory: str
    commit_time: datetime.datetime | None
    warnings: tuple[Error, ...] = ()

    @classmethod
    def from_wire(cls, message: wire.Message) -> Checkpoint:
        return cls(message.job, message.step, message.attempt, message.bytes, message.world_size,
                   message.data_directory,
                   message.commit_time.ToDatetime(datetime.timezone.utc) if message.HasField("commit_time") else None,
                   tuple(wire.error_from_status(warning) for warning in message.warnings))


@dataclasses.dataclass(frozen=True)
class DeviceReport:
    """How arrays on GPUs were copied.

    Attributes:
      path: the slowest that some array took: "pinned-slab" (straight between the device and the agent's memory),
        "pinned-ring" (through two pinned buffers; always so in a load) or "pageable" (through the driver's own). Better
        than these are "device-vmm", "device-fabric" and "device-ipc": the agent has copied them itself
        (connect(share_gpu_memory=True)).
      fallback: why it was no better path; "" if it was the best.
      bytes: that were copied.
      copies: calls of the driver that copied them.
      seconds: that it took.
      pinned_bytes: of the host's memory that are pinned.
      checked: arrays whose CRC32C the device computed at the save: of an overlapped save, those that were found in what
        was copied; of arrays that the agent has copied, those that it compares with what it writes.
      unchecked: why it could not; "" if it did, or was not asked to.
      bytes_by_path: path -> bytes that took it.
      shared_bytes: of the GPUs' memory that the agent has part in, and so holds until the next save.
      freed_bytes: of such memory that no array of this save is in any more, which the agent has given back therefore.
    """

    path: str
    fallback: str
    bytes: int
    copies: int
    seconds: float
    pinned_bytes: int
    checked: int = 0
    unchecked: str = ""
    bytes_by_path: dict[str, int] = dataclasses.field(default_factory=dict)
    shared_bytes: int = 0
    freed_bytes: int = 0

    def plus(self, other: DeviceReport | None) -> DeviceReport:
        """Returns the report of both, which are of one load and took the same path."""
        if other is None:
            return self
        paths = {path: self.bytes_by_path.get(path, 0) + other.bytes_by_path.get(path, 0)
                 for path in {**other.bytes_by_path, **self.bytes_by_path}}
        return DeviceReport(other.path, other.fallback, self.bytes + other.bytes, self.copies + other.copies,
                            self.seconds + other.seconds, max(self.pinned_bytes, other.pinned_bytes),
                            bytes_by_path=paths)


@dataclasses.dataclass(frozen=True)
class StagingReport:
    """How a save was staged.

    Attributes:
      path: the slowest way that some of this rank's arrays took: that of DeviceReport, or "host" if it has no arrays on
        GPUs.
      blocked_seconds: for which save() kept its caller.
      pinned_bytes: of the host's memory that the client keeps pinned.
      fallback: why `path` is no better one; "" if it is the best that was asked for, or is "host".
      overlapped: whether arrays are copied while the trainer goes on.
      synchronous_because: why not, although save() was asked to; "" otherwise.
    """

    path: str
    blocked_seconds: float
    pinned_bytes: int
    fallback: str = ""
    overlapped: bool = False
    synchronous_because: str = ""


@dataclasses.dataclass(frozen=True)
class ClientStatus:
    """What a client holds and waits for now.

    Attributes:
      agent_incarnation: number of the agent's process that the client is attached to. Another process has another one.
      slabs: staging buffers that the client keeps mapped for its next save.
      mapped_slabs: all staging buffers that are mapped, also those that the client has let go of and something still
        uses.
      driver_busy: whether the GPU's driver still works on a copy of this client.
      driver_waiting: what the driver has not done yet, such as "cuMemcpyDtoHAsync has not returned for 2 s"; "" if
        nothing.
      driver_keeps_memory: whether memory that nobody uses any more is still mapped, because the driver is not done with
        it.
    """

    agent_incarnation: int
    slabs: int
    mapped_slabs: int
    driver_busy: bool
    driver_waiting: str
    driver_keeps_memory: bool


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """Says what a load or a reshard did.

    Attributes:
      step: that was loaded; None of an import or a reshard.
      objects: name -> value of all objects of the checkpoint (of the source), declared or not.
      missing, unexpected: tensor and object names that only the target, only the checkpoint had (strict=False). Of the
        unexpected ones these are the first 64 KiB, in the order of the alphabet.
      bytes_read: payload planned for this rank to read from storage.
      total_bytes_read, unique_bytes, storage_bytes: for the whole job: payload read, payload needed (each byte once),
        and what the disk really gave, with alignment and verification.
      path: "slab" (no file was read), "cached" or "direct"; "memory" of a reshard, which reads nothing from storage.
      mapping: what the mapping did, as a text for people: matched, missing, unexpected, added and removed names, and
        the rest grouped by pattern. On rank 0; "" on the others and without a mapping.
      passed_over: newer steps that are damaged and were not loaded, newest first: {"step", "reason"} each.
      device: how arrays on GPUs were filled; None if there were none.
      transport: how bytes of other ranks came, joined by "+": "shared-memory", "nccl", "grpc", or "grpc (nccl: REASON)"
        if NCCL was wanted and could not be used; "" if none came.
      mirror: the address of the mirror from which the checkpoint was read; "" if it was read from the root.
      verified_tensors: so many tensors of the job are, bit for bit, those that were saved; None without `verify`.
      warnings: what looked wrong in the state when it was saved: STATE_ALARM, with the kind as "alarm" in the metadata
        (docs/trust.md), or REPLICA_MISMATCH.
    """

    step: int | None
    objects: dict[str, Any]
    missing: list[str]
    unexpected: list[str]
    bytes_read: int
    total_bytes_read: int
    unique_bytes: int
    storage_bytes: int
    path: str
    mapping: str = ""
    passed_over: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    device: DeviceReport | None = None
    transport: str = ""
    mirror: str = ""
    verified_tensors: int | None = None
    warnings: tuple[Error, ...] = ()

    def __repr__(self) -> str:
        """Returns one line that says what was done, with the numbers of objects and names."""
        parts = [f"step={self.step}"] if self.step is not None else []
        parts += [f"{self.unique_bytes} bytes, {self.total_bytes_read} read ({self.path})",
                  f"{len(self.objects)} objects"]
        parts += [f"{len(names)} names {what}" for what, names in
                  (("missing", self.missing), ("unexpected", self.unexpected)) if names]
        if self.passed_over:
            parts.append(f"{len(self.passed_over)} damaged steps passed over")
        if self.mirror:
            parts.append(f"from the mirror {self.mirror}")
        if self.verified_tensors is not None:
            parts.append(f"{self.verified_tensors} tensors verified")
        if self.warnings:
            parts.append(f"the step has alarms: {listed([each.metadata.get('alarm', '') for each in self.warnings])}")
        return f"LoadReport({', '.join(parts)})"
