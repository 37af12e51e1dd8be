#include "agent/transport/nccl/nccl_load.h"

#include <algorithm>
#include <utility>

#include "agent/transport/copy_packer.h"
#include "common/process/log.h"
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

absl::StatusOr<std::shared_ptr<NcclLoad>> NcclLoad::Make(const TransferContext& context, GroupKeeper& groups,
                                                         const action::StartRead& order) {
  uint64_t lent = 0, made = 0;  // the load itself makes memory of its source, or of two read buffers
  if (order.source != nullptr) {
    lent = made = order.source->slab_bytes;
  } else {
    for (const v1::ReadRound& round : order.plan->rounds()) lent = std::max(lent, round.buffer_bytes());
    made = lent * std::min<uint64_t>(2, order.plan->rounds().size());
  }
  CAIRN_ASSIGN_OR_RETURN(auto room,
                         context.pool.Reserve(GroupExchange::MemoryOf(order.peers.size(), context.round_bytes,
                                                                      TakenOfOthers(*order.plan, context.rank), lent),
                                              made));
  return std::shared_ptr<NcclLoad>(new NcclLoad(context, groups, order, std::move(room)));
}

NcclLoad::NcclLoad(const TransferContext& context, GroupKeeper& groups, const action::StartRead& order,
                   std::shared_ptr<BufferPool::Room> room)
    : context_(context),
      groups_(groups),
      sender_({context.PartIn(order.plan->plan_digest(), order.order.transfer_token())}),
      peers_(order.peers),
      taken_bytes_(TakenOfOthers(*order.plan, context.rank)),
      room_(std::move(room)) {
  for (const v1::Copy& copy : order.plan->copies()) {
    taken_packed_ = taken_packed_ || (copy.source_rank() != context.rank && copy.extents_size() > 0);
  }
  if (order.source != nullptr) return;
  offers_ = std::make_shared<WindowOffers>(*order.plan);
  gate_.emplace(context, sender_.load.plan_digest, sender_.load.load_token);
}

void NcclLoad::Serve(Load load) {
  if (load.source != nullptr) offers_ = std::make_shared<WindowOffers>(load.source->bytes());
  source_ = std::exchange(load.source, nullptr);
  load_ = std::move(load);
  if (!gate_.has_value()) return;
  std::vector<uint32_t> ranks = {context_.rank};
  for (const auto& [rank, peer] : peers_) ranks.push_back(rank);
  gate_->Serve(ranks);
}

void NcclLoad::StopServing() {
  if (gate_.has_value()) gate_->StopServing();
}

void NcclLoad::Prepare() {
  std::shared_ptr<GroupWorker> group = groups_.FindAny();
  MutexLock lock(mutex_);
  if (group == nullptr || decided_ || exchange_ != nullptr) return;
  if (!context_.pool.Fits(std::min(2 * context_.round_bytes, taken_bytes_))) return;
  auto made = MakeExchange(std::move(group));
  if (made.ok()) {
    exchange_ = *std::move(made);
  } else {
    Log(LogLevel::kWarn, "exchange_not_prepared", {{"load", load_.number}, {"error", made.status()}});
  }
}

absl::Status NcclLoad::Begin(uint64_t group) {
  std::shared_ptr<GroupWorker> worker = groups_.Find(group);
  MutexLock lock(mutex_);
  if (std::exchange(decided_, true)) return absl::OkStatus();  // the load has ended
  if (worker == nullptr) return groups_.WhyNot(group);
  if (exchange_ == nullptr || exchange_->group() != group) {
    Drop();
    CAIRN_ASSIGN_OR_RETURN(exchange_, MakeExchange(std::move(worker)));
  }
  exchange_->Go();
  return absl::OkStatus();
}

void NcclLoad::GoByHost() {
  MutexLock lock(mutex_);
  if (std::exchange(decided_, true)) return;
  Drop();
  room_.reset();
}

void NcclLoad::Stop(const absl::Status& why) {
  std::shared_ptr<GroupExchange> exchange;
  {
    MutexLock lock(mutex_);
    decided_ = true;
    exchange = exchange_;
  }
  if (exchange != nullptr) exchange->Stop();  // may wait, for the end of a step
  if (gate_.has_value()) gate_->Stop(why);
}

bool NcclLoad::ended() {
  MutexLock lock(mutex_);
  return (exchange_ == nullptr || exchange_->ended()) &&
         std::all_of(dropped_.begin(), dropped_.end(), [](const auto& exchange) { return exchange->ended(); });
}

void NcclLoad::Drop() {
  if (exchange_ == nullptr) return;
  exchange_->Stop();
  dropped_.push_back(std::move(exchange_));
}

absl::StatusOr<std::shared_ptr<GroupExchange>> NcclLoad::MakeExchange(std::shared_ptr<GroupWorker> group) {
  GroupExchangeOptions options;
  options.rank = context_.rank;
  options.load = load_.number;
  options.round_bytes = context_.round_bytes;
  options.sender = sender_;
  options.peers = peers_;
  options.room = room_;
  options.expected_bytes = taken_bytes_;
  options.expects_packed = taken_packed_;
  options.source = source_;
  options.offers = context_.ReadOnlyOffers();
  options.on_break = [&groups = groups_, number = group->number](const absl::Status& why) {
    groups.Break(number, why);
  };
  options.on_error = load_.on_error;
  std::unique_ptr<RoundPace> pace;
  if (gate_.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(pace, gate_->Pace(group->ranks.front(), peers_));
  }
  auto exchange = std::make_shared<GroupExchange>(std::move(group), load_.consumer, load_.lender, offers_,
                                                  std::move(pace), context_.pool, std::move(options));
  CAIRN_RETURN_IF_ERROR(exchange->Start());
  return exchange;
}

}  // namespace cairn
