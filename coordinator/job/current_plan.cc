#include "coordinator/job/current_plan.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/decision/plan_table.h"
#include "coordinator/decision/rank_error.h"

namespace cairn {
namespace {

bool IsPartial(const Membership& members) {
  return members.world_size() == 0 || members.with_layout() < static_cast<size_t>(members.world_size());
}

// Returns for example "DTYPE_MISMATCH".
std::string ReasonName(const absl::Status& status) {
  return std::string(InfoOf(ReasonOf(status).value_or(Reason::kInternal)).name);
}

}  // namespace

void CurrentPlan::OnPlanned() {
  inputs_changed_ = true;
  under_way_ = false;
}

bool CurrentPlan::restless(const Membership& members) const {
  return Waits() || (inputs_changed_ && members.with_layout() > 0);
}

void CurrentPlan::Advance(JobContext& context) {
  const auto seen = [&] {
    return std::tuple(digest_, check_replicas_, std::string(error_.message()), contradiction_.ok(), most_calls_,
                      rounds_.version());
  };
  const auto before = seen();
  // One plan at a time: while all ranks change their layouts, every set between the first and the last is another one.
  if (inputs_changed_ && (!under_way_ || IsPartial(context.members))) Look(context);
  if (Waits() && context.now - waiting_since_ >= context.options.phase_timeout) GiveUp(context);
  if (before != seen()) context.orders_changed = true;
}

void CurrentPlan::Look(JobContext& context) {
  digest_.clear();
  contradiction_ = absl::OkStatus();
  // An agent may follow a plan that it has while none is known here.
  check_replicas_ = context.options.check_replicas == ReplicaCheck::kAlways;
  if (IsPartial(context.members)) {
    inputs_changed_ = false;
  } else {
    Request(context);
  }
  const bool waits = digest_.empty() && (IsPartial(context.members) ? called_ : !contradiction_.ok());
  waiting_since_ = waits ? std::min(waiting_since_, context.now) : absl::InfiniteFuture();
}

void CurrentPlan::Request(JobContext& context) {
  std::vector<std::string> layout;
  for (const auto& [rank, member] : context.members.members()) {
    layout.push_back(member.state.trainer().layout_digest());
  }
  const SavePlanEntry* entry = context.plans.Request(layout, context);
  if (entry == nullptr) return;  // until its layouts have come
  inputs_changed_ = false;
  under_way_ = entry->state == SavePlanEntry::State::kPending;
  if (entry->state == SavePlanEntry::State::kReady) {
    digest_ = last_digest_ = entry->plan.plan_digest;
    error_ = absl::OkStatus();
    check_replicas_ =
        check_replicas_ || (context.options.check_replicas == ReplicaCheck::kFirst && !entry->replicas_checked);
    rounds_.Fit(context.members);
    called_ = rounds_.Most(context.members) > 0;
  } else if (entry->state == SavePlanEntry::State::kFailed) {
    Contradict(entry->error, context.members);
  }
}

void CurrentPlan::Contradict(const absl::Status& error, const Membership& members) {
  if (rounds_.Behind(members).empty()) {
    error_ = error;
    CloseRound(members);
  } else {
    contradiction_ = error;
    most_calls_ = rounds_.Most(members);
  }
}

std::vector<int> CurrentPlan::Awaited(const Membership& members) const {
  if (!digest_.empty() || rounds_.Most(members) == 0) return {};
  if (!IsPartial(members)) return contradiction_.ok() ? std::vector<int>() : rounds_.Behind(members);
  std::vector<int> awaited;
  for (int rank = 0; rank < members.world_size(); ++rank) {
    const Member* member = members.Find(rank);
    if (member == nullptr || member->state.trainer().layout_digest().empty()) awaited.push_back(rank);
  }
  return awaited;
}

void CurrentPlan::GiveUp(JobContext& context) {
  waiting_since_ = absl::InfiniteFuture();
  std::vector<NamedRank> late;
  for (const int rank : Awaited(context.members)) {
    std::string detail = context.members.Find(rank) == nullptr ? "no agent is registered"
                         : contradiction_.ok()                 ? "its trainer has declared no layout"
                                                               : "its trainer has not called prepare again";
    if (!contradiction_.ok() && late.empty()) {
      absl::StrAppend(&detail, ", and as its layout is now, ", ReasonName(contradiction_), ": ",
                      contradiction_.message());
    }
    late.push_back({rank, v1::RankProgress::WAITING, std::move(detail)});
  }
  if (late.empty()) {  // those that had called are gone
    called_ = false;
    return;
  }
  error_ = ErrorNaming(Reason::kRankLate, context, {"save", std::nullopt}, "held up the plan", std::move(late));
  contradiction_ = absl::OkStatus();
  CloseRound(context.members);
}

void CurrentPlan::CloseRound(const Membership& members) {
  rounds_.Close(members);
  called_ = false;
}

void CurrentPlan::WriteTo(const Member& member, v1::SynchronizeAgentResponse& response) const {
  const uint64_t calls = rounds_.CallsOf(member);
  // Its last call is of an earlier round, and may have no answer yet: without one it could not call again.
  const bool earlier = !contradiction_.ok() && calls < most_calls_;
  response.set_current_plan_digest(earlier ? last_digest_ : digest_);
  if (!error_.ok() && calls == 0) *response.mutable_current_plan_error() = StatusToProto(error_);
}

}  // namespace cairn
