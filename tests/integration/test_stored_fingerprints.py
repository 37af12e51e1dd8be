"""The fingerprints of a stored step are those of the program that saved it, and of one that has loaded it."""

import numpy as np

import cairn
from testing.ranks import command_json, noise, on_ranks

MATRIX = noise((64, 50), np.float32, 7)
COUNTS = noise((12,), np.int64, 8)
COLUMNS = [slice(0, 20), slice(20, 50)]
PIECES = [(0, 7), (7, 12)]


def state(rank: int, matrix: np.ndarray, counts: np.ndarray) -> dict[str, object]:
    """Columns of one tensor, a flat piece of another."""
    begin, end = PIECES[rank]
    return {"w": cairn.Shard(matrix[:, COLUMNS[rank]], matrix.shape, (0, COLUMNS[rank].start)),
            "n": cairn.Shard(counts[begin:end], counts.shape, (0,), counts.shape, (begin, end)), "step": 3}


def test_program_and_storage_have_the_same_fingerprints(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root", job="demo") as cluster:
        def save(rank, client):
            client.save(3, state(rank, MATRIX, COUNTS)).wait()
            return cairn.fingerprint(state(rank, MATRIX, COUNTS))

        def load(rank, client):
            # Other memory, in another order of axes.
            target = state(rank, np.zeros(MATRIX.shape, MATRIX.dtype, order="F"), np.zeros_like(COUNTS))
            client.load(target)
            return cairn.fingerprint(target)

        saved = cairn.fingerprints.add(on_ranks(cluster, save))
        loaded = cairn.fingerprints.add(on_ranks(cluster, load))
    stored = command_json("verify", "demo@3", "--root", str(tmp_path / "root"), "--fingerprints")["fingerprints"]
    assert stored == {name: str(one) for name, one in saved.items()}
    assert loaded == saved
    assert stored["w"] == str(cairn.fingerprint({"w": MATRIX})["w"])
