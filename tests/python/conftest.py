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
def limits(request):
    """The limits of `client`: the usual ones, but for what `@pytest.mark.limits(NAME=VALUE)` says."""
    marker = request.node.get_closest_marker("limits")
    return cairn.Limits(**marker.kwargs) if marker else cairn.Limits()


@pytest.fixture
def client(agent, limits):
    with cairn.connect(agent.address, limits=limits) as client:
        yield client
