#include "coordinator/membership/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/base/random_id.h"
#include "common/format/checkpoint_path.h"
#include "common/rpc/short_report.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr uint32_t kMaxWorldSize = 1 << 17;

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

uint32_t Member::marks() const {
  const bool says = incarnation != 0 && reported;
  return uint32_t{incarnation != 0} << kPresent | uint32_t{says} << kReported |
         uint32_t{says && !state.trainer().layout_digest().empty()} << kWithLayout |
         uint32_t{says && !asked.empty()} << kAsking;
}

std::optional<int64_t> Member::current_step() const {
  if (!reported || !state.trainer().has_current_step()) return std::nullopt;
  const int64_t step = state.trainer().current_step();
  return CheckStep(step).ok() ? std::optional(step) : std::nullopt;
}

bool Member::halted() const {
  if (!has_trainer()) return false;
  const v1::JobRank::TrainerProcess process = state.trainer().process();
  return process == v1::JobRank::STOPPED || process == v1::JobRank::UNINTERRUPTIBLE || process == v1::JobRank::GONE;
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
  const int rank = static_cast<int>(agent.rank());
  const int world_size = static_cast<int>(request.world_size());
  const Member* held = Find(rank);
  const bool other = held != nullptr && held->incarnation != agent.incarnation();
  const bool succeeds = other && std::ranges::count(request.predecessors(), held->incarnation) > 0;
  if (other && !succeeds && now - deaf_ <= held->lease_end) {
    return MakeError(
        Reason::kRankConflict,
        absl::StrCat(job_, ": rank ", rank, " is held by agent ", ShortId(held->incarnation), " on ",
                     held->node.empty() ? "an unnamed node" : held->node, ", heard ", DurationText(now - held->heard),
                     " ago; its lease ends in ", DurationText(held->lease_end - (now - deaf_))),
        {{"job", job_}, {"rank", absl::StrCat(rank)}, {"node", held->node}});
  }
  const bool alone = empty() || (size() == 1 && held != nullptr);
  if (!alone && world_size != world_size_) {
    return MakeError(Reason::kWorldSizeMismatch,
                     absl::StrCat(job_, ": rank ", rank, " says ", world_size, " ranks, the ", size(),
                                  " live agents say ", world_size_),
                     {{"job", job_}, {"rank", absl::StrCat(rank)}});
  }
  if (other) {
    Drop(rank);
    held = nullptr;
  }
  const bool changed = held == nullptr || world_size != world_size_;
  if (world_size != world_size_) last_trainer_.erase(last_trainer_.lower_bound(world_size), last_trainer_.end());
  world_size_ = world_size;
  slots_.Change(static_cast<size_t>(rank), [&](Member& member) {
    if (held == nullptr) {
      member.rank = rank;
      member.stepped = member.process_since = now;
      member.by_silence = by_silence_.insert(by_silence_.end(), rank);
    }
    member.incarnation = agent.incarnation();
    member.node = request.node();
    member.transfer_address = request.transfer_address();
    member.descriptor_socket = request.descriptor_socket();
    member.boot_id = request.boot_id();
    member.nccl = request.nccl();
    member.short_orders = request.short_orders();
  });
  Renew(rank, now);
  if (changed) ++epoch_;
  return changed;
}

void Membership::Renew(int rank, absl::Time now) {
  slots_.Change(static_cast<size_t>(rank), [&](Member& member) {
    member.heard = now;
    member.lease_end = now - deaf_ + lease_ttl_;
    by_silence_.splice(by_silence_.end(), by_silence_, member.by_silence);
  });
}

absl::StatusOr<const Member*> Membership::Authenticate(const v1::AgentIdentity& agent, absl::Time now) {
  const Member& member = slots_[agent.rank()];
  if (member.incarnation == 0) {
    return MakeError(Reason::kNotRegistered, absl::StrCat(job_, ": rank ", agent.rank(), " is not registered"),
                     {{"job", job_}, {"rank", absl::StrCat(agent.rank())}});
  }
  if (member.incarnation != agent.incarnation()) {
    return MakeError(Reason::kStaleIncarnation,
                     absl::StrCat(job_, ": rank ", agent.rank(), " belongs to agent ", ShortId(member.incarnation),
                                  " now, not to ", ShortId(agent.incarnation())),
                     {{"job", job_}, {"rank", absl::StrCat(agent.rank())}});
  }
  Renew(member.rank, now);
  return &member;
}

absl::StatusOr<v1::AgentState> Membership::Complete(const Member& member,
                                                    const v1::SynchronizeAgentRequest& request) const {
  v1::AgentState known;
  const bool has_base = member.reported && request.base_sequence() <= member.sequence;
  if (has_base && known.ParseFromString(member.report)) return WholeState(std::move(known), request.state());
  return MakeError(
      Reason::kNotRegistered,
      absl::StrCat(job_, ": rank ", member.rank, " leaves out what it said before, which is not known here"),
      {{"job", job_}, {"rank", absl::StrCat(member.rank)}});
}

ReportChange Membership::Report(const Member& before, const v1::AgentState& state, uint64_t sequence,
                                LayoutTable& layouts, absl::Time now) {
  ReportChange change;
  slots_.Change(static_cast<size_t>(before.rank),
                [&](Member& member) { change = Keep(member, state, sequence, layouts, now); });
  if (!change.stale && !change.same && state.trainer().attached()) {
    last_trainer_[before.rank] = state.trainer().incarnation();
  }
  return change;
}

ReportChange Membership::Keep(Member& member, const v1::AgentState& state, uint64_t sequence, LayoutTable& layouts,
                              absl::Time now) {
  ReportChange change;
  change.stale = sequence != 0 && sequence <= member.sequence;
  if (change.stale) return change;
  member.sequence = std::max(member.sequence, sequence);
  std::string report = state.SerializeAsString();
  change.first = !member.reported;
  change.same = !change.first && report == member.report;
  if (change.same) return change;
  const v1::TrainerState& now_trainer = state.trainer();
  const v1::TrainerState& then_trainer = member.state.trainer();
  const std::optional<int64_t> before = member.current_step();
  const bool same_trainer = then_trainer.incarnation() == now_trainer.incarnation();
  change.trainer = !same_trainer || then_trainer.attached() != now_trainer.attached();
  change.layout = then_trainer.layout_digest() != now_trainer.layout_digest();
  change.prepare = then_trainer.prepare_calls() != now_trainer.prepare_calls();
  if (!same_trainer || then_trainer.process() != now_trainer.process()) member.process_since = now;
  ++member.changes;
  member.report = std::move(report);
  member.reported = true;
  member.state = state;
  member.asked.clear();
  member.state.clear_saves();
  for (const v1::SaveState& save : state.saves()) {
    if (save.phase() == v1::Phase::ASKED) {
      member.asked.push_back(save);
    } else {
      *member.state.add_saves() = save;
    }
  }
  HoldExactly(layouts, LayoutsOf(member.state), member.layouts);
  const std::optional<int64_t> after = member.current_step();
  if (!same_trainer) member.pace = StepPace();
  if (after != before) {
    if (after.has_value()) member.pace.Moved(*after, now);
    member.stepped = now;
  }
  return change;
}

void Membership::Drop(int rank) {
  slots_.Change(static_cast<size_t>(rank), [&](Member& member) {
    by_silence_.erase(member.by_silence);
    member = Member();
  });
}

void Membership::Remove(int rank) {
  if (Find(rank) == nullptr) return;
  Drop(rank);
  ++epoch_;
}

std::vector<int> Membership::Expire(absl::Time now) {
  std::vector<int> ranks;
  while (!by_silence_.empty() && now - deaf_ > Find(by_silence_.front())->lease_end) {
    ranks.push_back(by_silence_.front());
    Drop(ranks.back());
  }
  if (!ranks.empty()) ++epoch_;
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> Membership::Asking() const {
  std::vector<int> ranks;
  if (slots_.count(Member::kAsking) == 0) return ranks;
  for (const auto& [rank, member] : members()) {
    if (!member.asked.empty()) ranks.push_back(rank);
  }
  return ranks;
}

size_t Membership::Reporting(int64_t step) const {
  size_t count = 0;
  for (const auto& [rank, member] : members()) {
    count += std::count_if(member.state.saves().begin(), member.state.saves().end(),
                           [&](const v1::SaveState& save) { return save.step() == step; });
  }
  return count;
}

uint64_t Membership::LastTrainer(int rank) const {
  const auto found = last_trainer_.find(rank);
  return found == last_trainer_.end() ? 0 : found->second;
}

std::vector<int> Membership::Absent() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (Find(rank) == nullptr) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace cairn
