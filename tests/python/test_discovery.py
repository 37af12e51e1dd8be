"""Tests which agent a process finds by what launchers leave in its environment."""

import os
import pathlib
import sys
import tempfile
import types

import grpc
import pytest

import cairn
from cairn._agent import discovery
from testing.errors import raises_error
from testing.fake_agent import FakeAgent, Refusal


def find(**environment: str) -> str:
    return discovery.find(environment).address


def test_address_is_taken_as_it_is():
    assert find(CAIRN_AGENT="10.0.0.1:7") == "10.0.0.1:7"
    assert find(CAIRN_AGENT="unix:/nowhere/agent.sock", RANK="3") == "unix:/nowhere/agent.sock"


@pytest.mark.parametrize("variable", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK"])
def test_pattern_gets_the_rank_of_every_launcher(variable):
    found = discovery.find({"CAIRN_AGENT": "unix:/run/rank{rank}/agent.sock", variable: "12"})
    assert (found.address, found.rank, found.variable) == ("unix:/run/rank12/agent.sock", 12, variable)


def test_process_without_a_rank_is_the_only_one_of_its_job(tmp_path):
    pattern = f"unix:{tmp_path}/rank{{rank}}/agent.sock"
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank0/agent.sock").touch()
    assert find(CAIRN_AGENT=pattern) == f"unix:{tmp_path}/rank0/agent.sock"
    assert find(CAIRN_AGENT=pattern, RANK="1") == f"unix:{tmp_path}/rank1/agent.sock"
    (tmp_path / "rank1").mkdir()
    (tmp_path / "rank1/agent.sock").touch()
    with raises_error("AGENT_UNREACHABLE"):
        find(CAIRN_AGENT=pattern)


def test_process_without_a_rank_waits_for_the_only_agent_of_its_pod(tmp_path):
    pattern = f"unix:{tmp_path}/local{{local_rank}}/agent.sock"
    assert find(CAIRN_AGENT=pattern) == f"unix:{tmp_path}/local0/agent.sock", "the agent comes after the trainer"
    for number in range(2):
        (tmp_path / f"local{number}").mkdir()
        (tmp_path / f"local{number}/agent.sock").touch()
    assert find(CAIRN_AGENT=pattern, LOCAL_RANK="1") == f"unix:{tmp_path}/local1/agent.sock"
    with raises_error("AGENT_UNREACHABLE"):
        find(CAIRN_AGENT=pattern)


def test_pattern_prefers_the_global_rank_and_knows_the_local_one():
    environment = {"RANK": "9", "LOCAL_RANK": "1", "SLURM_PROCID": "0"}
    assert find(CAIRN_AGENT="/run/{rank}/{local_rank}", **environment) == "/run/9/1"
    assert discovery.find({"CAIRN_AGENT": "/run/{local_rank}", **environment}).rank is None, "not the rank of the job"


@pytest.mark.parametrize(("environment", "reason", "text"), [
    ({"CAIRN_AGENT": "/run/{rank}"}, "AGENT_UNREACHABLE", "RANK, SLURM_PROCID"),
    ({"CAIRN_AGENT": "/run/{node}", "RANK": "1"}, "BAD_REQUEST", "{node} is neither"),
    ({"CAIRN_AGENT": "/run/{rank}", "RANK": "-1"}, "BAD_REQUEST", "RANK=-1 is no rank"),
    ({}, "AGENT_UNREACHABLE", "CAIRN_AGENT"),
    ({"RANK": "1"}, "AGENT_UNREACHABLE", "cairn run"),
])
def test_what_is_missing_is_said(environment, reason, text):
    with pytest.raises(cairn.Error) as caught:
        discovery.find(environment)
    assert caught.value.reason == reason and text in str(caught.value)


def test_directory_has_the_agent_of_each_rank_or_the_only_one(tmp_path):
    for name in ("rank0", "1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "agent.sock").touch()
    assert find(CAIRN_AGENT=str(tmp_path), RANK="0") == f"unix:{tmp_path}/rank0/agent.sock"
    assert find(CAIRN_AGENT=f"unix:{tmp_path}", RANK="1") == f"unix:{tmp_path}/1/agent.sock"
    with raises_error("AGENT_UNREACHABLE"):
        find(CAIRN_AGENT=str(tmp_path), RANK="2")
    (tmp_path / "agent.sock").touch()
    assert find(CAIRN_AGENT=str(tmp_path), RANK="2") == f"unix:{tmp_path}/agent.sock", "the sidecar of a pod"


def test_without_an_address_the_agents_default_directory_is_used(tmp_path):
    assert find(CAIRN_JOB="team/llm", RANK="4", XDG_RUNTIME_DIR=str(tmp_path)) == (
        f"unix:{tmp_path}/cairn-{os.geteuid()}/team_llm-4/agent.sock")


@pytest.mark.parametrize("rank", [0, 1])
def test_agent_of_another_rank_is_refused(monkeypatch, rank):
    with tempfile.TemporaryDirectory(prefix="cairn-") as base:  # a short path, for sockets
        (pathlib.Path(base) / "rank1").mkdir()
        agent = FakeAgent(pathlib.Path(base) / "rank1", rank=rank, world_size=2)
        monkeypatch.setenv("CAIRN_AGENT", base)
        monkeypatch.setenv("RANK", "1")
        try:
            if rank == 1:
                with cairn.connect() as client:
                    assert client.rank == 1
                return
            with raises_error("RANK_CONFLICT", job="demo", rank="1", agent_rank="0"):
                cairn.connect()
        finally:
            agent.close()


LAUNCHERS = [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("SLURM_PROCID", "SLURM_NPROCS"),
             ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
             ("LOCAL_RANK", "LOCAL_WORLD_SIZE")]


@pytest.mark.parametrize(("rank", "world"), LAUNCHERS)
def test_world_is_that_of_the_launcher_that_gave_the_rank(tmp_path, rank, world):
    (tmp_path / "rank3").mkdir()
    (tmp_path / "rank3/agent.sock").touch()
    every = {name: "99" for _, name in LAUNCHERS if name.split("_")[0] != world.split("_")[0]}
    environment = {**every, rank: "3", world: "8", "XDG_RUNTIME_DIR": str(tmp_path)}
    for where in ({"CAIRN_AGENT": "/run/{rank}"}, {"CAIRN_AGENT": str(tmp_path)}, {"CAIRN_JOB": "demo"}):
        found = discovery.find({**environment, **where})
        assert (found.rank, found.variable, found.world, found.world_variable) == (3, rank, 8, world)
    for where in ({"CAIRN_AGENT": "unix:/run/3"}, {"CAIRN_AGENT": "/run/{local_rank}", "LOCAL_RANK": "0"}):
        assert discovery.find({**environment, **where}).world is None, "chosen by something else than the rank"


# Where the address does not follow from the rank, the rank is what the launcher says all the same.
@pytest.mark.parametrize(("rank", "world"), LAUNCHERS[:-1])
@pytest.mark.parametrize("where", ["argument", "variable"])
def test_agent_whose_address_is_given_must_be_that_of_the_rank(monkeypatch, rank, world, where):
    for variable in {name for pair in LAUNCHERS for name in pair}:
        monkeypatch.delenv(variable, raising=False)
    with tempfile.TemporaryDirectory(prefix="cairn-") as base:
        agent = FakeAgent(pathlib.Path(base), rank=1, world_size=2)
        monkeypatch.setenv(rank, "0")
        monkeypatch.setenv(world, "2")
        monkeypatch.setenv("LOCAL_RANK", "1")
        if where == "variable":
            monkeypatch.setenv("CAIRN_AGENT", agent.address)
        address = agent.address if where == "argument" else None
        try:
            with raises_error("RANK_CONFLICT", job="demo", rank="0", agent_rank="1") as said:
                cairn.connect(address)
            assert "cairn.connect(rank=...)" in str(said.value)
            assert agent.places == [(0, 2, True)], "the agent is told before it takes the trainer"
            monkeypatch.setenv(rank, "1")
            cairn.connect(address).close()
            monkeypatch.setenv(world, "4")
            with raises_error("WORLD_SIZE_MISMATCH", job="demo", agent_rank="1", agent_world_size="2"):
                cairn.connect(address)
            cairn.connect(address, rank=1, world_size=2).close()
            assert agent.places[-1] == (1, 2, False), "who says it himself may not be wrong either"
        finally:
            agent.close()


def test_rank_that_the_caller_says_is_the_one_that_counts(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with tempfile.TemporaryDirectory(prefix="cairn-") as base:
        (pathlib.Path(base) / "rank1").mkdir()
        agent = FakeAgent(pathlib.Path(base) / "rank1", rank=1, world_size=2)
        try:
            monkeypatch.setenv("CAIRN_AGENT", base)
            with cairn.connect(rank=1) as client:
                assert client.rank == 1
            assert agent.places == [(1, 0, False)]
            with raises_error("RANK_CONFLICT", job="demo", rank="0", agent_rank="1"):
                cairn.connect(agent.address, rank=0)
            with raises_error("WORLD_SIZE_MISMATCH"):
                cairn.connect(agent.address, rank=1, world_size=1)
        finally:
            agent.close()
    for options in ({"rank": "1"}, {"rank": -1}, {"rank": True}, {"rank": 0, "world_size": 0}, {"world_size": 2}):
        with raises_error("BAD_REQUEST"):
            cairn.connect("unix:/nowhere", **options)


def test_rank_of_the_process_group_counts_before_that_of_the_launcher(monkeypatch):
    group = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1,
                                  get_world_size=lambda: 2, get_backend=lambda: "gloo")
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    environment = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    of_group = discovery.AgentPlace("unix:/run/agent.sock").placed(environment)
    assert (of_group.rank, of_group.world, of_group.given) == (1, 2, True)
    with raises_error("RANK_CONFLICT", job="demo", rank="1", agent_rank="0"):
        of_group.check(0, 2, "demo")
    for change in ({"is_initialized": lambda: False}, {"get_world_size": lambda: 1}, {"get_backend": lambda: "fake"},
                   {"is_available": lambda: False}):
        with monkeypatch.context() as patch:
            for name, value in change.items():
                patch.setattr(group, name, value)
            assert discovery.AgentPlace("unix:/run/agent.sock").placed(environment).rank == 0, "that of the launcher"


def test_agent_that_refuses_a_place_is_told_in_the_words_of_the_launcher(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with tempfile.TemporaryDirectory(prefix="cairn-") as base:
        agent = FakeAgent(pathlib.Path(base), rank=1, world_size=2)
        agent.refuse["Attach"] = [Refusal(grpc.StatusCode.ALREADY_EXISTS, "RANK_CONFLICT", "another rank",
                                          {"agent_rank": "1", "agent_world_size": "2", "job": "demo"}),
                                  Refusal(grpc.StatusCode.ALREADY_EXISTS, "RANK_CONFLICT", "for another reason")]
        try:
            with raises_error("RANK_CONFLICT", job="demo", rank="0", agent_rank="1"):
                cairn.connect(agent.address)
            with raises_error("RANK_CONFLICT"):
                cairn.connect(agent.address)
        finally:
            agent.close()


def test_world_that_is_no_number_is_refused_and_one_that_is_absent_is_not_looked_for():
    with raises_error("BAD_REQUEST"):
        find(CAIRN_AGENT="/run/{rank}", RANK="0", WORLD_SIZE="many")
    assert discovery.find({"CAIRN_AGENT": "/run/{rank}", "RANK": "0", "SLURM_NTASKS": "4"}).world is None


def test_agent_of_a_job_of_another_size_is_refused(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="cairn-") as base:
        (pathlib.Path(base) / "rank0").mkdir()
        agent = FakeAgent(pathlib.Path(base) / "rank0", rank=0, world_size=1)
        monkeypatch.setenv("CAIRN_AGENT", f"unix:{base}/rank{{rank}}/agent.sock")
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "2")
        try:
            with raises_error("WORLD_SIZE_MISMATCH", job="demo", rank="0", agent_world_size="1") as said:
                cairn.connect()
            assert "cairn run --ranks" in str(said.value)
            with cairn.connect(f"unix:{base}/rank0/agent.sock") as client:
                assert client.world_size == 1, "whoever gives the address knows what it is"
            monkeypatch.setenv("WORLD_SIZE", "1")
            with cairn.connect() as client:
                assert client.world_size == 1
        finally:
            agent.close()
