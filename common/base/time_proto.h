// Converts times and durations to and from protobuf messages, which keep nanoseconds.
#ifndef CAIRN_COMMON_BASE_TIME_PROTO_H_
#define CAIRN_COMMON_BASE_TIME_PROTO_H_

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace cairn {

// A time that is more than 292 years away becomes that limit.
void SetTimestamp(absl::Time from, google::protobuf::Timestamp& to);
void SetDuration(absl::Duration from, google::protobuf::Duration& to);

// Peers may send any numbers; every number gives a result.
absl::Time TimeOf(const google::protobuf::Timestamp& from);
absl::Duration DurationOf(const google::protobuf::Duration& from);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_TIME_PROTO_H_
