#include "common/base/time_proto.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace cairn {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  SetDuration(duration, proto);
  return proto;
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp proto;
  SetTimestamp(time, proto);
  return proto;
}

TEST(TimeProtoTest, SetDuration_AnyDuration_KeepsItsNanoseconds) {
  const absl::Duration durations[] = {absl::ZeroDuration(), absl::Nanoseconds(1), absl::Milliseconds(2500),
                                      absl::Hours(100000), -absl::Milliseconds(2500)};
  for (const absl::Duration duration : durations) EXPECT_EQ(DurationOf(ToProto(duration)), duration);
  EXPECT_EQ(ToProto(absl::Milliseconds(2500)).seconds(), 2);
  EXPECT_EQ(ToProto(absl::Milliseconds(2500)).nanos(), 500'000'000);
  EXPECT_EQ(ToProto(-absl::Milliseconds(2500)).nanos(), -500'000'000);  // has the sign of the seconds
}

TEST(TimeProtoTest, SetTimestamp_AnyTime_KeepsItsNanoseconds) {
  const absl::Time times[] = {absl::UnixEpoch(), absl::FromUnixNanos(1'700'000'000'123'456'789),
                              absl::UnixEpoch() - absl::Milliseconds(1)};
  for (const absl::Time time : times) EXPECT_EQ(TimeOf(ToProto(time)), time);
  EXPECT_EQ(ToProto(absl::UnixEpoch() - absl::Milliseconds(1)).seconds(), -1);
  EXPECT_EQ(ToProto(absl::UnixEpoch() - absl::Milliseconds(1)).nanos(), 999'000'000);
}

TEST(TimeProtoTest, SetDuration_InfiniteOne_BecomesAVeryLongOne) {
  EXPECT_GT(DurationOf(ToProto(absl::InfiniteDuration())), absl::Hours(24 * 365 * 290));
  EXPECT_GE(ToProto(absl::InfiniteFuture()).nanos(), 0);
}

TEST(TimeProtoTest, DurationOf_NumbersOutOfRange_GivesAResult) {
  google::protobuf::Duration duration;
  duration.set_seconds(kMost);
  duration.set_nanos(std::numeric_limits<int32_t>::max());
  EXPECT_GT(DurationOf(duration), absl::ZeroDuration());
  duration.set_seconds(-kMost);
  EXPECT_LT(DurationOf(duration), absl::ZeroDuration());
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(kMost);
  timestamp.set_nanos(std::numeric_limits<int32_t>::max());
  EXPECT_GT(TimeOf(timestamp), absl::UnixEpoch());
}

}  // namespace
}  // namespace cairn
