#include "agent/transport/nccl/exchanged_shards.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "agent/transport/testing/moving_rank.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using testing::Moving;
using testing::MovingRank;

class ExchangedShardsTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kRanks = 3;

  ExchangedShardsTest() : controls_(::testing::TempDir() + "/moving-controls") {
    setenv("STAND_IN_NCCL", controls_.c_str(), 1);
    std::ofstream(controls_) << "shared_device 1\n";
  }
  ~ExchangedShardsTest() override {
    ranks_.clear();
    std::filesystem::remove(controls_);
  }
  void Set(const std::string& setting) { std::ofstream(controls_, std::ios::app) << setting << "\n"; }
  void Make(const std::vector<Moving>& moves, absl::Duration gate_timeout = absl::Seconds(60)) {
    const auto absolute = [](const char* path) { return std::filesystem::absolute(path).string(); };
    WorkerProcessOptions worker;
    worker.program = absolute("gpu/share/cairn-gpu-worker");
    worker.libcuda = absolute("tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so");
    worker.libnccl = absolute("tests/testing/stand_in/nccl/libcairn_stand_in_nccl.so");
    worker.grace = absl::Seconds(1);
    const auto groups = testing::JoinWorkers(kRanks, worker);
    const auto gate = std::make_shared<RoundGate>(std::vector<uint32_t>{0, 1, 2});
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      MovedExchangeOptions options;
      options.window_bytes = 10'000;
      options.stall_timeout = absl::Seconds(2);
      options.gate_timeout = gate_timeout;
      ranks_.push_back(std::make_unique<MovingRank>(rank, groups[rank], moves, gate, options));
    }
  }
  void DecideAll(bool required = false) {
    for (auto& rank : ranks_) Decide(*rank, required);
  }
  static void Decide(MovingRank& rank, bool required = false) {
    v1::Exchange exchange;
    exchange.set_way(v1::Exchange::GROUP);
    exchange.set_group(7);
    exchange.set_required(required);
    rank.shards().Decide(exchange);
  }
  static void DecideForHost(MovingRank& rank, const std::string& reason, bool required = false) {
    v1::Exchange exchange;
    exchange.set_way(v1::Exchange::HOST);
    exchange.set_reason(reason);
    exchange.set_required(required);
    rank.shards().Decide(exchange);
  }
  // All fetch all at once. Returns by rank the first error.
  std::vector<absl::Status> FetchAll() {
    std::vector<std::future<absl::Status>> fetching;
    for (auto& rank : ranks_) {
      fetching.push_back(std::async(std::launch::async, [&rank] {
        absl::Status first;
        for (size_t i = 0; i < rank->moved_in(); ++i) first.Update(rank->Fetch(i));
        rank->shards().AwaitEnd();
        return first;
      }));
    }
    std::vector<absl::Status> ended;
    for (auto& each : fetching) ended.push_back(each.get());
    return ended;
  }
  void ExpectAllStands() {
    for (auto& rank : ranks_) {
      for (size_t i = 0; i < rank->moved_in(); ++i) EXPECT_TRUE(rank->Standing(i) == rank->Expected(i));
    }
  }
  static std::vector<Moving> RandomMoves(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<Moving> moves;
    for (int i = 0; i < 40; ++i) {
      const auto from = static_cast<uint32_t>(random() % kRanks);
      const auto to = static_cast<uint32_t>((from + 1 + random() % (kRanks - 1)) % kRanks);
      moves.push_back({from, to, random() % 4 == 0 ? random() % 300'000 : random() % 500});
    }
    return moves;
  }

  const std::string controls_;
  std::vector<std::unique_ptr<MovingRank>> ranks_;
};

TEST_F(ExchangedShardsTest, Fetch_GroupIsReady_BringsAllBytesAndGivesTheMemoryBack) {
  Make(RandomMoves(1));
  DecideAll();
  for (const absl::Status& fetched : FetchAll()) EXPECT_TRUE(fetched.ok()) << fetched;
  ExpectAllStands();
  for (auto& rank : ranks_) {
    EXPECT_TRUE(rank->broken().ok()) << rank->broken();
    EXPECT_EQ(rank->host_fetches(), 0);
    EXPECT_EQ(rank->shards().transport(), "nccl");
    EXPECT_TRUE(rank->shards().waiting_for().empty());
  }
}

TEST_F(ExchangedShardsTest, Fetch_ElsewhereThanTheFilesPlace_CopiesThere) {
  Make({{0, 1, 70'000}, {1, 2, 30}, {2, 0, 5}});
  DecideAll();
  std::string taken;
  ASSERT_TRUE(ranks_[1]->Fetch(0, &taken).ok());
  EXPECT_TRUE(taken == ranks_[1]->Expected(size_t{0}));
}

TEST_F(ExchangedShardsTest, WaitingFor_NothingIsDecided_NamesThoseItWaitsFor) {
  Make({{0, 1, 10}, {2, 1, 10}});
  EXPECT_EQ(ranks_[1]->shards().waiting_for(), (std::vector<uint32_t>{0, 2}));
  EXPECT_TRUE(ranks_[0]->shards().waiting_for().empty()) << "it only sends";
  EXPECT_EQ(ranks_[1]->shards().transport(), "");
}

TEST_F(ExchangedShardsTest, Fetch_DecidedForTheHost_GoesThereAndSaysWhy) {
  Make({{0, 1, 10}});
  auto fetching = std::async(std::launch::async, [&] { return ranks_[1]->Fetch(0); });
  DecideForHost(*ranks_[1], "rank 2 has no NCCL");
  const absl::Status fetched = fetching.get();
  EXPECT_TRUE(fetched.ok()) << fetched;
  EXPECT_EQ(ranks_[1]->Standing(0), ranks_[1]->Expected(size_t{0}));
  EXPECT_EQ(ranks_[1]->shards().transport(), "grpc (nccl: rank 2 has no NCCL)");
  ranks_[1]->shards().AwaitEnd();
}

struct Fault {
  const char* name;
  std::vector<std::string> settings;
  const char* said;  // by those that it did not happen to
};

class ExchangedShardsFaultTest : public ExchangedShardsTest, public ::testing::WithParamInterface<Fault> {};

// Rank 1 takes from the others in 30 steps, and its worker, or another one, fails in the fifth.
TEST_P(ExchangedShardsFaultTest, Fetch_AWorkerFailsInAStep_WhatIsMissingComesOverTheHost) {
  for (const std::string& setting : GetParam().settings) Set(setting);
  Make({{0, 1, 300'000}, {2, 1, 300'000}, {1, 2, 200'000}});
  DecideAll();
  for (const absl::Status& fetched : FetchAll()) EXPECT_TRUE(fetched.ok()) << fetched;
  ExpectAllStands();
  for (const size_t rank : {1, 2}) {
    EXPECT_EQ(ranks_[rank]->shards().transport().find("nccl+grpc (nccl: window "), 0u)
        << ranks_[rank]->shards().transport();
    EXPECT_NE(kill(ranks_[rank]->worker().pid(), 0), 0) << "the worker is dead before the save goes on";
  }
  EXPECT_NE(ranks_[1]->shards().transport().find(GetParam().said), std::string::npos)
      << ranks_[1]->shards().transport();
}

INSTANTIATE_TEST_SUITE_P(
    All, ExchangedShardsFaultTest,
    ::testing::Values(Fault{"Killed", {"group_end_kills.2 5"}, "rank"},
                      Fault{"KilledUnseen", {"group_end_kills.2 5", "deaths_unnoticed 1"}, "no progress for 2s"},
                      Fault{"Stopped", {"group_end_stops.2 5"}, "no progress for 2s"},
                      Fault{"Stalls", {"group_stalls.2 5"}, "no progress for 2s"},
                      Fault{"StallsAndAbortHangs", {"group_stalls.2 5", "abort_hangs 1"}, "no progress for 2s"},
                      Fault{"Hangs", {"group_end_hangs.2 5"}, "no progress for 2s"}),
    [](const auto& tested) { return tested.param.name; });

TEST_F(ExchangedShardsTest, Fetch_AWorkerFailsAndNcclIsRequired_FailsWithItsError) {
  Set("group_stalls.0 5");
  Make({{0, 1, 300'000}});
  DecideAll(/*required=*/true);
  const absl::Status fetched = ranks_[1]->Fetch(0);
  EXPECT_TRUE(HasReason(fetched, Reason::kTransportFailed)) << fetched;
  EXPECT_EQ(MetadataOf(fetched)["exchange"], "nccl") << fetched;
  EXPECT_EQ(ranks_[1]->host_fetches(), 0);
}

TEST_F(ExchangedShardsTest, Fetch_DecidedForTheHostAndNcclIsRequired_Fails) {
  Make({{0, 1, 10}});
  DecideForHost(*ranks_[1], "the group has broken", /*required=*/true);
  const absl::Status fetched = ranks_[1]->Fetch(0);
  EXPECT_TRUE(HasReason(fetched, Reason::kTransportFailed)) << fetched;
  EXPECT_NE(fetched.message().find("the group has broken"), std::string::npos) << fetched;
}

TEST_F(ExchangedShardsTest, Decide_ForTheHostInTheMidst_GoesThereWithItsReason) {
  Make({{0, 1, 300'000}, {2, 1, 10}});
  Decide(*ranks_[1]);  // the others never come
  DecideForHost(*ranks_[1], "rank 0: its worker has ended");
  EXPECT_TRUE(ranks_[1]->Fetch(0).ok());
  EXPECT_TRUE(ranks_[1]->Standing(0) == ranks_[1]->Expected(size_t{0}));
  EXPECT_EQ(ranks_[1]->shards().transport(), "grpc (nccl: rank 0: its worker has ended)");
  ranks_[1]->shards().AwaitEnd();
  EXPECT_FALSE(ranks_[1]->broken().ok());
}

TEST_F(ExchangedShardsTest, Fetch_ARankDoesNotCome_IsGivenUpAndGoesOverTheHost) {
  Make({{0, 1, 300'000}, {2, 1, 10}}, absl::Milliseconds(100));
  Decide(*ranks_[0]);
  Decide(*ranks_[1]);
  EXPECT_TRUE(ranks_[1]->Fetch(0).ok());
  EXPECT_NE(ranks_[1]->shards().transport().find("not all ranks have come within"), std::string::npos)
      << ranks_[1]->shards().transport();
}

TEST_F(ExchangedShardsTest, Stop_WhileItWaits_EndsFetchesAndTheWorker) {
  Make({{0, 1, 300'000}});
  Decide(*ranks_[1]);
  auto fetching = std::async(std::launch::async, [&] { return ranks_[1]->Fetch(0); });
  ranks_[1]->shards().Stop();
  const absl::Status fetched = fetching.get();
  EXPECT_TRUE(HasReason(fetched, Reason::kSaveCancelled)) << fetched;
  ranks_[1]->shards().AwaitEnd();
  EXPECT_NE(kill(ranks_[1]->worker().pid(), 0), 0) << "nothing uses the slab any more";
  EXPECT_EQ(ranks_[1]->host_fetches(), 0);
}

TEST_F(ExchangedShardsTest, Decide_TheWorkerIsBusyWithAnotherExchange_WaitsForItsTurn) {
  Make({{0, 1, 300'000}, {1, 0, 20}});
  GroupWorker& busy = ranks_[1]->group();
  ASSERT_TRUE(busy.turn.Take(absl::ZeroDuration()));
  for (auto& rank : ranks_) Decide(*rank);
  busy.turn.GiveBack();
  for (const absl::Status& fetched : FetchAll()) EXPECT_TRUE(fetched.ok()) << fetched;
  EXPECT_EQ(ranks_[1]->shards().transport(), "nccl");
}

}  // namespace
}  // namespace cairn
