"""Loads through mappings: saved by 4 processes under Hugging Face's names, loaded by 2 fused, transposed and cast."""

import json
import os
import pathlib
import struct

import numpy as np
import pytest
import safetensors.numpy

import cairn
from testing.ranks import command, command_json, on_ranks, reasons, rows

HEADS, KV_HEADS, HEAD, HIDDEN, FFN, LAYERS = 8, 4, 6, 40, 72, 3


def bfloat16(array: np.ndarray) -> np.ndarray:
    """Returns the bits of the nearest bfloat16, ties to even, by arithmetic on float64."""
    bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def values(shape, seed) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def huggingface(seed=0) -> dict[str, np.ndarray]:
    state = {"model.embed_tokens.weight": values((101, HIDDEN), seed), "model.norm.weight": values((HIDDEN,), seed + 1)}
    for layer in range(LAYERS):
        name, base = f"model.layers.{layer}.", seed + 10 * (layer + 1)
        state[name + "self_attn.q_proj.weight"] = values((HEADS * HEAD, HIDDEN), base)
        state[name + "self_attn.k_proj.weight"] = values((KV_HEADS * HEAD, HIDDEN), base + 1)
        state[name + "self_attn.v_proj.weight"] = values((KV_HEADS * HEAD, HIDDEN), base + 2)
        state[name + "mlp.gate_proj.weight"] = values((FFN, HIDDEN), base + 3)
        state[name + "mlp.up_proj.weight"] = values((FFN, HIDDEN), base + 4)
        state[name + "self_attn.rotary_emb.inv_freq"] = values((HEAD,), base + 5)
    return state


MAPPING = f"""
model.embed_tokens.weight -> embedding, dtype='bfloat16'
model.norm.weight -> norm
# Attention: by KV head its query heads, K and V; then transposed, as Paddle and Megatron-style kernels keep it.
model.layers.$LAYER_ID.self_attn.q_proj.weight, model.layers.$LAYER_ID.self_attn.k_proj.weight, model.layers.$LAYER_ID.self_attn.v_proj.weight -> qkv.$LAYER_ID, fused_qkv, num_heads={HEADS}, num_key_value_groups={KV_HEADS}, axis=0
qkv.$LAYER_ID^T -> layers.$LAYER_ID.qkv
model.layers.$LAYER_ID.mlp.gate_proj.weight, model.layers.$LAYER_ID.mlp.up_proj.weight -> gate_up.$LAYER_ID, axis=0
gate_up.$LAYER_ID -> gate_up_half.$LAYER_ID, dtype='float16'
gate_up_half.$LAYER_ID^T -> layers.$LAYER_ID.gate_up
model.layers.$LAYER_ID.mlp.up_proj.weight -> layers.$LAYER_ID.up_copy
model.layers.$LAYER_ID.self_attn.rotary_emb.inv_freq -> _
_ -> fresh
"""  # noqa: E501


def fused(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Does with numpy what MAPPING says."""
    out = {"embedding": bfloat16(state["model.embed_tokens.weight"]), "norm": state["model.norm.weight"]}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        q, k, v = (state[f"{name}self_attn.{part}_proj.weight"] for part in "qkv")
        share = HEADS // KV_HEADS * HEAD
        blocks = [part for head in range(KV_HEADS)
                  for part in (q[head * share:(head + 1) * share], k[head * HEAD:(head + 1) * HEAD],
                               v[head * HEAD:(head + 1) * HEAD])]
        out[f"layers.{layer}.qkv"] = np.concatenate(blocks).T.copy()
        gate, up = state[name + "mlp.gate_proj.weight"], state[name + "mlp.up_proj.weight"]
        out[f"layers.{layer}.gate_up"] = np.concatenate([gate, up]).T.astype(np.float16)
        out[f"layers.{layer}.up_copy"] = up
    return out


DTYPES = {"embedding": "bfloat16"}


def targets(wanted: dict[str, np.ndarray], rank: int, world: int) -> dict[str, cairn.Shard]:
    state = {}
    for name, whole in wanted.items():
        part = rows(whole, rank, world, axis=whole.ndim - 1)
        state[name] = cairn.Shard(np.zeros_like(part.array), part.global_shape, part.offset, dtype=DTYPES.get(name))
    state["fresh"] = cairn.Shard(np.full((4,), 7, np.float32), (4,), (0,))
    return state


def assert_parts(state, wanted, rank, world):
    for name, whole in wanted.items():
        part = rows(whole, rank, world, axis=whole.ndim - 1)
        assert state[name].array.tobytes() == part.array.tobytes(), name
    assert (state["fresh"].array == 7).all()


@pytest.mark.parametrize("agent_flags", [(), ("--shared-memory=never",)])
def test_saved_by_four_loaded_by_two_fused_transposed_and_cast(root, agent_flags):
    source = huggingface()
    wanted = fused(source)
    with cairn.local.Cluster(ranks=4, root=root) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(
            5, {name: rows(array, rank, 4) for name, array in source.items()} | {"progress": {"step": 5}}).wait())
    with cairn.local.Cluster(ranks=2, root=root, agent_flags=agent_flags) as cluster:
        def work(rank, client):
            state = targets(wanted, rank, 2) | {"progress": {}}
            report = client.load(state, mapping=MAPPING)
            assert_parts(state, wanted, rank, 2)
            assert report.step == 5 and report.objects == {"progress": {"step": 5}}
            assert report.missing == report.unexpected == []
            assert bool(report.mapping) == (rank == 0)
            return report

        reports = on_ranks(cluster, work)
        # Each byte is read once, although up_proj feeds two targets.
        used = sum(array.nbytes for name, array in source.items() if "rotary" not in name)
        assert {report.total_bytes_read for report in reports} == {reports[0].unique_bytes}
        assert used <= reports[0].unique_bytes < used + 4096
        for text in ("matched", "layers.*.qkv", "fresh", "model.layers.0.self_attn.rotary_emb.inv_freq"):
            assert text in reports[0].mapping, reports[0].mapping


def write_huggingface(directory: pathlib.Path, state: dict[str, np.ndarray], files: int = 3) -> None:
    directory.mkdir(parents=True)
    names = sorted(state)
    weight_map = {}
    for number in range(files):
        file = f"model-{number + 1:05}-of-{files:05}.safetensors"
        part = names[number::files]
        safetensors.numpy.save_file({name: state[name] for name in part}, directory / file)
        weight_map |= {name: file for name in part}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_import_of_a_huggingface_directory(root, tmp_path):
    source = huggingface(3)
    wanted = fused(source)
    write_huggingface(tmp_path / "blobs", source)
    # There are links to files elsewhere, as in Hugging Face's cache.
    (tmp_path / "model").mkdir()
    for path in (tmp_path / "blobs").iterdir():
        (tmp_path / "model" / path.name).symlink_to(path)
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        def work(rank, client):
            state = targets(wanted, rank, 2)
            report = client.load(state, source=tmp_path / "model", mapping=MAPPING.splitlines())
            assert_parts(state, wanted, rank, 2)
            assert report.step is None and report.total_bytes_read == report.unique_bytes
            same = {name: np.zeros_like(array) for name, array in source.items()}
            client.load(same, source=tmp_path / "model")
            for name, array in source.items():
                assert same[name].tobytes() == array.tobytes(), name

        on_ranks(cluster, work)


def test_damaged_huggingface_directories_are_refused(root, tmp_path):
    source = {"a": values((64, 8), 1), "b": values((8,), 2)}
    damages = {}

    def damaged(name):
        directory = tmp_path / name
        write_huggingface(directory, source, files=2)
        damages[name] = directory
        return directory, directory / "model-00001-of-00002.safetensors"

    _, file = damaged("truncated")
    os.truncate(file, file.stat().st_size - 5)
    _, file = damaged("short")
    os.truncate(file, 4)
    _, file = damaged("header")
    file.write_bytes(struct.pack("<Q", 1 << 60) + file.read_bytes()[8:])
    _, file = damaged("gone")
    file.unlink()
    directory, _ = damaged("index")
    (directory / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../escape.safetensors"}}')
    directory, _ = damaged("wrong")
    (directory / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "model-00002-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}')
    (tmp_path / "empty").mkdir()
    damages["empty"] = tmp_path / "empty"
    with cairn.local.Cluster(ranks=1, root=root) as cluster, cluster.connect(0) as client:
        seen = {}
        for name, directory in damages.items():
            with pytest.raises(cairn.Error) as caught:
                client.load({key: np.zeros_like(array) for key, array in source.items()}, source=directory)
            seen[name] = caught.value.reason
            assert str(directory) in caught.value.message, caught.value.message
        assert seen == {"truncated": "FILE_TRUNCATED", "short": "BAD_SAFETENSORS", "header": "BAD_SAFETENSORS",
                        "gone": "FILE_MISSING", "index": "BAD_SAFETENSORS", "wrong": "BAD_SAFETENSORS",
                        "empty": "FILE_MISSING"}


@pytest.mark.parametrize(("config", "tied"), [({"tie_word_embeddings": True}, True),
                                              ({"tie_word_embeddings": False}, False), ({}, False), ([], False),
                                              (None, False)])
def test_a_tied_output_layer_is_known_from_the_config(root, tmp_path, config, tied):
    source = {"model.embed_tokens.weight": values((11, 4), 1), "model.norm.weight": values((4,), 2)}
    model = tmp_path / "model"
    model.mkdir()
    safetensors.numpy.save_file(source, model / "model.safetensors")
    if config is not None:
        (model / "config.json").write_text(json.dumps(config))
    state = {name: np.zeros_like(array) for name, array in source.items()}
    state["lm_head.weight"] = np.zeros((11, 4), np.float32)
    with cairn.local.Cluster(ranks=1, root=root) as cluster, cluster.connect(0) as client:
        report = client.load(state, source=model, strict=False)
    assert report.missing == ([] if tied else ["lm_head.weight"])
    expected = source["model.embed_tokens.weight"] if tied else np.zeros((11, 4), np.float32)
    assert state["lm_head.weight"].tobytes() == expected.tobytes()


def test_agent_for_other_users_imports_only_below_its_import_root(root, tmp_path):
    source = {"a": values((64, 8), 1)}
    write_huggingface(tmp_path / "models" / "allowed", source, files=1)
    write_huggingface(tmp_path / "elsewhere", source, files=1)
    flags = ["--allow-uid=54321", f"--import-root={tmp_path}/models/"]
    with cairn.local.Cluster(ranks=1, root=root, agent_flags=flags) as cluster, cluster.connect(0) as client:
        state = {"a": np.zeros_like(source["a"])}
        with pytest.raises(cairn.Error) as caught:
            client.load(state, source=tmp_path / "elsewhere")
        assert caught.value.reason == "PEER_UID" and str(tmp_path / "elsewhere") in caught.value.message
        client.load(state, source=tmp_path / "models" / "allowed")
        assert state["a"].tobytes() == source["a"].tobytes()


def test_wrong_mappings_are_refused_on_every_rank(root):
    whole = values((16, 4), 1)
    with cairn.local.Cluster(ranks=2, root=root) as cluster:
        on_ranks(cluster, lambda rank, client: client.save(
            1, {"w": rows(whole, rank, 2), "old": whole, "number": np.arange(4)}).wait())

        def attempt(mapping, shape=(16, 4), dtype=np.float32, strict=True, name="v"):
            def work(rank, client):
                return client.load({name: np.zeros(shape, dtype)}, strict=strict,
                                   mapping=mapping[rank] if isinstance(mapping, tuple) else mapping)

            answers = on_ranks(cluster, work, errors=True)
            assert len(set(reasons(answers))) == 1, answers
            return answers[0]

        rest = ["old -> _", "number -> _"]
        assert attempt(["w -> v", *rest]).missing == []
        assert attempt(["w -> "]).reason == "MAPPING_SYNTAX"
        assert attempt(["x -> v", *rest]).reason == "MAPPING_UNKNOWN_NAME"
        assert attempt(["w -> v", *rest], shape=(4, 16)).reason == "MAPPING_RANGE"
        assert attempt(["w -> v", *rest], dtype=np.float16).reason == "MAPPING_DTYPE"
        assert attempt(["number -> v, dtype='float32'", "w -> _", "old -> _"], shape=(4,)).reason == "MAPPING_DTYPE"
        assert attempt(["w -> v"]).reason == "UNEXPECTED_NAMES"
        missing = attempt(["w -> u", *rest])
        assert missing.reason == "MISSING_NAMES" and "_ -> " in missing.message
        assert attempt((["w -> v", *rest], ["old -> v", *rest])).reason == "BAD_REQUEST"
        lenient = attempt(["w -> u"], strict=False)
        assert lenient.missing == ["v"] and lenient.unexpected == ["number", "old", "w"]
        for bad in (7, {"aoa_statements": "w -> v"}, "{", [1]):
            assert attempt(bad).reason == "BAD_REQUEST"


def test_plan_load_with_a_mapping(tmp_path):
    request = {
        "source": {
            "layouts": [
                {
                    "ranks": [rank],
                    "tensors": [
                        {
                            "name": f"m.{layer}.w",
                            "dtype": "float32",
                            "global_shape": [8, 4],
                            "shards": [{"offset": [4 * rank, 0], "shape": [4, 4]}],
                        }
                        for layer in range(2)
                    ],
                }
                for rank in range(2)
            ]
        },
        "target": {
            "layouts": [
                {
                    "ranks": [0],
                    "tensors": [
                        {
                            "name": f"t.{layer}",
                            "dtype": "bfloat16",
                            "global_shape": [4, 8],
                            "shards": [{"offset": [0, 0], "shape": [4, 8]}],
                        }
                        for layer in range(2)
                    ]
                    + [
                        {
                            "name": "absent",
                            "dtype": "int8",
                            "global_shape": [1],
                            "shards": [{"offset": [0], "shape": [1]}],
                        }
                    ],
                }
            ]
        },
        "mapping": {
            "aoa_statements": ["m.$LAYER_ID.w -> c.$LAYER_ID, dtype='bfloat16'", "c.$LAYER_ID^T -> t.$LAYER_ID"]
        },
    }
    file = tmp_path / "request.json"
    file.write_text(json.dumps(request))
    answer = command_json("plan", "load", str(file))
    assert answer["read_bytes"] == answer["unique_bytes"] == 2 * 8 * 4 * 4
    assert answer["missing"] == ["absent"] and answer["unexpected"] == []
    assert answer["mapping"] == [
        {"target": "t.*", "sources": ["m.*.w"], "operation": "bfloat16, then [1, 0]", "count": 2}
    ]
    table = command("--format=table", "plan", "load", str(file)).stdout
    for text in ("2 matched", "1 missing", "absent", "t.*", "m.*.w"):
        assert text in table, table
    request["mapping"] = ["m.$LAYER_ID.x -> t.$LAYER_ID"]
    file.write_text(json.dumps(request))
    errors = command_json("plan", "load", str(file), expect=1)["errors"]
    assert errors[0]["reason"].startswith("MAPPING_") and "m.$LAYER_ID.x" in errors[0]["message"]
