"""Runs a job in a network that has IPv6 alone: coordinator, agents, metrics, commands, page."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

import cairn

PATHS = os.pathsep.join([str(pathlib.Path(cairn.__file__).parents[1]), str(pathlib.Path(__file__).parents[1])])

# What follows runs in a network namespace of its own. argv: the directory for everything.
NETWORK = """
import subprocess
for words in ("link set lo up", "-4 address flush dev lo", "-6 address add fd00::1/128 dev lo nodad"):
    subprocess.run(["ip", *words.split()], check=True)
"""

TRAINER = """
import os
import numpy as np
import cairn
client = cairn.connect()
half = np.full(1 << 20, client.rank + 1, np.float32)
client.save(1, {"w": cairn.Shard(half, (2 << 20,), (client.rank << 20,))}).wait(60)
whole = np.zeros(2 << 20, np.float32)
client.load({"w": whole}, step=1)
assert (whole[: 1 << 20] == 1).all() and (whole[1 << 20 :] == 2).all()
os.write(1, f"{client.rank} loaded\\n".encode())
"""

JOB = NETWORK + """
import os, pathlib, re, sys, urllib.request
import cairn
from cairn._coordinator.channel import coordinator_channel
from testing.ranks import until

directory, trainer = pathlib.Path(sys.argv[1]), sys.argv[2]
(root := directory / "checkpoints").mkdir()
token = directory / "token"
token.write_text("a secret of coordinator and agents\\n")
token.chmod(0o600)
COORDINATOR = "[fd00::1]:7420"
access = os.environ | {"CAIRN_TOKEN_FILE": str(token), "CAIRN_COORDINATOR": COORDINATOR}
programs = []

def start(*words, **settings):
    environment = access | {f"CAIRN_{name.upper()}": str(value) for name, value in settings.items()}
    log = directory / f"log{len(programs)}"
    programs.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=log.open("w"), text=True))
    return programs[-1], log

def get(address, host=None):
    request = urllib.request.Request(f"http://{address}", headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""

def command(*words):
    done = subprocess.run([cairn.local.binary("cairn"), *words], env=access, capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout

try:
    # As the manifests give the addresses: they know no version of IP.
    start(cairn.local.binary("cairn-coordinator"), root=root, listen="0.0.0.0:7420", metrics_listen="0.0.0.0:9419")
    sidecar, log = start(cairn.local.binary("cairn"), "agents", job="demo", root=root, ranks=2, nodes=1, node_rank=0,
                         listen="0.0.0.0:7421", advertise="[fd00::1]:7421", metrics_listen="0.0.0.0:9420",
                         run_directory=directory / "a", shared_memory="never")
    until(lambda: get("[fd00::1]:9420/serving")[0] == 200, limit=60, text=f"the sidecar serves: {log.read_text()}")
    pattern = f"unix:{directory}/a/local{{local_rank}}/agent.sock"
    trainers = [subprocess.Popen([sys.executable, "-c", trainer], env=os.environ | {
        "CAIRN_AGENT": pattern, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
    assert [one.wait(120) for one in trainers] == [0, 0], log.read_text()
    # Both agents are known by an address of IPv6, and bytes went between them.
    said = log.read_text()
    assert "transfer=[fd00::1]:7421" in said and "transfer=[fd00::1]:7422" in said, said
    assert 'cairn_agent_rank{rank="1",job_name="demo"} 1' in get("[fd00::1]:9420/metrics")[1]
    assert "cairn_job_agents" in get("[fd00::1]:9419/metrics")[1]

    assert "[fd00::1]:7422" in command("status", "demo", "--format=json")
    assert "demo" in command("jobs", "--coordinator", "[FD00:0::1]:7420")
    with coordinator_channel(COORDINATOR, [token.read_text().strip()]):
        pass
    command("doctor", "--root", str(root))

    for listen, more in (("[fd00:0::1]:0", []), ("[::]:0", ["--host", "fd00::1"]),
                         ("0.0.0.0:0", ["--host", "[fd00::1]"])):
        page, log = start(cairn.local.binary("cairn"), "serve", "--listen", listen, *more,
                          "--page-token-file", str(token))
        line = page.stdout.readline()
        found = re.fullmatch(r"http://(\\S+):(\\d+)/\\n", line)
        assert found, (line, log.read_text())
        assert get(f"[fd00::1]:{found[2]}/")[0] == 200, "browsers send the address in brackets"
        assert get(f"[fd00::1]:{found[2]}/", "other.example")[0] == 421
    # On two machines each one's --host is an address, in brackets or not.
    for port, host in ((7430, "fd00::1"), (7431, "[fd00::1]")):
        done = subprocess.run([cairn.local.binary("cairn"), "run", "--root", directory / f"r{port}",
                               "--job", f"two{port}", "--run-directory", directory / f"b{port}",
                               "--nodes", "2", "--node-rank", "0",
                               "--coordinator", f"[fd00::1]:{port}", "--host", host, "--", "true"],
                              env=os.environ | {"CAIRN_TOKEN_FILE": str(token)}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
finally:
    for program in programs:
        program.terminate()
    for program in programs:
        program.wait(60)
"""


@pytest.fixture
def network():
    """Returns the words that run a program in a network namespace of its own."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("no network of its own: unshare and ip are not installed")
    words = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    tried = subprocess.run([*words, sys.executable, "-c", NETWORK], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no network of its own with IPv6: {tried.stderr.strip()[-200:]}")
    return words


def test_job_runs_where_there_is_only_ipv6(network):
    with tempfile.TemporaryDirectory(prefix="cairn-") as directory:  # a short path, for sockets
        done = subprocess.run([*network, sys.executable, "-c", JOB, directory, TRAINER],
                              env=os.environ | {"PYTHONPATH": PATHS}, capture_output=True, text=True, timeout=300)
        logs = "".join(path.read_text() for path in pathlib.Path(directory).glob("log*"))
        assert done.returncode == 0, done.stdout + done.stderr + logs
        assert sorted(done.stdout.split("\n")[:2]) == ["0 loaded", "1 loaded"]
