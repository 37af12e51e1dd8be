// Hand-made layouts and plans for tests of the agent.
#ifndef CAIRN_AGENT_TESTING_LAYOUTS_H_
#define CAIRN_AGENT_TESTING_LAYOUTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "agent/session/rank_layout.h"
#include "cairn/v1/plan.pb.h"
#include "common/format/stored_item.h"

namespace cairn::testing {

// The serialized layout of these shards and objects; they must stand in canonical order.
std::string SerializeLayout(const std::vector<StoredItem>& shards, const std::vector<StoredItem>& objects);

// Parsed; dies on an error.
RankLayoutPtr MakeLayout(const std::vector<StoredItem>& shards, const std::vector<StoredItem>& objects,
                         uint32_t rank = 0);

StoredItem Tensor(std::string name, DType dtype, Shape global_shape, Shape offset, Shape shape);
StoredItem Whole(std::string name, DType dtype, Shape shape);
StoredItem Object(std::string name, int64_t slot_bytes);

// A plan that writes `files[k]` (items by number) as rank R's bin k.
v1::WritePlan MakeWritePlan(const RankLayout& layout, uint32_t rank, const std::vector<std::vector<uint32_t>>& files,
                            const std::string& plan_digest);

// A shard that moves in from another rank, as MakeWritePlan takes it.
struct MovedInShard {
  uint32_t from_rank = 0;
  uint32_t from_shard = 0;
  StoredItem item;
};

// The same with shards that move: in `files`, moved[k] is the item behind the layout's own; `out` are pairs of a shard
// of the layout and the rank that writes it.
v1::WritePlan MakeMovingPlan(const RankLayout& layout, uint32_t rank, const std::vector<std::vector<uint32_t>>& files,
                             const std::string& plan_digest, const std::vector<MovedInShard>& moved,
                             const std::vector<std::pair<uint32_t, uint32_t>>& out);

// Computes CRC32C bit by bit, from its definition and independently of common/base/crc32c.
uint32_t SlowCrc32c(const std::string& bytes);

// Bytes that depend on the name and the position.
std::string Pattern(const std::string& name, uint64_t bytes);

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TESTING_LAYOUTS_H_
