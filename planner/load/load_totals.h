// The bytes that a load reads and exchanges in total.
#ifndef CAIRN_PLANNER_LOAD_LOAD_TOTALS_H_
#define CAIRN_PLANNER_LOAD_LOAD_TOTALS_H_

#include <cstdint>
#include <vector>

namespace cairn {

struct LoadTotals {
  struct RankFile {
    int rank = 0;
    uint32_t file = 0;  // index into Manifest::files
    uint64_t bytes = 0;
  };
  // The bytes that rank `to` copies from the read buffers of rank `from`.
  struct RankPair {
    int from = 0;
    int to = 0;
    uint64_t bytes = 0;
  };
  std::vector<RankFile> reads;   // ordered by (rank, file)
  std::vector<RankPair> copies;  // ordered by (from, to), where from != to
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_LOAD_TOTALS_H_
