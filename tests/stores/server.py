"""Object stores that tests start."""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import socket
import subprocess
import sys
import time

from testing.ports import reserve_port


def wait_until_served(host: str, port: int, seconds: float = 60) -> None:
    """Returns when something accepts connections there."""
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


@contextlib.contextmanager
def moto(directory: pathlib.Path, *certificate: str):
    """Yields the port of a server of moto that has no bucket. `certificate`: its file, and that of its key, for TLS."""
    reserved = reserve_port()
    port = reserved.getsockname()[1]
    with open(directory / "log", "wb") as log, reserved:
        command = [sys.executable, pathlib.Path(__file__).with_name("moto_server.py"), str(port), *certificate]
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until_served("127.0.0.1", port)
            yield port
        finally:
            server.terminate()
            server.wait()


def make_bucket(connection: http.client.HTTPConnection) -> None:
    signature = "AWS4-HMAC-SHA256 Credential=x/1/us-east-1/s3/aws4_request"
    connection.request("PUT", "/models", headers={"Authorization": signature})
    assert connection.getresponse().status == 200
    connection.close()
