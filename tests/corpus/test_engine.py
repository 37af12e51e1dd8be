"""`cairn corpus ... --engine` on real Ray and Spark clusters of four workers: byte for byte what one process makes."""

import concurrent.futures
import contextlib
import gzip
import importlib.util
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
NUMBERS = ("--tokenizer-type", "NullTokenizer", "--vocab-size", "500")


def start(*arguments, directory):
    return subprocess.Popen([str(CAIRN), "--format=json", "corpus", *map(str, arguments)], cwd=directory,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "CAIRN_PYTHON": sys.executable})


def finish(process, expect=0):
    out, error = process.communicate(timeout=300)
    assert process.returncode == expect, error
    return json.loads(out) if expect == 0 else json.loads(error[error.index("{"):])["error"]


def corpus(*arguments, directory, expect=0):
    return finish(start(*arguments, directory=directory), expect)


def content(directory, *names):
    return {name: (pathlib.Path(directory) / name).read_bytes() for name in names}


def hidden(directory):
    return sorted(path.name for path in pathlib.Path(directory).rglob(".*"))


def write_numbers(path, documents, seed):
    rng = random.Random(seed)
    with open(path, "w", encoding="utf-8", newline="") as file:
        for _ in range(documents):
            file.write(json.dumps({"text": " ".join(str(rng.randrange(500)) for _ in range(rng.randrange(1, 90)))}))
            file.write(rng.choice(["\n", "\n", "\r\n", "\r"]))


@pytest.fixture(scope="module")
def ray_address():
    pytest.importorskip("ray", reason="needs ray: tools/test --interop")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Other tests keep the machine busy. Ray reads the name as it stands here.
    os.environ["RAY_raylet_start_wait_time_s"] = "120"  # noqa: SIM112
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(3):
        cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()


@pytest.fixture(scope="module", params=["ray", "spark"])
def engine(request):
    if request.param == "ray":
        return ("--engine", "ray", "--engine-address", request.getfixturevalue("ray_address"))
    pytest.importorskip("pyspark", reason="needs pyspark: tools/test --interop")
    if shutil.which("java") is None:
        pytest.skip("Spark needs java: Debian's package default-jre-headless")
    return ("--engine", "spark", "--engine-address", "local-cluster[4,1,1024]")


@pytest.fixture
def ray_engine(ray_address):
    return ("--engine", "ray", "--engine-address", ray_address)


def part_processes(directory):
    """The programs that tasks for this directory run, as {process: its parent}."""
    found = {}
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            words = status.with_name("cmdline").read_bytes().split(b"\0")
            if b"--part" in words and str(status.with_name("cwd").resolve()) == str(pathlib.Path(directory).resolve()):
                found[int(status.parent.name)] = int(status.read_text().rsplit(") ", 1)[1].split()[1])
    return found


def await_part(directory):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if found := part_processes(directory):
            return next(iter(found.items()))
        time.sleep(0.002)
    raise AssertionError("no task has begun")


# A run of Spark starts five JVMs, so one test of an engine does much.
@pytest.mark.interop
def test_preprocess_equals_one_process_and_a_killed_worker_is_replaced(engine, tmp_path):
    for number in range(3):
        write_numbers(tmp_path / f"{number}.jsonl", 30000, seed=number)
    with gzip.open(tmp_path / "3.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write('{"text": "1 2 3"}\n' * 1000)
    inputs = ("preprocess", "--input", "0.jsonl", "1.jsonl", "2.jsonl", "3.jsonl.gz", *NUMBERS)
    expected = corpus(*inputs, "--output-prefix", "one/data", directory=tmp_path)
    run = start(*inputs, "--output-prefix", "many/data", *engine, "--parts", 6, directory=tmp_path)
    program, worker = await_part(tmp_path)
    os.kill(program, signal.SIGSTOP)  # so that it is in the middle of its work
    os.kill(worker, signal.SIGKILL)
    report = finish(run)
    names = ("data_text_document.bin", "data_text_document.idx")
    assert content(tmp_path / "many", *names) == content(tmp_path / "one", *names)
    assert {**report["outputs"][0], "prefix": ""} == {**expected["outputs"][0], "prefix": ""}
    assert report["input_bytes"] == expected["input_bytes"]
    assert sorted(os.listdir(tmp_path / "many")) == sorted(names)
    assert part_processes(tmp_path) == {}  # not even the stopped one


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["text", "jsonl", "skip"])
def test_bpe_train_equals_one_process(ray_engine, kind, tmp_path):
    rng = random.Random(4)
    words = ["".join(rng.choice("abcdeé 'ß") for _ in range(rng.randrange(1, 9))) for _ in range(3000)]
    texts = [" ".join(rng.choice(words) for _ in range(30)) for _ in range(4000)]
    name = "input.jsonl" if kind == "jsonl" else "input.txt"
    text = "\n".join(map(json.dumps, ({"text": text} for text in texts))) if kind == "jsonl" else "<|end|>".join(texts)
    (tmp_path / name).write_bytes(text.encode() + (b"\xff\xfe a" if kind == "skip" else b""))
    more = ("--special-token", "<|end|>", *(("--invalid-utf8", "skip") if kind == "skip" else ()))
    train = ("bpe", "train", name, "--vocab-size", 700, *more)
    expected = corpus(*train, "--output", "one", directory=tmp_path)
    report = corpus(*train, "--output", "many", *ray_engine, "--parts", 5, directory=tmp_path)
    names = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer.tiktoken")
    assert content(tmp_path / "many", *names) == content(tmp_path / "one", *names)
    assert report["distinct_words"] == expected["distinct_words"]
    assert hidden(tmp_path) == []


@pytest.mark.interop
@pytest.mark.parametrize("name, more", [
    ("lines.gz", ()), ("lines.gz", ("--split-files", 3, "--compress", "gz", "--header", 1)),
    ("lines.txt", ("--separator", "\\xff")), ("lines.txt", ("--header", 1)), ("lines.txt", ("--split-lines", 20000))])
def test_shuffle_equals_one_process(ray_engine, name, more, tmp_path):
    """Of a plain file each task writes its own range; other outputs are joined."""
    rng = random.Random(6)
    for number in range(3):
        lines = [b"header", *(rng.randbytes(rng.choice([0, 3, 90])).replace(b"\n", b"") for _ in range(20000))]
        lines.insert(5000, b"long" + rng.randbytes(3 << 20).replace(b"\n", b""))
        (tmp_path / f"{number}.txt").write_bytes(b"\n".join(lines) + (b"" if more else b"\n"))
    with gzip.open(tmp_path / "3.txt.gz", "wb") as file:
        file.write(b"header\ncompressed\nlines")
    shuffle = ("shuffle", "0.txt", "1.txt", "3.txt.gz", "2.txt", "--seed", 9, *more)
    os.makedirs(tmp_path / "one")
    os.makedirs(tmp_path / "many")
    expected = corpus(*shuffle, "--output", f"one/{name}", directory=tmp_path)
    report = corpus(*shuffle, "--output", f"many/{name}", *ray_engine, "--parts", 5, directory=tmp_path)
    names = sorted(os.listdir(tmp_path / "one"))
    assert sorted(os.listdir(tmp_path / "many")) == names
    assert content(tmp_path / "many", *names) == content(tmp_path / "one", *names)
    for same in ("lines", "bytes", "input_files", "multiset_checksum", "output_bytes"):
        assert report[same] == expected[same], same


@pytest.mark.interop
def test_merge_equals_one_process(ray_engine, tmp_path):
    make_pairs(tmp_path)
    merge = ("merge", "--input", "parts", "--output-prefix")
    expected = corpus(*merge, "one", directory=tmp_path)
    report = corpus(*merge, "many", *ray_engine, "--parts", 7, directory=tmp_path)
    assert {**report, "prefix": "", "kernel_bytes": 0} == {**expected, "prefix": "", "kernel_bytes": 0}
    for ending in ("bin", "idx"):
        assert (tmp_path / f"many.{ending}").read_bytes() == (tmp_path / f"one.{ending}").read_bytes()
    assert hidden(tmp_path) == []


@pytest.mark.interop
def test_bad_lines_of_several_parts_are_told_together(ray_engine, tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.jsonl").write_text('{"text": "1"}\n' * 50 + "bad\n" * (number % 2))
    inputs = ("preprocess", "--input", *(f"{number}.jsonl" for number in range(4)), *NUMBERS)
    error = corpus(*inputs, "--output-prefix", "data", *ray_engine, "--parts", 4, directory=tmp_path, expect=1)
    assert error["reason"] == "BAD_JSON_LINE"
    assert "part 2 of 4 on " in error["message"] and "1.jsonl" in error["message"]
    assert "part 4 of 4 on " in error["message"] and "3.jsonl" in error["message"]
    assert sorted(os.listdir(tmp_path)) == [f"{number}.jsonl" for number in range(4)]
    skip = (*inputs, "--skip-bad-lines")
    corpus(*skip, "--output-prefix", "one", directory=tmp_path)
    corpus(*skip, "--output-prefix", "many", *ray_engine, "--parts", 4, directory=tmp_path)
    assert (tmp_path / "many_bad_lines.log").read_bytes() == (tmp_path / "one_bad_lines.log").read_bytes()
    assert (tmp_path / "many_text_document.bin").read_bytes() == (tmp_path / "one_text_document.bin").read_bytes()


@pytest.mark.interop
def test_an_interrupt_ends_all_tasks_and_leaves_nothing(ray_engine, tmp_path):
    write_numbers(tmp_path / "in.jsonl", 100000, seed=1)
    run = start("preprocess", "--input", "in.jsonl", *NUMBERS, "--output-prefix", "data", *ray_engine, "--parts", 9,
                directory=tmp_path)
    program, _ = await_part(tmp_path)
    os.kill(program, signal.SIGSTOP)  # it would not end by itself
    run.send_signal(signal.SIGINT)
    assert finish(run, expect=130)["reason"] == "INTERRUPTED"
    deadline = time.monotonic() + 30
    while part_processes(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert part_processes(tmp_path) == {}
    assert os.listdir(tmp_path) == ["in.jsonl"]


@pytest.mark.interop
def test_a_cluster_that_is_not_there_is_named(tmp_path):
    pytest.importorskip("ray", reason="needs ray: tools/test --interop")
    write_numbers(tmp_path / "in.jsonl", 10, seed=1)
    error = corpus("preprocess", "--input", "in.jsonl", *NUMBERS, "--output-prefix", "data", "--engine", "ray",
                   "--engine-address", "127.0.0.1:1", directory=tmp_path, expect=1)
    assert error["reason"] == "UNSUPPORTED" and "127.0.0.1:1" in error["message"]
    assert os.listdir(tmp_path) == ["in.jsonl"]


# The rest needs no engine.


@pytest.fixture
def driver():
    spec = importlib.util.spec_from_file_location("engine_driver", REPOSITORY / "corpus/engine/engine_driver.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shared(tmp_path):
    version = subprocess.run([CAIRN, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {"program": str(CAIRN), "version": version, "directory": str(tmp_path)}


def part_task(number, of=2):
    words = ["corpus", "preprocess", "--input", "in.jsonl", *NUMBERS, "--part", f"{number}/{of}", "--output-prefix",
             "part"]
    return {"name": "part", "number": number, "words": words, "output": len(words) - 1, "bytes": 1}


def test_the_same_range_of_an_output_written_twice_at_once_is_whole(tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"line {number}\n" for number in range(60000)))
    corpus("shuffle", "in.txt", "--output", "one", directory=tmp_path)
    answers = [corpus("shuffle", "in.txt", "--part", f"{part}/2", "--buckets", 3, "--output", f"part{part}",
                      directory=tmp_path) for part in (1, 2)]
    (tmp_path / "many").touch()
    at, runs = 0, []
    for bucket in range(3):
        files = [answer["files"][bucket] for answer in answers]
        sort = ("shuffle", *files, "--bucket", f"{bucket + 1}/3", "--at", at, "--output", "many")
        runs += [start(*sort, directory=tmp_path) for _ in range(2)]
        at += sum(lines + size for lines, size, *_ in (answer["bucket_lines"][bucket] for answer in answers))
    for run in runs:
        finish(run)
    assert (tmp_path / "many").read_bytes() == (tmp_path / "one").read_bytes()


def test_the_same_task_twice_at_once_harms_nothing(driver, shared, tmp_path):
    write_numbers(tmp_path / "in.jsonl", 3000, seed=2)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: driver.run_task(shared, part_task(2)), range(4)))
    prefixes = {answer["report"]["outputs"][0]["prefix"] for answer in answers}
    assert len(prefixes) == 4
    pairs = {tuple((tmp_path / f"{prefix}.{ending}").read_bytes() for ending in ("bin", "idx")) for prefix in prefixes}
    assert len(pairs) == 1
    # Two that have the same name too leave a whole pair.
    one = ("preprocess", "--input", "in.jsonl", *NUMBERS, "--part", "2/2", "--output-prefix", "same")
    for run in [start(*one, directory=tmp_path) for _ in range(3)]:
        finish(run)
    assert {tuple(content(tmp_path, "same_text_document.bin", "same_text_document.idx").values())} == pairs


def test_parts_together_are_the_whole(shared, tmp_path):
    write_numbers(tmp_path / "in.jsonl", 3000, seed=3)
    for number in range(1, 8):
        corpus("preprocess", "--input", "in.jsonl", *NUMBERS, "--part", f"{number}/7", "--output-prefix",
               f"parts/{number}", directory=tmp_path)
    corpus("merge", "--input", "parts", "--output-prefix", "many_text_document", directory=tmp_path)
    corpus("preprocess", "--input", "in.jsonl", *NUMBERS, "--output-prefix", "one", directory=tmp_path)
    assert pair(tmp_path, "many") == pair(tmp_path, "one")


def test_parts_keep_the_modes(tmp_path):
    with open(tmp_path / "in.jsonl", "w", encoding="utf-8") as file:
        for number in range(900):
            file.write(json.dumps({"text": [str(number % 500)] * (number % 4), "mode": [number % 3] * (number % 4)}))
            file.write("\n")
    inputs = ("preprocess", "--input", "in.jsonl", *NUMBERS, "--modes-key", "mode")
    for number in range(1, 4):
        corpus(*inputs, "--part", f"{number}/3", "--output-prefix", f"parts/{number}", directory=tmp_path)
    corpus("merge", "--input", "parts", "--output-prefix", "many_text_document", directory=tmp_path)
    corpus(*inputs, "--output-prefix", "one", directory=tmp_path)
    assert pair(tmp_path, "many") == pair(tmp_path, "one")


def pair(directory, name):
    return [(directory / f"{name}_text_document.{ending}").read_bytes() for ending in ("bin", "idx")]


def make_pairs(directory):
    for number in range(5):
        write_numbers(directory / "in.jsonl", 1000 * (number % 3), seed=number)
        corpus("preprocess", "--input", "in.jsonl", *NUMBERS, "--output-prefix", f"parts/{number}", directory=directory)


def test_merge_by_parts_in_any_order_and_twice_at_once(tmp_path):
    make_pairs(tmp_path)
    corpus("merge", "--input", "parts", "--output-prefix", "one", directory=tmp_path)
    expected = (tmp_path / "one.bin").read_bytes()
    (tmp_path / "bin").write_bytes(b"")
    part = ("merge", "--input", "parts", "--output-prefix", "many", "--into", "bin", "--part")
    runs = [start(*part, f"{number}/6", directory=tmp_path) for number in (5, 3, 1, 6, 2, 4, 4, 1)]
    copied = [finish(run)["bytes"] for run in runs]
    assert sum(copied[:6]) == len(expected)
    assert (tmp_path / "bin").read_bytes() == expected


def test_a_node_without_the_program_is_told_what_to_install(driver, shared, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(driver.sys, "executable", "/nowhere/python")
    answer = driver.run_task({**shared, "program": "/nowhere/cairn"}, part_task(1))
    assert answer["reason"] == "UNSUPPORTED" and "install cairn-checkpoint" in answer["next"]
    assert answer["node"]


def test_another_version_on_a_node_is_refused(driver, shared, tmp_path):
    other = tmp_path / "cairn"
    other.write_text("#!/bin/sh\necho cairn 0.0.1\n")
    other.chmod(0o755)
    answer = driver.run_task({**shared, "program": str(other)}, part_task(1))
    assert answer["reason"] == "UNSUPPORTED"
    assert "0.0.1" in answer["message"] and shared["version"] in answer["message"]


def test_a_full_disk_is_worth_another_try_and_a_bad_line_is_not(driver, shared, tmp_path):
    (tmp_path / "in.jsonl").write_text("bad\n")
    answer = driver.run_task(shared, part_task(1, of=1))
    assert answer["reason"] == "BAD_JSON_LINE" and "in.jsonl" in answer["message"]
    task = part_task(1)
    full = tmp_path / "full"
    said = json.dumps({"error": {"reason": "NO_SPACE", "message": "no space", "metadata": {}}}, indent=2)
    full.write_text(f"#!/bin/sh\n[ $1 = --version ] && exec '{CAIRN}' --version\necho '{said}' >&2; exit 1\n")
    full.chmod(0o755)
    with pytest.raises(OSError) as error:
        driver.run_task({**shared, "program": str(full)}, task)
    assert driver.answer_of(error.value, task)["reason"] == "NO_SPACE"


@pytest.mark.parametrize("more, status, named", [(("--engine", "ray", "--partitions", "2"), 1, "--partitions"),
                                                 (("--part", "0/2"), 1, "--part"),
                                                 (("--part", "1/2", "--engine", "ray"), 2, "--part")])
def test_what_does_not_fit_is_refused(more, status, named, tmp_path):
    write_numbers(tmp_path / "in.jsonl", 10, seed=1)
    run = start("preprocess", "--input", "in.jsonl", *NUMBERS, "--output-prefix", "data", *more, directory=tmp_path)
    _, error = run.communicate(timeout=60)
    assert run.returncode == status and "BAD_REQUEST" in error and named in error
    assert os.listdir(tmp_path) == ["in.jsonl"]


@pytest.mark.parametrize("mode", [("--engine", "ray"), ("--part", "1/2")])
@pytest.mark.parametrize("more, named", [(("--group", "a=in.jsonl"), "--group"),
                                         (("in.jsonl", "--skip-bad-lines"), "--skip-bad-lines"),
                                         (("in.jsonl", "--resume"), "--resume")])
def test_what_does_not_fit_to_training_in_parts_is_refused(mode, more, named, tmp_path):
    write_numbers(tmp_path / "in.jsonl", 10, seed=1)
    error = corpus("bpe", "train", *more, "--vocab-size", 300, "--output", "out", *mode, directory=tmp_path, expect=1)
    assert error["reason"] == "BAD_REQUEST"
    assert error["message"] == f"{named} does not go with {mode[0]}" and error["metadata"]["next"]
    assert os.listdir(tmp_path) == ["in.jsonl"]
