"""An object store that a benchmark starts, and what it does for those who use it: by its own log and the kernel."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))

from stores.ceph import ceph, why_not
from stores.server import ACCESS, SECRET, amazons_client, make_bucket, moto

BUCKET = "models"
# A store's log is written by a thread of its own.
_LOG_LAG = 0.3
_TICK = 1 / os.sysconf("SC_CLK_TCK")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(r'"([A-Z]+) (\S+) HTTP/1\.[01]" (\d{3}) (\d+|-)')


@dataclasses.dataclass
class Request:
    """A request as the store's log has it. `bytes` came in, or with GET went out; None where the log does not say."""

    method: str
    path: str
    status: int
    bytes: int | None

    @property
    def kind(self) -> str:
        """The method, or LIST for a GET of names."""
        names = self.method == "GET" and ("list-type=" in self.path or "?uploads" in self.path)
        return "LIST" if names else self.method


def _without_renewals(requests: list[Request]) -> list[Request]:
    """Leaves out those by which a coordinator holds its root, whatever else it does: a PUT of its epoch, and the LIST
    before it."""
    left: list[Request] = []
    for request in requests:
        if ".cairn/epochs" in request.path and request.method == "PUT":
            looks = [at for at, before in enumerate(left) if before.kind == "LIST" and ".cairn%2Fepochs" in before.path]
            if looks:
                del left[looks[-1]]
        else:
            left.append(request)
    return left


def cpu_of(pids: list[int]) -> float:
    """Returns the seconds of CPU that processes have used, with the precision of the kernel's ticks."""
    used = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used * _TICK


@dataclasses.dataclass
class ServedStore:
    """A store with an empty bucket BUCKET. `collect` makes it give back the memory of what was deleted."""

    kind: str
    endpoint: str
    log: pathlib.Path
    pids: list[int]
    collect: Callable[[], object] = lambda: None

    def described(self) -> dict[str, Any]:
        """Returns what the JSON for another process has; `collect` is for the process that started the store."""
        return {"kind": self.kind, "endpoint": self.endpoint, "log": str(self.log), "pids": self.pids}

    @staticmethod
    def of(described: dict[str, Any]) -> ServedStore:
        return ServedStore(**{**described, "log": pathlib.Path(described["log"])})

    def environment(self) -> dict[str, str]:
        """Returns the variables by which every client finds this store."""
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
                "NO_PROXY": "127.0.0.1"}

    def position(self) -> int:
        """Returns where the log ends. Requests that ended before the call stand before it."""
        time.sleep(_LOG_LAG)
        return self.log.stat().st_size

    def requests(self, begin: int, end: int) -> list[Request]:
        """Returns the requests between two positions of the log, in the order in which they ended, but for those by
        which a coordinator holds its root."""
        with open(self.log, "rb") as log:
            log.seek(begin)
            text = log.read(end - begin).decode(errors="replace")
        return _without_renewals([Request(method, path, int(status), None if count == "-" else int(count))
                                  for method, path, status, count in _LINE.findall(_COLORS.sub("", text))])

    def client(self):
        """Returns Amazon's own client."""
        return amazons_client(self.endpoint)

    def clean(self) -> None:
        """Deletes every object and upload of the bucket, and gives back their memory."""
        client = self.client()
        for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET):
            for upload in page.get("Uploads", []):
                client.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            if keys := [{"Key": found["Key"]} for found in page.get("Contents", [])]:
                client.delete_objects(Bucket=BUCKET, Delete={"Objects": keys, "Quiet": True})
        self.collect()


def _children() -> list[int]:
    return [int(pid) for task in pathlib.Path("/proc/self/task").iterdir()
            for pid in (task / "children").read_text().split()]


@contextlib.contextmanager
def served_store(kind: str, memory: int, frontend: str = "") -> Iterator[ServedStore]:
    """Starts a store: "rgw", the gateway of a Ceph that keeps `memory` bytes in memory, or "moto".

    `frontend` is what the gateway is told of its connections.

    Raises:
      RuntimeError: the store cannot be started here; it says why.
    """
    if kind == "rgw" and (reason := why_not()) is not None:
        raise RuntimeError(f"no Ceph can be started: {reason}")
    before = set(_children())
    with tempfile.TemporaryDirectory(prefix="cairn-store-") as name:
        directory = pathlib.Path(name)
        with contextlib.ExitStack() as stack:
            if kind == "rgw":
                server = stack.enter_context(ceph(directory, memory, frontend))
                server.make_user("owner", ACCESS, SECRET)
                store = ServedStore(kind, server.endpoint, server.log, [],
                                    lambda: server.command("radosgw-admin", "gc", "process", "--include-all"))
            else:
                port = stack.enter_context(moto(directory))
                store = ServedStore(kind, f"http://127.0.0.1:{port}", directory / "log", [])
            store.pids = [pid for pid in _children() if pid not in before]
            make_bucket(store.endpoint)
            yield store


class MemoryWatch:
    """Watches what processes hold in memory: their own pages, and of services those that they share with others too,
    which a trainer maps as well. Use it as a context manager."""

    _STEP = 0.02

    def __init__(self, own: list[int], services: list[int]) -> None:
        self._pids = [(pid, pid in services) for pid in own + services]
        self._seen: list[tuple[float, int]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._ended.wait(self._STEP):
            held = 0
            for pid, shared in self._pids:
                with contextlib.suppress(OSError):  # it has ended
                    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                        if line.startswith("RssAnon:") or (shared and line.startswith("RssShmem:")):
                            held += int(line.split()[1]) * 1024
            self._seen.append((time.monotonic(), held))

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def added(self, begin: float, end: float) -> int | None:
        """Returns by how many bytes the sum grew at most after `begin`, until `end` (time.monotonic()); None: too few
        looks fell into that time."""
        before = [held for when, held in self._seen if when <= begin]
        within = [held for when, held in self._seen if begin < when <= end]
        return max(0, max(within) - before[-1]) if before and within else None
