// Plans a directory that Megatron-core's dist_checkpointing reads ("torch_dist").
//
// Format: megatron/core/dist_checkpointing of Megatron-core 0.12 to 0.16: a directory of torch.distributed.checkpoint;
// a file with the values that are no tensors and the same on all ranks (common.pt); and a file that names the format
// (metadata.json).
#ifndef CAIRN_FOREIGN_WRITE_MEGATRON_MEGATRON_PLAN_H_
#define CAIRN_FOREIGN_WRITE_MEGATRON_MEGATRON_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "foreign/write/dcp/dcp_plan.h"
#include "foreign/write/torch/exported_values.h"

namespace cairn {

struct MegatronExportPlan {
  DcpExportPlan dcp;
  // The common values that are left out, because only the code of their class could build them: key and type, such as
  // "args (argparse.Namespace)".
  std::vector<std::string> left_out;
};

// Makes the plan from its arguments alone. A value named KEY/shard_INDEX_OF is a ShardedObject; it is a list with one
// value, as Megatron stores it. The dict named common.pt becomes the file common.pt, and every other value becomes an
// entry of that file. Fails as MakeDcpExportPlan and CheckNoneIsOpaque do. INVALID_ARGUMENT (NAME_COLLISION): a value
// has the name of an entry of common.pt.
absl::StatusOr<MegatronExportPlan> MakeMegatronExportPlan(const Manifest& manifest, const ExportOptions& options,
                                                          std::vector<ExportedValue> values);

// Returns true for the name of a ShardedObject's shard: "decoder.extra/shard_0_1", or "rng/shard_0.1_2.4" with an index
// and a size for each axis.
bool IsShardedObjectName(std::string_view name);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_MEGATRON_MEGATRON_PLAN_H_
