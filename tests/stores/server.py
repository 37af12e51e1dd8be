"""Object stores that tests start."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import subprocess
import sys
import time

import boto3

from testing.ports import reserve_port

# Whoever owns the bucket "models".
ACCESS, SECRET = "owner", "the-secret"


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


def amazons_client(endpoint: str, access: str = ACCESS, secret: str = SECRET, certificate: str | None = None):
    """Returns Amazon's own client of a store. `certificate` is the file that the client trusts."""
    return boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=access, aws_secret_access_key=secret,
                        region_name="us-east-1", verify=certificate)


def make_bucket(endpoint: str, certificate: str | None = None) -> None:
    amazons_client(endpoint, certificate=certificate).create_bucket(Bucket="models")
