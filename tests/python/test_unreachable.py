"""Tests that the client says of a connection that fails what the services say."""

import pathlib
import re

import grpc

from cairn import _agent

ENDPOINT = pathlib.Path(__file__).resolve().parents[2] / "common/rpc/endpoint.cc"


def test_texts_of_grpc_mean_the_same_in_the_client_and_in_the_services():
    table = ENDPOINT.read_text().partition("kTexts[] = {")[2].partition("};")[0]
    rows = re.findall(r'\{"([^"]+)",\s*"([^"]+)"\}', table)
    assert len(rows) > 10
    assert [(part, f"it {meaning}") for part, meaning in rows] == list(_agent._WHY)


def test_connection_that_is_closed_at_once_is_told_from_one_that_ends():
    said = _agent._why_unreachable(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: "
                                   "UNAVAILABLE: unix:/run/agent.sock: Socket closed")
    assert "no file descriptor left" in said
    assert f'return "{said.removeprefix("it ")}";' in ENDPOINT.read_text()
    assert "it has ended" in _agent._why_unreachable(grpc.StatusCode.UNAVAILABLE, "Socket closed")
    # gRPC does not always say that it was still connecting.
    assert said == _agent._why_unreachable(grpc.StatusCode.UNAVAILABLE, "Socket closed", answered=False)
