#include "coordinator/membership/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr uint32_t kMaxWorldSize = 1 << 17;
constexpr double kRateSmoothing = 0.3;

std::vector<std::string> LayoutsOf(const v1::AgentState& state) {
  std::vector<std::string> digests = {state.trainer().layout_digest()};
  for (const v1::SaveState& save : state.saves()) digests.push_back(save.layout_digest());
  for (const v1::LoadState& load : state.loads()) {
    digests.push_back(load.layout_digest());
    digests.push_back(load.source_layout_digest());
  }
  return digests;
}

}  // namespace

std::optional<int64_t> Member::current_step() const {
  if (!reported || !state.trainer().has_current_step()) return std::nullopt;
  return state.trainer().current_step();
}

absl::StatusOr<bool> Membership::Register(const v1::RegisterAgentRequest& request, absl::Time now) {
  const v1::AgentIdentity& agent = request.agent();
  if (agent.incarnation() == 0) return MakeError(Reason::kBadRequest, "an agent's incarnation must not be 0");
  if (request.world_size() == 0 || request.world_size() > kMaxWorldSize) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("world size ", request.world_size(), " is not from 1 to ", kMaxWorldSize));
  }
  if (agent.rank() >= request.world_size()) {
    return MakeError(Reason::kRankOutOfRange,
                     absl::StrCat(job_, ": rank ", agent.rank(), " of a world of ", request.world_size()),
                     {{"job", job_}, {"rank", absl::StrCat(agent.rank())}});
  }
  Expire(now);
  const int rank = static_cast<int>(agent.rank());
  const int world_size = static_cast<int>(request.world_size());
  auto held = members_.find(rank);
  const bool other = held != members_.end() && held->second.incarnation != agent.incarnation();
  if (other && request.predecessor() != held->second.incarnation) {
    const Member& holder = held->second;
    return MakeError(Reason::kRankConflict,
                     absl::StrCat(job_, ": rank ", rank, " is held by agent ", ShortId(holder.incarnation), " on ",
                                  holder.node.empty() ? "an unnamed node" : holder.node, ", heard ",
                                  absl::FormatDuration(absl::Trunc(now - holder.heard, absl::Milliseconds(100))),
                                  " ago; its lease ends in ",
                                  absl::FormatDuration(absl::Trunc(holder.lease_end - now, absl::Milliseconds(100)))),
                     {{"job", job_}, {"rank", absl::StrCat(rank)}, {"node", holder.node}});
  }
  const bool alone = members_.empty() || (members_.size() == 1 && held != members_.end());
  if (!alone && world_size != world_size_) {
    return MakeError(Reason::kWorldSizeMismatch,
                     absl::StrCat(job_, ": rank ", rank, " says ", world_size, " ranks, the ", members_.size(),
                                  " live agents say ", world_size_),
                     {{"job", job_}, {"rank", absl::StrCat(rank)}});
  }
  if (other) {
    members_.erase(held);
    held = members_.end();
  }
  const bool changed = held == members_.end() || world_size != world_size_;
  world_size_ = world_size;
  last_trainer_.erase(last_trainer_.lower_bound(world_size), last_trainer_.end());
  Member& member = members_[rank];
  if (held == members_.end()) member.stepped = now;
  member.rank = rank;
  member.incarnation = agent.incarnation();
  member.node = request.node();
  member.transfer_address = request.transfer_address();
  member.descriptor_socket = request.descriptor_socket();
  member.boot_id = request.boot_id();
  member.heard = now;
  member.lease_end = now + lease_ttl_;
  if (changed) ++epoch_;
  return changed;
}

absl::StatusOr<Member*> Membership::Authenticate(const v1::AgentIdentity& agent, absl::Time now) {
  Expire(now);
  const auto found = members_.find(static_cast<int>(agent.rank()));
  if (found == members_.end()) {
    return MakeError(Reason::kNotRegistered, absl::StrCat(job_, ": rank ", agent.rank(), " is not registered"),
                     {{"job", job_}, {"rank", absl::StrCat(agent.rank())}});
  }
  Member& member = found->second;
  if (member.incarnation != agent.incarnation()) {
    return MakeError(Reason::kStaleIncarnation,
                     absl::StrCat(job_, ": rank ", agent.rank(), " belongs to agent ", ShortId(member.incarnation),
                                  " now, not to ", ShortId(agent.incarnation())),
                     {{"job", job_}, {"rank", absl::StrCat(agent.rank())}});
  }
  member.heard = now;
  member.lease_end = now + lease_ttl_;
  return &member;
}

bool Membership::Report(Member& member, const v1::AgentState& state, uint64_t sequence, LayoutTable& layouts,
                        absl::Time now) {
  if (sequence != 0 && sequence <= member.sequence) return false;
  member.sequence = std::max(member.sequence, sequence);
  const std::optional<int64_t> before = member.current_step();
  const bool same_trainer = member.state.trainer().incarnation() == state.trainer().incarnation();
  member.reported = true;
  member.state = state;
  member.asked.clear();
  member.state.clear_saves();
  for (const v1::SaveState& save : state.saves()) {
    if (save.phase() == v1::SaveState::ASKED) {
      member.asked.push_back(save);
    } else {
      *member.state.add_saves() = save;
    }
  }
  HoldExactly(layouts, LayoutsOf(member.state), member.layouts);
  const std::optional<int64_t> after = member.current_step();
  if (state.trainer().attached()) last_trainer_[member.rank] = state.trainer().incarnation();
  if (!same_trainer) member.steps_per_second = 0;
  if (after != before) {
    const double seconds = absl::ToDoubleSeconds(now - member.stepped);
    if (same_trainer && before.has_value() && after.has_value() && *after > *before && seconds > 0) {
      const double rate = static_cast<double>(*after - *before) / seconds;
      member.steps_per_second =
          member.steps_per_second == 0 ? rate : kRateSmoothing * rate + (1 - kRateSmoothing) * member.steps_per_second;
    }
    member.stepped = now;
  }
  return true;
}

void Membership::Remove(int rank) {
  if (members_.erase(rank) > 0) ++epoch_;
}

std::vector<int> Membership::Expire(absl::Time now) {
  std::vector<int> ranks;
  for (const auto& [rank, member] : members_) {
    if (now > member.lease_end) ranks.push_back(rank);
  }
  for (int rank : ranks) members_.erase(rank);
  if (!ranks.empty()) ++epoch_;
  return ranks;
}

const Member* Membership::Find(int rank) const {
  const auto found = members_.find(rank);
  return found == members_.end() ? nullptr : &found->second;
}

uint64_t Membership::LastTrainer(int rank) const {
  const auto found = last_trainer_.find(rank);
  return found == last_trainer_.end() ? 0 : found->second;
}

std::vector<int> Membership::Absent() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!members_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace cairn
