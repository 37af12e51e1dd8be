"""Object stores for the tests of this folder: moto, and with tools/test --stores Ceph too."""

import collections.abc
import dataclasses
import os

import pytest

from stores.ceph import ceph, why_not
from stores.server import ACCESS, SECRET, make_bucket, moto

STORES = ["moto"]
if os.environ.get("CAIRN_TEST_STORES"):
    if why_not() is not None:
        raise RuntimeError(f"no Ceph can be started here: {why_not()}")
    STORES.append("ceph")


@dataclasses.dataclass
class Store:
    """A store with the bucket "models".

    `checks_signatures`: what a proxy changes in a request, such a store refuses. `left_out`: the tests of the suite, as
    a filter of GoogleTest, of what the store does not do, and what Cairn does without. `make_user(NAME, KEY, SECRET)`
    makes a user without rights, in a store that has users.
    """

    endpoint: str
    checks_signatures: bool = False
    left_out: str = ""
    make_user: collections.abc.Callable[[str, str, str], None] | None = None


@pytest.fixture(scope="session", params=STORES)
def store(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "moto":
        with moto(directory) as port:
            served = Store(f"http://127.0.0.1:{port}")
            make_bucket(served.endpoint)
            yield served
    else:
        with ceph(directory) as server:
            server.make_user("owner", ACCESS, SECRET)
            make_bucket(server.endpoint)
            # Ceph 16 ignores the condition of CompleteMultipartUpload.
            yield Store(server.endpoint, checks_signatures=True, left_out="*Finish_TheNameIsTaken*",
                        make_user=server.make_user)


@pytest.fixture
def endpoint(store):
    """The address of a store with the bucket "models"."""
    return store.endpoint


@pytest.fixture
def use(endpoint, monkeypatch):
    """Sets what processes need to use a store, for this one: use(ENDPOINT)."""

    def use(address):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    use(endpoint)
    return use
