"""cairn export --like: transformers opens the directory as a model of its own."""

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import cairn
import cairn.torch
from testing.dcp import assert_equal
from testing.ranks import command, command_json

pytestmark = pytest.mark.interop


def make_model(tied):
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                                 num_key_value_heads=2, vocab_size=200, tie_word_embeddings=tied))


def save(tmp_path, model):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, cluster.connect(0) as client:
        cairn.torch.save(client, 3, {"model": model.state_dict(), "step": 3}).wait()
    head = "" if model.config.tie_word_embeddings else "model.lm_head.weight -> lm_head.weight"
    (tmp_path / "names.aoa").write_text(f"model.model.* -> model.*\n{head}")


def export(tmp_path, *more):
    return command_json("export", "demo@3", "--root", str(tmp_path / "root"), "--to", str(tmp_path / "out"),
                        "--mapping", str(tmp_path / "names.aoa"), "--like", str(tmp_path / "like"), *more)


@pytest.mark.parametrize("tied", [False, True])
def test_Export_LikeAModel_IsOpenedByTransformers(tmp_path, tied):
    model = make_model(tied)
    model.generation_config.max_new_tokens = 7
    model.save_pretrained(tmp_path / "like")
    (tmp_path / "like" / "notes.bin").write_text("not a part of a model")
    (tmp_path / "blob").write_text(json.dumps({"a": 1}))
    (tmp_path / "like" / "tokenizer.json").symlink_to(tmp_path / "blob")  # as in Hugging Face's cache
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    save(tmp_path, model)
    answer = export(tmp_path, "--max-shard-size", "100KB", *(["--exclude", "model.lm_head.weight"] if tied else []))
    assert len(answer["files"]) > 2
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"cairn_fingerprints.json", "config.json", "generation_config.json", "tokenizer.json",
                       "model.safetensors.index.json", *(file["name"] for file in answer["files"])}
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "like" / name).read_bytes()
        assert not (tmp_path / "out" / name).is_symlink()
    opened, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert_equal(dict(opened.state_dict()), dict(model.state_dict()))
    assert opened.generation_config.max_new_tokens == 7
    state = {name: value for name, value in opened.state_dict().items() if not (tied and name == "lm_head.weight")}
    assert json.loads((tmp_path / "out/cairn_fingerprints.json").read_text()) == {
        name: str(value) for name, value in cairn.torch.fingerprint(state).items()}


def test_Export_LikeNoModel_IsRefused(tmp_path):
    save(tmp_path, make_model(False))
    (tmp_path / "like").mkdir()
    base = ["export", "demo@3", "--root", str(tmp_path / "root"), "--to", str(tmp_path / "out"), "--like"]
    assert "no config.json" in command(*base, str(tmp_path / "like"), expect=1).stderr
    assert "cannot list" in command(*base, str(tmp_path / "none"), expect=1).stderr
    assert "BAD_REQUEST" in command(*base, str(tmp_path / "like"), "--as", "dcp", expect=1).stderr
    assert not (tmp_path / "out").exists()


def test_Export_FileToCopyIsThereAlready_IsRefusedAndKept(tmp_path):
    model = make_model(False)
    model.save_pretrained(tmp_path / "like")
    save(tmp_path, model)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text("mine")
    refused = command("export", "demo@3", "--root", str(tmp_path / "root"), "--to", str(tmp_path / "out"), "--like",
                      str(tmp_path / "like"), expect=1)
    assert "OUTPUT_EXISTS" in refused.stderr and "config.json" in refused.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["config.json"]
    assert (tmp_path / "out" / "config.json").read_text() == "mine"
