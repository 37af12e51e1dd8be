#include "coordinator/save/pending_replies.h"

#include <algorithm>

namespace cairn {

void PendingReplies::Open(int64_t step, size_t ranks, absl::Time tell_until) {
  open_ = true;
  step_ = step;
  tell_until_ = tell_until;
  replies_.Grow(ranks);
}

void PendingReplies::Expect(int rank, uint64_t trainer) {
  const auto at = static_cast<size_t>(rank);
  if (at >= replies_.size()) return;
  replies_.Change(at, [&](Reply& reply) {
    reply.known = true;
    reply.trainer = trainer;
  });
}

bool PendingReplies::Is(Reply::State state, const Member& member, const v1::SaveState& call) const {
  const Reply& reply = replies_[static_cast<size_t>(member.rank)];
  return reply.state == state && reply.agent == member.incarnation && call.call() <= reply.number;
}

void PendingReplies::Hold(const Member& member, const v1::SaveState& call, absl::Time now) {
  const auto at = static_cast<size_t>(member.rank);
  const Reply& pending = replies_[at];
  if (pending.trainer == 0 || pending.trainer != call.trainer_incarnation()) return;
  // It is held already, or was answered; another one if the agent restarted once more.
  if (Holds(member, call) || Gave(member, call)) return;
  replies_.Change(at, [&](Reply& reply) {
    reply.state = Reply::kHeld;
    reply.agent = member.incarnation;
    reply.number = call.call();
    reply.since = now;
  });
}

void PendingReplies::OnReport(const Member& member, std::optional<uint64_t> own_call, absl::Time now) {
  const auto at = static_cast<size_t>(member.rank);
  if (at >= replies_.size()) return;
  if (open_ && !replies_[at].known) {
    // An agent that only started since has no trainer yet, and one that comes much later has a new one.
    const v1::TrainerState& trainer = member.state.trainer();
    Expect(member.rank, trainer.attached() && now <= tell_until_ ? trainer.incarnation() : 0);
  }
  const Reply& reply = replies_[at];
  const bool given = reply.state == Reply::kGiven && reply.agent == member.incarnation;
  if (reply.trainer == 0 || (!given && !own_call.has_value())) return;
  const uint64_t number = given ? reply.number : *own_call;
  const bool open =
      std::any_of(member.state.saves().begin(), member.state.saves().end(),
                  [&](const v1::SaveState& state) { return state.step() == step_ && state.call() <= number; });
  if (!open) Heard(member.rank);
}

std::vector<int> PendingReplies::Give(const Membership& members, absl::Time now) {
  std::vector<int> ranks;
  if (replies_.count(Reply::kHeldCall) == 0) return ranks;
  for (size_t i = replies_.NextKept(0); i < replies_.size(); i = replies_.NextKept(i + 1)) {
    const Reply& held = replies_[i];
    if (held.state != Reply::kHeld || now - held.since < kNextAttemptGrace) continue;
    const Member* member = members.Find(static_cast<int>(i));
    if (member == nullptr || member->incarnation != held.agent) continue;  // nobody would hear it
    replies_.Change(i, [](Reply& reply) { reply.state = Reply::kGiven; });
    ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

void PendingReplies::Drop() {
  open_ = false;
  replies_.ChangeKept([](Reply& reply) {
    reply.trainer = 0;
    if (reply.state == Reply::kHeld) reply.state = Reply::kNone;
  });
}

}  // namespace cairn
