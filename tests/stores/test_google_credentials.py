"""Where credentials for Google's store come from: each source is played by a fake, and the requests show the token."""

import base64
import contextlib
import http.server
import json
import threading
import time
import urllib.parse

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from stores.google_store import GoogleStore
from stores.test_google_store import google, run_suite  # noqa: F401  a fixture

FEW = "--gtest_filter=*PutIfAbsent_TheName*"
METADATA = "/computeMetadata/v1/instance/service-accounts/default/token"


@contextlib.contextmanager
def serving(answer):
    """Serves answer(method, path, headers, body) -> status and what becomes JSON; yields "HOST:PORT"."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            status, said = answer(self.command, self.path, self.headers, body)
            content = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _serve

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class Tokens:
    """Gives tokens that the store accepts for a time, as the server of metadata does."""

    def __init__(self, store: GoogleStore, told: float, kept: float | None = None):
        """`told`: how many seconds each is said to last; `kept`: how many the store accepts it, if that is another."""
        self.given: list[str] = []
        self.asked: list[tuple[str, str, str | None]] = []
        self._told, self._kept = told, told if kept is None else kept
        self._ends: dict[str, float] = {}
        store.knows = lambda token: time.monotonic() < self._ends.get(token, 0)

    def answer(self, method, path, headers, body):
        self.asked.append((method, path, headers.get("Metadata-Flavor")))
        self.given.append(f"token-{len(self.given)}")
        self._ends[self.given[-1]] = time.monotonic() + self._kept
        return 200, {"access_token": self.given[-1], "expires_in": self._told, "token_type": "Bearer"}


def test_the_machine_gives_a_token(google):  # noqa: F811
    tokens = Tokens(google, 3600)
    with serving(tokens.answer) as host:
        result = run_suite(google.endpoint, FEW, token="", GCE_METADATA_HOST=host, HOME="/absent",
                           HTTP_PROXY="http://127.0.0.1:1", NO_PROXY="127.0.0.1")
    assert result.returncode == 0, result.stdout
    assert set(tokens.asked) == {("GET", METADATA, "Google")}
    assert google.tokens == tokens.given, "each storage asks once"


def test_tokens_are_renewed_before_they_expire(google):  # noqa: F811
    tokens = Tokens(google, 3)
    with serving(tokens.answer) as host:
        result = run_suite(google.endpoint, "--gtest_filter=*PutIfAbsent_Eight*:*Create_Chunks*", "--gtest_repeat=4",
                           token="", GCE_METADATA_HOST=host, HOME="/absent")
    assert result.returncode == 0, result.stdout
    assert len(google.tokens) > 2 and google.refused == []


def test_a_token_that_ends_within_an_upload_is_renewed(google):  # noqa: F811
    """The store does not accept it any more, though it should last for an hour."""
    tokens = Tokens(google, 3600, kept=0.3)
    with serving(tokens.answer) as host:
        result = run_suite(google.endpoint, "--gtest_filter=*Create_Chunks*:*Create_FilesOf*", token="",
                           GCE_METADATA_HOST=host, HOME="/absent")
    assert result.returncode == 0, result.stdout
    assert any(code == "AuthenticationRequired" for _, code, _ in google.refused)
    assert google.tokens == tokens.given and len(tokens.given) > 3


def test_a_token_that_the_store_does_not_want_is_an_error(google):  # noqa: F811
    begun = time.monotonic()
    result = run_suite(google.endpoint, FEW, token="the-secret-of-another")
    assert result.returncode != 0 and "HTTP 401 AuthenticationRequired" in result.stdout, result.stdout
    assert "STORAGE_READ_ONLY" in result.stdout and "the-secret-of-another" not in result.stdout
    assert time.monotonic() - begun < 15


def test_a_token_in_a_file_is_read_anew(google, tmp_path):  # noqa: F811
    file = tmp_path / "token"
    file.write_text("first\n")
    google.knows = lambda token: token == file.read_text().strip()

    def replace():
        time.sleep(1)
        file.write_text("second\n")

    thread = threading.Thread(target=replace)
    thread.start()
    result = run_suite(google.endpoint, "--gtest_filter=*PutIfAbsent_Eight*", "--gtest_repeat=8", token="",
                       CLOUDSDK_AUTH_ACCESS_TOKEN_FILE=str(file))
    thread.join()
    assert result.returncode == 0, result.stdout
    assert google.tokens == ["first", "second"]


def test_the_key_of_a_service_account(google, tmp_path):  # noqa: F811
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption()).decode()
    email = "train@project.iam.gserviceaccount.com"
    (tmp_path / "key.json").write_text(json.dumps(
        {"type": "service_account", "client_email": email, "private_key": text, "private_key_id": "key-1",
         "token_uri": "https://oauth2.googleapis.com/token"}))

    def knows(token: str) -> bool:
        header, claims, signature = (base64.urlsafe_b64decode(part + "==") for part in token.split("."))
        key.public_key().verify(signature, token.rpartition(".")[0].encode(), padding.PKCS1v15(), hashes.SHA256())
        said = json.loads(claims)
        return (json.loads(header) == {"alg": "RS256", "typ": "JWT", "kid": "key-1"}
                and said["iss"] == said["sub"] == email and said["iat"] <= time.time() < said["exp"]
                and said["exp"] - said["iat"] <= 3600 and "/auth/cloud-platform" in said["scope"])

    google.knows = knows
    result = run_suite(google.endpoint, FEW, token="", GOOGLE_APPLICATION_CREDENTIALS=str(tmp_path / "key.json"))
    assert result.returncode == 0, result.stdout
    assert google.tokens
    (tmp_path / "key.json").write_text(json.dumps(
        {"type": "service_account", "client_email": email, "private_key": "the-secret"}))
    refused = run_suite(google.endpoint, FEW, token="", GOOGLE_APPLICATION_CREDENTIALS=str(tmp_path / "key.json"))
    assert refused.returncode != 0 and "no RSA key in PEM" in refused.stdout and "the-secret" not in refused.stdout


def test_a_person_who_has_logged_in(google, tmp_path):  # noqa: F811
    tokens = Tokens(google, 3600)
    questions = []

    def answer(method, path, headers, body):
        questions.append((method, path, dict(urllib.parse.parse_qsl(body))))
        return tokens.answer(method, path, headers, body)

    with serving(answer) as host:
        (tmp_path / ".config" / "gcloud").mkdir(parents=True)
        (tmp_path / ".config" / "gcloud" / "application_default_credentials.json").write_text(json.dumps(
            {"type": "authorized_user", "client_id": "the-client", "client_secret": "a+b/c", "refresh_token": "1//x",
             "token_uri": f"http://{host}/token"}))
        result = run_suite(google.endpoint, FEW, token="", HOME=str(tmp_path))
    assert result.returncode == 0, result.stdout
    assert google.tokens == tokens.given
    for question in questions:
        assert question == ("POST", "/token", {"grant_type": "refresh_token", "client_id": "the-client",
                                               "client_secret": "a+b/c", "refresh_token": "1//x"})


def test_a_login_that_was_revoked_is_named(google, tmp_path):  # noqa: F811
    with serving(lambda *_: (400, {"error": "invalid_grant", "error_description": "Token has been revoked."})) as host:
        (tmp_path / "application_default_credentials.json").write_text(json.dumps(
            {"type": "authorized_user", "client_id": "c", "client_secret": "the-secret", "refresh_token": "the-refresh",
             "token_uri": f"http://{host}/token"}))
        result = run_suite(google.endpoint, FEW, token="", CLOUDSDK_CONFIG=str(tmp_path))
    assert result.returncode != 0
    assert "invalid_grant: Token has been revoked." in result.stdout and "gcloud auth" in result.stdout, result.stdout
    assert "the-secret" not in result.stdout and "the-refresh" not in result.stdout


@pytest.mark.parametrize("kind", ["external_account", "impersonated_service_account"])
def test_a_file_of_another_kind_is_refused_by_name(google, tmp_path, kind):  # noqa: F811
    (tmp_path / "adc.json").write_text(json.dumps({"type": kind}))
    result = run_suite(google.endpoint, FEW, token="", GOOGLE_APPLICATION_CREDENTIALS=str(tmp_path / "adc.json"))
    assert result.returncode != 0 and "UNSUPPORTED" in result.stdout and kind in result.stdout, result.stdout
    assert google.requests == []


def test_without_credentials_the_error_says_what_to_set(google, tmp_path):  # noqa: F811
    result = run_suite(google.endpoint, FEW, token="", HOME=str(tmp_path), GCE_METADATA_HOST="127.0.0.1:1")
    assert result.returncode != 0 and "no credentials: no connection to 127.0.0.1:1" in result.stdout, result.stdout
    assert "GOOGLE_APPLICATION_CREDENTIALS" in result.stdout


def test_a_silent_machine_does_not_hold_a_command(google, tmp_path):  # noqa: F811
    release = threading.Event()

    def answer(*_):
        release.wait(120)
        return 200, {}

    begun = time.monotonic()
    with serving(answer) as host:
        result = run_suite(google.endpoint, FEW, token="", HOME=str(tmp_path), GCE_METADATA_HOST=host)
        seconds = time.monotonic() - begun
        release.set()
    assert result.returncode != 0 and "no credentials" in result.stdout, result.stdout
    assert seconds < 40, "the suite gives up after two seconds of silence, three times"


def test_a_token_does_not_go_to_another_machine_in_the_clear(google):  # noqa: F811
    result = run_suite("http://store.invalid", FEW, token="the-secret-token")
    assert result.returncode != 0 and "without TLS" in result.stdout, result.stdout
    assert "the-secret-token" not in result.stdout


def test_a_wrong_hmac_secret_is_an_error_that_does_not_show_it(google):  # noqa: F811
    result = run_suite(google.endpoint, FEW, token="", GS_ACCESS_KEY_ID="GOOG1EXAMPLE",
                       GS_SECRET_ACCESS_KEY="wrong-one")
    assert result.returncode != 0 and "SignatureDoesNotMatch" in result.stdout, result.stdout
    assert "wrong-one" not in result.stdout
