// Finds what the tensors of a target are made of, by a mapping.
#ifndef CAIRN_PLANNER_LOAD_MAPPED_MATCH_H_
#define CAIRN_PLANNER_LOAD_MAPPED_MATCH_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "common/status/fault.h"
#include "mapping/mapping.h"
#include "mapping/report.h"
#include "planner/layout/layout_set.h"
#include "planner/load/name_match.h"

namespace cairn {

// The shards of a checkpoint as the mapping language takes them: each distinct box once, and those of a tensor under
// each of its aliases, too. `manifest` must outlive them.
std::vector<aoa::ShardDesc> DescribeSources(const Manifest& manifest);

struct MappedMatch {
  NameMatch match;
  std::shared_ptr<const aoa::MappingReport> report;
};

// Runs a mapping from the checkpoint's tensors to the target's. Aliases on either side are names like others; states of
// an optimizer follow their weight, and its casts only where the two sides keep them in different dtypes.
//
// missing: target tensors that nothing gives, or whose sources the checkpoint lacks (states), unless `_ -> name` keeps
// them. unexpected: stored tensors that nothing takes and no `name -> _` leaves out. Objects are matched by name.
//
// Adds the mapping's own faults (MAPPING_...), all of them, and SHAPE_MISMATCH, DTYPE_MISMATCH of states.
MappedMatch MapNames(const Manifest& source, const LayoutSet& targets, const aoa::Config& mapping, FaultList& faults);

// The axis maps that make up one tensor of a target, which is `wanted` whole. `stored` answers the number of a stored
// tensor by its name, or NameMatch::kNone. `missing` gets the names of sources that are not stored; then some axis maps
// lack. Errors are those of MappedState::Resolve, MAPPING_DTYPE, SHAPE_MISMATCH and DTYPE_MISMATCH.
absl::StatusOr<std::vector<AxisMap>> AxisMapsOf(const aoa::MappedState& mapped, const aoa::ShardDesc& wanted,
                                                const Manifest& source,
                                                const std::function<uint32_t(const std::string&)>& stored,
                                                std::vector<std::string>& missing);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_MAPPED_MATCH_H_
