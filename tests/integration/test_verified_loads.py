"""Loads whose arrays are compared with the fingerprints of the checkpoint, right ones and damaged ones."""

import numpy as np
import pytest

import cairn
import cairn.torch
from cairn._load import receiver
from testing.parallel import PARAMETERS, layout
from testing.ranks import blank, command, noise, on_ranks, rows

RANKS = 4
NAMES = {"w": noise((64, 48), np.float32, 1), "same": noise((33,), np.int16, 2), "n": noise((100,), np.float64, 3)}


def state_of(rank: int, world: int = RANKS, axis: int = 0) -> dict:
    """A tensor in parts, one that all ranks have, and one in pieces that are each on two ranks."""
    begin = 50 * (rank // 2 % 2)
    return {"w": rows(NAMES["w"], rank, world, axis), "same": NAMES["same"].copy(),
            "n": cairn.Shard(NAMES["n"][begin:begin + 50].copy(), (100,), (0,), (100,), (begin, begin + 50)),
            "meta": {"rank": "all"}}


def target_of(rank: int, world: int = RANKS, axis: int = 0) -> dict:
    state = state_of(rank, world, axis)
    return {"w": blank(state["w"]), "same": np.zeros_like(NAMES["same"]), "n": blank(state["n"])}


def save(cluster) -> None:
    on_ranks(cluster, lambda rank, client: client.save(5, state_of(rank)).wait())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("verified")
    with cairn.local.Cluster(ranks=RANKS, root=root) as cluster:
        save(cluster)
        yield cluster


class Damage:
    """Changes what ranks have received: `of` is rank -> (name, element)."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[str, int]] = {}
        self.arrays: dict[int, np.ndarray] = {}  # by rank

    def do(self, declared) -> None:
        for rank, array in self.arrays.items():
            if any(np.shares_memory(array, shard.array) for shard in declared.shards):
                array.reshape(-1)[self.of[rank][1]] += 1


@pytest.fixture
def damage(monkeypatch):
    made, receive = Damage(), receiver.receive

    def damaged(agent, incarnation, number, declared, *others):
        result = receive(agent, incarnation, number, declared, *others)
        made.do(declared)
        return result

    monkeypatch.setattr(receiver, "receive", damaged)
    return made


def load(cluster, damage=None, ranks: int = RANKS, axis: int = 0, errors: bool = False, **options) -> list:
    def work(rank, client):
        target = target_of(rank, ranks, axis)
        if damage is not None and rank in damage.of:
            value = target[damage.of[rank][0]]
            damage.arrays[rank] = getattr(value, "array", value)
        report = client.load(target, verify="fingerprint", **options)
        for name, value in state_of(rank, ranks, axis).items():
            if name != "meta":
                wanted, found = (getattr(each, "array", each) for each in (value, target[name]))
                assert found.tobytes() == wanted.tobytes(), name
        return report

    return on_ranks(cluster, work, errors=errors)


def assert_mismatch(answers, names: str, ranks: str) -> None:
    for answer in answers:
        assert isinstance(answer, cairn.Error) and answer.reason == "FINGERPRINT_MISMATCH", answer
        assert (answer.metadata["names"], answer.metadata["ranks"]) == (names, ranks), answer
        assert answer.metadata["step"] == "5" and "load again" in str(answer), answer


def test_what_was_saved_is_verified(saved):
    for report in load(saved):  # from the slab
        assert (report.verified_tensors, report.mirror) == (3, "") and "3 tensors verified" in repr(report)
    assert load(saved, step=5, axis=1)[0].verified_tensors == 3  # another layout
    assert on_ranks(saved, lambda rank, client: client.load(target_of(rank)).verified_tensors) == [None] * RANKS


@pytest.mark.parametrize(("of", "names", "ranks"), [
    ({1: ("w", 7)}, "w", "0, 1, 2, 3"),  # any of them may be wrong
    ({2: ("same", 0)}, "same", "2"),
    ({3: ("n", 49)}, "n", "3"),
    ({0: ("same", 1), 1: ("same", 2), 2: ("same", 3)}, "same", "0, 1, 2"),  # the one that is right is known
    ({1: ("n", 3), 3: ("same", 5)}, "n, same", "1, 3"),
])
def test_a_damaged_array_is_named_on_all_ranks(saved, damage, of, names, ranks):
    damage.of = of
    assert_mismatch(load(saved, damage, errors=True), names, ranks)
    damage.arrays.clear()
    assert load(saved)[0].verified_tensors == 3  # the next load is one of its own


def test_a_tensor_that_was_not_filled_is_found(saved, monkeypatch):
    """A batch is counted as copied, and was not."""
    copy = receiver._copy_batch

    def leave_out(batch, buffer, targets):
        kept = [each for each in batch.copies if targets[each.target].name != "same"]
        del batch.copies[:]
        batch.copies.extend(kept)
        copy(batch, buffer, targets)

    monkeypatch.setattr(receiver, "_copy_batch", leave_out)
    assert_mismatch(load(saved, errors=True), "same", "0, 1, 2, 3")


def test_files_and_other_numbers_of_ranks(tmp_path):
    with cairn.local.Cluster(ranks=RANKS, root=tmp_path / "root") as cluster:
        save(cluster)
    for ranks in (1, 2, 3):
        with cairn.local.Cluster(ranks=ranks, root=tmp_path / "root") as cluster:
            report, *_ = load(cluster, ranks=ranks, axis=ranks % 2)
            # One rank alone has a half of "n".
            assert report.verified_tensors == (3 if ranks == 3 else 2) and report.path != "slab"


def test_flat_pieces_of_a_sharded_optimizer(tmp_path):
    with cairn.local.Cluster(ranks=4, root=tmp_path / "root") as cluster:
        on_ranks(cluster, lambda rank, client: client.save(5, layout(2, 1, 2)(rank)).wait())

        def verified(rank, client):
            target = {name: blank(shard) for name, shard in layout(1, 2, 2)(rank).items()}
            return client.load(target, verify="fingerprint").verified_tensors

        # The states are cut where the tensors' shards are cut, which is another place.
        assert on_ranks(cluster, verified) == [2 * len(PARAMETERS)] * 4


def test_names_that_a_mapping_gives(saved):
    """A renamed tensor is compared; one that is cast is another one."""
    def work(rank, client):
        target = {"v": blank(state_of(rank)["w"]), "same": np.zeros(33, np.int16),
                  "n": cairn.Shard(np.zeros((50,), np.float32), (100,), (50 * (rank // 2),))}
        report = client.load(target, mapping=["w -> v", 'n -> n, dtype="float32"'], verify="fingerprint")
        return report.verified_tensors

    assert on_ranks(saved, work) == [2] * RANKS


def test_names_that_are_missing_are_not_counted(saved):
    def work(rank, client):
        target = target_of(rank) | {"more": np.zeros(3) + rank}
        report = client.load(target, strict=False, verify="fingerprint")
        return report.verified_tensors, report.missing

    assert on_ranks(saved, work) == [(3, ["more"])] * RANKS


def test_what_has_no_fingerprints_is_refused(tmp_path):
    with cairn.local.Cluster(ranks=RANKS, root=tmp_path / "root", coordinator_flags=["--alarms=off"]) as cluster:
        save(cluster)
        for answer in load(cluster, errors=True):
            assert answer.reason == "BAD_REQUEST" and "no fingerprints" in answer.message, answer
            assert "cairn verify demo@5 --fingerprints" in answer.metadata["next"], answer
    assert "same" in command("verify", "demo@5", "--root", str(tmp_path / "root"), "--fingerprints").stdout


def test_ranks_that_do_not_agree_and_another_word(saved):
    def work(rank, client):
        client.load(target_of(rank), verify="fingerprint" if rank == 0 else None)

    answers = on_ranks(saved, work, errors=True)
    assert {answer.reason for answer in answers} == {"BAD_REQUEST"}, answers
    with pytest.raises(cairn.Error, match='None or "fingerprint"') as refusal, \
            cairn.connect(saved.agents[0].address) as client:
        client.load({}, verify="crc")
    assert refusal.value.reason == "BAD_REQUEST"


def test_state_dicts_of_torch(saved):
    torch = pytest.importorskip("torch")

    def work(rank, client):
        state = {"same": torch.zeros(33, dtype=torch.int16), "w": blank(state_of(rank)["w"]),
                 "n": blank(state_of(rank)["n"]), "meta": {"rank": ""}}
        report = cairn.torch.load(client, state, verify="fingerprint")
        assert state["same"].numpy().tobytes() == NAMES["same"].tobytes()
        return report.verified_tensors

    assert on_ranks(saved, work) == [3] * RANKS
