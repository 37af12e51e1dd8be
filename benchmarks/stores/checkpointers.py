"""What saves and loads the state of a training job in an object store: Cairn, and torch.distributed.checkpoint (DCP) by
the two libraries that bring it to such stores."""

from __future__ import annotations

import time
from typing import Any

from ranks import Rank
from served_store import BUCKET, ServedStore


class Checkpointer:
    """One rank's side of a checkpointer.

    Args:
      prefix: of the keys that it may use.
      part: bytes of a part, where a library lets one say it.
    """

    name = ""
    modules: tuple[str, ...] = ()  # that it needs

    def __init__(self, ranks: Rank, store: ServedStore, prefix: str, part: int) -> None:
        self.ranks, self.store, self.prefix, self.part = ranks, store, prefix, part
        self.facts: dict[str, float] = {}  # what it tells of its last load

    def prepare(self, state: dict[str, Any]) -> None:
        """Does before the first save what a training job does at its start."""

    def save(self, step: int, state: dict[str, Any]) -> float:
        """Saves durably, and returns for how many seconds the training was blocked."""
        raise NotImplementedError

    def load(self, step: int, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Ends what the other methods have begun."""


class Cairn(Checkpointer):
    """Its agents and the coordinator are there already."""

    name = "cairn"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        import cairn
        import cairn.torch

        self._cairn = cairn
        self._client = cairn.connect()

    def prepare(self, state: dict[str, Any]) -> None:
        self._cairn.torch.prepare(self._client, state)

    def save(self, step: int, state: dict[str, Any]) -> float:
        begun = time.perf_counter()
        saving = self._cairn.torch.save(self._client, step, state)
        blocked = time.perf_counter() - begun
        saving.wait()
        return blocked

    def load(self, step: int, state: dict[str, Any]) -> None:
        report = self._cairn.torch.load(self._client, state, step)
        self.facts = {"read / unique": report.storage_bytes / report.unique_bytes}

    def close(self) -> None:
        self._client.close()


class Dcp(Checkpointer):
    """torch.distributed.checkpoint, which blocks the training for all of a save."""

    def _writer(self, place: str) -> Any:
        raise NotImplementedError

    def _reader(self, place: str) -> Any:
        raise NotImplementedError

    def _place(self, step: int) -> str:
        return f"s3://{BUCKET}/{self.prefix}/{step}"

    def save(self, step: int, state: dict[str, Any]) -> float:
        import torch.distributed.checkpoint as dcp

        begun = time.perf_counter()
        dcp.save(state, storage_writer=self._writer(self._place(step)))
        return time.perf_counter() - begun

    def load(self, step: int, state: dict[str, Any]) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.load(state, storage_reader=self._reader(self._place(step)))


class DcpFsspec(Dcp):
    """DCP's own writer for fsspec, over s3fs."""

    name = "dcp-s3fs"
    modules = ("s3fs",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        from torch.distributed.checkpoint import _fsspec_filesystem  # imports take seconds, and are no part of a save

        self._fsspec = _fsspec_filesystem
        self._options = {"endpoint_url": self.store.endpoint, "default_block_size": self.part}

    def _writer(self, place: str) -> Any:
        return self._fsspec.FsspecWriter(place, **self._options)

    def _reader(self, place: str) -> Any:
        return self._fsspec.FsspecReader(place, **self._options)


class DcpS3torch(Dcp):
    """DCP over Amazon's connector for PyTorch."""

    name = "dcp-s3torchconnector"
    modules = ("s3torchconnector",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        import s3torchconnector
        import s3torchconnector.dcp

        self._connector = s3torchconnector.dcp
        self._options = {"region": self.store.environment()["AWS_REGION"],
                         "s3client_config": s3torchconnector.S3ClientConfig(part_size=self.part, force_path_style=True)}

    def _writer(self, place: str) -> Any:
        return self._connector.S3StorageWriter(path=place, **self._options)

    def _reader(self, place: str) -> Any:
        return self._connector.S3StorageReader(path=place, **self._options)


CHECKPOINTERS = {kind.name: kind for kind in (Cairn, DcpFsspec, DcpS3torch)}
