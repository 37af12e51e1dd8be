"""Tests the page of `cairn serve` without a browser: what it answers to whom."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import select
import signal
import socket
import stat
import subprocess
import tempfile
from concurrent import futures

import numpy as np

import cairn
from browser.fake_site import Story
from testing.ranks import command, freeze, noise, on_ranks, rows, until

WHOLE = noise((64, 16), np.float32, 1)


class Page:
    """The page of a coordinator, and its process."""

    def __init__(self, cluster, *flags: str, listen: str = "127.0.0.1:0") -> None:
        self.process = subprocess.Popen(
            [cairn.local.binary("cairn"), "serve", f"--coordinator={cluster.coordinator.address}",
             f"--listen={listen}", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = self.process.stdout.readline()
        assert first, self.process.stderr.read()
        self.port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", first).group(1))
        self.said = self.process.stdout.readline()
        self.token_file = pathlib.Path(re.search(r"it is in (.*)\.$", self.said.strip()).group(1))
        self.token = self.token_file.read_text().split()[0]

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict, bytes]:
        """Returns status, headers and body."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request(method, path, headers={"Authorization": f"Bearer {self.token}", **headers})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def json(self, path: str) -> dict:
        status, _, body = self.ask(path)
        assert status == 200, body
        return json.loads(body)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        out, self.errors = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, (out, self.errors)


def test_the_page_shows_what_the_commands_show(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster, Page(cluster) as page:
        on_ranks(cluster, lambda rank, client: client.save(4, {"w": rows(WHOLE, rank, 2)}).wait(60))
        on_ranks(cluster, lambda rank, client: client.load({"w": rows(np.zeros_like(WHOLE), rank, 2)}))
        (job,) = page.json("/api/jobs")["jobs"]
        assert (job["job"], job["world_size"], job["agents"], job["last_committed_step"]) == ("demo", 2, 2, 4)
        assert [agent["rank"] for agent in page.json("/api/job/demo")["agents"]] == [0, 1]
        (checkpoint,) = page.json("/api/checkpoints/demo")["checkpoints"]
        assert (checkpoint["step"], checkpoint["state"]) == (4, "COMMITTED")
        load, save = page.json("/api/timelines/demo")["timelines"]
        assert (save["kind"], save["step"], load["kind"]) == ("save", 4, "load")
        assert save["ranks"] == [] and save["spans"], "the list leaves the ranks out"
        timeline = page.json(f"/api/timeline/{save['id']}/demo")
        assert [rank["rank"] for rank in timeline["ranks"]] == [0, 1]
        for rank in timeline["ranks"]:
            assert rank["spans"][0]["begin"] == 0 and rank["spans"][-1]["end"] == timeline["duration"]
        (stored,) = page.json("/api/stored_jobs")["jobs"]
        assert stored["job"] == "demo" and stored["last_commit_time"] == checkpoint["commit_time"]
        assert json.loads(page.ask("/api/job/none")[2])["error"]["next"], "each error says what to do"
        assert page.ask("/api/job/none")[0] == 404
        assert page.ask("/api/job/%3Cscript%3E")[0] == 400
        assert page.ask("/api/timeline/999/demo")[0] == 404
        assert page.ask("/api/timeline/x/demo")[0] == 400
        assert page.ask("/../../etc/passwd")[0] == 404


def test_the_page_is_closed_to_strangers(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        with Page(cluster) as page:
            assert stat.S_IMODE(page.token_file.stat().st_mode) == 0o600
            assert page.token not in page.said
            assert page.token not in (cluster.root / ".cairn/token").read_text(), "it is a token of its own"
            assert page.ask("/api/jobs")[0] == 200
            assert page.ask("/api/jobs", Authorization="Bearer " + "0" * 32)[0] == 401
            assert page.ask("/api/jobs", Authorization="")[0] == 401
            assert page.ask(f"/api/jobs?token={page.token}", Authorization="")[0] == 401, "a URL holds no token"
            assert page.ask("/api/jobs", Host="evil.example")[0] == 421
            assert page.ask("/", Host="evil.example")[0] == 421
            assert page.ask("/api/jobs", method="POST")[0] == 405
            status, headers, body = page.ask("/", Authorization="")
            assert status == 200 and b'<script type="module" src="/app.mjs">' in body
            assert headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert "unsafe" not in headers["Content-Security-Policy"]
        assert page.token not in page.errors and not page.token_file.exists()
        for service in (cluster.coordinator, *cluster.agents):
            assert page.token not in service.log.read_text()


def test_the_page_answers_beside_connections_that_say_nothing(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, Page(cluster) as page:
        for _ in range(5):
            with contextlib.ExitStack() as stack:
                silent = [stack.enter_context(socket.create_connection(("127.0.0.1", page.port))) for _ in range(200)]
                ends = select.poll()  # select() itself takes no descriptor above 1023
                for connection in silent:
                    ends.register(connection, select.POLLIN)
                assert page.ask("/")[0] == 200
                if not ends.poll(0):
                    return
            # They have had their time, as on a busy machine: the answer may have come only after their end.
        raise AssertionError("no answer came before silent connections were ended")


def test_the_page_answers_when_all_connections_are_taken(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, Page(cluster) as page:
        with contextlib.ExitStack() as stack:
            for _ in range(600):
                silent = stack.enter_context(socket.create_connection(("127.0.0.1", page.port)))
                silent.sendall(b"GET / HTTP/1.1\r\n")
            assert page.ask("/")[0] == 200
            assert len(os.listdir(f"/proc/{page.process.pid}/fd")) < 320


def test_a_name_and_a_token_of_the_users_own_are_taken(tmp_path):
    token = tmp_path / "token"
    token.write_text("mine-0123456789abcdef\n")
    os.chmod(token, 0o600)
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        with Page(cluster, f"--page-token-file={token}", "--host=cairn.example") as page:
            assert page.token == "mine-0123456789abcdef"
            assert page.ask("/api/jobs", Host="cairn.example")[0] == 200
            assert page.ask("/api/jobs", Host=f"cairn.example:{page.port}")[0] == 200
        assert token.exists()


def keys_lacking(made_up, real, where: str = "") -> list[str]:
    """Returns the keys of `made_up` that `real` does not have, also in what is within them."""
    if isinstance(made_up, dict) and isinstance(real, dict):
        lacking = [f"{where}.{key}" for key in made_up if key not in real]
        for key in made_up.keys() & real.keys():
            lacking += keys_lacking(made_up[key], real[key], f"{where}.{key}")
        return lacking
    if isinstance(made_up, list) and isinstance(real, list) and made_up and real:
        return keys_lacking(made_up[0], real[0], f"{where}[]")
    return []


def test_the_stand_in_of_browser_tests_answers_like_the_real_page(tmp_path):
    """Browser tests look at a page whose answers are made up: each key of these must be a real one."""
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster, Page(cluster) as page:
        on_ranks(cluster, lambda rank, client: client.save(4, {"w": rows(WHOLE, rank, 2)}).wait(60))
        on_ranks(cluster, lambda rank, client: client.load({"w": rows(np.zeros_like(WHOLE), rank, 2)}))
        (save,) = (each for each in page.json("/api/timelines/demo")["timelines"] if each["kind"] == "save")
        story = Story(job="demo", ranks=2, running="load", saves=1)
        for question, rest in (("jobs", ""), ("stored_jobs", ""), ("job", "demo"), ("checkpoints", "demo"),
                               ("timelines", "demo"), ("timeline", f"{save['id']}/demo")):
            made_up = story.answer(question, "1/demo" if question == "timeline" else rest)[1]
            lacking = keys_lacking(made_up, page.json(f"/api/{question}/{rest}"))
            assert [key for key in lacking if ".metrics." not in key] == [], question


def test_a_page_keeps_its_token_when_it_is_restarted(tmp_path):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        with Page(cluster, listen=listen) as page:
            token = page.token
        cluster.coordinator.kill(signal.SIGKILL)
        cluster.coordinator.restart()
        with Page(cluster, listen=listen) as page:
            assert page.ask("/api/jobs", Authorization=f"Bearer {token}")[0] == 200, "a page left open goes on"
            assert stat.S_IMODE(page.token_file.stat().st_mode) == 0o600


def test_questions_about_storage_leave_room_for_others(tmp_path):
    """Each waits up to ten seconds for a coordinator that does not answer, as it does while storage hangs."""
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, Page(cluster) as page:
        freeze(cluster.coordinator.pid)
        try:
            with futures.ThreadPoolExecutor(30) as pool:
                asked = [pool.submit(page.ask, "/api/checkpoints/demo") for _ in range(30)]
                refused = [next(futures.as_completed(asked, timeout=5)).result()]
                assert refused[0][0] == 503 and b"STORAGE_STALLED" in refused[0][2]
                assert page.ask("/")[0] == 200 and not all(each.done() for each in asked), "some wait still"
                cluster.coordinator.kill(signal.SIGCONT)
                assert sum(each.result()[0] == 200 for each in asked) >= 8
        finally:
            cluster.coordinator.kill(signal.SIGCONT)
        until(lambda: page.ask("/api/checkpoints/demo")[0] == 200, text="room for questions again")


def test_a_coordinator_that_is_gone_is_told_and_found_again(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        with Page(cluster) as page:
            cluster.coordinator.kill(signal.SIGKILL)
            status, _, body = page.ask("/api/jobs")
            assert status == 503 and b"COORDINATOR_UNREACHABLE" in body
            cluster.coordinator.restart()
            until(lambda: page.ask("/api/jobs")[0] == 200, text="the coordinator, found again")
    refused = command("serve", "--coordinator=127.0.0.1:1", expect=3)
    assert "COORDINATOR_UNREACHABLE" in refused.stderr


def test_a_second_page_is_told_of_the_first(tmp_path, monkeypatch):
    # The paths of sockets are short.
    monkeypatch.setenv("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="cairn-"))
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        listen = f"127.0.0.1:{port}"
        with Page(cluster, listen=listen) as page:
            address = f"--coordinator={cluster.coordinator.address}"
            said = command("serve", address, f"--listen={listen}", expect=1).stderr
            assert f"another `cairn serve`, process {page.process.pid}, has the page at {listen}" in said, said
            assert "--listen" in said.partition("next: ")[2] and "cairn down" not in said, said
