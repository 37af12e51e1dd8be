// Loads: what the ranks lend comes round by round.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/transport/nccl/group_exchange.h"
#include "agent/transport/nccl/round_gate.h"
#include "agent/transport/testing/exchange_fixture.h"
#include "agent/transport/testing/far_gate.h"
#include "common/base/mutex.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using testing::Contiguous;
using testing::Strided;

// Counts what the ranks ask of the gate.
class Asked {
 public:
  void Add(bool awaits) {
    MutexLock lock(mutex_);
    ++(awaits ? awaited_ : passed_);
    changed_.NotifyAll();
  }
  void AwaitAwaited(size_t count) {
    MutexLock lock(mutex_);
    while (awaited_ < count) changed_.Wait(mutex_);
  }
  size_t awaited() {
    MutexLock lock(mutex_);
    return awaited_;
  }
  size_t passed() {
    MutexLock lock(mutex_);
    return passed_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t awaited_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t passed_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Counts the calls.
class CountedGate final : public testing::FarGate {
 public:
  CountedGate(uint32_t rank, std::shared_ptr<RoundGate> gate, Asked& asked)
      : FarGate(rank, std::move(gate)), asked_(asked) {}
  void Await(uint32_t round, uint32_t released_below, Done done) override {
    asked_.Add(true);
    FarGate::Await(round, released_below, std::move(done));
  }
  void Release(uint32_t released_below, Failed failed) override {
    asked_.Add(false);
    FarGate::Release(released_below, std::move(failed));
  }

 private:
  Asked& asked_;
};

class LoadExchangeTest : public testing::ExchangeFixture {
 protected:
  static constexpr uint64_t kRoundBytes = 60'000;
  static constexpr uint32_t kRounds = 10;

  // Each rank reads ten rounds; of each, the next rank takes all bytes, and the last one every other hundred.
  void MakeLoads() {
    std::vector<v1::ReadPlan> plans(kRanks);
    taken_.resize(kRanks);
    for (uint32_t source = 0; source < kRanks; ++source) {
      for (uint32_t round = 0; round < kRounds; ++round) {
        v1::ReadRound& planned = *plans[source].add_rounds();
        planned.set_buffer_bytes(kRoundBytes);
        for (uint32_t away = 1; away < kRanks; ++away) {
          const uint32_t consumer = (source + away) % kRanks;
          v1::Copy copy = away == 1 ? Contiguous(source, 0, round * kRoundBytes, kRoundBytes)
                                    : Strided(source, 0, kSourceBytes + round * kRoundBytes, kRoundBytes / 200, 100);
          copy.set_round(round);
          *plans[consumer].add_copies() = copy;
          copy.set_source_offset(round * kRoundBytes);  // in what the rank reads
          taken_[consumer].push_back(copy);
        }
        for (uint32_t consumer = 0; consumer < kRanks; ++consumer) {
          if (consumer != source) planned.add_consumers(consumer);
        }
      }
    }
    const auto gate = std::make_shared<RoundGate>(std::vector<uint32_t>{0, 1, 2});
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      auto pace = std::make_unique<RoundPace>(rank, std::make_unique<CountedGate>(rank, gate, asked_));
      ranks_[rank]->MakeLoad(plans[rank], kRoundBytes, Peers(), std::move(pace));
    }
  }
  // Reads for all ranks in turn, until `slow` waits: it reads only when the others cannot go on.
  std::thread ReadAll(uint32_t slow) {
    return std::thread([this, slow] {
      while (true) {
        bool all = true, moved = false;
        for (uint32_t rank = 0; rank < kRanks; ++rank) {
          all = all && ranks_[rank]->rounds().all_read();
          if (rank != slow) moved = ranks_[rank]->rounds().Read() || moved;
        }
        if (all) return;
        if (!moved && !ranks_[slow]->rounds().Read()) std::this_thread::yield();
      }
    });
  }

  // Its exchanges end before what they ask.
  ~LoadExchangeTest() override { ranks_.clear(); }

  std::vector<std::vector<v1::Copy>> taken_;
  Asked asked_;
};

TEST_F(LoadExchangeTest, Start_RoundsComeOneByOne_BringsTheirBytesAndReleasesAll) {
  MakeLoads();
  std::thread reading = ReadAll(1);
  Start();
  ExpectAllArrives(taken_, 2 * kSourceBytes);
  reading.join();
  for (auto& rank : ranks_) {
    rank->StopExchange();
    EXPECT_TRUE(rank->broken().ok()) << rank->broken();
    EXPECT_TRUE(rank->rounds().all_released());
    EXPECT_EQ(rank->calls().offered().size(), kRanks - 1) << "one call of each consumer, though there are many windows";
  }
  EXPECT_EQ(asked_.awaited(), kRanks * kRounds);
  EXPECT_EQ(asked_.passed(), kRanks) << "one at the end, since each rank has a part in each round";
}

TEST_F(LoadExchangeTest, Start_ARoundCannotBeRead_FailsWithThatAndLeavesTheGroup) {
  MakeLoads();
  for (const uint32_t other : {0, 2}) ASSERT_TRUE(ranks_[other]->rounds().Read());
  Start();
  asked_.AwaitAwaited(2);
  ranks_[1]->rounds().Stop(MakeError(Reason::kChecksumMismatch, "file x"));
  const absl::Status error = ranks_[1]->AwaitError();
  EXPECT_TRUE(HasReason(error, Reason::kChecksumMismatch)) << error;
  EXPECT_TRUE(ranks_[1]->broken().ok()) << "nobody waits for it in NCCL: the coordinator's word says how it ends";
  // The others wait at the gate, and end when they are told to.
  for (const uint32_t other : {0, 2}) {
    ranks_[other]->Stop();
    EXPECT_EQ(ranks_[other]->group().steps, 0u) << "nobody waits in NCCL for storage";
  }
}

TEST_F(LoadExchangeTest, Start_AWorkerDiesInARound_NamesTheRound) {
  Set("group_end_kills.1 2");
  MakeLoads();
  std::thread reading([this] {
    for (int round = 0; round < 2; ++round) {
      for (auto& rank : ranks_) rank->rounds().Read();
    }
  });
  Start();
  std::vector<std::future<absl::Status>> training;
  training.reserve(kRanks);
  for (auto& rank : ranks_) {
    training.push_back(std::async(std::launch::async, [&] {
      std::string own(2 * kSourceBytes, '\0');
      return rank->Train(own.data());
    }));
  }
  const absl::Status error = ranks_[1]->AwaitError();
  EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
  EXPECT_NE(error.message().find("of round 1 of the exchange over NCCL with rank"), std::string::npos) << error;
  reading.join();
  for (auto& rank : ranks_) rank->Stop();
  for (auto& trained : training) EXPECT_FALSE(trained.get().ok());
}

}  // namespace
}  // namespace cairn
