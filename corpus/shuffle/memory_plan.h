// Decides how a shuffle divides its memory, by the budget and what is known about the input. The plan changes only the
// speed, never the output.
#ifndef CAIRN_CORPUS_SHUFFLE_MEMORY_PLAN_H_
#define CAIRN_CORPUS_SHUFFLE_MEMORY_PLAN_H_

#include <cstddef>
#include <cstdint>

namespace cairn::corpus {

inline constexpr size_t kMinShuffleMemory = size_t{32} << 20;

struct MemoryPlanInput {
  size_t region_bytes = 0;  // the memory to divide, at least 8 MiB
  int threads = 1;
  uint64_t text_bytes = 0;  // estimated size of all inputs, decompressed
  uint64_t line_bytes = 0;  // estimated mean length of a line, at least 1
};

struct MemoryPlan {
  int readers = 1;          // threads that read and scatter
  size_t read_block = 0;    // bytes of each of a reader's two input blocks
  size_t writer_bytes = 0;  // a reader's memory for buckets
  size_t block_bytes = 0;   // one block of a bucket
  uint32_t buckets = 1;
  int sorters = 2;  // threads that load and sort; each has sorter_bytes
  size_t sorter_bytes = 0;
  bool fits = false;  // everything fits in memory at once, so no temporary disk is needed
};

// In memory a line costs its length and about this much for its record and its entry in the sort.
inline constexpr uint64_t kLineOverhead = 24;

// The plan keeps these invariants: readers * (2 * read_block + writer_bytes) <= region; sorters * sorter_bytes <=
// region; (buckets + 2) * block_bytes <= writer_bytes, and <= sorter_bytes for two buckets; all sizes are multiples of
// 4 KiB.
MemoryPlan PlanMemory(const MemoryPlanInput& input);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_MEMORY_PLAN_H_
