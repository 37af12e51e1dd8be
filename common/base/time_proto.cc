#include "common/base/time_proto.h"

#include <cstdint>

namespace cairn {
namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;

}  // namespace

void SetTimestamp(absl::Time from, google::protobuf::Timestamp& to) {
  int64_t seconds = absl::ToUnixNanos(from) / kNanosPerSecond;
  int64_t nanos = absl::ToUnixNanos(from) % kNanosPerSecond;
  if (nanos < 0) {  // a timestamp's nanoseconds count forward, also before 1970
    --seconds;
    nanos += kNanosPerSecond;
  }
  to.set_seconds(seconds);
  to.set_nanos(static_cast<int32_t>(nanos));
}

void SetDuration(absl::Duration from, google::protobuf::Duration& to) {
  const int64_t nanos = absl::ToInt64Nanoseconds(from);
  to.set_seconds(nanos / kNanosPerSecond);
  to.set_nanos(static_cast<int32_t>(nanos % kNanosPerSecond));
}

absl::Time TimeOf(const google::protobuf::Timestamp& from) {
  return absl::FromUnixSeconds(from.seconds()) + absl::Nanoseconds(from.nanos());
}

absl::Duration DurationOf(const google::protobuf::Duration& from) {
  return absl::Seconds(from.seconds()) + absl::Nanoseconds(from.nanos());
}

}  // namespace cairn
