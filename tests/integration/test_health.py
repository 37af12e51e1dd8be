"""Tests gRPC's health service, which the kubelet asks: of the coordinator, and of an agent with and without one."""

import signal

import grpc
import pytest

import cairn
from cairn._agent.connection import make_channel
from testing.ranks import until

SERVING, NOT_SERVING = 1, 2


def health(address: str, service: str = "") -> int:
    """The answer of grpc.health.v1.Health/Check, whose messages have one field each."""
    name = service.encode()
    request = b"\x0a" + bytes([len(name)]) + name if name else b""
    with make_channel(address) as channel:
        answer = channel.unary_unary("/grpc.health.v1.Health/Check", None, None)(request, timeout=10)
    return answer[1]


@pytest.fixture
def cluster(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        yield cluster


def transfer_address(agent) -> str:
    serving = next(line for line in agent.log.read_text().splitlines() if "event=serving" in line)
    return next(word.partition("=")[2] for word in serving.split() if word.startswith("transfer=")).strip('"')


def test_coordinator_and_agent_serve(cluster):
    assert health(cluster.coordinator.address) == SERVING
    assert health(transfer_address(cluster.agents[0])) == SERVING
    assert health(cluster.agents[0].address) == SERVING  # the trainer's socket


def test_agent_is_ready_while_its_coordinator_answers(cluster):
    address = transfer_address(cluster.agents[0])
    until(lambda: health(address, "coordinator") == SERVING)
    cluster.coordinator.kill(signal.SIGKILL)
    until(lambda: health(address, "coordinator") == NOT_SERVING)
    assert health(address) == SERVING
    cluster.coordinator.restart()
    until(lambda: health(address, "coordinator") == SERVING)


def test_unknown_service_is_not_found(cluster):
    with pytest.raises(grpc.RpcError) as failed:
        health(transfer_address(cluster.agents[0]), "nobody")
    assert failed.value.code() == grpc.StatusCode.NOT_FOUND
