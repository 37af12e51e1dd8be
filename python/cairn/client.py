"""Connects a trainer to the agent beside it."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, SupportsIndex

from cairn._agent import connection, discovery, shared_memory
from cairn._base import timeouts, wire
from cairn._base.errors import Error
from cairn._base.limits import DEFAULT, Limits
from cairn._base.results import ClientStatus, LoadReport
from cairn._coordinator import retention
from cairn._gpu import devices
from cairn._load import loader
from cairn._save import stager
from cairn._save.save_handle import Saving
from cairn._session import job_requests, lineage, operation_lock, session, watcher
from cairn._staging import gpu_sharing
from cairn._state.mapping import MappingLike

__all__ = ["Client", "Saving", "connect"]



def _weakly(method: Callable[[], object]) -> Callable[[], None]:
    """Calls a bound method only while its object lives, so that a dropped client gives up its memory at once."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        bound = reference()
        if bound is not None:
            bound()

    return call


def connect(address: str | None = None, timeout: float = DEFAULT.agent_return, *, share_gpu_memory: bool = False,
            rank: SupportsIndex | None = None, world_size: SupportsIndex | None = None,
            limits: Limits = DEFAULT) -> Client:
    """Connects to one agent, which must be that of this trainer's rank.

    Args:
      address: the agent's, such as "unix:/run/cairn/0.sock". By default the environment's CAIRN_AGENT gives it: an
        address, one with "{rank}" in it, or a directory; the rank is RANK, SLURM_PROCID or LOCAL_RANK.
      timeout: seconds for which an agent that is just starting is waited for.
      share_gpu_memory: the agent copies arrays of saves from GPUs itself, where it can (docs/gpu.md).
      rank: of this trainer in its job, where it is another one than the launcher says, or no launcher says it.
      world_size: number of ranks of the job; it goes with `rank`.
      limits: how long the client waits for others, and how much it takes at a time; for tests and unusual machines.

    Returns:
      The client, whose session has begun.

    Raises:
      Error: AGENT_UNREACHABLE (no address is known, or nobody answers there), BAD_REQUEST (an argument is of the wrong
        kind), RANK_CONFLICT (the agent is that of another rank than this process has by `rank`, by torch's process
        group, or by RANK, SLURM_PROCID and the like), WORLD_SIZE_MISMATCH (its job has another number of ranks than the
        launcher has started, by WORLD_SIZE, SLURM_NTASKS and the like; only a job of one rank whose agent's address is
        given takes such a process), STALE_INCARNATION (a newer trainer has taken the rank meanwhile), PEER_UID or
        MEMORY_UNSEALED (who listens there is not an agent of the socket's owner).
    """
    if not isinstance(limits, Limits):
        raise Error("BAD_REQUEST", f"connect: limits is a cairn.Limits, not {limits!r}")
    if not isinstance(address, str | None):
        raise Error("BAD_REQUEST", f"an agent's address is a string, not {address!r}")
    found = _find(address, _natural(rank, "rank", 0), _natural(world_size, "world_size", 1))
    client = Client(found.address, timeouts.seconds(timeout, "connect"), bool(share_gpu_memory), found, limits)
    try:
        found.check(client.rank, client.world_size, client.job)  # an agent of an earlier version has not done it
    except Error:
        client.close()
        raise
    return client


def _natural(value: SupportsIndex | None, name: str, lowest: int) -> int | None:
    """Raises BAD_REQUEST if it is neither None nor an integer from `lowest`."""
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__") or not lowest <= value.__index__() < 2**31:
        raise Error("BAD_REQUEST", f"connect: {name} is an integer from {lowest}, not {value!r}")
    return value.__index__()


def _find(address: str | None, rank: int | None, world_size: int | None) -> discovery.AgentPlace:
    """Returns where the agent is, and which rank this process is by its caller, else by its launcher."""
    if rank is None:
        if world_size is not None:
            raise Error("BAD_REQUEST", "connect: world_size needs rank")
        return (discovery.find() if address is None else discovery.AgentPlace(address)).placed()
    if address is None:
        address = discovery.find({**os.environ, "RANK": str(rank)}).address
    return discovery.AgentPlace(address, rank, "rank", world_size, "world_size")


class Client(retention.RetentionCalls):
    """One trainer's session with its agent. Made by connect().

    Thread-safe, but saves and loads of one client follow one another; several clients of one process are independent.
    Not usable in a process forked after connect(): connect there again. Every method raises Error with BAD_REQUEST
    after close(), with STALE_INCARNATION after another trainer has taken the rank, and with AGENT_UNREACHABLE while
    there is no agent; the methods that call the agent wait 10 seconds for its next process.

    Attributes:
      job: the job's name.
      rank: this trainer's, from 0.
      world_size: number of ranks of the job.
    """

    def __init__(self, address: str, timeout: float, share_gpu_memory: bool = False,
                 found: discovery.AgentPlace | None = None, limits: Limits = DEFAULT) -> None:
        """See connect()."""
        self._agent = connection.AgentConnection(address, limits)
        # There is one slab at a time; what is mapped here is given to nobody else.
        self._slabs = shared_memory.MappingCache(capacity=1)
        self._devices = devices.Devices(limits)
        self._operation = operation_lock.OperationLock(_weakly(self._leave))
        self._left = False
        self._session = session.Session(self._agent, on_new_agent=_weakly(self._slabs.clear),
                                        on_replaced=_weakly(self._leave), found=found)
        self._lineage = lineage.Lineage()
        sharing = gpu_sharing.GpuMemorySharing(self._session, self._devices) if share_gpu_memory else None
        self._stager = stager.Stager(self._session, self._slabs, self._devices, sharing)
        self._loader = loader.Loader(self._session, self._devices, self._lineage)
        self._watch = watcher.AgentWatcher()
        try:
            self._session.attach(timeout)
        except BaseException:
            self._agent.close()
            raise
        self.job: str = self._session.job
        self.rank: int = self._session.rank
        self.world_size: int = self._session.world_size
        self._watch.start(self._session)
        _OPEN.add(self)

    # These are about the session.

    def _leave(self) -> None:
        """Gives up the memory of a session that another trainer has ended, if nothing copies into it."""
        if not self._session.replaced or not self._operation.acquire(0.0):
            return # an operation that is under way calls this again when it ends
        try:
            if not self._left:
                self._left = True
                self._watch.stop()
                self._session.detach(self._slabs.clear() and not self._devices.keeps_memory())
                self._devices.close()
        finally:
            self._operation.release()

    def close(self) -> None:
        """Ends the session; saves that are staged go on, and an overlapped one is staged first. Idempotent; never
        raises."""
        self._stager.finish()
        if not self._session.close("this client was closed"):
            return
        _OPEN.discard(self)
        self._watch.stop()
        # A thread that is in a save may still copy into the slab. The agent then gives the slab to nobody until this
        # process has ended.
        idle = self._operation.acquire(self._agent.limits.other_thread)
        try:
            self._session.detach(idle and self._slabs.clear() and not self._devices.keeps_memory())
            if idle:
                self._devices.close()
            self._agent.close()
        finally:
            if idle:
                self._operation.release()

    def _forked(self) -> None:
        """Ends the session in a forked child, which has none of the memory of its parent's session."""
        self._session.forked("this client was made before a fork; call cairn.connect in the new process")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<cairn.Client rank {self.rank} of {self.world_size}, job {self.job!r}, at {self._agent.address}>"

    def status(self) -> ClientStatus:
        """Says what the client holds and waits for now, for people who look for a call that takes long.

        It makes no call and does not wait. It also answers after close(), and from any thread.
        """
        slabs, mapped = self._slabs.count()
        return ClientStatus(self._session.agent_incarnation, slabs, mapped, self._devices.busy(),
                            self._devices.waiting(), self._devices.keeps_memory())

    # Steps and agreement; no calls.

    def report_step(self, step: SupportsIndex) -> None:
        """Says that this rank has reached `step`. This is a store into shared memory and no call.

        Args:
          step: from 0 to 999999999999.

        Raises:
          Error: BAD_STEP (no integer, or out of range).
        """
        self._session.report(retention.checked_step(step))

    def save_requested(self) -> int | None:
        """Returns whether the job saves at the step that was just reported.

        This is a load from shared memory and no call. Only at a step that is being agreed on does it wait for the
        answer (5 seconds at most).

        Returns:
          The step just reported, if the job has agreed to save at it, else None.
        """
        return self._session.agreed()

    # Saving.

    def prepare(self, state: dict[str, Any], timeout: float = 600) -> int:
        """Declares the layout of the coming saves, so that the agent plans and makes its memory ahead.

        Args:
          state: as for save(), with the shapes and dtypes that the saves will have. Every rank of the job must call it.
          timeout: seconds until all ranks have declared theirs and the plan is there.

        Returns:
          Bytes of this rank's staging memory.

        Raises:
          Error: as save() of the state and its layout, when all ranks have called it; TIMED_OUT (it names the ranks
            that have not), MEMORY_LIMIT (the staging memory does not fit).
        """
        timeout = timeouts.seconds(timeout, "prepare")
        with self._operation.of("prepare", timeout):
            return self._stager.prepare(state, timeout)

    def save(self, step: SupportsIndex, state: dict[str, Any], timeout: float = 60, *,
             allow_dropped_names: bool = False, overwrite: bool = False,
             metrics: Mapping[str, float] | None = None, overlap: Any = None,
             check_overlap: bool | None = None) -> Saving:
        """Copies the state to the agent; returns when that is done, and the arrays may change again.

        With `overlap` it returns earlier: arrays on GPUs are copied while the trainer goes on, and the next step of
        their optimizers waits for that, on the GPU (docs/gpu.md).

        Every rank of the job must call it for the same step.

        Args:
          step: from 0 to 999999999999; one that has no committed checkpoint, unless `overwrite` is set or the training
            has gone on from an older step (docs/retention.md, "Going back to an older step").
          state: name -> Shard, list of Shards, numpy array (whole, the same on all ranks), array on a GPU
            (alike), alias(), or a value: bytes
            or JSON, the same on all ranks, or per_rank() of one. Shapes and offsets count elements.
          timeout: seconds until this rank has staged, all waiting for other ranks included.
          allow_dropped_names: do not refuse a state that lacks names of the job's last committed step.
          overwrite: a checkpoint of this step may stand already. It is deleted when this save is committed, and not
            before: if the save fails, it stays what it was. All ranks must say so.
          metrics: what was measured at the step, such as {"loss": 0.25}: up to 64 numbers, by names of up to 100
            letters, digits, and characters of "._/-". Those of rank 0 count. They are committed with the checkpoint,
            and decide which one is the best (docs/retention.md).
          overlap: optimizers, whose parameters and states may be copied late; and arrays, or lists and dicts of them,
            if you call the save's before_update() before each change of these. Where a step cannot be seen the save is
            as without it, and its `staging` says why.
          check_overlap: let the GPU prove that no array changed before it was copied. By default the first three
            overlapped saves do.

        Returns:
          The save, which goes on by itself; its wait() gives the outcome.

        Raises:
          Error: BAD_STEP, BAD_REQUEST, BAD_NAME, BAD_SHAPE, BAD_DTYPE, NAME_COLLISION (what this rank says is wrong by
            itself); SHARD_GAP, SHARD_OVERLAP, SHAPE_MISMATCH, DTYPE_MISMATCH, NAMES_DROPPED (the ranks' states do not
            make one); STEP_COMMITTED (the step stands already); CHECKPOINT_PINNED (it would be overwritten, and is
            pinned); SAVE_IN_PROGRESS (an earlier save has not ended within the timeout); DEVICE_ERROR, DEVICE_STALLED
            (the GPU's driver; of an overlapped save wait() raises them, and TORN_SNAPSHOT); RANK_LATE, RANK_LOST (ranks
            that are waited for; `metadata["ranks"]` lists them); TIMED_OUT
            (the agent did not answer by the deadline); MEMORY_LIMIT. All reasons: docs/errors.md.
        """
        number = retention.checked_step(step)
        measured = retention.checked_metrics(metrics)
        timeout = timeouts.seconds(timeout, "save")
        started = time.monotonic()
        with self._operation.of("save", timeout):
            request = stager.SaveRequest(number, allow_dropped_names, overwrite,
                                         self._lineage.resume_point_at(number), measured)
            return self._stager.save(request, state, started, timeout, self, overlap, check_overlap)

    def request_save(self, timeout: float = 600, request_id: str | None = None) -> str:
        """Asks for a save at a step that no rank has passed, as `cairn save` does. Returns at once.

        When the ranks have agreed, save_requested() returns the step on each of them. If a save is being agreed on
        already, that one answers the request.

        Args:
          timeout: seconds after which the request, or its save, is given up.
          request_id: what an earlier call returned: asks for no other save, but raises the error if that one was given
            up.

        Returns:
          The request's id.

        Raises:
          Error: COORDINATOR_UNREACHABLE, SAVE_IN_PROGRESS; with `request_id` also what ended the save.
        """
        return job_requests.request_save(self._session, request_id, timeouts.seconds(timeout, "request_save"))

    # Loading.

    def load(self, state: dict[str, Any], step: SupportsIndex | str | None = None,
             mapping: MappingLike | None = None, strict: bool = True, *,
             source: str | os.PathLike[str] | None = None, fallback: bool = True, verify: str | None = None,
             timeout: float = 1800) -> LoadReport:
        """Fills the arrays of `state` in place from a committed checkpoint, made under this or any other layout.

        Every rank of the job must call it; the calls that are open on all ranks at one time belong together. On an
        Error the arrays may be partly filled, also with bytes that were not verified, and all ranks whose calls it met
        have the same one: they may call again.

        Args:
          state: as for save(); arrays must be writable. Objects need not be declared.
          step: None or "latest" for the latest committed one; or the name that tag() gave to one.
          mapping: statements of the mapping language (docs/mapping.md) by which the state's tensors are made of the
            checkpoint's: a list of them, a text with one per line, a path to a file, or the dict of an aoa_config.
          strict: refuse names that only the checkpoint or only the state has. Without it, a warning in the log "cairn"
            of rank 0 says what was not found.
          source: the path, "s3://bucket/prefix" or "gs://bucket/prefix", of what another library wrote
            (docs/import.md: Hugging Face, PyTorch, Megatron-core, DeepSpeed, torchsnapshot, Paddle), to be loaded
            instead of a checkpoint. All agents and the coordinator must see it.
          fallback: without a step, pass over newer steps that are proven to be damaged (an unreadable manifest, a
            missing or short file) and name them in the report; False: the newest one's damage is the load's error. What
            cannot be read for another reason, or turns out to be damaged while the arrays fill, is always an error.
          verify: "fingerprint" compares the filled arrays of all ranks with the fingerprints of the checkpoint, bit for
            bit, before any rank returns (docs/trust.md). Arrays on GPUs cannot be compared.
          timeout: seconds without any progress after which the load is given up, for all ranks that wait in it. The
            error names the ranks that were waited for (RANK_LATE), or is TIMED_OUT if that does not become known soon.

        Returns:
          What was loaded, the objects, and how many bytes were read.

        Raises:
          Error: NOT_COMMITTED (there is no such checkpoint, or none yet); MISSING_NAMES, UNEXPECTED_NAMES (strict);
            SHAPE_MISMATCH, DTYPE_MISMATCH (the state wants a tensor otherwise than it was saved); MAPPING_* (the
            mapping is wrong); CHECKSUM_MISMATCH, FILE_MISSING, FILE_TRUNCATED, MANIFEST_CORRUPT (the checkpoint is
            damaged); FINGERPRINT_MISMATCH (`verify`: names the tensors and ranks); RANK_LATE, RANK_LOST, TIMED_OUT;
            BAD_STEP, BAD_REQUEST, BAD_NAME, BAD_SHAPE, BAD_DTYPE (arguments); INPUT_UNREADABLE (the mapping's file, the
            source). All reasons: docs/errors.md.
        """
        report = self._load(state, step, mapping, strict, source, fallback, timeout, verify)
        if not strict:
            loader.tell_unfilled(report, self.job, self.rank)
        loader.tell_alarms(report, self.job, self.rank)
        return report

    def _load(self, state: dict[str, Any], step: SupportsIndex | str | None, mapping: MappingLike | None,
              strict: bool, source: str | os.PathLike[str] | None, fallback: bool, timeout: float,
              verify: str | None = None) -> LoadReport:
        """Does what load() does, without a word in the log about its report."""
        if verify not in (None, "fingerprint"):
            raise Error("BAD_REQUEST", f'verify is None or "fingerprint", not {verify!r}', {"job": self.job})
        if step is not None and source is not None:
            raise Error("BAD_REQUEST", "a load has a step or a source, not both", {"job": self.job})
        if step == "latest":
            step = None
        if isinstance(step, str):
            number: int | None = job_requests.tagged(self._session, step)
        else:
            number = None if step is None else retention.checked_step(step)
        timeout = timeouts.seconds(timeout, "load")
        with loader.named(self.job, self.rank), self._operation.of("load", timeout):
            self._stager.settle(time.monotonic() + timeout)
            return self._loader.load(state, number, mapping, source, strict, fallback, timeout, verify)

    # Resharding.

    def reshard(self, source_state: dict[str, Any], target_state: dict[str, Any] | Callable[[], dict[str, Any]], *,
                strict: bool = True, offload: bool = False, timeout: float = 1800) -> LoadReport:
        """Fills the arrays of `target_state` in place from those of `source_state`, wherever in the job they are.

        Both are in memory, so nothing goes through storage. Every rank of the job must call it, with what it holds and
        what it wants; either may be empty. One of the ranks that hold a distinct shard lends it: it copies the shard to
        memory that the others can read, which takes about the job's state divided by its ranks. On an Error the targets
        may be partly filled, and the sources are as they were.

        Args:
          source_state: what this rank holds, as for save().
          target_state: what it wants, as for load(); or a function that returns it. That is called after `offload`, and
            the other ranks wait for it.
          strict: refuse names that only the source or only the target has.
          offload: first move the arrays of `source_state` that are on GPUs to the host's memory, for a target that does
            not fit beside them: the dict then holds arrays of numpy in their place, also after an Error. They take as
            much of the host's memory as they took of the GPU's, beside what this rank lends. Their memory of the GPU is
            free when nobody else holds them; so let go of them in the function that makes the target.
          timeout: seconds without any progress after which it is given up, as a load is.

        Returns:
          What was moved, and the source's objects; its `step` is None, its `path` "memory".

        Raises:
          Error: as save() of the source, as load() of the target; MEMORY_LIMIT (what this rank lends, or what moves off
            the GPU, does not fit); OBJECT_MISMATCH (an object that is the same on all ranks is not).
        """
        timeout = timeouts.seconds(timeout, "reshard")
        with loader.named(self.job, self.rank), self._operation.of("reshard", timeout):
            self._stager.settle(time.monotonic() + timeout)
            return self._loader.reshard(source_state, target_state, strict, offload, timeout)

    # These look at the job, and change what is kept.

    def _change(self, name: str, request: wire.Message) -> wire.Message:
        """See RetentionCalls._change."""
        return job_requests.change(self._session, name, request)

    def tags(self) -> dict[str, int]:
        """The names that checkpoints of this job have, and their steps.

        Raises:
          Error: COORDINATOR_UNREACHABLE, STORAGE_STALLED (nobody can tell now); STORAGE_ERROR, STORAGE_READ_ONLY and
            the like (storage did not tell which names a step has).
        """
        return job_requests.tags(self._session)

    def checkpoints(self) -> list[int]:
        """The committed steps of this job on which its training builds, ascending; load() takes the last one.

        Superseded ones, which a training has left behind when it went on from an older step, are not among them, nor
        are those that are proven to be damaged.

        Raises:
          Error: COORDINATOR_UNREACHABLE, STORAGE_STALLED (nobody can tell now); STORAGE_ERROR, STORAGE_READ_ONLY and
            the like (storage did not tell whether a step is committed, which `metadata["step"]` names: a list without
            it might differ from that of another rank).
        """
        return [checkpoint.step for checkpoint in job_requests.committed(self._session)]


_OPEN: weakref.WeakSet[Client] = weakref.WeakSet()


# A forked child is another process. It must neither end its parent's sessions nor wait for locks that are held there.
def _after_fork() -> None:
    for client in list(_OPEN):
        client._forked()
    _OPEN.clear()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    for client in list(_OPEN):
        client.close()
