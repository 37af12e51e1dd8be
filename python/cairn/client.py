"""The trainer's client of the agent beside it."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import itertools
import os
import threading
import time
import weakref
from typing import Any, Callable

from cairn import (_agent, _layout, _loading, _mapping, _memory, _native, _objects, _replicas, _session, _timeouts,
                   _watch, _wire)
from cairn._errors import Error
from cairn._results import Checkpoint, LoadReport

_MAX_STEP = 999_999_999_999
# How long close() lets a call of another thread end.
_CLOSE_PATIENCE = 1.0
# An agent ends an attempt itself and says who was late; only if it does not, the client gives up.
_TIMEOUT_GRACE = 5.0


class _Operation:
    """Saves, loads and reshards of one client follow one another.

    Not reentrant: a signal's handler that closes the client must not take the slab from under the save it interrupts.
    """

    def __init__(self, after: Callable[[], None]):
        """`after` is called when an operation has ended, in whatever way."""
        self._lock = threading.Lock()
        self._what = ""
        self._after = after

    @contextlib.contextmanager
    def of(self, what: str, timeout: float):
        """Raises SAVE_IN_PROGRESS, or TIMED_OUT, if what another thread does has not ended within `timeout` seconds."""
        if not self.acquire(timeout):
            other = self._what
            raise Error("SAVE_IN_PROGRESS" if other == "save" else "TIMED_OUT",
                        f"a {other} of another thread has not ended within {timeout:g} s, so this {what} did not begin")
        try:
            self._what = what
            yield
        finally:
            self.release()
            self._after()

    def acquire(self, timeout: float) -> bool:
        return self._lock.acquire(timeout=min(max(timeout, 0.0), threading.TIMEOUT_MAX))

    def release(self) -> None:
        self._lock.release()


def _weakly(method: Callable[[], object]) -> Callable[[], None]:
    """Calls a bound method as long as its object lives: a client that is dropped gives its memory up at once."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        bound = reference()
        if bound is not None:
            bound()

    return call


class Saving:
    """A save whose state is staged: it goes on without the trainer."""

    def __init__(self, client: "Client", step: int, number: int, agent: int):
        self.step = step
        self._client = client
        self._number = number
        self._agent = agent  # the incarnation that holds it
        self._outcome: Checkpoint | Error | None = None
        self._stalled: Error | None = None
        self._attempt = 0  # as the agent told it
        self._lock = threading.Lock()

    def wait(self, timeout: float = 600) -> Checkpoint:
        """The committed checkpoint; look at its `warning`. Raises the Error that ended the save.

        With `outcome` "unknown" in its metadata an Error says nothing about the save. Of TIMED_OUT, and of what keeps
        the verdict away (STORAGE_STALLED, COORDINATOR_UNREACHABLE ...), waiting again gives the verdict when there is
        one. Of STALE_INCARNATION (another trainer has this one's rank), of NOT_COMMITTED, and of RANK_LOST (the agent
        restarted before it had told which attempt this is), client.checkpoints() of the trainer that goes on tells.
        """
        timeout = _timeouts.seconds(timeout, "wait")
        deadline = time.monotonic() + timeout
        while True:
            with self._lock:
                if isinstance(self._outcome, Error):
                    raise Error(self._outcome.reason, self._outcome.message, self._outcome.metadata)
                if self._outcome is not None:
                    return self._outcome
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                about = {"step": str(self.step), "job": self._client.job}
                if self._stalled is not None:
                    raise Error(self._stalled.reason, self._stalled.message,
                                {**about, **self._stalled.metadata, "outcome": "unknown"})
                raise Error("TIMED_OUT", f"step {self.step} was not committed within {timeout:g} s; it goes on",
                            {**about, "outcome": "unknown"})
            self._poll(min(_agent.MAX_WAIT, remaining))

    def done(self) -> bool:
        """Whether wait() would answer at once."""
        if self._outcome is None:
            try:
                self._poll(0.0)
            except Error as error:
                if error.reason != "STALE_INCARNATION":
                    raise
                return True
        return self._outcome is not None

    def _poll(self, max_wait: float) -> None:
        try:
            outcome, stalled, attempt = self._client._verdict(self.step, self._number, self._agent, self._attempt,
                                                              max_wait)
        except Error as error:
            if error.reason != "AGENT_UNREACHABLE":
                raise
            raise self._without_agent(error) from None
        with self._lock:
            self._stalled = stalled
            self._attempt = attempt
            if self._outcome is None:
                self._outcome = outcome

    def _without_agent(self, error: Error) -> Error:
        """What is told when the agent is gone: the save may be committed all the same. An agent that was refused has
        said why before it ended."""
        why = self._stalled or error
        return Error(why.reason, f"{why.message}; {'its agent has ended, and ' if why is not error else ''}whether step "
                     f"{self.step} was committed is not known here",
                     {**why.metadata, "step": str(self.step), "job": self._client.job, "outcome": "unknown"})

    def __repr__(self) -> str:
        return f"Saving(step={self.step})"


def connect(address: str | None = None, timeout: float = _session.PATIENCE) -> "Client":
    """A client of the agent at `address` (default: the environment's CAIRN_AGENT), such as "unix:/run/cairn/0.sock".

    Waits up to `timeout` seconds for an agent that is just starting. Raises AGENT_UNREACHABLE.
    """
    if address is None:
        address = os.environ.get("CAIRN_AGENT", "")
        if not address:
            raise Error("AGENT_UNREACHABLE", "no agent's address: give one to cairn.connect or set CAIRN_AGENT "
                        "(`cairn up` prints it)")
    if not isinstance(address, str):
        raise Error("BAD_REQUEST", f"an agent's address is a string, not {address!r}")
    return Client(address, _timeouts.seconds(timeout, "connect"))


class Client:
    """One trainer's session with its agent. Made by connect().

    Thread-safe, but saves and loads of one client follow one another; several clients of one process are independent.
    Not usable in a process forked after connect(): connect there again.
    """

    def __init__(self, address: str, timeout: float):
        self._agent = _agent.Agent(address)
        self._builder = _layout.LayoutBuilder()
        self._loads = _layout.LayoutBuilder()
        self._sources = _layout.LayoutBuilder()
        # One at a time: what is mapped here is given to nobody else.
        self._slabs = _memory.MappingCache(capacity=1)
        self._sampler = _replicas.Sampler()
        self._operation = _Operation(_weakly(self._leave))
        self._left = False
        self._load_numbers = itertools.count(1)
        self._session = _session.Session(self._agent, on_new_agent=_weakly(self._slabs.clear),
                                         on_replaced=_weakly(self._leave))
        self._incarnation = self._session.incarnation
        self._watch = _watch.SessionWatch()
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

    # The session.

    def _call(self, name: str, request, max_wait: float | None = None):
        return self._session.call(name, request, max_wait)

    def _call_with_layout(self, name: str, request, declared: _layout.Declared, deadline: float, late: str,
                          source: _layout.Declared | None = None):
        return self._session.call_with_layout(name, request, declared, deadline, late, source)[0]

    def _lease(self) -> float:
        return self._session.lease()

    @property
    def _owner(self) -> int:
        return self._session.owner

    def _leave(self) -> None:
        """Gives up the memory of a session that another trainer has ended, if nothing copies into it."""
        if not self._session.replaced or not self._operation.acquire(0.0):
            return  # whoever is in an operation comes here after it
        try:
            if not self._left:
                self._left = True
                self._watch.stop()
                self._session.detach(self._slabs.clear())
        finally:
            self._operation.release()

    def close(self) -> None:
        """Ends the session; saves that are staged go on. Idempotent."""
        if not self._session.close("this client was closed"):
            return
        _OPEN.discard(self)
        self._watch.stop()
        # Another thread that is in a save may copy into the slab yet. Then the agent gives it to nobody before this
        # process has ended.
        idle = self._operation.acquire(_CLOSE_PATIENCE)
        try:
            self._session.detach(idle and self._slabs.clear())
            self._agent.close()
        finally:
            if idle:
                self._operation.release()

    def _forked(self) -> None:
        """In a forked child, which has none of the memory of its parent's session."""
        self._session.forked("this client was made before a fork; call cairn.connect in the new process")

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<cairn.Client rank {self.rank} of {self.world_size}, job {self.job!r}, at {self._agent.address}>"

    # Steps and agreement; no calls.

    def report_step(self, step: int) -> None:
        """Says that this rank has reached `step`. A store into shared memory."""
        _check_step(step)
        self._session.report(step)

    def save_requested(self) -> int | None:
        """The step just reported, if the job has agreed to save at it, else None.

        A load from shared memory; only at a step that is being agreed on it waits for the answer (5 s at most).
        """
        return self._session.agreed()

    # Saving.

    def prepare(self, state: dict, timeout: float = 600) -> int:
        """Declares the layout of the coming saves, so that the agent plans and makes its memory ahead.

        All ranks must call it. Returns the bytes of this rank's staging memory.
        """
        timeout = _timeouts.seconds(timeout, "prepare")
        with self._operation.of("prepare", timeout):
            declared = self._builder.declare(state)
            request = _wire.LOCAL_AGENT["Prepare"].request(trainer_incarnation=self._incarnation)
            try:
                return self._call_with_layout(
                    "Prepare", request, declared, time.monotonic() + timeout,
                    f"no plan within {timeout:g} s: have all ranks called prepare?").slab_bytes
            except Error as error:
                self._give_up_slab(error)
                raise

    def save(self, step: int, state: dict, timeout: float = 60, *, allow_dropped_names: bool = False) -> Saving:
        """Copies the state to the agent; returns when that is done, and the arrays may change again.

        Every rank of the job must call it for the same step. `timeout` (seconds) bounds all until this rank has staged.

        Args:
          allow_dropped_names: do not refuse a state that lacks names of the job's last committed step.
        """
        _check_step(step)
        timeout = _timeouts.seconds(timeout, "save")
        started = time.monotonic()
        with self._operation.of("save", timeout):
            declared = self._builder.declare(state)
            deadline = started + timeout
            while True:
                begun, agent = self._begin_save(step, declared, allow_dropped_names, deadline, timeout)
                try:
                    self._stage(declared, begun)
                    checksums = _replicas.checksums(declared, begun.check_item)
                    sampled = self._sampler.sample(declared, begun.may_check_item, time.monotonic() - started)
                    commit = _wire.LOCAL_AGENT["CommitStaging"].request(
                        trainer_incarnation=self._incarnation, save=begun.save,
                        object_bytes=[len(entry.data) for entry in declared.objects], check_crc32c=checksums,
                        sampled_crc32c=sampled)
                    self._session.call("CommitStaging", commit, held_by=agent)
                    return Saving(self, step, begun.save, agent)
                except _session.Restarted:
                    pass
                except BaseException as error:
                    unreachable = isinstance(error, Error) and error.reason == "AGENT_UNREACHABLE"
                    if not unreachable or not self._session.restarted_since(agent):
                        self._cancel(begun.save, error)
                        raise
                    # Its memory could not be mapped any more.
                # The call goes on with the agent's next process. If the coordinator knew of it, the attempt has ended
                # and its verdict comes; else this begins it.
                if time.monotonic() >= deadline:
                    raise Error("RANK_LOST", f"{self.job}@{step}: the agent of rank {self.rank} restarted during the "
                                f"save of step {step}; save again", self._about(step))

    def _begin_save(self, step: int, declared: _layout.Declared, allow_dropped_names: bool, deadline: float,
                    timeout: float):
        """Where the state goes, and the incarnation of the agent that said it."""
        request = _wire.LOCAL_AGENT["BeginSave"].request(
            trainer_incarnation=self._incarnation, step=step, allow_dropped_names=allow_dropped_names)
        _wire.set_duration(request.timeout, max(deadline - time.monotonic(), 0.0))
        pause = 0.02
        while True:
            try:
                return self._session.call_with_layout(
                    "BeginSave", request, declared, deadline + _TIMEOUT_GRACE,
                    f"step {step}: staging could not begin within {timeout:g} s")
            except Error as error:
                self._give_up_slab(error)
                # The agent's memory holds an earlier step: it is free when that is written.
                if error.reason != "SAVE_IN_PROGRESS" or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _about(self, step: int) -> dict[str, str]:
        return {"job": self.job, "step": str(step), "rank": str(self.rank), "ranks": str(self.rank)}

    def _give_up_slab(self, error: Error) -> None:
        """An agent gives its slab up before it makes a larger one: if this one could not, nothing is kept here either."""
        if error.reason == "MEMORY_LIMIT" and error.metadata.get("rank") == str(self.rank):
            self._slabs.clear()

    def _cancel(self, save: int, error: BaseException) -> None:
        """Gives a save up. Called when nothing copies for it any more: the agent takes it for that."""
        request = _wire.LOCAL_AGENT["CancelSave"].request(trainer_incarnation=self._incarnation, save=save,
                                                          error=_wire.status_from_error(error))
        try:
            self._agent.call("CancelSave", request)
        except Error:
            pass  # the first error is the one to be told; the agent's own deadline ends the attempt

    def _stage(self, declared: _layout.Declared, begun) -> None:
        """Copies everything to its place in the slab."""
        if begun.placement:
            _copy_out(declared, begun.placement, self._slabs.get(begun.slab, self._owner, writable=True))

    def _verdict(self, step: int, save: int, agent: int, attempt: int,
                 max_wait: float) -> tuple[Checkpoint | Error | None, Error | None, int]:
        """The verdict, if there is one; why there may be none for long, if that is known; and the attempt's number.

        Args:
          agent: the incarnation that began the save.
          attempt: what the last answer told, 0 for nothing. An agent that restarted asks the coordinator about it.
        """
        request = _wire.LOCAL_AGENT["WaitSave"].request(trainer_incarnation=self._incarnation, step=step, save=save,
                                                        attempt=attempt)
        try:
            response = self._session.call("WaitSave", request, max_wait)
        except Error as error:
            if error.reason == "STALE_INCARNATION":
                raise Error(error.reason, f"{error.message}; whether step {step} was committed is not known here",
                            {**error.metadata, "step": str(step), "outcome": "unknown"}) from None
            if error.reason != "NOT_COMMITTED":
                raise
            return self._forgotten(step, agent, attempt, error), None, attempt
        if response.pending:
            stalled = _wire.error_from_status(response.stalled) if response.HasField("stalled") else None
            return None, stalled, response.attempt or attempt
        if response.checkpoint.state == _wire.CHECKPOINT_STATES["COMMITTED"]:
            return Checkpoint.from_wire(response.checkpoint), None, attempt
        return _wire.error_from_status(response.checkpoint.error), None, attempt

    def _forgotten(self, step: int, agent: int, attempt: int, error: Error) -> Checkpoint | Error:
        """How a save ended that the agent knows nothing of. Another attempt of the step is another save."""
        for checkpoint in self._committed():
            if checkpoint.step == step and checkpoint.attempt == attempt:
                return checkpoint
        unknown = {**self._about(step), "outcome": "unknown"}
        if self._session.agent_incarnation == agent:
            return Error(error.reason, f"{error.message} any more; client.checkpoints() tells which steps are committed",
                         unknown)
        return Error("RANK_LOST", f"{self.job}@{step}: the agent of rank {self.rank} restarted during the save of step "
                     f"{step}, and nobody can say for this save whether it was committed; client.checkpoints() tells "
                     "which steps are. If this one is not, save again", unknown)

    # Loading.

    def load(self, state: dict, step: int | None = None, mapping=None, strict: bool = True, *,
             source: str | os.PathLike | None = None, fallback: bool = True, timeout: float = 1800) -> LoadReport:
        """Fills the arrays of `state` in place from a committed checkpoint, made under this or any other layout.

        Every rank of the job must call it; the calls that are open on all ranks at one time belong together. On an Error
        the arrays may be partly filled, and all ranks whose calls it met have the same one: they may call again.

        Args:
          step: None for the latest committed one.
          mapping: statements of the mapping language (docs/mapping.md) by which the state's tensors are made of the
            checkpoint's: a list of them, a text with one per line, a path to a file, or the dict of an aoa_config.
          strict: refuse names that only the checkpoint or only the state has.
          source: a directory of safetensors files, as Hugging Face writes them, to import instead of a checkpoint.
          fallback: without a step, pass over newer steps that are proven to be damaged (an unreadable manifest, a missing
            or short file) and name them in the report; False: the newest one's damage is the load's error. What cannot
            be read for another reason, or turns out to be damaged while the arrays fill, is always an error.
          timeout: seconds without any progress after which the load is given up, for all ranks that wait in it. The
            error names the ranks that were waited for (RANK_LATE), or is TIMED_OUT if that does not become known soon.
        """
        if step is not None:
            _check_step(step)
            if source is not None:
                raise Error("BAD_REQUEST", "a load has a step or a source, not both", {"job": self.job})
        timeout = _timeouts.seconds(timeout, "load")
        with _loading.named(self.job, self.rank), self._operation.of("load", timeout):
            return self._load(state, step, mapping, source, strict, fallback, timeout)

    def _load(self, state: dict, step: int | None, mapping, source, strict: bool, fallback: bool,
              timeout: float) -> LoadReport:
        declared = _mapping.declare(self._loads.declare(state, writable=True), mapping, source)
        number = next(self._load_numbers)
        request = _wire.LOCAL_AGENT["BeginLoad"].request(trainer_incarnation=self._incarnation, number=number,
                                                         strict=strict)
        if step is not None:
            request.step = step
        elif source is None:
            request.fallback = fallback
        report = self._receive(request, number, declared, None, timeout)
        return report if source is None else dataclasses.replace(report, step=None)

    def _receive(self, request, number: int, declared: _layout.Declared, source: _layout.Declared | None,
                 timeout: float) -> LoadReport:
        """A load from its request to its end; a reshard, if there is a source."""
        what = "load" if source is None else "reshard"
        end = _wire.LOCAL_AGENT["EndLoad"].request(trainer_incarnation=self._incarnation, number=number)
        known = {"step": str(request.step)} if request.HasField("step") else {}
        try:
            begun = self._call_with_layout("BeginLoad", request, declared, time.monotonic() + timeout,
                                           f"no plan for the {what} within {timeout:g} s: have all ranks called {what}?",
                                           source)
            if begun.world_size:  # neither a reshard nor an import
                known["step"] = str(begun.step)
            if source is not None:
                self._lend(number, source, begun)
            data = _loading.receive(self._agent, self._incarnation, number, declared, begun, timeout, self._owner,
                                    self._lease())
            ended = _loading.await_end(self._agent, end, what, timeout)
        except BaseException as error:
            if isinstance(error, Error):
                for key, value in known.items():
                    error.metadata.setdefault(key, value)
            told = _loading.give_up(self._agent, end, error)
            if told is not None:
                raise told from None
            raise
        if source is not None:
            data = [_layout.without_length(content, entry.name) for entry, content in zip(begun.object, data)]
        return LoadReport(begun.step if source is None else None, self._decode(begun, data, source is not None),
                          list(begun.missing), list(begun.unexpected), ended.bytes_read, ended.total_bytes_read,
                          ended.unique_bytes, ended.storage_bytes, ended.path, begun.mapping_report,
                          [{"step": each.step, "reason": _wire.error_from_status(each.error).reason}
                           for each in begun.passed_over])

    # Resharding.

    def reshard(self, source_state: dict, target_state: dict, *, strict: bool = True,
                timeout: float = 1800) -> LoadReport:
        """Fills the arrays of `target_state` in place from those of `source_state`, wherever in the job they are.

        Both are live: nothing goes through storage. Every rank of the job must call it, with what it holds and what it
        wants; either may be empty. Each distinct shard is lent by one of the ranks that hold it, which copies it to
        memory that the others can read: about the job's state divided by its ranks. On an Error the targets may be
        partly filled, the sources are as they were.

        Args:
          strict: refuse names that only the source or only the target has.
          timeout: seconds without any progress after which it is given up, as a load is.
        """
        timeout = _timeouts.seconds(timeout, "reshard")
        with _loading.named(self.job, self.rank), self._operation.of("reshard", timeout):
            source = self._sources.declare(source_state, length_prefix=True)
            declared = self._loads.declare(target_state, writable=True)
            number = next(self._load_numbers)
            request = _wire.LOCAL_AGENT["BeginLoad"].request(trainer_incarnation=self._incarnation, number=number,
                                                             strict=strict)
            return self._receive(request, number, declared, source, timeout)

    def _lend(self, number: int, source: _layout.Declared, begun) -> None:
        """Copies what this rank lends to where others can read it."""
        memory = _memory.Mapping(begun.source_memory.descriptor_socket, begun.source_memory.descriptor_id,
                                 begun.source_memory.bytes, self._owner, writable=True, populate=False)
        _copy_out(source, begun.source_placement, memory)
        self._agent.call("CommitSource", _wire.LOCAL_AGENT["CommitSource"].request(
            trainer_incarnation=self._incarnation, number=number))

    def _decode(self, begun, data: list[bytearray], same_world: bool) -> dict[str, Any]:
        result: dict[str, Any] = {}
        of_ranks: dict[str, dict[int, Any]] = {}
        for entry, content in zip(begun.object, data):
            value = _objects.decode(content, entry.name)
            if entry.per_rank:
                of_ranks.setdefault(entry.name, {})[entry.rank] = value
            else:
                result[entry.name] = value
        if of_ranks:
            saved_by = self.world_size if same_world else begun.world_size or self.world_size
            for name, values in of_ranks.items():
                if saved_by != self.world_size:
                    result[name] = [values.get(rank) for rank in range(saved_by)]
                elif self.rank in values:
                    result[name] = values[self.rank]
        return result

    # Looking around.

    def _committed(self) -> list[Checkpoint]:
        request = _wire.LOCAL_AGENT["ListLocalCheckpoints"].request(trainer_incarnation=self._incarnation)
        response = self._call("ListLocalCheckpoints", request)
        committed = _wire.CHECKPOINT_STATES["COMMITTED"]
        return [Checkpoint.from_wire(message) for message in response.checkpoint if message.state == committed]

    def checkpoints(self) -> list[int]:
        """The committed steps of this job, ascending."""
        return [checkpoint.step for checkpoint in self._committed()]


def _copy_out(declared: _layout.Declared, placement, memory: _memory.Mapping) -> None:
    """Copies items of the layout to their places in shared memory."""
    copies = _native.CopyList()
    shards = len(declared.shards)
    for place in placement:
        if place.item < shards:
            copies.add_array(declared.shards[place.item].array, memory.address, memory.size, place.slab_offset)
        else:
            entry = declared.objects[place.item - shards]
            end = place.slab_offset + place.bytes
            if len(entry.data) > place.bytes or end > memory.size:
                raise Error("INTERNAL", f"object {entry.name!r} does not fit its place in shared memory")
            memory.bytes[place.slab_offset:place.slab_offset + len(entry.data)] = memoryview(entry.data)
            memory.bytes[place.slab_offset + len(entry.data):end] = 0
    copies.run()


def _check_step(step) -> None:
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise Error("BAD_STEP", f"a step is an integer, not {step!r}")
    if not 0 <= step <= _MAX_STEP:
        raise Error("BAD_STEP", f"step {step} is not between 0 and {_MAX_STEP}", {"step": str(step)})


_OPEN: "weakref.WeakSet[Client]" = weakref.WeakSet()


# A forked child is another process: it must neither end its parent's sessions nor wait for locks that are held there.
def _after_fork() -> None:
    for client in list(_OPEN):
        client._forked()
    _OPEN.clear()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    for client in list(_OPEN):
        client.close()
