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

// One rank: its layout, and the memory of its shards in the layout's order, then of its objects (true length).
struct RankMemory {
  LayoutDescription layout;
  std::string serialized;
  std::string digest;
  std::vector<Bytes> shards;
  std::map<std::string, Bytes> objects;
};

// Makes ranks that hold the right bytes by `contents` (whole tensors by name), and objects with texts of their own.
// Without `fill` they hold other bytes and no objects, as before a load.
std::vector<RankMemory> MakeRanks(const std::map<std::string, Bytes>& contents,
                                  const std::vector<LayoutDescription>& layouts, bool fill);

struct Storage {
  std::map<std::string, Bytes> files;  // by path below the job's directory
};

std::vector<RankInput> InputsOf(const std::vector<RankMemory>& ranks);

// Writes all bins; `storage` gets the files of step 7, attempt 1. `mutate` may spoil a rank's plan bytes (planted
// faults). Returns an empty text, or what was wrong.
std::string ExecuteSave(const SavePlan& plan, const std::vector<RankMemory>& ranks, Storage& storage,
                        std::vector<RankResult>& results,
                        const std::function<void(int rank, std::string& part)>& mutate = nullptr);

// Executes all ranks' rounds and copies into `targets`' shards. It checks alignment, pages, rounds, consumers, block
// borders and the totals, and that each needed byte is read once and no other byte is read.
std::string ExecuteLoad(const LoadPlan& plan, const Manifest& manifest, const Storage& storage, uint64_t round_bytes,
                        std::vector<RankMemory>& targets,
                        const std::function<void(int rank, std::string& part)>& mutate = nullptr);

}  // namespace cairn::testing

#endif  // CAIRN_PLANNER_TESTING_EXECUTOR_H_
