// Makes the answer of PlanReshard: what a reshard or a load would move, without moving it.
#ifndef CAIRN_COORDINATOR_SERVER_RESHARD_PREVIEW_H_
#define CAIRN_COORDINATOR_SERVER_RESHARD_PREVIEW_H_

#include "absl/status/statusor.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "common/format/manifest.h"

namespace cairn {

// `checkpoint` is the source if the request brings none; else null. Pure; costs what planning costs.
// INVALID_ARGUMENT (BAD_REQUEST): no target, or a rank twice. Faults of the layouts stand in the answer.
absl::StatusOr<v1::PlanReshardResponse> PreviewReshard(const v1::PlanReshardRequest& request,
                                                       const Manifest* checkpoint);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_RESHARD_PREVIEW_H_
