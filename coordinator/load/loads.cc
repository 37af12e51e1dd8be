#include "coordinator/load/loads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/decision/rank_error.h"

namespace cairn {
namespace {

// So many operations may be open, because each costs memory for every rank. At most one waits for calls and one reads;
// the others are ending, each within half a second. Further calls wait.
constexpr size_t kMaxActive = 32;
constexpr size_t kEndedKept = 16;
constexpr size_t kDamagedKept = 64;

bool IsCurrent(const Member& member, const v1::LoadState& state) {
  return member.state.trainer().attached() && member.state.trainer().incarnation() == state.trainer_incarnation();
}

}  // namespace

const Load* Loads::Find(int rank, const v1::LoadState& state) const {
  const auto found =
      std::find_if(loads_.rbegin(), loads_.rend(), [&](const Load& load) { return load.Has(rank, state); });
  return found == loads_.rend() ? nullptr : &*found;
}

bool Loads::IsNew(const Member& member, const v1::LoadState& state) const {
  const auto newest = newest_.find(member.rank);
  if (newest != newest_.end() && newest->second.trainer == state.trainer_incarnation() &&
      newest->second.number >= state.number()) {
    return false;
  }
  if (!state.plan_digest().empty()) return true;
  return !HasFailed(state) && IsCurrent(member, state) &&
         std::none_of(member.state.loads().begin(), member.state.loads().end(), [&](const v1::LoadState& other) {
           return other.trainer_incarnation() == state.trainer_incarnation() && other.number() > state.number();
         });
}

News Loads::Apply(const Member& member, const JobContext& context) {
  News news;
  for (Load& load : loads_) news += load.Follow(member, context);
  for (const v1::LoadState& state : member.state.loads()) {
    if (Find(member.rank, state) != nullptr || !IsNew(member, state)) continue;
    auto load = std::find_if(loads_.begin(), loads_.end(), [&](const Load& each) { return each.Takes(member, state); });
    if (load == loads_.end()) {
      if (running() >= kMaxActive) continue;
      load = loads_.emplace(loads_.end(), ++last_id_, state.plan_digest(), context.now, context.wall);
      news.step = true;
      context.Log(LogLevel::kInfo, "load_state", {{"load", last_id_}, {"state", "COLLECTING"}});
    }
    news += load->Join(member, state, context);
  }
  return news;
}

News Loads::OnMember(int rank, const JobContext& context) {
  News news;
  for (Load& load : loads_) news += load.OnMember(rank, context);
  return news;
}

News Loads::Advance(const JobContext& context) {
  News news;
  for (Load& load : loads_) {
    const News of_load = load.Advance(context, damaged_);
    if (of_load.step && load.ended()) {
      Remember(load, context.members);
      if (const std::optional<int64_t> step = load.damaged_step(); step.has_value()) damaged_.insert(*step);
      if (damaged_.size() > kDamagedKept) damaged_.erase(damaged_.begin());
    }
    news += of_load;
  }
  return news;
}

void Loads::Remember(const Load& load, const Membership& members) {
  for (const auto& [rank, member] : members.members()) {
    const v1::LoadState* call = load.CallOf(rank);
    if (call == nullptr || !IsCurrent(member, *call)) continue;
    Call& newest = newest_[rank];
    if (newest.trainer != call->trainer_incarnation()) newest = {call->trainer_incarnation(), 0};
    newest.number = std::max(newest.number, call->number());
  }
}

void Loads::OnPlanned(uint64_t id, uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan,
                      const JobContext& context) {
  for (Load& load : loads_) {
    if (load.id() == id) load.OnPlanned(ticket, plan, context);
  }
}

void Loads::OnVerified(uint64_t id, uint64_t ticket, const absl::StatusOr<uint64_t>& tensors,
                       const JobContext& context) {
  for (Load& load : loads_) {
    if (load.id() == id) load.OnVerified(ticket, tensors, context);
  }
}

void Loads::Forget(const Membership& members) {
  if (loads_.size() <= kEndedKept) return;
  const auto held = [&](const Load& load) {
    for (const auto& [rank, member] : members.members()) {
      for (const v1::LoadState& state : member.state.loads()) {
        if (load.Has(rank, state)) return true;
      }
    }
    return false;
  };
  for (auto load = loads_.begin(); loads_.size() > kEndedKept && load != loads_.end();) {
    const bool forget = load->ended() && (loads_.size() > 2 * kMaxActive || !held(*load));
    load = forget ? loads_.erase(load) : std::next(load);
  }
}

v1::LoadOrder Loads::OrderFor(const Member& member, const v1::LoadState& state, const JobContext& context) const {
  if (const Load* load = Find(member.rank, state); load != nullptr) return load->OrderFor(state);
  v1::LoadOrder order;
  order.set_number(state.number());
  order.set_trainer_incarnation(state.trainer_incarnation());
  order.set_phase(v1::Phase::WAITING);
  if (IsNew(member, state)) return order;
  // This call can be in no operation any more.
  absl::Status error = StatusFromProto(state.error());
  if (!HasFailed(state) || error.ok()) {
    error = IsCurrent(member, state) ? MakeError(Reason::kInterrupted, "the load has ended; call it again")
                                     : MakeError(Reason::kTrainerLost, "its trainer ended");
  }
  order.set_phase(v1::Phase::FAILED);
  const std::optional<int64_t> step = state.has_step() ? std::optional(state.step()) : std::nullopt;
  *order.mutable_error() =
      StatusToProto(ErrorFromRanks(context, {"load", step, 0}, {{member.rank, v1::Phase::WAITING, std::move(error)}}));
  return order;
}

bool Loads::busy() const {
  return std::any_of(loads_.begin(), loads_.end(), [](const Load& load) { return !load.ended(); });
}

size_t Loads::running() const {
  return static_cast<size_t>(
      std::count_if(loads_.begin(), loads_.end(), [](const Load& load) { return !load.ended(); }));
}

absl::Time Loads::oldest_running() const {
  absl::Time oldest = absl::InfiniteFuture();
  for (const Load& load : loads_) {
    if (!load.ended()) oldest = std::min(oldest, load.created());
  }
  return oldest;
}

std::vector<int64_t> Loads::WantedSteps() const {
  std::vector<int64_t> steps;
  for (const Load& load : loads_) {
    const std::optional<int64_t> step = load.ended() ? std::nullopt : load.wanted_step();
    if (step.has_value()) steps.push_back(*step);
  }
  return steps;
}

bool Loads::MayRead(int64_t step) const {
  return std::any_of(loads_.begin(), loads_.end(), [&](const Load& load) { return load.MayRead(step); });
}

void Loads::View(const JobContext& context, const ShownRanks& shown, v1::Job& view) const {
  for (const Load& load : loads_) *view.add_loads() = load.View(context, shown);
}

NoteworthyRanks Loads::Noteworthy(const JobContext& context) const {
  NoteworthyRanks all;
  for (const Load& load : loads_) {
    const NoteworthyRanks ranks = load.Noteworthy(context);
    all.late.insert(all.late.end(), ranks.late.begin(), ranks.late.end());
    all.awaited.insert(all.awaited.end(), ranks.awaited.begin(), ranks.awaited.end());
  }
  return all;
}

}  // namespace cairn
