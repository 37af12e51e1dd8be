// Reshards: what the ranks lend stands from the beginning.
#include "agent/transport/nccl/group_exchange.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "agent/transport/testing/exchange_fixture.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using testing::Contiguous;
using testing::Strided;

class GroupExchangeTest : public testing::ExchangeFixture {
 protected:
  void Make(const std::vector<std::vector<v1::Copy>>& taken) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) ranks_[rank]->Make(taken[rank], Peers());
  }
  // Ranks 1 and 2 each take all of what rank 0 has, and rank 0 takes all of rank 1: 10 steps.
  static std::vector<std::vector<v1::Copy>> Much() {
    return {
        {Contiguous(1, 0, 0, kSourceBytes)}, {Contiguous(0, 0, 0, kSourceBytes)}, {Contiguous(0, 0, 0, kSourceBytes)}};
  }
};

TEST_F(GroupExchangeTest, Start_CopiesOfAllKinds_BringsTheirBytes) {
  std::mt19937 random(1);
  const auto below = [&](uint64_t end) { return std::uniform_int_distribution<uint64_t>(0, end - 1)(random); };
  std::vector<std::vector<v1::Copy>> taken(kRanks);
  uint64_t target_bytes = 0;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    uint64_t at = 0;
    for (int number = 0; number < 40; ++number) {
      const auto source = static_cast<uint32_t>((rank + 1 + below(kRanks - 1)) % kRanks);
      const uint64_t bytes = 1 + below(number % 4 == 0 ? 100'000 : 500);
      const uint64_t from = below(kSourceBytes / 2);
      const auto rows = static_cast<int64_t>(below(kSourceBytes / 2 / (2 * bytes)) % 200);  // none too
      taken[rank].push_back(number % 2 == 0 ? Contiguous(source, from, at, bytes)
                                            : Strided(source, from, at, rows, bytes));
      at += number % 2 == 0 ? bytes : static_cast<uint64_t>(rows) * bytes;
    }
    target_bytes = std::max(target_bytes, at);
  }
  Make(taken);
  Start();
  ExpectAllArrives(taken, target_bytes);
}

TEST_F(GroupExchangeTest, Start_TrainersKeepABatchWhileTheNextComes_ItsBytesStay) {
  Make(Much());
  Start();
  ExpectAllArrives(Much(), kSourceBytes);
  for (auto& rank : ranks_) {
    rank->StopExchange();
    EXPECT_TRUE(rank->broken().ok()) << "its end is no break: " << rank->broken();
  }
}

// Each rank takes all of the others', in two pieces, of which one is strided; what it takes besides is its own choice.
TEST_F(GroupExchangeTest, Start_AllTakeAlike_BroadcastsIt) {
  std::vector<std::vector<v1::Copy>> taken(kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    uint64_t at = 0;
    for (uint32_t source = 0; source < kRanks; ++source) {
      if (source == rank) continue;
      taken[rank].push_back(Contiguous(source, 0, at, 300'000));
      taken[rank].push_back(Strided(source, 300'000, at + 300'000, 500, 300));
      at += 450'000;
    }
    if (rank == 1) taken[rank].push_back(Contiguous(0, 1000, at, 77));
  }
  Make(taken);
  Start();
  ExpectAllArrives(taken, 900'077);
  for (auto& rank : ranks_) {
    rank->StopExchange();
    EXPECT_TRUE(rank->broken().ok()) << rank->broken();
    EXPECT_EQ(rank->calls().offered().size(), kRanks - 1) << "one call of each consumer";
  }
}

TEST_F(GroupExchangeTest, Start_OneRankTakesNothing_SendsToTheOthers) {
  const std::vector<std::vector<v1::Copy>> taken = {
      {}, {Contiguous(0, 5, 0, 100'000)}, {Strided(0, 9, 0, 1000, 100), Contiguous(0, 0, 100'000, 0)}};
  Make(taken);
  Start();
  ExpectAllArrives(taken, 100'000);
}

TEST_F(GroupExchangeTest, Stop_AfterTheEnd_GivesTheMemoryBack) {
  Make(Much());
  Start();
  ExpectAllArrives(Much(), kSourceBytes);
  for (auto& rank : ranks_) {
    EXPECT_EQ(rank->offered(), 2u) << "two steps' memory";
    rank->Stop();
    EXPECT_EQ(rank->offered(), 0u);
  }
}

TEST_F(GroupExchangeTest, Go_MemoryIsPrepared_MakesNoOther) {
  Make(Much());
  for (auto& rank : ranks_) ASSERT_TRUE(rank->Prepare().ok());
  for (auto& rank : ranks_) rank->AwaitPrepared();
  std::vector<uint64_t> lent;
  for (auto& rank : ranks_) lent.push_back(rank->group().memories);
  for (auto& rank : ranks_) rank->Go();
  ExpectAllArrives(Much(), kSourceBytes);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks_[rank]->StopExchange();
    EXPECT_EQ(ranks_[rank]->group().memories, lent[rank]);
    EXPECT_EQ(lent[rank], 3u) << "the source, and two windows";
  }
}

TEST_F(GroupExchangeTest, Go_PreparedForLessThanIsPacked_MakesRoom) {
  // Rank 1 expects to pack nothing, as it takes nothing that is packed.
  const std::vector<std::vector<v1::Copy>> taken = {
      {Strided(1, 0, 0, 1000, 100)}, {Contiguous(2, 0, 0, 1000)}, {Strided(1, 9, 0, 500, 300)}};
  Make(taken);
  for (auto& rank : ranks_) ASSERT_TRUE(rank->Prepare().ok());
  for (auto& rank : ranks_) rank->AwaitPrepared();
  for (auto& rank : ranks_) rank->Go();
  ExpectAllArrives(taken, 150'000);
}

TEST_F(GroupExchangeTest, Stop_PreparedButNotNeeded_GivesTheMemoryBackAndKeepsTheGroup) {
  for (int time = 0; time < 2; ++time) {
    Make(Much());
    const long users = ranks_[0]->source_users();
    for (auto& rank : ranks_) ASSERT_TRUE(rank->Prepare().ok());
    for (auto& rank : ranks_) rank->AwaitPrepared();
    EXPECT_GT(ranks_[0]->source_users(), users);
    for (auto& rank : ranks_) {
      rank->Stop();
      EXPECT_EQ(rank->offered(), 0u);
      EXPECT_TRUE(rank->broken().ok()) << rank->broken();
      EXPECT_EQ(rank->source_users(), users) << "the worker has given it back";
    }
  }
  Make(Much());
  Start();
  ExpectAllArrives(Much(), kSourceBytes);
}

TEST_F(GroupExchangeTest, Prepare_TheWorkerIsDead_BreaksTheGroup) {
  Make(Much());
  kill(ranks_[0]->worker().pid(), SIGKILL);
  ASSERT_TRUE(ranks_[0]->Prepare().ok());
  const absl::Status broken = ranks_[0]->AwaitBroken();
  EXPECT_NE(broken.message().find("was ended by signal 9"), std::string::npos) << broken;
  ranks_[0]->Go();
  EXPECT_EQ(ranks_[0]->AwaitError(), broken) << "it is what the load fails by";
}

// A load that goes on meanwhile keeps the worker.
TEST_F(GroupExchangeTest, Prepare_AnotherExchangeHasTheWorker_PreparesNothing) {
  Make(Much());
  GroupTurn& turn = ranks_[0]->group().turn;
  ASSERT_TRUE(turn.Take(absl::ZeroDuration()));
  ASSERT_TRUE(ranks_[0]->Prepare().ok());
  ranks_[0]->StopExchange();
  EXPECT_EQ(ranks_[0]->group().memories, 0u);
  turn.GiveBack();
  ranks_[0]->Stop();
}

TEST_F(GroupExchangeTest, Stop_OthersNeverTell_GivesUpAndBreaksTheGroup) {
  Make(Much());
  ASSERT_TRUE(ranks_[0]->Start().ok());
  ranks_[0]->StopExchange();
  EXPECT_TRUE(HasReason(ranks_[0]->broken(), Reason::kInterrupted)) << ranks_[0]->broken();
}

TEST_F(GroupExchangeTest, Start_AWorkerDies_AllRanksFailAndBreakTheGroup) {
  Set("group_end_kills.1 2");
  Make(Much());
  Start();
  for (auto& rank : ranks_) {
    std::string target(kSourceBytes, '\0');
    EXPECT_FALSE(rank->Train(target.data()).ok());
    const absl::Status error = rank->AwaitError();
    EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
    EXPECT_NE(error.message().find("of the exchange over NCCL with rank"), std::string::npos) << error;
    EXPECT_FALSE(rank->broken().ok());
  }
}

TEST_F(GroupExchangeTest, Start_ARankMakesNoProgress_IsNamedAfterTheStallTimeout) {
  Set("group_stalls.1 1");
  Join(absl::Seconds(1));
  Make(Much());
  Start();
  std::string target(kSourceBytes, '\0');
  EXPECT_FALSE(ranks_[2]->Train(target.data()).ok());
  const absl::Status error = ranks_[0]->AwaitError();
  EXPECT_NE(error.message().find("has made no progress for 1s"), std::string::npos) << error;
  EXPECT_EQ(MetadataOf(error).at("ranks"), "1, 2") << "those of its step";
}

TEST_F(GroupExchangeTest, Start_AWindowOfALaterRound_IsRefused) {
  v1::Copy later = Contiguous(0, 0, 0, 100);
  later.set_round(1);
  Make({{}, {later}, {}});
  Start();
  const absl::Status error = ranks_[1]->AwaitError();
  EXPECT_TRUE(HasReason(error, Reason::kBadRequest)) << error;
  EXPECT_EQ(MetadataOf(error).at("ranks"), "0") << "which has refused it";
}

TEST_F(GroupExchangeTest, Start_NoAddressOfARank_NamesIt) {
  PeerMap peers = Peers();
  peers.erase(2);
  ranks_[0]->Make({}, peers);
  ASSERT_TRUE(ranks_[0]->Start().ok());
  const absl::Status error = ranks_[0]->AwaitError();
  EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
  EXPECT_EQ(MetadataOf(error).at("rank"), "2");
}

TEST_F(GroupExchangeTest, Start_SourceOfARankOutsideTheGroup_NamesIt) {
  PeerMap peers = Peers();
  peers[9] = peers[1];
  ranks_[0]->Make({Contiguous(9, 0, 0, 100)}, peers);
  ASSERT_TRUE(ranks_[0]->Start().ok());
  const absl::Status error = ranks_[0]->AwaitError();
  EXPECT_NE(error.message().find("rank 9 is not in the group"), std::string::npos) << error;
}

}  // namespace
}  // namespace cairn
