"""Mistakes of users and faults of storage: one reason each, on every rank, and never a partly visible checkpoint."""

import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

import cairn
from testing.ranks import blank, command, noise, on_ranks, reasons, rows

WHOLE = noise((64, 16), np.float32, 1)
FLAGS = {"coordinator_flags": ["--phase-timeout=10s", "--lease-ttl=3s"]}


def saved(cluster, make, step=1, **options):
    """Returns what saving make(rank) says on every rank."""
    return on_ranks(cluster, lambda rank, client: client.save(step, make(rank), timeout=20, **options).wait(60),
                    errors=True)


def box(array, global_shape, offset):
    return cairn.Shard(array, global_shape, offset)


@pytest.mark.parametrize("name, make, reason", [
    ("outside", lambda rank: {"w": box(np.zeros((4, 2)), (8, 2), (4 * rank + 1, 0))}, "SHARD_OUT_OF_BOUNDS"),
    ("gap", lambda rank: {"w": box(np.zeros((3, 2)), (8, 2), (4 * rank, 0))}, "SHARD_GAP"),
    ("overlap", lambda rank: {"w": box(np.zeros((5, 2)), (8, 2), (3 * rank, 0))}, "SHARD_OVERLAP"),
    ("dtype", lambda rank: {"w": box(np.zeros((4, 2), [np.float32, np.int32][rank]), (8, 2), (4 * rank, 0))},
     "DTYPE_MISMATCH"),
    ("shape", lambda rank: {"w": box(np.zeros((4, 2)), (8 + rank, 2), (4 * rank, 0))}, "SHAPE_MISMATCH"),
    ("slice as whole", lambda rank: {"w": np.full((4, 2), rank)}, "REPLICA_MISMATCH"),
    ("own and shared", lambda rank: {"w": cairn.per_rank("x" * 9000) if rank else 1}, "NAME_COLLISION"),
    ("alias to nothing", lambda rank: {"w": np.zeros(2), "b": cairn.alias("c")}, "ALIAS_UNRESOLVED"),
])
def test_layouts_that_do_not_fit(root, name, make, reason):
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        answers = saved(cluster, make)
        assert reasons(answers) == [reason] * 2, answers
        assert all("w" in answer.message or reason == "ALIAS_UNRESOLVED" for answer in answers)
        if reason in ("SHARD_OUT_OF_BOUNDS", "SHARD_OVERLAP", "DTYPE_MISMATCH", "REPLICA_MISMATCH"):
            assert "1" in answers[0].metadata.get("ranks", answers[0].message)
        # The next save, with a right layout, works.
        assert reasons(saved(cluster, lambda rank: {"w": rows(WHOLE, rank, 2)}, step=2)) == ["", ""]
        with cluster.connect(0) as client:
            assert client.checkpoints() == [2]


def test_replica_that_differs_names_tensor_and_ranks(root):
    with cairn.local.Cluster(ranks=3, root=root, **FLAGS) as cluster:
        answers = saved(cluster, lambda rank: {"good": np.arange(9), "bad.weight": np.arange(4) + (rank == 2)})
        assert reasons(answers) == ["REPLICA_MISMATCH"] * 3
        assert "bad.weight" in answers[0].message and "2" in answers[0].message


def test_step_that_is_committed(root):
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        make = lambda rank: {"w": rows(WHOLE, rank, 2)}
        assert reasons(saved(cluster, make)) == ["", ""]
        assert reasons(saved(cluster, make)) == ["STEP_COMMITTED"] * 2
        done = command("save", "demo", "--step=1", f"--coordinator={cluster.coordinator.address}", expect=1)
        assert "STEP_COMMITTED" in done.stderr


def test_names_that_were_dropped(root):
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        assert reasons(saved(cluster, lambda rank: {"w": WHOLE, "optimizer.w": WHOLE})) == ["", ""]
        answers = saved(cluster, lambda rank: {"w": WHOLE}, step=2)
        assert reasons(answers) == ["NAMES_DROPPED"] * 2 and "optimizer.w" in answers[0].message
        assert answers[0].message.count("demo@") == 1, answers[0].message
        assert reasons(saved(cluster, lambda rank: {"w": WHOLE}, step=3, allow_dropped_names=True)) == ["", ""]


def test_names_of_aliases_are_names(root):
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        both = {"w": WHOLE, "head": WHOLE}
        tied = {"w": WHOLE, "head": cairn.alias("w")}
        assert reasons(saved(cluster, lambda rank: both)) == ["", ""]
        assert reasons(saved(cluster, lambda rank: tied, step=2)) == ["", ""], "no name is gone"
        answers = saved(cluster, lambda rank: {"w": WHOLE}, step=3)
        assert reasons(answers) == ["NAMES_DROPPED"] * 2 and "head" in answers[0].message
        assert reasons(saved(cluster, lambda rank: both, step=4)) == ["", ""]


def test_missing_and_unexpected_names(root):
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        assert reasons(saved(cluster, lambda rank: {"a": WHOLE, "b": WHOLE})) == ["", ""]

        def load(state, strict):
            return on_ranks(cluster, lambda rank, client: client.load(state(), strict=strict), errors=True)

        answers = load(lambda: {"a": WHOLE.copy(), "b": WHOLE.copy(), "new": np.zeros(3)}, True)
        assert reasons(answers) == ["MISSING_NAMES"] * 2 and "new" in answers[0].message
        answers = load(lambda: {"a": WHOLE.copy()}, True)
        assert reasons(answers) == ["UNEXPECTED_NAMES"] * 2 and "b" in answers[0].message
        for report in load(lambda: {"a": WHOLE.copy(), "new": np.zeros(3)}, False):
            assert (report.missing, report.unexpected) == (["new"], ["b"])
        answers = load(lambda: {"a": np.zeros(WHOLE.shape), "b": WHOLE.copy()}, True)
        assert reasons(answers) == ["DTYPE_MISMATCH"] * 2
        answers = load(lambda: {"a": np.zeros((3, 3), np.float32), "b": WHOLE.copy()}, True)
        assert reasons(answers) == ["SHAPE_MISMATCH"] * 2


def test_Load_ManyNamesAreUnexpected_TellsTheFirstOnes(root):
    names = [f"{number:05}.{'weight' * 20}" for number in range(36_000)]  # more than a message to an agent holds
    with cairn.local.Cluster(ranks=1, root=root) as cluster, cluster.connect(0) as client:
        zero = np.zeros(1, np.uint8)
        client.save(1, dict.fromkeys(names, zero), timeout=120).wait()
        report = client.load({}, strict=False, timeout=60)
    assert report.unexpected == names[:(64 << 10) // len(names[0])]


def test_trainer_that_has_gone_on_from_what_is_no_step(root):
    with cairn.local.Cluster(ranks=1, root=root) as cluster, cluster.connect(0) as client:
        client._lineage.note_load(7, -5)
        with pytest.raises(cairn.Error) as refused:
            client.save(1, {"w": np.zeros(3)}).wait()
        assert refused.value.reason == "BAD_STEP" and "step -5" in refused.value.message
        assert client.checkpoints() == []


def test_step_that_was_never_saved(root):
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        for step in (None, 7):
            answers = on_ranks(cluster, lambda rank, client: client.load({"w": WHOLE.copy()}, step=step), errors=True)
            assert reasons(answers) == ["NOT_COMMITTED"] * 2


def load_error(root, ranks=2):
    """Returns what a load of the root's only step says."""
    with cairn.local.Cluster(ranks=ranks, root=root, **FLAGS) as cluster:
        return on_ranks(cluster, lambda rank, client: client.load({"w": blank(rows(WHOLE, rank, ranks))}), errors=True)


def one_checkpoint(root) -> pathlib.Path:
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        answers = saved(cluster, lambda rank: {"w": rows(WHOLE, rank, 2)})
        assert reasons(answers) == ["", ""]
        return root / answers[0].data_directory


@pytest.mark.parametrize("damage, loads, verifies", [
    ("flip", "CHECKSUM_MISMATCH", "CHECKSUM_MISMATCH"),
    ("truncate", "FILE_TRUNCATED", "FILE_TRUNCATED"),
    ("remove", "FILE_MISSING", "FILE_MISSING"),
    ("header", "CHECKSUM_MISMATCH", "CHECKSUM_MISMATCH"),
])
def test_damaged_bins(root, damage, loads, verifies):
    directory = one_checkpoint(root)
    file = max(directory.glob("*.safetensors"), key=lambda path: path.name)
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[-5] ^= 0x10
    elif damage == "header":
        data[20] ^= 1
    if damage == "truncate":
        os.truncate(file, len(data) - 100)
    elif damage == "remove":
        file.unlink()
    else:
        file.write_bytes(data)
    answers = load_error(root)
    assert reasons(answers) == [loads] * 2, answers
    assert file.name.removesuffix(".safetensors") in answers[0].message
    done = command("verify", "demo@1", f"--root={root}", expect=1)
    assert file.name in done.stdout + done.stderr and "Traceback" not in done.stderr
    if damage == "flip":
        assert "w" in done.stdout + done.stderr


def test_damaged_manifest(root):
    directory = one_checkpoint(root)
    outcome = next(directory.parent.glob("*.verdict"))
    data = bytearray(outcome.read_bytes())
    data[len(data) // 2] ^= 1
    outcome.write_bytes(data)
    assert set(reasons(load_error(root))) <= {"MANIFEST_CORRUPT", "NOT_COMMITTED"}
    done = command("show", "demo@1", f"--root={root}", expect=1)
    assert "MANIFEST_CORRUPT" in done.stderr


@pytest.mark.parametrize(
    "job", ["Upper", "a//b", "/a", "a/", "..", "a/../b", "", "x" * 3000, "-a", "a b", "123456789012"]
)
def test_bad_job_names(root, job):
    with pytest.raises(cairn.Error) as caught:
        with cairn.local.Cluster(ranks=1, root=root, job=job):
            pass
    assert caught.value.reason in ("BAD_JOB_NAME", "BAD_REQUEST"), caught.value


def agent_process(cluster, name, rank, world, *flags):
    return subprocess.Popen(
        [str(cairn.local.binary("cairn-agent")), f"--coordinator={cluster.coordinator.address}", "--job=demo",
         f"--rank={rank}", f"--world-size={world}", f"--root={cluster.root}",
         f"--socket-directory={cluster.directory}/{name}", *flags],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("rank, world, reason", [(1, 2, "RANK_CONFLICT"), (2, 3, "WORLD_SIZE_MISMATCH"),
                                                 (5, 2, "RANK_OUT_OF_RANGE")])
def test_agent_that_does_not_belong_to_the_job(root, rank, world, reason):
    """It is refused with a reason and does not disturb the job. It may go on trying, as the holder's lease could
    end."""
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        process = agent_process(cluster, "other", rank, world)
        watch = threading.Timer(30, process.kill)
        watch.start()
        try:
            assert any(reason in line for line in process.stderr), reason
            assert reasons(saved(cluster, lambda rank: {"w": rows(WHOLE, rank, 2)})) == ["", ""]
        finally:
            watch.cancel()
            process.kill()
            process.wait()
            process.stderr.close()


def test_storage_that_cannot_be_written(root):
    root.write_text("a file where a directory should be")
    with pytest.raises((cairn.Error, OSError)):
        with cairn.local.Cluster(ranks=1, root=root):
            pass


def test_socket_directory_that_cannot_be_used(root, tmp_path):
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        for directory in (shared, tmp_path / ("x" * 120), "/proc/nothing"):
            done = subprocess.run(
                [str(cairn.local.binary("cairn-agent")), f"--coordinator={cluster.coordinator.address}", "--job=other",
                 "--rank=0", "--world-size=1", f"--root={root}", f"--socket-directory={directory}"],
                capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            assert done.returncode == 1 and "SOCKET_DIRECTORY" in done.stderr, (directory, done)


def test_memory_budget_below_the_state(root):
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=["--memory-budget=1MiB"], **FLAGS) as cluster:
        large = np.zeros(4 << 20, np.uint8)
        answers = saved(cluster, lambda rank: {"w": rows(large, rank, 2)})
        assert reasons(answers) == ["MEMORY_LIMIT"] * 2, answers


def test_peer_of_another_user_is_refused(root):
    if os.getuid() != 0:
        pytest.skip("needs root to become another user")
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        socket = cluster.agents[0].address.removeprefix("unix:")
        os.chmod(cluster.directory, 0o755)
        os.chmod(os.path.dirname(socket), 0o755)
        os.chmod(socket, 0o777)
        code = (
            "import os, sys\nimport cairn\n"
            "try: cairn.connect(sys.argv[1] + '.none', timeout=0.2)\nexcept cairn.Error: pass\n"  # imports what is lazy
            "os.setuid(65534)\n"
            "try: cairn.connect(sys.argv[1])\nexcept cairn.Error as error: print(error.reason)\n"
        )
        done = subprocess.run([sys.executable, "-c", code, socket], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1])})
        assert done.stdout == "PEER_UID\n", done


def test_full_disk_gives_a_reason_and_the_space_back(tmp_path):
    """The disk is a tmpfs of 24 MiB in namespaces of our own, into which a second checkpoint does not fit."""
    code = """
import pathlib, shutil, sys
import numpy as np
import cairn
from testing.ranks import on_ranks, reasons
root = pathlib.Path(sys.argv[1])
with cairn.local.Cluster(ranks=2, root=root, coordinator_flags=["--phase-timeout=10s"]) as cluster:
    def save(step, size):
        def on_rank(rank, client):
            client.save(step, {f"w{rank}": np.ones(size, np.uint8)}).wait(60)
        answers = on_ranks(cluster, on_rank, errors=True)
        for error in filter(None, answers):
            assert f"`cairn doctor --root {root}` says" in str(error), error
        return reasons(answers)
    assert save(1, 4 << 20) == ["", ""]
    free = shutil.disk_usage(root).free
    full = save(2, 12 << 20)
    assert full == ["NO_SPACE"] * 2, full
    assert shutil.disk_usage(root).free > free - (1 << 20), (free, shutil.disk_usage(root).free)
    assert save(3, 4 << 20) == ["", ""]
    with cluster.connect(0) as client:
        assert client.checkpoints() == [1, 3]
print("done")
"""
    run_in_namespace(tmp_path, "mount -t tmpfs -o size=24m tmpfs \"$1\"", code)


def test_small_dev_shm_does_not_matter(tmp_path):
    """/dev/shm has 64 MB, as in containers; a larger state is saved and loaded all the same."""
    code = """
import os, pathlib, sys
import numpy as np
import cairn
from testing.ranks import blank, noise, on_ranks, rows
assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 64 << 20
whole = noise((160, 1 << 20), np.uint8, 1)
with cairn.local.Cluster(ranks=2, root=sys.argv[1]) as cluster:
    def work(rank, client):
        client.save(1, {"w": rows(whole, rank, 2)}).wait()
        target = blank(rows(whole, rank, 2, axis=1))
        client.load({"w": target})
        assert (target.array == rows(whole, rank, 2, axis=1).array).all()
    on_ranks(cluster, work)
print("done")
"""
    run_in_namespace(tmp_path, "mount -t tmpfs -o size=64m tmpfs /dev/shm", code)


def run_in_namespace(directory: pathlib.Path, mount: str, code: str) -> None:
    """Runs Python code in user and mount namespaces of its own, after a mount."""
    paths = os.pathsep.join([str(pathlib.Path(cairn.__file__).parents[1]), str(pathlib.Path(__file__).parents[1])])
    place = directory / "mounted"
    place.mkdir()
    try_it = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], capture_output=True)
    if try_it.returncode != 0:
        pytest.skip("this machine gives no user namespaces")
    done = subprocess.run(
        [
            "unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", mount + ' && exec "$2" -c "$3" "$1"',
            "sh", str(place), sys.executable, code],
        capture_output=True,
        text=True,
        timeout=180,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr
