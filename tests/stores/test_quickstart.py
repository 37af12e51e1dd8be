"""The program of tools/quickstart with its checkpoints in an object store."""

import contextlib
import os
import pathlib
import subprocess
import sys

import pytest

import cairn
from stores.google_store import GoogleStore
from stores.test_google_store import NOTHING

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif("CAIRN_TEST_STORES" not in os.environ, reason="a minute each (tools/test --stores)")

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "examples/gpt/quickstart.py"


def quickstart(root: str, **environment: str) -> subprocess.CompletedProcess:
    unset = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN", *NOTHING)
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run([sys.executable, PROGRAM, "--steps=12", f"--root={root}"], capture_output=True, text=True,
                          timeout=600, env={**inherited, "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1]),
                                            **environment})


def test_it_starts_a_store_of_its_own_if_none_is_named():
    done = quickstart("s3://models/demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "an object store of its own serves s3://models/demo" in done.stdout
    assert "Proven: " in done.stdout


def test_it_uses_googles_store():
    with contextlib.closing(GoogleStore()) as store:
        done = quickstart("gs://models/demo", STORAGE_EMULATOR_HOST=store.endpoint,
                          CLOUDSDK_AUTH_ACCESS_TOKEN="the-token")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Proven: " in done.stdout
    assert store.refused == [] and any(key.startswith("demo/gpt/") for key in store.objects)
