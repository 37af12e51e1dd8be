#include "agent/transport/nccl/nccl_load.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/transport/copy_packer.h"
#include "agent/transport/host_round_fetcher.h"
#include "common/process/log.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Returns how many bytes of other ranks a rank takes by its plan.
uint64_t TakenOfOthers(const v1::ReadPlan& plan, uint32_t rank) {
  uint64_t bytes = 0;
  for (const v1::Copy& copy : plan.copies()) {
    if (copy.source_rank() != rank) bytes += CopyBytes(copy).value_or(0);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::shared_ptr<BufferPool::Room>> LoadExchange::Reserve(const ExecutorContext& context,
                                                                        const action::StartRead& order) {
  uint64_t lent = 0, made = 0;  // the load itself makes memory of its source, or of two read buffers
  if (order.source != nullptr) {
    lent = made = order.source->slab_bytes;
  } else {
    for (const v1::ReadRound& round : order.plan->rounds()) lent = std::max(lent, round.buffer_bytes());
    made = lent * std::min<uint64_t>(2, order.plan->rounds().size());
  }
  return context.pool.Reserve(GroupExchange::MemoryOf(order.peers.size(), context.options.round_bytes,
                                                      TakenOfOthers(*order.plan, context.options.rank), lent),
                              made);
}

LoadExchange::LoadExchange(const ExecutorContext& context, const action::StartRead& order, Load load)
    : context_(context),
      number_(load.number),
      consumer_(std::move(load.consumer)),
      lender_(std::move(load.lender)),
      source_(load.source),
      on_error_(std::move(load.on_error)),
      sender_({.job = context.options.job,
               .plan_digest = order.plan->plan_digest(),
               .consumer_rank = context.options.rank,
               .load_token = order.order.transfer_token(),
               .tokens = context.tokens}),
      peers_(order.peers),
      taken_bytes_(TakenOfOthers(*order.plan, context.options.rank)),
      room_(std::move(load.room)) {
  for (const v1::Copy& copy : order.plan->copies()) {
    taken_packed_ = taken_packed_ || (copy.source_rank() != context.options.rank && copy.extents_size() > 0);
  }
  if (load.source != nullptr) {
    offers_ = std::make_shared<WindowOffers>(load.source->bytes());
    return;
  }
  offers_ = std::make_shared<WindowOffers>(*order.plan);
  std::vector<uint32_t> ranks = {context.options.rank};
  for (const auto& [rank, peer] : peers_) ranks.push_back(rank);
  gate_ = std::make_shared<RoundGate>(ranks);
  gate_key_ = TransferService::Key::OfLoad(sender_.plan_digest, RoundGate::TokenOf(sender_.load_token));
}

void LoadExchange::Serve() {
  if (gate_ == nullptr) return;
  context_.transfers.Add(gate_key_, RoundGate::TokenOf(sender_.load_token), gate_, nullptr);
}

void LoadExchange::StopServing() {
  if (gate_ != nullptr) context_.transfers.Remove(gate_key_);
}

void LoadExchange::Prepare() {
  std::shared_ptr<GroupWorker> group = context_.groups == nullptr ? nullptr : context_.groups->FindAny();
  MutexLock lock(mutex_);
  if (group == nullptr || decided_ || exchange_ != nullptr || room_ == nullptr) return;
  if (!context_.pool.Fits(std::min(2 * context_.options.round_bytes, taken_bytes_))) return;
  auto made = Make(std::move(group));
  if (made.ok()) {
    exchange_ = *std::move(made);
  } else {
    Log(LogLevel::kWarn, "exchange_not_prepared", {{"load", number_}, {"error", made.status()}});
  }
}

absl::Status LoadExchange::Begin(uint64_t group) {
  std::shared_ptr<GroupWorker> worker = context_.groups == nullptr ? nullptr : context_.groups->Find(group);
  MutexLock lock(mutex_);
  if (std::exchange(decided_, true)) return absl::OkStatus();  // the load has ended
  if (worker == nullptr) {
    return context_.groups == nullptr ? MakeError(Reason::kTransportFailed, "this rank has no part in NCCL")
                                      : context_.groups->WhyNot(group);
  }
  if (exchange_ == nullptr || exchange_->group() != group) {
    Drop();
    CAIRN_ASSIGN_OR_RETURN(exchange_, Make(std::move(worker)));
  }
  exchange_->Go();
  return absl::OkStatus();
}

void LoadExchange::GoByHost() {
  MutexLock lock(mutex_);
  if (std::exchange(decided_, true)) return;
  Drop();
  room_.reset();
}

void LoadExchange::Stop(const absl::Status& why) {
  std::shared_ptr<GroupExchange> exchange;
  {
    MutexLock lock(mutex_);
    decided_ = true;
    exchange = exchange_;
  }
  if (exchange != nullptr) exchange->Stop();  // may wait, for the end of a step
  if (gate_ != nullptr) gate_->Stop(why);
}

bool LoadExchange::ended() {
  MutexLock lock(mutex_);
  return (exchange_ == nullptr || exchange_->ended()) &&
         std::all_of(dropped_.begin(), dropped_.end(), [](const auto& exchange) { return exchange->ended(); });
}

void LoadExchange::Drop() {
  if (exchange_ == nullptr) return;
  exchange_->Stop();
  dropped_.push_back(std::move(exchange_));
}

absl::StatusOr<std::shared_ptr<GroupExchange>> LoadExchange::Make(std::shared_ptr<GroupWorker> group) {
  GroupExchangeOptions options;
  options.rank = context_.options.rank;
  options.load = number_;
  options.round_bytes = context_.options.round_bytes;
  options.sender = sender_;
  options.peers = peers_;
  options.room = room_;
  options.expected_bytes = taken_bytes_;
  options.expects_packed = taken_packed_;
  options.source = source_;
  options.offers.offer = [&context = context_](std::shared_ptr<SharedMemory> memory) {
    return context.descriptors.Offer(std::move(memory), true);
  };
  options.offers.withdraw = [&context = context_](uint64_t id) { context.descriptors.Withdraw(id); };
  options.on_break = [&context = context_, number = group->number](const absl::Status& why) {
    context.groups->Break(number, why);
  };
  options.on_error = on_error_;
  std::unique_ptr<RoundPace> pace;
  if (gate_ != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(pace, MakePace(group->ranks));
  }
  auto exchange = std::make_shared<GroupExchange>(std::move(group), consumer_, lender_, offers_, std::move(pace),
                                                  context_.pool, std::move(options));
  CAIRN_RETURN_IF_ERROR(exchange->Start());
  return exchange;
}

absl::StatusOr<std::unique_ptr<RoundPace>> LoadExchange::MakePace(const std::vector<uint32_t>& ranks) {
  const uint32_t own = context_.options.rank;
  const uint32_t keeper = ranks.front();
  if (keeper == own) return std::make_unique<RoundPace>(own, gate_);
  const auto peer = peers_.find(keeper);
  if (peer == peers_.end()) {
    return MakeError(Reason::kTransportFailed, absl::StrCat("no address of rank ", keeper),
                     {{"rank", absl::StrCat(keeper)}, {"ranks", absl::StrCat(keeper)}});
  }
  return std::make_unique<RoundPace>(
      own, std::make_unique<HostRoundFetcher>(
               peer->second, HostRoundFetcherOptions{.job = sender_.job,
                                                     .plan_digest = sender_.plan_digest,
                                                     .consumer_rank = own,
                                                     .load_token = RoundGate::TokenOf(sender_.load_token),
                                                     .tokens = sender_.tokens}));
}

}  // namespace cairn
