"""Tests what callers of a prune are told that takes long: the coordinator answers in parts (here a scripted one), and
the last answer is about all of them."""

from concurrent import futures

import grpc
import pytest

import cairn.checkpoints
from cairn import _wire
from testing.ranks import command_json

METHOD = _wire.CHECKPOINTS["PruneCheckpoints"]
# (step, pruned, why) and how many of those pruned are left to be deleted.
PARTS = [
    ([(1, True, ""), (2, True, ""), (3, True, ""), (4, True, ""), (9, False, "the newest")], 3),
    # 2 was pinned meanwhile; 3 was deleted; 9 is not the newest any more.
    ([(1, True, ""), (2, False, "pinned"), (4, True, ""), (9, True, ""), (10, False, "the newest")], 1),
    ([(9, True, ""), (10, False, "the newest")], 0),
]
WHOLE = [(1, True, ""), (2, False, "pinned"), (3, True, ""), (4, True, ""), (9, True, ""), (10, False, "the newest")]


@pytest.fixture
def coordinator():
    """Yields the address of one that answers a prune with the PARTS, and the requests that it got."""
    requests = []

    def answer(request, _):
        requests.append(request)
        choices, left = PARTS[len(requests) - 1]
        response = METHOD.response(steps_left=left, files_left=left > 0)
        for step, prune, why in choices:
            response.choices.add(step=step, prune=prune, why=why)
        return response

    server = grpc.server(futures.ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(answer, METHOD.request.FromString, METHOD.response.SerializeToString)
    service = METHOD.path.split("/")[1]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {METHOD.name: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", requests
    server.stop(0).wait()


def test_python_asks_until_all_are_deleted(coordinator, monkeypatch):
    monkeypatch.setenv("CAIRN_INSECURE", "1")
    address, requests = coordinator
    choices = cairn.checkpoints.prune("demo", keep_last=1, coordinator=address)
    assert [(choice.step, choice.pruned, choice.why) for choice in choices] == WHOLE
    assert len(requests) == 3 and all(request.policy.keep_last == 1 for request in requests)


def test_command_asks_until_all_are_deleted(coordinator, monkeypatch):
    monkeypatch.setenv("CAIRN_INSECURE", "1")
    address, requests = coordinator
    answer = command_json("prune", "demo", "--keep-last", "1", "--coordinator", address)
    assert [(entry["step"], entry["pruned"], entry["why"]) for entry in answer["checkpoints"]] == WHOLE
    assert not answer["files_left"]
    assert len(requests) == 3 and all(request.policy.keep_last == 1 for request in requests)
