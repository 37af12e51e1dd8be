#include "coordinator/save/save_exchange.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/transport_use.h"
#include "common/status/reason.h"
#include "coordinator/exchange/nccl_advice.h"

namespace cairn {
namespace {

// The agents that saw a group break are about to say why.
constexpr absl::Duration kGroupLostGrace = absl::Seconds(2);
// An agent that does not say what it takes for its read buffers counts with this.
constexpr uint64_t kUsualRoundBytes = uint64_t{32} << 20;
constexpr uint64_t kSmallestWindow = uint64_t{64} << 10;

// Returns the size of a window with which no rank receives more than two thirds of a read buffer in one step: it holds
// two steps' windows.
uint64_t WindowBytes(const Membership& members, size_t most_sources) {
  uint64_t round_bytes = kUsualRoundBytes;
  for (const auto& [rank, member] : members.members()) {
    if (member.state.round_bytes() != 0) round_bytes = std::min(round_bytes, member.state.round_bytes());
  }
  return std::max(kSmallestWindow, round_bytes / 3 * 2 / most_sources);
}

}  // namespace

std::string SaveExchange::user() const { return absl::StrCat("the save of step ", step_); }

absl::Status SaveExchange::Begin(int64_t step, const PlannedSave& plan, bool inherited, const JobContext& context) {
  step_ = step;
  if (context.groups == nullptr || plan.moves.empty()) return absl::OkStatus();
  const std::vector<std::string> memory = Groups::MemoryOf(context.members, ExchangeUse::kSaves);
  std::map<uint32_t, std::set<uint32_t>> peers, sources;
  uint64_t bytes = 0;
  for (const PlannedSave::Move& move : plan.moves) {
    const auto from = static_cast<uint32_t>(move.from), to = static_cast<uint32_t>(move.to);
    if (std::max(from, to) >= memory.size()) continue;  // NCCL does not come into question
    if (!memory[from].empty() && memory[from] == memory[to]) continue;
    peers[from].insert(to);
    peers[to].insert(from);
    sources[to].insert(from);
    bytes += move.bytes;
  }
  if (peers.empty()) return absl::OkStatus();
  size_t most_sources = 1;
  for (const auto& [rank, several] : sources) most_sources = std::max(most_sources, several.size());
  for (const auto& [rank, several] : peers) peers_[rank].assign(several.begin(), several.end());
  window_bytes_ = WindowBytes(context.members, most_sources);
  required_ = Groups::SomebodyRequires(context.members, ExchangeUse::kSaves);
  return Take(context.groups->Want(context.members, inherited, context.now, bytes, ExchangeUse::kSaves), context);
}

absl::Status SaveExchange::Advance(bool all_staged, const JobContext& context) {
  if (way_.kind == ExchangeWay::Kind::kUndecided) {
    context.groups->Use(way_.group, context.now);  // trainers may stage for longer than an idle group is kept
    if (!all_staged) return absl::OkStatus();
    return Take(context.groups->Settle(context.members, context.now, user(), ExchangeUse::kSaves), context);
  }
  if (way_.kind != ExchangeWay::Kind::kGroup) return absl::OkStatus();
  if (context.groups->IsReady(way_.group)) {
    context.groups->Use(way_.group, context.now);
    return absl::OkStatus();
  }
  group_lost_ = std::min(group_lost_, context.now);
  if (context.now - group_lost_ < kGroupLostGrace) return absl::OkStatus();
  const std::string why = context.groups->WhyBroken(context.members);
  // What ranks have received by now is theirs, also if NCCL is required: each knows for itself what it lacks.
  return Take({ExchangeWay::Kind::kHost, 0, why.empty() ? "the group has broken" : why, false}, context);
}

absl::Status SaveExchange::Take(ExchangeWay way, const JobContext& context) {
  if (way.kind == way_.kind) return absl::OkStatus();
  way_ = std::move(way);
  if (way_.kind == ExchangeWay::Kind::kGroup) group_ = way_.group;
  if (way_.kind == ExchangeWay::Kind::kHost && way_.refused) {
    return MakeError(Reason::kNcclUnavailable, absl::StrCat("--nccl-saves=require, but ", way_.reason),
                     {{"next", NcclAdvice(way_.reason, ExchangeUse::kSaves)}});
  }
  if (way_.kind != ExchangeWay::Kind::kUndecided) {
    context.Log(LogLevel::kInfo, "exchange_way",
                {{"step", step_}, {"transport", TransportText({{transport()}, way_.reason})}});
  }
  return absl::OkStatus();
}

bool SaveExchange::Lacks(const absl::Status& error) {
  return HasReason(error, Reason::kTransportFailed) && MetadataOf(error).contains("exchange");
}

std::optional<GroupFault> SaveExchange::Fault(const JobContext& context) const {
  return group_ == 0 || context.groups == nullptr ? std::nullopt : context.groups->FaultOf(group_);
}

void SaveExchange::Finish(const JobContext& context) {
  if (way_.kind == ExchangeWay::Kind::kGroup) context.groups->Release(way_.group, user());
}

void SaveExchange::GiveUp(const absl::Status& why, const JobContext& context) {
  if (way_.kind != ExchangeWay::Kind::kGroup) return;
  if (HasReason(why, Reason::kSaveCancelled)) return context.groups->End(way_.group);
  context.groups->Break(way_.group, absl::StrCat(user(), " failed: ", why.message()), context.now);
}

void SaveExchange::AddTo(int rank, v1::SaveOrder& order) const {
  const auto peers = peers_.find(static_cast<uint32_t>(rank));
  if (way_.kind == ExchangeWay::Kind::kNone || peers == peers_.end()) return;
  v1::Exchange& exchange = *order.mutable_exchange();
  exchange.set_way(undecided()                             ? v1::Exchange::UNDECIDED
                   : way_.kind == ExchangeWay::Kind::kHost ? v1::Exchange::HOST
                                                           : v1::Exchange::GROUP);
  exchange.set_group(way_.kind == ExchangeWay::Kind::kGroup ? way_.group : 0);
  exchange.set_reason(way_.reason);
  const uint32_t keeper = peers_.begin()->first;
  if (static_cast<uint32_t>(rank) != keeper) {
    exchange.add_ranks(keeper);
  } else {
    for (const auto& [each, others] : peers_) exchange.add_ranks(each);
  }
  exchange.mutable_peers()->Assign(peers->second.begin(), peers->second.end());
  exchange.set_window_bytes(window_bytes_);
  exchange.set_required(required_);
}

v1::Transport SaveExchange::transport() const {
  switch (way_.kind) {
    case ExchangeWay::Kind::kGroup:
      return v1::TRANSPORT_NCCL;
    case ExchangeWay::Kind::kHost:
      return v1::TRANSPORT_GRPC;
    default:
      return v1::TRANSPORT_UNSPECIFIED;
  }
}

void SaveExchange::Describe(v1::Checkpoint& view) const {
  view.set_exchange_transport(transport());
  view.set_nccl_refusal(way_.reason);
}

}  // namespace cairn
