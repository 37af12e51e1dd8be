// Plans a directory that Paddle's FlexCheckpoint reads: whole tensors in files of paddle.save, and the metadata.
//
// Format: paddle/distributed/flex_checkpoint/dcp/{metadata,save_state_dict}.py and paddle/framework/io.py of
// Paddle 3.3.
#ifndef CAIRN_FOREIGN_WRITE_PADDLE_PADDLE_PLAN_H_
#define CAIRN_FOREIGN_WRITE_PADDLE_PADDLE_PLAN_H_

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "foreign/write/export_plan.h"

namespace cairn {

// Makes the plan from its arguments alone: files "0_0.distcp", "1_0.distcp" ... and, as the index, "0.metadata". Fails
// as DealOut.
absl::StatusOr<ExportPlan> MakePaddleExportPlan(const Manifest& manifest, const ExportOptions& options);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_PADDLE_PADDLE_PLAN_H_
