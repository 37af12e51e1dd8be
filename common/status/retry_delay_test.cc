#include "common/status/retry_delay.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/cord.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "google/rpc/error_details.pb.h"

namespace cairn {
namespace {

TEST(RetryDelayTest, Delay_OverTheWire_ArrivesBesideTheReason) {
  const absl::Status error =
      WithRetryDelay(MakeError(Reason::kOverloaded, "too much", {{"job", "demo"}}), absl::Milliseconds(1500));
  const absl::Status arrived = StatusFromProto(StatusToProto(error));
  EXPECT_TRUE(HasReason(arrived, Reason::kOverloaded));
  EXPECT_EQ(MetadataOf(arrived)["job"], "demo");
  EXPECT_EQ(RetryDelayOf(arrived), absl::Milliseconds(1500));
}

TEST(RetryDelayTest, ErrorWithoutDelay_NamesNone) {
  EXPECT_FALSE(RetryDelayOf(absl::OkStatus()).has_value());
  EXPECT_FALSE(RetryDelayOf(MakeError(Reason::kOverloaded, "too much")).has_value());
}

TEST(RetryDelayTest, DelayThatIsNoDuration_NamesNoneOrZero) {
  absl::Status error = MakeError(Reason::kOverloaded, "too much");
  error.SetPayload("type.googleapis.com/google.rpc.RetryInfo", absl::Cord("\x0a\xff garbage"));
  EXPECT_FALSE(RetryDelayOf(error).has_value());
  EXPECT_EQ(RetryDelayOf(WithRetryDelay(error, absl::Seconds(-5))), absl::ZeroDuration());
}

// Another implementation of the message, by its field numbers: retry_delay = 1 {seconds = 1, nanos = 2}.
TEST(RetryDelayTest, Bytes_AreThoseOfGooglesMessage) {
  google::rpc::RetryInfo info;
  ASSERT_TRUE(info.ParseFromString(std::string("\x0a\x08\x08\x02\x10\x80\xca\xb5\xee\x01", 10)));
  EXPECT_EQ(info.retry_delay().seconds(), 2);
  EXPECT_EQ(info.retry_delay().nanos(), 500'000'000);
}

}  // namespace
}  // namespace cairn
