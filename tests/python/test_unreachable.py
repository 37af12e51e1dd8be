"""Tests that the client says of a connection that fails what the services say."""

import concurrent.futures
import contextlib
import http.server
import pathlib
import re
import threading

import grpc
import pytest

import cairn
import cairn.checkpoints
from cairn._agent import connection
from cairn._base import wire

DIAL = pathlib.Path(__file__).resolve().parents[2] / "common/rpc/peer_dial.cc"


def test_connection_that_is_closed_at_once_is_told_from_one_that_ends():
    said = connection._why_unreachable(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: "
                                       "UNAVAILABLE: unix:/run/agent.sock: Socket closed")
    assert "no file descriptor left" in said
    assert said.removeprefix("it ") in "".join(re.findall(r'"([^"]*)"', DIAL.read_text()))
    assert "it has ended" in connection._why_unreachable(grpc.StatusCode.UNAVAILABLE, "Socket closed")
    # gRPC does not always say that it was still connecting.
    assert said == connection._why_unreachable(grpc.StatusCode.UNAVAILABLE, "Socket closed", answered=False)


@contextlib.contextmanager
def web_server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Failing(grpc.GenericRpcHandler):
    """Some other service, which takes every call and fails without a reason of Cairn's."""

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: 1 // 0)


@contextlib.contextmanager
def other_service():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=[Failing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


@pytest.mark.parametrize("serve", [web_server, other_service])
def test_Call_SomethingElseAnswers_IsSaidToBeUnreachableAndWhy(serve):
    with serve() as address:
        agent = connection.AgentConnection(address)
        with pytest.raises(cairn.Error) as caught:
            agent.call("Detach", wire.LOCAL_AGENT["Detach"].request())
        agent.close()
        assert caught.value.reason == "AGENT_UNREACHABLE" and "something else answers" in caught.value.message
        with pytest.raises(cairn.Error) as caught:
            cairn.checkpoints.delete("job", 1, coordinator=address)
        assert caught.value.reason == "COORDINATOR_UNREACHABLE" and "something else answers" in caught.value.message
