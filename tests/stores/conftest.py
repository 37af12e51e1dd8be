"""Object stores for the tests of this folder: moto, and with tools/test --stores Ceph too."""

import os

import pytest

from stores.ceph import ceph, why_not
from stores.server import ACCESS, SECRET, make_bucket, moto

STORES = ["moto"]
if os.environ.get("CAIRN_TEST_STORES"):
    if why_not() is not None:
        raise RuntimeError(f"no Ceph can be started here: {why_not()}")
    STORES.append("ceph")


@pytest.fixture(scope="session", params=STORES)
def endpoint(request, tmp_path_factory):
    """The address of a store with the bucket "models"."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "moto":
        with moto(directory) as port:
            served = f"http://127.0.0.1:{port}"
            make_bucket(served)
            yield served
    else:
        with ceph(directory) as server:
            server.make_user("owner", ACCESS, SECRET)
            make_bucket(server.endpoint)
            yield server.endpoint
