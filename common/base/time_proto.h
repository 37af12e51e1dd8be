// Times and durations as they go over the wire, to the nanosecond.
#ifndef CAIRN_COMMON_BASE_TIME_PROTO_H_
#define CAIRN_COMMON_BASE_TIME_PROTO_H_

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace cairn {

// What is beyond 292 years is told as that.
void SetTimestamp(absl::Time from, google::protobuf::Timestamp& to);
void SetDuration(absl::Duration from, google::protobuf::Duration& to);

// Any numbers give a result: peers may send what they like.
absl::Time TimeOf(const google::protobuf::Timestamp& from);
absl::Duration DurationOf(const google::protobuf::Duration& from);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_TIME_PROTO_H_
