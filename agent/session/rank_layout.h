// Holds what this agent's rank declared, taken apart once and then shared.
#ifndef CAIRN_AGENT_SESSION_RANK_LAYOUT_H_
#define CAIRN_AGENT_SESSION_RANK_LAYOUT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/safetensors_header.h"
#include "common/format/stored_item.h"

namespace cairn {

// Immutable. Items are numbered as in WritePlan: shards first, then objects.
//
// A layout with a fault is kept and forwarded all the same: the coordinator validates those of all ranks together, and
// then every rank hears of it, not this one alone. Only no image can be made of it.
struct RankLayout {
  std::string digest;
  // The serialized cairn.v1.Layout: forwarded as it came, never serialized anew.
  std::string bytes;
  // Empty if there is a fault.
  std::vector<StoredItem> items;
  size_t shard_count = 0;
  // Second names of tensors, as declared.
  AliasList aliases;
  // The first thing that cannot be: columns that differ in length, sizes that overflow, a shard outside its tensor.
  absl::Status fault;

  size_t object_count() const { return items.size() - shard_count; }
};

using RankLayoutPtr = std::shared_ptr<const RankLayout>;

// Largest layout that is taken.
inline constexpr size_t kMaxLayoutBytes = size_t{64} << 20;

// Takes a layout apart.
// INVALID_ARGUMENT (BAD_REQUEST): these are not the bytes of `digest`. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE).
absl::StatusOr<RankLayoutPtr> ParseRankLayout(std::string_view digest, std::string bytes, uint32_t rank);

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_LAYOUT_H_
