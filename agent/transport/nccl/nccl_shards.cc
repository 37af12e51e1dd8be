#include "agent/transport/nccl/nccl_shards.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/transport/host_round_fetcher.h"
#include "agent/transport/shard_fetcher.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// A coordinator makes windows of some MiB. Others would take too much memory, or too many steps.
constexpr uint64_t kSmallestWindow = 4096;
constexpr uint64_t kLargestWindow = uint64_t{1} << 30;

absl::Status Failed(const std::string& what) { return MakeError(Reason::kTransportFailed, what); }

}  // namespace

SaveMoves::SaveMoves(const ExecutorContext& context, const action::StartWrite& order,
                     std::shared_ptr<SharedMemory> slab)
    : context_(context),
      order_(order),
      slab_(std::move(slab)),
      peers_(order.order.exchange().peers().begin(), order.order.exchange().peers().end()),
      gate_token_(RoundGate::TokenOf(absl::StrCat(order.order.transfer_token(), " ", order.step, " ", order.attempt))) {
  std::unique_ptr<ShardSource> host;
  if (!order_.target->moved_in.empty()) {
    ShardFetcherOptions options;
    options.job = context_.options.job;
    options.rank = context_.options.rank;
    options.boot_id = context_.boot_id;
    options.tokens = context_.tokens;
    options.shared_memory = context_.options.shared_memory;
    host = std::make_unique<ShardFetcher>(order_.target, order_.order, order_.peers, std::move(options));
  }
  if (!order_.order.has_exchange()) {
    source_ = std::move(host);
    return;
  }
  std::set<uint32_t> sources;
  for (const MovedIn& moved : order_.target->moved_in) {
    exchanged_.push_back(peers_.contains(moved.from_rank));
    if (exchanged_.back()) sources.insert(moved.from_rank);
  }
  ExchangedShardsOptions options;
  options.step = order_.step;
  options.exchanged = exchanged_;
  options.sources.assign(sources.begin(), sources.end());
  options.make = [this](uint64_t group) { return MakeExchange(group); };
  options.give_up = [this](uint64_t group, const absl::Status& why) {
    if (context_.groups != nullptr) context_.groups->Break(group, why);
  };
  exchange_ = std::make_shared<ExchangedShards>(std::move(host), std::move(options));
  source_ = exchange_;
  ServeGate();
}

SaveMoves::~SaveMoves() {
  Stop();
  AwaitEnd();
  if (gate_ == nullptr) return;
  context_.transfers.Remove(TransferService::Key::OfLoad(order_.target->plan_digest, gate_token_));
  gate_->Stop(MakeError(Reason::kPlanUnknown, "the exchange has ended"));
}

void SaveMoves::ServeGate() {
  const auto& ranks = order_.order.exchange().ranks();
  if (ranks.empty() || ranks[0] != context_.options.rank) return;
  gate_ = std::make_shared<RoundGate>(std::vector<uint32_t>(ranks.begin(), ranks.end()));
  context_.transfers.Add(TransferService::Key::OfLoad(order_.target->plan_digest, gate_token_), gate_token_, gate_);
}

void SaveMoves::Decide(const v1::Exchange& exchange) {
  if (exchange_ != nullptr) exchange_->Decide(exchange);
}

absl::Status SaveMoves::Fetch(size_t index, uint64_t offset, uint64_t bytes, char* to) {
  return source_->Fetch(index, offset, bytes, to);
}

void SaveMoves::AwaitEnd() {
  if (exchange_ != nullptr) exchange_->AwaitEnd();
}

void SaveMoves::Stop() {
  if (source_ != nullptr) source_->Stop();
}

std::vector<uint32_t> SaveMoves::waiting_for() {
  return source_ != nullptr ? source_->waiting_for() : std::vector<uint32_t>();
}

std::string SaveMoves::transport() { return source_ != nullptr ? source_->transport() : ""; }

absl::StatusOr<std::shared_ptr<MovedExchange>> SaveMoves::MakeExchange(uint64_t group) {
  const v1::Exchange& planned = order_.order.exchange();
  auto worker = context_.groups == nullptr ? nullptr : context_.groups->Find(group);
  if (context_.groups != nullptr && worker == nullptr) return context_.groups->WhyNot(group);
  if (worker == nullptr || planned.ranks().empty()) return Failed("this rank has no part in NCCL");
  if (planned.window_bytes() < kSmallestWindow || planned.window_bytes() > kLargestWindow) {
    return Failed(absl::StrCat("the coordinator wants windows of ", planned.window_bytes(), " bytes"));
  }
  CAIRN_ASSIGN_OR_RETURN(MovedExchange::Places places, MakePlaces());
  CAIRN_ASSIGN_OR_RETURN(auto pace, MakePace(planned.ranks(0)));
  MovedExchangeOptions options;
  options.rank = context_.options.rank;
  options.step = order_.step;
  options.peers = peers_;
  options.window_bytes = planned.window_bytes();
  options.on_break = [groups = context_.groups, group](const absl::Status& why) { groups->Break(group, why); };
  return std::make_shared<MovedExchange>(std::move(worker), order_.staged, order_.target, slab_, std::move(places),
                                         std::move(pace), context_.pool, std::move(options));
}

// The image of the files has room for what is moved in. If the slab is not that image, because the plan has changed
// since it was staged, the shards have memory of their own until they are written.
absl::StatusOr<MovedExchange::Places> SaveMoves::MakePlaces() {
  const SaveImage& target = *order_.target;
  MovedExchange::Places places;
  places.at.resize(target.moved_in.size(), nullptr);
  if (order_.staged == order_.target) {
    for (const ImageFile& file : target.file) {
      uint64_t at = file.slab_offset + file.header_bytes;
      for (const uint32_t number : file.item) {
        const size_t index = number - target.layout->items.size();
        if (target.IsMovedIn(number) && exchanged_[index]) places.at[index] = slab_->data() + at;
        at += target.ItemAt(number).bytes();
      }
    }
    return places;
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < exchanged_.size(); ++i) bytes += exchanged_[i] ? target.moved_in[i].item.bytes() : 0;
  if (bytes == 0) return places;
  CAIRN_ASSIGN_OR_RETURN(places.memory, context_.pool.Make("cairn-moved", bytes));
  uint64_t at = 0;
  for (size_t i = 0; i < exchanged_.size(); ++i) {
    if (!exchanged_[i]) continue;
    places.at[i] = places.memory->data() + at;
    at += target.moved_in[i].item.bytes();
  }
  return places;
}

absl::StatusOr<std::unique_ptr<RoundPace>> SaveMoves::MakePace(uint32_t keeper) {
  const uint32_t own = context_.options.rank;
  if (gate_ != nullptr) return std::make_unique<RoundPace>(own, gate_);
  const auto peer = order_.peers.find(keeper);
  if (peer == order_.peers.end()) return Failed(absl::StrCat("no address of rank ", keeper));
  return std::make_unique<RoundPace>(
      own, std::make_unique<HostRoundFetcher>(peer->second,
                                              HostRoundFetcherOptions{.job = context_.options.job,
                                                                      .plan_digest = order_.target->plan_digest,
                                                                      .consumer_rank = own,
                                                                      .load_token = gate_token_,
                                                                      .tokens = context_.tokens}));
}

}  // namespace cairn
