// Writes each rank's part of a load plan: the reads of each round, and the copies out of the read buffers.
#ifndef CAIRN_PLANNER_LOAD_READ_PARTS_H_
#define CAIRN_PLANNER_LOAD_READ_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/format/manifest.h"
#include "planner/layout/layout_set.h"
#include "planner/load/load_options.h"
#include "planner/load/load_totals.h"
#include "planner/load/name_match.h"
#include "planner/load/reads.h"

namespace cairn {

struct ReadParts {
  // By rank index: a serialized cairn.v1.ReadPlan without the fields that are the same in all parts.
  std::vector<std::string> own;
  // The fields that are the same in all parts, serialized. A rank's part is `own` followed by `shared`: protobuf merges
  // messages whose bytes are joined.
  std::string shared;
  LoadTotals totals;
};

// `mapping_report` goes into the part of the first rank; empty without a mapping.
ReadParts WriteReadParts(const Manifest& source, const LayoutSet& targets, const NameMatch& match, const Reads& reads,
                         const LoadOptions& options, const std::string& plan_digest, const std::string& mapping_report);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_READ_PARTS_H_
