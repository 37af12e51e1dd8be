#include "coordinator/job/current_plan.h"

#include <tuple>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/decision/plan_table.h"
#include "coordinator/decision/rank_error.h"

namespace cairn {

void CurrentPlan::OnPlanned() {
  inputs_changed_ = true;
  under_way_ = false;
}

bool CurrentPlan::restless(const Membership& members) const {
  const bool partial = partial_since_ != absl::InfiniteFuture();
  return partial || (inputs_changed_ && members.with_layout() > 0);
}

void CurrentPlan::Advance(JobContext& context) {
  const size_t world_size = static_cast<size_t>(context.members.world_size());
  const bool partial = context.members.with_layout() < world_size || world_size == 0;
  const bool waits = partial_since_ != absl::InfiniteFuture();
  if (!inputs_changed_ && !waits) return;
  // One plan at a time: while all ranks change their layouts, every set between the first and the last is another one.
  if (under_way_ && !partial) return;
  const auto seen = [&] { return std::tuple(digest_, check_replicas_, std::string(error_.message())); };
  const auto before = seen();
  digest_.clear();
  // An agent may follow a plan that it has while none is known here.
  check_replicas_ = context.options.check_replicas == ReplicaCheck::kAlways;
  if (partial) {
    WaitForLayouts(context);
  } else {
    Request(context);
  }
  if (before != seen()) context.orders_changed = true;
}

void CurrentPlan::WaitForLayouts(JobContext& context) {
  inputs_changed_ = false;
  if (context.members.with_layout() == 0) {
    partial_since_ = absl::InfiniteFuture();
    error_ = absl::OkStatus();
    return;
  }
  if (partial_since_ == absl::InfiniteFuture()) {
    partial_since_ = context.now;
    error_ = absl::OkStatus();
  }
  if (!error_.ok() || context.now - partial_since_ < context.options.phase_timeout) return;
  std::vector<NamedRank> silent;
  for (int rank = 0; rank < context.members.world_size(); ++rank) {
    const Member* member = context.members.Find(rank);
    if (member != nullptr && !member->state.trainer().layout_digest().empty()) continue;
    silent.push_back({rank, v1::RankProgress::WAITING,
                      member == nullptr ? "no agent registered" : "its trainer has declared no layout"});
  }
  error_ = ErrorNaming(Reason::kRankLate, context, {"save", std::nullopt}, "held up the plan", std::move(silent));
}

void CurrentPlan::Request(JobContext& context) {
  partial_since_ = absl::InfiniteFuture();
  error_ = absl::OkStatus();
  std::vector<std::string> layout;
  for (const auto& [rank, member] : context.members.members()) {
    layout.push_back(member.state.trainer().layout_digest());
  }
  const SavePlanEntry* entry = context.plans.Request(layout, context);
  if (entry == nullptr) return;  // until its layouts have come
  inputs_changed_ = false;
  under_way_ = entry->state == SavePlanEntry::State::kPending;
  if (entry->state == SavePlanEntry::State::kReady) {
    digest_ = entry->plan.plan_digest;
    check_replicas_ =
        check_replicas_ || (context.options.check_replicas == ReplicaCheck::kFirst && !entry->replicas_checked);
  } else if (entry->state == SavePlanEntry::State::kFailed) {
    error_ = entry->error;
  }
}

void CurrentPlan::WriteTo(v1::SynchronizeAgentResponse& response) const {
  response.set_current_plan_digest(digest_);
  if (!error_.ok()) *response.mutable_current_plan_error() = StatusToProto(error_);
}

}  // namespace cairn
