"""Tests dicts with keys that name a rank, with real processes: each rank saves and loads its own."""

import pytest

torch = pytest.importorskip("torch")

import cairn
import cairn.torch
from testing.ranks import on_ranks, reasons


@pytest.mark.parametrize("key", ["dp_rank_{}", "rank{}"])
@pytest.mark.parametrize("nested", [False, True])
def test_Save_ADictWithAKeyOfEachRank_EachRankGetsItsOwnBack(tmp_path, key, nested):
    def state(rank, position, seed=0):
        loader = {key.format(rank): {"at": position, "seen": {7: "a"}}, "seed": seed}
        return {"w": torch.ones(1), "loader": {"train": loader, "epoch": seed} if nested else loader}

    def save(step):
        return lambda rank, client: cairn.torch.save(client, step, state(rank, 10 * rank, 5)).wait()

    def load(rank, client):
        target = state(rank, 0)
        cairn.torch.load(client, target)
        assert target == {**state(rank, 10 * rank, 5), "w": target["w"]}

    with cairn.local.Cluster(ranks=3, root=tmp_path) as cluster:
        on_ranks(cluster, save(1))
        on_ranks(cluster, load)
        on_ranks(cluster, save(2))
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        on_ranks(cluster, load)
        on_ranks(cluster, save(3))
    with cairn.local.Cluster(ranks=3, root=tmp_path) as cluster:
        answers = on_ranks(cluster, load, errors=True)
        assert set(reasons(answers)) == {"MISSING_NAMES"} and "loader" in str(answers[2]), answers


def test_Load_WhatStandsBesideSuchKeys_IsUnexpectedIfTheStateLacksIt(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path) as cluster, cluster.connect(0) as client:
        best = {"rank1": 0.5, "mean": 0.9}  # of a metric, which looks the same
        cairn.torch.save(client, 1, {"best": best}).wait()
        with pytest.raises(cairn.Error) as refused:
            cairn.torch.load(client, {"best": {"rank1": 0}})
        assert refused.value.reason == "UNEXPECTED_NAMES" and "best.mean" in refused.value.message
        for target in ({}, {"rank1": 0, "mean": 0}):
            state = {"best": target}
            cairn.torch.load(client, state)
            assert state["best"] == best
