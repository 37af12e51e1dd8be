// Checks the metrics of a save that somebody reports, before they become part of a manifest.
#ifndef CAIRN_COMMON_RPC_REPORTED_METRICS_H_
#define CAIRN_COMMON_RPC_REPORTED_METRICS_H_

#include "absl/status/status.h"
#include "cairn/v1/checkpoint_service.pb.h"

namespace cairn {

// INVALID_ARGUMENT (BAD_REQUEST): there are more than kMaxMetrics, one name is none (IsMetricName), or a name is used
// twice.
absl::Status CheckMetrics(const google::protobuf::RepeatedPtrField<v1::Metric>& metrics);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_REPORTED_METRICS_H_
