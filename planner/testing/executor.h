// Executes write and read plans on memory, from their serialized bytes, and checks every promise of plan.proto.
#ifndef CAIRN_PLANNER_TESTING_EXECUTOR_H_
#define CAIRN_PLANNER_TESTING_EXECUTOR_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "planner/layout/layout_description.h"
#include "planner/load/load_plan.h"
#include "planner/save/save_plan.h"

namespace cairn::testing {

using Bytes = std::vector<std::byte>;

// One rank: its layout and the memory of its shards in the layout's order, then of its objects (true length).
struct RankMemory {
  LayoutDescription layout;
  std::string serialized;
  std::string digest;
  std::vector<Bytes> shards;
  std::map<std::string, Bytes> objects;
};

// Ranks that hold what is right by `contents` (whole tensors by name), each object with a text of its own; without
// `fill`, other bytes and no objects, as before a load.
std::vector<RankMemory> MakeRanks(const std::map<std::string, Bytes>& contents,
                                  const std::vector<LayoutDescription>& layouts, bool fill);

struct Storage {
  std::map<std::string, Bytes> files;  // by path below the job's directory
};

std::vector<RankInput> InputsOf(const std::vector<RankMemory>& ranks);

// Writes all bins; `storage` gets the files of step 7, attempt 1. `mutate` may spoil a rank's plan bytes (planted
// faults). An empty text, or what was wrong.
std::string ExecuteSave(const SavePlan& plan, const std::vector<RankMemory>& ranks, Storage& storage,
                        std::vector<RankResult>& results,
                        const std::function<void(int rank, std::string& part)>& mutate = nullptr);

// Runs all ranks' rounds and copies into `targets`' shards. Checks alignment, pages, rounds and consumers, that each
// byte is read once and only needed bytes, block borders, and the totals.
std::string ExecuteLoad(const LoadPlan& plan, const Manifest& manifest, const Storage& storage, uint64_t round_bytes,
                        std::vector<RankMemory>& targets,
                        const std::function<void(int rank, std::string& part)>& mutate = nullptr);

}  // namespace cairn::testing

#endif  // CAIRN_PLANNER_TESTING_EXECUTOR_H_
