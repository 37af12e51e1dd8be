// What this agent's rank declared, taken apart once and then shared.
#ifndef CAIRN_AGENT_SESSION_RANK_LAYOUT_H_
#define CAIRN_AGENT_SESSION_RANK_LAYOUT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/stored_item.h"

namespace cairn {

// Immutable. Items are numbered as in WritePlan: shards first, then objects.
struct RankLayout {
  std::string digest;
  // The serialized cairn.v1.Layout: forwarded as it came, never serialized anew.
  std::string bytes;
  std::vector<StoredItem> items;
  size_t shard_count = 0;

  size_t object_count() const { return items.size() - shard_count; }
};

using RankLayoutPtr = std::shared_ptr<const RankLayout>;

// Largest layout that is taken.
inline constexpr size_t kMaxLayoutBytes = size_t{64} << 20;

// Takes a layout apart. Only what this agent itself relies on is checked (columns of equal length, positions and sizes
// that do not overflow, shards inside their tensors); the coordinator validates the whole job.
// INVALID_ARGUMENT (BAD_REQUEST): no layout, or not the bytes of `digest`; (BAD_DTYPE, BAD_SHAPE, SHAPE_OVERFLOW,
// SHARD_OUT_OF_BOUNDS, BAD_NAME): the first such fault. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE).
absl::StatusOr<RankLayoutPtr> ParseRankLayout(std::string_view digest, std::string bytes, uint32_t rank);

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_LAYOUT_H_
