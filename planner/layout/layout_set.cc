#include "planner/layout/layout_set.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace cairn {

void LayoutSet::SortNames(ShardTable& table) {
  table.by_name.resize(table.tensors.size());
  std::iota(table.by_name.begin(), table.by_name.end(), 0u);
  std::sort(table.by_name.begin(), table.by_name.end(),
            [&](uint32_t a, uint32_t b) { return table.tensors[a].name < table.tensors[b].name; });
}

LayoutSet::Holders LayoutSet::FindHolders() const {
  Holders holders;
  holders.begin.assign(shard_count() + 1, 0);
  for (const Layout& layout : layouts_) {
    for (uint32_t shard : ItemsOf(layout)) {
      if (shard < kInvalidShard) ++holders.begin[shard + 1];
    }
  }
  std::partial_sum(holders.begin.begin(), holders.begin.end(), holders.begin.begin());
  holders.layouts.resize(holders.begin.back());
  std::vector<size_t> next(holders.begin.begin(), holders.begin.end() - 1);
  for (uint32_t i = 0; i < layouts_.size(); ++i) {
    for (uint32_t shard : ItemsOf(layouts_[i])) {
      if (shard >= kInvalidShard) continue;
      const size_t at = next[shard]++;
      holders.layouts[at] = i;
      holders.repeat |= at > holders.begin[shard] && holders.layouts[at - 1] == i;
    }
  }
  return holders;
}

void LayoutSet::SortShards(ShardTable& table) {
  for (uint64_t bytes : table.bytes) table.largest_bytes = std::max(table.largest_bytes, bytes);
  std::vector<uint32_t>& first = table.tensor_begin;
  first.assign(table.tensors.size() + 1, 0);
  for (const Shard& shard : table.shards) ++first[shard.tensor + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  table.by_tensor.resize(table.shards.size());
  {
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (uint32_t shard = 0; shard < table.shards.size(); ++shard) {
      table.by_tensor[next[table.shards[shard].tensor]++] = shard;
    }
  }
  for (size_t tensor = 0; tensor < table.tensors.size(); ++tensor) {
    const size_t ndim = table.tensors[tensor].global_shape.size();
    const auto before = [&](uint32_t a, uint32_t b) {
      const int64_t* x = table.dims.data() + table.shards[a].dims;
      const int64_t* y = table.dims.data() + table.shards[b].dims;
      for (size_t i = 0; i < 2 * ndim; ++i) {
        if (x[i] != y[i]) return x[i] < y[i];
      }
      const bool x_flat = table.shards[a].flat, y_flat = table.shards[b].flat;
      if (!x_flat || !y_flat) return x_flat < y_flat;
      return std::pair(x[2 * ndim], x[2 * ndim + 1]) < std::pair(y[2 * ndim], y[2 * ndim + 1]);
    };
    const auto begin = table.by_tensor.begin() + first[tensor];
    const auto end = table.by_tensor.begin() + first[tensor + 1];
    if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
  }
}

std::optional<uint32_t> LayoutSet::FindTensor(std::string_view name) const {
  const auto found = std::lower_bound(table_->by_name.begin(), table_->by_name.end(), name,
                                      [&](uint32_t tensor, std::string_view n) { return tensors()[tensor].name < n; });
  if (found == table_->by_name.end() || tensors()[*found].name != name) return std::nullopt;
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
  const Tensor& tensor = tensors()[TensorOf(shard)];
  return {tensor.name, tensor.dtype, tensor.global_shape, BoxOf(shard), FlatRangeOf(shard), false, std::nullopt};
}

std::string LayoutSet::Describe(uint32_t shard) const {
  std::string text = absl::StrCat(tensors()[TensorOf(shard)].name, " ", ToString(BoxOf(shard)));
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
