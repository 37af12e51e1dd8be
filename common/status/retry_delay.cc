#include "common/status/retry_delay.h"

#include <algorithm>
#include <string>

#include "absl/strings/cord.h"
#include "common/base/time_proto.h"
#include "google/rpc/error_details.pb.h"

namespace cairn {
namespace {

constexpr char kPayloadUrl[] = "type.googleapis.com/google.rpc.RetryInfo";

}  // namespace

absl::Status WithRetryDelay(absl::Status error, absl::Duration delay) {
  if (error.ok()) return error;
  google::rpc::RetryInfo info;
  SetDuration(std::max(delay, absl::ZeroDuration()), *info.mutable_retry_delay());
  error.SetPayload(kPayloadUrl, absl::Cord(info.SerializeAsString()));
  return error;
}

std::optional<absl::Duration> RetryDelayOf(const absl::Status& error) {
  const auto payload = error.GetPayload(kPayloadUrl);
  google::rpc::RetryInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload)) || !info.has_retry_delay()) {
    return std::nullopt;
  }
  return std::max(DurationOf(info.retry_delay()), absl::ZeroDuration());
}

}  // namespace cairn
