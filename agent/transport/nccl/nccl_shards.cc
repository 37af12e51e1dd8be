#include "agent/transport/nccl/nccl_shards.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/transport/nccl/exchange_gate.h"
#include "agent/transport/nccl/exchanged_shards.h"
#include "agent/transport/nccl/moved_exchange.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// A coordinator makes windows of some MiB. Others would take too much memory, or too many steps.
constexpr uint64_t kSmallestWindow = 4096;
constexpr uint64_t kLargestWindow = uint64_t{1} << 30;

absl::Status Failed(const std::string& what) { return MakeError(Reason::kTransportFailed, what); }

// What it takes to make this rank's part in the exchange.
class ExchangeMaker {
 public:
  ExchangeMaker(const TransferContext& context, GroupKeeper& groups, const action::StartWrite& order,
                std::shared_ptr<SharedMemory> slab)
      : context_(context),
        groups_(groups),
        order_(order),
        slab_(std::move(slab)),
        peers_(order.order.exchange().peers().begin(), order.order.exchange().peers().end()),
        gate_(context, order.target->plan_digest,
              absl::StrCat(order.order.transfer_token(), " ", order.step, " ", order.attempt)) {
    for (const MovedIn& moved : order.target->moved_in) exchanged_.push_back(peers_.contains(moved.from_rank));
    const auto& ranks = order.order.exchange().ranks();
    if (!ranks.empty() && ranks[0] == context.rank) gate_.Serve({ranks.begin(), ranks.end()});
  }

  // As ExchangedShardsOptions::exchanged.
  const std::vector<bool>& exchanged() const { return exchanged_; }
  absl::StatusOr<std::shared_ptr<MovedExchange>> MakeExchange(uint64_t group);

 private:
  absl::StatusOr<MovedExchange::Places> MakePlaces();

  const TransferContext& context_;
  GroupKeeper& groups_;
  const action::StartWrite order_;
  const std::shared_ptr<SharedMemory> slab_;
  const std::set<uint32_t> peers_;  // with which this rank exchanges
  ExchangeGate gate_;
  std::vector<bool> exchanged_;
};

absl::StatusOr<std::shared_ptr<MovedExchange>> ExchangeMaker::MakeExchange(uint64_t group) {
  const v1::Exchange& planned = order_.order.exchange();
  auto worker = groups_.Find(group);
  if (worker == nullptr) return groups_.WhyNot(group);
  if (planned.ranks().empty()) return Failed("the coordinator names no rank of the exchange");
  if (planned.window_bytes() < kSmallestWindow || planned.window_bytes() > kLargestWindow) {
    return Failed(absl::StrCat("the coordinator wants windows of ", planned.window_bytes(), " bytes"));
  }
  CAIRN_ASSIGN_OR_RETURN(MovedExchange::Places places, MakePlaces());
  CAIRN_ASSIGN_OR_RETURN(auto pace, gate_.Pace(planned.ranks(0), order_.peers));
  MovedExchangeOptions options;
  options.rank = context_.rank;
  options.step = order_.step;
  options.peers = peers_;
  options.window_bytes = planned.window_bytes();
  options.on_break = [&groups = groups_, group](const absl::Status& why) { groups.Break(group, why); };
  return std::make_shared<MovedExchange>(std::move(worker), order_.staged, order_.target, slab_, std::move(places),
                                         std::move(pace), context_.pool, std::move(options));
}

// The image of the files has room for what is moved in. If the slab is not that image, because the plan has changed
// since it was staged, the shards have memory of their own until they are written.
absl::StatusOr<MovedExchange::Places> ExchangeMaker::MakePlaces() {
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

}  // namespace

std::unique_ptr<ShardSource> MakeNcclShards(const TransferContext& context, GroupKeeper& groups,
                                            const action::StartWrite& order, std::shared_ptr<SharedMemory> slab,
                                            std::unique_ptr<ShardSource> host) {
  const auto maker = std::make_shared<ExchangeMaker>(context, groups, order, std::move(slab));
  ExchangedShardsOptions options;
  options.step = order.step;
  options.exchanged = maker->exchanged();
  std::set<uint32_t> sources;
  for (size_t i = 0; i < options.exchanged.size(); ++i) {
    if (options.exchanged[i]) sources.insert(order.target->moved_in[i].from_rank);
  }
  options.sources.assign(sources.begin(), sources.end());
  options.make = [maker](uint64_t group) { return maker->MakeExchange(group); };
  options.give_up = [&groups](uint64_t group, const absl::Status& why) { groups.Break(group, why); };
  return std::make_unique<ExchangedShards>(std::move(host), std::move(options));
}

}  // namespace cairn
