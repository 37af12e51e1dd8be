"""A store for the tests of this folder."""

import http.client

import pytest

from stores.server import make_bucket, moto


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """A server of moto with the bucket "models"."""
    with moto(tmp_path_factory.mktemp("moto")) as port:
        make_bucket(http.client.HTTPConnection("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}"
