"""cairn export: whole tensors as Hugging Face opens them."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import cairn
from testing.ranks import command, command_json, noise, on_ranks, rows

INDEX = "model.safetensors.index.json"
FINGERPRINTS = "cairn_fingerprints.json"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Three ranks save rows, columns, flat pieces, replicas, an object and an alias."""
    root = tmp_path_factory.mktemp("root")
    whole = {f"model.layers.{i}.w": noise((700, 300), np.float32, i) for i in range(12)}
    whole |= {"model.embed": noise((999, 64), np.float16, 50), "model.scalar": noise((), np.float64, 51),
              "model.empty": np.zeros((0, 3), np.float32), "optimizer.step": noise((1000,), np.int64, 52)}

    def work(rank, client):
        state = {}
        for number, (name, array) in enumerate(whole.items()):
            if array.ndim == 0 or number % 4 == 3:
                state[name] = array
            elif number % 4 == 2 and array.size:
                begin, end = (array.size * edge // 3 for edge in (rank, rank + 1))
                state[name] = cairn.Shard(array.reshape(-1)[begin:end].copy(), array.shape, (0,) * array.ndim,
                                          array.shape, (begin, end))
            else:
                state[name] = rows(array, rank, 3, axis=number % 2 if array.ndim > 1 else 0)
        client.save(7, state | {"scheduler": {"lr": 1}, "model.tied": cairn.alias("model.embed")}).wait()

    with cairn.local.Cluster(ranks=3, root=root) as cluster:
        on_ranks(cluster, work)
    return root, whole


def opened(directory: pathlib.Path) -> dict[str, np.ndarray]:
    index = json.loads((directory / INDEX).read_text())
    tensors = {}
    for name, file in index["weight_map"].items():
        with safetensors.safe_open(directory / file, "numpy") as handle:
            assert handle.metadata() == {"format": "pt"}
            tensors[name] = handle.get_tensor(name)
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in tensors.values())
    assert sorted(path.name for path in directory.iterdir()) == sorted(
        {INDEX, FINGERPRINTS, *index["weight_map"].values()})
    return tensors


def test_everything_in_files_of_limited_size(saved, tmp_path):
    root, whole = saved
    answer = command_json("export", "demo@7", "--root", str(root), "--to", str(tmp_path / "out"),
                          "--max-shard-size", "2MB", "--memory", "64MiB")
    tensors = opened(tmp_path / "out")
    assert sorted(tensors) == sorted(whole)
    for name, array in whole.items():
        assert tensors[name].dtype == array.dtype and tensors[name].shape == array.shape, name
        assert tensors[name].tobytes() == array.tobytes(), name
    assert len(answer["files"]) > 5
    for file in answer["files"]:
        assert (tmp_path / "out" / file["name"]).stat().st_size == file["bytes"] < 2_100_000


def test_it_says_what_is_written(saved, tmp_path):
    root, whole = saved
    model = sum(array.nbytes for name, array in whole.items() if name.startswith("model."))
    said = command("export", "demo@7", "--root", str(root), "--to", str(tmp_path / "out")).stdout
    assert "written were model (15 tensors, 9.73 MiB), optimizer (1 tensor, 7.81 KiB)\n" in said, said
    answer = command_json("export", "demo@7", "--root", str(root), "--to", str(tmp_path / "again"))
    assert answer["groups"] == [{"name": "model", "tensors": 15, "bytes": model},
                                {"name": "optimizer", "tensors": 1, "bytes": 8000}]
    part = command("export", "demo@7", "--root", str(root), "--to", str(tmp_path / "part"), "--include", "model.*")
    assert "written were" not in part.stdout, part.stdout


def test_names_are_chosen_by_patterns(saved, tmp_path):
    root, whole = saved
    command("export", "demo", "--root", str(root), "--to", str(tmp_path), "--include", "model.*", "--exclude", "*.e*")
    # The weight that is stored under "model.embed" has another name, which is not left out.
    names = [name for name in whole if name.startswith("model.") and ".e" not in name] + ["model.tied"]
    assert sorted(opened(tmp_path)) == sorted(names)


def test_through_a_mapping(saved, tmp_path):
    root, whole = saved
    mapping = tmp_path / "mapping.aoa"
    mapping.write_text("""
        model.layers.$LAYER_ID.w -> half.$LAYER_ID, dtype='float16'
        half.$LAYER_ID^T -> out.$LAYER_ID
        model.tied -> lm_head
    """)
    command("export", "demo@7", "--root", str(root), "--to", str(tmp_path / "out"), "--mapping", str(mapping),
            "--exclude", "optimizer.*", "--memory", "64MiB")
    tensors = opened(tmp_path / "out")
    assert sorted(tensors) == sorted([f"out.{i}" for i in range(12)] +
                                     ["lm_head", "model.embed", "model.empty", "model.scalar"])
    for i in range(12):
        with np.errstate(all="ignore"):
            expected = whole[f"model.layers.{i}.w"].T.astype(np.float16)
        both = np.isnan(expected)
        assert (np.isnan(tensors[f"out.{i}"]) == both).all()
        assert (tensors[f"out.{i}"].view(np.uint16) == expected.view(np.uint16))[~both].all()
    assert tensors["lm_head"].tobytes() == whole["model.embed"].tobytes()


def test_a_tensor_above_the_memory_is_streamed(tmp_path):
    """A permuted tensor of 100 MB goes through windows of a few MB."""
    whole = noise((5000, 5000), np.float32, 1)
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        client.save(1, {"w": whole}).wait()
    (tmp_path / "m.aoa").write_text("w^T -> t")
    # A process's peak counts from before it ran the command, so a small process starts it.
    measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=sys.stderr);"
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    done = subprocess.run(
        [
            sys.executable, "-S", "-c", measure, str(cairn.local.binary("cairn")), "export", "demo", "--root",
            str(tmp_path / "root"), "--to", str(tmp_path / "out"), "--mapping", str(tmp_path / "m.aoa"), "--memory",
            "64MiB"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(done.stdout) * 1024 < 80 << 20
    assert opened(tmp_path / "out")["t"].tobytes() == whole.T.tobytes()


def test_a_loads_mapping_backwards_gives_back_the_file(tmp_path):
    """Weights go from Hugging Face's form to the job's fused form and back."""
    source = {f"m.{i}.{part}": noise((8, 6), np.float32, 10 * i + k)
              for i in range(2) for k, part in enumerate(("gate", "up"))}
    mapping = tmp_path / "load.aoa"
    mapping.write_text("m.$LAYER_ID.gate, m.$LAYER_ID.up -> t.$LAYER_ID, axis=0\nt.$LAYER_ID^T -> f.$LAYER_ID\n")
    (tmp_path / "hf").mkdir()
    safetensors.numpy.save_file(source, tmp_path / "hf/model.safetensors")
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        state = {f"f.{i}": np.zeros((6, 16), np.float32) for i in range(2)}
        client.load(state, source=tmp_path / "hf", mapping=mapping)
        client.save(1, state).wait()
    command(
        "export", "demo", "--root", str(tmp_path / "root"), "--to", str(tmp_path / "out"), "--mapping", str(mapping),
        "--reverse")
    tensors = opened(tmp_path / "out")
    assert sorted(tensors) == sorted(source)
    for name, array in source.items():
        assert tensors[name].tobytes() == array.tobytes(), name


def refused(reason: str, *arguments: str) -> str:
    done = command("export", *arguments, expect=1)
    assert f"error: {reason}:" in done.stderr, done.stderr
    return done.stderr


def test_faults_leave_nothing_behind(saved, tmp_path):
    root, _ = saved
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "model.safetensors").write_bytes(b"mine")
    assert "model.safetensors" in refused("OUTPUT_EXISTS", "demo", "--root", str(root), "--to", str(taken))
    assert [path.name for path in taken.iterdir()] == ["model.safetensors"]
    out = tmp_path / "out"
    refused("BAD_REQUEST", "demo", "--root", str(root), "--to", str(out), "--include", "nothing")
    refused("NOT_COMMITTED", "demo@8", "--root", str(root), "--to", str(out))
    refused("INPUT_UNREADABLE", "demo", "--root", str(root), "--to", str(out), "--mapping", str(tmp_path / "absent"))
    (tmp_path / "bad.aoa").write_text("model.embed -> ")
    refused("MAPPING_SYNTAX", "demo", "--root", str(root), "--to", str(out), "--mapping", str(tmp_path / "bad.aoa"))
    refused("BAD_QUANTITY", "demo", "--root", str(root), "--to", str(out), "--max-shard-size", "five")
    # The checkpoint is whole, so the message must not send anybody to verify it.
    said = refused("BAD_REQUEST", "demo", "--root", str(root), "--to", str(tmp_path / "no/such/parent"))
    assert "the directory above" in said and "next: Make that directory, or correct --to." in said, said
    assert not out.exists()


def test_a_damaged_checkpoint_is_not_exported(tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        checkpoint = client.save(1, {"w": noise((3 << 20,), np.uint8, 1), "v": noise((10,), np.uint8, 2)}).wait()
    file = max(
        (tmp_path / "root" / checkpoint.data_directory).glob("*.safetensors"), key=lambda path: path.stat().st_size
    )
    with open(file, "r+b") as handle:
        handle.seek(-100, os.SEEK_END)
        byte = handle.read(1)[0]
        handle.seek(-100, os.SEEK_END)
        handle.write(bytes([byte ^ 1]))
    text = refused("CHECKSUM_MISMATCH", "demo", "--root", str(tmp_path / "root"), "--to", str(tmp_path / "out"))
    assert file.name in text and ": w has" in text
    assert not (tmp_path / "out").exists()


def kept(directory) -> list[str]:
    return sorted(path.name.removeprefix(".tmp-export-done-")[42:] for path in directory.glob(".tmp-export-done-*"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small file system")
def test_a_full_disk_keeps_what_is_finished_and_the_next_export_goes_on(saved, tmp_path):
    root, _ = saved
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(small)], capture_output=True).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    arguments = ("demo", "--root", str(root), "--to", str(small / "out"), "--max-shard-size", "2MB")
    try:
        said = refused("NO_SPACE", *arguments)
        finished = kept(small / "out")
        assert finished and f"{len(finished)} file" in said and "next: Run the same command again" in said, said
        assert len(list((small / "out").iterdir())) == len(finished)
        changed, *whole = sorted((small / "out").iterdir())
        with open(changed, "r+b") as handle:
            handle.seek(-1, os.SEEK_END)
            byte = handle.read(1)[0]
            handle.seek(-1, os.SEEK_END)
            handle.write(bytes([byte ^ 1]))
        before = {path.stat().st_ino for path in whole}
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        written = json.loads(command("export", "--format=json", *arguments).stdout)
        assert written["finished_before"] == len(finished) - 1
        names = {path.name: path.stat().st_ino for path in (small / "out").iterdir()}
        assert not kept(small / "out") and before <= set(names.values())
        whole = tmp_path / "whole"
        command("export", *arguments[:4], str(whole), *arguments[5:])
        assert {path.name: path.read_bytes() for path in (small / "out").iterdir()} == {
            path.name: path.read_bytes() for path in whole.iterdir()}
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_export_that_is_ended_goes_on_where_it_was(saved, tmp_path, end):
    root, whole = saved
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "names.aoa").write_text("model.layers.$LAYER_ID.w^T -> model.layers.$LAYER_ID.w\n")
    arguments = ("export", "--format=json", "demo", "--root", str(root), "--to", str(out), "--max-shard-size", "1MB",
                 "--mapping", str(tmp_path / "names.aoa"))
    seen = False
    for _ in range(20):
        process = subprocess.Popen([str(cairn.local.binary("cairn")), *arguments, "--threads", "1"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None and not kept(out):
            time.sleep(0.001)
        process.send_signal(end)
        _, errors = process.communicate(timeout=60)
        if process.returncode in (130, -signal.SIGKILL) and not (out / "model.safetensors.index.json").exists():
            assert end == signal.SIGKILL or b"INTERRUPTED" in errors
            finished = kept(out)
            assert end == signal.SIGKILL or len(list(out.iterdir())) == len(finished)
            assert json.loads(command(*arguments).stdout)["finished_before"] == len(finished) > 0
            assert not list(out.glob(".tmp-*"))
            whole = {name: array.T if ".layers." in name else array for name, array in whole.items()}
            assert json.loads((out / FINGERPRINTS).read_text()) == {
                name: str(each) for name, each in cairn.fingerprint(whole).items()}, "also of what was read before"
            seen = True
            break
        for path in out.iterdir():  # it was done already
            path.unlink()
    assert seen


@pytest.mark.interop
def test_transformers_opens_it(tmp_path):
    """Two ranks save a tiny Llama with fused weights. Exported backwards, it gives the same logits."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                                      tie_word_embeddings=False)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    mapping = tmp_path / "llama.aoa"
    mapping.write_text(
        "model.layers.$LAYER_ID.mlp.gate_proj.weight, model.layers.$LAYER_ID.mlp.up_proj.weight -> gate_up.$LAYER_ID, axis=0\n"  # noqa: E501
        "gate_up.$LAYER_ID^T -> model.layers.$LAYER_ID.mlp.gate_up.weight\n"
    )
    fused = {}
    for name, value in state.items():
        if "gate_proj" in name:
            up = state[name.replace("gate_proj", "up_proj")]
            fused[name.replace("gate_proj", "gate_up")] = np.concatenate([value, up]).T.copy()
        elif "up_proj" not in name:
            fused[name] = value
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        on_ranks(cluster, lambda rank, client: client.save(
            1, {name: rows(array, rank, 2) for name, array in fused.items()}).wait())
    out = tmp_path / "out"
    command(
        "export", "demo", "--root", str(tmp_path / "root"), "--to", str(out), "--mapping", str(mapping), "--reverse",
        "--max-shard-size", "20KB")
    config.save_pretrained(out)
    again, info = transformers.LlamaForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    tokens = torch.arange(16).reshape(1, 16)
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, again.eval()(tokens).logits)


@pytest.mark.parametrize("below", ["", "demo", "new/deep"])
def test_a_root_of_checkpoints_takes_no_export(saved, below):
    root, _ = saved
    refused("BAD_REQUEST", "demo", "--root", str(root), "--to", str(root / below))
    assert not list(root.rglob("*.json"))


def test_a_directory_named_from_within_a_root_takes_no_export(saved, monkeypatch):
    root, _ = saved
    monkeypatch.chdir(root)
    refused("BAD_REQUEST", "demo", "--root", ".", "--to", "out")
