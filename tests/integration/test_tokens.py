"""Nobody speaks to a coordinator without its token, and those who should have it find it without a flag."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import threading

import grpc
import numpy as np
import pytest

import cairn
from cairn._agent import connection
from cairn._base import wire
from cairn._coordinator.channel import coordinator_channel
from cairn._coordinator.tokens import of_root
from testing.ranks import command, command_json, on_ranks, until

AGENTS = wire.service("cairn.v1.AgentCoordinationService")
TRANSFERS = wire.service("cairn.v1.TransferService")
STATE = {"w": np.arange(8, dtype=np.float32)}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    """Sets a runtime directory of the test's own as the user's."""
    directory = tmp_path / "runtime"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    for name in ("CAIRN_TOKEN_FILE", "CAIRN_INSECURE", "CAIRN_COORDINATOR"):
        monkeypatch.delenv(name, raising=False)
    return directory


def save(cluster, step):
    on_ranks(cluster, lambda rank, client: client.save(step, STATE, timeout=30).wait(60))


def copy_of(runtime, cluster) -> pathlib.Path:
    return runtime / f"cairn-{os.geteuid()}" / "tokens" / cluster.coordinator.address.replace(":", "_")


def reason(address, method, tokens=(), **fields) -> str:
    """Returns the reason of an RPC's refusal; "" if it is answered. Without a token the call is plain."""
    try:
        with coordinator_channel(address, tokens) as channel:
            call = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            try:
                call(method.request(**fields), timeout=30.0)
            except grpc.RpcError as error:
                return connection.error_from_rpc(error, address).reason
    except cairn.Error as error:
        return error.reason
    return ""


def listed(address, *flags, expect=0):
    return [
        c["step"] for c in command_json("list", "demo", "--coordinator", address, *flags, expect=expect)["checkpoints"]
    ]


def registration(root, rank=0, world=2, incarnation=7):
    return {
        "agent": {"job": "demo", "rank": rank, "incarnation": incarnation},
        "world_size": world,
        "node": "elsewhere",
        "protocol": 1,
        "root_proof": (root / ".cairn/root-proof").read_text(),
    }


def test_every_call_needs_the_token(root):
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        served = re.search(r"transfer=(\S+)", until(
            lambda: "transfer=" in (text := cluster.agents[0].log.read_text()) and text)).group(1)
        for address, service in (
            (cluster.coordinator.address, wire.CHECKPOINTS),
            (cluster.coordinator.address, AGENTS),
            (served, TRANSFERS),
        ):
            for method in service.values():
                assert reason(address, method) == "BAD_TOKEN", method.path
            # An agent proves itself to other agents only, so to a command it is a stranger, whatever the token.
            for tokens in (["0" * 64], *([of_root(root, [])] if service is TRANSFERS else [])):
                assert reason(address, next(iter(service.values())), tokens) == "BAD_TOKEN"
        # Anybody may ask whether it lives.
        with connection.make_channel(cluster.coordinator.address) as channel:
            assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=30.0) == b"\x08\x01"


def test_process_without_a_token_passes_for_no_rank(root):
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=["--register-timeout=60s"]) as cluster:
        address, right = cluster.coordinator.address, of_root(root, [])
        cluster.agents[1].kill(signal.SIGTERM)  # gives its rank back
        until(lambda: "event=unregistered job=demo rank=1" in cluster.coordinator.log.read_text())
        assert reason(address, AGENTS["RegisterAgent"], **registration(root, rank=1)) == "BAD_TOKEN"
        # These calls would make a rank's part of a checkpoint out of nothing.
        forged = {"agent": registration(root, rank=1)["agent"], "state": {"saves": [{"step": 1, "phase": "WRITTEN"}]}}
        assert reason(address, AGENTS["SynchronizeAgent"], **forged) == "BAD_TOKEN"
        assert reason(address, AGENTS["RegisterAgent"], right, **registration(root, rank=1)) == ""


def test_refusals_do_not_tell_who_holds_a_rank(root):
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        method = AGENTS["RegisterAgent"]
        with coordinator_channel(cluster.coordinator.address, of_root(root, [])) as channel:
            call = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            with pytest.raises(grpc.RpcError) as refused:
                call(method.request(**registration(root)), timeout=30.0)
        error = connection.error_from_rpc(refused.value, "coordinator")
        assert error.reason == "RANK_CONFLICT" and re.search(r"held by agent [0-9a-f]{4}… on ", error.message), error
        save(cluster, 1)
        token = (root / ".cairn/token").read_text()
        for log in [cluster.coordinator.log, *(agent.log for agent in cluster.agents)]:
            text = log.read_text()
            # Identities are 64-bit numbers or longer; the names that people give their requests are not.
            assert not re.search(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])", text) and token not in text, text


def test_commands_find_the_token_by_the_address_however_it_is_spelled(root, runtime):
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        assert oct((root / ".cairn/token").stat().st_mode & 0o777) == "0o600"
        save(cluster, 1)
        port = cluster.coordinator.address.split(":")[1]
        for address in (cluster.coordinator.address, f"localhost:{port}", f"ipv4:127.0.0.1:{port}"):
            assert listed(address) == [1]
        # Without a runtime directory (a shell of another kind), the file below the root serves.
        env = {"XDG_RUNTIME_DIR": "", "PATH": os.environ["PATH"]}
        plain = [str(cairn.local.binary("cairn")), "list", "demo", "--coordinator", cluster.coordinator.address]
        done = subprocess.run(plain, env=env, capture_output=True, text=True)
        assert done.returncode == 1 and "BAD_TOKEN" in done.stderr and "/tmp/cairn-" in done.stderr, done.stderr
        assert subprocess.run([*plain, "--token-file", str(root / ".cairn/token")], env=env).returncode == 0
        copy = copy_of(runtime, cluster)
        assert copy.exists()
        cluster.coordinator.kill(signal.SIGTERM)
        until(lambda: not cluster.coordinator.alive())
        assert not copy.exists()


def test_restart_goes_on_without_a_flag(root):
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        save(cluster, 1)
        token = (root / ".cairn/token").read_text()
        cluster.coordinator.restart()
        assert (root / ".cairn/token").read_text() == token
        save(cluster, 2)
        assert listed(cluster.coordinator.address) == [1, 2]


@pytest.mark.parametrize(
    "spoil, text",
    [
        (lambda copy: copy.chmod(0o644), "can be read by others"),
        (lambda copy: copy.parent.chmod(0o770), "may be written by others"),
        (lambda copy: (copy.rename(copy.with_name("x")), copy.symlink_to("x")), "is a link"),
        (
            lambda copy: (copy.parent.rename(copy.parents[2] / "x"), copy.parent.symlink_to(copy.parents[2] / "x")),
            "is a link",
        ),
    ],
    ids=["file's mode", "directory's mode", "link", "linked directory"],
)
def test_copy_that_is_not_ours_alone_is_not_used(root, runtime, spoil, text):
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        copy = copy_of(runtime, cluster)
        assert listed(cluster.coordinator.address) == []
        spoil(copy)
        done = command("list", "demo", "--coordinator", cluster.coordinator.address, expect=1)
        assert "BAD_TOKEN" in done.stderr and text in done.stderr, done.stderr
        cluster.coordinator.restart()  # agents have the root
        save(cluster, 1)


def test_two_roots_one_after_the_other_on_one_port(tmp_path, runtime):
    """The runtime directory has the first one's token until the second one serves."""
    with cairn.local.Cluster(ranks=1, root=tmp_path / "first") as first:
        address = first.coordinator.address
        save(first, 1)
        first.agents[0].kill()
        first.coordinator.kill()  # leaves its copy
        assert copy_of(runtime, first).read_text().split("\n")[0] == (tmp_path / "first/.cairn/token").read_text()
        with cairn.local.Cluster(ranks=1, root=tmp_path / "second") as second:
            # Its agent gets the first one's address, and finds the first one's token there.
            agent = second.agents[0]
            agent.kill()
            agent.flags = [f for f in agent.flags if not f.startswith("--coordinator=")] + [
                f"--coordinator={address}"
            ]
            agent.restart()
            until(lambda: "COORDINATOR_UNREACHABLE" in agent.log.read_text())
            second.coordinator.kill()
            second.coordinator.flags[0] = f"--listen={address}"
            second.coordinator.restart()
            second.await_agents()
            save(second, 2)
            assert listed(address) == [2]
            second.coordinator.kill()
        first.coordinator.restart()
        first.agents[0].restart()
        first.await_agents()
        assert listed(address) == [1]


def test_agent_whose_token_is_refused_ends_by_name(root, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("0" * 64 + "\n")
    wrong.chmod(0o600)
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        agent = cluster.agents[0]
        for flag in (f"--token-file={wrong}", "--insecure"):
            agent.kill()
            flags, agent.flags = agent.flags, [*agent.flags, flag, "--register-timeout=300ms"]
            agent.restart()
            until(lambda: not agent.alive(), text="the agent's end")
            assert agent.returncode == 1
            assert "error: BAD_TOKEN: " in agent.log.read_text()
            agent.flags = flags
            agent.log.unlink()
        agent.restart()
        cluster.await_agents()
        save(cluster, 1)


def test_agent_takes_a_token_that_was_changed_under_it(root, tmp_path):
    """A secret is replaced: coordinator and agents read their file again, one after the other."""
    file = tmp_path / "token"
    file.write_text("first token, long enough\n")
    file.chmod(0o600)
    flags = [f"--token-file={file}"]
    with cairn.local.Cluster(ranks=2, root=root, coordinator_flags=flags, agent_flags=flags) as cluster:
        save(cluster, 1)
        file.write_text("second token, long enough\n")
        cluster.coordinator.restart()
        save(cluster, 2)
        assert listed(cluster.coordinator.address, *flags) == [1, 2]


def test_insecure_has_to_be_said(root, runtime):
    with cairn.local.Cluster(
        ranks=1, root=root, coordinator_flags=["--insecure"], agent_flags=["--insecure"]
    ) as cluster:
        assert "event=insecure" in cluster.coordinator.log.read_text()
        save(cluster, 1)
        assert reason(cluster.coordinator.address, wire.CHECKPOINTS["GetJob"], job="demo") == ""
        assert listed(cluster.coordinator.address, "--insecure") == [1]
        assert not copy_of(runtime, cluster).exists() and not (root / ".cairn/token").exists()
    done = subprocess.run(
        [str(cairn.local.binary("cairn-coordinator")), f"--root={root}", "--listen=0.0.0.0:0", "--insecure"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "error: NOT_LOOPBACK: " in done.stderr, done.stderr


class Stranger:
    """Listens at an address, hears what callers say, and does what its kind does with it. A context."""

    def __init__(self, host: str, port: int = 0, kind: str = "silent", target: str = ""):
        self.heard, self.kind, self.target, self._ends = b"", kind, target, []
        self.listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((host, port))
        self.listener.listen()
        self.address = f"{host}:{self.listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        for end in (self.listener, *self._ends):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def _serve(self):
        while True:
            try:
                caller = self.listener.accept()[0]
            except OSError:
                return
            self._ends.append(caller)
            if self.kind == "http2":
                caller.sendall(b"\0\0\0\4\0\0\0\0\0")
            target = None
            if self.kind == "relay":
                host, _, port = self.target.rpartition(":")
                target = socket.create_connection((host, int(port)))
                self._ends.append(target)
                threading.Thread(target=self._pump, args=(target, caller), daemon=True).start()
            threading.Thread(target=self._pump, args=(caller, target), daemon=True).start()

    def _pump(self, source, target):
        try:
            while part := source.recv(65536):
                self.heard += part
                if target is not None:
                    target.sendall(part)
        except OSError:
            pass


@pytest.mark.parametrize("kind", ["silent", "http2"])
def test_stranger_at_the_other_address_of_localhost_hears_no_token(root, kind):
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        save(cluster, 1)
        port = int(cluster.coordinator.address.rpartition(":")[2])
        try:
            stranger = Stranger("::1", port, kind)
        except OSError:
            pytest.skip("this system has no loopback of IPv6, or the port is taken there")
        with stranger:
            assert listed(f"localhost:{port}", "--token-file", str(root / ".cairn/token")) == [1]
            tokens = of_root(root, [])
            assert reason(f"localhost:{port}", wire.CHECKPOINTS["GetJob"], tokens, job="demo") == ""
        assert tokens[0].encode() not in stranger.heard


def test_relay_on_this_machine_is_refused_and_hears_no_token(root):
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        tokens = of_root(root, [])
        with Stranger("127.0.0.1", kind="relay", target=cluster.coordinator.address) as relay:
            done = command("list", "demo", "--coordinator", relay.address, "--token-file", str(root / ".cairn/token"),
                           expect=1)
            assert "BAD_TOKEN" in done.stderr and "another process of this machine" in done.stderr, done.stderr
            assert reason(relay.address, wire.CHECKPOINTS["GetJob"], tokens, job="demo") == "BAD_TOKEN"
        assert relay.heard and tokens[0].encode() not in relay.heard


def test_stranger_at_the_port_of_a_dead_coordinator_hears_no_token(root):
    with cairn.local.Cluster(
        ranks=2, root=root, coordinator_flags=["--lease-ttl=1s"], agent_flags=["--register-timeout=300ms"]
    ) as cluster:
        save(cluster, 1)
        host, _, port = cluster.coordinator.address.rpartition(":")
        cluster.coordinator.kill()
        with Stranger(host, int(port), "http2") as stranger:
            # Beyond --register-timeout, after which an agent that never had a coordinator ends.
            until(lambda: len(stranger._ends) >= 8, text="the agents' calls")
            until(lambda: all("BAD_TOKEN" in agent.log.read_text() for agent in cluster.agents))
        assert stranger.heard.startswith(b"CAIRN-P1") and of_root(root, [])[0].encode() not in stranger.heard
        cluster.coordinator.restart()
        cluster.await_agents()
        save(cluster, 2)
        assert all(agent.alive() for agent in cluster.agents)


@pytest.mark.parametrize("given", [True, False], ids=["token file", "root's token"])
def test_token_is_changed_while_a_job_runs(root, tmp_path, given):
    """As docs/operations.md says: the new one beside the old one, then alone. No save fails."""
    file = tmp_path / "token" if given else root / ".cairn/token"
    if given:
        file.write_text("first token, long enough\n")
        file.chmod(0o600)
    flags = [f"--token-file={file}"] if given else []
    new = "5" * 64

    def write(text):
        fresh = file.with_name("token.new")
        fresh.touch(mode=0o600)
        fresh.write_text(text)
        fresh.replace(file)

    def tokens_read(count):
        services = [cluster.coordinator, *cluster.agents]
        until(lambda: all(re.search(rf"event=tokens_read .*tokens={count}\b", service.log.read_text())
                          for service in services),
              text=f"{count} tokens")

    with cairn.local.Cluster(ranks=2, root=root, coordinator_flags=flags, agent_flags=flags) as cluster:
        address = cluster.coordinator.address
        save(cluster, 1)
        old = file.read_text().splitlines()[0]  # a given token may have spaces
        was = tmp_path / "was"
        was.touch(mode=0o600)
        was.write_text(old)
        write(f"{new}\n{old}\n")
        save(cluster, 2)
        tokens_read(2)
        save(cluster, 3)
        assert listed(address, f"--token-file={was}") == [1, 2, 3]
        assert listed(address, f"--token-file={file}") == [1, 2, 3]
        write(f"{new}\n")
        save(cluster, 4)
        tokens_read(1)
        save(cluster, 5)
        cluster.agents[0].restart()
        cluster.await_agents()
        save(cluster, 6)
        cluster.coordinator.restart()
        save(cluster, 7)
        assert listed(address, f"--token-file={file}") == [1, 2, 3, 4, 5, 6, 7]
        assert "BAD_TOKEN" in command("list", "demo", "--coordinator", address, f"--token-file={was}", expect=1).stderr
