"""Tests that the client says of a connection that fails what the services say."""

import pathlib
import re

from cairn import _agent

ENDPOINT = pathlib.Path(__file__).resolve().parents[2] / "common/rpc/endpoint.cc"


def test_texts_of_grpc_mean_the_same_in_the_client_and_in_the_services():
    table = ENDPOINT.read_text().partition("kTexts[] = {")[2].partition("};")[0]
    rows = re.findall(r'\{"([^"]+)",\s*"([^"]+)"\}', table)
    assert len(rows) > 10
    assert [(part, f"it {meaning}") for part, meaning in rows] == list(_agent._WHY)
