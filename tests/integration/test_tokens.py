"""Nobody speaks to a coordinator without its token, and those who should have it find it without a flag."""

import os
import pathlib
import re
import signal
import subprocess

import grpc
import numpy as np
import pytest

import cairn
from cairn import _agent, _token, _wire
from testing.ranks import command, command_json, on_ranks, until

AGENTS = _wire.service("cairn.v1.AgentCoordinationService")
TRANSFERS = _wire.service("cairn.v1.TransferService")
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


def reason(address, method, metadata=(), **fields) -> str:
    """Returns the reason of an RPC's refusal; "" if it is answered."""
    with _agent.make_channel(address) as channel:
        call = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        try:
            call(method.request(**fields), timeout=30.0, metadata=metadata)
        except grpc.RpcError as error:
            return _agent.error_of(error, address).reason
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
        wrong = (("authorization", "Bearer " + "0" * 64),)
        for address, service in (
            (cluster.coordinator.address, _wire.CHECKPOINTS),
            (cluster.coordinator.address, AGENTS),
            (served, TRANSFERS),
        ):
            for method in service.values():
                for metadata in ((), wrong):
                    assert reason(address, method, metadata) == "BAD_TOKEN", (method.path, metadata)
        # Anybody may ask whether it lives.
        with _agent.make_channel(cluster.coordinator.address) as channel:
            assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=30.0) == b"\x08\x01"


def test_process_without_a_token_passes_for_no_rank(root):
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=["--register-timeout=60s"]) as cluster:
        address, right = cluster.coordinator.address, _token.metadata(root, [])
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
        with _agent.make_channel(cluster.coordinator.address) as channel:
            call = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            with pytest.raises(grpc.RpcError) as refused:
                call(method.request(**registration(root)), timeout=30.0, metadata=_token.metadata(root, []))
        error = _agent.error_of(refused.value, "coordinator")
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
        cluster.coordinator._stop()
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
            agent._flags = [f for f in agent._flags if not f.startswith("--coordinator=")] + [
                f"--coordinator={address}"
            ]
            agent.restart()
            until(lambda: "COORDINATOR_UNREACHABLE" in agent.log.read_text())
            second.coordinator.kill()
            second.coordinator._flags[0] = f"--listen={address}"
            second.coordinator.restart()
            second._await_registration()
            save(second, 2)
            assert listed(address) == [2]
            second.coordinator.kill()
        first.coordinator.restart()
        first.agents[0].restart()
        first._await_registration()
        assert listed(address) == [1]


def test_agent_whose_token_is_refused_ends_by_name(root, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("0" * 64 + "\n")
    wrong.chmod(0o600)
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        agent = cluster.agents[0]
        for flag in (f"--token-file={wrong}", "--insecure"):
            agent.kill()
            flags, agent._flags = agent._flags, [*agent._flags, flag, "--register-timeout=300ms"]
            agent.restart()
            until(lambda: not agent.alive(), text="the agent's end")
            assert agent._process.returncode == 1
            assert "error: BAD_TOKEN: " in agent.log.read_text()
            agent._flags = flags
            agent.log.unlink()
        agent.restart()
        cluster._await_registration()
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
        assert reason(cluster.coordinator.address, _wire.CHECKPOINTS["GetJob"], job="demo") == ""
        assert listed(cluster.coordinator.address, "--insecure") == [1]
        assert not copy_of(runtime, cluster).exists() and not (root / ".cairn/token").exists()
    done = subprocess.run(
        [str(cairn.local.binary("cairn-coordinator")), f"--root={root}", "--listen=0.0.0.0:0", "--insecure"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "error: NOT_LOOPBACK: " in done.stderr, done.stderr
