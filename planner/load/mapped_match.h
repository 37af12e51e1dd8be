// Finds, by a mapping, the stored tensors from which a target's tensors are made.
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

// Returns the shards of a checkpoint in the form that the mapping language takes: each distinct box once, and the boxes
// of a tensor also under each of its aliases. `manifest` must outlive them.
std::vector<aoa::ShardDesc> DescribeSources(const Manifest& manifest);

struct MappedMatch {
  NameMatch match;
  std::shared_ptr<const aoa::MappingReport> report;
};

// Runs a mapping from the checkpoint's tensors to the target's. Aliases on either side are treated as names. Optimizer
// states follow their weight. The weight's casts apply to a state only if its dtypes in checkpoint and target differ.
//
// NameMatch::missing gets the target tensors that no statement produces, and optimizer states that the checkpoint
// lacks, unless `_ -> name` keeps them. NameMatch::unexpected gets the stored tensors that no target uses and no `name
// -> _` leaves out. Objects are matched by name.
//
// Adds all of the mapping's own faults (MAPPING_...), and SHAPE_MISMATCH and DTYPE_MISMATCH of states.
MappedMatch MapNames(const Manifest& source, const LayoutSet& targets, const aoa::Config& mapping, FaultList& faults);

// Returns the axis maps that make up one whole tensor of a target; `wanted` is its name, dtype and shape. `stored`
// returns the number of a stored tensor by its name, or NameMatch::kNone. `missing` gets the names of sources that are
// not stored; they have no axis maps. Fails as MappedState::Resolve, and with MAPPING_DTYPE, SHAPE_MISMATCH and
// DTYPE_MISMATCH.
absl::StatusOr<std::vector<AxisMap>> AxisMapsOf(const aoa::MappedState& mapped, const aoa::ShardDesc& wanted,
                                                const Manifest& source,
                                                const std::function<uint32_t(const std::string&)>& stored,
                                                std::vector<std::string>& missing);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_MAPPED_MATCH_H_
