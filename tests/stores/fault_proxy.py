"""A proxy before an object store that makes requests fail, as networks and busy stores do.

Each request meets a fault with a given probability, drawn from a seed. What the store then has done, and what the
caller is told, differ by the kind of fault: see FAULTS.
"""

from __future__ import annotations

import collections.abc
import contextlib
import http.client
import http.server
import random
import socket
import threading
import time
import urllib.parse

# What the caller is told, and whether the store has done what was asked.
FAULTS = {
    "slow_down": "503 SlowDown; nothing was done",
    "internal_error": "500 InternalError; nothing was done",
    "late_error": "500 InternalError; it was done all the same",
    "conflict": "409 ConditionalRequestConflict; nothing was done",
    "reset": "the connection breaks; nothing was done",
    "late_reset": "the connection breaks; it was done",
    "silence": "no answer; nothing was done",
    "late_silence": "no answer; it was done",
    "truncated": "the answer ends in its middle; it was done",
    "late": "the connection breaks; it is done later",
    "repeated": "it is done twice; the first answer is told",
    "slow": "the answer comes in small pieces; it was done",
}
# What a store must be believed not to do, unless it sends checksums along, or TLS protects what it says.
CORRUPTION = {"corrupted": "one byte of an object differs in the answer"}

_ERROR = b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>planted</Message></Error>'


def _send(store: urllib.parse.SplitResult, command: str, path: str, headers, body: bytes):
    """Sends a request to the store; its answer, and the body of that."""
    connection = http.client.HTTPConnection(store.hostname, store.port, timeout=60)
    with contextlib.closing(connection):
        connection.putrequest(command, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer, answer.read()


class FaultProxy:
    """Runs in threads of this process until `close`. With `drop_conditions` it makes of the store one that takes
    the condition of a PUT and does not keep it; with `region` one whose bucket is in another region; with `expires` one
    that refuses an access key from that time on (time.monotonic()). It may also stand as the proxy of an HTTP client.

    Attributes:
      met: how often each kind of fault came.
      requests: the method and the path of each request.
      answer: says of a method and a path what is answered in the store's place: a status and a body; None: the store
        is asked. May be set at any time.
      delay: says of a method and a path after how many seconds the store gets the request; the connection
        breaks at once. None: it is passed on now. May be set at any time.
      arrived: the method, the path and the status of each request that came later.
      access_keys: with which the requests were signed, in the order in which they were first seen.
    """

    def __init__(
        self,
        endpoint: str,
        seed: int = 1,
        probability: float = 0,
        silence: float = 4,
        kinds: tuple[str, ...] = tuple(FAULTS),
        drop_conditions: bool = False,
        region: str = "",
        expires: dict[str, float] | None = None,
    ):
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.met: dict[str, int] = dict.fromkeys(kinds, 0)
        self.requests: list[tuple[str, str]] = []
        self.answer: collections.abc.Callable[[str, str], tuple[int, str] | None] = lambda method, path: None
        self.delay: collections.abc.Callable[[str, str], float | None] = lambda method, path: None
        self.arrived: list[tuple[str, str, int]] = []
        self.access_keys: list[str] = []
        self._late: list[threading.Timer] = []
        store = urllib.parse.urlsplit(endpoint)
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def _forward(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
                return _send(store, self.command, self.path, self.headers.items(), body)

            def _break(self) -> None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

            def _error(self, status: int, code: bytes) -> None:
                body = b"" if self.command == "HEAD" else _ERROR % code
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("x-amz-request-id", "planted")
                if region:
                    self.send_header("x-amz-bucket-region", region)
                self.end_headers()
                self.wfile.write(body)

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path.startswith("http://"):  # as clients ask a proxy
                    self.path = "/" + self.path.split("/", 3)[3]
                    self.headers.replace_header("Host", store.netloc)
                access_key = self.headers.get("Authorization", "").partition("Credential=")[2].split("/")[0]
                if access_key not in proxy.access_keys:
                    proxy.access_keys.append(access_key)
                if time.monotonic() > (expires or {}).get(access_key, float("inf")):
                    return self._error(403, b"ExpiredToken")
                if drop_conditions:
                    del self.headers["If-None-Match"], self.headers["x-goog-if-generation-match"]
                if region:
                    return self._error(301, b"PermanentRedirect")
                fault = proxy._draw(self.command, self.path, probability)
                if (other := proxy.answer(self.command, self.path)) is not None:
                    self.send_response(other[0])
                    self.send_header("Content-Length", str(len(other[1])))
                    self.end_headers()
                    self.wfile.write(b"" if self.command == "HEAD" else other[1].encode())
                    return None
                if (seconds := proxy.delay(self.command, self.path)) is not None:
                    proxy._send_later(seconds, store, self.command, self.path, self.headers.items(), body)
                    return self._break()
                if fault == "slow_down":
                    return self._error(503, b"SlowDown")
                if fault == "internal_error":
                    return self._error(500, b"InternalError")
                if fault == "conflict":
                    return self._error(409, b"ConditionalRequestConflict")
                if fault == "reset":
                    return self._break()
                if fault == "silence":
                    proxy._closing.wait(silence)
                    return self._break()
                if fault == "late":
                    proxy._send_later(proxy._seconds(), store, self.command, self.path, self.headers.items(), body)
                    return self._break()
                answer, content = self._forward(body)
                if fault == "repeated":
                    self._forward(body)
                if fault == "corrupted" and self.command == "GET" and "?" not in self.path and content:
                    at = proxy._place(len(content))
                    content = content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]
                if fault == "late_error":
                    return self._error(500, b"InternalError")
                if fault == "late_reset":
                    return self._break()
                if fault == "late_silence":
                    proxy._closing.wait(silence)
                    return self._break()
                self.send_response_only(answer.status, answer.reason)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                if length is not None and answer.status != 204:
                    self.send_header("Content-Length", length)
                self.end_headers()
                if fault == "slow":
                    for at in range(0, len(content), len(content) // 8 + 1):
                        proxy._closing.wait(0.05)
                        self.wfile.write(content[at : at + len(content) // 8 + 1])
                    return None
                if fault == "truncated":
                    self.wfile.write(content[: len(content) // 2])
                    return self._break()
                self.wfile.write(content)
                return None

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # callers that went away
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _draw(self, method: str, path: str, probability: float) -> str | None:
        with self._lock:
            self.requests.append((method, path))
            if self._random.random() >= probability:
                return None
            fault = self._random.choice(list(self.met))
            self.met[fault] += 1
            return fault

    def _seconds(self) -> float:
        with self._lock:
            return self._random.uniform(0.5, 4)

    def _send_later(self, seconds: float, store, method: str, path: str, *request: object) -> None:
        def send() -> None:
            # A store that has ended, or closes the connection, has not taken it.
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer, _ = _send(store, method, path, *request)
                self.arrived.append((method, path, answer.status))

        with self._lock:
            timer = threading.Timer(seconds, send)
            self._late.append(timer)
        timer.start()

    def _place(self, size: int) -> int:
        with self._lock:
            return self._random.randrange(size)

    def close(self) -> None:
        self._closing.set()
        for timer in self._late:
            timer.join()
        self._server.shutdown()
        self._server.server_close()
