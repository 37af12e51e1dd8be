#include "coordinator/job/prepare_answers.h"

#include <algorithm>

namespace cairn {

PrepareAnswers::Answer PrepareAnswers::Of(const Member& member) const {
  const v1::TrainerState& trainer = member.state.trainer();
  const Call& call = calls_[static_cast<size_t>(member.rank)];
  const bool same = IsIn(member) && call.trainer == trainer.incarnation() && call.calls == trainer.prepare_calls();
  return same ? call.answer : Answer::kNone;
}

bool PrepareAnswers::AnyWaits(const Membership& members) const {
  for (const auto& [rank, member] : members.members()) {
    if (Waits(member)) return true;
  }
  return false;
}

bool PrepareAnswers::AllWait(const Membership& members) const {
  for (const auto& [rank, member] : members.members()) {
    if (!Waits(member)) return false;
  }
  return true;
}

void PrepareAnswers::OnPlan(const Membership& members) {
  for (const auto& [rank, member] : members.members()) {
    Call& call = calls_.At(static_cast<size_t>(rank));
    if (const std::string& layout = member.state.trainer().layout_digest(); call.layout != layout) call.layout = layout;
    call.times_of_plan = 0;
    if (Waits(member)) Give(member, Answer::kPlan);
  }
}

void PrepareAnswers::GivePlanToThoseBehind(const Membership& members) {
  uint32_t most = 0;
  for (const auto& [rank, member] : members.members()) {
    most = std::max(most, calls_[static_cast<size_t>(rank)].times_of_plan);
  }
  for (const auto& [rank, member] : members.members()) {
    const Call& call = calls_[static_cast<size_t>(rank)];
    const bool unchanged = call.layout == member.state.trainer().layout_digest();
    if (unchanged && call.times_of_plan < most && Waits(member)) Give(member, Answer::kPlan);
  }
}

void PrepareAnswers::GiveError(const Membership& members) {
  for (const auto& [rank, member] : members.members()) {
    if (Waits(member)) Give(member, Answer::kError);
  }
}

void PrepareAnswers::Give(const Member& member, Answer answer) {
  Call& call = calls_.At(static_cast<size_t>(member.rank));
  call.trainer = member.state.trainer().incarnation();
  call.calls = member.state.trainer().prepare_calls();
  call.answer = answer;
  if (answer == Answer::kPlan) ++call.times_of_plan;
  ++version_;
}

}  // namespace cairn
