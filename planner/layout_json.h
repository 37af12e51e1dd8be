// Reads a set of layouts from JSON: {"layouts": [{"ranks", "node", "tensors", "objects", "aliases"}]}.
#ifndef CAIRN_PLANNER_LAYOUT_JSON_H_
#define CAIRN_PLANNER_LAYOUT_JSON_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/status/fault.h"
#include "planner/layout/rank_input.h"

namespace cairn {

// Owns the bytes that `inputs` views.
struct LayoutsFromJson {
  std::vector<std::string> layouts;
  std::vector<std::string> digests;
  std::vector<RankInput> inputs;
  // The declared size of each object, by (name, rank). The rank of a shared object is -1.
  std::map<std::pair<std::string, int>, uint64_t> object_bytes;
};

// Reads `set`. Faults go to `faults`. A tensor with a fault is left out everywhere, so that the planner can find the
// faults of the others. A shard needs an offset, unless it is the whole tensor.
LayoutsFromJson ReadLayouts(const nlohmann::json& set, FaultList& faults);

// Returns {"errors": [...]} with all faults that were kept, and the number of all.
nlohmann::ordered_json ErrorsToJson(const FaultList& faults);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LAYOUT_JSON_H_
