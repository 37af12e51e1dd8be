// Counts what a load reads and exchanges in all.
#ifndef CAIRN_PLANNER_LOAD_LOAD_TOTALS_H_
#define CAIRN_PLANNER_LOAD_LOAD_TOTALS_H_

#include <cstdint>
#include <vector>

namespace cairn {

struct LoadTotals {
  // Says how much one rank reads from one file.
  struct RankFile {
    int rank = 0;
    uint32_t file = 0;  // index into Manifest::files
    uint64_t bytes = 0;
  };
  // Says how much one rank takes from the reads of another rank, or from its own.
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
