"""What answers in a store's place may say anything: nothing of it is taken for a store without checkpoints."""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time

import numpy as np
import pytest

import cairn
from stores.fault_proxy import FaultProxy
from stores.server import ACCESS, SECRET, amazons_client
from testing.ranks import noise, on_ranks

LISTING = '<?xml version="1.0"?><ListBucketResult><Name>models</Name>{}</ListBucketResult>'
ENTRY = "<Contents><Key>{}</Key><Size>1</Size><ETag>&quot;1&quot;</ETag></Contents>"


@pytest.fixture
def told(endpoint, monkeypatch, tmp_path):
    """A proxy before a root (told.root) with steps 10, 20 and 30; answers in the store's place as told.answer says."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    prefix = tmp_path.name.replace("_", "-")
    with cairn.local.Cluster(ranks=1, root=f"s3://models/{prefix}") as cluster:

        def work(_, client):
            for step in (10, 20, 30):
                client.save(step, {"w": noise((64,), np.float32, step)}).wait()

        on_ranks(cluster, work)
    proxy = FaultProxy(endpoint)
    proxy.root, proxy.job = f"s3://models/{prefix}", f"{prefix}/demo/"
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    yield proxy
    proxy.close()


def cairn_says(*arguments: str, root: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [f"{os.environ['CAIRN_BIN_DIR']}/cairn", *arguments, "--root", root],
        capture_output=True,
        text=True,
        timeout=120,
    )


def to_listings_of(job: str, answers: list[tuple[int, str]]):
    """The answers, one for each listing below the job; the last one is repeated."""
    left = list(answers)
    lock = threading.Lock()

    def answer(method: str, path: str) -> tuple[int, str] | None:
        if method != "GET" or "list-type=2" not in path or job.replace("/", "%2F") not in path:
            return None
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return answer


def page(entries: str, after: str) -> tuple[int, str]:
    tail = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{after}</NextContinuationToken>"
    return 200, LISTING.format(entries + (tail if after else "<IsTruncated>false</IsTruncated>"))


@pytest.mark.parametrize(
    "answers",
    [
        [(200, "<html><body>Be right back</body></html>")],
        [(200, "")],
        [(200, LISTING.format(""))],
        [(404, "default backend - 404")],
        [page("<CommonPrefixes><Prefix>JOB</Prefix></CommonPrefixes>", "")],
        [page(ENTRY.format("JOBa"), "A"), page(ENTRY.format("JOBa"), "B")],
        [page("", "A"), page("", "B")],
    ],
    ids=["page", "nothing", "no end", "404", "itself", "the same again", "nothing again"],
)
def test_what_is_no_listing_is_an_error(told, answers):
    told.answer = to_listings_of(told.job, [(status, body.replace("JOB", told.job)) for status, body in answers])
    result = cairn_says("list", "demo", root=told.root)
    assert result.returncode == 1, result.stdout
    assert "STORAGE_ERROR" in result.stderr and "Look whether a proxy" in result.stderr, result.stderr


def test_an_entry_that_comes_twice_counts_once(told):
    step = f"<CommonPrefixes><Prefix>{told.job}000000000030/</Prefix></CommonPrefixes>"
    told.answer = lambda method, path: page(step + step, "") if "delimiter" in path and "demo" in path else None
    result = cairn_says("list", "demo", root=told.root)
    assert result.stdout.count("COMMITTED") == 2, result.stdout + result.stderr  # the head, and the step


def test_an_object_with_the_name_of_a_step_is_none(told):
    step = f"<CommonPrefixes><Prefix>{told.job}000000000030/</Prefix></CommonPrefixes>"
    entries = ENTRY.format(f"{told.job}000000000030") + step
    told.answer = lambda method, path: page(entries, "") if "delimiter" in path and "demo" in path else None
    result = cairn_says("list", "demo", root=told.root)
    assert result.stdout.count("COMMITTED") == 2, result.stdout + result.stderr  # the head, and the step
    assert "DAMAGED" not in result.stdout


def test_many_steps_are_listed_by_few_requests(told):
    told.requests.clear()
    assert cairn_says("list", "demo", root=told.root).returncode == 0
    listings = [path for method, path in told.requests if "list-type" in path]
    others = [path for method, path in told.requests if "list-type" not in path]
    assert len(listings) <= 3, listings  # the root, the steps of the job, and what is in all of them
    assert len(others) == 3, others  # the record of each step


def test_a_password_in_the_endpoint_is_not_printed(endpoint, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:the-secret@127.0.0.1:1")
    for root in ("s3://models/a", "s3://models/a?endpoint=http://user:the-secret@127.0.0.1:1"):
        result = cairn_says("list", "demo", root=root)
        assert result.returncode != 0 and "the-secret" not in result.stdout + result.stderr, result.stderr


def test_a_header_without_end_is_not_kept(monkeypatch):
    """The libraries keep a line until its end comes."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    listening = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")

    def answer():
        caller, _ = listening.accept()
        with contextlib.suppress(OSError), caller:
            caller.recv(65536)
            caller.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while True:
                caller.sendall(b"a" * 65536)
                time.sleep(0.01)

    threading.Thread(target=answer, daemon=True).start()
    begun = time.monotonic()
    with listening:
        result = cairn_says("list", "demo", root="s3://models/a")
    assert result.returncode == 1 and "MESSAGE_TOO_LARGE" in result.stderr, result.stderr
    assert "headers without end" in result.stderr
    assert time.monotonic() - begun < 20


def test_a_key_that_always_fails_does_not_hold_up_the_next_save(told):
    """The agent gives up what it sends for a save that was aborted."""
    told.answer = lambda method, path: (500, "") if method == "PUT" and "40/0001/rank" in path else None
    arguments = {"coordinator_flags": ["--phase-timeout=3s"]}
    with cairn.local.Cluster(ranks=1, root=told.root, **arguments) as cluster:

        def work(_, client):
            with pytest.raises(cairn.Error):
                client.save(40, {"w": noise((4 << 20,), np.float32, 1)}).wait()
            client.save(50, {"w": noise((4 << 20,), np.float32, 1)}).wait()

        on_ranks(cluster, work)


@pytest.mark.parametrize("status", [503, 403], ids=["is tried again", "is final"])
def test_jobs_are_listed_beside_one_whose_storage_fails(told, status):
    with cairn.local.Cluster(ranks=1, root=told.root, job="other") as cluster:
        on_ranks(cluster, lambda _, client: client.save(7, {"w": np.zeros(4)}).wait())

    def asked(*arguments):
        done = subprocess.run([f"{os.environ['CAIRN_BIN_DIR']}/cairn", "--format=json", "jobs", *arguments],
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return {job["job"]: job for job in json.loads(done.stdout)["jobs"]}

    with cairn.local.Cluster(ranks=1, root=told.root, job="demo") as cluster:
        told.answer = lambda method, path: (status, "") if "/other/" in path.replace("%2F", "/") else None
        # The second call does not wait for what the first one has waited for.
        for _ in range(2):
            jobs = asked(f"--coordinator={cluster.coordinator.address}")
            assert jobs["demo"]["last_committed_step"] == 30 and jobs["demo"]["error"] is None, jobs
            assert jobs["other"]["error"]["reason"] in ("STORAGE_STALLED", "STORAGE_ERROR", "STORAGE_READ_ONLY"), jobs
        told.answer = None


def test_records_of_a_coordinator_that_were_removed_end_it(told, endpoint):
    """Else a second one would take the same number, and both would serve."""
    with cairn.local.Cluster(ranks=1, root=told.root) as first:
        store = amazons_client(endpoint)
        epochs = told.job.replace("demo/", ".cairn/epochs/")
        for entry in store.list_objects_v2(Bucket="models", Prefix=epochs)["Contents"]:
            store.delete_object(Bucket="models", Key=entry["Key"])
        with cairn.local.Cluster(ranks=1, root=told.root) as second:

            def refused(_, client):
                with pytest.raises(cairn.Error, match=r"ROOT_IN_USE|COORDINATOR"):
                    client.save(60, {"w": noise((64,), np.float32, 1)}).wait()

            def saved(_, client):
                client.save(70, {"w": noise((64,), np.float32, 1)}).wait()

            on_ranks(second, saved)
            on_ranks(first, refused)
