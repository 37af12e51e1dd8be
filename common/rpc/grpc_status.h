// Converts between absl::Status and grpc::Status. The codes are equal. The reason is in the details
// (grpc-status-details-bin).
#ifndef CAIRN_COMMON_RPC_GRPC_STATUS_H_
#define CAIRN_COMMON_RPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace cairn {

grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_GRPC_STATUS_H_
