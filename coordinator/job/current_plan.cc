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

void CurrentPlan::OnReport(const Member& member, bool changed) {
  const bool waits = answers_.Waits(member);
  if (!changed && waits && !digest_.empty() && !inputs_changed_) return answers_.GivePlan(member);
  called_ = called_ || waits;
  inputs_changed_ = inputs_changed_ || changed || waits;
}

News CurrentPlan::Advance(const JobContext& context) {
  const auto seen = [&] {
    return std::tuple(digest_, check_replicas_, std::string(error_.message()), contradiction_.ok(), answers_.version());
  };
  const auto before = seen();
  // One plan at a time: while all ranks change their layouts, every set between the first and the last is another one.
  if (inputs_changed_ && (!under_way_ || IsPartial(context.members))) Look(context);
  if (waiting() && context.now - waiting_since_ >= context.options.phase_timeout) GiveUp(context);
  return News::Urgent(before != seen());
}

void CurrentPlan::Look(const JobContext& context) {
  digest_.clear();
  contradiction_ = absl::OkStatus();
  // An agent may follow a plan that it has while none is known here.
  check_replicas_ = context.options.check_replicas == ReplicaCheck::kAlways;
  const bool partial = IsPartial(context.members);
  if (partial) {
    inputs_changed_ = false;
  } else {
    Request(context);
  }
  const bool waits = called_ && (partial || !contradiction_.ok());
  waiting_since_ = waits ? std::min(waiting_since_, context.now) : absl::InfiniteFuture();
}

void CurrentPlan::Request(const JobContext& context) {
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
    answers_.OnPlan(context.members);
    called_ = false;
  } else if (entry->state == SavePlanEntry::State::kFailed) {
    Contradict(entry->error, context.members);
  }
}

void CurrentPlan::Contradict(const absl::Status& error, const Membership& members) {
  answers_.GivePlanToThoseBehind(members);
  if (answers_.AllWait(members)) return Refuse(error, members);
  contradiction_ = error;
  called_ = answers_.AnyWaits(members);
}

void CurrentPlan::Refuse(const absl::Status& error, const Membership& members) {
  error_ = error;
  contradiction_ = absl::OkStatus();
  answers_.GiveError(members);
  called_ = false;
}

std::vector<int> CurrentPlan::Awaited(const Membership& members) const {
  const bool partial = IsPartial(members);
  if (!digest_.empty() || !answers_.AnyWaits(members) || (!partial && contradiction_.ok())) return {};
  std::vector<int> awaited;
  for (int rank = 0; rank < members.world_size(); ++rank) {
    const Member* member = members.Find(rank);
    const bool here = member != nullptr && !member->state.trainer().layout_digest().empty();
    if (!here || (!partial && !answers_.Waits(*member))) awaited.push_back(rank);
  }
  return awaited;
}

void CurrentPlan::GiveUp(const JobContext& context) {
  waiting_since_ = absl::InfiniteFuture();
  std::vector<NamedRank> late;
  for (const int rank : Awaited(context.members)) {
    const Member* member = context.members.Find(rank);
    std::string detail = member == nullptr                     ? "no agent is registered"
                         : !member->state.trainer().attached() ? "no trainer attached"
                         : contradiction_.ok()                 ? "its trainer has declared no layout"
                                                               : "its trainer has not called prepare again";
    if (!contradiction_.ok() && late.empty()) {
      absl::StrAppend(&detail, ", and as its layout is now, ", ReasonName(contradiction_), ": ",
                      contradiction_.message());
    }
    late.push_back({rank, v1::Phase::WAITING, std::move(detail)});
  }
  called_ = !late.empty();
  if (!called_) return;  // those that waited are gone
  Refuse(ErrorNaming(Reason::kRankLate, context, {"save", std::nullopt}, "held up the plan", std::move(late)),
         context.members);
}

void CurrentPlan::WriteTo(const Member& member, v1::SynchronizeAgentResponse& response) const {
  const PrepareAnswers::Answer answer = answers_.Of(member);
  // A call keeps the plan that it got until the trainer has heard of it: without that it could not call again.
  response.set_current_plan_digest(answer == PrepareAnswers::Answer::kPlan ? last_digest_ : digest_);
  if (answer == PrepareAnswers::Answer::kError) *response.mutable_current_plan_error() = StatusToProto(error_);
}

}  // namespace cairn
