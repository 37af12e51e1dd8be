#include "planner/layout/layout_set.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace cairn {

void LayoutSet::SortShards() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  holder_begin_.assign(shards_.size() + 1, 0);
  for (uint32_t shard : items_) {
    if (shard < kInvalidShard) ++holder_begin_[shard + 1];
  }
  std::partial_sum(holder_begin_.begin(), holder_begin_.end(), holder_begin_.begin());
  holders_.resize(holder_begin_.back());
  {
    std::vector<size_t> next(holder_begin_.begin(), holder_begin_.end() - 1);
    for (uint32_t i = 0; i < layouts_.size(); ++i) {
      for (uint32_t shard : ItemsOf(layouts_[i])) {
        if (shard < kInvalidShard) holders_[next[shard]++] = i;
      }
    }
  }
  tensor_begin_.assign(tensors_.size() + 1, 0);
  for (const Shard& shard : shards_) ++tensor_begin_[shard.tensor + 1];
  std::partial_sum(tensor_begin_.begin(), tensor_begin_.end(), tensor_begin_.begin());
  by_tensor_.resize(shards_.size());
  {
    std::vector<uint32_t> next(tensor_begin_.begin(), tensor_begin_.end() - 1);
    for (uint32_t shard = 0; shard < shards_.size(); ++shard) by_tensor_[next[shards_[shard].tensor]++] = shard;
  }
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    const size_t ndim = tensors_[tensor].global_shape.size();
    const auto before = [&](uint32_t a, uint32_t b) {
      const int64_t* x = DimsOf(a);
      const int64_t* y = DimsOf(b);
      for (size_t i = 0; i < 2 * ndim; ++i) {
        if (x[i] != y[i]) return x[i] < y[i];
      }
      const bool x_flat = IsFlat(a), y_flat = IsFlat(b);
      if (!x_flat || !y_flat) return x_flat < y_flat;
      return std::pair(x[2 * ndim], x[2 * ndim + 1]) < std::pair(y[2 * ndim], y[2 * ndim + 1]);
    };
    const auto begin = by_tensor_.begin() + tensor_begin_[tensor];
    const auto end = by_tensor_.begin() + tensor_begin_[tensor + 1];
    if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
  }
}

std::optional<uint32_t> LayoutSet::FindTensor(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](uint32_t tensor, std::string_view n) { return tensors_[tensor].name < n; });
  if (found == by_name_.end() || tensors_[*found].name != name) return std::nullopt;
  return *found;
}

Box LayoutSet::BoxOf(uint32_t shard) const {
  const size_t ndim = NdimOf(shard);
  const int64_t* dims = DimsOf(shard);
  return {Shape(dims, dims + ndim), Shape(dims + ndim, dims + 2 * ndim)};
}

std::optional<FlatRange> LayoutSet::FlatRangeOf(uint32_t shard) const {
  if (!IsFlat(shard)) return std::nullopt;
  const int64_t* range = DimsOf(shard) + 2 * NdimOf(shard);
  return FlatRange{range[0], range[1]};
}

StoredItem LayoutSet::ItemOf(uint32_t shard) const {
  const Tensor& tensor = tensors_[TensorOf(shard)];
  return {tensor.name, tensor.dtype, tensor.global_shape, BoxOf(shard), FlatRangeOf(shard), false, std::nullopt};
}

std::string LayoutSet::Describe(uint32_t shard) const {
  std::string text = absl::StrCat(tensors_[TensorOf(shard)].name, " ", ToString(BoxOf(shard)));
  if (const auto range = FlatRangeOf(shard)) absl::StrAppend(&text, " flat [", range->begin, ", ", range->end, ")");
  return text;
}

std::vector<int> LayoutSet::RanksOf(std::span<const uint32_t> shards) const {
  std::set<uint32_t> holders;
  for (uint32_t shard : shards) {
    const auto layouts = HoldersOf(shard);
    holders.insert(layouts.begin(), layouts.end());
  }
  std::vector<int> ranks;
  for (uint32_t layout : holders) {
    for (int index : layouts_[layout].rank_indices) ranks.push_back(ranks_[static_cast<size_t>(index)]);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> LayoutSet::RanksOfSchema(uint32_t schema) const {
  std::vector<int> ranks;
  for (const Layout& layout : layouts_) {
    if (layout.schema != schema) continue;
    for (int index : layout.rank_indices) ranks.push_back(ranks_[static_cast<size_t>(index)]);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace cairn
