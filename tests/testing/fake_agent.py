"""Plays the agent of a job with one rank, in this process, for tests of the client.

It keeps checkpoints in memory. Faults are set as attributes; see __init__.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import math
import mmap
import os
import pathlib
import secrets
import socket
import struct
import threading
import time
from concurrent import futures

import grpc

from cairn._base import wire
from cairn._base.native import row_major_strides
from cairn._state import dtypes

_DTYPE_NAMES = {number: name for name, number in dtypes.NUMBER.items()}


class Refusal(Exception):
    def __init__(self, code, reason, message, metadata=None):
        self.code = code
        info = wire.ErrorInfo(reason=reason, domain=wire.ERROR_DOMAIN)
        info.metadata.update(metadata or {})
        self.status = wire.Status(code=code.value[0], message=message)
        self.status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())


class Item:
    """A shard or object of a parsed layout."""

    def __init__(self, name, dtype, offset, shape, flat, size):
        self.name, self.dtype, self.offset, self.shape, self.flat, self.size = name, dtype, offset, shape, flat, size


def parse_layout(data: bytes) -> tuple[list[Item], list]:
    layout = wire.Layout.FromString(data)
    schema = wire.TensorSchema.FromString(layout.tensor_schema)
    flats = {s: (a, b) for s, a, b in zip(layout.flat_shards, layout.flat_begins, layout.flat_ends)}
    items, at = [], 0
    for i, tensor in enumerate(layout.shard_tensors):
        n = schema.ndims[tensor]
        offset, shape = list(layout.shard_offsets[at:at + n]), list(layout.shard_shapes[at:at + n])
        at += n
        dtype = _DTYPE_NAMES[schema.dtypes[tensor]]
        flat = flats.get(i)
        count = flat[1] - flat[0] if flat else math.prod(shape)
        items.append(Item(schema.names[tensor], dtype, offset, shape, flat, count * dtypes.ITEMSIZE[dtype]))
    return items, list(layout.objects)


class FakeAgent:
    """Serves at `address` until close(). The client under test may be any number of sessions."""

    def __init__(self, directory: pathlib.Path, rank: int = 0, world_size: int = 1):
        self.directory = directory
        self.address = f"unix:{directory}/agent.sock"
        self.rank, self.world_size = rank, world_size
        # Faults and settings.
        self.pending_calls = 0          # so many long calls answer "pending" first
        self.forget_layouts = False     # ask for every layout again
        self.check_items = False        # ask for checksums of everything
        self.may_check: list[int] = []  # items that the client may check
        self.refuse: dict[str, list[Refusal]] = {}  # method -> refusals of its next calls
        self.hang: set[str] = set()     # methods that never answer
        self.repeat_batches = False     # give unreleased batches again
        self.socket_owner: tuple[int, int] | None = None  # incarnation and rank, of another agent at its path
        self.unsealed = False           # give read buffers that anybody may write
        self.cuttable = False           # give memory that could be cut off
        self.vanished = False           # give read buffers that are not there
        self.keep_memory = False        # give up no memory, so that none comes where other memory was
        self.replies: dict[str, dict] = {}  # method -> the fields of its answers, whatever it is asked
        self.one_slab = False           # Prepare makes a slab, and all saves use it
        self.lease_ttl = 0.0            # told at the next attach; 0: not known
        self.outcome: Refusal | None = None  # of the next save, instead of a commit
        self.stalled: Refusal | None = None  # what pending answers say
        self.outcomes: dict[
            int, Refusal | None
        ] = {}  # by attempt: of saves that this process does not know; None: committed
        self.unread: dict[int, int] = {}  # steps of which storage does not tell, and the attempt; 0: nor their tags
        self.tags: dict[int, list[str]] = {}  # by step
        self.page_size = 1000           # so many checkpoints are listed at once
        self.saved_world = world_size
        self.per_rank_objects: dict[str, dict[int, bytes]] = {}
        # These record what was seen.
        self.calls: list[str] = []
        self.previous_agents: list[int] = []  # as trainers that attached told
        self.places: list[tuple[int, int, bool] | None] = []  # likewise: rank, world size, whether it may be alone
        self.asked_attempts: list[int] = []   # as those that waited for an outcome told
        self.asked_waits: list[float | None] = []
        self.layout_uploads = 0
        self.checksums: list[int] = []
        self.sampled: list[int] = []
        self.cancelled: list = []
        self.ended_with: list = []
        self.committed: dict[int, tuple] = {}
        self.detached = 0
        self.unmapped: list[bool] = []  # what detaching trainers said
        self._kept: list[mmap.mmap] = []
        self.start()

    def start(self) -> None:
        self._incarnation = secrets.randbits(63)
        self._attached: set[int] = set()
        self._layouts: dict[bytes, bytes] = {}
        self._descriptors: dict[int, int] = {}
        self._saves: dict[int, dict] = {}
        self._loads: dict[int, dict] = {}
        self._ids = itertools.count(1)
        self._prepared: tuple[int, int, mmap.mmap] | None = None  # descriptor, size, memory
        self._stop = threading.Event()
        self.page_descriptor, page = self._memory(4096)
        page[0:8] = struct.pack("<Q", 0x314E524941430001)
        self.page = page
        self._serve_descriptors()
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        for service, methods in (("LocalAgentService", wire.LOCAL_AGENT), ("CheckpointService", wire.CHECKPOINTS)):
            handlers = {name: grpc.unary_unary_rpc_method_handler(self._wrap(name), method.request.FromString,
                                                                  method.response.SerializeToString)
                        for name, method in methods.items()}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"cairn.v1.{service}",
                                                                                        handlers),))
        if not self._server.add_insecure_port(self.address):
            raise OSError(self.address)
        self._server.start()

    def close(self) -> None:
        self._stop.set()
        self._server.stop(0).wait()
        self._listener.close()
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
        for name in ("agent.sock", "descriptors.sock"):
            (self.directory / name).unlink(missing_ok=True)

    # Shared memory.

    def _memory(self, size: int) -> tuple[int, mmap.mmap]:
        descriptor = os.memfd_create("fake-agent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, max(size, 1))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | (0 if self.cuttable else fcntl.F_SEAL_GROW))
        number = next(self._ids) + (secrets.randbits(31) << 32)
        self._descriptors[number] = descriptor
        memory = mmap.mmap(descriptor, max(size, 1))
        if self.keep_memory:
            self._kept.append(memory)
        return number, memory

    def _serve_descriptors(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"{self.directory}/descriptors.sock")
        self._listener.listen()

        def serve():
            while True:
                try:
                    peer, _ = self._listener.accept()
                except OSError:
                    return
                with peer:
                    request = peer.recv(8)
                    if len(request) < 8:
                        continue  # it did not like what it saw
                    number = struct.unpack("<Q", request)[0]
                    if number == 0:  # whose socket is this?
                        incarnation, rank = self.socket_owner or (self._incarnation, self.rank)
                        peer.sendall(b"\0" + struct.pack("<QII", incarnation, rank, 4) + b"demo")
                        request = peer.recv(8)
                        if len(request) < 8:
                            continue
                        number = struct.unpack("<Q", request)[0]
                    if number in self._descriptors:
                        socket.send_fds(peer, [b"\0"], [self._descriptors[number]])
                    else:
                        peer.sendall(b"\x02")

        threading.Thread(target=serve, daemon=True).start()

    def _slab(self, number: int, size: int) -> dict:
        return {"descriptor_id": number, "bytes": max(size, 1), "agent_incarnation": self._incarnation,
                "agent_rank": self.rank,
                "descriptor_socket": f"{self.directory}/descriptors.sock"}

    # Calls.

    def _wrap(self, name):
        def handle(request, context):
            self.calls.append(name)
            while name in self.hang and not self._stop.is_set() and context.is_active():
                time.sleep(0.01)
            try:
                if self.refuse.get(name):
                    raise self.refuse[name].pop(0)
                if name in wire.CHECKPOINTS:
                    assert request.job == "demo"
                    trainer = int(dict(context.invocation_metadata())["cairn-trainer"])
                else:
                    trainer = request.trainer_incarnation
                if name != "Attach" and trainer not in self._attached:
                    raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, "NOT_REGISTERED", "not attached")
                if name in self.replies:
                    if name == "EndLoad":
                        self.ended_with.append(request)
                    return self._response(name, **self.replies[name])
                return getattr(self, name)(request)
            except Refusal as refusal:
                context.set_trailing_metadata((("grpc-status-details-bin", refusal.status.SerializeToString()),))
                context.abort(refusal.code, refusal.status.message)
        return handle

    def _response(self, name, **fields):
        return wire.LOCAL_AGENT[name].response(**fields)

    def _is_pending(self) -> bool:
        if self.pending_calls > 0:
            self.pending_calls -= 1
            return True
        return False

    def _layout(self, reference) -> bytes | None:
        if reference.layout or reference.digest == hashlib.sha256(b"").digest():  # that of the empty layout
            self.layout_uploads += 1
            self._layouts[reference.digest] = reference.layout
        elif self.forget_layouts:
            self.forget_layouts = False
            self._layouts.clear()
        return self._layouts.get(reference.digest)

    def _pending(self, name, **fields):
        stalled = {"stalled": self.stalled.status} if self.stalled is not None else {}
        return self._response(name, pending=True, **stalled, **fields)

    @property
    def incarnation(self) -> int:
        return self._incarnation

    def Attach(self, request):
        self.previous_agents.append(request.previous_agent)
        self.places.append((request.place.rank, request.place.world_size, request.place.may_be_alone)
                           if request.HasField("place") else None)
        self._attached.add(request.trainer_incarnation)
        lease = {"lease_ttl": {"seconds": int(self.lease_ttl)}} if self.lease_ttl else {}
        return self._response("Attach", **lease, job="demo", rank=self.rank, world_size=self.world_size,
                              agent_incarnation=self._incarnation, agent_version="fake",
                              descriptor_socket=f"{self.directory}/descriptors.sock",
                              control_page_descriptor=self.page_descriptor)

    def Prepare(self, request):
        layout = self._layout(request.layout)
        if layout is None:
            return self._response("Prepare", need_layout=True)
        if self._is_pending():
            return self._pending("Prepare")
        items, objects = parse_layout(layout)
        size = sum(item.size for item in items) + sum(entry.slot_bytes for entry in objects)
        if not self.one_slab:
            return self._response("Prepare", slab_bytes=size)
        if self._prepared is None or self._prepared[1] < size:
            number, memory = self._memory(size)
            self._prepared = number, size, memory
        return self._response("Prepare", slab_bytes=size, slab=self._slab(*self._prepared[:2]))

    def BeginSave(self, request):
        layout = self._layout(request.layout)
        if layout is None:
            return self._response("BeginSave", need_layout=True)
        if self._is_pending():
            return self._pending("BeginSave")
        items, objects = parse_layout(layout)
        placements, at = [], 0
        for i, item in enumerate(items):
            if item.size:
                placements.append({"item": i, "slab_offset": at, "bytes": item.size})
                at += item.size
        for i, entry in enumerate(objects):
            placements.append({"item": len(items) + i, "slab_offset": at, "bytes": entry.slot_bytes})
            at += entry.slot_bytes
        if self.one_slab and self._prepared is not None and self._prepared[1] >= at:
            number, at, slab = self._prepared
        else:
            number, slab = self._memory(at)
        save = next(self._ids)
        self._saves[save] = {"step": request.step, "items": items, "objects": objects, "slab": slab,
                             "places": placements, "committed": False}
        checks = range(len(items) + len(objects)) if self.check_items else []
        return self._response("BeginSave", save=save, slab=self._slab(number, at), placements=placements,
                              check_items=checks, may_check_items=self.may_check)

    def CommitStaging(self, request):
        save = self._saves.get(request.save)
        if save is None:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST", f"no save {request.save} was begun")
        save["lengths"] = list(request.object_sizes)
        save["committed"] = True
        self.checksums = list(request.check_checksums)
        self.sampled = list(request.sampled_checksums)
        return self._response("CommitStaging")

    def CancelSave(self, request):
        self.cancelled.append(request)
        return self._response("CancelSave")

    def WaitSave(self, request):
        self.asked_attempts.append(request.attempt)
        self.asked_waits.append(request.max_wait.ToNanoseconds() / 1e9 if request.HasField("max_wait") else None)
        save = self._saves.get(request.save)
        if save is None and request.attempt not in self.outcomes:
            raise Refusal(grpc.StatusCode.NOT_FOUND, "NOT_COMMITTED", "no such save")
        if self._is_pending():
            return self._pending("WaitSave", attempt=1)
        checkpoint = {"job": "demo", "step": request.step, "attempt": 1, "world_size": self.world_size}
        if save is None:
            error = self.outcomes[request.attempt]
            checkpoint["state"] = wire.PHASES["ABORTED" if error else "COMMITTED"]
            if error:
                checkpoint["error"] = error.status
            return self._response("WaitSave", checkpoint=checkpoint)
        if self.outcome is not None:
            checkpoint["state"] = wire.PHASES["ABORTED"]
            checkpoint["error"], self.outcome = self.outcome.status, None
        else:
            checkpoint["state"] = wire.PHASES["COMMITTED"]
            self._commit(save)
        return self._response("WaitSave", checkpoint=checkpoint)

    def _commit(self, save) -> None:
        shards, objects = [], {}
        for place in save["places"]:
            data = save["slab"][place["slab_offset"]:place["slab_offset"] + place["bytes"]]
            if place["item"] < len(save["items"]):
                shards.append((save["items"][place["item"]], data))
            else:
                index = place["item"] - len(save["items"])
                entry, length = save["objects"][index], save["lengths"][index]
                assert data[length:].count(0) == len(data) - length, "the rest of a slot is zero"
                objects[entry.name] = (data[:length], entry.per_rank)
        self.committed[save["step"]] = (shards, objects)

    def ListCheckpoints(self, request):
        steps = sorted({*self.committed, *self.unread})
        begin = int(request.page_token or 0)
        end = begin + self.page_size
        return wire.CHECKPOINTS["ListCheckpoints"].response(
            next_page_token=str(end) if end < len(steps) else "", checkpoints=[
            {"job": "demo", "step": step, "state": wire.PHASES["COMMITTED"],
             "world_size": self.saved_world, "tags": self.tags.get(step, [])}
            if step not in self.unread else
            {"job": "demo", "step": step, "state": wire.PHASES["DAMAGED"], "unread": True,
             "attempt": self.unread[step], "tags": self.tags.get(step, []) if self.unread[step] else [],
             "error": Refusal(grpc.StatusCode.UNAVAILABLE, "STORAGE_ERROR", "open 0001.deleted: EIO").status}
            for step in steps[begin:end]])

    def BeginLoad(self, request):
        layout = self._layout(request.layout)
        if layout is None:
            return self._response("BeginLoad", need_layout=True)
        if self._is_pending():
            return self._pending("BeginLoad")
        step = request.step if request.HasField("step") else max(self.committed, default=None)
        if step not in self.committed:
            raise Refusal(grpc.StatusCode.NOT_FOUND, "NOT_COMMITTED", f"step {step}")
        shards, objects = self.committed[step]
        items, _ = parse_layout(layout)
        held = []
        for name, (data, per_rank) in sorted(objects.items()):
            for rank, content in (self.per_rank_objects.get(name) or {self.rank: data}).items():
                held.append(({"name": name, "bytes": len(content), "per_rank": per_rank, "rank": rank}, content))
        batches = [self._batch(source, data, items) for source, data in shards]
        batches += [self._object_batch(len(items) + i, content) for i, (_, content) in enumerate(held)]
        self._loads[request.number] = {"batches": [b for b in batches if b], "given": set()}
        return self._response("BeginLoad", step=step, objects=[entry for entry, _ in held],
                              world_size=self.saved_world)

    def _buffer(self, data: bytes) -> dict:
        if self.vanished:
            return self._slab(12345, len(data))
        number, memory = self._memory(len(data))
        memory[:len(data)] = data
        if not self.unsealed:
            fcntl.fcntl(self._descriptors[number], fcntl.F_ADD_SEALS, 0x0010)  # F_SEAL_FUTURE_WRITE
        return self._slab(number, len(data))

    def _object_batch(self, target, data):
        return {"batch": next(self._ids), "buffer": self._buffer(data),
                "copies": [{"target": target, "element_bytes": len(data)}]}

    def _batch(self, source: Item, data: bytes, items):
        """The parts of one saved box (no flat shards) that the target's items want."""
        copies = []
        width = dtypes.ITEMSIZE[source.dtype]
        for index, item in enumerate(items):
            if item.name != source.name:
                continue
            low = [max(a, b) for a, b in zip(source.offset, item.offset)]
            extent = [min(a + m, b + n) - lo for a, m, b, n, lo in
                      zip(source.offset, source.shape, item.offset, item.shape, low)]
            if any(e <= 0 for e in extent):
                continue
            source_stride = row_major_strides(source.shape, width)
            target_stride = row_major_strides(item.shape, width)
            copies.append({
                "target": index, "element_bytes": width, "extents": extent, "source_strides": source_stride,
                "target_strides": target_stride,
                "source_offset": sum((lo - o) * s for lo, o, s in zip(low, source.offset, source_stride)),
                "target_offset": sum((lo - o) * s for lo, o, s in zip(low, item.offset, target_stride))})
        return {"batch": next(self._ids), "buffer": self._buffer(data), "copies": copies} if copies else None

    def ReceiveLoad(self, request):
        load = self._loads[request.number]
        load["batches"] = [b for b in load["batches"] if b["batch"] not in request.released_batches]
        given = [b for b in load["batches"] if self.repeat_batches or b["batch"] not in load["given"]][:2]
        load["given"] |= {b["batch"] for b in given}
        return self._response("ReceiveLoad", batches=given, complete=not load["batches"])

    def EndLoad(self, request):
        self.ended_with.append(request)
        if self._is_pending():
            return self._response("EndLoad", pending=True)
        return self._response("EndLoad", bytes_read=1, total_bytes_read=2, unique_bytes=2, storage_bytes=4096,
                              io_path="IO_PATH_CACHED")

    def Detach(self, request):
        self.detached += 1
        self.unmapped.append(request.unmapped)
        self._attached.discard(request.trainer_incarnation)
        return self._response("Detach")
