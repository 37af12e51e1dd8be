"""The policies of docs/object_stores.md, set in a store that keeps policies."""

import json
import os
import pathlib
import re
import subprocess

import pytest

import cairn
from stores.server import amazons_client
from stores.test_root_in_store import save_and_load

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "object_stores.md"


def policies() -> tuple[list[dict], list[dict]]:
    """Returns the statements for who writes, and for who only reads, as the page has them."""
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    writer, reader = (json.loads(block)["Statement"] for block in blocks)
    return writer, reader


@pytest.fixture
def users(store):
    """Users "writer" and "reader" with what the page allows them, and no more."""
    if store.make_user is None:
        pytest.skip("this store keeps no policies")
    for name in ("writer", "reader"):
        store.make_user(name, name, f"secret-of-{name}")
    statements = []
    for name, allowed in zip(("writer", "reader"), policies(), strict=True):
        statements += [{**one, "Principal": {"AWS": [f"arn:aws:iam:::user/{name}"]}} for one in allowed]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    amazons_client(store.endpoint).put_bucket_policy(Bucket="models", Policy=policy)


def test_what_the_page_allows_is_enough_and_no_more(store, users, monkeypatch):
    def become(name: str) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"secret-of-{name}")

    def command(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([f"{os.environ['CAIRN_BIN_DIR']}/cairn", *arguments], capture_output=True, text=True)

    root = "s3://models/llm"
    become("writer")
    save_and_load(root)
    deleted = command("run", "--root", root, "--", f"{os.environ['CAIRN_BIN_DIR']}/cairn", "delete", "demo@10")
    assert deleted.returncode == 0, deleted.stderr
    become("reader")
    for arguments in (("list", "demo"), ("verify", "demo@20"), ("show", "demo@20")):
        result = command(*arguments, "--root", root)
        assert result.returncode == 0 and "20" in result.stdout, (arguments, result.stderr)
    with pytest.raises(cairn.Error) as error:
        save_and_load(root)
    assert error.value.reason == "STORAGE_READ_ONLY"
    become("writer")
    with pytest.raises(cairn.Error) as error:
        save_and_load("s3://models/other")
    assert error.value.reason == "STORAGE_READ_ONLY"
