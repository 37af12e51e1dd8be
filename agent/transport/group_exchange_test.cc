// Three ranks in this process, each with a worker of its own, that take parts of each other's memory.
#include "agent/transport/group_exchange.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/reader/round_ledger.h"
#include "agent/transport/round_gate.h"
#include "agent/transport/slab_byte_server.h"
#include "agent/transport/testing/scripted_source.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using testing::ScriptedSource;

constexpr uint32_t kRanks = 3;
constexpr uint64_t kSourceBytes = 600'000;
constexpr absl::Duration kLimit = absl::Seconds(60);

std::string Absolute(const char* path) { return std::filesystem::absolute(path).string(); }

v1::Copy Contiguous(uint32_t source, uint64_t from, uint64_t to, uint64_t bytes) {
  v1::Copy copy;
  copy.set_source_rank(source);
  copy.set_source_offset(from);
  copy.set_target_offset(to);
  copy.set_element_bytes(bytes);
  return copy;
}

// `rows` runs of `bytes`, of which the source has one each 2 * bytes and the target one after the other.
v1::Copy Strided(uint32_t source, uint64_t from, uint64_t to, int64_t rows, uint64_t bytes) {
  v1::Copy copy = Contiguous(source, from, to, bytes);
  copy.add_extents(rows);
  copy.add_source_strides(static_cast<int64_t>(2 * bytes));
  copy.add_target_strides(static_cast<int64_t>(bytes));
  return copy;
}

// Does what a trainer does with a copy of at most one extent.
void Apply(const v1::Copy& copy, const char* source, char* target) {
  const int64_t rows = copy.extents_size() == 0 ? 1 : copy.extents(0);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t from = copy.extents_size() == 0 ? 0 : row * copy.source_strides(0);
    const int64_t to = copy.extents_size() == 0 ? 0 : row * copy.target_strides(0);
    std::memcpy(target + copy.target_offset() + to, source + copy.source_offset() + from, copy.element_bytes());
  }
}

// Lends rounds as a reader of files does: each takes some time to come, in one of two buffers, in which the round
// before the last one must have been released by all.
class SlowRounds final : public ByteServer {
 public:
  // What stands in a round is the part of `file` that begins at the round's number times `round_bytes`.
  SlowRounds(const v1::ReadPlan& plan, std::string file, uint64_t round_bytes, BufferPool& pool)
      : plan_(plan), file_(std::move(file)), round_bytes_(round_bytes), ledger_(plan_) {
    for (RoundBuffer& buffer : buffers_) {
      buffer.memory = *pool.Take(round_bytes);
      buffer.bytes = round_bytes;
    }
  }
  // Reads one round, if there is room. Returns false if there is none.
  bool Read() {
    uint32_t round = 0;
    {
      MutexLock lock(mutex_);
      const auto next = ledger_.NextToRead();
      if (!next.has_value()) return false;
      round = *next;
    }
    std::memcpy(buffers_[round % 2].memory->data(), file_.data() + round * round_bytes_, round_bytes_);
    {
      MutexLock lock(mutex_);
      ledger_.MarkReady(round);
    }
    AnswerWaiting();
    return true;
  }
  bool all_read() {
    MutexLock lock(mutex_);
    return ledger_.all_read();
  }
  bool all_released() {
    MutexLock lock(mutex_);
    return ledger_.all_released();
  }

  uint64_t Await(uint32_t consumer, uint32_t round, uint32_t released_below, Done done) override {
    {
      MutexLock lock(mutex_);
      ledger_.Release(consumer, released_below);
      waiting_.emplace_back(round, std::move(done));
    }
    AnswerWaiting();
    return 0;
  }
  void Forget(uint64_t) override {}
  void Release(uint32_t consumer, uint32_t below) override {
    MutexLock lock(mutex_);
    ledger_.Release(consumer, below);
  }
  void Stop(const absl::Status& why) override {
    {
      MutexLock lock(mutex_);
      error_ = why;
    }
    AnswerWaiting();
  }
  Progress progress() override { return {}; }

 private:
  void AnswerWaiting() {
    std::vector<std::pair<Done, absl::StatusOr<RoundBuffer>>> answers;
    {
      MutexLock lock(mutex_);
      std::erase_if(waiting_, [&](auto& waiting) {
        if (error_.ok() && ledger_.StandingOf(waiting.first) == RoundLedger::Standing::kNotYet) return false;
        if (error_.ok()) {
          answers.emplace_back(std::move(waiting.second), buffers_[waiting.first % 2]);
        } else {
          answers.emplace_back(std::move(waiting.second), error_);
        }
        return true;
      });
    }
    for (auto& [done, answer] : answers) done(std::move(answer));
  }

  const v1::ReadPlan plan_;
  const std::string file_;
  const uint64_t round_bytes_;
  RoundBuffer buffers_[2];
  Mutex mutex_;
  RoundLedger ledger_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<uint32_t, Done>> waiting_ ABSL_GUARDED_BY(mutex_);
};

// One rank: its agent's parts of an exchange, and its trainer.
class Rank {
 public:
  Rank(uint32_t rank, std::unique_ptr<WorkerProcess> worker) : rank_(rank), pool_(0, 1) {
    group_ = std::make_shared<GroupWorker>();
    group_->number = 7;
    for (uint32_t other = 0; other < kRanks; ++other) group_->ranks.push_back(other);
    group_->worker = std::move(worker);
    auto source = pool_.Make("source", kSourceBytes);
    EXPECT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
    std::mt19937 random(rank);
    for (uint64_t at = 0; at < kSourceBytes; ++at) source_->data()[at] = static_cast<char>(random());
    transfer_.offer = [this](const v1::OfferWindowsRequest& request) { return offers_->Take(request); };
  }
  ~Rank() { Stop(); }

  WorkerProcess& worker() { return *group_->worker; }
  const char* source() const { return source_->data(); }
  v1::TransferPeer peer() const {
    v1::TransferPeer peer = transfer_.peer();
    peer.set_rank(rank_);
    return peer;
  }

  // The exchange of a reshard that takes `copies`.
  void Make(const std::vector<v1::Copy>& copies, const PeerMap& peers, absl::Duration stall_timeout) {
    auto lender = std::make_shared<SlabByteServer>(RoundBuffer{0, source_->bytes(), source_});
    lender->MarkStaged(1);
    MakeExchange(copies, peers, stall_timeout, std::move(lender), nullptr);
  }
  // The exchange of a load, in which this rank reads the rounds of `plan` from its source.
  void MakeLoad(const v1::ReadPlan& plan, uint64_t round_bytes, const PeerMap& peers, std::shared_ptr<RoundGate> gate,
                absl::Duration stall_timeout) {
    offers_ = std::make_shared<WindowOffers>(plan);
    rounds_ = std::make_shared<SlowRounds>(plan, std::string(source_->data(), kSourceBytes), round_bytes, pool_);
    MakeExchange({plan.copies().begin(), plan.copies().end()}, peers, stall_timeout, rounds_,
                 std::make_unique<RoundPace>(rank_, std::move(gate)));
  }
  SlowRounds& rounds() { return *rounds_; }
  void MakeExchange(const std::vector<v1::Copy>& copies, PeerMap peers, absl::Duration stall_timeout,
                    std::shared_ptr<ByteServer> lender, std::unique_ptr<RoundPace> pace) {
    for (const v1::Copy& copy : copies) *plan_.add_copies() = copy;
    peers.erase(rank_);
    LoadConsumerOptions consumer;
    consumer.rank = rank_;
    consumer.shared_memory = false;
    consumer.held = true;
    consumer.window_bytes = uint64_t{1} << 20;
    consumer.connect = [](const v1::TransferPeer&) { return nullptr; };
    consumer.on_error = [](const absl::Status& error) { ADD_FAILURE() << error; };
    consumer_ = std::make_shared<LoadConsumer>(plan_, peers, lender, pool_, std::move(consumer));
    GroupExchangeOptions options;
    options.rank = rank_;
    options.sender = {.job = "demo", .plan_digest = "plan", .consumer_rank = rank_, .load_token = "secret"};
    options.peers = peers;
    options.stall_timeout = stall_timeout;
    options.offer = [this](std::shared_ptr<SharedMemory> memory) -> absl::StatusOr<uint64_t> {
      MutexLock lock(mutex_);
      offered_[++last_id_] = std::move(memory);
      return last_id_;
    };
    options.withdraw = [this](uint64_t id) {
      MutexLock lock(mutex_);
      offered_.erase(id);
    };
    options.on_break = [this](const absl::Status& why) {
      {
        MutexLock lock(mutex_);
        broken_ = why;
      }
      worker().Cancel();
    };
    options.on_error = [this](const absl::Status& error) {
      consumer_->Stop(error);
      error_.set_value(error);
    };
    exchange_ = std::make_unique<GroupExchange>(group_, consumer_, std::move(lender), offers_, std::move(pace), pool_,
                                                std::move(options));
  }
  void Start() { ASSERT_TRUE(exchange_->Start().ok()); }

  // Copies all that comes into `target`: each batch only when the next one stands in memory too, or when none is left.
  absl::Status Train(char* target) {
    std::optional<v1::LoadBatch> held;
    while (true) {
      std::promise<absl::StatusOr<LoadConsumer::Received>> promised;
      auto received = promised.get_future();
      // What is held is not released yet, so the exchange must not write over it.
      consumer_->Receive(std::exchange(released_, {}), [&](auto& answer) {
        promised.set_value(std::move(answer));
        return true;
      });
      auto answer = received.get();
      if (!answer.ok()) return answer.status();
      for (const v1::LoadBatch& batch : answer->batches) {
        if (held.has_value()) TakeBatch(*std::exchange(held, std::nullopt), target);
        held = batch;
      }
      if (answer->complete || answer->batches.empty()) {
        if (held.has_value()) TakeBatch(*held, target);
        consumer_->Receive(released_, [](const auto&) { return true; });
        return absl::OkStatus();
      }
    }
  }
  absl::Status AwaitError() { return error_.get_future().get(); }
  absl::Status broken() {
    MutexLock lock(mutex_);
    return broken_;
  }
  size_t offered() {
    MutexLock lock(mutex_);
    return offered_.size();
  }

  void Stop() {
    if (exchange_ == nullptr) return;
    consumer_->Stop(MakeError(Reason::kInterrupted, "the test has ended"));
    exchange_->Stop();
    exchange_.reset();
  }
  void StopExchange() { exchange_->Stop(); }

 private:
  void TakeBatch(const v1::LoadBatch& batch, char* target) {
    std::shared_ptr<SharedMemory> memory;
    {
      MutexLock lock(mutex_);
      memory = offered_.at(batch.buffer().descriptor_id());
    }
    for (const v1::Copy& copy : batch.copies()) Apply(copy, memory->data(), target);
    released_.push_back(batch.batch());
  }

  const uint32_t rank_;
  BufferPool pool_;
  v1::ReadPlan plan_;
  std::shared_ptr<GroupWorker> group_;
  std::shared_ptr<SharedMemory> source_;
  std::shared_ptr<WindowOffers> offers_ = std::make_shared<WindowOffers>(kSourceBytes);
  std::shared_ptr<SlowRounds> rounds_;
  ScriptedSource transfer_;
  Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<SharedMemory>> offered_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  std::promise<absl::Status> error_;
  std::vector<uint64_t> released_;
  std::shared_ptr<LoadConsumer> consumer_;
  std::unique_ptr<GroupExchange> exchange_;
};

class GroupExchangeTest : public ::testing::Test {
 protected:
  GroupExchangeTest() {
    controls_ = ::testing::TempDir() + "/controls";
    setenv("STAND_IN_NCCL", controls_.c_str(), 1);
    std::ofstream(controls_) << "shared_device 1\n";
    WorkerProcessOptions options;
    options.program = Absolute("agent/gpu/cairn-gpu-worker");
    options.libcuda = Absolute("tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so");
    options.libnccl = Absolute("tests/testing/stand_in/nccl/libcairn_stand_in_nccl.so");
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      auto worker = WorkerProcess::Start(options);
      EXPECT_TRUE(worker.ok()) << worker.status();
      ranks_[rank] = std::make_unique<Rank>(rank, *std::move(worker));
    }
    const auto id = ranks_[0]->worker().MakeUniqueId(kLimit);
    EXPECT_TRUE(id.ok()) << id.status();
    std::vector<std::future<absl::Status>> joining;
    joining.reserve(kRanks);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      joining.push_back(std::async(std::launch::async, [this, rank, &id] {
        worker::Join join;
        join.set_rank(rank);
        join.set_ranks(kRanks);
        join.set_unique_id(*id);
        return ranks_[rank]->worker().Join(join, kLimit).status();
      }));
    }
    for (auto& joined : joining) EXPECT_TRUE(joined.get().ok());
  }
  ~GroupExchangeTest() override {
    for (auto& rank : ranks_) rank.reset();
    std::filesystem::remove(controls_);
  }

  void Set(const std::string& setting) { std::ofstream(controls_, std::ios::app) << setting << "\n"; }
  PeerMap Peers() const {
    PeerMap peers;
    for (uint32_t rank = 0; rank < kRanks; ++rank) peers[rank] = ranks_[rank]->peer();
    return peers;
  }
  void Make(const std::vector<std::vector<v1::Copy>>& taken, absl::Duration stall_timeout = kLimit) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) ranks_[rank]->Make(taken[rank], Peers(), stall_timeout);
  }
  void Start() {
    for (auto& rank : ranks_) rank->Start();
  }
  // Lets all trainers take what comes, and compares it with what the copies say.
  void ExpectAllArrives(const std::vector<std::vector<v1::Copy>>& taken, uint64_t target_bytes) {
    std::vector<std::string> targets(kRanks, std::string(target_bytes, '\0')), expected = targets;
    std::vector<std::future<absl::Status>> training;
    training.reserve(kRanks);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      training.push_back(
          std::async(std::launch::async, [&, rank] { return ranks_[rank]->Train(targets[rank].data()); }));
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const absl::Status trained = training[rank].get();
      EXPECT_TRUE(trained.ok()) << trained;
      for (const v1::Copy& copy : taken[rank]) {
        Apply(copy, ranks_[copy.source_rank()]->source(), expected[rank].data());
      }
      EXPECT_TRUE(targets[rank] == expected[rank]) << "rank " << rank << " has other bytes";
    }
  }
  // Ranks 1 and 2 each take all of what rank 0 has, and rank 0 takes all of rank 1: 10 steps.
  static std::vector<std::vector<v1::Copy>> Much() {
    return {
        {Contiguous(1, 0, 0, kSourceBytes)}, {Contiguous(0, 0, 0, kSourceBytes)}, {Contiguous(0, 0, 0, kSourceBytes)}};
  }

  std::string controls_;
  std::unique_ptr<Rank> ranks_[kRanks];
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

TEST_F(GroupExchangeTest, Start_OneRankTakesNothing_SendsToTheOthers) {
  const std::vector<std::vector<v1::Copy>> taken = {
      {}, {Contiguous(0, 5, 0, 100'000)}, {Strided(0, 9, 0, 1000, 100), Contiguous(0, 0, 100'000, 0)}};
  Make(taken);
  Start();
  ExpectAllArrives(taken, 100'000);
}

class LoadExchangeTest : public GroupExchangeTest {
 protected:
  static constexpr uint64_t kRoundBytes = 60'000;
  static constexpr uint32_t kRounds = 10;

  // Each rank reads ten rounds; of each, the next rank takes all bytes, and the last one every other hundred.
  void MakeLoads(absl::Duration stall_timeout = kLimit) {
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
      ranks_[rank]->MakeLoad(plans[rank], kRoundBytes, Peers(), gate, stall_timeout);
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

  std::vector<std::vector<v1::Copy>> taken_;
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
  }
}

TEST_F(LoadExchangeTest, Start_ARoundCannotBeRead_FailsWithThatAndLeavesTheGroup) {
  MakeLoads();
  Start();
  ranks_[1]->rounds().Stop(MakeError(Reason::kChecksumMismatch, "file x"));
  const absl::Status error = ranks_[1]->AwaitError();
  EXPECT_TRUE(HasReason(error, Reason::kChecksumMismatch)) << error;
  EXPECT_TRUE(ranks_[1]->broken().ok()) << "nobody waits for it in NCCL: the coordinator's word says how it ends";
  // The others wait at the gate, and end when they are told to.
  for (const uint32_t other : {0, 2}) ranks_[other]->Stop();
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

TEST_F(GroupExchangeTest, Stop_OthersNeverTell_GivesUpAndBreaksTheGroup) {
  Make(Much());
  ranks_[0]->Start();
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
  Make(Much(), absl::Seconds(1));
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
  ranks_[0]->Make({}, peers, kLimit);
  ranks_[0]->Start();
  const absl::Status error = ranks_[0]->AwaitError();
  EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
  EXPECT_EQ(MetadataOf(error).at("rank"), "2");
}

TEST_F(GroupExchangeTest, Start_SourceOfARankOutsideTheGroup_NamesIt) {
  PeerMap peers = Peers();
  peers[9] = peers[1];
  ranks_[0]->Make({Contiguous(9, 0, 0, 100)}, peers, kLimit);
  ranks_[0]->Start();
  const absl::Status error = ranks_[0]->AwaitError();
  EXPECT_NE(error.message().find("rank 9 is not in the group"), std::string::npos) << error;
}

}  // namespace
}  // namespace cairn
