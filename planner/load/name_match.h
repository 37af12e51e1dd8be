// Finds the stored tensor for each tensor of a target, by names, by aliases of both sides, and by aliases within the
// names of optimizer states.
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
  // By tensor of the target: the tensor of the checkpoint that it equals, or kNone.
  std::vector<uint32_t> source_of;
  // Set by MapNames only: the axis maps of the target tensors that equal no stored tensor.
  std::vector<AxisMap> links;
  std::vector<std::string> missing;  // sorted; tensors and objects
  // Sorted; tensors, and objects that lie in a dict with tensors.
  std::vector<std::string> unexpected;
};

// A wanted name means the first of these that exists: 1. the stored tensor of that name; 2. the tensor of the
// checkpoint's alias of that name; 3. a stored tensor whose name the target declares as an alias of the wanted name; 4.
// the same with an alias replaced within the name, between dots or slashes, so that optimizer states follow tied
// weights ("optimizer.head.exp_avg" if head is an alias of embed). A stored tensor whose name is an alias of the target
// is not unexpected. Adds SHAPE_MISMATCH and DTYPE_MISMATCH; the message has the shards of both sides, and such tensors
// match nothing.
NameMatch MatchNames(const Manifest& source, const LayoutSet& targets, FaultList& faults);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_NAME_MATCH_H_
