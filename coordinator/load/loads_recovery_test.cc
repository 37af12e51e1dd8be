// Loads and reshards that go on, or end, under a coordinator that has just started: it knows of them what their agents
// say.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "common/base/digest.h"
#include "common/status/reason.h"
#include "coordinator/load/testing/loads_fixture.h"

namespace cairn {
namespace {

using LoadsRecoveryTest = LoadsFixture;

TEST_F(LoadsRecoveryTest, Load_RestartedCoordinator_GoesOnWithCallsThatHaveItsPlan) {
  Report(0, In(Call(0, 5), v1::Phase::READING));
  Report(1, In(Call(1, 1), v1::Phase::DONE));
  ASSERT_TRUE(Plan());
  Report(0, In(Call(0, 5), v1::Phase::DONE));
  EXPECT_EQ(Action(0, 5), v1::Phase::DONE);
  EXPECT_EQ(Action(1, 1), v1::Phase::DONE);
}

TEST_F(LoadsRecoveryTest, Load_RestartedCoordinator_EndsAtOnceWhatNotAllAreInAnyMore) {
  Report(0, In(Call(0, 5), v1::Phase::READING));
  EXPECT_EQ(Action(0, 5), v1::Phase::WAITING) << "rank 1 may come back with it";
  Report(1, Trainer(1));
  Report(1, Call(1, 2));
  EXPECT_EQ(Why(0, 5), Reason::kCoordinatorRestarted);
  EXPECT_EQ(Detail(0, 5, "ranks"), "1");
  EXPECT_EQ(Action(1, 2), v1::Phase::WAITING);
  Report(0, Call(0, 6));
  EXPECT_TRUE(Plan());
}

TEST_F(LoadsRecoveryTest, Load_RestartedCoordinator_TakesTheCallThatWasNotToldOfThePlan) {
  // They may come back in either order.
  for (const int first : {0, 1}) {
    Start(2);
    const v1::LoadState calls[] = {In(Call(0, 5), v1::Phase::READING), Call(1, 2)};
    Report(first, calls[first]);
    Report(1 - first, calls[1 - first]);
    ASSERT_TRUE(Plan());
    EXPECT_EQ(Action(0, 5), v1::Phase::READING);
    EXPECT_EQ(Action(1, 2), v1::Phase::READING);
  }
}

TEST_F(LoadsRecoveryTest, CallsDigest_UnderTwoCoordinators_SameForTheSameCallsOnly) {
  std::set<std::string> digests;
  for (const uint64_t number : {2, 2, 3}) {
    Start(2);
    Report(0, Call(0, 5));
    Report(1, Call(1, number));
    ASSERT_TRUE(Plan());
    digests.insert(calls_digest_);
  }
  EXPECT_EQ(digests.size(), 2u);
}

TEST_F(LoadsRecoveryTest, Load_RestartedCoordinator_EndsIfARankReadsWithAnotherToken) {
  v1::LoadState reading = In(Call(0, 5), v1::Phase::READING);
  reading.set_transfer_token_digest(Digest("another token"));
  Report(0, reading);
  Report(1, Call(1, 2));
  ASSERT_TRUE(Plan());
  EXPECT_EQ(Why(0, 5), Reason::kCoordinatorRestarted);
  EXPECT_EQ(Why(1, 2), Reason::kCoordinatorRestarted);
}

TEST_F(LoadsRecoveryTest, Load_RestartedCoordinator_TellsTheErrorOfACallThatWasInTheOperation) {
  Report(1, Failed(In(Call(1, 2), v1::Phase::READING), Reason::kStorageError, "I/O error"));
  Report(0, In(Call(0, 5), v1::Phase::READING));
  EXPECT_EQ(Why(0, 5), Reason::kStorageError);
  EXPECT_EQ(Why(1, 2), Reason::kStorageError);
}

}  // namespace
}  // namespace cairn
