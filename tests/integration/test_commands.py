"""Tests what the commands tell a person about damage, failures and mistakes, and about what to do next."""

import os
import pathlib
import re
import signal
import subprocess
import threading

import numpy as np
import pytest

import cairn
from testing.ranks import command, command_json, noise, on_ranks, reasons, rows, until

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WHOLE = noise((64, 16), np.float32, 1)
FLAGS = {"coordinator_flags": ["--phase-timeout=10s", "--lease-ttl=3s"]}


def save(cluster, step: int, make=lambda rank: {"w": rows(WHOLE, rank, 2)}) -> list:
    return on_ranks(cluster, lambda rank, client: client.save(step, make(rank), timeout=20).wait(60), errors=True)


def aborted(rank: int) -> dict:
    return {"w": np.full(4, rank)}


@pytest.fixture
def root(tmp_path):
    """Makes a root with the steps 1 and 3 of a job of two ranks, and with step 2, which was aborted."""
    root = tmp_path / "checkpoints"
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        assert reasons(save(cluster, 1)) == ["", ""]
        assert reasons(save(cluster, 2, aborted)) == ["REPLICA_MISMATCH"] * 2
        assert reasons(save(cluster, 3)) == ["", ""]
    return root


def directory(root: pathlib.Path, step: int) -> pathlib.Path:
    return root / f"demo/{step:012}"


def damage_outcome(root, step: int) -> None:
    path = directory(root, step) / "0001.verdict"
    data = bytearray(path.read_bytes())
    data[20] ^= 0x10
    path.write_bytes(data)


def bins(root, step: int) -> list:
    return sorted(directory(root, step).glob("0001/*.safetensors"))


def states(*arguments: str) -> dict:
    return {row["step"]: row["state"] for row in command_json("list", "demo", *arguments)["checkpoints"]}


def test_missing_and_short_files_are_told_by_show_and_by_a_list_that_is_asked(root):
    whole = command_json("show", "demo@3", f"--root={root}")
    assert whole["files_checked"] and whole["damage"] is None
    bins(root, 3)[0].unlink()
    os.truncate(bins(root, 1)[0], 100)
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        for where in (f"--root={root}", f"--coordinator={cluster.coordinator.address}"):
            for step, reason in ((3, "FILE_MISSING"), (1, "FILE_TRUNCATED")):
                shown = command_json("show", f"demo@{step}", where, expect=1)
                assert shown["files"] and shown["damage"]["reason"] == reason, shown
                table = command("show", f"demo@{step}", where, expect=1)
                assert "DAMAGED: " in table.stdout and ".safetensors" in table.stdout
                assert f"`cairn verify demo@{step} --root {root}`" in table.stderr, table.stderr
            # A list reads only the manifests, and says so.
            assert states(where) == {1: "COMMITTED", 3: "COMMITTED"}
        # At the coordinator's path this machine may have another storage than the one that the coordinator sees.
        root.rename(root.parent / "elsewhere")
        root.mkdir()
        shown = command_json("show", "demo@3", f"--coordinator={cluster.coordinator.address}")
        assert not shown["files_checked"] and shown["damage"] is None
        root.rmdir()
        (root.parent / "elsewhere").rename(root)
    assert states(f"--root={root}", "--check") == {1: "DAMAGED", 3: "DAMAGED"}
    assert "FILE_MISSING" in command("list", "demo", f"--root={root}", "--check").stdout
    assert "--root" in command("list", "demo", "--check", expect=2).stderr
    assert "files are not looked at" in command("list", "--help").stdout


def test_next_actions_of_damage_can_be_typed(root):
    damage_outcome(root, 3)
    repair = f"`cairn repair demo@3 --root {root}`"
    for arguments in (["verify", "demo@3"], ["show", "demo@3"], ["export", "demo@3", f"--to={root.parent}/x"]):
        said = command(*arguments, f"--root={root}", expect=1).stderr
        assert "MANIFEST_CORRUPT" in said and repair in said, said
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS):
        said = command("repair", "demo@3", f"--root={root}", expect=1).stderr
        assert "ROOT_IN_USE" in said and "stop the one that serves the root" in said and repair in said, said
    lost = bins(root, 3)[0]
    lost.rename(root / "lost")
    said = command("repair", "demo@3", f"--root={root}", expect=1).stderr
    assert "FILE_MISSING" in said and "put it back" in said and repair in said, said
    (root / "lost").rename(lost)
    command("repair", "demo@3", f"--root={root}")
    lost.unlink()
    said = command("verify", "demo@3", f"--root={root}", expect=1).stderr
    assert "FILE_MISSING" in said and f"`cairn list demo --root {root} --check`" in said, said


def test_step_that_is_not_committed_says_what_stands(root):
    for name in ("repair", "verify", "show"):
        said = command(name, "demo@2", f"--root={root}", expect=1).stderr
        assert "NOT_COMMITTED" in said and "attempt 1 was aborted" in said and "latest committed step is 3" in said, (
            said
        )
    (directory(root, 3) / "0001.verdict").unlink()
    for name in ("repair", "verify", "show"):
        said = command(name, "demo@3", f"--root={root}", expect=1).stderr
        assert "NOT_COMMITTED" in said and "without an outcome" in said, said
        assert f"copy {directory(root, 3)} away, before a coordinator starts again" in said, said
    # A coordinator takes them for files of a save that nobody ended (docs/failure_model.md).
    with cairn.local.Cluster(ranks=2, root=root, **FLAGS) as cluster:
        command_json("status", "demo", f"--coordinator={cluster.coordinator.address}")
        until(lambda: not bins(root, 3), text="removing files without an outcome")
        assert states(f"--root={root}") == {1: "COMMITTED"}


def up(root, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen([str(cairn.local.binary("cairn")), "up", "--ranks=2", f"--root={root}", *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)


def children(pid: int) -> dict:
    """Returns the child processes of `pid` by the name of their rank's log, or "coordinator"."""
    found = {}
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        flags = pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")
        found[flags[flags.index("--rank") + 1] if "--rank" in flags else "coordinator"] = int(child)
    return found


def test_up_tells_who_ended_and_why_and_starts_it_again(tmp_path):
    done = command("up", "--ranks=2", f"--root={tmp_path}", "--agent-flag=--memory-budget=plenty", expect=1)
    assert "error: BAD_QUANTITY: the agent of rank 0 ended with exit status 2: " in done.stderr, done.stderr
    running = up(tmp_path)
    try:
        lines = [running.stdout.readline() for _ in range(3)]
        assert lines[0].startswith("export CAIRN_COORDINATOR=") and "rank{rank}" in lines[1], lines
        second = command("up", "--ranks=1", f"--root={tmp_path}", "--job=other",
                         "--coordinator-flag=--lock-timeout=0s", expect=1)
        assert "error: ROOT_IN_USE: the coordinator ended with exit status 1: " in second.stderr, second.stderr
        assert running.stderr.readline().startswith("up: logs in ")
        before = children(running.pid)["1"]
        os.kill(before, signal.SIGKILL)
        said = running.stderr.readline()
        assert said.startswith("the agent of rank 1 ended with signal 9; it is started again ("), said
        until(lambda: children(running.pid).get("1", before) != before, text="the next agent")
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 0


def test_save_goes_on_without_its_command_and_a_second_one_follows_it(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path, **FLAGS) as cluster:
        address = f"--coordinator={cluster.coordinator.address}"
        stop = threading.Event()
        go = threading.Event()

        def train(rank, client):
            step = 0
            client.report_step(step)
            assert go.wait(60)
            while not stop.is_set():
                step += 1
                client.report_step(step)
                if client.save_requested() == step:
                    return client.save(step, {"w": rows(WHOLE, rank, 2)}).wait(60).step

        answers = []
        trainers = threading.Thread(target=lambda: answers.extend(on_ranks(cluster, train)))
        trainers.start()
        try:
            until(lambda: all(agent["trainer_attached"]
                              for agent in command_json("status", "demo", address)["agents"]), text="trainers")
            first = subprocess.Popen([str(cairn.local.binary("cairn")), "save", "demo", address],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            until(lambda: command_json("status", "demo", address)["state"] == "PREPARING", text="the request")
            first.send_signal(signal.SIGINT)
            said = first.communicate(timeout=60)[1]
            assert first.returncode == 130 and "continues without" in said, said
            assert "`cairn status demo --coordinator " in said, said
            second = subprocess.Popen([str(cairn.local.binary("cairn")), "save", "demo", address],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            note = second.stderr.readline()
            assert re.search("already running|was asked for already", note) and "follows that save" in note, note
            go.set()
            out = second.communicate(timeout=60)[0]
            assert second.returncode == 0 and "committed demo@" in out, out
        finally:
            go.set()
            stop.set()
            trainers.join(60)
        assert len(set(answers)) == 1 and states(address) == {answers[0]: "COMMITTED"}


def test_status_shows_the_last_failure_and_the_last_commit(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path, **FLAGS) as cluster:
        address = f"--coordinator={cluster.coordinator.address}"
        assert command_json("status", "demo", address)["last_committed"] is None
        assert reasons(save(cluster, 1)) == ["", ""]
        assert command_json("status", "demo", address)["last_committed"]["step"] == 1
        assert reasons(save(cluster, 2, aborted)) == ["REPLICA_MISMATCH"] * 2
        status = command_json("status", "demo", address)
        assert (status["step"], status["state"], status["last_committed"]["step"]) == (2, "ABORTED", 1)
        # A request that no rank ever began fails too.
        trainers = [cluster.connect(rank) for rank in range(2)]
        command("save", "demo", address, "--timeout=1s", expect=1)
        status = command_json("status", "demo", address)
        assert status["state"] == "ABORTED" and status["error"]["reason"] != "REPLICA_MISMATCH", status
        assert status["last_committed"]["step"] == 1
        for trainer in trainers:
            trainer.close()
        table = command("status", "demo", address).stdout
        assert status["error"]["reason"] in table and "latest committed: demo@1, " in table and "next: " in table, table


def test_save_without_any_trainer_is_refused_with_what_is_missing(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        said = command("save", "demo", f"--coordinator={cluster.coordinator.address}", expect=1).stderr
        assert "STEP_REFUSED: demo: no training process is attached to any of its 2 agents" in said, said
        assert "next: Start the training processes" in said and "`cairn status demo --coordinator " in said, said


def test_status_says_why_a_load_failed_and_whose_agent_is_missing(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path, **FLAGS) as cluster:
        address = f"--coordinator={cluster.coordinator.address}"
        answers = on_ranks(cluster, lambda rank, client: client.load({"w": np.zeros(2)}), errors=True)
        assert reasons(answers) == ["NOT_COMMITTED"] * 2
        table = command("status", "demo", address).stdout
        assert "demo: 2 of 2 agents, " in table, table
        assert "load 1: nothing to load: the job has no checkpoint yet" in table, table
        (load,) = command_json("status", "demo", f"--coordinator={cluster.coordinator.address}")["loads"]
        assert load["state"] == "NOTHING_TO_LOAD" and load["error"] is None, load
        assert "state=NOTHING_TO_LOAD" in cluster.coordinator.log.read_text()
        answers = on_ranks(cluster, lambda rank, client: client.load({"w": np.zeros(2)}, step=7), errors=True)
        assert reasons(answers) == ["NOT_COMMITTED"] * 2
        table = command("status", "demo", address).stdout
        assert "load 2 of step 7: failed\n  NOT_COMMITTED: " in table, table
        cluster.agents[1].kill(signal.SIGTERM)
        until(lambda: len(command_json("status", "demo", address)["agents"]) == 1, text="the agent's end")
        table = command("status", "demo", address).stdout
        assert "demo: 1 of 2 agents (none of rank 1), " in table, table


def test_rank_that_waits_names_those_that_are_late(tmp_path):
    with cairn.local.Cluster(ranks=3, root=tmp_path, **FLAGS) as cluster:
        answers = on_ranks(
            cluster,
            lambda rank, client: client.save(1, {"w": rows(WHOLE, rank, 3)}, timeout=1).wait(30),
            ranks=[0, 2],
            errors=True,
        )
        assert reasons(answers) == ["RANK_LATE"] * 2
        for answer in answers:
            assert answer.metadata["ranks"] == "1" and "rank 1 held up the others" in answer.message, answer


@pytest.mark.parametrize("address", ["foo", "127.0.0.1", ":7420", "http://127.0.0.1:7420", "127.0.0.1:99999"])
def test_addresses_are_checked_where_they_are_given(tmp_path, address):
    agent = ["--job=demo", "--rank=0", "--world-size=1", f"--root={tmp_path}"]
    for program, arguments in (("cairn", ["list", "demo", f"--coordinator={address}"]),
                               ("cairn-agent", [*agent, f"--coordinator={address}"]),
                               ("cairn-agent", [*agent, "--coordinator=127.0.0.1:1", f"--listen={address}"]),
                               ("cairn-coordinator", [f"--root={tmp_path}", f"--listen={address}"])):
        done = subprocess.run(
            [str(cairn.local.binary(program)), *arguments], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2 and f"'{address}' is not host:port" in done.stderr, (program, arguments, done)
    done = subprocess.run(
        [str(cairn.local.binary("cairn")), "list", "demo"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "CAIRN_COORDINATOR": address},
    )
    assert done.returncode == 2 and "is not host:port" in done.stderr, done


# What a next action must not hold: names that the reader should have been told, and advice that says nothing.
EMPTY = re.compile(r"\bJOB\b|JOB@|\bROOT\b|Correct the request")


def test_jobs_that_are_unknown_lead_to_the_list_of_jobs(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(1, {"n": 1}).wait(60))
        address = f"--coordinator={cluster.coordinator.address}"
        for arguments in (["list", "nobody"], ["show", "nobody"], ["status", "nobody"], ["save", "nobody"],
                          ["prune", "nobody", "--keep-last=2"], ["tag", "nobody@latest", "x"]):
            said = command(*arguments, address, expect=1).stderr
            jobs = f"`cairn jobs {address.replace('=', ' ')}` lists the jobs"
            assert jobs in said and not EMPTY.search(said), (arguments, said)
    said = command("list", "nobody", f"--root={tmp_path}", expect=1).stderr
    assert f"`cairn jobs --root {tmp_path}` lists the jobs" in said, said
    said = command("show", "nobody", f"--root={tmp_path}", expect=1).stderr
    assert f"`cairn jobs --root {tmp_path}` lists the jobs" in said, said


def test_root_that_lies_within_another_one_leads_to_that_one(root):
    for arguments in (["list", "demo"], ["show", "demo@3"], ["verify", "demo@3"]):
        said = command(*arguments, f"--root={root}/demo", expect=1).stderr
        assert f"next: Give --root {root}: {root}/demo lies within that root." in said, (arguments, said)
    said = command("show", "demo@9", f"--root={root}", expect=1).stderr
    assert f"`cairn list demo --root {root}`" in said, said
    assert "next: A step stands behind an @: demo@3." in command("show", "demo:3", f"--root={root}", expect=1).stderr


@pytest.mark.parametrize("name", ["status", "list", "save", "prune", "retention", "history"])
def test_commands_of_a_job_say_that_they_take_no_step(name):
    said = command(name, "train@10", "--coordinator=127.0.0.1:1", expect=1).stderr
    advice = "`cairn save train --step 10" if name == "save" else "`cairn show train@10"
    assert "this command takes a job" in said and f"{advice} --coordinator 127.0.0.1:1` s" in said, said


MISTAKES = [
    ["tag", "demo", "x"], ["untag", "demo"], ["delete", "demo"], ["pin", "demo"], ["repair", "demo", "--root=."],
    ["import", ".", "--to=demo", "--root=."], ["list", "demo", "--check"], ["run", "--root=."],
    ["export", "demo", "--root=.", "--to=x", "--as=dcp", "--like=."], ["diff", "demo@1", "demo@2"],
    ["export", "demo", "--root=.", "--to=x", "--reverse"], ["retention", "demo", "--keep-last=1", "--off"],
    ["tag", "demo@1", "9"], ["up", "--ranks=1", "--root=.", "--no-coordinator"], ["status", "demo"],
    ["up", "--ranks=1", "--root=.", "--nodes=2"], ["corpus", "shuffle", "x", "--output=y", "--seed=z"],
    ["run", "--root=.", "--", "torchrun", "--nproc-per-node=gpu", "t.py"]]


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_mistakes_are_answered_with_what_to_do(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    address = ["--coordinator=127.0.0.1:1"] if arguments[0] in ("tag", "untag", "delete", "pin", "retention") else []
    done = command(*arguments[:1], *address, *arguments[1:], expect=None)
    assert done.returncode in (1, 2)
    said = done.stderr.partition("\n  next: ")[2]
    assert len(said) > 20 and not EMPTY.search(said), done.stderr


def test_help_is_what_the_option_says():
    for words in ([], ["save"], ["corpus", "bpe"]):
        assert command("help", *words).stdout == command(*words, "--help").stdout
    assert "  help " in command("--help").stdout
    assert "nosuch" in command("help", "nosuch", expect=2).stderr


def test_coordinator_that_is_not_there_is_told_in_words():
    said = command("status", "demo", "--coordinator=127.0.0.1:1", expect=3).stderr
    assert "coordinator 127.0.0.1:1 is not there: nothing listens at that address" in said, said
    assert "last error" not in said and "ipv4:" not in said, said


def test_commands_that_need_a_coordinator_say_what_to_do_with_a_root():
    for arguments in (["status", "demo"], ["prune", "demo", "--dry-run"], ["serve"], ["timeline", "demo"],
                      ["save", "demo"], ["cancel", "demo"], ["delete", "demo@1"], ["pin", "demo@1"],
                      ["retention", "demo"], ["tag", "demo@1", "x"], ["untag", "demo@x"]):
        said = command(*arguments, "--root=/checkpoints", expect=2).stderr
        assert "--root is no option of this command" in said and "`cairn list`" in said, said
        assert "--root" not in command(arguments[0], "--help").stdout


def test_show_lists_objects_and_bounds_them(tmp_path):
    state = {f"n.{i:04}": i for i in range(1002)}
    with cairn.local.Cluster(ranks=2, root=tmp_path) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(
            1, {"a": "text", "own": cairn.per_rank({"rank": rank}), "w": rows(WHOLE, rank, 2)}).wait(60))
        on_ranks(cluster, lambda rank, client: client.save(2, state, allow_dropped_names=True).wait(60))
    shown = command("show", "demo@1", "--objects", f"--root={tmp_path}").stdout
    lines = [line.split("  ") for line in shown.splitlines()]
    listed = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert ["a", "all ranks", "7 B"] in listed and ["own", "each of 2 ranks", "22 B"] in listed, shown
    shown = command("show", "demo@2", "--objects", f"--root={tmp_path}").stdout
    assert "n.0999" in shown and "n.1000" not in shown and "and 2 more names" in shown
    assert len(command_json("show", "demo@2", f"--root={tmp_path}")["objects"]) == 1002


def test_first_load_beside_other_jobs_is_told_once_in_the_log(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path, job="llm") as cluster:
        assert reasons(on_ranks(cluster, lambda rank, client: client.load({"n": 0}), errors=True)) == ["NOT_COMMITTED"]
        on_ranks(cluster, lambda rank, client: client.save(1, {"n": 1}).wait(60))
        assert "first_start" not in cluster.coordinator.log.read_text(), "an empty root is no surprise"
    with cairn.local.Cluster(ranks=1, root=tmp_path, job="lm") as cluster:
        for _ in range(3):
            errors = on_ranks(cluster, lambda rank, client: client.load({"n": 0}), errors=True)
            assert reasons(errors) == ["NOT_COMMITTED"] and "`cairn jobs` lists the jobs" in str(errors[0])
        log = cluster.coordinator.log.read_text()
    assert log.count("event=first_start") == 1 and "jobs there: llm" in log, log


def test_unknown_commands_are_mistakes():
    for arguments in (["purge", "demo"], ["purge", "--help"], ["corpus", "eat", "--help"]):
        assert "unknown command" in command(*arguments, expect=2).stderr
    assert "did you mean 'list'?" in command("lsit", "demo", expect=2).stderr


def test_options_that_are_not_there_name_the_nearest():
    for arguments, nearest in [(["save", "demo", "--sep", "3"], "--step"), (["up", "--rank=3"], "--ranks"),
                               (["prune", "demo", "--keep-lst", "3"], "--keep-last"),
                               (["jobs", "--coordnator=a:1"], "--coordinator")]:
        assert f"did you mean '{nearest}'?" in command(*arguments, expect=2).stderr, arguments
    assert "unknown option '--sideways'\n" in command("jobs", "--sideways", expect=2).stderr
    assert "{table,json}" in command("jobs", "--format=xml", expect=2).stderr


def test_save_of_a_step_names_the_option():
    assert "`cairn save demo --step 500` saves at that step" in command("save", "demo@500", expect=1).stderr


def test_a_job_in_capitals_is_meant_in_lower_case(root):
    assert "next: Did you mean demo@1?" in command("show", "Demo@1", f"--root={root}", expect=1).stderr


def test_an_error_whose_message_says_what_to_change_has_no_next_action(root):
    said = command("export", "demo", f"--root={root}", "--to=az://bucket/out", expect=1).stderr
    assert "az://bucket/out is in a kind of store" in said and "next: Give s3://BUCKET/PREFIX" in said, said
    said = command("list", f"--root={root}", "demo", "--check", "--format=xml", expect=2).stderr
    assert "BAD_REQUEST" in said and "Change what" not in said, said


def test_files_are_shown_with_their_checksums(root):
    items = command_json("show", "demo@1", f"--root={root}")["files"][0]["items"]
    shown = command("show", "demo@1", "--files", f"--root={root}").stdout
    assert all(re.search(rf" {item['crc32c']}\b", shown) for item in items), shown


def test_documents_name_commands_and_flags_that_exist():
    commands = set(re.findall(r"^  (\w+)  ", command("--help").stdout, re.MULTILINE)) | {"corpus"}
    assert {"up", "save", "repair"} <= commands
    helps = {name: command(name, "--help").stdout for name in commands - {"corpus"}}
    for page in [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]:
        text = page.read_text()
        for name, rest in re.findall(r"(?:`|\$ |&& )cairn ([a-z]+)([^`\n#]*)", text):
            assert name in commands, f"{page.name}: cairn {name}"
            for flag in re.findall(r"--[a-z-]+", rest.split("&&")[0]) if name in helps else []:
                assert flag in helps[name] + helps_of_program(), f"{page.name}: cairn {name}{rest}"


def helps_of_program() -> str:
    return command("--help").stdout


@pytest.mark.parametrize("arguments", [["--help"], ["completion", "bash"], ["jobs", "--root", "{root}"]])
def test_output_that_does_not_fit_is_an_error(root, arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(cairn.local.binary("cairn")), *(each.format(root=root) for each in arguments)],
                              stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "standard output took only a part" in done.stderr, done


def test_standard_input_that_is_closed_is_told(tmp_path):
    """Its number is that of a file of the command's own, and a read of that would not end."""
    done = subprocess.run(["sh", "-c", 'exec "$0" corpus shuffle - -o "$1" <&-', str(cairn.local.binary("cairn")),
                           str(tmp_path / "out")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "INPUT_UNREADABLE" in done.stderr, done
    assert "standard input is closed" in done.stderr and not list(tmp_path.iterdir()), done
