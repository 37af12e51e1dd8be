"""Where credentials come from: each source is played by a fake, and the requests show which key was used."""

import base64
import contextlib
import datetime
import http.server
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest

from stores.fault_proxy import FaultProxy
from stores.server import make_bucket, moto
from stores.test_stores import make_certificate, run_suite

FEW = "--gtest_filter=*PutIfAbsent_TheName*"
# Nothing of the user's own may help.
NOTHING = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    with moto(tmp_path_factory.mktemp("moto")) as port:
        make_bucket(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def proxy(endpoint):
    with contextlib.closing(FaultProxy(endpoint)) as one:
        yield one


def timestamp(seconds: float) -> str:
    """The time in so many seconds."""
    then = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")


@contextlib.contextmanager
def serving(answer, tls: ssl.SSLContext | None = None):
    """Serves answer(method, path, headers) -> text; yields the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _serve(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            content = answer(self.command, self.path, self.headers).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = _serve

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def tunnel(port: int):
    """A proxy whose every CONNECT leads to one port of this machine; yields its port and the hosts that were wanted."""
    wanted: list[str] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        while True:
            try:
                caller, _ = listening.accept()
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += caller.recv(65536)
            wanted.append(head.split()[1].decode())
            behind = socket.create_connection(("127.0.0.1", port))
            caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for pair in ((caller, behind), (behind, caller)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1], wanted
    finally:
        listening.close()


def test_profile(proxy, tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = other\naws_secret_access_key = s\n"
        "[train]\naws_access_key_id = of-profile\naws_secret_access_key = s\n")
    result = run_suite(proxy.endpoint, FEW, **NOTHING, HOME=str(tmp_path), AWS_PROFILE="train")
    assert result.returncode == 0, result.stdout
    assert proxy.access_keys == ["of-profile"]


def test_container_with_a_token_in_a_file(proxy, tmp_path):
    """As Amazon's EKS Pod Identity and ECS."""
    token = tmp_path / "token"
    token.write_text("the-token")
    asked = []

    def answer(_, path, headers):
        asked.append((path, headers.get("Authorization")))
        return json.dumps({"AccessKeyId": "of-container", "SecretAccessKey": "s", "Token": "t",
                           "Expiration": timestamp(3600)})

    with serving(answer) as port:
        result = run_suite(proxy.endpoint, FEW, **NOTHING, HOME=str(tmp_path),
                           AWS_CONTAINER_CREDENTIALS_FULL_URI=f"http://127.0.0.1:{port}/v1/credentials",
                           AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(token))
    assert result.returncode == 0, result.stdout
    assert proxy.access_keys == ["of-container"]
    assert set(asked) == {("/v1/credentials", "the-token")}


def test_credentials_that_expire_are_renewed(endpoint, tmp_path):
    given = []
    begun = time.monotonic()

    def answer(*_):
        given.append(f"key-{len(given)}")
        return json.dumps({"AccessKeyId": given[-1], "SecretAccessKey": "s", "Token": "t",
                           "Expiration": timestamp(3 if len(given) == 1 else 3600)})

    proxy = FaultProxy(endpoint, expires={"key-0": begun + 3})
    with contextlib.closing(proxy), serving(answer) as port:
        result = run_suite(proxy.endpoint, "--gtest_filter=*PutIfAbsent_Eight*", "--gtest_repeat=4", **NOTHING,
                           HOME=str(tmp_path),
                           AWS_CONTAINER_CREDENTIALS_FULL_URI=f"http://127.0.0.1:{port}/v1/credentials")
    assert result.returncode == 0, result.stdout
    assert len(proxy.access_keys) >= 2 and proxy.access_keys == sorted(proxy.access_keys)


def test_web_identity_through_a_proxy(proxy, tmp_path):
    """As Amazon's IAM roles for service accounts. The token service has a name of Amazon's, which the proxy knows."""
    certificate, key = make_certificate(tmp_path, "sts.us-east-1.amazonaws.com")
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(certificate, key)
    token = tmp_path / "token"
    token.write_text("the-token")
    document = (
        '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        "<AssumeRoleWithWebIdentityResult><Credentials><SessionToken>t</SessionToken><SecretAccessKey>s"
        f"</SecretAccessKey><Expiration>{timestamp(3600)}</Expiration><AccessKeyId>of-web</AccessKeyId></Credentials>"
        "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    )
    with serving(lambda *_: document, trust) as port, tunnel(port) as (through, wanted):
        result = run_suite(proxy.endpoint, FEW, **NOTHING, HOME=str(tmp_path), AWS_REGION="us-east-1",
                           AWS_ROLE_ARN="arn:aws:iam::1:role/train", AWS_WEB_IDENTITY_TOKEN_FILE=str(token),
                           AWS_ROLE_SESSION_NAME="train", AWS_CA_BUNDLE=str(certificate),
                           HTTPS_PROXY=f"http://127.0.0.1:{through}")
    assert result.returncode == 0, result.stdout
    assert proxy.access_keys == ["of-web"]
    assert set(wanted) == {"sts.us-east-1.amazonaws.com:443"}


def test_role_of_the_machine(tmp_path):
    """Amazon's IMDSv2 has a fixed address, which this test takes in a network of its own."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("no network of its own: unshare and ip are not installed")
    script = pathlib.Path(__file__).with_name("role_of_machine.py")
    command = ["unshare", "--net", "--map-root-user", "--", sys.executable, str(script), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.stderr.startswith("unshare:"):
        pytest.skip(f"no network of its own: {result.stderr.strip()}")
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_http_proxy_is_used(endpoint):
    """The store has a name that only the proxy knows."""
    with contextlib.closing(FaultProxy(endpoint)) as proxy:
        result = run_suite("http://store.invalid", FEW, HTTP_PROXY=proxy.endpoint)
    assert result.returncode == 0, result.stdout
    assert proxy.requests


def test_no_secret_is_printed(endpoint, tmp_path):
    secret = base64.b64encode(os.urandom(30)).decode()
    with contextlib.closing(FaultProxy(endpoint, probability=1, kinds=("internal_error",))) as proxy:
        result = run_suite(proxy.endpoint, FEW, HOME=str(tmp_path), AWS_SECRET_ACCESS_KEY=secret,
                           AWS_SESSION_TOKEN="the-session")
    assert result.returncode != 0 and "InternalError" in result.stdout
    assert secret not in result.stdout and "the-session" not in result.stdout
