"""Tests the ready-made mappings, forwards and backwards, on small models with real head layouts."""

import json

import numpy as np
import pytest

from aoa_testing import evaluate, request, resolve, run, whole

HEADS, KV_HEADS, HEAD, HIDDEN, WIDTH, EXPERTS = 4, 2, 2, 6, 8, 3


def statements(name, *options):
    return json.loads(run("aoa", "--format=json", "show", name, *options, check=0).stdout)["aoa_statements"]


class Weights:
    def __init__(self):
        self.start = 0

    def __call__(self, *shape):
        self.start += 1000
        return np.arange(self.start, self.start + np.prod(shape), dtype=np.float32).reshape(shape)


def grouped_qkv(q, k, v):
    per_group = HEADS // KV_HEADS
    q, k, v = (x.reshape(-1, HEAD, HIDDEN) for x in (q, k, v))
    return np.concatenate(
        [x for g in range(KV_HEADS) for x in (q[g * per_group : (g + 1) * per_group].reshape(-1, HIDDEN), k[g], v[g])]
    )


def attention(w, source, target, layer, transposed=False):
    s = f"model.layers.{layer}.self_attn."
    q, k, v = w(HEADS * HEAD, HIDDEN), w(KV_HEADS * HEAD, HIDDEN), w(KV_HEADS * HEAD, HIDDEN)
    source |= {
        s + "q_proj.weight": q,
        s + "k_proj.weight": k,
        s + "v_proj.weight": v,
        s + "o_proj.weight": w(HIDDEN, HEADS * HEAD),
    }
    fused = grouped_qkv(q, k, v)
    target |= {s + "qkv_proj.weight": fused.T if transposed else fused,
               s + "o_proj.weight": source[s + "o_proj.weight"].T if transposed else source[s + "o_proj.weight"]}


def ffn(w, source, target, prefix, transposed=False, fused="gate_up_proj"):
    gate, up, down = w(WIDTH, HIDDEN), w(WIDTH, HIDDEN), w(HIDDEN, WIDTH)
    source |= {prefix + "gate_proj.weight": gate, prefix + "up_proj.weight": up, prefix + "down_proj.weight": down}
    both = np.concatenate([gate, up])
    target |= {prefix + fused + ".weight": both.T if transposed else both,
               prefix + "down_proj.weight": down.T if transposed else down}


def llama(transposed):
    w, source, target = Weights(), {}, {}
    for layer in range(2):
        attention(w, source, target, layer, transposed)
        ffn(
            w, source, target, f"model.layers.{layer}.mlp.", transposed,
            "up_gate_proj" if transposed else "gate_up_proj")
        norm = f"model.layers.{layer}.input_layernorm.weight"
        source[norm] = target[norm] = w(HIDDEN)
    source["lm_head.weight"] = w(10, HIDDEN)
    target["lm_head.weight"] = source["lm_head.weight"].T if transposed else source["lm_head.weight"]
    return source, target


def qwen_moe(stacked):
    w, source, target = Weights(), {}, {}
    for layer in range(2):
        attention(w, source, target, layer)
        router = f"model.layers.{layer}.mlp.gate.weight"
        source[router] = target[router] = w(EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            ffn(w, source, {} if stacked else target, f"model.layers.{layer}.mlp.experts.{expert}.")
        for part in ("gate_proj", "up_proj", "down_proj") if stacked else ():
            prefix = f"model.layers.{layer}.mlp.experts."
            target[f"{prefix}{part}.weight"] = np.concatenate(
                [source[f"{prefix}{x}.{part}.weight"] for x in range(EXPERTS)]
            )
    return source, target


def deepseek():
    w, source, target = Weights(), {}, {}
    for layer in range(3):
        s = f"model.layers.{layer}.self_attn."
        source |= {
            s + "q_a_proj.weight": w(5, HIDDEN),
            s + "kv_a_proj_with_mqa.weight": w(3, HIDDEN),
            s + "kv_b_proj.weight": w(4, 2),
        }
        target[s + "fused_qkv_a_proj_with_mqa.weight"] = np.concatenate(
            [source[s + "q_a_proj.weight"], source[s + "kv_a_proj_with_mqa.weight"]]
        )
        target[s + "kv_b_proj.weight"] = source[s + "kv_b_proj.weight"]
        m = f"model.layers.{layer}.mlp."
        if layer == 0:
            ffn(w, source, target, m)
            continue
        ffn(w, source, target, m + "shared_experts.")
        for expert in range(EXPERTS):
            ffn(w, source, target, f"{m}experts.{expert}.")
        for name in ("gate.weight", "gate.e_score_correction_bias"):
            source[m + name] = target[m + name] = w(EXPERTS)
    return source, target


ATTENTION = ("--num-heads", str(HEADS), "--num-kv-heads", str(KV_HEADS))
MODELS = {
    "llama": (lambda: llama(False), ATTENTION),
    "llama-transposed": (lambda: llama(True), ATTENTION),
    "qwen-moe": (lambda: qwen_moe(False), ATTENTION),
    "qwen-moe-stacked": (lambda: qwen_moe(True), ATTENTION),
    "deepseek-v3": (deepseek, ("--q-lora-rank", "5", "--kv-lora-rank", "3")),
}


def test_every_mapping_has_a_model_here():
    assert [line.split()[0] for line in run("aoa", "show", check=0).stdout.splitlines()] == list(MODELS)


@pytest.mark.parametrize("reverse", [False, True], ids=["load", "export"])
@pytest.mark.parametrize("name", MODELS)
def test_model(name, reverse):
    model, options = MODELS[name]
    have, want = model() if not reverse else model()[::-1]
    targets = [whole(key, array.shape) for key, array in want.items()]
    config = {"aoa_statements": statements(name, *options), "aoa_config_reverse": reverse}
    status, answer = resolve(
        request(config, [whole(key, array.shape) for key, array in have.items()], targets, targets)
    )
    assert status == 0, answer
    for got in answer["answers"]:
        key = got["target"]["key"]
        np.testing.assert_array_equal(evaluate(got, have), want[key], err_msg=key)


def test_text_is_valid_as_it_is_shown():
    source, target = llama(False)
    targets = [whole(key, array.shape) for key, array in target.items()]
    text = run("aoa", "show", "llama", *ATTENTION, check=0).stdout
    assert text.startswith("#")
    status, answer = resolve(
        request({"aoa_statements": [text]}, [whole(k, a.shape) for k, a in source.items()], targets)
    )
    assert status == 0, answer


def test_unknown_name_lists_them():
    done = run("aoa", "show", "lama", check=1)
    assert "llama" in done.stderr and "deepseek-v3" in done.stderr
