#include "coordinator/membership/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/base/random_id.h"
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

std::optional<int64_t> Member::current_step() const {
  if (!reported || !state.trainer().has_current_step()) return std::nullopt;
  return state.trainer().current_step();
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
  if (other && request.predecessor() != held->incarnation && now - deaf_ <= held->lease_end) {
    return MakeError(
        Reason::kRankConflict,
        absl::StrCat(job_, ": rank ", rank, " is held by agent ", ShortId(held->incarnation), " on ",
                     held->node.empty() ? "an unnamed node" : held->node, ", heard ", DurationText(now - held->heard),
                     " ago; its lease ends in ", DurationText(held->lease_end - (now - deaf_))),
        {{"job", job_}, {"rank", absl::StrCat(rank)}, {"node", held->node}});
  }
  const bool alone = size_ == 0 || (size_ == 1 && held != nullptr);
  if (!alone && world_size != world_size_) {
    return MakeError(Reason::kWorldSizeMismatch,
                     absl::StrCat(job_, ": rank ", rank, " says ", world_size, " ranks, the ", size_,
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
  std::unique_ptr<Member>& slot = slots_.At(static_cast<size_t>(rank));
  if (slot == nullptr) {
    slot = std::make_unique<Member>();
    slot->rank = rank;
    slot->stepped = slot->process_since = now;
    slot->by_silence = by_silence_.insert(by_silence_.end(), rank);
    ++size_;
  }
  Member& member = *slot;
  member.incarnation = agent.incarnation();
  member.node = request.node();
  member.transfer_address = request.transfer_address();
  member.descriptor_socket = request.descriptor_socket();
  member.boot_id = request.boot_id();
  member.nccl = request.nccl();
  member.short_orders = request.short_orders();
  Renew(member, now);
  if (changed) ++epoch_;
  return changed;
}

void Membership::Renew(Member& member, absl::Time now) {
  member.heard = now;
  member.lease_end = now - deaf_ + lease_ttl_;
  by_silence_.splice(by_silence_.end(), by_silence_, member.by_silence);
}

absl::StatusOr<Member*> Membership::Authenticate(const v1::AgentIdentity& agent, absl::Time now) {
  if (slots_[agent.rank()] == nullptr) {
    return MakeError(Reason::kNotRegistered, absl::StrCat(job_, ": rank ", agent.rank(), " is not registered"),
                     {{"job", job_}, {"rank", absl::StrCat(agent.rank())}});
  }
  Member& member = *slots_[agent.rank()];
  if (member.incarnation != agent.incarnation()) {
    return MakeError(Reason::kStaleIncarnation,
                     absl::StrCat(job_, ": rank ", agent.rank(), " belongs to agent ", ShortId(member.incarnation),
                                  " now, not to ", ShortId(agent.incarnation())),
                     {{"job", job_}, {"rank", absl::StrCat(agent.rank())}});
  }
  Renew(member, now);
  return &member;
}

void Membership::Count(const Member& member, int sign) {
  const auto add = [&](size_t& count) { count += static_cast<size_t>(sign); };
  if (!member.reported) return;
  add(reported_);
  if (!member.state.trainer().layout_digest().empty()) add(with_layout_);
  for (const v1::SaveState& save : member.state.saves()) {
    const auto reporting = reporting_.try_emplace(save.step(), 0).first;
    add(reporting->second);
    if (reporting->second == 0) reporting_.erase(reporting);
  }
  if (member.asked.empty()) return;
  if (sign > 0) {
    asking_.insert(member.rank);
  } else {
    asking_.erase(member.rank);
  }
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

ReportChange Membership::Report(Member& member, const v1::AgentState& state, uint64_t sequence, LayoutTable& layouts,
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
  change.step = then_trainer.has_current_step() != now_trainer.has_current_step() ||
                then_trainer.current_step() != now_trainer.current_step() ||
                member.state.arm().number() != state.arm().number() ||
                member.state.arm().status() != state.arm().status();
  if (!same_trainer || then_trainer.process() != now_trainer.process()) member.process_since = now;
  ++member.changes;
  Count(member, -1);
  member.report = std::move(report);
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
  Count(member, +1);
  HoldExactly(layouts, LayoutsOf(member.state), member.layouts);
  const std::optional<int64_t> after = member.current_step();
  if (state.trainer().attached()) last_trainer_[member.rank] = state.trainer().incarnation();
  if (!same_trainer) member.pace = StepPace();
  if (after != before) {
    if (after.has_value()) member.pace.Moved(*after, now);
    member.stepped = now;
  }
  return change;
}

void Membership::Drop(int rank) {
  std::unique_ptr<Member>& slot = slots_.At(static_cast<size_t>(rank));
  Count(*slot, -1);
  by_silence_.erase(slot->by_silence);
  slot.reset();
  --size_;
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

size_t Membership::reporting(int64_t step) const {
  const auto found = reporting_.find(step);
  return found == reporting_.end() ? 0 : found->second;
}

uint64_t Membership::LastTrainer(int rank) const {
  const auto found = last_trainer_.find(rank);
  return found == last_trainer_.end() ? 0 : found->second;
}

std::string Membership::Inconsistency() const {
  Membership counted(job_, lease_ttl_);
  for (const auto& [rank, member] : members()) {
    ++counted.size_;
    counted.Count(member, +1);
  }
  if (counted.size_ != size_ || counted.reported_ != reported_ || counted.with_layout_ != with_layout_ ||
      counted.reporting_ != reporting_ || counted.asking_ != asking_) {
    return absl::StrCat(job_, ": the members are not counted as they are");
  }
  absl::Time heard = absl::InfinitePast();
  size_t silent = 0;
  for (const int rank : by_silence_) {
    const Member* member = Find(rank);
    if (member == nullptr || member->heard < heard) {
      return absl::StrCat(job_, ": rank ", rank, " does not stand where its silence belongs");
    }
    heard = member->heard;
    ++silent;
  }
  return silent == size_ ? "" : absl::StrCat(job_, ": the silence of some members is not watched");
}

std::vector<int> Membership::Absent() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (Find(rank) == nullptr) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace cairn
