#include "agent/transport/testing/exchanging_rank.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "agent/transport/copy_packer.h"
#include "agent/transport/slab_byte_server.h"
#include "agent/transport/testing/need.h"
#include "common/status/reason.h"

namespace cairn::testing {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(60);

}  // namespace

v1::Copy Contiguous(uint32_t source, uint64_t from, uint64_t to, uint64_t bytes) {
  v1::Copy copy;
  copy.set_source_rank(source);
  copy.set_source_offset(from);
  copy.set_target_offset(to);
  copy.set_element_bytes(bytes);
  return copy;
}

v1::Copy Strided(uint32_t source, uint64_t from, uint64_t to, int64_t rows, uint64_t bytes) {
  v1::Copy copy = Contiguous(source, from, to, bytes);
  copy.add_extents(rows);
  copy.add_source_strides(static_cast<int64_t>(2 * bytes));
  copy.add_target_strides(static_cast<int64_t>(bytes));
  return copy;
}

void Apply(const v1::Copy& copy, const char* source, char* target) {
  const int64_t rows = copy.extents_size() == 0 ? 1 : copy.extents(0);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t from = copy.extents_size() == 0 ? 0 : row * copy.source_strides(0);
    const int64_t to = copy.extents_size() == 0 ? 0 : row * copy.target_strides(0);
    std::memcpy(target + copy.target_offset() + to, source + copy.source_offset() + from, copy.element_bytes());
  }
}

ExchangingRank::ExchangingRank(uint32_t rank, std::shared_ptr<GroupWorker> group, ExchangingRankOptions options)
    : rank_(rank), options_(options), group_(std::move(group)) {
  source_ = Need(pool_.Make("source", options_.source_bytes));
  std::mt19937 random(rank);
  for (uint64_t at = 0; at < options_.source_bytes; ++at) source_->data()[at] = static_cast<char>(random());
  transfer_.offer = [this](const v1::OfferWindowsRequest& request) { return offers_->Take(request); };
  transfer_.broadcast = [this](const v1::OfferWindowsRequest& request, ScriptedSource::Decided decided) {
    offers_->AwaitBroadcast(request.transfer().consumer_rank(), std::move(decided));
  };
}

v1::TransferPeer ExchangingRank::peer() const {
  v1::TransferPeer peer = transfer_.peer();
  peer.set_rank(rank_);
  return peer;
}

void ExchangingRank::Make(const std::vector<v1::Copy>& copies, const PeerMap& peers) {
  offers_ = std::make_shared<WindowOffers>(options_.source_bytes);
  auto lender = std::make_shared<SlabByteServer>(RoundBuffer{0, source_->bytes(), source_});
  lender->MarkStaged(1);
  MakeExchange(copies, peers, std::move(lender), nullptr);
}

void ExchangingRank::MakeLoad(const v1::ReadPlan& plan, uint64_t round_bytes, const PeerMap& peers,
                              std::unique_ptr<RoundPace> pace) {
  offers_ = std::make_shared<WindowOffers>(plan);
  rounds_ = std::make_shared<SlowRounds>(plan, std::string(source_->data(), options_.source_bytes), round_bytes, pool_);
  MakeExchange({plan.copies().begin(), plan.copies().end()}, peers, rounds_, std::move(pace));
}

void ExchangingRank::MakeExchange(const std::vector<v1::Copy>& copies, PeerMap peers,
                                  std::shared_ptr<ByteServer> lender, std::unique_ptr<RoundPace> pace) {
  plan_.Clear();
  for (const v1::Copy& copy : copies) *plan_.add_copies() = copy;
  peers.erase(rank_);
  released_.clear();
  LoadConsumerOptions consumer;
  consumer.rank = rank_;
  consumer.shared_memory = false;
  consumer.held = true;
  consumer.window_bytes = uint64_t{1} << 20;
  consumer.connect = [](const v1::TransferPeer&) { return nullptr; };
  consumer.on_error = [](const absl::Status& error) { std::fprintf(stderr, "%s\n", error.ToString().c_str()); };
  consumer_ = std::make_shared<LoadConsumer>(plan_, peers, lender, pool_, std::move(consumer));
  GroupExchangeOptions options;
  options.rank = rank_;
  options.round_bytes = options_.round_bytes;
  options.sender = {{.job = "demo", .plan_digest = "plan", .consumer_rank = rank_, .load_token = "secret"}};
  options.peers = peers;
  options.stall_timeout = options_.stall_timeout;
  options.offers.offer = [this](std::shared_ptr<SharedMemory> memory) -> absl::StatusOr<uint64_t> {
    MutexLock lock(mutex_);
    offered_[++last_id_] = std::move(memory);
    changed_.NotifyAll();
    return last_id_;
  };
  options.offers.withdraw = [this](uint64_t id) {
    MutexLock lock(mutex_);
    offered_.erase(id);
  };
  options.on_break = [this](const absl::Status& why) {
    {
      MutexLock lock(mutex_);
      broken_ = why;
      changed_.NotifyAll();
    }
    worker().Cancel();
  };
  options.on_error = [this](const absl::Status& error) {
    consumer_->Stop(error);
    error_.set_value(error);
  };
  options.expects_packed =
      std::any_of(copies.begin(), copies.end(), [](const v1::Copy& copy) { return copy.extents_size() > 0; });
  for (const v1::Copy& copy : copies) options.expected_bytes += CopyBytes(copy).value_or(0);
  if (pace == nullptr) options.source = source_;
  exchange_ = std::make_unique<GroupExchange>(group_, consumer_, std::move(lender), offers_, std::move(pace), pool_,
                                              std::move(options));
}

absl::Status ExchangingRank::Train(char* target) {
  std::optional<v1::LoadBatch> held;
  while (true) {
    std::promise<absl::StatusOr<LoadConsumer::Received>> promised;
    auto received = promised.get_future();
    // Held batches are not released yet, so the exchange must not write over them.
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

void ExchangingRank::TakeBatch(const v1::LoadBatch& batch, char* target) {
  std::shared_ptr<SharedMemory> memory;
  {
    MutexLock lock(mutex_);
    memory = offered_.at(batch.buffer().descriptor_id());
  }
  if (target != nullptr) {
    for (const v1::Copy& copy : batch.copies()) Apply(copy, memory->data(), target);
  }
  released_.push_back(batch.batch());
}

absl::Status ExchangingRank::AwaitBroken() {
  MutexLock lock(mutex_);
  while (broken_.ok()) changed_.Wait(mutex_);
  return broken_;
}

absl::Status ExchangingRank::broken() {
  MutexLock lock(mutex_);
  return broken_;
}

void ExchangingRank::AwaitPrepared() {
  {
    MutexLock lock(mutex_);
    while (offered_.size() < ExchangeMemory::kWindows) changed_.Wait(mutex_);
  }
  // Whoever prepares has the turn until all is there.
  if (!group_->turn.Take(kLimit)) std::abort();
  group_->turn.GiveBack();
}

size_t ExchangingRank::offered() {
  MutexLock lock(mutex_);
  return offered_.size();
}

void ExchangingRank::Stop() {
  offers_->Stop();  // calls of others end
  if (exchange_ == nullptr) return;
  consumer_->Stop(MakeError(Reason::kInterrupted, "the test has ended"));
  exchange_->Stop();
  exchange_.reset();
}

std::vector<std::unique_ptr<ExchangingRank>> JoinRanks(uint32_t count, const WorkerProcessOptions& worker,
                                                       const ExchangingRankOptions& options) {
  std::vector<std::unique_ptr<ExchangingRank>> ranks;
  for (uint32_t rank = 0; rank < count; ++rank) {
    auto group = std::make_shared<GroupWorker>();
    group->number = 7;
    for (uint32_t each = 0; each < count; ++each) group->ranks.push_back(each);
    group->worker = Need(WorkerProcess::Start(worker));
    ranks.push_back(std::make_unique<ExchangingRank>(rank, std::move(group), options));
  }
  const std::string id = Need(ranks.front()->worker().MakeUniqueId(kLimit));
  std::vector<std::future<uint64_t>> joining;
  joining.reserve(count);
  for (uint32_t rank = 0; rank < count; ++rank) {
    joining.push_back(std::async(std::launch::async, [&, rank] {
      worker::Join join;
      join.set_rank(rank);
      join.set_ranks(count);
      join.set_unique_id(id);
      return Need(ranks[rank]->worker().Join(join, kLimit));
    }));
  }
  for (auto& joined : joining) joined.get();
  return ranks;
}

}  // namespace cairn::testing
