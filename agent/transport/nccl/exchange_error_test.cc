#include "agent/transport/nccl/exchange_error.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"
#include "gpu/share/worker_process.h"

namespace cairn {
namespace {

absl::Status Said(const absl::Status& error) {
  return ExchangeStepError(error, "window 3 of round 2", {4, 7}, 1, absl::Seconds(5));
}

TEST(ExchangeStepErrorTest, Error_NoProgress_NamesThePeers) {
  const absl::Status error = Said(MakeError(Reason::kTimedOut, "late"));
  EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
  EXPECT_EQ(error.message(),
            "window 3 of round 2 of the exchange over NCCL with ranks 4, 7 has made no progress for 5s");
  EXPECT_EQ(MetadataOf(error)["ranks"], "4, 7");
  EXPECT_FALSE(MetadataOf(error).contains("source_rank"));
}

TEST(ExchangeStepErrorTest, Error_OwnWorkerHasEnded_NamesThisRank) {
  const absl::Status error =
      Said(MakeError(Reason::kTransportFailed, "ended by signal 9", {{std::string(kWorkerAtFault), "yes"}}));
  EXPECT_EQ(error.message(), "window 3 of round 2 of the exchange over NCCL with ranks 4, 7: ended by signal 9");
  EXPECT_EQ(MetadataOf(error)["ranks"], "1");
  EXPECT_TRUE(MetadataOf(error).contains(std::string(kWorkerAtFault)));
}

TEST(ExchangeStepErrorTest, Error_NcclHasFailed_NamesNobody) {
  EXPECT_FALSE(MetadataOf(Said(MakeError(Reason::kTransportFailed, "ncclRemoteError"))).contains("ranks"));
}

}  // namespace
}  // namespace cairn
