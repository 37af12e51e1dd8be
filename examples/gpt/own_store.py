"""An object store for a demonstration: moto, in a process of its own, with one bucket."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

# If one of these is set, the user means a store that is there already.
NAMES_A_STORE = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN")


def is_wanted(root: str) -> bool:
    """Returns whether `root` is in an object store, and nothing in it or in the environment says in which."""
    return root.startswith("s3://") and "endpoint=" not in root and not any(map(os.environ.get, NAMES_A_STORE))


@contextlib.contextmanager
def own_store(root: str) -> Iterator[str]:
    """Starts a store with the bucket of `root`, and sets the environment so that this process and those that it starts
    use the store. Yields its address. What it holds is lost at the end."""
    import boto3

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        address = f"http://127.0.0.1:{port}"
        os.environ.update(AWS_ENDPOINT_URL=address, AWS_ACCESS_KEY_ID="demo", AWS_SECRET_ACCESS_KEY="demo")
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=root.removeprefix("s3://").split("/")[0])
        yield address
    finally:
        server.kill()
        server.wait()
