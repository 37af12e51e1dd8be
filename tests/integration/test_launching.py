"""Tests `cairn run`, `cairn up --detach` and `cairn down`: what they start, what they hand on, what survives."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap

import pytest

import cairn
from testing import stand_in_nccl
from testing.ranks import until
from testing.stand_in_gpu import LIBRARY as LIBCUDA

PATHS = os.pathsep.join([str(pathlib.Path(cairn.__file__).parents[1]), str(pathlib.Path(__file__).parents[1])])
CAIRN = str(cairn.local.binary("cairn"))
JOB = "demo"  # of `cairn run` and `cairn up` without --job

# A launcher as torchrun is one: a process for each rank, which knows its rank by RANK.
LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, *sys.argv[2:]], env={**os.environ, "RANK": str(rank)})
         for rank in range(int(sys.argv[1]))]
sys.exit(max(rank.wait() for rank in ranks))
"""

TRAINER = """
import sys
import numpy as np
import cairn
client = cairn.connect()
saving = client.save(int(sys.argv[1]), {"w": cairn.Shard(np.full(1024, client.rank), (2048,), (1024 * client.rank,))})
saving.wait()
"""

RESHARDS = """
import os
import numpy as np
import cairn
client = cairn.connect()
half = (1024, 2048), (1024 * client.rank, 0)
report = client.reshard({"w": cairn.Shard(np.full((1024, 2048), client.rank), (2048, 2048), half[1])},
                        {"w": np.zeros((2048, 2048), np.int64)}, timeout=60)
os.write(1, f"{report.transport}\\n".encode())  # both ranks have one pipe, and print may write twice
"""

# Its grandchild ends as a child of the first process, which is `cairn run`.
LEAVES_AN_ORPHAN = """
import os, pathlib, time
reads, writes = os.pipe()
if os.fork() == 0:
    if (orphan := os.fork()) == 0:
        os._exit(0)
    os.write(writes, str(orphan).encode())
    os._exit(0)
orphan = pathlib.Path("/proc", os.read(reads, 20).decode())
os.wait()
deadline = time.monotonic() + 30
while orphan.exists():
    assert time.monotonic() < deadline, (orphan / "status").read_text()
    time.sleep(0.02)
"""

SAVES_THREE = """
import numpy as np
import cairn
client = cairn.connect()
for step in (1, 2, 3):
    client.save(step, {"w": np.full(1024, step)}).wait()
"""


@pytest.fixture
def runtime(monkeypatch):
    """The runtime directory of a user who runs nothing else."""
    directory = tempfile.mkdtemp(prefix="cairn-run-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
    monkeypatch.setenv("PYTHONPATH", PATHS)
    yield pathlib.Path(directory)
    subprocess.run([CAIRN, "down"], capture_output=True, check=False)
    shutil.rmtree(directory)


@pytest.fixture
def scripts(tmp_path):
    (tmp_path / "launch.py").write_text(LAUNCHER)
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "reshard.py").write_text(RESHARDS)
    return tmp_path


def run(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([CAIRN, *arguments], capture_output=True, text=True, check=False, timeout=120,
                          stdin=subprocess.DEVNULL, **options)


def committed(root) -> list[int]:
    listed = run("--format=json", "list", JOB, f"--root={root}")
    return [step["step"] for step in json.loads(listed.stdout)["checkpoints"]]


def services(log_directory: pathlib.Path) -> dict[str, int]:
    """Returns the processes whose standard error is a log of this directory, by the log's name."""
    found = {}
    for process in pathlib.Path("/proc").iterdir():
        try:
            log = pathlib.Path(os.readlink(process / "fd" / "2"))
        except OSError:
            continue
        if log.parent == log_directory and process.name.isdigit():
            found[log.stem] = int(process.name)
    return found


def test_run_gives_every_rank_its_agent_and_ends_with_the_command(runtime, scripts):
    root = scripts / "checkpoints"
    done = run("run", f"--root={root}", "--ranks=2", "--", sys.executable, str(scripts / "launch.py"), "2",
               str(scripts / "train.py"), "5")
    assert done.returncode == 0, done.stderr
    assert committed(root) == [5]
    logs = pathlib.Path(re.search(r"logs in (\S+)", done.stderr)[1])
    assert {log.name for log in logs.glob("*.log")} == {"coordinator.log", "rank0.log", "rank1.log"}
    assert not services(logs), "what it started has ended"
    again = run("run", f"--root={root}", "--ranks=2", "--", sys.executable, str(scripts / "launch.py"), "2",
                str(scripts / "train.py"), "6")
    assert again.returncode == 0 and committed(root) == [5, 6]
    assert (logs / "rank0.log.1").exists(), "the log of the run before"


def test_run_with_torchrun_takes_the_number_of_ranks_from_it(runtime, scripts):
    pytest.importorskip("torch.distributed.run")
    root = scripts / "checkpoints"
    done = run("run", f"--root={root}", "--", sys.executable, "-m", "torch.distributed.run", "--standalone",
               "--local-addr=127.0.0.1", "--nproc-per-node=2", str(scripts / "train.py"), "3")
    assert done.returncode == 0, done.stderr
    assert committed(root) == [3]


def test_run_of_one_rank_after_a_killed_one_of_two_needs_no_launcher(runtime, scripts):
    """The socket of rank 1 stays where it was when its agent is killed."""
    root = f"--root={scripts / 'checkpoints'}"
    assert run("run", root, "--ranks=2", "--", "true").returncode == 0
    (left,) = runtime.glob("cairn-*/up-demo/rank1")
    os.mknod(left / "agent.sock", 0o600 | stat.S_IFSOCK)
    done = run("run", root, "--ranks=1", "--", sys.executable, "-c", "import cairn; print(cairn.connect().world_size)")
    assert done.returncode == 0 and done.stdout == "1\n", done.stderr


def test_run_with_fewer_agents_than_trainers_commits_nothing(runtime, scripts):
    pytest.importorskip("torch.distributed.run")
    root = scripts / "checkpoints"
    done = run("run", f"--root={root}", "--ranks=1", "--", sys.executable, "-m", "torch.distributed.run",
               "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2", str(scripts / "train.py"), "3")
    assert done.returncode != 0 and "WORLD_SIZE_MISMATCH" in done.stderr and "WORLD_SIZE=2" in done.stderr
    assert "JOB_NOT_FOUND" in run("list", JOB, f"--root={root}").stderr


@pytest.mark.parametrize(("script", "status"), [("exit 42", 42), ("kill -KILL $$", 128 + signal.SIGKILL)])
def test_run_hands_on_the_exit_status(runtime, tmp_path, script, status):
    assert run("run", f"--root={tmp_path}", "--", "sh", "-c", script).returncode == status


def test_run_as_the_first_process_of_a_container_leaves_no_zombies(runtime, tmp_path):
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
             *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces here: {tried.stderr.strip()}")
    done = subprocess.run([*words, CAIRN, "run", f"--root={tmp_path}/c", "--", sys.executable, "-c", LEAVES_AN_ORPHAN],
                          capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


def test_run_of_no_program_says_so(runtime, tmp_path):
    done = run("run", f"--root={tmp_path}", "--", "/no/such/program")
    assert done.returncode == 127 and "/no/such/program" in done.stderr
    new = tmp_path / "new"
    done = run("run", f"--root={new}", "--", "no-such-program")
    assert done.returncode == 127 and "next: Give the path of a program" in done.stderr, done.stderr
    assert not new.exists(), "a mistyped command leaves no root behind"
    done = run("run", f"--root={tmp_path}")
    assert done.returncode == 1 and "must follow --" in done.stderr


def test_run_of_a_command_without_dashes_says_where_it_stands(runtime, tmp_path):
    done = run("run", f"--root={tmp_path}", "torchrun", "--nproc-per-node", "2", "train.py")
    assert done.returncode == 2 and "must stand behind --" in done.stderr


def test_second_job_on_a_root_is_told_the_whole_command_which_works(runtime, scripts):
    root = scripts / "root with a blank"
    with cairn.local.Cluster(ranks=1, root=root) as cluster:
        done = run("run", "--root", str(root), "--job=other", "--ranks=2", "--coordinator=127.0.0.1:1", "--",
                   sys.executable, str(scripts / "launch.py"), "2", str(scripts / "train.py"), "5")
        assert done.returncode == 1 and "ROOT_IN_USE" in done.stderr, done.stderr
        assert f"at {cluster.coordinator.address}" in done.stderr
        told = re.search(r"type: cairn (.*) \(for as long", done.stderr)[1]
        assert f"--no-coordinator --coordinator {cluster.coordinator.address} " in told
        again = run(*shlex.split(told))
        assert again.returncode == 0, again.stderr
        listed = run("--format=json", "list", "other", f"--root={root}")
        assert [step["step"] for step in json.loads(listed.stdout)["checkpoints"]] == [5]


def test_commands_ask_the_coordinator_that_knows_the_job(runtime, tmp_path):
    roots = {job: tmp_path / job for job in ("a", "b")}
    try:
        for job, root in roots.items():
            assert run("up", "--detach", "--ranks=1", f"--job={job}", f"--root={root}").returncode == 0
        for job in roots:
            status = run("--format=json", "status", job)
            assert status.returncode == 0 and json.loads(status.stdout)["job"] == job, status.stderr
            assert run("list", job).returncode == 0
        unknown = run("status", "nobody")
        assert unknown.returncode == 2 and "Here run those of a (" in unknown.stderr and ", b (" in unknown.stderr
        listed = run("jobs")
        assert listed.returncode == 0, listed.stderr
        for job, root in roots.items():
            assert re.search(rf"coordinator 127\.0\.0\.1:\d+, root {root}\n.*\n *{job} ", listed.stdout), listed.stdout
        entries = json.loads(run("--format=json", "jobs").stdout)["jobs"]
        assert [entry["job"] for entry in entries] == ["a", "b"]
        assert len({entry["coordinator"] for entry in entries}) == 2
    finally:
        for job in roots:
            run("down", f"--job={job}")


def test_up_finds_a_place_beside_a_directory_of_another_user(runtime, tmp_path):
    squatted = runtime / f"cairn-{os.geteuid()}"
    squatted.write_text("anybody may have made this")
    try:
        done = run("up", "--detach", "--ranks=1", "--job=demo", f"--root={tmp_path}/root")
        assert done.returncode == 0, done.stderr
        (place,) = runtime.glob(f"cairn-{os.geteuid()}-*")
        assert place.stat().st_mode & 0o777 == 0o700 and (place / "up-demo").is_dir()
        status = run("--format=json", "status", "demo")
        assert status.returncode == 0 and json.loads(status.stdout)["job"] == "demo", status.stderr
    finally:
        assert run("down").returncode == 0
    assert squatted.read_text() == "anybody may have made this"


@pytest.mark.parametrize(("words", "said"), [(["--standalone"], True),
                                             (["--standalone", "--local-addr=127.0.0.1"], False), ([], False)])
def test_run_says_that_this_machines_name_has_no_address(runtime, tmp_path, words, said):
    launcher = tmp_path / "torchrun"
    launcher.write_text("#!/bin/sh\nsleep 1\n")
    launcher.chmod(0o755)
    without_name = ["unshare", "--uts", "--map-root-user", "sh", "-c", 'hostname no-such-name.invalid; exec "$@"', "-"]
    if subprocess.run([*without_name, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("not run: the system gives no namespace of its own for a name")
    done = subprocess.run([*without_name, CAIRN, "run", f"--root={tmp_path}/root", "--", str(launcher), *words],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert ("no-such-name.invalid, has no address" in done.stderr) == said, done.stderr
    assert ("--local-addr 127.0.0.1" in done.stderr) == said


def test_run_of_prune_ends_when_the_files_are_gone(runtime, scripts):
    root = scripts / "root"
    (scripts / "train_all.py").write_text(SAVES_THREE)
    assert run("run", f"--root={root}", "--", sys.executable, str(scripts / "train_all.py")).returncode == 0
    assert committed(root) == [1, 2, 3]
    done = run("run", f"--root={root}", "--coordinator-flag=--lease-ttl=1s", "--",
               CAIRN, "prune", JOB, "--keep-last=1")
    assert done.returncode == 0, done.stderr
    assert "2 of 3 checkpoints were deleted" in done.stdout and "some of their files go later" in done.stdout
    assert "cairn: waiting for the files of 2 deleted checkpoints to be removed, which begins in " in done.stderr
    assert "cairn: they are removed" in done.stderr, done.stderr
    assert {int(path.parent.parent.name) for path in root.rglob("*.safetensors")} == {3}
    # Nothing is due any more, so nothing is said.
    again = run("run", f"--root={root}", "--", CAIRN, "prune", JOB, "--keep-last=1")
    assert again.returncode == 0 and "deleted checkpoint" not in again.stderr, again.stderr


def test_ctrl_c_leaves_files_that_are_due_to_the_next_coordinator(runtime, scripts):
    root = scripts / "root"
    (scripts / "train_all.py").write_text(SAVES_THREE)
    assert run("run", f"--root={root}", "--", sys.executable, str(scripts / "train_all.py")).returncode == 0
    process = subprocess.Popen([CAIRN, "run", f"--root={root}", "--coordinator-flag=--lease-ttl=5m", "--",
                                CAIRN, "prune", JOB, "--keep-last=1"], stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True)
    said = ""
    while "waiting for the files of 2" not in said:
        said = process.stderr.readline()
        assert said, "it ended before it waited"
    process.send_signal(signal.SIGINT)
    assert "files of 2 deleted checkpoints are still there" in process.communicate(timeout=60)[1]
    assert process.returncode == 0, "the command had done what it was asked for"
    assert committed(root) == [3]


def test_run_of_prune_fails_if_files_cannot_be_removed(runtime, scripts):
    root = scripts / "root"
    (scripts / "train_all.py").write_text(SAVES_THREE)
    assert run("run", f"--root={root}", "--", sys.executable, str(scripts / "train_all.py")).returncode == 0
    held = next(path for path in root.rglob("*.safetensors") if int(path.parent.parent.name) == 1)
    if subprocess.run(["chattr", "+i", held], capture_output=True, check=False).returncode != 0:
        pytest.skip("no file can be made immutable here")
    prune = ["run", f"--root={root}", "--coordinator-flag=--lease-ttl=1s", "--", CAIRN, "prune", JOB, "--keep-last=1"]
    try:
        done = run(*prune)
    finally:
        subprocess.run(["chattr", "-i", held], check=True)
    assert done.returncode == 1 and "error: STORAGE_ERROR: files of 1 deleted checkpoint are still there" in done.stderr
    assert held.exists()
    assert run(*prune).returncode == 0
    until(lambda: not held.exists())


def test_run_of_prune_fails_if_the_coordinator_ends_before_the_files_are_gone(runtime, scripts):
    root = scripts / "root"
    (scripts / "train_all.py").write_text(SAVES_THREE)
    assert run("run", f"--root={root}", "--", sys.executable, str(scripts / "train_all.py")).returncode == 0
    with subprocess.Popen([CAIRN, "run", f"--root={root}", "--coordinator-flag=--lease-ttl=5m", "--",
                           CAIRN, "prune", JOB, "--keep-last=1"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          stdin=subprocess.DEVNULL, text=True) as process:
        logs = pathlib.Path(re.search(r"logs in (\S+)", process.stderr.readline())[1])
        coordinator = services(logs)["coordinator"]
        said = ""
        while "waiting for the files of 2" not in said:
            said = process.stderr.readline()
            assert said, "it ended before it waited"
        os.kill(coordinator, signal.SIGKILL)
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 1, told
    assert "error: COORDINATOR_UNREACHABLE: whether files of deleted checkpoints are still there is not known" in told
    assert "run the same command again" in told
    assert committed(root) == [3]


def test_run_hands_on_signals_and_passes_no_token_in_arguments(runtime, tmp_path):
    token = "0123456789abcdef0123456789abcdef"
    (tmp_path / "token").write_text(token + "\n")
    (tmp_path / "token").chmod(0o600)
    script = f"trap 'exit 9' TERM; echo $CAIRN_AGENT $CAIRN_TOKEN_FILE > {tmp_path}/ready; while :; do sleep 0.05; done"
    running = subprocess.Popen([CAIRN, "run", f"--root={tmp_path}", f"--token-file={tmp_path}/token", "--", "sh", "-c",
                                script], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until(lambda: (tmp_path / "ready").exists() and (tmp_path / "ready").read_text())
    agent, token_file = (tmp_path / "ready").read_text().split()
    assert agent.endswith("/rank{rank}/agent.sock") and token_file == str(tmp_path / "token")
    logs = pathlib.Path(re.search(r"logs in (\S+)", running.stderr.readline())[1])
    processes = services(logs)
    assert set(processes) == {"coordinator", "rank0"}
    for process in [running.pid, *processes.values()]:
        for file in ("cmdline", "environ"):
            assert token not in pathlib.Path(f"/proc/{process}/{file}").read_text(), file
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 9
    assert not services(logs)


@pytest.mark.parametrize("killed", ["coordinator", "rank1"])
def test_dead_service_is_started_again_and_saves_go_on(runtime, scripts, killed):
    root = scripts / "checkpoints"
    root.mkdir()
    (scripts / "train.py").write_text(TRAINER.replace("saving = ", textwrap.dedent("""
        import pathlib, time
        go = pathlib.Path(sys.argv[2])
        go.with_suffix(f".{client.rank}").touch()
        while not go.exists():
            time.sleep(0.01)
        saving = """)))
    running = subprocess.Popen(
        [CAIRN, "run", f"--root={root}", "--ranks=2", "--", sys.executable, str(scripts / "launch.py"), "2",
         str(scripts / "train.py"), "5", str(scripts / "go")], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True)
    logs = pathlib.Path(re.search(r"logs in (\S+)", running.stderr.readline())[1])
    until(lambda: (scripts / "go.0").exists() and (scripts / "go.1").exists(), text="trainers")
    os.kill(services(logs)[killed], signal.SIGKILL)
    said = running.stderr.readline()
    assert "ended with signal 9; it is started again" in said, said
    (scripts / "go").touch()
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    assert committed(root) == [5]


def test_first_start_beside_other_jobs_names_them(runtime, scripts):
    root = scripts / "checkpoints"
    train = ["--", sys.executable, str(scripts / "launch.py"), "1", str(scripts / "one.py")]
    (scripts / "one.py").write_text("import cairn\nwith cairn.connect() as client:\n"
                                    "    client.save(1, {'n': 1}).wait()\n")
    first = run("run", f"--root={root}", "--job=llm", *train)
    assert first.returncode == 0, first.stderr
    assert f"cairn: job llm below {root}, 1 rank here, coordinator 127.0.0.1:" in first.stderr
    made = f"there was no directory {root}: it was made, and job llm starts from the beginning"
    assert made in first.stderr and "no checkpoint" not in first.stderr, first.stderr
    mistyped = run("run", f"--root={root}", "--job=lm", "--", "true")
    note = f"no checkpoint of job lm below {root}, so it starts from the beginning; jobs there: llm\n"
    assert mistyped.returncode == 0 and mistyped.stderr.count(note) == 1, mistyped.stderr
    assert "no checkpoint" not in run("run", f"--root={root}", "--job=llm", "--", "true").stderr
    asking = run("run", f"--root={root}", "--job=lm", "--", CAIRN, "jobs")
    assert asking.returncode == 0 and "llm" in asking.stdout, asking.stderr
    assert "starts from the beginning" not in asking.stderr, "it trains nothing"
    up = run("up", "--ranks=1", f"--root={root}", "--job=lm", "--detach")
    assert up.returncode == 0 and up.stderr.count(note) == 1, up.stderr
    assert run("down", "--job=lm").returncode == 0


def test_up_detached_serves_until_down(runtime, scripts):
    root = scripts / "checkpoints"
    started = run("up", "--ranks=2", f"--root={root}", "--detach")
    assert started.returncode == 0, started.stderr
    environment = dict(re.findall(r"^export (\w+)='(.*)'$", started.stdout, re.MULTILINE))
    assert environment["CAIRN_JOB"] == JOB
    # The commands of another shell find the only coordinator that runs here.
    jobs = run("jobs")
    assert jobs.returncode == 0 and JOB in jobs.stdout, jobs.stderr
    address = environment["CAIRN_COORDINATOR"]
    assert jobs.stderr == f"note: asking the coordinator of job {JOB} that runs here, {address}\n"
    assert run("--format=json", "jobs").stderr == ""
    assert "no save has been measured yet" in run("doctor", "--grace=30s", f"--job={JOB}", f"--root={root}").stdout
    (scripts / "elsewhere").mkdir()
    elsewhere = run("doctor", "--grace=30s", f"--root={scripts / 'elsewhere'}")
    assert elsewhere.returncode == 0, "nobody has asked for the coordinator of another root"
    assert "serves another root" in elsewhere.stdout and "not compared" in elsewhere.stdout, elsewhere.stdout
    other = run("up", "--ranks=1", f"--root={scripts / 'other'}", "--job=other", "--detach")
    assert other.returncode == 0, other.stderr
    both = run("prune", "nobody", "--keep-last=1")
    assert both.returncode == 2, both.stderr
    assert f"Here run those of {JOB} ({address}), other (127.0.0.1:" in both.stderr, both.stderr
    assert run("down", "--job=other").returncode == 0
    assert run("jobs").returncode == 0
    second = run("up", "--ranks=2", f"--root={root}", "--detach")
    assert second.returncode == 1 and "SOCKET_DIRECTORY" in second.stderr and "cairn down" in second.stderr
    trained = subprocess.run([sys.executable, str(scripts / "launch.py"), "2", str(scripts / "train.py"), "8"],
                             env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert trained.returncode == 0, trained.stderr
    assert run("down").returncode == 0
    assert committed(root) == [8]
    ended = run("jobs")
    assert ended.returncode == 2 and "no coordinator was given" in ended.stderr
    again = run("down")
    assert again.returncode == 1 and f"no `cairn up` of job {JOB} runs here" in again.stderr


def test_commands_that_read_storage_find_the_root_of_the_coordinator_that_runs_here(runtime, scripts):
    root = scripts / "root"
    (scripts / "train_all.py").write_text(SAVES_THREE)
    assert run("run", f"--root={root}", "--", sys.executable, str(scripts / "train_all.py")).returncode == 0
    out = f"--to={scripts / 'out'}"
    for arguments in (["verify", "demo@3"], ["diff", "demo@1", "demo@2"], ["export", "demo", out]):
        alone = run(*arguments)
        assert alone.returncode == 2 and "no coordinator was given" in alone.stderr, alone.stderr
        assert "read storage with --root DIR" in alone.stderr
    assert "demo@1 is no path here, so it names a checkpoint" in run("diff", "demo@1", "demo@2").stderr
    started = run("up", "--ranks=1", f"--root={root}", "--detach")
    assert started.returncode == 0, started.stderr
    address = re.search(r"CAIRN_COORDINATOR='(.*)'", started.stdout)[1]
    assert run("tag", "demo@1", "first").returncode == 0
    for arguments, status, said in (
            (["verify", "demo@3"], 0, "verified demo@3"), (["verify", "demo"], 0, "verified demo@3"),
            (["verify", "demo@first", f"--coordinator={address}"], 0, "verified demo@1"),
            (["diff", "demo@3", "demo"], 0, "equal demo@3 and demo@3"), (["diff", "demo@first", "demo@2"], 1, "VALUES"),
            (["export", "demo@2", out], 0, "exported demo@2")):
        done = run(*arguments)
        assert done.returncode == status and said in done.stdout, done.stderr
        asks = not any(word.startswith("--coordinator") for word in arguments)
        assert done.stderr.count("note: asking the coordinator") == asks, done.stderr
    for arguments in (["verify", "demo@9"], ["diff", "demo@1", "demo@9"]):
        missing = run(*arguments)
        assert missing.returncode == 1 and "NOT_COMMITTED: demo@9" in missing.stderr, missing.stderr
    # What stands at the root's path on this machine need not be what the coordinator has there.
    root.rename(scripts / "away")
    for make, why in ((lambda: None, "there is no such directory"), (root.mkdir, "another storage is mounted")):
        make()
        said = run("verify", "demo@3").stderr
        assert f"ROOT_MISMATCH: this machine does not see {root}" in said and why in said, said
        assert "give --root DIR" in said
    assert run("verify", "demo@3", f"--root={scripts / 'away'}").returncode == 0
    root.rmdir()
    (scripts / "away").rename(root)


STAND_INS = [f"--agent-flag=--libcuda={LIBCUDA}", f"--agent-flag=--libnccl={stand_in_nccl.LIBRARY}"]


def test_run_gives_every_agent_a_gpu_of_its_own(runtime, scripts):
    done = run("run", f"--root={scripts / 'checkpoints'}", "--ranks=2", *STAND_INS,
               "--agent-flag=--shared-memory=never", "--agent-flag=--nccl=require", "--", sys.executable,
               str(scripts / "launch.py"), "2", str(scripts / "reshard.py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["nccl", "nccl"]


@pytest.mark.parametrize(("transport", "way"), [("nccl", "nccl"), ("host", "shared-memory")])
def test_up_lets_agents_exchange_bytes_by_the_transport_that_is_named(runtime, scripts, transport, way):
    started = run("up", "--ranks=2", f"--root={scripts / 'checkpoints'}", f"--transport={transport}", "--detach",
                  *STAND_INS)
    assert started.returncode == 0, started.stderr
    environment = dict(re.findall(r"^export (\w+)='(.*)'$", started.stdout, re.MULTILINE))
    trained = subprocess.run([sys.executable, str(scripts / "launch.py"), "2", str(scripts / "reshard.py")],
                             env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert trained.stdout.split() == [way, way], trained.stderr
    status = json.loads(run("--format=json", "status", JOB).stdout)
    assert [load["transport"] for load in status["loads"]] == ["nccl" if transport == "nccl" else None]


def test_up_detached_that_cannot_start_says_why(runtime, tmp_path):
    done = run("up", "--ranks=1", f"--root={tmp_path}", "--detach", "--agent-flag=--memory-budget=plenty")
    assert done.returncode == 1 and "BAD_QUANTITY: the agent of rank 0 ended with exit status 2" in done.stderr


def test_address_file_whose_directory_is_absent_is_no_damaged_checkpoint(runtime, tmp_path):
    done = subprocess.run([str(cairn.local.binary("cairn-coordinator")), f"--root={tmp_path}", "--listen=127.0.0.1:0",
                           "--insecure", f"--address-file={tmp_path}/none/address"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 1 and "BAD_REQUEST: the address file cannot be made" in done.stderr, done.stderr
    assert "verify" not in done.stderr
