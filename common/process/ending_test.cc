#include "common/process/ending.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "common/status/reason.h"

namespace cairn {
namespace {

// Each test takes the signals of its whole process.
class EndingTest : public ::testing::Test {
 protected:
  ~EndingTest() override { ending_.LetSignalsThrough(); }

  Ending ending_;
};

TEST_F(EndingTest, Await_ASignalHasCome_ReturnsIt) {
  kill(getpid(), SIGTERM);
  EXPECT_EQ(ending_.Await(), SIGTERM);
  kill(getpid(), SIGINT);
  EXPECT_EQ(ending_.Await(), SIGINT);
  EXPECT_TRUE(ending_.Error().ok());
}

TEST_F(EndingTest, OnError_Twice_EndsTheServiceByTheFirst) {
  std::thread other([this] {
    ending_.OnError(absl::InternalError("first"));
    ending_.OnError(absl::InternalError("second"));
  });
  EXPECT_EQ(ending_.Await(), 0);
  other.join();
  EXPECT_EQ(ending_.Error().message(), "first");
  EXPECT_EQ(ending_.Await(), 0) << "it has ended for good";
}

TEST_F(EndingTest, Await_WithAPause_CallsMeanwhileUntilTheEnd) {
  int calls = 0;
  EXPECT_EQ(ending_.Await(absl::Milliseconds(1),
                          [&] {
                            if (++calls == 3) kill(getpid(), SIGINT);
                          }),
            SIGINT);
  EXPECT_EQ(calls, 3);
}

TEST_F(EndingTest, LetSignalsThrough_NextSignal_EndsTheProcess) {
  EXPECT_EXIT(
      {
        ending_.LetSignalsThrough();
        kill(getpid(), SIGTERM);
        pause();
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST_F(EndingTest, Ending_WriteToAPipeThatNobodyReads_FailsWithoutASignal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(ends[1]);
}

TEST(ExitStatusTest, ExitStatusOf_Ok_IsZeroAndSaysNothing) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ExitStatusOf(absl::OkStatus()), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(ExitStatusTest, ExitStatusOf_AnError_IsSaidWithItsNextAction) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ExitStatusOf(MakeError(Reason::kBadQuantity, "no duration: \x1b[1m", {{"next", "Write 10s."}}), kExitUsage),
            2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "error: BAD_QUANTITY: no duration: \\x1b[1m\n  next: Write 10s.\n");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ExitStatusOf(absl::InternalError("without a reason")), 1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "error: INTERNAL: without a reason\n");
}

}  // namespace
}  // namespace cairn
