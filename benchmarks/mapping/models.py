"""Requests of `cairn aoa resolve` for large models: Hugging Face's names to fused, transposed ones, loaded under tensor
and expert parallelism. Deterministic; `--scale` shrinks a model in its layers to show growth."""

import argparse
import json
import sys

MODELS = ("llama-70b", "deepseek-v3", "kimi-k2")


def _desc(key, shape, offset=None, whole=None, dtype="bfloat16"):
    whole = whole or shape
    return {
        "key": key,
        "local_shape": shape,
        "global_shape": whole,
        "global_offset": offset or [0] * len(shape),
        "dtype": dtype,
    }


class Builder:
    def __init__(self, tp, ep, rank):
        self.tp, self.ep, self.rank = tp, ep, rank
        self.statements, self.source, self.destination, self.queries = [], [], [], []

    def have(self, key, shape):
        self.source.append(_desc(key, shape))

    def want(self, key, shape, axis=None):
        """A target tensor, cut along `axis` over the tensor-parallel ranks (None: replicated)."""
        if axis is None:
            shards = [_desc(key, shape)]
        else:
            local = list(shape)
            local[axis] //= self.tp
            offsets = [[rank * local[axis] if i == axis else 0 for i in range(len(shape))] for rank in range(self.tp)]
            shards = [_desc(key, local, offset, shape) for offset in offsets]
        self.destination += shards
        self.queries.append(shards[self.rank % len(shards)])

    def want_expert(self, key, shape, expert, experts):
        shard = _desc(key, shape)
        self.destination.append(shard)
        if expert // (experts // self.ep) == self.rank % self.ep:
            self.queries.append(shard)

    def request(self):
        return {
            "aoa_config": {"aoa_statements": self.statements, "aoa_config_reverse": False, "enable_traceback": True},
            "source": self.source,
            "destination": self.destination,
            "queries": self.queries,
        }


def llama(layers=80, hidden=8192, heads=64, kv_heads=8, intermediate=28672, vocab=128256, tp=8, ep=8, rank=3):
    b = Builder(tp, ep, rank)
    head = hidden // heads
    p = "model.layers.$LAYER_ID."
    b.statements += [
        "model.embed_tokens.weight -> llama.embed_tokens.weight",
        f"{p}self_attn.q_proj.weight^T, {p}self_attn.k_proj.weight^T, {p}self_attn.v_proj.weight^T -> "
        f"llama.layers.$LAYER_ID.self_attn.qkv_proj.weight, fused_qkv, num_heads={heads}, num_key_value_groups={kv_heads}",  # noqa: E501
        f"{p}self_attn.o_proj.weight^T -> llama.layers.$LAYER_ID.self_attn.o_proj.weight",
        f"{p}mlp.gate_proj.weight^T, {p}mlp.up_proj.weight^T -> llama.layers.$LAYER_ID.mlp.up_gate_proj.weight, fused_ffn",  # noqa: E501
        f"{p}mlp.down_proj.weight^T -> llama.layers.$LAYER_ID.mlp.down_proj.weight",
        f"{p}input_layernorm.weight -> llama.layers.$LAYER_ID.input_layernorm.weight",
        f"{p}post_attention_layernorm.weight -> llama.layers.$LAYER_ID.post_attention_layernorm.weight",
        "model.norm.weight -> llama.norm.weight",
        "lm_head.weight^T -> llama.lm_head.weight",
    ]
    b.have("model.embed_tokens.weight", [vocab, hidden])
    b.want("llama.embed_tokens.weight", [vocab, hidden], 0)
    for n in range(layers):
        s, d = f"model.layers.{n}.", f"llama.layers.{n}."
        b.have(s + "self_attn.q_proj.weight", [heads * head, hidden])
        b.have(s + "self_attn.k_proj.weight", [kv_heads * head, hidden])
        b.have(s + "self_attn.v_proj.weight", [kv_heads * head, hidden])
        b.have(s + "self_attn.o_proj.weight", [hidden, heads * head])
        b.have(s + "mlp.gate_proj.weight", [intermediate, hidden])
        b.have(s + "mlp.up_proj.weight", [intermediate, hidden])
        b.have(s + "mlp.down_proj.weight", [hidden, intermediate])
        b.have(s + "input_layernorm.weight", [hidden])
        b.have(s + "post_attention_layernorm.weight", [hidden])
        b.want(d + "self_attn.qkv_proj.weight", [hidden, (heads + 2 * kv_heads) * head], 1)
        b.want(d + "self_attn.o_proj.weight", [heads * head, hidden], 0)
        b.want(d + "mlp.up_gate_proj.weight", [hidden, 2 * intermediate], 1)
        b.want(d + "mlp.down_proj.weight", [intermediate, hidden], 0)
        b.want(d + "input_layernorm.weight", [hidden])
        b.want(d + "post_attention_layernorm.weight", [hidden])
    b.have("model.norm.weight", [hidden])
    b.want("llama.norm.weight", [hidden])
    b.have("lm_head.weight", [vocab, hidden])
    b.want("llama.lm_head.weight", [hidden, vocab], 1)
    return b.request()


def moe(layers, dense, experts, hidden=7168, heads=128, q_rank=1536, kv_rank=576, intermediate=18432, expert_width=2048,
        vocab=129280, tp=8, ep=8, rank=3):
    """DeepSeek-V3: latent attention, some dense layers, routed and shared experts, a router with a correction bias."""
    b = Builder(tp, ep, rank)
    p, q = "model.layers.$LAYER_ID.", "deepseek.layers.$LAYER_ID."
    attention = {  # rows, columns as Hugging Face has them; the axis that tensor parallelism cuts, after the transpose
        "q_a_proj": (q_rank, hidden, None),
        "q_b_proj": (heads * 192, q_rank, 1),
        "kv_a_proj_with_mqa": (kv_rank, hidden, None),
        "kv_b_proj": (heads * 256, 512, 1),
        "o_proj": (hidden, heads * 128, 0),
    }
    norms = {"self_attn.q_a_layernorm": q_rank, "self_attn.kv_a_layernorm": 512, "input_layernorm": hidden,
             "post_attention_layernorm": hidden}
    b.statements.append("model.embed_tokens.weight -> deepseek.embed_tokens.weight")
    b.statements += [f"{p}self_attn.{name}.weight^T -> {q}self_attn.{name}.weight" for name in attention]
    b.statements += [f"{p}{name}.weight -> {q}{name}.weight" for name in norms]
    for part in ("mlp.", "mlp.shared_experts."):
        b.statements += [
            f"{p}{part}gate_proj.weight^T, {p}{part}up_proj.weight^T -> {q}{part}up_gate_proj.weight, fused_ffn",
            f"{p}{part}down_proj.weight^T -> {q}{part}down_proj.weight",
        ]
    e = "mlp.experts.$EXPERT_ID."
    b.statements += [
        f"{p}mlp.gate.weight^T -> {q}mlp.gate.weight",
        f"{p}mlp.gate.e_score_correction_bias -> {q}mlp.gate.e_score_correction_bias",
        f"{p}{e}gate_proj.weight^T, {p}{e}up_proj.weight^T -> {q}{e}up_gate_proj.weight, axis=1",
        f"{p}{e}down_proj.weight^T -> {q}{e}down_proj.weight",
        "model.norm.weight -> deepseek.norm.weight",
        "lm_head.weight^T -> deepseek.lm_head.weight",
    ]

    def ffn(s, d, width):
        b.have(s + "gate_proj.weight", [width, hidden])
        b.have(s + "up_proj.weight", [width, hidden])
        b.have(s + "down_proj.weight", [hidden, width])
        b.want(d + "up_gate_proj.weight", [hidden, 2 * width], 1)
        b.want(d + "down_proj.weight", [width, hidden], 0)

    b.have("model.embed_tokens.weight", [vocab, hidden])
    b.want("deepseek.embed_tokens.weight", [vocab, hidden], 0)
    for n in range(layers):
        s, d = f"model.layers.{n}.", f"deepseek.layers.{n}."
        for name, (rows, columns, axis) in attention.items():
            b.have(f"{s}self_attn.{name}.weight", [rows, columns])
            b.want(f"{d}self_attn.{name}.weight", [columns, rows], axis)
        for name, size in norms.items():
            b.have(f"{s}{name}.weight", [size])
            b.want(f"{d}{name}.weight", [size])
        if n < dense:
            ffn(s + "mlp.", d + "mlp.", intermediate)
            continue
        b.have(s + "mlp.gate.weight", [experts, hidden])
        b.want(d + "mlp.gate.weight", [hidden, experts])
        b.have(s + "mlp.gate.e_score_correction_bias", [experts])
        b.want(d + "mlp.gate.e_score_correction_bias", [experts])
        ffn(s + "mlp.shared_experts.", d + "mlp.shared_experts.", expert_width)
        for x in range(experts):
            es, ed = f"{s}mlp.experts.{x}.", f"{d}mlp.experts.{x}."
            b.have(es + "gate_proj.weight", [expert_width, hidden])
            b.have(es + "up_proj.weight", [expert_width, hidden])
            b.have(es + "down_proj.weight", [hidden, expert_width])
            b.want_expert(ed + "up_gate_proj.weight", [hidden, 2 * expert_width], x, experts)
            b.want_expert(ed + "down_proj.weight", [expert_width, hidden], x, experts)
    b.have("model.norm.weight", [hidden])
    b.want("deepseek.norm.weight", [hidden])
    b.have("lm_head.weight", [vocab, hidden])
    b.want("deepseek.lm_head.weight", [hidden, vocab], 1)
    return b.request()


def build(model, scale=1.0):
    def layers(n):
        return max(4, round(n * scale))

    if model == "llama-70b":
        return llama(layers(80))
    if model == "deepseek-v3":
        return moe(layers(61), 3, 256)
    if model == "kimi-k2":
        return moe(layers(61), 1, 384, heads=64, vocab=163840)
    raise ValueError(f"no such model: {model}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    json.dump(build(arguments.model, arguments.scale), sys.stdout, separators=(",", ":"))
