"""Provides an agent that answers in this process, and a client of it."""

import pathlib
import shutil
import tempfile

import pytest

import cairn
from testing.fake_agent import FakeAgent


@pytest.fixture
def agent():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-"))
    fake = FakeAgent(directory)
    yield fake
    fake.close()
    shutil.rmtree(directory)


@pytest.fixture
def client(agent):
    with cairn.connect(agent.address) as client:
        yield client
