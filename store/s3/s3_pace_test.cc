#include "store/s3/s3_pace.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(S3PaceTest, JudgeS3Answer_EachKindOfAnswer_IsSentAgainOnlyIfThatMayHelp) {
  EXPECT_EQ(JudgeS3Answer(200, ""), S3Verdict::kFinal);
  EXPECT_EQ(JudgeS3Answer(404, "NoSuchKey"), S3Verdict::kFinal);
  EXPECT_EQ(JudgeS3Answer(412, "PreconditionFailed"), S3Verdict::kFinal);
  EXPECT_EQ(JudgeS3Answer(403, "AccessDenied"), S3Verdict::kFinal);
  EXPECT_EQ(JudgeS3Answer(501, "NotImplemented"), S3Verdict::kFinal);
  EXPECT_EQ(JudgeS3Answer(400, "CrcMismatch"), S3Verdict::kAgain);
  EXPECT_EQ(JudgeS3Answer(409, "ConditionalRequestConflict"), S3Verdict::kAgain);
  EXPECT_EQ(JudgeS3Answer(400, "ExpiredToken"), S3Verdict::kAgain);
  EXPECT_EQ(JudgeS3Answer(200, "InternalError"), S3Verdict::kAgain);
  EXPECT_EQ(JudgeS3Answer(0, ""), S3Verdict::kAgain);
  EXPECT_EQ(JudgeS3Answer(500, ""), S3Verdict::kAgain);
  EXPECT_EQ(JudgeS3Answer(503, ""), S3Verdict::kSlowDown);
  EXPECT_EQ(JudgeS3Answer(200, "SlowDown"), S3Verdict::kSlowDown);
}

TEST(S3PaceTest, S3BackOff_OverTheTries_DoublesToABound) {
  EXPECT_EQ(S3BackOff(1, 0), absl::ZeroDuration());
  EXPECT_EQ(S3BackOff(1, 0.5), absl::Milliseconds(50));
  EXPECT_EQ(S3BackOff(3, 0.5), absl::Milliseconds(200));
  EXPECT_EQ(S3BackOff(1000000, 0.5), absl::Seconds(5));
}

TEST(S3WindowTest, ToldToSlowDown_ManyAtOnce_HalvesOnceInASecondAndGrowsSlowly) {
  S3Window window(16);
  EXPECT_EQ(window.limit(), 16);
  const absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < 16; ++i) window.ToldToSlowDown(now);
  EXPECT_EQ(window.limit(), 8);
  for (int i = 1; i < 10; ++i) window.ToldToSlowDown(now + absl::Seconds(i));
  EXPECT_EQ(window.limit(), 1);
  int successes = 0;
  for (; window.limit() < 16; ++successes) window.Succeeded();
  EXPECT_GT(successes, 400);
  window.Succeeded();
  EXPECT_EQ(window.limit(), 16);
}

}  // namespace
}  // namespace cairn
