"""Tests that a program can go back to earlier checkpoints more than once, with the same state."""

import collections

import pytest

torch = pytest.importorskip("torch")

import cairn
import cairn.torch
from cairn.torch import CheckpointManager


def test_Restore_Repeatedly_PutsTheGeneratorsBackEachTime(tmp_path):
    with (cairn.local.Cluster(ranks=1, root=tmp_path) as cluster, cluster.connect(0) as client,
          CheckpointManager(client, every_steps=1, handle_sigterm=False) as manager):
        state = {"w": torch.zeros(3), "rng": cairn.torch.rng_state()}
        drawn = {}
        for step in (1, 2, 3):
            torch.manual_seed(step)
            manager.save(step, {**state, "rng": cairn.torch.rng_state()}).wait()
            drawn[step] = torch.rand(1)
        for step in (2, 1, 2):
            torch.manual_seed(77)
            assert manager.restore_or_initialize(state, step=step) == step
            assert torch.equal(torch.rand(1), drawn[step])


def test_Manager_ObjectsInDictsOfAnyClass_ComeBack(tmp_path):
    with (cairn.local.Cluster(ranks=1, root=tmp_path) as cluster, cluster.connect(0) as client,
          CheckpointManager(client, every_steps=1, handle_sigterm=False) as manager):
        def program(value):
            layer = torch.nn.Linear(2, 2)
            torch.nn.init.constant_(layer.weight, value)
            deeper = collections.defaultdict(dict, c=torch.nn.Linear(1, 1))
            return {"models": collections.OrderedDict(a=layer, b=deeper)}

        saved = program(3.0)
        manager.save(1, saved).wait()
        state = program(0.0)
        assert manager.restore_or_initialize(state) == 1
        assert torch.equal(state["models"]["a"].weight, saved["models"]["a"].weight)
        assert torch.equal(state["models"]["b"]["c"].weight, saved["models"]["b"]["c"].weight)
        assert type(state["models"]) is collections.OrderedDict
