#include "coordinator/job/prepare_rounds.h"

#include <algorithm>

namespace cairn {

bool PrepareRounds::Closed::IsOf(const Member& member) const {
  const v1::TrainerState& now = member.state.trainer();
  return agent == member.incarnation && trainer == now.incarnation() && calls <= now.prepare_calls();
}

uint64_t PrepareRounds::CallsOf(const Member& member) const {
  const Closed& closed = closed_[static_cast<size_t>(member.rank)];
  const uint64_t calls = member.state.trainer().prepare_calls();
  return closed.IsOf(member) ? calls - closed.calls : calls;
}

uint64_t PrepareRounds::Most(const Membership& members) const {
  uint64_t most = 0;
  for (const auto& [rank, member] : members.members()) most = std::max(most, CallsOf(member));
  return most;
}

std::vector<int> PrepareRounds::Behind(const Membership& members) const {
  const uint64_t most = Most(members);
  std::vector<int> behind;
  for (const auto& [rank, member] : members.members()) {
    if (CallsOf(member) < most) behind.push_back(rank);
  }
  return behind;
}

void PrepareRounds::Fit(const Membership& members) {
  if (Behind(members).empty()) return Close(members);
  for (const auto& [rank, member] : members.members()) {
    if (!closed_[static_cast<size_t>(rank)].IsOf(member)) Begin(member);
  }
}

void PrepareRounds::Close(const Membership& members) {
  for (const auto& [rank, member] : members.members()) Begin(member);
}

void PrepareRounds::Begin(const Member& member) {
  const v1::TrainerState& trainer = member.state.trainer();
  const Closed now{member.incarnation, trainer.incarnation(), trainer.prepare_calls()};
  if (closed_[static_cast<size_t>(member.rank)] == now) return;
  closed_.At(static_cast<size_t>(member.rank)) = now;
  ++version_;
}

}  // namespace cairn
