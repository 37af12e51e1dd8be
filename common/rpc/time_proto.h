// Times and durations as they go over the wire.
#ifndef CAIRN_COMMON_RPC_TIME_PROTO_H_
#define CAIRN_COMMON_RPC_TIME_PROTO_H_

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace cairn {

inline void SetTimestamp(absl::Time from, google::protobuf::Timestamp& to) {
  const int64_t nanos = absl::ToUnixNanos(from);
  to.set_seconds(nanos / 1'000'000'000);
  to.set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
}

inline void SetDuration(absl::Duration from, google::protobuf::Duration& to) {
  const int64_t nanos = absl::ToInt64Nanoseconds(from);
  to.set_seconds(nanos / 1'000'000'000);
  to.set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
}

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TIME_PROTO_H_
