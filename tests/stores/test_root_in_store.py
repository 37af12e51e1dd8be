"""Real processes with a root in an object store."""

import json
import os
import subprocess
import time

import numpy as np

import cairn
from stores.fault_proxy import FaultProxy
from stores.server import amazons_client
from testing.ranks import blank, noise, on_ranks, rows

WHOLE = {"large": noise((4096, 1400), np.float32, 1), "small": noise((33, 17), np.float16, 2)}


def save_and_load(root: str) -> None:
    with cairn.local.Cluster(ranks=2, root=root) as cluster:

        def work(rank, client):
            state = {name: rows(array, rank, 2) for name, array in WHOLE.items()}
            for step in (10, 20):
                client.save(step, {**state, "progress": {"step": step}}).wait()
            assert client.checkpoints() == [10, 20]
            target = {**{name: blank(shard) for name, shard in state.items()}, "progress": {}}
            report = client.load(target)
            assert report.step == 20 and report.total_bytes_read == report.unique_bytes
            for name, shard in state.items():
                assert target[name].array.tobytes() == shard.array.tobytes(), name

        on_ranks(cluster, work)


def test_what_was_saved_is_loaded_and_read_by_commands(use):
    root = "s3://models/plain"
    save_and_load(root)
    for command in ("list demo", "verify demo@20", "diff demo@10 demo@20", "jobs"):
        result = subprocess.run(
            [f"{os.environ['CAIRN_BIN_DIR']}/cairn", *command.split(), "--root", root], capture_output=True, text=True
        )
        assert "20" in result.stdout and "error" not in result.stderr, (command, result.stdout, result.stderr)


def test_a_prefix_without_objects_becomes_a_root(use):
    command = [f"{os.environ['CAIRN_BIN_DIR']}/cairn", "run", "--root", "s3://models/new", "--ranks", "1", "--", "true"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_doctor_tells_what_it_sees_of_a_store(use, endpoint):
    root = "s3://models/doctor"
    store = amazons_client(endpoint)
    store.put_object(Bucket="models", Key="doctor/any", Body=b"1")
    store.create_multipart_upload(Bucket="models", Key="doctor/demo/left")
    result = subprocess.run(
        [f"{os.environ['CAIRN_BIN_DIR']}/cairn", "doctor", "--root", root], capture_output=True, text=True
    )
    assert "1 upload is unfinished" in result.stdout, result.stdout + result.stderr
    assert "the storage's clock is" in result.stdout
    assert "ROOT_MISSING" not in result.stdout


def test_doctor_tells_what_it_sees_of_a_mirror(use, endpoint, tmp_path):
    def findings(*arguments: str, status: int = 0) -> dict[str, dict]:
        result = subprocess.run([f"{os.environ['CAIRN_BIN_DIR']}/cairn", "doctor", "--format=json", *arguments],
                                capture_output=True, text=True)
        assert result.returncode == status, result.stdout + result.stderr
        return {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}

    root, mirror = tmp_path / "root", "s3://models/doctors-mirror"
    root.mkdir()
    store = amazons_client(endpoint)
    empty = findings(f"--root={root}", f"--mirror={mirror}")
    assert empty["mirror"]["level"] == "ok" and "is empty" in empty["mirror owner"]["text"]
    assert not store.list_objects_v2(Bucket="models", Prefix="doctors-mirror/").get("Contents")
    with cairn.local.Cluster(ranks=1, root=root, coordinator_flags=[f"--mirror={mirror}"]) as cluster:
        deadline = time.monotonic() + 60
        while True:
            found = findings(f"--root={root}", f"--mirror={mirror}")
            if found["mirror owner"]["text"] == f"{mirror} is the mirror of {root}":
                break
            assert time.monotonic() < deadline, found
        assert found["mirror holder"]["level"] == "ok"
        assert f"process {cluster.coordinator.pid} " in found["mirror holder"]["text"]
        store.create_multipart_upload(Bucket="models", Key="doctors-mirror/demo/left")
        found = findings(f"--root={root}", f"--mirror={mirror}")
        assert "1 upload is unfinished" in found["mirror uploads"]["text"] and "mirror clock" in found
    (tmp_path / "other").mkdir()
    other = findings(f"--root={tmp_path / 'other'}", f"--mirror={mirror}", status=1)
    assert other["mirror owner"]["level"] == "fault" and "mirror" not in other, other
    store.put_object(Bucket="models", Key="doctors-files/any", Body=b"1")
    files = findings(f"--root={root}", "--mirror=s3://models/doctors-files", status=1)["mirror owner"]
    assert files["level"] == "fault" and "has any" in files["text"], files
    absent = findings(f"--root={root}", "--mirror=s3://absent/x", status=1)["mirror"]
    assert absent["level"] == "fault" and "NoSuchBucket" in absent["text"] and absent["next"], absent


def assert_parts_have_no_gaps(requests):
    """Amazon refuses an upload whose parts have numbers with gaps; the stores of these tests do not."""
    numbers = {}
    for method, path in requests:
        key, _, query = path.partition("?")
        if method == "PUT" and "partNumber=" in query:
            numbers.setdefault(key, set()).add(int(query.partition("partNumber=")[2].partition("&")[0]))
    assert numbers and max(len(found) for found in numbers.values()) > 1
    for key, found in numbers.items():
        assert found == set(range(1, len(found) + 1)), (key, found)


def test_the_parts_of_a_saved_file_have_numbers_without_gaps(use, endpoint):
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    try:
        save_and_load("s3://models/parts")
    finally:
        proxy.close()
    assert_parts_have_no_gaps(proxy.requests)


def test_a_disturbed_store_only_slows(use, endpoint):
    proxy = FaultProxy(endpoint, probability=0.1, kinds=("slow_down", "late_error", "reset", "late_reset", "truncated"))
    use(proxy.endpoint)
    try:
        save_and_load("s3://models/disturbed")
    finally:
        proxy.close()
    assert sum(proxy.met.values()) > 5


def reads_of(requests):
    return [path for method, path in requests if method == "GET" and "?" not in path]


def test_a_job_of_many_steps_is_listed_without_a_read_of_each(use, endpoint):
    steps = 80
    root = "s3://models/many"
    command = [f"{os.environ['CAIRN_BIN_DIR']}/cairn", "list", "demo", "--root", root]
    with cairn.local.Cluster(ranks=1, root=root) as cluster:

        def work(rank, client):
            for step in range(steps):
                client.save(step, {"progress": {"step": step}}).wait()

        on_ranks(cluster, work)
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    store = amazons_client(endpoint)
    try:
        # The index follows the commits with some distance; a coordinator that starts makes it whole.
        with cairn.local.Cluster(ranks=1, root=root) as cluster:
            on_ranks(cluster, lambda rank, client: client.save(steps, {"progress": {}}).wait())
        proxy.requests.clear()
        whole = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert len(whole.splitlines()) == steps + 2
        assert len(reads_of(proxy.requests)) < 10, reads_of(proxy.requests)
        # What it says does not count for a record that was written anew, and nothing depends on it.
        key = "many/.cairn/index/demo/records"
        index = store.get_object(Bucket="models", Key=key)["Body"].read()
        for damaged in (index[:-1], b"", bytes([index[0] ^ 1]) + index[1:], index[:40] + bytes(8) + index[48:]):
            store.put_object(Bucket="models", Key=key, Body=damaged)
            proxy.requests.clear()
            assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == whole
            assert len(reads_of(proxy.requests)) > steps
        store.put_object(Bucket="models", Key=key, Body=index)
        store.put_object(Bucket="models", Key="many/demo/000000000007/0001.verdict", Body=b"CAIRNVRD")
        listed = subprocess.run(command, capture_output=True, text=True).stdout
        assert [line.split()[1] for line in listed.splitlines()[1:] if line.split()[0] == "7"] == ["DAMAGED"], listed
    finally:
        proxy.close()
