"""cairn import: a directory of another library becomes a checkpoint like any other."""

import json
import pathlib
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import safetensors.torch
from torch.distributed.checkpoint.state_dict import get_state_dict

import cairn
import cairn.torch
import cairn.torch.dcp
from testing.dcp import assert_equal, state, tensor, write
from testing.ranks import command, command_json, on_ranks, until


def imported(source, root, name="demo@3", *more, expect=0):
    return command_json("import", str(source), "--to", name, "--root", str(root), *more, expect=expect)


def attempts(root, step="000000000003"):
    directory = root / "demo" / step
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def test_a_directory_of_torch_becomes_a_checkpoint(tmp_path):
    write(tmp_path / "dcp", state(1), thread_count=3, single_file_per_rank=False)
    answer = imported(tmp_path / "dcp", tmp_path / "root")
    assert (answer["job"], answer["step"], answer["state"], answer["opaque"]) == ("demo", 3, "COMMITTED", [])
    command("verify", "demo@3", "--root", str(tmp_path / "root"))
    targets = (state(None), state(None))
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster:
        on_ranks(cluster, lambda rank, client: cairn.torch.dcp.load(targets[rank], checkpoint_id="3", client=client))
    for target in targets:
        assert_equal(target, state(1))


def test_an_imported_optimizer_is_loaded_by_the_names_of_torch(tmp_path):
    def made(rate):
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        states = get_state_dict(model, optimizer)
        return {"model": states[0], "optimizer": states[1], "epoch": 3 if rate < 0.1 else 0}

    source = made(0.001)
    torch.distributed.checkpoint.save(source, checkpoint_id=str(tmp_path / "dcp"))
    command("import", str(tmp_path / "dcp"), "--to", "demo@3", "--root", str(tmp_path / "root"))
    wanted = made(0.5)
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        assert cairn.torch.load(client, wanted, 3).missing == []
        # The trainer joins the hyperparameters that torch names one by one: that drops nothing.
        assert client.checkpoints() == [3]
        assert cairn.torch.save(client, 4, wanted).wait().step == 4
        with pytest.raises(cairn.Error) as caught:
            cairn.torch.load(client, wanted | {"other": torch.zeros(2)}, 3)
    assert caught.value.reason == "MISSING_NAMES" and "other" in caught.value.message
    assert wanted["optimizer"]["param_groups"][0]["lr"] == 0.001 and wanted["epoch"] == 3
    for name, value in source["model"].items():
        assert torch.equal(wanted["model"][name], value)


def test_an_optimizer_of_torch_is_taken_by_a_manager_that_has_its_model(tmp_path):
    def made():
        model = torch.nn.Linear(4, 3)
        return model, torch.optim.AdamW(model.parameters(), lr=0.5)

    model, optimizer = made()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    states = get_state_dict(model, optimizer)
    torch.distributed.checkpoint.save({"model": states[0], "optimizer": states[1]}, checkpoint_id=str(tmp_path / "dcp"))
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        with cairn.torch.CheckpointManager(client) as manager:
            model, optimizer = made()
            optimizer.param_groups[0]["lr"] = 0.001
            manager.restore_or_initialize({"model": model, "optimizer": optimizer}, source=tmp_path / "dcp")
            assert torch.equal(optimizer.state[model.weight]["exp_avg"], states[1]["state"]["weight"]["exp_avg"])
            assert optimizer.param_groups[0]["lr"] == 0.5

            # Without the model it has numbers.
            with pytest.raises(cairn.Error) as caught:
                manager.restore_or_initialize({"model": model.state_dict(), "optimizer": made()[1]},
                                              source=tmp_path / "dcp")
            assert "into what get_state_dict returns, and call set_state_dict" in str(caught.value)


def test_tied_weights_of_hugging_face_files_stay_tied(tmp_path):
    source = tmp_path / "model"
    source.mkdir()
    tensors = {"model.embed_tokens.weight": tensor((50, 8), torch.bfloat16, 1), "b": tensor((3,), torch.bool, 2),
               "a": tensor((5, 7), torch.float64, 3)}
    safetensors.torch.save_file(tensors, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    assert imported(source, tmp_path / "root")["aliases"] == 1
    target = {name: torch.zeros_like(value) for name, value in tensors.items()}
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        cairn.torch.load(client, target)
        head = {"lm_head.weight": torch.zeros(50, 8, dtype=torch.bfloat16)}
        cairn.torch.load(client, head, strict=False)
    assert_equal(target, tensors)
    assert_equal(head["lm_head.weight"], tensors["model.embed_tokens.weight"])


def test_a_file_of_torch_save_goes_through_a_mapping(tmp_path):
    tensors = {f"layers.{n}.w": tensor((40, 30), torch.float32, n) for n in range(3)} | {"skip": torch.ones(2)}
    torch.save(tensors, tmp_path / "model.pt")
    (tmp_path / "m.aoa").write_text("layers.$LAYER_ID.w^T -> t.$LAYER_ID\nt.0, t.1 -> both, axis=0")
    imported(tmp_path / "model.pt", tmp_path / "root", "demo@3", "--mapping", str(tmp_path / "m.aoa"), "--exclude",
             "skip")
    target = {"both": torch.zeros(60, 40), "t.2": torch.zeros(30, 40)}
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        cairn.torch.load(client, target)
    assert_equal(target["both"], torch.cat([tensors["layers.0.w"].t(), tensors["layers.1.w"].t()]))
    assert_equal(target["t.2"], tensors["layers.2.w"].t())


def test_views_of_one_storage_become_tensors_of_their_own(tmp_path):
    flat = tensor((5000,), torch.float32, 1)
    tensors = {"flat": flat, "overlap": flat[1000:3500].view(50, 50), "turned": flat[1000:3500].view(50, 50).t(),
               "again": flat, "expanded": flat[:3].expand(40, 3)}
    torch.save(tensors, tmp_path / "views.pt")
    assert imported(tmp_path / "views.pt", tmp_path / "root")["aliases"] == 1
    target = {name: torch.zeros(value.shape) for name, value in tensors.items()}
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        cairn.torch.load(client, target)
    assert_equal(target, {name: value.contiguous() for name, value in tensors.items()})


def test_what_one_file_holds_besides_tensors_is_listed(tmp_path):
    torch.save({"w": torch.ones(2), "pair": (torch.zeros(1), 3), "epoch": 7,
                "sparse": torch.eye(2).to_sparse(), "hostile\033[2J": 1}, tmp_path / "all.pt")
    answer = imported(tmp_path / "all.pt", tmp_path / "root")
    assert answer["tensors"] == 2
    assert answer["left_out"] == ["pair.1 (an int)", "epoch (an int)", "sparse (torch._utils._rebuild_sparse_tensor)",
                                  "hostile\033[2J (an int)"]
    said = command("import", str(tmp_path / "all.pt"), "--to", "demo@4", "--root", str(tmp_path / "root")).stdout
    assert "left out: 4 values, which are no tensors that Cairn knows\n  pair.1 (an int)\n" in said, said
    assert "  hostile\\x1b[2J (an int)\n" in said and "\033" not in said, "a terminal would obey it"


def test_more_than_the_memory_is_streamed(tmp_path):
    """A permuted tensor, and elements that straddle windows, go through windows of a few MB."""
    tensors = {"a": tensor((999_999,), torch.bool, 1), "m": tensor((3001, 5003), torch.float32, 2),
               "n": tensor((7_000_001,), torch.float64, 3), "z": tensor((13,), torch.int8, 4)}
    safetensors.torch.save_file(tensors, tmp_path / "x.safetensors")
    (tmp_path / "m.aoa").write_text("m^T -> m_t")
    # A process's peak counts from before it ran the command, so a small process starts it.
    measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=sys.stderr);"
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    done = subprocess.run(
        [sys.executable, "-S", "-c", measure, str(cairn.local.binary("cairn")), "import", str(tmp_path), "--to",
         "demo@3", "--root", str(tmp_path / "root"), "--mapping", str(tmp_path / "m.aoa"), "--memory", "64MiB"],
        check=True, capture_output=True, text=True)
    assert int(done.stdout) * 1024 < 90 << 20
    command("export", "demo@3", "--root", str(tmp_path / "root"), "--to", str(tmp_path / "out"))
    out = safetensors.torch.load_file(tmp_path / "out" / "model-00001-of-00001.safetensors")
    assert_equal(out.pop("m_t"), tensors.pop("m").t())
    assert_equal(dict(sorted(out.items())), tensors)


def test_values_of_classes_are_named(tmp_path):
    write(tmp_path / "dcp", {"w": torch.ones(3), "plain": {"a": 1}, "odd": {"$cairn": "opaque"}, "path": [tmp_path]})
    assert imported(tmp_path / "dcp", tmp_path / "root")["opaque"] == ["path"]


def test_a_committed_step_and_a_served_root_are_refused(tmp_path):
    safetensors.torch.save_file({"w": torch.ones(3)}, tmp_path / "x.safetensors")
    imported(tmp_path, tmp_path / "root")
    again = command("import", str(tmp_path), "--to", "demo@3", "--root", str(tmp_path / "root"), expect=1)
    assert "STEP_COMMITTED" in again.stderr
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root"):
        served = command("import", str(tmp_path), "--to", "demo@4", "--root", str(tmp_path / "root"), expect=1)
    assert "ROOT_IN_USE" in served.stderr and "source=" in served.stderr
    assert attempts(tmp_path / "root") == ["0001", "0001.verdict"]


def test_a_source_that_cannot_be_read_leaves_nothing(tmp_path):
    write(tmp_path / "dcp", state(1))
    next((tmp_path / "dcp").glob("*.distcp")).write_bytes(b"")
    refused = command("import", str(tmp_path / "dcp"), "--to", "demo@3", "--root", str(tmp_path / "root"), expect=1)
    assert "FILE_TRUNCATED" in refused.stderr
    assert attempts(tmp_path / "root") == []


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_import_that_is_ended_leaves_no_checkpoint(tmp_path, end):
    safetensors.torch.save_file({f"w{n}": torch.zeros(50_000_000) for n in range(2)}, tmp_path / "x.safetensors")
    root = tmp_path / "root"
    process = subprocess.Popen([cairn.local.binary("cairn"), "import", tmp_path, "--to", "demo@3", "--root", root],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: list(root.glob("demo/*/0001/*.partial")), text="a bin")
    process.send_signal(end)
    assert process.wait(60) == (130 if end == signal.SIGINT else -signal.SIGKILL)
    assert attempts(root) == (["0001.verdict"] if end == signal.SIGINT else ["0001"])
    assert command_json("list", "demo", "--root", str(root))["checkpoints"] == []
    # The next one removes what was left.
    imported(tmp_path, root)
    assert attempts(root) == ["0001.verdict", "0002", "0002.verdict"]
    assert not list(root.glob("demo/*/*/*.partial"))
    command("verify", "demo@3", "--root", str(root))


def test_a_directory_of_megatron_becomes_a_checkpoint(tmp_path):
    pytest.importorskip("megatron.core")
    source = tmp_path / "iter_0000007"
    source.mkdir()
    subprocess.run([sys.executable, pathlib.Path(__file__).with_name("megatron_worker.py"), "save", source], check=True,
                   capture_output=True, timeout=120)
    answer = imported(source, tmp_path / "root")
    assert (answer["tensors"], answer["opaque"]) == (3, ["common.pt"])
    assert command_json("diff", str(source), "demo@3", "--root", str(tmp_path / "root"))["compared"] == 5

    def random(rows, number):
        torch.manual_seed(number)
        return torch.randn(rows, 3)

    target = {"decoder.w": torch.zeros(8, 6), "experts.w": torch.zeros(2, 4, 3), "rows.w": torch.zeros(12, 3)}
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        report = cairn.torch.load(client, target)
    assert_equal(target, {"decoder.w": torch.arange(48.0).reshape(8, 6),
                          "experts.w": torch.stack([random(4, n) for n in range(2)]),
                          "rows.w": torch.cat([random(4, n) for n in range(3)])})
    assert report.objects["decoder._extra_state/shard_0_1"] == [{"amax": [1.5, 2]}]  # Megatron puts it into a list
    common = report.objects["common.pt"]
    assert common["iteration"] == 7 and common["optimizer"]["param_groups"] == [{"lr": 0.1, "betas": (0.9, 0.95)}]
    assert isinstance(common["args"], cairn.Opaque)


def test_an_export_to_dcp_and_its_import_give_the_values_of_ranks_or_name_them(tmp_path):
    """PyTorch gets values of ranks in parts. Without the file that holds them whole, the error names these alone."""
    def made():
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": cairn.torch.rng_state()}

    source = made()
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        cairn.torch.save(client, 3, source).wait()
    command("export", "demo@3", "--root", str(tmp_path / "root"), "--to", str(tmp_path / "dcp"), "--as", "dcp")
    imported(tmp_path / "dcp", tmp_path / "whole")
    with cairn.local.Cluster(ranks=1, root=tmp_path / "whole") as cluster, cluster.connect(0) as client:
        for where in ({}, {"source": tmp_path / "dcp"}):
            wanted = made()
            cairn.torch.load(client, wanted, **where)
            cairn.torch.set_rng_state(source["rng"])
            expected = torch.rand(3)
            cairn.torch.set_rng_state(wanted["rng"])
            assert torch.equal(torch.rand(3), expected)
    (tmp_path / "dcp/.cairn_per_rank_values").unlink()
    imported(tmp_path / "dcp", tmp_path / "copy")
    with cairn.local.Cluster(ranks=1, root=tmp_path / "copy") as cluster, cluster.connect(0) as client:
        for where in ({}, {"source": tmp_path / "dcp"}):
            with pytest.raises(cairn.Error) as caught:
                cairn.torch.load(client, made(), **where)
            assert caught.value.metadata["names"] == "rng", caught.value
            assert "'rng' is a value of cairn.per_rank" in caught.value.metadata["next"]
            wanted = made()
            del wanted["rng"]
            cairn.torch.load(client, wanted, **where)
            assert_equal(wanted["model"], source["model"])


def test_numbers_of_an_import_are_written_as_the_client_writes_them(tmp_path):
    """Python's own json is the oracle, over random bits of floats; so a diff of a save and its import finds nothing."""
    import random
    import struct

    from cairn._base import native
    from cairn._state import objects

    seed = random.randrange(2**32)
    generator = random.Random(seed)
    floats = [struct.unpack("<d", generator.randbytes(8))[0] for _ in range(5000)]
    floats += [0.1, 1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, 5e-324, -0.0, 100.0, float("inf"), float("nan")]
    floats += [generator.uniform(-1e3, 1e3) for _ in range(2000)] + [round(generator.random(), 3) for _ in range(2000)]
    others = {"lr": 0.1, "betas": (0.9, 0.999), "text": "a\n\t\b\x01\x7f\"\\/é\u2028", "deep": [{"n": 1}]}
    for value in (floats, others):
        torch.save(value, tmp_path / "value")
        assert native.torch_value((tmp_path / "value").read_bytes(), "v") == objects.encode(value, "v"), seed


def test_a_diff_compares_values_and_not_how_numbers_are_spelled(tmp_path):
    state_dict = {"w": torch.ones(3), "groups": [{"lr": 0.1, "eps": 1e-08}], "text": "a\nb"}
    with cairn.local.Cluster(ranks=1, root=tmp_path / "a") as cluster, cluster.connect(0) as client:
        cairn.torch.dcp.save(state_dict, checkpoint_id="3", client=client)
    command("export", "demo@3", "--root", str(tmp_path / "a"), "--to", str(tmp_path / "dcp"), "--as", "dcp")
    imported(tmp_path / "dcp", tmp_path / "b")
    for second in (["demo@3", "--second-root", str(tmp_path / "b")], [str(tmp_path / "dcp")]):
        assert command_json("diff", "demo@3", *second, "--root", str(tmp_path / "a"))["equal"]
