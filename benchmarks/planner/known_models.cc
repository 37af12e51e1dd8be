#include "benchmarks/planner/known_models.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

struct Parameter {
  std::string name;
  Shape shape;
  Box box;  // of this rank
};

Parameter Cut(std::string name, Shape shape, int axis, int64_t part, int64_t parts) {
  Parameter parameter{std::move(name), shape, WholeBox(shape)};
  if (axis >= 0) {
    const auto a = static_cast<size_t>(axis);
    const int64_t step = shape[a] / parts;
    parameter.box.offset[a] = step * part;
    parameter.box.shape[a] = step;
  }
  return parameter;
}

// Parameters in bfloat16 on every rank of their data-parallel group, and this rank's part of the group's buffers of
// states: the parameters one after the other, cut evenly without regard to their borders.
void Add(const std::vector<Parameter>& parameters, int64_t part, int64_t parts, LayoutDescription& layout) {
  int64_t size = 0;
  for (const Parameter& parameter : parameters) {
    layout.tensors.push_back({parameter.name, DType::kBfloat16, parameter.shape, {{parameter.box, std::nullopt}}});
    size += parameter.box.size();
  }
  const int64_t step = ((size + parts - 1) / parts + 127) / 128 * 128;  // padded, as Megatron does
  const int64_t first = step * part, last = first + step;
  int64_t begin = 0;
  for (const Parameter& parameter : parameters) {
    const int64_t end = begin + parameter.box.size();
    const FlatRange range{std::max(first, begin) - begin, std::min(last, end) - begin};
    if (range.begin < range.end) {
      for (const char* state : {"exp_avg", "exp_avg_sq", "fp32_param"}) {
        layout.tensors.push_back({absl::StrCat("optimizer.", state, ".", parameter.name),
                                  DType::kFloat32,
                                  parameter.shape,
                                  {{parameter.box, range}}});
      }
    }
    begin = end;
  }
}

void Finish(LayoutDescription& layout) {
  layout.objects.push_back({"scheduler", 4096, false});
  layout.objects.push_back({"rng", 8192, true});
  Canonicalize(layout);
}

}  // namespace

std::vector<LayoutDescription> Llama405B(int64_t data_parallel) {
  constexpr int64_t kTp = 8, kPp = 16, kHidden = 16384, kFfn = 53248, kHeads = 128, kKv = 8, kHeadDim = 128;
  constexpr int64_t kVocab = 128256;
  std::vector<LayoutDescription> layouts;
  for (int64_t p = 0; p < kPp; ++p) {
    // 126 layers: 7 on the first and on the last stage, 8 on the others.
    const int64_t begin = p == 0 ? 0 : 8 * p - 1, end = std::min<int64_t>(126, 8 * p + 7);
    for (int64_t d = 0; d < data_parallel; ++d) {
      for (int64_t t = 0; t < kTp; ++t) {
        std::vector<Parameter> parameters;
        if (p == 0) parameters.push_back(Cut("model.embed_tokens.weight", {kVocab, kHidden}, 0, t, kTp));
        for (int64_t layer = begin; layer < end; ++layer) {
          const std::string prefix = absl::StrCat("model.layers.", layer, ".");
          const auto add = [&](const char* name, Shape shape, int axis) {
            parameters.push_back(Cut(prefix + name, std::move(shape), axis, t, kTp));
          };
          add("input_layernorm.weight", {kHidden}, -1);
          add("self_attn.qkv.weight", {(kHeads + 2 * kKv) * kHeadDim, kHidden}, 0);
          add("self_attn.o_proj.weight", {kHidden, kHeads * kHeadDim}, 1);
          add("post_attention_layernorm.weight", {kHidden}, -1);
          add("mlp.gate_up.weight", {2 * kFfn, kHidden}, 0);
          add("mlp.down_proj.weight", {kHidden, kFfn}, 1);
        }
        if (p == kPp - 1) {
          parameters.push_back(Cut("model.norm.weight", {kHidden}, -1, t, kTp));
          parameters.push_back(Cut("lm_head.weight", {kVocab, kHidden}, 0, t, kTp));
        }
        // Parameters that tensor parallelism does not cut lie at the same places of all buffers of the group: the first
        // keeps them.
        std::vector<Parameter> own;
        LayoutDescription& layout = layouts.emplace_back();
        for (Parameter& parameter : parameters) {
          if (t > 0 && parameter.box == WholeBox(parameter.shape)) {
            layout.tensors.push_back(
                {parameter.name, DType::kBfloat16, parameter.shape, {{parameter.box, std::nullopt}}});
          } else {
            own.push_back(std::move(parameter));
          }
        }
        Add(own, d, data_parallel, layout);
        Finish(layout);
      }
    }
  }
  return layouts;
}

std::vector<LayoutDescription> DeepSeekV3(int64_t data_parallel) {
  constexpr int64_t kPp = 16, kEp = 64, kLayers = 61, kDense = 3, kHidden = 7168, kFfn = 18432, kExpertFfn = 2048;
  constexpr int64_t kExperts = 256, kHeads = 128, kQLora = 1536, kKvLora = 512, kNope = 128, kRope = 64, kValue = 128;
  constexpr int64_t kVocab = 129280;
  std::vector<LayoutDescription> layouts;
  for (int64_t p = 0; p < kPp; ++p) {
    const int64_t begin = kLayers * p / kPp, end = kLayers * (p + 1) / kPp;
    std::vector<Parameter> shared;
    const auto add = [&](std::string name, Shape shape) { shared.push_back(Cut(std::move(name), shape, -1, 0, 1)); };
    if (p == 0) add("model.embed_tokens.weight", {kVocab, kHidden});
    for (int64_t layer = begin; layer < end; ++layer) {
      const std::string prefix = absl::StrCat("model.layers.", layer, ".");
      add(prefix + "input_layernorm.weight", {kHidden});
      add(prefix + "self_attn.q_a_proj.weight", {kQLora, kHidden});
      add(prefix + "self_attn.q_b_proj.weight", {kHeads * (kNope + kRope), kQLora});
      add(prefix + "self_attn.kv_a_proj.weight", {kKvLora + kRope, kHidden});
      add(prefix + "self_attn.kv_b_proj.weight", {kHeads * (kNope + kValue), kKvLora});
      add(prefix + "self_attn.o_proj.weight", {kHidden, kHeads * kValue});
      add(prefix + "post_attention_layernorm.weight", {kHidden});
      if (layer < kDense) {
        add(prefix + "mlp.gate_up.weight", {2 * kFfn, kHidden});
        add(prefix + "mlp.down_proj.weight", {kHidden, kFfn});
      } else {
        add(prefix + "mlp.gate.weight", {kExperts, kHidden});
        add(prefix + "mlp.shared_expert.gate_up.weight", {2 * kExpertFfn, kHidden});
        add(prefix + "mlp.shared_expert.down_proj.weight", {kHidden, kExpertFfn});
      }
    }
    if (p == kPp - 1) {
      add("model.norm.weight", {kHidden});
      add("lm_head.weight", {kVocab, kHidden});
    }
    for (int64_t d = 0; d < data_parallel; ++d) {
      for (int64_t e = 0; e < kEp; ++e) {
        std::vector<Parameter> experts;
        for (int64_t layer = std::max(begin, kDense); layer < end; ++layer) {
          for (int64_t i = 0; i < kExperts / kEp; ++i) {
            const std::string prefix =
                absl::StrCat("model.layers.", layer, ".mlp.experts.", e * (kExperts / kEp) + i, ".");
            experts.push_back(Cut(prefix + "gate_up.weight", {2 * kExpertFfn, kHidden}, -1, 0, 1));
            experts.push_back(Cut(prefix + "down_proj.weight", {kHidden, kExpertFfn}, -1, 0, 1));
          }
        }
        LayoutDescription& layout = layouts.emplace_back();
        Add(shared, d * kEp + e, kEp * data_parallel, layout);
        Add(experts, d, data_parallel, layout);
        Finish(layout);
      }
    }
  }
  return layouts;
}

}  // namespace cairn
