#include "coordinator/job/recovery.h"

#include "common/status/reason.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

using RecoveryTest = PartTest;

TEST_F(RecoveryTest, Begin_StorageFails_IsAskedAgainAfterAWhile) {
  Recovery recovery;
  recovery.Begin(context_);
  ASSERT_TRUE(Take<RecoverJob>().has_value());
  recovery.Begin(context_);
  EXPECT_FALSE(Take<RecoverJob>().has_value()) << "it is under way";
  EXPECT_TRUE(recovery.OnRead(MakeError(Reason::kStorageError, "I/O error"), context_).empty());
  EXPECT_TRUE(HasReason(recovery.error(), Reason::kStorageError));
  recovery.Begin(context_);
  EXPECT_FALSE(Take<RecoverJob>().has_value()) << "not at once";
  Pass(absl::Seconds(1));
  recovery.Begin(context_);
  ASSERT_TRUE(Take<RecoverJob>().has_value());
  EXPECT_EQ(recovery.OnRead(absl::OkStatus(), context_).orders, News::Orders::kUrgent);
  EXPECT_TRUE(recovery.done());
  EXPECT_TRUE(recovery.error().ok());
  Pass(absl::Hours(1));
  recovery.Begin(context_);
  EXPECT_FALSE(Take<RecoverJob>().has_value()) << "once is enough";
}

TEST_F(RecoveryTest, Tick_StorageDoesNotAnswer_IsStalledUntilItDoes) {
  Recovery recovery;
  Pass(absl::Minutes(1));
  (void)recovery.Tick(context_);
  EXPECT_TRUE(recovery.stalled().ok()) << "it was not asked";
  recovery.Begin(context_);
  Pass(absl::Seconds(4));
  EXPECT_TRUE(recovery.Tick(context_).empty());
  EXPECT_TRUE(recovery.stalled().ok());
  Pass(absl::Seconds(1));
  EXPECT_EQ(recovery.Tick(context_).orders, News::Orders::kUrgent) << "the ranks are told";
  EXPECT_TRUE(HasReason(recovery.stalled(), Reason::kStorageStalled)) << recovery.stalled();
  (void)recovery.OnRead(absl::OkStatus(), context_);
  (void)recovery.Tick(context_);
  EXPECT_TRUE(recovery.stalled().ok());
}

// A file stands in the place of the job's directory, for example.
TEST_F(RecoveryTest, Tick_StorageAnswersWithErrors_IsStalledWithinSeconds) {
  options_.storage_timeout = absl::Minutes(2);
  Recovery recovery;
  recovery.Begin(context_);
  (void)recovery.OnRead(MakeError(Reason::kStorageError, "Not a directory"), context_);
  (void)recovery.Tick(context_);
  EXPECT_TRUE(recovery.stalled().ok()) << "it may have been a moment";
  Pass(absl::Seconds(5));
  (void)recovery.Tick(context_);
  EXPECT_TRUE(HasReason(recovery.stalled(), Reason::kStorageStalled)) << recovery.stalled();
  EXPECT_NE(recovery.stalled().message().find("Not a directory"), std::string::npos) << recovery.stalled();
}

}  // namespace
}  // namespace cairn
