"""Tests what an operator sees of saves and loads from outside: timelines, metrics, alerts and the dashboard."""

import collections
import contextlib
import http
import itertools
import json
import pathlib
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import pytest

import cairn
from testing.errors import raises_error
from testing.ranks import command, command_json, noise, on_ranks, reasons, rows, until

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MONITORING = REPOSITORY / "deploy/monitoring"
WHOLE = noise((64, 16), np.float32, 1)
LISTEN = ["--metrics-listen=127.0.0.1:0"]


def save(cluster, step: int) -> None:
    on_ranks(cluster, lambda rank, client: client.save(step, {"w": rows(WHOLE, rank, 2)}).wait(60))


def load(cluster) -> None:
    on_ranks(cluster, lambda rank, client: client.load({"w": rows(np.zeros_like(WHOLE), rank, 2)}))


def metrics_address(service) -> str:
    """Returns where the service says in its log that it gives its metrics."""
    found = re.findall(r'metrics"?[=:] ?"?(127\.0\.0\.1:\d+)', service.log.read_text())
    assert found, service.log.read_text()
    return found[-1]


def scrape(service) -> str:
    with urllib.request.urlopen(f"http://{metrics_address(service)}/metrics", timeout=30) as answer:
        return answer.read().decode()


def samples(text: str) -> dict[str, float]:
    """Returns the samples of a scrape by their names with labels."""
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in lines}


@pytest.fixture(scope="module")
def prometheus() -> pathlib.Path:
    """Returns the directory of Debian's prometheus and promtool."""
    found = subprocess.run([REPOSITORY / "tools/prometheus_binaries"], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip(f"not run: no Prometheus: {found.stderr[-300:]}")
    return pathlib.Path(found.stdout.strip())


def test_a_timeline_accounts_for_all_time_and_names_the_rank_that_was_waited_for(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        coordinator = f"--coordinator={cluster.coordinator.address}"

        def begun() -> bool:
            ranks = command_json("status", "demo", coordinator)["ranks"]
            return any(rank["rank"] == 0 and rank["phase"] != "waiting" for rank in ranks)

        def work(rank, client):
            if rank == 1:
                until(begun, text="the call of rank 0")
            client.save(7, {"w": rows(WHOLE, rank, 2)}).wait(60)

        on_ranks(cluster, work)
        load(cluster)
        trace = json.loads(command("timeline", "demo", coordinator).stdout)
        table = command("timeline", "demo@7", coordinator, "--format=table").stdout

    events = trace["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {1: "save of demo@7, attempt 1", 2: "load of demo@7"}
    tracks = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    assert sorted(tracks) == [(pid, tid) for pid in (1, 2) for tid in (0, 1, 2)]
    for slices in tracks.values():
        for before, after in itertools.pairwise(slices):
            assert before["ts"] + before["dur"] == after["ts"]
    for pid in processes:
        assert len({(slices[0]["ts"], slices[-1]["ts"] + slices[-1]["dur"])
                    for (of, _), slices in tracks.items() if of == pid}) == 1, "all tracks fill the whole operation"
    waits = [event for event in tracks[1, 1] if event["name"] == "wait"]
    assert waits and waits[0]["args"]["waits_for_ranks"] == [1]
    assert tracks[1, 2][0]["name"] == "call"
    arrows = [event for event in events if event["ph"] == "s" and event["pid"] == 1]
    assert arrows and arrows[0]["tid"] == 2
    assert re.search(r"^ +call +[0-9.]+ m?s +1$", table, re.M), table
    assert re.search(r"^ +commit +[0-9.]+ m?s$", table, re.M), table


def test_a_timeline_of_a_failed_save_names_its_reason(tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        coordinator = f"--coordinator={cluster.coordinator.address}"
        missing = command("timeline", "demo", coordinator, expect=1)
        assert "no save or load of it has ended" in missing.stderr and "next: " in missing.stderr
        failed = on_ranks(cluster, lambda rank, client: client.save(1, {"w": np.full(4, rank)}).wait(60), errors=True)
        assert reasons(failed) == ["REPLICA_MISMATCH"] * 2
        assert "REPLICA_MISMATCH" in command("timeline", "demo", coordinator, "--format=table").stdout


def test_metrics_tell_of_a_save_and_a_load_and_follow_the_conventions(tmp_path, prometheus):
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root", coordinator_flags=LISTEN, agent_flags=LISTEN) as cluster:
        until(lambda: samples(scrape(cluster.coordinator)).get('cairn_job_agents{job_name="demo"}') == 2)
        assert samples(scrape(cluster.coordinator))[
            'cairn_operations_total{job_name="demo",operation="save",result="failed"}'] == 0
        save(cluster, 3)
        load(cluster)
        coordinator = scrape(cluster.coordinator)
        until(lambda: all(samples(scrape(agent))["cairn_agent_loads_total"] == 1 for agent in cluster.agents))
        agents = [scrape(agent) for agent in cluster.agents]
        size = sum(path.stat().st_size for path in (tmp_path / "root").rglob("*.safetensors"))

    told = samples(coordinator)
    assert told['cairn_operations_total{job_name="demo",operation="save",result="ok"}'] == 1
    assert told['cairn_operations_total{job_name="demo",operation="load",result="ok"}'] == 1
    assert told['cairn_operation_bytes_total{job_name="demo",operation="save"}'] == size
    assert told['cairn_last_commit_step{job_name="demo"}'] == 3
    assert told['cairn_job_world_size{job_name="demo"}'] == 2
    phases = {name: value for name, value in told.items()
              if name.startswith('cairn_operation_phase_seconds_total{job_name="demo",operation="save"')}
    whole = told['cairn_operation_duration_seconds_sum{job_name="demo",operation="save"}']
    assert sum(phases.values()) == pytest.approx(whole), "the phases add up to the duration"
    written = [samples(text) for text in agents]
    assert sum(agent["cairn_agent_written_bytes_total"] for agent in written) == size
    assert sum(agent["cairn_agent_read_bytes_total"] for agent in written) >= WHOLE.nbytes
    assert [agent['cairn_agent_rank{job_name="demo"}'] for agent in written] == [0, 1]
    for text in [coordinator, *agents]:
        checked = subprocess.run([prometheus / "promtool", "check", "metrics"], input=text, capture_output=True,
                                 text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
    assert all(len(agent) <= 200 for agent in written)


def test_metrics_are_served_only_where_they_are_asked_for(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster:
        for service in (cluster.coordinator, *cluster.agents):
            assert not re.search(r"metrics\W+127", service.log.read_text())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with raises_error("BAD_REQUEST"):
            cairn.local.Cluster(1, tmp_path / "root", coordinator_flags=[f"--metrics-listen={address}"]).__enter__()


def expressions() -> list[str]:
    """Returns what the panels of the dashboard ask, for all jobs."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    return [target["expr"].replace("$__rate_interval", "1m").replace("$job_name", ".*")
            for panel in dashboard["panels"] for target in panel["targets"]]


def test_metrics_are_given_beside_clients_that_say_nothing(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root", coordinator_flags=LISTEN, agent_flags=LISTEN) as cluster:
        for service in (cluster.coordinator, cluster.agents[0]):
            port = int(metrics_address(service).rpartition(":")[2])
            with contextlib.ExitStack() as stack:
                for _ in range(300):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                assert "process_open_fds" in scrape(service)


def test_every_panel_and_alert_speaks_of_metrics_that_exist(tmp_path, prometheus):
    """Prometheus scrapes a real job that saves and loads; every panel then has a series."""
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root", coordinator_flags=LISTEN, agent_flags=LISTEN) as cluster:
        targets = [metrics_address(service) for service in (cluster.coordinator, *cluster.agents)]
        (tmp_path / "prometheus.yaml").write_text(
            "global: {scrape_interval: 1s}\n"
            f"scrape_configs: [{{job_name: cairn, static_configs: [{{targets: {json.dumps(targets)}}}]}}]\n"
            "rule_files: [alerts.yaml]\n")
        shutil.copy(MONITORING / "alerts.yaml", tmp_path)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        with open(tmp_path / "prometheus.log", "wb") as log:
            server = subprocess.Popen([prometheus / "prometheus", f"--config.file={tmp_path}/prometheus.yaml",
                                       f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={address}"],
                                      stdout=log, stderr=log)

        def ask(expression: str) -> list:
            query = urllib.parse.urlencode({"query": expression})
            try:
                with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}", timeout=10) as answer:
                    return json.load(answer)["data"]["result"]
            except urllib.error.HTTPError as error:
                if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:  # it is starting
                    return []
                raise AssertionError(f"{expression}: {error.read().decode()}") from None
            except OSError:
                assert server.poll() is None, (tmp_path / "prometheus.log").read_text()
                return []

        try:
            until(lambda: len(ask("up == 1")) == 3, text="the first scrape")
            steps = iter(range(1, 10000))

            def all_answer() -> bool:
                save(cluster, next(steps))
                load(cluster)
                return all(ask(expression) for expression in expressions())

            try:
                until(all_answer, text="a series for every panel")
            except AssertionError:
                empty = [expression for expression in expressions() if not ask(expression)]
                raise AssertionError(f"these panels are empty: {empty}") from None
            known = {result["metric"]["__name__"] for result in ask('{__name__=~".+"}')}
        finally:
            server.terminate()
            server.wait()
    # What appears only with a failure is not in this job, nor is what a sidecar says (test_sidecar.py reads it).
    known |= {"cairn_operation_failures_total", "cairn_agent_write_failures_total", "cairn_agent_restarts_total"}
    rules = (MONITORING / "alerts.yaml").read_text()
    named = set(re.findall(r"\b(?:cairn|process)_\w+", re.sub(r"'.*'", "", rules)))
    named |= {name for text in expressions() for name in re.findall(r"\b(?:cairn|process)_\w+", text)}
    assert named and not named - known, named - known
    guide = (REPOSITORY / "docs/monitoring.md").read_text()
    ours = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known if name.startswith("cairn_")}
    assert not {name for name in ours if name not in guide}, "docs/monitoring.md lists all metrics"


def test_the_alerts_fire_when_they_should(prometheus):
    for arguments in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        checked = subprocess.run([prometheus / "promtool", *arguments], cwd=MONITORING, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
    rules = (MONITORING / "alerts.yaml").read_text()
    tests = (MONITORING / "alerts_test.yaml").read_text()
    guide = (REPOSITORY / "docs/monitoring.md").read_text()
    for alert in re.findall(r"- alert: (\w+)", rules):
        assert tests.count(f"alertname: {alert}") > 0, f"{alert} has no test"
        assert alert in guide, f"{alert} is not in docs/monitoring.md"
