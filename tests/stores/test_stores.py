"""The conformance suite over object stores, alone and behind a proxy that makes requests fail."""

import os
import pathlib
import subprocess

import pytest

from stores.fault_proxy import FAULTS, FaultProxy
from stores.server import ACCESS, SECRET, make_bucket, moto

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SUITE = pathlib.Path(os.environ.get("CAIRN_S3_CONFORMANCE", REPOSITORY / "bazel-bin/tests/stores/s3_conformance"))


def run_suite(endpoint: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    root = f"s3://models/conformance?endpoint={endpoint}"
    credentials = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
    return subprocess.run(
        [SUITE, "--gtest_brief=1", *arguments],
        env={**os.environ, **credentials, "CAIRN_TEST_ROOT": root, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )


def make_certificate(directory: pathlib.Path, host: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Makes the certificate of a host, which is its own authority; the files of it and of its key."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={host}"]
        + ["-addext", f"subjectAltName=DNS:{host}", "-keyout", key, "-out", certificate],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return certificate, key


def test_conformance(store):
    result = run_suite(store.endpoint, f"--gtest_filter=*-{store.left_out}")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("kind", FAULTS)
def test_conformance_with_one_kind_of_fault(store, kind):
    if "silence" in kind and "CAIRN_TEST_STORES" not in os.environ:
        pytest.skip("each silence lasts for seconds (tools/test --stores)")
    proxy = FaultProxy(store.endpoint, probability=0.1, kinds=(kind,))
    try:
        few = "*PutIfAbsent_Eight*:*ClaimDirectory*:*Finish*:*Create_Chunks*:*RemoveAll*:*TakeRoot_Another*"
        result = run_suite(proxy.endpoint, f"--gtest_filter={few}-{store.left_out}", CAIRN_TEST_DISTURBED="yes")
    finally:
        proxy.close()
    assert result.returncode == 0, result.stdout
    assert proxy.met[kind] > 5
    assert SECRET not in result.stdout


def test_a_bucket_that_is_not_there_is_named(endpoint):
    result = run_suite(endpoint, "--gtest_filter=*Secret*", CAIRN_TEST_ROOT=f"s3://absent/x?endpoint={endpoint}")
    assert result.returncode != 0
    assert "NoSuchBucket" in result.stdout and "s3://absent" in result.stdout


def test_conformance_over_tls(tmp_path):
    certificate, key = make_certificate(tmp_path, "localhost")
    with moto(tmp_path, str(certificate), str(key)) as port:
        make_bucket(f"https://localhost:{port}", str(certificate))
        few = "--gtest_filter=*PutIfAbsent_TheName*:*Create_Chunks*"
        trusted = run_suite(f"https://localhost:{port}", few, AWS_CA_BUNDLE=str(certificate))
        strange = run_suite(f"https://localhost:{port}", few)
    assert trusted.returncode == 0, trusted.stdout
    assert strange.returncode != 0 and "TLS" in strange.stdout


def test_a_store_that_ignores_conditions_is_refused(store):
    if store.checks_signatures:
        pytest.skip("the condition is signed, so a proxy cannot take it away")
    proxy = FaultProxy(store.endpoint, drop_conditions=True)
    try:
        result = run_suite(proxy.endpoint, "--gtest_filter=*ProbeAtomicCreate*")
    finally:
        proxy.close()
    assert result.returncode != 0 and "NO_ATOMIC_CREATE" in result.stdout, result.stdout


def test_a_bucket_in_another_region_is_named(endpoint):
    proxy = FaultProxy(endpoint, region="eu-west-1")
    try:
        result = run_suite(proxy.endpoint, "--gtest_filter=*ProbeAtomicCreate*")
    finally:
        proxy.close()
    assert result.returncode != 0 and "the bucket is in the region eu-west-1" in result.stdout, result.stdout


def test_without_credentials_the_error_says_so(endpoint, tmp_path):
    none = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(tmp_path)}
    result = run_suite(endpoint, "--gtest_filter=*ProbeAtomicCreate*", **none)
    assert result.returncode != 0 and "no credentials" in result.stdout, result.stdout
