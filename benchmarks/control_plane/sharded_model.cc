#include "benchmarks/control_plane/sharded_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/layout/layout_description.h"

namespace cairn {
namespace {

constexpr int64_t kColumns = 1024;
// Each rank that saves has so many rows; a load with other ranks cuts bands between them.
constexpr int64_t kRowsPerRank = 4;
constexpr uint64_t kSlotBytes = 4096;
constexpr const char* kStates[] = {"model", "optimizer.exp_avg", "optimizer.exp_avg_sq"};
constexpr const char* kModules[] = {"self_attn.qkv", "self_attn.o_proj", "mlp.gate_up", "mlp.down_proj"};

}  // namespace

std::string LayoutOf(const ShardedModel& model, int rank, int world_size) {
  LayoutDescription layout;
  for (int i = 0; i < model.tensors; ++i) {
    const int64_t rows = kRowsPerRank * model.width * (1 + i % 4);
    const int64_t begin = rows * rank / world_size;
    const int64_t end = rows * (rank + 1) / world_size;
    if (begin == end) continue;
    TensorDescription tensor;
    tensor.name = absl::StrCat(kStates[i % 3], ".layers.", i / 12, ".", kModules[i / 3 % 4], ".weight");
    tensor.dtype = DType::kBfloat16;
    tensor.global_shape = {rows, kColumns};
    tensor.shards.push_back({Box{{begin, 0}, {end - begin, kColumns}}, std::nullopt});
    layout.tensors.push_back(std::move(tensor));
  }
  layout.objects.push_back({"meta", kSlotBytes, /*per_rank=*/false});
  layout.objects.push_back({"rng", kSlotBytes, /*per_rank=*/true});
  Canonicalize(layout);
  return SerializeLayout(layout);
}

}  // namespace cairn
