"""`cairn corpus` with inputs and outputs in an object store: byte for byte what the same command does with files."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import cairn
from stores.fault_proxy import FaultProxy
from stores.server import amazons_client
from stores.test_exports import Bucket
from stores.test_foreign_sources import Replacing
from stores.test_root_in_store import assert_parts_have_no_gaps
from testing.ranks import command

CAIRN = str(cairn.local.binary("cairn"))


@pytest.fixture
def bucket(use, endpoint):
    return Bucket(amazons_client(endpoint))


def put(bucket, prefix, directory):
    """Puts all files below a directory below a prefix. Returns the address."""
    for file in sorted(directory.rglob("*")):
        if file.is_file():
            bucket.client.put_object(Bucket="models", Key=f"{prefix}/{file.relative_to(directory)}",
                                     Body=file.read_bytes())
    return f"s3://models/{prefix}"


def corpus(*arguments, expect=0, timeout=120):
    return command("corpus", *map(str, arguments), expect=expect, timeout=timeout)


def assert_same(bucket, prefix, directory):
    """What is below a prefix is what is below a directory."""
    files = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    keys = bucket.keys(prefix)
    assert sorted(key.removeprefix(f"{prefix}/") for key in keys) == sorted(files)
    for name, content in files.items():
        assert bucket.client.get_object(Bucket="models", Key=f"{prefix}/{name}")["Body"].read() == content, name
    assert bucket.uploads(prefix) == []


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A directory of JSON lines, plain and compressed, nested, with hidden files; and tokenizers."""
    directory = tmp_path_factory.mktemp("text")
    raw = directory / "raw"
    (raw / "deep").mkdir(parents=True)
    random_ = random.Random(1)
    words = ["".join(random_.choices("abcdefghij", k=random_.randrange(1, 9))) for _ in range(500)]

    def lines(count):
        return "".join(json.dumps({"text": " ".join(random_.choices(words, k=random_.randrange(60)))}) + "\n"
                       for _ in range(count))

    (raw / "b.jsonl").write_text(lines(60000))  # several parts
    (raw / "a.jsonl.gz").write_bytes(gzip.compress(lines(3000).encode(), mtime=0))
    (raw / "deep" / "c.jsonl").write_text(lines(500))
    (raw / "empty.jsonl").write_text("")
    (raw / ".hidden.jsonl").write_text("no JSON\n")
    plain = directory / "plain.txt"
    plain.write_text(lines(2000))
    subprocess.run(["zstd", "-q", str(raw / "deep" / "c.jsonl"), "-o", str(raw / "d.jsonl.zst")], check=True)
    corpus("bpe", "train", raw / "b.jsonl", "--vocab-size", 400, "--special-token", "<|endoftext|>", "--output",
           directory / "tokenizer")
    return directory


@pytest.mark.parametrize("more", [(), ("--no-scratch",), ("--split-files", 3), ("--compress", "zst"),
                                  ("--split-bytes", "3MiB", "--compress", "gz")],
                         ids=lambda more: " ".join(map(str, more)))
def test_a_shuffle_is_that_of_files(bucket, text, tmp_path, more):
    prefix = f"corpus/shuffle{len(more)}{''.join(more[:1])}"
    source = put(bucket, f"{prefix}/raw", text / "raw")
    where = tmp_path / "out"
    where.mkdir()
    memory = ("--memory", "256MiB", "--seed", 7)
    name = f"x.jsonl.{more[-1]}" if "--compress" in more else "x.jsonl"
    local = corpus("shuffle", text / "raw", "--output", where / name, *memory, *more).stdout
    stored = corpus("shuffle", source, "--output", f"s3://models/{prefix}/out/{name}", *memory, *more).stdout
    assert local.split("verified")[1].split("\n")[0] == stored.split("verified")[1].split("\n")[0]
    assert_same(bucket, f"{prefix}/out", where)


def test_a_pattern_is_expanded_as_the_shell_does(bucket, text, tmp_path):
    put(bucket, "corpus/pattern/raw", text / "raw")
    for pattern in ("*.jsonl*", "[ab].*", "deep/?.jsonl"):
        corpus("shuffle", text / "raw" / pattern, "--output", tmp_path / "x", "--seed", 3)
        corpus("shuffle", f"s3://models/corpus/pattern/raw/{pattern}", "--output", tmp_path / "y", "--seed", 3)
        assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes(), pattern
    refused = corpus("shuffle", "s3://models/corpus/pattern/raw/*.txt", "--output", tmp_path / "z", expect=1).stderr
    assert "INPUT_UNREADABLE" in refused and "no object matches s3://models/corpus/pattern/raw/*.txt" in refused
    assert not (tmp_path / "z").exists()


def test_a_shuffle_through_the_temporary_file(bucket, text, tmp_path):
    source = put(bucket, "corpus/scratch/raw", text / "raw")
    small = ("--seed", 5, "--memory", "80MiB", "--threads", 2)
    larger = tmp_path / "larger"
    larger.mkdir()
    for number in range(8):
        (larger / f"{number}.jsonl").write_bytes((text / "raw" / "b.jsonl").read_bytes())
    put(bucket, "corpus/scratch/raw", larger)
    for path in (text / "raw").rglob("*"):
        if path.is_file():
            to = larger / path.relative_to(text / "raw")
            to.parent.mkdir(exist_ok=True)
            to.write_bytes(path.read_bytes())
    corpus("shuffle", larger, "--output", tmp_path / "x", *small)
    said = corpus("shuffle", source, "--output", "s3://models/corpus/scratch/out/x", *small, "--temp-dir",
                  tmp_path).stdout
    assert "of temporary disk" in said, said
    assert bucket.client.get_object(Bucket="models", Key="corpus/scratch/out/x")["Body"].read() == (
        tmp_path / "x").read_bytes()


def test_parts_of_an_older_shuffle_go(bucket, text, tmp_path):
    for count in (5, 2):
        corpus("shuffle", text / "plain.txt", "--output", "s3://models/corpus/older/x.txt", "--split-files", count)
    assert bucket.keys("corpus/older") == ["corpus/older/x-00000.txt", "corpus/older/x-00001.txt"]
    said = corpus("shuffle", text / "plain.txt", "--output", "s3://models/corpus/older/x-00000.txt").stderr
    assert "replaces s3://models/corpus/older/x-00000.txt" in said
    # The empty text is an object too.
    (tmp_path / "empty").write_text("")
    corpus("shuffle", tmp_path / "empty", "--output", "s3://models/corpus/older/empty.txt")
    assert bucket.client.get_object(Bucket="models", Key="corpus/older/empty.txt")["Body"].read() == b""


def test_train_and_encode_are_those_of_files(bucket, text, tmp_path):
    source = put(bucket, "corpus/bpe/raw", text / "raw")
    train = ("--vocab-size", 600, "--special-token", "<|endoftext|>")
    corpus("bpe", "train", text / "raw", *train, "--output", tmp_path / "tokenizer")
    corpus("bpe", "train", source, *train, "--output", "s3://models/corpus/bpe/tokenizer")
    assert_same(bucket, "corpus/bpe/tokenizer", tmp_path / "tokenizer")
    extended = ("--vocab-size", 700, "--extend")
    corpus("bpe", "train", text / "raw", *extended, tmp_path / "tokenizer", "--output", tmp_path / "extended")
    corpus("bpe", "train", source, *extended, "s3://models/corpus/bpe/tokenizer", "--output",
           "s3://models/corpus/bpe/extended")
    assert_same(bucket, "corpus/bpe/extended", tmp_path / "extended")
    plain = put(bucket, "corpus/bpe/text", one(text / "plain.txt", tmp_path / "text")) + "/x"
    for form in ("tokenizer", "tokenizer/vocab.json", "tokenizer/tokenizer.tiktoken"):
        corpus("bpe", "encode", "--tokenizer", tmp_path / form, text / "plain.txt", "--output", tmp_path / "ids")
        corpus("bpe", "encode", "--tokenizer", f"s3://models/corpus/bpe/{form}", plain, "--output",
               "s3://models/corpus/bpe/ids/x")
        assert_same(bucket, "corpus/bpe/ids", one(tmp_path / "ids", tmp_path / f"of-{len(form)}"))
    again = corpus("bpe", "train", f"{source}/*.jsonl*", *train, "--output", "s3://models/corpus/bpe/extended/").stderr
    assert "replaces s3://models/corpus/bpe/extended" in again
    piped = corpus("bpe", "encode", "--tokenizer", tmp_path / "tokenizer", plain).stdout
    assert piped.encode() == (tmp_path / "ids").read_bytes()
    refused = corpus("bpe", "encode", "--tokenizer", tmp_path / "tokenizer", plain, "--output", plain, expect=1).stderr
    assert "BAD_REQUEST" in refused and "it is the input" in refused


def one(file, directory):
    """A directory with this file as "x"."""
    directory.mkdir()
    (directory / "x").write_bytes(file.read_bytes())
    return directory


def test_a_count_is_resumed_from_objects(bucket, text, tmp_path):
    source = put(bucket, "corpus/resume/raw", text / "raw")
    train = ("bpe", "train", source, "--vocab-size", 500, "--output", "s3://models/corpus/resume/tokenizer", "--resume")
    refused = corpus(*train, expect=1).stderr
    assert "UNSUPPORTED" in refused and "--temp-dir" in refused
    corpus(*train, "--temp-dir", tmp_path, "--checkpoint-every", "1MiB")
    corpus("bpe", "train", text / "raw", "--vocab-size", 500, "--output", tmp_path / "tokenizer")
    assert_same(bucket, "corpus/resume/tokenizer", tmp_path / "tokenizer")


def preprocess(source, output, tokenizer, *more, expect=0):
    return corpus("preprocess", "--input", source, "--output-prefix", output, "--tokenizer-type",
                  "HuggingFaceTokenizer", "--tokenizer-model", tokenizer, "--append-eod", *more, expect=expect)


def test_preprocess_merge_and_verify_are_those_of_files(bucket, text, tmp_path):
    address = put(bucket, "corpus/pre/given", text)
    local = tmp_path / "out"
    for name, more in (("a", ()), ("b", ("--partitions", 3, "--workers", 3)), ("c", ("--keep-sequential-samples",))):
        preprocess(text / "raw", local / name, text / "tokenizer", *more)
        preprocess(f"{address}/raw", f"s3://models/corpus/pre/out/{name}", f"{address}/tokenizer", *more)
    assert_same(bucket, "corpus/pre/out", local)
    corpus("merge", "--input", local, "--output-prefix", tmp_path / "merged" / "all")
    for source, output in ((local, "s3://models/corpus/pre/merged1/all"),
                           ("s3://models/corpus/pre/out", "s3://models/corpus/pre/merged2/all"),
                           ("s3://models/corpus/pre/out/", tmp_path / "merged3" / "all")):
        corpus("merge", "--input", source, "--output-prefix", output)
    for prefix in ("merged1", "merged2"):
        assert_same(bucket, f"corpus/pre/{prefix}", tmp_path / "merged")
    for ending in (".bin", ".idx"):
        read, expected = (tmp_path / name / f"all{ending}" for name in ("merged3", "merged"))
        assert read.read_bytes() == expected.read_bytes()
    for what in ("inspect", "verify"):
        told = [json.loads(command("--format=json", "corpus", what, str(prefix)).stdout)
                for prefix in (tmp_path / "merged" / "all", "s3://models/corpus/pre/merged2/all")]
        assert {**told[0], "prefix": ""} == {**told[1], "prefix": ""}
    refused = corpus("merge", "--input", "s3://models/corpus/pre/out", "--output-prefix",
                     "s3://models/corpus/pre/out/a_text_document", expect=1).stderr
    assert "BAD_REQUEST" in refused and "among the inputs" in refused


def test_tables_bad_lines_and_mds_are_those_of_files(bucket, tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    monkeypatch.setenv("CAIRN_PYTHON", sys.executable)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    raw = tmp_path / "raw"
    raw.mkdir()
    random_ = random.Random(4)
    for name in ("a", "b"):
        good = [" ".join(str(random_.randrange(99)) for _ in range(30)) for _ in range(9000)]
        rows = [random_.choice(["x", None, text]) for text in good]
        parquet.write_table(pa.table({"text": rows}), raw / f"{name}.parquet", row_group_size=1000)
    source = put(bucket, "corpus/tables/raw", raw)
    where = tmp_path / "out"
    where.mkdir()
    for given, out in ((raw, where), (source, "s3://models/corpus/tables/out")):
        corpus("shuffle", given, "--output", f"{out}/x.jsonl", "--memory", "256MiB")
        corpus("preprocess", "--input", given, "--output-prefix", f"{out}/data", "--tokenizer-type", "NullTokenizer",
               "--vocab-size", 100, "--skip-bad-lines")
        corpus("mds", f"{out}/data_text_document", "--output", f"{out}/mds")
    report = where / "data_bad_lines.log"
    assert report.read_text().count("\n") > 9000
    report.write_text(report.read_text().replace(str(raw), source))
    assert_same(bucket, "corpus/tables/out", where)
    refused = corpus("mds", "s3://models/corpus/tables/out/data_text_document", "--output",
                     "s3://models/corpus/tables/out/mds", expect=1).stderr
    assert "OUTPUT_EXISTS" in refused, refused
    assert not list(scratch.iterdir())


def test_wordpiece_and_sentences_of_objects(bucket, text, tmp_path):
    (text / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n" + "".join(
        f"{mark}{letter}\n" for letter in "abcdefghij" for mark in ("", "##")))
    punkt = text / "punkt"
    punkt.mkdir()
    for name in ("abbrev_types.txt", "sent_starters.txt", "collocations.tab", "ortho_context.tab"):
        (punkt / name).write_text("")
    address = put(bucket, "corpus/bert", text)
    for base, output in ((text, tmp_path / "out" / "x"), (address, "s3://models/corpus/bert-out/x")):
        corpus("preprocess", "--input", f"{base}/plain.txt", "--output-prefix", output, "--tokenizer-type",
               "BertWordPieceLowerCase", "--vocab-file", f"{base}/vocab.txt", "--split-sentences", "--punkt-model",
               f"{base}/punkt")
    assert_same(bucket, "corpus/bert-out", tmp_path / "out")


def test_a_cache_is_made_from_objects(bucket, text, tmp_path, monkeypatch):
    prefix = "s3://models/corpus/cache/x"
    preprocess(text / "raw", prefix, text / "tokenizer")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"class": "Any"}))
    arguments = ["prepare-cache", "--data-path", f"{prefix}_text_document", "--split", "90,5,5", "--seq-length", 64,
                 "--train-samples", 1000, "--global-batch-size", 8, "--eval-interval", 10, "--eval-iters", 2]
    put(bucket, "corpus/cache-tokenizer", one(tmp_path / "tokenizer.json", tmp_path / "t"))
    corpus(*arguments, "--data-cache-path", tmp_path / "cache", "--tokenizer-identifiers",
           "s3://models/corpus/cache-tokenizer/x")
    # The same pair as files of the same name: the address is a path from a directory on.
    bucket.get("corpus/cache", tmp_path / "s3:" / "models" / "corpus" / "cache")
    indices = sorted(path.name.split("-", 1)[1] for path in (tmp_path / "cache").iterdir())
    arguments[2] = str(tmp_path / "s3:" / "models" / "corpus" / "cache" / "x_text_document")
    corpus(*arguments, "--data-cache-path", tmp_path / "local", "--tokenizer-identifiers", tmp_path / "tokenizer.json")
    assert indices == sorted(path.name.split("-", 1)[1] for path in (tmp_path / "local").iterdir()) and len(indices) > 6
    for path in (tmp_path / "cache").iterdir():
        if path.suffix == ".npy":
            (same,) = (tmp_path / "local").glob(f"*-{path.name.split('-', 1)[1]}")
            assert same.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("arguments, words", [
    (("shuffle", "TEXT", "--output", "x", "--temp-dir", "s3://models/t"), ("UNSUPPORTED", "--temp-dir s3://models/t")),
    (("shuffle", "TEXT", "--output", "s3://models/x", "--resume"), ("UNSUPPORTED", "--resume")),
    (("shuffle", "TEXT", "--output", "s3://models/x/"), ("BAD_REQUEST", "it is a directory")),
    (("shuffle", "TEXT", "--output", "s3://models"), ("BAD_REQUEST", "it is a directory")),
    (("shuffle", "TEXT", "--output", "gs+x://models/x"), ("", "")),
    (("shuffle", "TEXT", "--output", "az://models/x"), ("UNSUPPORTED", "az://models/x")),
    (("shuffle", "TEXT", "--output", "s3://no-such-bucket/x"), ("ROOT_MISSING", "no-such-bucket")),
    (("shuffle", "s3://no-such-bucket/x", "--output", "x"), ("ROOT_MISSING", "no-such-bucket")),
    (("shuffle", "s3://models/none/", "--output", "x"), ("INPUT_UNREADABLE", "s3://models/none")),
    (("shuffle", "s3://models/none?endpoint=http://x", "--output", "x"), ("BAD_REQUEST", "AWS_ENDPOINT_URL")),
    (("bpe", "train", "TEXT", "--vocab-size", "300", "--output", "x", "--temp-dir", "s3://models/t"),
     ("UNSUPPORTED", "--temp-dir s3://models/t")),
    (("bpe", "train", "TEXT", "--vocab-size", "300", "--output", "s3://no-such-bucket/x"),
     ("ROOT_MISSING", "no-such-bucket")),
    (("bpe", "encode", "--tokenizer", "s3://models/none", "TEXT"), ("INPUT_UNREADABLE", "s3://models/none")),
    (("bpe", "encode", "--tokenizer", "x", "s3://models/none/y"), ("INPUT_UNREADABLE", "s3://models/none/y")),
    (("merge", "--input", "s3://models/none", "--output-prefix", "x"), ("BAD_REQUEST", "no .bin/.idx pair")),
    (("inspect", "s3://models/none/x"), ("INPUT_UNREADABLE", "s3://models/none/x.idx")),
    (("prepare-cache", "--data-path", "x", "--seq-length", "8", "--train-samples", "1", "--global-batch-size", "1",
      "--data-cache-path", "s3://models/cache", "--tokenizer-identifiers", "IDENTIFIERS"),
     ("UNSUPPORTED", "--data-cache-path s3://models/cache")),
], ids=lambda value: " ".join(value[:4]))
def test_what_cannot_be_is_refused_by_name(bucket, text, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "identifiers").write_text('{"class": "Any"}')
    given = [{"TEXT": str(text / "plain.txt"), "IDENTIFIERS": str(tmp_path / "identifiers")}.get(one, one)
             for one in arguments]
    if words == ("", ""):  # no name of a store: it is a path
        assert corpus(*given, expect=1).returncode == 1
        return
    refused = corpus(*given, expect=None)
    assert refused.returncode != 0
    for word in words:
        assert word in refused.stderr, refused.stderr
    assert bucket.client.list_multipart_uploads(Bucket="models").get("Uploads", []) == []


def test_without_access_the_bucket_is_named_at_once(bucket, text, use, tmp_path, monkeypatch):
    begun = time.monotonic()
    use("http://127.0.0.1:1")
    refused = corpus("shuffle", "s3://models/x", "--output", tmp_path / "x", expect=1).stderr
    assert "STORAGE_ERROR" in refused and "s3://models/x" in refused and "127.0.0.1:1" in refused
    assert time.monotonic() - begun < 60


def test_a_disturbed_store_only_slows(bucket, use, endpoint, text, tmp_path):
    source = put(bucket, "corpus/disturbed/raw", text / "raw")
    where = tmp_path / "out"
    where.mkdir()
    corpus("shuffle", text / "raw", "--output", where / "x", "--split-files", 4)
    kinds = ("slow_down", "reset", "truncated", "late_error", "late_reset")
    proxy = FaultProxy(endpoint, probability=0.15, kinds=kinds)
    use(proxy.endpoint)
    try:
        corpus("shuffle", source, "--output", "s3://models/corpus/disturbed/out/x", "--split-files", 4)
        preprocess(source, "s3://models/corpus/disturbed/pre/x", text / "tokenizer")
    finally:
        proxy.close()
    assert sum(proxy.met.values()) > 5
    assert_parts_have_no_gaps(proxy.requests)
    assert bucket.client.get_object(Bucket="models", Key="corpus/disturbed/out/x-00002")["Body"].read() == (
        where / "x-00002").read_bytes()
    preprocess(text / "raw", tmp_path / "pre" / "x", text / "tokenizer")
    for ending in (".bin", ".idx"):
        body = bucket.client.get_object(Bucket="models", Key=f"corpus/disturbed/pre/x_text_document{ending}")["Body"]
        assert body.read() == (tmp_path / "pre" / f"x_text_document{ending}").read_bytes()


@pytest.mark.parametrize("what", ["shuffle", "preprocess"])
def test_an_object_that_is_replaced_in_the_middle_is_refused(bucket, use, endpoint, text, tmp_path, what):
    source = put(bucket, f"corpus/replaced/{what}", text / "raw")
    key = f"corpus/replaced/{what}/b.jsonl"
    content = (text / "raw" / "b.jsonl").read_bytes()
    proxy = Replacing(endpoint, f"/models/{key}", lambda: bucket.client.put_object(
        Bucket="models", Key=key, Body=content[: len(content) // 2] + b"\n"))
    use(proxy.endpoint)
    try:
        if what == "shuffle":
            refused = corpus("shuffle", source, "--output", f"s3://models/corpus/replaced-{what}/x", expect=1).stderr
        else:
            refused = preprocess(source, f"s3://models/corpus/replaced-{what}/x", text / "tokenizer", expect=1).stderr
    finally:
        proxy.close()
    assert "INPUT_UNREADABLE" in refused and f"s3://models/{key} was written anew" in refused, refused
    assert bucket.keys(f"corpus/replaced-{what}") == [] and bucket.uploads(f"corpus/replaced-{what}") == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_nothing_half(bucket, use, endpoint, text, tmp_path, how):
    prefix = f"corpus/stopped-{how.name}"
    bucket.client.put_object(Bucket="models", Key=f"{prefix}/x", Body=b"the old one")
    large = tmp_path / "large"
    large.write_bytes((text / "raw" / "b.jsonl").read_bytes() * 4)
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    arguments = ["corpus", "shuffle", str(large), "--output", f"s3://models/{prefix}/x"]
    try:
        process = subprocess.Popen([CAIRN, *arguments], stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not any("partNumber=" in path for _, path in list(proxy.requests)):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.002)
        process.send_signal(how)
        said = process.communicate(timeout=60)[1]
    finally:
        proxy.close()
    assert process.returncode != 0, said
    assert bucket.client.get_object(Bucket="models", Key=f"{prefix}/x")["Body"].read() == b"the old one"
    if how == signal.SIGINT:
        assert "INTERRUPTED" in said and bucket.uploads(prefix) == []
    use(endpoint)
    command(*arguments, timeout=120)
    corpus("shuffle", large, "--output", tmp_path / "x")
    assert bucket.client.get_object(Bucket="models", Key=f"{prefix}/x")["Body"].read() == (tmp_path / "x").read_bytes()


def test_the_index_comes_last(bucket, use, endpoint, text):
    proxy = FaultProxy(endpoint)
    use(proxy.endpoint)
    try:
        for _ in range(2):  # the second time both files stand there
            proxy.requests.clear()
            preprocess(text / "raw", "s3://models/corpus/order/x", text / "tokenizer")
    finally:
        proxy.close()
    done = [path.split("?")[0] for method, path in proxy.requests
            if method == "POST" and ("uploadId=" in path or path.endswith("?delete"))]
    bin_, idx = (f"/models/corpus/order/x_text_document.{ending}" for ending in ("bin", "idx"))
    assert done == ["/models", bin_, idx] or done == ["/models/", bin_, idx], done  # the old index goes first


def test_objects_below_the_name_of_an_output_are_kept(bucket, text):
    below = "corpus/below/x_text_document.idx/other"
    bucket.client.put_object(Bucket="models", Key=below, Body=b"other")
    refused = preprocess(text / "raw", "s3://models/corpus/below/x", text / "tokenizer", expect=1).stderr
    assert "BAD_REQUEST" in refused and "s3://models/corpus/below/x_text_document.idx" in refused
    assert bucket.keys("corpus/below") == [below] and bucket.uploads("corpus/below") == []


def test_memory_is_bounded(bucket, text, tmp_path):
    for number in range(12):
        bucket.client.put_object(Bucket="models", Key=f"corpus/memory/raw/{number}.jsonl",
                                 Body=(text / "raw" / "b.jsonl").read_bytes())
    launcher = ("import os, sys\n_, status, usage = os.wait4(os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]), 0)\n"
                "print(usage.ru_maxrss)\nsys.exit(os.waitstatus_to_exitcode(status))\n")
    for memory in (80, 160):
        done = subprocess.run(["python3", "-c", launcher, CAIRN, "--format=json", "corpus", "shuffle",
                               "s3://models/corpus/memory/raw", "--output", "s3://models/corpus/memory/out",
                               "--memory", f"{memory}MiB", "--temp-dir", str(tmp_path)], capture_output=True, text=True,
                              env={**os.environ}, timeout=300)
        assert done.returncode == 0, done.stderr
        peak = int(done.stdout.split()[-1]) / 1024
        assert peak < memory + 16, f"{peak} MiB"


@pytest.mark.interop
def test_preprocess_on_an_engine_is_that_of_files(bucket, text, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="needs ray: tools/test --interop")
    monkeypatch.setenv("CAIRN_PYTHON", sys.executable)
    address = put(bucket, "corpus/engine/given", text)
    preprocess(text / "raw", tmp_path / "out" / "a", text / "tokenizer")
    preprocess(f"{address}/raw", "s3://models/corpus/engine/out/a", f"{address}/tokenizer", "--engine", "ray",
               "--parts", 5)
    assert_same(bucket, "corpus/engine/out", tmp_path / "out")
