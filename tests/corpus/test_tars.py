"""Tars of WebDataset as inputs of `cairn corpus`: Python's tarfile, with which WebDataset writes them, makes them."""
import gzip
import io
import json
import lzma
import os
import pathlib
import random
import subprocess
import tarfile

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "dist" / "bin")) / "cairn"
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def corpus(*arguments, expect=0):
    done = subprocess.run([str(CAIRN), "corpus", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == expect, done.stderr
    return done


def make(members, kind="pax"):
    """Returns the bytes of a tar with members of (name, content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=FORMATS[kind], pax_headers={"comment": "of all"}) as tar:
        for name, content in members:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            about.mtime = 1.5 if kind == "pax" else 1
            tar.addfile(about, io.BytesIO(content))
    return out.getvalue()


def members(seed=1, count=600, longest=2000):
    rng = random.Random(seed)
    alphabet = "abc  de\"\\\n\r\t\b\f\0\x1f\x7f\u2028äß漢🙂"
    found = []
    for i in range(count):
        name = "".join(rng.choices("abcdefgh/", k=rng.choice([3, 20, 90]))).replace("//", "/").strip("/") + f"{i}"
        text = "".join(rng.choices(alphabet, k=rng.randrange(rng.choice([1, 9, longest]))))
        found.append((f"{name}.txt", text.encode()))
        if rng.random() < 0.5:
            found.append((f"{name}.jpg", rng.randbytes(rng.randrange(3000))))
        if rng.random() < 0.1:
            found.append((f"{name}.json", b'{"text": "not this"}'))
            found.append((f"x/.{i}.txt", b"nor this"))
    return found


def lines_of(tar):
    """What the tar means, as Python reads it."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        texts = [opened.extractfile(member).read().decode() for member in opened if member.isreg()
                 and member.name.endswith(".txt") and not member.name.rsplit("/", 1)[-1].startswith(".")]
    return texts, "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
def test_texts_give_what_they_give_as_json_lines(tmp_path, kind, ending):
    tar = make(members(), kind)
    texts, lines = lines_of(tar)
    assert len(texts) == 600
    (tmp_path / "lines.jsonl").write_text(lines)
    source = tmp_path / f"in.tar{ending}"
    (tmp_path / "in.tar").write_bytes(tar)
    if ending == ".zst":
        subprocess.run(["zstd", "-q", tmp_path / "in.tar"], check=True)
    elif ending:
        source.write_bytes({".gz": gzip, ".xz": lzma}[ending].compress(tar))
    outputs = []
    for given in (tmp_path / "lines.jsonl", source):
        out = tmp_path / f"out-{given.name}"
        corpus("bpe", "train", given, "--vocab-size", 400, "--output", out)
        corpus("shuffle", given, "--output", out / "shuffled")
        corpus("preprocess", "--input", given, "--output-prefix", out / "data", "--tokenizer-type",
               "HuggingFaceTokenizer", "--tokenizer-model", out / "tokenizer.json", "--workers", 2)
        outputs.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert len(outputs[0]) > 5 and outputs[0] == outputs[1]


def test_names_that_are_long_links_and_directories(tmp_path):
    for kind in ("gnu", "pax"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=FORMATS[kind]) as tar:
            for name, type_ in (("d.txt", tarfile.DIRTYPE), ("l.txt", tarfile.SYMTYPE), ("h.txt", tarfile.LNKTYPE)):
                about = tarfile.TarInfo(name)
                about.type, about.linkname, about.size = type_, "long/" * 60, 0
                tar.addfile(about)
            for name in ("ä" * 300 + ".txt", "b" * 300 + ".jpg", "c.txt"):
                about = tarfile.TarInfo(name)
                about.size = 3
                tar.addfile(about, io.BytesIO(b"abc"))
        (tmp_path / "in.tar").write_bytes(out.getvalue())
        corpus("shuffle", tmp_path / "in.tar", "--output", tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == b'{"text": "abc"}\n' * 2, kind


def test_bad_texts_are_bad_lines(tmp_path):
    (tmp_path / "in.tar").write_bytes(make([("a.txt", b"1 2"), ("b.txt", b"\xff"), ("c.txt", b"3"), ("d.txt", b"x")]))
    flags = ("preprocess", "--input", tmp_path / "in.tar", "--tokenizer-type", "NullTokenizer", "--vocab-size", 9)
    done = corpus(*flags, "--output-prefix", tmp_path / "none", expect=1)
    assert f"BAD_JSON_LINE: {tmp_path}/in.tar: line 2: the line is not UTF-8" in done.stderr, done.stderr
    corpus(*flags, "--output-prefix", tmp_path / "out", "--skip-bad-lines")
    assert (tmp_path / "out_text_document.bin").read_bytes() == b"\1\0\2\0\3\0"


def test_damaged_tars_are_refused_by_name(tmp_path):
    tar = make(members(2, 20))
    whole = tar.rstrip(b"\0")
    large = bytearray(make([("a.txt", b"abc")], "ustar"))
    large[124:136] = b"\x80" + b"\xff" * 11
    large[148:156] = b"%06o\0 " % (sum(large[:148]) + 8 * 32 + sum(large[156:512]))
    nothing = make([])
    for name, damaged in {
            "empty": b"", "cut in a header": tar[:700], "cut": tar[:len(tar) // 2], "without end": whole + b"\0" * 100,
            "checksum": tar[:3] + b"?" + tar[4:], "no tar": b"text\n" * 300, "two": tar + tar, "size": bytes(large),
            "behind": nothing + b"x"}.items():
        (tmp_path / "in.tar").write_bytes(damaged)
        done = corpus("shuffle", tmp_path / "in.tar", "--output", tmp_path / "out", expect=1)
        assert f"INPUT_UNREADABLE: {tmp_path}/in.tar is damaged" in done.stderr, (name, done.stderr)
        assert not (tmp_path / "out").exists()
    (tmp_path / "in.tar").write_bytes(nothing)
    corpus("shuffle", tmp_path / "in.tar", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b""


def test_changed_bytes_never_crash(tmp_path):
    rng = random.Random(9)
    tar = make(members(3, 6, 40), "pax")
    for i in range(120):
        changed = bytearray(tar)
        at = rng.randrange(len(tar))
        changed[at:at + 4] = rng.randbytes(4)
        (tmp_path / "in.tar").write_bytes(bytes(changed))
        done = subprocess.run([CAIRN, "corpus", "shuffle", tmp_path / "in.tar", "--output", tmp_path / "out"],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or (done.returncode == 1 and "in.tar is damaged" in done.stderr), (i, done.stderr)
