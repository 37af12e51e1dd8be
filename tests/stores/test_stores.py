"""The conformance suite over object stores, alone and behind a proxy that makes requests fail."""

import http.client
import os
import pathlib
import subprocess
import sys

import pytest
from stores.fault_proxy import FAULTS, FaultProxy, wait_until_served

from testing.ports import reserve_port

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SUITE = pathlib.Path(os.environ.get("CAIRN_S3_CONFORMANCE", REPOSITORY / "bazel-bin/tests/stores/s3_conformance"))


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """A server of moto with the bucket "models"."""
    reserved = reserve_port()
    port = reserved.getsockname()[1]
    log = open(tmp_path_factory.mktemp("moto") / "log", "wb")
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
    )
    try:
        wait_until_served("127.0.0.1", port)
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("PUT", "/models", headers={"Authorization": "AWS4-HMAC-SHA256 Credential=x/1/us-east-1/s3/aws4_request"})
        assert connection.getresponse().status == 200
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
        log.close()
        reserved.close()


def run_suite(endpoint: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    root = f"s3://models/conformance?endpoint={endpoint}"
    credentials = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "the-secret", "AWS_EC2_METADATA_DISABLED": "true"}
    return subprocess.run(
        [SUITE, "--gtest_brief=1", *arguments], env={**os.environ, **credentials, "CAIRN_TEST_ROOT": root, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600
    )


def test_conformance(endpoint):
    result = run_suite(endpoint)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("kind", FAULTS)
def test_conformance_with_one_kind_of_fault(endpoint, kind):
    proxy = FaultProxy(endpoint, seed=1, probability=0.1, silence=4, kinds=(kind,))
    try:
        few = "*PutIfAbsent_Eight*:*ClaimDirectory*:*Finish*:*Create_Chunks*:*RemoveAll*:*TakeRoot_Another*"
        result = run_suite(proxy.endpoint, f"--gtest_filter={few}")
    finally:
        proxy.close()
    assert result.returncode == 0, result.stdout
    assert proxy.met[kind] > 5
    assert "the-secret" not in result.stdout


def test_a_bucket_that_is_not_there_is_named(endpoint):
    result = run_suite(endpoint, "--gtest_filter=*Secret*", CAIRN_TEST_ROOT=f"s3://absent/x?endpoint={endpoint}")
    assert result.returncode != 0
    assert "NoSuchBucket" in result.stdout and "s3://absent" in result.stdout
