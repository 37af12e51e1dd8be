// Computes the bytes that each shard takes in a bin's header. It does not build the item or its name, because there may
// be millions of shards.
#ifndef CAIRN_PLANNER_SAVE_HEADER_LENGTHS_H_
#define CAIRN_PLANNER_SAVE_HEADER_LENGTHS_H_

#include <cstdint>
#include <vector>

#include "planner/layout/layout_set.h"

namespace cairn {

// Thread-safe. The set must outlive it.
class HeaderLengths {
 public:
  explicit HeaderLengths(const LayoutSet& set);

  // Returns the number of bytes that HeaderSizer::Add(set.ItemOf(shard)) adds to inner_bytes().
  uint64_t Of(uint32_t shard) const;

 private:
  struct OfTensor {
    uint64_t name;     // bytes
    uint64_t escapes;  // quotes and backslashes among them
    uint64_t fixed;    // bytes that every shard of the tensor takes
  };

  const LayoutSet& set_;
  std::vector<OfTensor> tensors_;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_HEADER_LENGTHS_H_
