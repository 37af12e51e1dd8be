"""A Google Cloud Storage that keeps to what its documentation says of the XML API, and refuses everything else.

Cairn was never tried against Google's own store, so this one is strict: a header, a query or an element that the
documentation does not have for a request is an error here, even where the real store would ignore it. What the
documentation says about races holds, since all requests that change something come one at a time.
"""

from __future__ import annotations

import base64
import collections.abc
import ctypes
import dataclasses
import email.utils
import hashlib
import hmac
import http.server
import itertools
import re
import socket
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ET
from xml.sax.saxutils import escape

NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"
LEAST_PART = 5 << 20
MOST_IN_PAGE = 1000

# What each kind of request may have in its query and among its headers, besides those of every request.
EVERY_HEADER = {"host", "user-agent", "content-length", "authorization", "x-goog-date", "x-goog-content-sha256"}
LIST = {"list-type", "max-keys", "delimiter", "prefix", "start-after", "continuation-token"}
LIST_UPLOADS = {"uploads", "prefix", "key-marker", "upload-id-marker"}
WRITTEN = {"content-type", "x-goog-hash", "x-goog-if-generation-match"}

_isal = ctypes.CDLL("libisal.so.2")
_isal.crc32_iscsi.restype = ctypes.c_uint


def crc32c(content: bytes) -> str:
    """The checksum in base64, as the header x-goog-hash has it."""
    crc = ~_isal.crc32_iscsi(content, ctypes.c_int(len(content)), ctypes.c_uint(0xFFFFFFFF)) & 0xFFFFFFFF
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, details: str = ""):
        super().__init__(status, code, details)
        self.status, self.code, self.details = status, code, details


@dataclasses.dataclass
class Stored:
    content: bytes
    metadata: dict[str, str]
    generation: int
    modified: float
    parts: int = 0  # 0: it came by one request

    @property
    def etag(self) -> str:
        if self.parts:  # "the object's ETag is not based on an MD5 hash"
            return f'"-{base64.b64encode(self.generation.to_bytes(8, "big")).decode().rstrip("=")}"'
        return f'"{hashlib.md5(self.content).hexdigest()}"'


@dataclasses.dataclass
class Upload:
    key: str
    metadata: dict[str, str]
    begun: float
    parts: dict[int, bytes] = dataclasses.field(default_factory=dict)


def _timestamp(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(when))


def _etag_of_part(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


class GoogleStore:
    """Serves the bucket "models" in threads of this process until `close`.

    `deletes_many`: it knows the request that deletes many keys. `seconds_between_writes`: an object that was written is
    not written again for so long (429), as Google does it after a burst. `version6`: it listens at the address ::1.

    Attributes:
      knows: says of the text of a bearer token whether it is good now.
      hmac_keys: the secret of each access id.
      objects, uploads: what there is.
      requests: the method and the path of each request that was not refused for its credentials.
      tokens: the tokens with which requests came, in the order in which they were first seen.
      refused: status, code and details of each answer that is an error, but of those that are the store's daily bread.
    """

    def __init__(self, deletes_many: bool = True, seconds_between_writes: float = 0, version6: bool = False):
        self.knows: collections.abc.Callable[[str], bool] = lambda token: token == "the-token"
        self.hmac_keys = {"GOOG1EXAMPLE": "the-secret"}
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, Upload] = {}
        self.requests: list[tuple[str, str]] = []
        self.tokens: list[str] = []
        self.refused: list[tuple[int, str, str]] = []
        self._deletes_many = deletes_many
        self._seconds_between_writes = seconds_between_writes
        self._numbers = itertools.count(1_700_000_000_000_000)
        self._lock = threading.Lock()
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                try:
                    status, headers, content = store._answer(self.command, self.path, self.headers, body)
                except Refused as refused:
                    if refused.status not in (404, 412, 416, 429):
                        store.refused.append((refused.status, refused.code, refused.details))
                    text = (f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{refused.code}</Code>"
                            "<Message>Said by the store.</Message>"
                            f"<Details>{escape(refused.details)}</Details></Error>")
                    status, headers, content = refused.status, [("Content-Type", "application/xml")], text.encode()
                self.send_response(status)
                self.send_header("x-guploader-uploadid", "the-id-of-the-request")
                for name, value in headers:
                    self.send_header(name, value)
                if status != 204 and not any(name == "Content-Length" for name, _ in headers):
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve

        class Server(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if version6 else socket.AF_INET

        self._server = Server(("::1" if version6 else "127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # callers that went away
        self.endpoint = f"http://{'[::1]' if version6 else '127.0.0.1'}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, method, target, headers, body):
        path, _, query = target.partition("?")
        parameters = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        names = {name.lower() for name in headers}
        if any(name.startswith("x-amz-") for name in names):
            raise Refused(400, "InvalidArgument", "Requests cannot specify both x-amz and x-goog headers")
        self._authenticate(method, path, query, headers)
        with self._lock:
            self.requests.append((method, target))
        bucket, _, key = path.removeprefix("/").partition("/")
        key = urllib.parse.unquote(key)
        if bucket != "models":
            raise Refused(404, "NoSuchBucket", f"The specified bucket does not exist: {bucket}")
        metadata = {name for name in names if name.startswith("x-goog-meta-")}
        handler, may_query, may_headers = self._handler(method, key, set(parameters))
        if set(parameters) - may_query:
            raise Refused(400, "InvalidArgument", f"{method} with {query}")
        if handler in (self._put, self._begin):
            names -= metadata
        if names - may_headers - EVERY_HEADER:
            raise Refused(400, "InvalidArgument", f"{method} {query} with {sorted(names - may_headers - EVERY_HEADER)}")
        if method in ("GET", "HEAD"):
            return handler(key, parameters, headers, body)
        with self._lock:
            return handler(key, parameters, headers, body)

    def _handler(self, method: str, key: str, query: set[str]):
        """Returns who answers a request, and what may be in its query and its headers."""
        if not key:
            if method == "GET" and "uploads" in query:
                return self._list_uploads, LIST_UPLOADS, set()
            if method == "GET" and "list-type" in query:
                return self._list, LIST, set()
            if method == "POST" and "delete" in query:
                return self._delete_many, {"delete"}, {"content-type"}
        elif method in ("GET", "HEAD"):
            return self._get, set(), {"range", "if-match"}
        elif method == "PUT" and "uploadId" in query:
            return self._put_part, {"partNumber", "uploadId"}, {"x-goog-hash", "content-type"}
        elif method == "PUT":
            return self._put, set(), WRITTEN
        elif method == "POST" and "uploads" in query:
            return self._begin, {"uploads"}, {"content-type"}
        elif method == "POST" and "uploadId" in query:
            return self._complete, {"uploadId"}, {"content-type"}
        elif method == "DELETE":
            return (self._abort if "uploadId" in query else self._delete), {"uploadId"}, set()
        raise Refused(400, "InvalidArgument", f"{method} with {sorted(query)}")

    def _authenticate(self, method, path, query, headers) -> None:
        authorization = headers.get("Authorization", "")
        kind, _, rest = authorization.partition(" ")
        if kind == "Bearer":
            with self._lock:
                if rest not in self.tokens:
                    self.tokens.append(rest)
            if self.knows(rest):
                return
            raise Refused(401, "AuthenticationRequired")
        if kind != "GOOG4-HMAC-SHA256":
            raise Refused(401, "AuthenticationRequired")
        said = dict(part.strip().split("=", 1) for part in rest.split(","))
        access, day, location, service, terminator = said["Credential"].split("/")
        when = headers["x-goog-date"]
        if (service, terminator) != ("storage", "goog4_request") or not when.startswith(day):
            raise Refused(400, "InvalidArgument", said["Credential"])
        if abs(time.time() - time.mktime(time.strptime(when, "%Y%m%dT%H%M%SZ")) + time.timezone) > 900:
            raise Refused(403, "RequestTimeTooSkewed")
        signed = said["SignedHeaders"].split(";")
        unsigned = {name.lower() for name in headers if name.lower().startswith("x-goog-")} - set(signed)
        if "host" not in signed or unsigned or signed != sorted(signed):
            raise Refused(403, "SignatureDoesNotMatch", f"not signed: {unsigned}")
        parameters = sorted(one if "=" in one else f"{one}=" for one in query.split("&") if one)
        canonical = "\n".join([method, path, "&".join(parameters),
                               *(f"{name}:{headers[name].strip()}" for name in signed), "", said["SignedHeaders"],
                               headers["x-goog-content-sha256"]])
        text = "\n".join(["GOOG4-HMAC-SHA256", when, f"{day}/{location}/storage/goog4_request",
                          hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("GOOG4" + self.hmac_keys.get(access, "")).encode()
        for part in (day, location, "storage", "goog4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        if access not in self.hmac_keys or hmac.digest(key, text.encode(), "sha256").hex() != said["Signature"]:
            raise Refused(403, "SignatureDoesNotMatch", canonical)

    def _get(self, key, parameters, headers, body):
        stored = self.objects.get(key)
        if stored is None:
            raise Refused(404, "NoSuchKey")
        if headers.get("If-Match", stored.etag) != stored.etag:
            raise Refused(412, "PreconditionFailed")
        content = stored.content
        said = [("ETag", stored.etag), ("Last-Modified", email.utils.formatdate(stored.modified, usegmt=True)),
                ("x-goog-generation", str(stored.generation)), ("x-goog-hash", f"crc32c={crc32c(content)}"),
                ("x-goog-stored-content-encoding", "identity"), ("Accept-Ranges", "bytes"), *stored.metadata.items()]
        if not stored.parts:  # the second header of its name
            said.append(("x-goog-hash", "md5=" + base64.b64encode(hashlib.md5(content).digest()).decode()))
        if (wanted := headers.get("Range")) is None:
            return 200, [*said, ("Content-Length", str(len(content)))], content
        first, last = (int(number) for number in re.fullmatch(r"bytes=(\d+)-(\d+)", wanted).groups())
        if first >= len(content):
            raise Refused(416, "InvalidRange")
        part = content[first:last + 1]
        said.append(("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}"))
        return 206, said, part

    def _check(self, headers, body: bytes) -> None:
        said = headers.get("x-goog-hash", "")
        if not re.fullmatch(r"crc32c=[A-Za-z0-9+/]{6}==", said):
            raise Refused(400, "InvalidDigest", said)
        if said.removeprefix("crc32c=") != crc32c(body):
            raise Refused(400, "BadDigest")

    def _store(self, key: str, content: bytes, metadata: dict[str, str], parts: int = 0) -> Stored:
        standing = self.objects.get(key)
        if standing is not None and time.time() < standing.modified + self._seconds_between_writes:
            raise Refused(429, "SlowDown")
        self.objects[key] = Stored(content, metadata, next(self._numbers), time.time(), parts)
        return self.objects[key]

    def _put(self, key, parameters, headers, body):
        self._check(headers, body)
        generation = self.objects[key].generation if key in self.objects else 0
        if int(headers.get("x-goog-if-generation-match", generation)) != generation:
            raise Refused(412, "PreconditionFailed")
        stored = self._store(key, body, self._metadata(headers))
        return 200, [("ETag", stored.etag), ("x-goog-generation", str(stored.generation))], b""

    @staticmethod
    def _metadata(headers) -> dict[str, str]:
        return {name.lower(): value for name, value in headers.items() if name.lower().startswith("x-goog-meta-")}

    def _begin(self, key, parameters, headers, body):
        upload = f"VXBs/b+FkIG{next(self._numbers)}"
        self.uploads[upload] = Upload(key, self._metadata(headers), time.time())
        return self._xml("InitiateMultipartUploadResult",
                         f"<Bucket>models</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>")

    def _upload(self, key: str, parameters) -> Upload:
        upload = self.uploads.get(parameters["uploadId"])
        if upload is None or upload.key != key:
            raise Refused(404, "NoSuchUpload")
        return upload

    def _put_part(self, key, parameters, headers, body):
        self._check(headers, body)
        number = int(parameters["partNumber"])
        if not 1 <= number <= 10_000:
            raise Refused(400, "InvalidArgument", f"part {number}")
        self._upload(key, parameters).parts[number] = body
        return 200, [("ETag", _etag_of_part(body))], b""

    def _complete(self, key, parameters, headers, body):
        upload = self._upload(key, parameters)
        root = ET.fromstring(body)
        wanted = []
        for part in root:
            if root.tag != "CompleteMultipartUpload" or part.tag != "Part" or [e.tag for e in part] != ["PartNumber",
                                                                                                       "ETag"]:
                raise Refused(400, "MalformedCompleteMultipartUploadRequest", body.decode())
            number = int(part.findtext("PartNumber"))
            if number not in upload.parts or part.findtext("ETag") != _etag_of_part(upload.parts[number]):
                raise Refused(400, "InvalidPart", str(number))
            wanted.append(number)
        if not wanted or wanted != sorted(set(wanted)):
            raise Refused(400, "InvalidPartOrder", str(wanted))
        if any(len(upload.parts[number]) < LEAST_PART for number in wanted[:-1]):
            raise Refused(400, "EntityTooSmall")
        # There is no condition: what stands there is replaced.
        stored = self._store(key, b"".join(upload.parts[number] for number in wanted), upload.metadata, len(wanted))
        del self.uploads[parameters["uploadId"]]
        return self._xml("CompleteMultipartUploadResult", f"<Bucket>models</Bucket><Key>{escape(key)}</Key>"
                         f"<ETag>{escape(stored.etag)}</ETag>")

    def _abort(self, key, parameters, headers, body):
        self._upload(key, parameters)
        del self.uploads[parameters["uploadId"]]
        return 204, [], b""

    def _delete(self, key, parameters, headers, body):
        if self.objects.pop(key, None) is None:
            raise Refused(404, "NoSuchKey")
        return 204, [], b""

    def _delete_many(self, key, parameters, headers, body):
        if not self._deletes_many:
            raise Refused(501, "NotImplemented")
        root = ET.fromstring(body)
        keys = [one.findtext("Key") for one in root if one.tag == "Object"]
        if root.tag != "Delete" or len(keys) != len(root) or not 1 <= len(keys) <= 1000:
            raise Refused(400, "MalformedXML", body.decode())
        said = ""
        for one in keys:
            if self.objects.pop(one, None) is not None:
                said += f"<Deleted><Key>{escape(one)}</Key></Deleted>"
            else:
                said += (f"<Error><Key>{escape(one)}</Key><Code>NoSuchKey</Code><Message>There is none.</Message>"
                         "</Error>")
        return self._xml("DeleteResult", said)

    def _list(self, key, parameters, headers, body):
        prefix, after = parameters.get("prefix", ""), parameters.get("start-after", "")
        delimiter = parameters.get("delimiter")
        most = min(int(parameters.get("max-keys", MOST_IN_PAGE)), MOST_IN_PAGE)
        token = base64.urlsafe_b64decode(parameters.get("continuation-token", "")).decode()
        with self._lock:
            objects = dict(self.objects)
        entries: dict[str, str] = {}
        for name in sorted(objects):
            if not name.startswith(prefix) or (not token and name <= after):
                continue
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            shown = name[:end + 1] if end >= 0 else name
            if shown <= token:
                continue
            stored = objects[name]
            entries[shown] = f"<CommonPrefixes><Prefix>{escape(shown)}</Prefix></CommonPrefixes>" if end >= 0 else (
                f"<Contents><Key>{escape(name)}</Key><Generation>{stored.generation}</Generation>"
                f"<MetaGeneration>1</MetaGeneration><LastModified>{_timestamp(stored.modified)}</LastModified>"
                f"<ETag>{escape(stored.etag)}</ETag><Size>{len(stored.content)}</Size></Contents>")
        shown = list(entries)[:most]
        text = f"<Name>models</Name><Prefix>{escape(prefix)}</Prefix>" + "".join(entries[name] for name in shown)
        if len(entries) > most:
            following = base64.urlsafe_b64encode(shown[-1].encode()).decode()
            text += f"<IsTruncated>true</IsTruncated><NextContinuationToken>{following}</NextContinuationToken>"
        else:
            text += "<IsTruncated>false</IsTruncated>"
        return self._xml("ListBucketResult", text)

    def _list_uploads(self, key, parameters, headers, body):
        marker = (parameters.get("key-marker", ""), parameters.get("upload-id-marker", ""))
        with self._lock:
            found = sorted((upload.key, name, upload.begun) for name, upload in self.uploads.items()
                           if upload.key.startswith(parameters.get("prefix", "")))
        found = [one for one in found if one[:2] > marker]
        text = "".join(f"<Upload><Key>{escape(one)}</Key><UploadId>{name}</UploadId>"
                       f"<StorageClass>STANDARD</StorageClass><Initiated>{_timestamp(begun)}</Initiated></Upload>"
                       for one, name, begun in found[:MOST_IN_PAGE])
        if len(found) > MOST_IN_PAGE:
            last = found[MOST_IN_PAGE - 1]
            text += (f"<NextKeyMarker>{escape(last[0])}</NextKeyMarker><NextUploadIdMarker>{last[1]}"
                     "</NextUploadIdMarker><IsTruncated>true</IsTruncated>")
        else:
            text += "<IsTruncated>false</IsTruncated>"
        return self._xml("ListMultipartUploadsResult", f"<Bucket>models</Bucket>{text}")

    @staticmethod
    def _xml(name: str, text: str):
        document = f"<?xml version='1.0' encoding='UTF-8'?><{name} xmlns='{NAMESPACE}'>{text}</{name}>"
        return 200, [("Content-Type", "application/xml; charset=UTF-8")], document.encode()
