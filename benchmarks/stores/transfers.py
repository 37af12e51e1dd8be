"""Clients of object stores that only move bytes between memory and the store: what a checkpointer cannot beat by far.

Each class is made in one process, which moves some objects of its own. `settings` are what it can be told; which is
best is for the caller to try. begin() does what a transfer needs and is no part of it; transfer() is what counts.
"""

from __future__ import annotations

import contextlib
import io
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any

from served_store import BUCKET, ServedStore


class Transfer:
    """Uploads objects of a process, or downloads them again.

    Args:
      objects: name -> the bytes to upload, or the memory to fill; the memory lives longer than this.
      part: bytes of a part.
    """

    name = ""
    settings: tuple[dict[str, Any], ...] = ()  # the first ones differ most: perhaps not all are tried

    def __init__(self, store: ServedStore, objects: dict[str, bytearray], part: int, setting: dict[str, Any]) -> None:
        self.store, self.objects, self.part, self.setting = store, objects, part, setting

    def begin(self, upload: bool) -> None:
        """Does what is no part of the transfer that follows."""

    def transfer(self, upload: bool) -> None:
        """Moves all bytes of all objects."""
        raise NotImplementedError


class Boto3(Transfer):
    """Amazon's own client for Python: the TransferManager of s3transfer."""

    name = "boto3"
    settings = tuple({"threads": threads, "checksums": checksums} for checksums in ("when_required", "when_supported")
                     for threads in (2, 10, 4))

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        import boto3
        import s3transfer.manager
        from botocore.config import Config

        threads = self.setting["threads"]
        client = boto3.client("s3", config=Config(max_pool_connections=threads,
                                                  request_checksum_calculation=self.setting["checksums"],
                                                  response_checksum_validation=self.setting["checksums"]))
        self._manager = s3transfer.manager.TransferManager(client, s3transfer.manager.TransferConfig(
            multipart_threshold=self.part, multipart_chunksize=self.part, max_request_concurrency=threads,
            max_in_memory_upload_chunks=threads, max_in_memory_download_chunks=threads))

    def transfer(self, upload: bool) -> None:
        if upload:
            for future in [self._manager.upload(io.BytesIO(memory), BUCKET, name)
                           for name, memory in self.objects.items()]:
                future.result()
            return
        with contextlib.ExitStack() as open_files:
            files = {name: open_files.enter_context(io.BytesIO()) for name in self.objects}
            for future in [self._manager.download(BUCKET, name, file) for name, file in files.items()]:
                future.result()
            for name, file in files.items():
                with file.getbuffer() as got:
                    self.objects[name][:] = got


class Crt(Transfer):
    """Amazon's client in C, by its bindings for Python: what their fast tools use."""

    name = "awscrt"
    settings = tuple({"gbps": gbps, "connections": connections} for gbps in (10, 100) for connections in (4, 10, 2))

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        import awscrt.auth
        import awscrt.io
        import awscrt.s3

        values = self.store.environment()
        credentials = awscrt.auth.AwsCredentialsProvider.new_static(
            values["AWS_ACCESS_KEY_ID"], values["AWS_SECRET_ACCESS_KEY"])
        loops = awscrt.io.EventLoopGroup()
        bootstrap = awscrt.io.ClientBootstrap(loops, awscrt.io.DefaultHostResolver(loops))
        region = values["AWS_REGION"]
        self._client = awscrt.s3.S3Client(
            bootstrap=bootstrap, region=region, tls_mode=awscrt.s3.S3RequestTlsMode.DISABLED,
            signing_config=awscrt.s3.create_default_s3_signing_config(region=region, credential_provider=credentials),
            part_size=self.part, multipart_upload_threshold=self.part, throughput_target_gbps=self.setting["gbps"],
            max_active_connections_override=self.setting["connections"])

    def _request(self, upload: bool, name: str, memory: bytearray) -> Any:
        import awscrt.http
        import awscrt.s3

        headers = awscrt.http.HttpHeaders([("Host", urllib.parse.urlsplit(self.store.endpoint).netloc)])
        path = f"/{BUCKET}/{name}"
        if upload:
            headers.add("Content-Length", str(len(memory)))
            return self._client.make_request(
                type=awscrt.s3.S3RequestType.PUT_OBJECT,
                request=awscrt.http.HttpRequest("PUT", path, headers, io.BytesIO(memory)))

        def take(chunk: bytes, offset: int, **_: Any) -> None:
            memory[offset:offset + len(chunk)] = chunk

        return self._client.make_request(type=awscrt.s3.S3RequestType.GET_OBJECT, on_body=take,
                                         request=awscrt.http.HttpRequest("GET", path, headers))

    def transfer(self, upload: bool) -> None:
        for request in [self._request(upload, name, memory) for name, memory in self.objects.items()]:
            request.finished_future.result()


class Curl(Transfer):
    """libcurl's "multi" interface with requests that were signed before: the wire, and next to nothing else."""

    name = "curl"
    settings = tuple({"connections": connections} for connections in (2, 4, 1, 8))
    _BUFFER = 2 << 20

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        import pycurl

        self._curl = pycurl
        self._multi = pycurl.CurlMulti()
        self._handles = [pycurl.Curl() for _ in range(self.setting["connections"])]
        self._client = self.store.client()
        self._jobs: list[tuple[str, str, int, int]] = []  # URL, name of the object, where a part begins and ends
        self._uploads: dict[str, str] = {}
        self._tags: dict[str, dict[int, str]] = {}

    def begin(self, upload: bool) -> None:
        self._jobs, self._uploads = [], {}
        self._tags = {name: {} for name in self.objects}
        for name, memory in self.objects.items():
            of_object = {"Bucket": BUCKET, "Key": name}
            if upload:
                self._uploads[name] = self._client.create_multipart_upload(**of_object)["UploadId"]
            for begin in range(0, len(memory), self.part):
                what = {"UploadId": self._uploads[name], "PartNumber": begin // self.part + 1} if upload else {}
                url = self._client.generate_presigned_url("upload_part" if upload else "get_object",
                                                          Params={**of_object, **what})
                self._jobs.append((url, name, begin, min(begin + self.part, len(memory))))

    def _start(self, handle: Any, upload: bool, url: str, name: str, begin: int, end: int) -> Callable[[], None]:
        """Gives a handle its next part. What is returned looks at the answer."""
        pycurl, view = self._curl, memoryview(self.objects[name])[begin:end]
        handle.reset()
        handle.setopt(pycurl.URL, url)
        handle.setopt(pycurl.NOPROXY, "*")
        handle.setopt(pycurl.BUFFERSIZE, self._BUFFER)
        received = 0
        if upload:
            handle.setopt(pycurl.UPLOAD, 1)
            handle.setopt(pycurl.UPLOAD_BUFFERSIZE, self._BUFFER)
            handle.setopt(pycurl.INFILESIZE_LARGE, len(view))
            handle.setopt(pycurl.READFUNCTION, io.BytesIO(view).read)
            handle.setopt(pycurl.HTTPHEADER, ["Expect:"])
            handle.setopt(pycurl.WRITEFUNCTION, len)

            def header(line: bytes) -> None:
                key, _, value = line.decode().partition(":")
                if key.lower() == "etag":
                    self._tags[name][begin // self.part + 1] = value.strip()

            handle.setopt(pycurl.HEADERFUNCTION, header)
        else:
            def take(chunk: bytes) -> int:
                nonlocal received
                view[received:received + len(chunk)] = chunk
                received += len(chunk)
                return len(chunk)

            handle.setopt(pycurl.RANGE, f"{begin}-{end - 1}")
            handle.setopt(pycurl.WRITEFUNCTION, take)

        def check() -> None:
            status = handle.getinfo(pycurl.RESPONSE_CODE)
            if status not in (200, 206) or (not upload and received != len(view)):
                raise OSError(f"curl: HTTP {status} for bytes {begin} to {end} of {name}")

        self._multi.add_handle(handle)
        return check

    def transfer(self, upload: bool) -> None:
        jobs = iter(self._jobs)
        checks: dict[Any, Callable[[], None]] = {}

        def refill(handle: Any) -> None:
            if (job := next(jobs, None)) is not None:
                checks[handle] = self._start(handle, upload, *job)

        for handle in self._handles:
            refill(handle)
        while checks:
            while self._multi.perform()[0] == self._curl.E_CALL_MULTI_PERFORM:
                pass
            _, done, failed = self._multi.info_read()
            if failed:
                raise OSError(f"curl: {failed[0][2]}")
            for handle in done:
                self._multi.remove_handle(handle)
                checks.pop(handle)()
                refill(handle)
            if checks and not done:
                self._multi.select(1.0)
        if not upload:
            return

        def complete(name: str) -> None:
            parts = [{"PartNumber": number, "ETag": tag} for number, tag in sorted(self._tags[name].items())]
            self._client.complete_multipart_upload(Bucket=BUCKET, Key=name, UploadId=self._uploads[name],
                                                   MultipartUpload={"Parts": parts})

        threads = [threading.Thread(target=complete, args=(name,)) for name in self._uploads]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


TRANSFERS = {kind.name: kind for kind in (Boto3, Crt, Curl)}
