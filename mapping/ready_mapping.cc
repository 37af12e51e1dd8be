#include "mapping/ready_mapping.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/reason.h"

namespace cairn::aoa {
namespace {

constexpr std::string_view kLlama =
    R"(# Llama, Mistral, Qwen3 (dense): Hugging Face -> fused projections, weights as torch keeps them: [out, in].
# QKV by KV head: its query heads, then its K, then its V. This order does not depend on tensor parallelism.
model.layers.$LAYER_ID.self_attn.q_proj.weight, model.layers.$LAYER_ID.self_attn.k_proj.weight, model.layers.$LAYER_ID.self_attn.v_proj.weight -> model.layers.$LAYER_ID.self_attn.qkv_proj.weight, fused_qkv, axis=0, num_heads=@HEADS@, num_kv_heads=@KV_HEADS@
# Gate first, then up, rank by rank of the fused side.
model.layers.$LAYER_ID.mlp.gate_proj.weight, model.layers.$LAYER_ID.mlp.up_proj.weight -> model.layers.$LAYER_ID.mlp.gate_up_proj.weight, fused_ffn, axis=0
# Everything else has the same name on both sides.
)";

constexpr std::string_view kLlamaTransposed =
    R"(# Llama, Mistral, Qwen3 (dense): Hugging Face -> fused projections, weights transposed to [in, out], as Paddle keeps them.
model.layers.$LAYER_ID.self_attn.q_proj.weight^T, model.layers.$LAYER_ID.self_attn.k_proj.weight^T, model.layers.$LAYER_ID.self_attn.v_proj.weight^T -> model.layers.$LAYER_ID.self_attn.qkv_proj.weight, fused_qkv, num_heads=@HEADS@, num_kv_heads=@KV_HEADS@
model.layers.$LAYER_ID.self_attn.o_proj.weight^T -> model.layers.$LAYER_ID.self_attn.o_proj.weight
# Gate first, then up, rank by rank of the fused side.
model.layers.$LAYER_ID.mlp.gate_proj.weight^T, model.layers.$LAYER_ID.mlp.up_proj.weight^T -> model.layers.$LAYER_ID.mlp.up_gate_proj.weight, fused_ffn
model.layers.$LAYER_ID.mlp.down_proj.weight^T -> model.layers.$LAYER_ID.mlp.down_proj.weight
lm_head.weight^T -> lm_head.weight
# Embedding and norms have the same name on both sides.
)";

constexpr std::string_view kQwenMoe =
    R"(# Qwen3-MoE, Qwen2-MoE without its biases, Mixtral-like experts: Hugging Face -> fused projections, [out, in].
model.layers.$LAYER_ID.self_attn.q_proj.weight, model.layers.$LAYER_ID.self_attn.k_proj.weight, model.layers.$LAYER_ID.self_attn.v_proj.weight -> model.layers.$LAYER_ID.self_attn.qkv_proj.weight, fused_qkv, axis=0, num_heads=@HEADS@, num_kv_heads=@KV_HEADS@
# Every expert stays a tensor of its own, so that expert parallelism can place it; gate first, then up.
model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.gate_proj.weight, model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.up_proj.weight -> model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.gate_up_proj.weight, fused_ffn, axis=0
# Router (mlp.gate), norms, embedding and head have the same name on both sides.
)";

constexpr std::string_view kQwenMoeStacked =
    R"(# Qwen3-MoE with all experts of a layer in one tensor: Hugging Face -> [experts * rows, in], by expert number.
model.layers.$LAYER_ID.self_attn.q_proj.weight, model.layers.$LAYER_ID.self_attn.k_proj.weight, model.layers.$LAYER_ID.self_attn.v_proj.weight -> model.layers.$LAYER_ID.self_attn.qkv_proj.weight, fused_qkv, axis=0, num_heads=@HEADS@, num_kv_heads=@KV_HEADS@
# The star stands for the experts of a layer, in the order of their numbers.
model.layers.$LAYER_ID.mlp.experts.*.gate_proj.weight -> model.layers.$LAYER_ID.mlp.experts.gate_proj.weight, axis=0
model.layers.$LAYER_ID.mlp.experts.*.up_proj.weight -> model.layers.$LAYER_ID.mlp.experts.up_proj.weight, axis=0
model.layers.$LAYER_ID.mlp.experts.*.down_proj.weight -> model.layers.$LAYER_ID.mlp.experts.down_proj.weight, axis=0
)";

constexpr std::string_view kDeepseekV3 =
    R"(# DeepSeek-V3 and R1, Kimi-K2: Hugging Face -> fused projections, weights as torch keeps them: [out, in].
# The two down-projections of latent attention read the same input; their sizes differ, so the way back needs them.
model.layers.$LAYER_ID.self_attn.q_a_proj.weight, model.layers.$LAYER_ID.self_attn.kv_a_proj_with_mqa.weight -> model.layers.$LAYER_ID.self_attn.fused_qkv_a_proj_with_mqa.weight, axis=0, sizes='[@Q_LORA@, @KV_LORA@]'
# Dense layers, shared experts, routed experts: gate first, then up.
model.layers.$LAYER_ID.mlp.gate_proj.weight, model.layers.$LAYER_ID.mlp.up_proj.weight -> model.layers.$LAYER_ID.mlp.gate_up_proj.weight, fused_ffn, axis=0
model.layers.$LAYER_ID.mlp.shared_experts.gate_proj.weight, model.layers.$LAYER_ID.mlp.shared_experts.up_proj.weight -> model.layers.$LAYER_ID.mlp.shared_experts.gate_up_proj.weight, fused_ffn, axis=0
model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.gate_proj.weight, model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.up_proj.weight -> model.layers.$LAYER_ID.mlp.experts.$EXPERT_ID.gate_up_proj.weight, fused_ffn, axis=0
# Router with its correction bias, norms, the other projections, embedding and head have the same name on both sides.
)";

constexpr ReadyMapping kTable[] = {
    {"llama",
     "Llama, Mistral, Qwen3 dense: fused QKV by KV head, fused gate and up; torch layout",
     kLlama,
     {.heads = 32, .kv_heads = 8}},
    {"llama-transposed",
     "the same with weights transposed to [in, out], as Paddle keeps them",
     kLlamaTransposed,
     {.heads = 32, .kv_heads = 8}},
    {"qwen-moe",
     "Qwen3-MoE: fused QKV, fused gate and up of every expert; torch layout",
     kQwenMoe,
     {.heads = 32, .kv_heads = 4}},
    {"qwen-moe-stacked",
     "Qwen3-MoE: fused QKV, the experts of a layer stacked into one tensor",
     kQwenMoeStacked,
     {.heads = 32, .kv_heads = 4}},
    {"deepseek-v3",
     "DeepSeek-V3, R1, Kimi-K2: fused latent attention, fused gate and up; torch layout",
     kDeepseekV3,
     {.q_lora_rank = 1536, .kv_lora_rank = 576}},
};

}  // namespace

std::span<const ReadyMapping> ReadyMappings() { return kTable; }

absl::StatusOr<std::string> ReadyMappingText(std::string_view name, const ModelNumbers& numbers) {
  std::string names;
  for (const ReadyMapping& mapping : kTable) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(mapping.name));
    if (mapping.name != name) continue;
    const auto number = [](std::optional<int64_t> given, std::optional<int64_t> usual) {
      return absl::StrCat(given.value_or(usual.value_or(0)));
    };
    const ModelNumbers& usual = mapping.numbers;
    return absl::StrReplaceAll(std::string(mapping.text),
                               {{"@HEADS@", number(numbers.heads, usual.heads)},
                                {"@KV_HEADS@", number(numbers.kv_heads, usual.kv_heads)},
                                {"@Q_LORA@", number(numbers.q_lora_rank, usual.q_lora_rank)},
                                {"@KV_LORA@", number(numbers.kv_lora_rank, usual.kv_lora_rank)}});
  }
  return MakeError(Reason::kMappingUnknownName,
                   absl::StrCat("there is no ready-made mapping '", std::string(name), "'; there are ", names));
}

std::vector<std::string> StatementsOf(std::string_view text) {
  std::vector<std::string> statements;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!line.empty() && line.front() != '#') statements.emplace_back(line);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return statements;
}

}  // namespace cairn::aoa
