"""Roots, sources and exports in a store that speaks as Google's does: the suite, faults, and real processes."""

import contextlib
import os
import subprocess

import pytest

import cairn
from stores.fault_proxy import FAULTS, FaultProxy
from stores.google_store import GoogleStore
from stores.test_root_in_store import WHOLE, assert_parts_have_no_gaps, save_and_load
from stores.test_stores import SUITE
from testing.ranks import blank, on_ranks, rows

# An upload of parts has no condition in this store; nothing that decides is one.
LEFT_OUT = "*Finish_TheNameIsTaken*"
FEW = "*PutIfAbsent_Eight*:*ClaimDirectory*:*Create_Chunks*:*RemoveAll*:*TakeRoot_Another*"
# Nothing of the user's own may help.
NOTHING = dict.fromkeys(("CLOUDSDK_AUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", "CLOUDSDK_CONFIG",
                         "GOOGLE_APPLICATION_CREDENTIALS", "GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY",
                         "GCE_METADATA_HOST", "STORAGE_EMULATOR_HOST", "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"), "")


def run_suite(endpoint: str, *arguments: str, bucket: str = "models", token: str = "the-token",
              **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [SUITE, "--gtest_brief=1", *arguments],
        env={**os.environ, **NOTHING, "CLOUDSDK_AUTH_ACCESS_TOKEN": token,
             "CAIRN_TEST_ROOT": f"gs://{bucket}/conformance?endpoint={endpoint}", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )


@pytest.fixture
def google():
    with contextlib.closing(GoogleStore()) as store:
        yield store


@pytest.fixture
def use(google, monkeypatch):
    """Sets what processes need to use the store."""
    for name, value in NOTHING.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google.endpoint)
    monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN", "the-token")
    return google


def test_conformance(google):
    result = run_suite(google.endpoint, f"--gtest_filter=*-{LEFT_OUT}")
    assert result.returncode == 0, result.stdout
    assert google.refused == []
    assert_parts_have_no_gaps([(method, path.removeprefix("/models")) for method, path in google.requests])


def test_conformance_with_hmac_keys(google):
    result = run_suite(google.endpoint, f"--gtest_filter=*-{LEFT_OUT}", token="", GS_ACCESS_KEY_ID="GOOG1EXAMPLE",
                       GS_SECRET_ACCESS_KEY="the-secret")
    assert result.returncode == 0, result.stdout
    assert google.refused == [] and google.tokens == []


@pytest.mark.parametrize("kind", FAULTS)
def test_conformance_with_one_kind_of_fault(google, kind):
    if kind not in ("late_error", "late_reset") and "CAIRN_TEST_STORES" not in os.environ:
        pytest.skip("test_stores.py has the others in a run that is short (tools/test --stores)")
    with contextlib.closing(FaultProxy(google.endpoint, probability=0.1, kinds=(kind,))) as proxy:
        result = run_suite(proxy.endpoint, f"--gtest_filter={FEW}")
    assert result.returncode == 0, result.stdout
    assert proxy.met[kind] > 5 and google.refused == []


def test_a_put_that_was_done_and_not_answered_is_repeated(google):
    """The seed is one by which only the second request, the first PUT, meets the fault."""
    with contextlib.closing(FaultProxy(google.endpoint, seed=86, probability=0.2, kinds=("late_silence",))) as proxy:
        result = run_suite(proxy.endpoint, "--gtest_filter=*PutIfAbsent_TheName*")
    assert result.returncode == 0, result.stdout
    assert [method for method, _ in proxy.requests][:4] == ["GET", "PUT", "PUT", "HEAD"], proxy.requests
    assert proxy.met["late_silence"] == 1 and google.refused == []


def test_a_store_that_deletes_one_key_at_a_time():
    with contextlib.closing(GoogleStore(deletes_many=False)) as store:
        result = run_suite(store.endpoint, "--gtest_filter=*Remove*")
    assert result.returncode == 0, result.stdout
    assert any(method == "DELETE" for method, _ in store.requests)


def test_an_object_that_is_written_too_often_is_written_later():
    with contextlib.closing(GoogleStore(seconds_between_writes=1)) as store:
        result = run_suite(store.endpoint, "--gtest_filter=*PutReplacing*:*TakeRoot_Another*")
    assert result.returncode == 0, result.stdout


def test_bytes_that_were_damaged_on_their_way_are_sent_anew(google):
    """The store compares the checksum of each body, and Cairn that of each object that it reads whole."""
    with contextlib.closing(FaultProxy(google.endpoint, probability=0.2, kinds=("corrupted",))) as proxy:
        result = run_suite(proxy.endpoint, "--gtest_filter=*PutIfAbsent_Eight*:*PutReplacing*")
    assert result.returncode == 0, result.stdout
    assert proxy.met["corrupted"] > 5


def test_an_endpoint_with_an_address_of_version_6():
    try:
        store = GoogleStore(version6=True)
    except OSError as error:
        pytest.skip(f"no address of version 6: {error}")
    with contextlib.closing(store):
        result = run_suite(store.endpoint, "--gtest_filter=*PutIfAbsent_TheName*")
    assert result.returncode == 0, result.stdout
    assert store.requests


def test_a_bucket_that_is_not_there_is_named(google):
    result = run_suite(google.endpoint, "--gtest_filter=*Secret*", bucket="absent")
    assert result.returncode != 0
    assert "NoSuchBucket" in result.stdout and "gs://absent" in result.stdout, result.stdout
    assert "the-id-of-the-request" in result.stdout and "the-token" not in result.stdout


def test_a_store_that_ignores_conditions_is_refused(google):
    with contextlib.closing(FaultProxy(google.endpoint, drop_conditions=True)) as proxy:
        result = run_suite(proxy.endpoint, "--gtest_filter=*ProbeAtomicCreate*")
    assert result.returncode != 0 and "NO_ATOMIC_CREATE" in result.stdout, result.stdout
    assert "x-goog-if-generation-match: 0" in result.stdout


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([f"{os.environ['CAIRN_BIN_DIR']}/cairn", *arguments], capture_output=True, text=True,
                          timeout=120)


def test_what_was_saved_is_loaded_and_read_by_commands(use):
    root = "gs://models/plain"
    save_and_load(root)
    for words in ("list demo", "verify demo@20", "diff demo@10 demo@20", "jobs", "doctor"):
        result = command(*words.split(), "--root", root)
        assert ("20" in result.stdout or words == "doctor") and "error" not in result.stderr, (
            words, result.stdout, result.stderr)
    deleted = command("run", "--root", root, "--", f"{os.environ['CAIRN_BIN_DIR']}/cairn", "delete", "demo@10")
    assert deleted.returncode == 0, deleted.stderr
    assert use.refused == [] and use.uploads == {}
    assert {path.partition("?")[0].split("/")[1] for _, path in use.requests} == {"models"}


def test_an_export_is_a_source_again(use, tmp_path):
    root = "gs://models/root"
    save_and_load(root)
    exported = command("export", "demo@20", "--root", root, "--to", "gs://models/exports/model")
    assert exported.returncode == 0, exported.stderr
    assert any(key.startswith("exports/model/model.safetensors") for key in use.objects)
    imported = command("import", "gs://models/exports/model", "--to", "copy@1", "--root", str(tmp_path / "root"))
    assert imported.returncode == 0, imported.stderr
    same = command("diff", "gs://models/exports/model", "copy@1", "--root", str(tmp_path / "root"))
    assert same.returncode == 0, same.stdout + same.stderr
    with cairn.local.Cluster(ranks=1, root=tmp_path / "other") as cluster:

        def work(_, client):
            target = {name: blank(rows(array, 0, 1)) for name, array in WHOLE.items()}
            client.load(target, source="gs://models/exports/model")
            for name, array in WHOLE.items():
                assert target[name].array.tobytes() == array.tobytes(), name

        on_ranks(cluster, work)
    assert use.refused == []
