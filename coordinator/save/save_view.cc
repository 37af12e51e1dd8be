// Says where each rank of a save is, and what people see of it.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/save/save.h"

namespace cairn {
namespace {

// Returns another step than `step` that the member's trainer saves, and that not all ranks have begun; nothing if there
// is none. `member` may be null.
std::optional<int64_t> OtherStepOf(const Member* member, int64_t step) {
  std::optional<int64_t> other;
  if (member == nullptr) return other;
  for (const v1::SaveState& state : member->state.saves()) {
    // An attempt gets its number when all ranks have begun it, and then its trainer may be on its way to this step.
    const bool open = state.phase() == v1::SaveState::BEGUN || state.phase() == v1::SaveState::STAGING ||
                      state.phase() == v1::SaveState::STAGED;
    if (state.step() != step && state.attempt() == 0 && open) other = state.step();
  }
  return other;
}

// A rank that has not begun is worth a word after this time.
constexpr absl::Duration kNoteAfter = absl::Seconds(5);

bool IsInALoad(const Member& member) {
  const auto& loads = member.state.loads();
  return std::any_of(loads.begin(), loads.end(), [](const v1::LoadState& load) {
    return load.phase() == v1::LoadState::BEGUN || load.phase() == v1::LoadState::READING;
  });
}

// "waits for shards of rank 3"; empty if it waits for none.
std::string AwaitedShards(const v1::SaveState& state) {
  if (state.awaited_ranks().empty()) return "";
  const std::vector<int> others(state.awaited_ranks().begin(), state.awaited_ranks().end());
  return absl::StrCat("waits for shards of ", others.size() == 1 ? "rank " : "ranks ", JoinRanks(others));
}

}  // namespace

bool Save::Staged(const v1::SaveState& state) {
  return state.phase() == v1::SaveState::STAGED || state.phase() == v1::SaveState::WRITING ||
         state.phase() == v1::SaveState::WRITTEN;
}

bool Save::Failed(const v1::SaveState& state) {
  return state.phase() == v1::SaveState::FAILED || state.phase() == v1::SaveState::STOPPED;
}

v1::RankProgress::Phase Save::PhaseOf(const Rank& rank) const {
  if (!rank.begun) return v1::RankProgress::WAITING;
  switch (rank.state.phase()) {
    case v1::SaveState::STAGING:
      return v1::RankProgress::STAGING;
    case v1::SaveState::STAGED:
      return v1::RankProgress::STAGED;
    case v1::SaveState::WRITING:
      return v1::RankProgress::WRITING;
    case v1::SaveState::WRITTEN:
      return v1::RankProgress::WRITTEN;
    case v1::SaveState::FAILED:
    case v1::SaveState::STOPPED:
      return rank.state.attempt() > 0 ? v1::RankProgress::WRITING : v1::RankProgress::STAGING;
    default:
      return has_plan() ? v1::RankProgress::STAGING : v1::RankProgress::PLANNING;
  }
}

absl::Time Save::ProgressOf(int index, const Rank& rank, const JobContext& context) const {
  absl::Time progress = std::max(rank.progress, progress_base_);
  const Member* member = context.members.Find(index);
  if (member == nullptr) return progress;
  if (!rank.begun) {
    // A trainer on its way to the step is slow, not late; one that has passed it will not come.
    const std::optional<int64_t> at = member->current_step();
    if (at.has_value() && *at <= step_) progress = std::max(progress, member->stepped);
  } else if (!has_plan()) {
    progress = std::max(progress, member->uploaded);
  }
  return progress;
}

std::string Save::DetailOf(int index, const Rank& rank, const JobContext& context) const {
  const Member* member = context.members.Find(index);
  std::string text = absl::StrCat("no progress for ", DurationText(context.now - ProgressOf(index, rank, context)));
  if (member == nullptr) return absl::StrCat(text, ", no agent registered");
  if (!rank.begun) {
    if (const std::optional<int64_t> other = OtherStepOf(member, step_); other.has_value()) {
      absl::StrAppend(&text, ", its trainer saves step ", *other);
    } else if (IsInALoad(*member)) {
      absl::StrAppend(&text, ", its trainer is in a load");
    } else if (!IsSilent(*member, context)) {
      absl::StrAppend(&text, ", its trainer has not begun the save");
    }
    if (member->current_step().has_value()) absl::StrAppend(&text, ", last reported step ", *member->current_step());
    if (const absl::Duration gone = context.now - rank.trainer_gone; gone >= absl::ZeroDuration()) {
      // A launcher starts all trainers of a job anew, one after the other: the save is theirs as well as anybody's.
      const absl::Duration left = std::max(context.options.lease_ttl - gone, absl::ZeroDuration());
      absl::StrAppend(&text, ", its trainer ended ", DurationText(gone), " ago, and the next one has ",
                      DurationText(left), " left to attach before the save is given up");
    } else if (member->reported && !member->state.trainer().attached()) {
      absl::StrAppend(&text, ", no trainer attached");
    }
  } else if (rank.state.bytes_total() > 0) {
    absl::StrAppend(&text, ", ", FormatSize(static_cast<int64_t>(rank.state.bytes_done())), " of ",
                    FormatSize(static_cast<int64_t>(rank.state.bytes_total())));
  }
  if (const std::string halt = HaltOf(*member, context); !halt.empty() && !Staged(rank.state)) {
    absl::StrAppend(&text, ", ", halt);
  }
  if (const std::string others = AwaitedShards(rank.state); !others.empty()) absl::StrAppend(&text, ", ", others);
  absl::StrAppend(&text, SilenceOf(*member, context));
  if (!member->node.empty()) absl::StrAppend(&text, ", node ", member->node);
  return text;
}

std::vector<int> Save::Awaited(const JobContext& context) const {
  std::vector<int> ranks;
  const bool all_begun = AllBegun(context);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    bool awaited;
    if (!all_begun) {
      awaited = !rank.begun;
    } else if (!has_plan()) {
      awaited = !context.layouts.contains(rank.state.layout_digest());
    } else {
      awaited = attempt_ > 0 ? !Written(rank) : !Staged(rank.state);
    }
    if (awaited) ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

std::vector<int> Save::AtFault(std::vector<int> ranks, const JobContext& context) const {
  // Only a rank that has not begun may wait for another one's trainer; what comes then is its agent's work, or its own
  // copy.
  return AllBegun(context) ? ranks : HoldingUp(std::move(ranks), context);
}

std::vector<NamedRank> Save::NamedRanks(const std::vector<int>& ranks, const JobContext& context) const {
  std::vector<NamedRank> named_ranks;
  for (int rank : ranks) {
    const Rank& state = ranks_[static_cast<size_t>(rank)];
    named_ranks.push_back({rank, PhaseOf(state), DetailOf(rank, state, context)});
  }
  return named_ranks;
}

bool Save::IsLate(int index, const JobContext& context) const {
  if (ended()) return false;
  const Member* member = context.members.Find(index);
  if (member == nullptr || context.now - member->heard > context.options.lease_ttl / 2) return true;
  if (member->halted() && !Staged(ranks_[static_cast<size_t>(index)].state)) return true;
  const absl::Duration idle = context.now - ProgressOf(index, ranks_[static_cast<size_t>(index)], context);
  return idle > context.options.phase_timeout / 2;
}

NoteworthyRanks Save::Noteworthy(const JobContext& context) const {
  NoteworthyRanks ranks;
  if (ended()) return ranks;
  ranks.awaited = WithoutExcused(Awaited(context));
  for (const int rank : ranks.awaited) {
    if (IsLate(rank, context)) ranks.late.push_back(rank);
  }
  return ranks;
}

v1::Checkpoint Save::View(const JobContext& context) const {
  if (ShownRanks::FitsWhole(ranks_.size())) return View(context, ShownRanks::All());
  NoteworthyRanks ranks = Noteworthy(context);
  ranks.late.insert(ranks.late.end(), ranks.awaited.begin(), ranks.awaited.end());
  return View(context, ShownRanks::Of(ranks.late));
}

v1::Checkpoint Save::View(const JobContext& context, const ShownRanks& shown) const {
  v1::Checkpoint view;
  view.set_job(context.job);
  view.set_step(step_);
  view.set_attempt(attempt_);
  view.set_revision(revision_);
  view.set_coordinator_epoch(context.options.coordinator_epoch);
  if (!request_ids_.empty()) view.set_request_id(request_ids_.front());
  if (attempt_ > 0) view.set_data_directory(AttemptDirectory(context.job, step_, attempt_));
  view.set_world_size(static_cast<uint32_t>(ranks_.size()));
  view.set_bytes(plan_.bytes);
  switch (phase_) {
    case Phase::kCollecting:
      view.set_state(v1::Checkpoint::COLLECTING);
      break;
    case Phase::kWriting:
      view.set_state(v1::Checkpoint::WRITING);
      break;
    case Phase::kCommitting:
      view.set_state(v1::Checkpoint::COMMITTING);
      break;
    case Phase::kCommitted:
      view.set_state(v1::Checkpoint::COMMITTED);
      break;
    case Phase::kAborting:
      view.set_state(v1::Checkpoint::ABORTING);
      break;
    case Phase::kAborted:
      view.set_state(v1::Checkpoint::ABORTED);
      break;
  }
  if (!stalled_.ok()) *view.mutable_error() = StatusToProto(stalled_);
  if (phase_ == Phase::kAborting || phase_ == Phase::kAborted) *view.mutable_error() = StatusToProto(error_);
  if (phase_ == Phase::kCommitted) {
    view.set_bytes(outcome_.bytes);
    view.set_world_size(outcome_.world_size);
    SetTimestamp(outcome_.time, *view.mutable_commit_time());
    if (!warning_.ok()) *view.mutable_warning() = StatusToProto(warning_);
  }
  SetTimestamp(created_wall_, *view.mutable_create_time());
  exchange_.Describe(view);
  if (phase_ == Phase::kCommitted) return view;
  const std::vector<int> late_ranks = Noteworthy(context).late;
  RankTally tally;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int index = static_cast<int>(i);
    const Rank& rank = ranks_[i];
    const bool late = std::binary_search(late_ranks.begin(), late_ranks.end(), index);
    tally.Add(PhaseOf(rank), rank.state.bytes_done(), rank.state.bytes_total(), late);
    if (!shown.contains(index)) continue;
    v1::RankProgress& progress = *view.add_ranks();
    progress.set_rank(static_cast<uint32_t>(index));
    progress.set_phase(PhaseOf(rank));
    progress.set_bytes_done(rank.state.bytes_done());
    progress.set_bytes_total(rank.state.bytes_total());
    if (const Member* member = context.members.Find(index); member != nullptr) progress.set_node(member->node);
    const absl::Duration idle = context.now - ProgressOf(index, rank, context);
    SetDuration(idle, *progress.mutable_idle());
    progress.set_late(late);
    if (late) {
      progress.set_note(DetailOf(index, rank, context));
    } else if (!rank.begun) {
      if (const auto other = OtherStepOf(context.members.Find(index), step_)) {
        progress.set_note(absl::StrCat("saves step ", *other));
      } else if (!ended() && (idle >= kNoteAfter || rank.trainer_gone <= context.now)) {
        progress.set_note(DetailOf(index, rank, context));
      }
    } else {
      progress.set_note(AwaitedShards(rank.state));
    }
  }
  tally.WriteTo(view);
  return view;
}

}  // namespace cairn
