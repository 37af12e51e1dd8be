"""Tests what callers make of answers that are rare: here a scripted coordinator gives them."""

import contextlib
import json
from concurrent import futures

import grpc
import pytest

import cairn.checkpoints
from cairn._base import wire
from testing.errors import raises_error
from testing.ranks import command, command_json

# (step, pruned, why) and how many of those pruned are left to be deleted.
PARTS = [
    ([(1, True, ""), (2, True, ""), (3, True, ""), (4, True, ""), (9, False, "the newest")], 3),
    # 2 was pinned meanwhile; 3 was deleted; 9 is not the newest any more.
    ([(1, True, ""), (2, False, "pinned"), (4, True, ""), (9, True, ""), (10, False, "the newest")], 1),
    ([(9, True, ""), (10, False, "the newest")], 0),
]
WHOLE = [(1, True, ""), (2, False, "pinned"), (3, True, ""), (4, True, ""), (9, True, ""), (10, False, "the newest")]


@contextlib.contextmanager
def coordinator(**answers):
    """Serves CheckpointService and yields the address. `answers`: for the name of each method a function of request and
    response, which may raise a cairn.Error."""
    def handler(name, answer):
        method = wire.CHECKPOINTS[name]

        def call(request, context):
            response = method.response()
            try:
                answer(request, response)
            except cairn.Error as error:
                details = wire.status_from_error(error).SerializeToString()
                context.set_trailing_metadata((("grpc-status-details-bin", details),))
                context.abort(grpc.StatusCode.ABORTED, error.message)
            return response
        return grpc.unary_unary_rpc_method_handler(call, method.request.FromString, method.response.SerializeToString)

    server = grpc.server(futures.ThreadPoolExecutor(2))
    service = wire.CHECKPOINTS["GetJob"].path.split("/")[1]
    handlers = {name: handler(name, answer) for name, answer in answers.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    monkeypatch.setenv("CAIRN_INSECURE", "1")


@pytest.fixture
def slow_prune():
    """Yields the address of a coordinator that prunes in PARTS, and the requests that it got."""
    requests = []

    def prune(request, response):
        requests.append(request)
        choices, left = PARTS[len(requests) - 1]
        response.steps_left, response.files_left = left, left > 0
        for step, pruned, why in choices:
            response.choices.add(step=step, prune=pruned, why=why)

    with coordinator(PruneCheckpoints=prune) as address:
        yield address, requests


def test_long_prune_python_asks_until_all_are_deleted(slow_prune):
    address, requests = slow_prune
    choices = cairn.checkpoints.prune("demo", keep_last=1, coordinator=address)
    assert [(choice.step, choice.pruned, choice.why) for choice in choices] == WHOLE
    assert len(requests) == 3 and all(request.policy.keep_last == 1 for request in requests)


def test_long_prune_command_asks_until_all_are_deleted(slow_prune):
    address, requests = slow_prune
    answer = command_json("prune", "demo", "--keep-last", "1", "--coordinator", address)
    assert [(entry["step"], entry["pruned"], entry["why"]) for entry in answer["checkpoints"]] == WHOLE
    assert not answer["files_left"]
    assert len(requests) == 3 and all(request.policy.keep_last == 1 for request in requests)


@pytest.fixture
def failing_prune():
    """Yields the address of a coordinator whose storage fails when one of four checkpoints has been deleted."""
    calls = []

    def prune(request, response):
        calls.append(request)
        if len(calls) > 1:
            raise cairn.Error("STORAGE_STALLED", "the storage does not answer")
        choices, left = PARTS[0]
        response.steps_left = left
        for step, pruned, why in choices:
            response.choices.add(step=step, prune=pruned, why=why)

    with coordinator(PruneCheckpoints=prune) as address:
        yield address


def test_prune_that_fails_halfway_says_what_was_deleted(failing_prune):
    with raises_error("STORAGE_STALLED", deleted="1"):
        cairn.checkpoints.prune("demo", keep_last=1, coordinator=failing_prune)


def test_dry_run_that_fails_halfway_does_not_speak_of_deletions(failing_prune):
    with raises_error("STORAGE_STALLED") as raised:
        cairn.checkpoints.prune("demo", keep_last=1, dry_run=True, coordinator=failing_prune)
    assert "deleted" not in raised.value.metadata


def test_dry_run_command_that_fails_halfway_does_not_speak_of_deletions(failing_prune):
    said = command("prune", "demo", "--keep-last", "1", "--dry-run", "--coordinator", failing_prune, expect=3).stderr
    assert "STORAGE_STALLED: after 1 of 4 checkpoints of 'demo' were looked at: the storage does not answer" in said


def test_prune_command_that_fails_halfway_says_what_was_deleted(failing_prune):
    said = command("prune", "demo", "--keep-last", "1", "--coordinator", failing_prune, expect=3).stderr
    assert "STORAGE_STALLED: after 1 of 4 checkpoints of 'demo' were deleted: the storage does not answer" in said


def test_prune_command_that_fails_halfway_lists_what_was_deleted_before_the_error(failing_prune):
    said = command("prune", "demo", "--keep-last", "1", "--coordinator", failing_prune, expect=3).stdout
    assert [line.split() for line in said.splitlines()] == [["STEP"], ["1", "deleted"]], said


@pytest.mark.parametrize("output", ["table", "json"])
def test_prune_command_whose_outcome_is_unknown_lists_what_was_deleted_before(output):
    def prune(_request, _response):
        raise cairn.Error("STORAGE_ERROR", "it is not known whether this was done",
                          {"outcome": "unknown", "deleted_steps": "100,200", "deleted": "2"})

    with coordinator(PruneCheckpoints=prune) as address:
        said = command("prune", "demo", "--keep-last", "1", "--coordinator", address, "--format", output, expect=3)
    if output == "json":
        answer = json.loads(said.stdout)
        assert [entry["step"] for entry in answer["checkpoints"] if entry["pruned"]] == [100, 200]
        assert not answer["complete"]
    else:
        assert [line.split() for line in said.stdout.splitlines()] == [["STEP"], ["100", "deleted"], ["200", "deleted"]]
    assert "it is not known whether this was done" in said.stderr


@pytest.mark.parametrize("state", ["DELETED", "DAMAGED"])
def test_save_whose_checkpoint_is_gone_before_it_was_told_ends(state):
    """A rule may delete a checkpoint as soon as it is committed."""
    def under_way(request, response):
        response.job, response.step, response.state = "demo", 7, wire.PHASES["WRITING"]
        response.request_id = request.request_id

    def gone(request, response):
        under_way(request, response)
        response.state = wire.PHASES[state]
        why = cairn.Error("NOT_COMMITTED", "demo@7 is gone")
        response.error.CopyFrom(wire.status_from_error(why))

    with coordinator(CreateCheckpoint=under_way, GetCheckpoint=under_way, WaitCheckpoint=gone) as address:
        said = command("save", "demo", "--coordinator", address, expect=1, timeout=30).stderr
    assert "demo@7 is gone" in said
