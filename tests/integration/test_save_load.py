"""Tests saves and loads through real processes, with ranks as threads."""


import numpy as np
import pytest

import cairn
from testing.ranks import blank, noise, on_ranks, rows


def model(seed=0) -> dict[str, np.ndarray]:
    return {
        "embedding": noise((1003, 16), np.float32, seed),
        "layers.0.weight": noise((64, 48), np.float32, seed + 1),
        "layers.1.weight": noise((5, 48), np.float16, seed + 2),  # fewer rows than some worlds have ranks
        "cube": noise((7, 6, 5), np.int64, seed + 3),
        "flags": noise((33,), bool, seed + 4),
        "complex": noise((9, 3), np.complex64, seed + 5),
        "scalar": noise((), np.float64, seed + 6),
        "nothing": np.zeros((0, 4), np.float32),
    }


def cut(whole: dict[str, np.ndarray], rank: int, world: int, axis: int = 0) -> dict:
    """Cuts tensors of one dimension and more into parts, and leaves the others whole."""
    return {name: rows(array, rank, world, min(axis, array.ndim - 1)) if array.ndim else array.copy()
            for name, array in whole.items()}


def blanks(state: dict) -> dict:
    return {name: blank(value) if isinstance(value, cairn.Shard) else np.zeros_like(value)
            for name, value in state.items()}


def assert_equal(target: dict, expected: dict) -> None:
    for name, value in expected.items():
        a, b = (getattr(x, "array", x) for x in (target[name], value))
        assert a.tobytes() == b.tobytes(), name


def test_same_layout_several_steps(root):
    with cairn.local.Cluster(ranks=3, root=root) as cluster:
        def work(rank, client):
            assert (client.rank, client.world_size, client.job) == (rank, 3, "demo")
            client.prepare(cut(model(), rank, 3))
            for step in (10, 20, 30):
                checkpoint = client.save(step, {**cut(model(step), rank, 3), "progress": {"step": step}}).wait()
                assert (checkpoint.step, checkpoint.job, checkpoint.world_size) == (step, "demo", 3)
            assert client.checkpoints() == [10, 20, 30]
            for step in (None, 10, 20):
                expected = cut(model(step or 30), rank, 3)
                target = {**blanks(expected), "progress": {}}
                report = client.load(target, step=step)
                assert_equal(target, expected)
                assert report.step == (step or 30) and report.objects == {"progress": {"step": step or 30}}
                assert report.missing == report.unexpected == []
                assert report.total_bytes_read == report.unique_bytes > 0

        on_ranks(cluster, work)


@pytest.mark.parametrize("source, target", [(4, 2), (2, 4), (1, 3), (3, 1)])
def test_other_world_and_other_cut(root, source, target):
    whole = model(7)
    with cairn.local.Cluster(ranks=source, root=root) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(5, cut(whole, rank, source, axis=0)).wait())
    with cairn.local.Cluster(ranks=target, root=root) as cluster:
        for axis in (0, 1, 2):
            def work(rank, client):
                expected = cut(whole, rank, target, axis)
                state = blanks(expected)
                report = client.load(state)
                assert_equal(state, expected)
                return report

            reports = on_ranks(cluster, work)
            assert {report.total_bytes_read for report in reports} == {reports[0].unique_bytes}
            assert sum(report.bytes_read for report in reports) == reports[0].unique_bytes


def test_parts_of_tensors_are_read_alone(root):
    """A load of half of one tensor reads no more than that."""
    whole = noise((1024, 256), np.float32, 1)
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, {"w": rows(whole, rank, 2), "x": whole}).wait())

        def work(rank, client):
            part = np.zeros((512, 128), np.float32)
            report = client.load({"w": cairn.Shard(part, (1024, 256), (256, 128 * rank))}, strict=False)
            assert part.tobytes() == whole[256:768, 128 * rank:128 * rank + 128].tobytes()
            assert report.unexpected == ["x"]
            return report

        for report in on_ranks(cluster, work):
            assert report.unique_bytes == report.total_bytes_read == 512 * 256 * 4


def test_replicas_are_written_once(root):
    whole = noise((1 << 18,), np.float32, 1)
    with cairn.local.Cluster(ranks=4, root=root) as cluster:
        checkpoint = on_ranks(cluster, lambda rank, client: client.save(1, {"w": whole}).wait())[0]
        files = sum(path.stat().st_size for path in (root / checkpoint.data_directory).glob("*.safetensors"))
        assert whole.nbytes <= files < whole.nbytes + (1 << 17)

        def work(rank, client):
            target = np.zeros_like(whole)
            report = client.load({"w": target})
            assert target.tobytes() == whole.tobytes()
            return report

        assert {r.total_bytes_read for r in on_ranks(cluster, work)} == {whole.nbytes}


def test_objects_and_aliases(root):
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        def save(rank, client):
            state = {
                "w": np.arange(6.0),
                "tied": cairn.alias("w"),
                "json": {"a": [1, None, "ü"]},
                "bytes": b"\0" * 9000,
                "mine": cairn.per_rank({"rank": rank}),
            }
            client.save(1, state).wait()
            report = client.load({"w": np.zeros(6), "tied": cairn.alias("w"), "json": None, "bytes": b"",
                                  "mine": cairn.per_rank(None)})
            assert report.objects == {"json": {"a": [1, None, "ü"]}, "bytes": b"\0" * 9000, "mine": {"rank": rank}}
            # A load also gives objects that the state does not name, and they are not "unexpected".
            report = client.load({"w": np.zeros(6), "tied": cairn.alias("w")})
            assert report.objects["mine"] == {"rank": rank} and report.unexpected == []

        on_ranks(cluster, save)
    with cairn.local.Cluster(ranks=3, root=root) as cluster:
        reports = on_ranks(cluster, lambda rank, client: client.load({"w": np.zeros(6), "tied": cairn.alias("w")}))
        assert all(report.objects["mine"] == [{"rank": 0}, {"rank": 1}] for report in reports)


def test_only_objects(root):
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, {"o": 1}).wait())
        assert [r.objects for r in on_ranks(cluster, lambda rank, client: client.load({}))] == [{"o": 1}] * 2


def test_layout_that_changes_between_saves(root):
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        def work(rank, client):
            for step, size in enumerate((100, 101, 100, 5000)):
                whole = noise((size, 3), np.float32, step)
                client.save(step, {"w": rows(whole, rank, 2), "o": "x" * size}).wait()
                target = blank(rows(whole, rank, 2))
                report = client.load({"w": target, "o": ""})
                assert target.array.tobytes() == rows(whole, rank, 2).array.tobytes()
                assert report.objects == {"o": "x" * size}

        on_ranks(cluster, work)


def test_save_of_an_earlier_step_waits_for_the_one_that_began_before(root):
    state = {"w": np.arange(1000.0)}
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        def work(rank, client):
            later = client.save(3, state, timeout=60)
            earlier = client.save(2, state, timeout=60)  # the memory is the later one's until that is committed
            return [earlier.wait(60).step, later.wait(60).step]

        assert on_ranks(cluster, work) == [[2, 3]] * 2


def test_rank_whose_layout_alone_changes(root):
    """The others stage under the old plan. The save ends as committed or LAYOUT_CHANGED, and the next one is
    committed."""
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        def work(rank, client):
            a, b = noise((64, 4), np.float32, 1), noise((50, 4), np.float32, 2)
            client.save(1, {"a": rows(a, rank, 2)}).wait()
            state = {"a": rows(a, rank, 2)}
            if rank == 1:
                state["b"] = b
            outcomes = []
            for step in (2, 3):
                try:
                    client.save(step, state).wait()
                    outcomes.append("")
                except cairn.Error as error:
                    outcomes.append(error.reason)
            return outcomes

        outcomes = on_ranks(cluster, work)
        assert outcomes[0] == outcomes[1]
        assert outcomes[0][0] in ("", "LAYOUT_CHANGED") and outcomes[0][1] == ""


def test_staged_copy_is_what_is_saved(root):
    """save() has copied when it returns: later changes are not in the checkpoint."""
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        def work(rank, client):
            whole = np.arange(1 << 20, dtype=np.float32)
            shard = rows(whole, rank, 2)
            saving = client.save(1, {"w": shard})
            shard.array[:] = -1
            saving.wait()
            target = blank(shard)
            client.load({"w": target})
            assert target.array.tobytes() == rows(whole, rank, 2).array.tobytes()

        on_ranks(cluster, work)


def test_two_jobs_and_a_job_with_slashes(root):
    for job, value in (("team/run-1", 1.0), ("team/run-2", 2.0)):
        with cairn.local.Cluster(ranks=1, root=root, job=job) as cluster:
            on_ranks(cluster, lambda rank, client: client.save(1, {"w": np.full(3, value)}).wait())
    with cairn.local.Cluster(ranks=1, root=root, job="team/run-1") as cluster:
        target = np.zeros(3)
        on_ranks(cluster, lambda rank, client: client.load({"w": target}))
        assert (target == 1.0).all()


def test_names_of_every_kind(root):
    names = ["a b", "ü.漢字", "quote\"backslash\\", "x" * 200, "__metadata__x", "a/b", "..", "emoji🎉"]
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        def work(rank, client):
            client.save(1, {name: np.full(3, i) for i, name in enumerate(names)}).wait()
            target = {name: np.zeros(3, np.int64) for name in names}
            client.load(target)
            assert [int(array[0]) for array in target.values()] == list(range(len(names)))

        on_ranks(cluster, work)


def test_many_small_tensors(root):
    whole = {f"layers.{i}.weight": noise((8, 3), np.float32, i) for i in range(3000)}
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        def work(rank, client):
            client.save(1, cut(whole, rank, 2)).wait()
            expected = cut(whole, rank, 2, axis=1)
            state = blanks(expected)
            client.load(state)
            assert_equal(state, expected)

        on_ranks(cluster, work)
