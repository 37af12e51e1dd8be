// Converts between absl::Status and google.rpc.Status; both carry the reason.
#ifndef CAIRN_COMMON_STATUS_STATUS_PROTO_H_
#define CAIRN_COMMON_STATUS_STATUS_PROTO_H_

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace cairn {

// An OK status gives an empty message.
google::rpc::Status StatusToProto(const absl::Status& status);
// An unknown code becomes UNKNOWN. Details other than ErrorInfo and RetryInfo are dropped.
absl::Status StatusFromProto(const google::rpc::Status& proto);

}  // namespace cairn

#endif  // CAIRN_COMMON_STATUS_STATUS_PROTO_H_
