"""What goes wrong below `cairn corpus preprocess`, `pack`, `mds` and `merge`: kills at any moment, full disks, inputs
that cannot be read, and lines without an end. Nothing half-written gets a name, nothing is left, and each failure is
named."""
import io
import json
import lzma
import os
import pathlib
import random
import signal
import subprocess
import sys
import tarfile
import time
import uuid

import pytest
from sft_peer import CAIRN, corpus, make_tokenizer

pytest.importorskip("transformers")
NUMBERS = 60000
EXHAUSTIVE = bool(os.environ.get("CAIRN_EXHAUSTIVE"))
# Runs a command and tells its largest resident size in KiB. (Of a child of this process that size would be this one's.)
LAUNCHER = """
import os, sys
_, status, usage = os.wait4(os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]), 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% generation %}{{ message['content'] }}"
            "{% endgeneration %}<|im_end|>\n{% endfor %}")


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    monkeypatch.setenv("CAIRN_PYTHON", sys.executable)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The same texts, which are numbers, in each form of input; and a tokenizer."""
    directory = tmp_path_factory.mktemp("made")
    rng = random.Random(1)
    texts = [" ".join(str(rng.randrange(NUMBERS)) for _ in range(60)) for _ in range(12_000)]
    lines = "".join(json.dumps({"text": text, "input": text[:40], "output": text[:60]}) + "\n" for text in texts)
    (directory / "in.jsonl").write_text(lines)
    (directory / "in.jsonl.xz").write_bytes(lzma.compress(lines.encode(), preset=0))
    with tarfile.open(directory / "in.tar", "w") as tar:
        for i, text in enumerate(texts):
            about = tarfile.TarInfo(f"{i:06d}.txt")
            about.size = len(text)
            tar.addfile(about, io.BytesIO(text.encode()))
    chats = [{"messages": [{"role": "assistant", "content": text[:80]}]} for text in texts[:3000]]
    (directory / "chat.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    make_tokenizer(directory / "tokenizer", TEMPLATE)
    return directory


def write_parquet(made):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    if not (made / "in.parquet").exists():
        texts = [json.loads(line)["text"] for line in (made / "in.jsonl").read_text().splitlines()]
        pyarrow.parquet.write_table(pa.table({"text": texts}), made / "in.parquet", row_group_size=900)


def command_of(made, what, out):
    """Returns the arguments, and the files that they make."""
    if what.startswith("pack"):
        pytest.importorskip("pyarrow")
        source = ["--chat", "--input", made / "chat.jsonl"] if what == "pack chat" else ["--input", made / "in.jsonl"]
        return (["pack", *source, "--output-prefix", out / "p", "--tokenizer-model", made / "tokenizer", "--pack-size",
                 500, "--workers", 2], [out / "p_metadata.json", out / "p.idx.parquet"])
    if what == "in.parquet":
        write_parquet(made)
    return (["preprocess", "--input", made / what, "--output-prefix", out / "p", "--tokenizer-type", "NullTokenizer",
             "--vocab-size", NUMBERS, "--workers", 2], [out / "p_text_document.bin", out / "p_text_document.idx"])


def with_mark(mark):
    """The processes that were started with this in their environment."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append(process.name)
        except OSError:
            pass  # it has ended
    return found


KINDS = ["in.jsonl.xz", "in.tar", "in.parquet", "pack pairs", "pack chat"]


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_moment(made, tmp_path, what, seed):
    rng = random.Random(seed)
    whole = tmp_path / "whole"
    whole.mkdir()
    command, files = command_of(made, what, whole)
    start = time.monotonic()
    corpus(*command)
    seconds = time.monotonic() - start
    expected = [path.read_bytes() for path in files]
    assert sorted(whole.iterdir()) == sorted(files)
    out = tmp_path / "out"
    out.mkdir()
    command, files = command_of(made, what, out)
    mark = f"CAIRN_TEST_MARK={uuid.uuid4()}"
    name, value = mark.split("=")
    kills = 0
    for _ in range(8):
        process = subprocess.Popen([str(CAIRN), "corpus", *map(str, command)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env=os.environ | {name: value})
        time.sleep(rng.random() * seconds)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        for path, content in zip(files, expected):
            assert not path.exists() or path.read_bytes() == content, (path, f"seed {seed}")
        assert files[0].exists() or not files[1].exists(), f"seed {seed}"
        for path in files:
            path.unlink(missing_ok=True)
        deadline = time.monotonic() + 60
        while with_mark(mark):
            assert time.monotonic() < deadline, "a process of Python has outlived the command"
            time.sleep(0.02)
    assert kills > 0
    corpus(*command)
    assert [path.read_bytes() for path in files] == expected
    assert sorted(out.iterdir()) == sorted(files), "a hidden file is left"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
@pytest.mark.parametrize("what", ["in.tar", "in.parquet", "pack pairs", "mds", "merge"])
def test_a_full_disk_is_named_and_leaves_nothing(made, tmp_path, what):
    small = tmp_path / "small"
    small.mkdir()
    if what in ("mds", "merge"):
        roomy = tmp_path / "roomy"
        corpus(*command_of(made, "in.tar", roomy)[0])
        command = {"mds": ["mds", roomy / "p_text_document", "--output", small / "out"],
                   "merge": ["merge", "--input", roomy, "--output-prefix", small / "p"]}[what]
    else:
        command = command_of(made, what, small)[0]
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", small], capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        done = corpus(*command, expect=1)
        assert "NO_SPACE" in done.stderr and str(small) in done.stderr, done.stderr
        left = [path for path in small.rglob("*") if path.is_file()]
        assert all(path.name.startswith("shard.") for path in left), left  # of MDS, without an index
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize("what", ["preprocess", "pack"])
def test_inputs_that_cannot_be_read_are_named(made, tmp_path, what):
    good = made / "in.jsonl"
    (tmp_path / "gone.jsonl").symlink_to("nowhere")
    bad = ["/proc/self/mem", tmp_path / "gone.jsonl", f"{tmp_path}/none/*.jsonl"]
    for source in bad:
        command = command_of(made, "in.jsonl" if what == "preprocess" else "pack pairs", tmp_path / "out")[0]
        at = command.index("--input")
        done = corpus(*command[:at], "--input", good, source, *command[at + 2:], "--skip-bad-lines", expect=1)
        assert "error: INPUT_UNREADABLE: " in done.stderr and str(source) in done.stderr, done.stderr
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("what", ["preprocess", "pack pairs", "pack chat"])
def test_an_endless_line_is_one_bad_line_in_little_memory(made, tmp_path, what):
    """It has 2 GB, with CAIRN_EXHAUSTIVE 10 GB. Each frame of zstd has 100 MB of it."""
    (tmp_path / "piece").write_bytes(b"1 " * 50_000_000)
    frame = subprocess.run(["zstd", "-q", "-1", "-c", tmp_path / "piece"], capture_output=True, check=True).stdout
    (tmp_path / "piece").unlink()
    source = tmp_path / "in.jsonl.zst"
    texts = ['{"messages": [{"role": "assistant", "content": "1"}], "input": "1", "output": "2", "text": "1"}\n'
             '{"text": "',
             '"}\n{"messages": [], "input": "3", "output": "4", "text": "2 3"}\n']
    first, last = (subprocess.run(["zstd", "-q", "-c"], input=text.encode(), capture_output=True, check=True).stdout
                   for text in texts)
    source.write_bytes(first + frame * (100 if EXHAUSTIVE else 20) + last)
    command = command_of(made, "in.jsonl" if what == "preprocess" else what, tmp_path / "out")[0]
    command[command.index("--input") + 1] = source
    done = subprocess.run([sys.executable, "-c", LAUNCHER, str(CAIRN), "corpus", *map(str, command),
                           "--skip-bad-lines"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-1]) < 300 << 10, "KiB"
    told = [json.loads(line) for line in (tmp_path / "out/p_bad_lines.log").read_text().splitlines()]
    assert told[0] == {"file": str(source), "line": 2, "cause": "the line is longer than 32.0 MiB"}
