// Finds which tensor of a checkpoint a target's name means, by names, aliases on both sides, and states that follow an
// alias.
#ifndef CAIRN_PLANNER_LOAD_NAME_MATCH_H_
#define CAIRN_PLANNER_LOAD_NAME_MATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/format/manifest.h"
#include "common/status/fault.h"
#include "planner/layout/layout_set.h"
#include "planner/load/axis_map.h"

namespace cairn {

struct NameMatch {
  static constexpr uint32_t kNone = UINT32_MAX;
  // Each tensor of the target equals this tensor of the checkpoint, or kNone.
  std::vector<uint32_t> source_of;
  // A mapping fills this: the boxes that become parts of those targets that equal no stored tensor.
  std::vector<AxisMap> links;
  std::vector<std::string> missing;  // sorted; tensors and objects
  // Sorted; tensors, and objects in dicts with tensors.
  std::vector<std::string> unexpected;
};

// A wanted name means the first of these that exists: the stored tensor of that name; the tensor that the checkpoint's
// alias of that name stands for; by name, the stored tensor of one of the target's aliases for it; and the same with an
// alias exchanged inside the name, between dots or slashes ("optimizer.head.exp_avg" where head is an alias of embed),
// so that optimizer states follow tied weights. A stored tensor that only an alias of the target asks for is not
// unexpected. Adds SHAPE_MISMATCH and DTYPE_MISMATCH, with the strategies of both sides in the message; such tensors
// match none.
NameMatch MatchNames(const Manifest& source, const LayoutSet& targets, FaultList& faults);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_NAME_MATCH_H_
