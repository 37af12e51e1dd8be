#include "coordinator/save/save_view.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

// Returns another step than `step` that the member's trainer saves, and that not all ranks have begun; nothing if there
// is none. `member` may be null.
std::optional<int64_t> OtherStepOf(const Member* member, int64_t step) {
  std::optional<int64_t> other;
  if (member == nullptr) return other;
  for (const v1::SaveState& state : member->state.saves()) {
    // An attempt gets its number when all ranks have begun it, and then its trainer may be on its way to this step.
    const bool open = state.phase() == v1::Phase::PLANNING || state.phase() == v1::Phase::STAGING ||
                      state.phase() == v1::Phase::STAGED;
    if (state.step() != step && state.attempt() == 0 && open) other = state.step();
  }
  return other;
}

// A rank that has not begun is worth a word after this time.
constexpr absl::Duration kNoteAfter = absl::Seconds(5);

bool IsInALoad(const Member& member) {
  const auto& loads = member.state.loads();
  return std::any_of(loads.begin(), loads.end(), [](const v1::LoadState& load) {
    return load.phase() == v1::Phase::PLANNING || load.phase() == v1::Phase::READING;
  });
}

// "waits for shards of rank 3"; empty if it waits for none of a world of `ranks`.
std::string AwaitedShards(const v1::SaveState& state, size_t ranks) {
  std::vector<int> others;
  for (const uint32_t other : state.awaited_ranks()) {
    if (other < ranks) others.push_back(static_cast<int>(other));
  }
  if (others.empty()) return "";
  return absl::StrCat("waits for shards of ", others.size() == 1 ? "rank " : "ranks ", JoinRanks(others));
}

}  // namespace

v1::Phase::Value SaveView::PhaseOf(const SaveRank& rank) const {
  if (!rank.begun) return v1::Phase::WAITING;
  switch (rank.state.phase()) {
    case v1::Phase::STAGING:
      return v1::Phase::STAGING;
    case v1::Phase::STAGED:
      return v1::Phase::STAGED;
    case v1::Phase::WRITING:
      return v1::Phase::WRITING;
    case v1::Phase::WRITTEN:
      return v1::Phase::WRITTEN;
    case v1::Phase::FAILED:
    case v1::Phase::STOPPED:
      return rank.state.attempt() > 0 ? v1::Phase::WRITING : v1::Phase::STAGING;
    default:
      return save_.has_plan() ? v1::Phase::STAGING : v1::Phase::PLANNING;
  }
}

absl::Time SaveView::ProgressOf(int index, const JobContext& context) const {
  const SaveRank& rank = save_.rank(index);
  absl::Time progress = std::max(rank.progress, save_.progress_base());
  const Member* member = context.members.Find(index);
  if (member == nullptr) return progress;
  if (!rank.begun) {
    // A trainer on its way to the step is slow, not late; one that has passed it will not come.
    const std::optional<int64_t> at = member->current_step();
    if (at.has_value() && *at <= save_.step()) progress = std::max(progress, member->stepped);
  } else if (!save_.has_plan()) {
    progress = std::max(progress, member->uploaded);
  }
  return progress;
}

std::string SaveView::DetailOf(int index, const JobContext& context) const {
  const SaveRank& rank = save_.rank(index);
  const Member* member = context.members.Find(index);
  std::string text = absl::StrCat("no progress for ", DurationText(context.now - ProgressOf(index, context)));
  if (member == nullptr) return absl::StrCat(text, ", no agent registered");
  if (!rank.begun) {
    if (const std::optional<int64_t> other = OtherStepOf(member, save_.step()); other.has_value()) {
      absl::StrAppend(&text, ", its trainer saves step ", *other);
    } else if (IsInALoad(*member)) {
      absl::StrAppend(&text, ", its trainer is in a load");
    } else if (!IsSilent(*member, context)) {
      absl::StrAppend(&text, ", its trainer has not begun the save");
    }
    if (member->current_step().has_value()) absl::StrAppend(&text, ", last reported step ", *member->current_step());
    if (const absl::Duration gone = context.now - rank.awaited.trainer_gone(); gone >= absl::ZeroDuration()) {
      // A launcher starts all trainers of a job anew, one after the other: the save is theirs as well as anybody's.
      const absl::Duration left = std::max(context.options.lease_ttl - gone, absl::ZeroDuration());
      absl::StrAppend(&text, ", its trainer ended ", DurationText(gone), " ago, and the next one has ",
                      DurationText(left), " left to attach before the save is given up");
    } else if (member->reported && !member->state.trainer().attached()) {
      absl::StrAppend(&text, ", no trainer attached");
    }
  } else if (rank.state.bytes_total() > 0) {
    absl::StrAppend(&text, ", ", BytesText(rank.state.bytes_done(), rank.state.bytes_total()));
  }
  if (const std::string halt = HaltOf(*member, context); !halt.empty() && !rank.staged()) {
    absl::StrAppend(&text, ", ", halt);
  }
  if (const std::string others = AwaitedShards(rank.state, save_.ranks().size()); !others.empty())
    absl::StrAppend(&text, ", ", others);
  absl::StrAppend(&text, SilenceOf(*member, context));
  if (!member->node.empty()) absl::StrAppend(&text, ", node ", member->node);
  return text;
}

std::vector<int> SaveView::Awaited(const JobContext& context) const {
  std::vector<int> ranks = AllAwaited(context);
  const bool held = save_.exchange().undecided() && !save_.AllStaged();
  std::erase_if(ranks, [&](int rank) {
    const SaveRank& waiting = save_.rank(rank);
    if (held && save_.exchange().Has(rank) && waiting.staged()) return true;
    const auto& others = waiting.state.awaited_ranks();
    return std::any_of(others.begin(), others.end(),
                       [&](uint32_t other) { return other < save_.ranks().size() && !save_.ranks()[other].staged(); });
  });
  return ranks;
}

std::vector<int> SaveView::AllAwaited(const JobContext& context) const {
  std::vector<int> ranks;
  const bool all_begun = save_.AllBegun(context);
  for (size_t i = 0; i < save_.ranks().size(); ++i) {
    const SaveRank& rank = save_.ranks()[i];
    bool awaited;
    if (!all_begun) {
      awaited = !rank.begun;
    } else if (!save_.has_plan()) {
      awaited = !context.layouts.contains(rank.state.layout_digest());
    } else {
      awaited = save_.attempt() > 0 ? !save_.Written(rank) : !rank.staged();
    }
    if (awaited) ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

std::vector<int> SaveView::AtFault(std::vector<int> ranks, const JobContext& context) const {
  // Only a rank that has not begun may wait for another one's trainer; what comes then is its agent's work, or its own
  // copy.
  return save_.AllBegun(context) ? ranks : HoldingUp(std::move(ranks), context);
}

std::vector<NamedRank> SaveView::Named(const std::vector<int>& ranks, const JobContext& context) const {
  std::vector<NamedRank> named;
  for (const int rank : ranks) named.push_back({rank, PhaseOf(save_.rank(rank)), DetailOf(rank, context)});
  return named;
}

bool SaveView::IsLate(int index, const JobContext& context) const {
  if (save_.ended()) return false;
  const Member* member = context.members.Find(index);
  if (member == nullptr || context.now - member->heard > context.options.lease_ttl / 2) return true;
  if (member->halted() && !save_.rank(index).staged()) return true;
  const absl::Duration idle = context.now - ProgressOf(index, context);
  return idle > context.options.phase_timeout / 2;
}

NoteworthyRanks SaveView::Noteworthy(const JobContext& context) const {
  NoteworthyRanks ranks;
  if (save_.ended()) return ranks;
  ranks.awaited = Awaited(context);
  for (const int rank : ranks.awaited) {
    if (IsLate(rank, context)) ranks.late.push_back(rank);
  }
  return ranks;
}

v1::Checkpoint SaveView::Checkpoint(const JobContext& context) const {
  if (ShownRanks::FitsWhole(save_.ranks().size())) return Checkpoint(context, ShownRanks::All());
  NoteworthyRanks ranks = Noteworthy(context);
  ranks.late.insert(ranks.late.end(), ranks.awaited.begin(), ranks.awaited.end());
  return Checkpoint(context, ShownRanks::Of(ranks.late));
}

v1::Checkpoint SaveView::Checkpoint(const JobContext& context, const ShownRanks& shown) const {
  v1::Checkpoint view;
  view.set_job(context.job);
  view.set_step(save_.step());
  view.set_attempt(save_.attempt());
  view.set_revision(save_.ended() ? save_.end_revision() : context.revision);
  view.set_coordinator_epoch(context.options.coordinator_epoch);
  view.set_request_id(save_.request_id());
  if (save_.attempt() > 0) view.set_data_directory(AttemptDirectory(context.job, save_.step(), save_.attempt()));
  view.set_world_size(static_cast<uint32_t>(save_.ranks().size()));
  view.set_bytes(save_.planned_bytes());
  view.set_state(save_.phase());
  if (!save_.stalled().ok()) *view.mutable_error() = StatusToProto(save_.stalled());
  if (save_.phase() == v1::Phase::ABORTING || save_.phase() == v1::Phase::ABORTED)
    *view.mutable_error() = StatusToProto(save_.error());
  if (save_.phase() == v1::Phase::COMMITTED) {
    view.set_bytes(save_.outcome().bytes);
    view.set_world_size(save_.outcome().world_size);
    SetTimestamp(save_.outcome().time, *view.mutable_commit_time());
    for (const absl::Status& warning : save_.warnings()) *view.add_warnings() = StatusToProto(warning);
  }
  SetTimestamp(save_.created_wall(), *view.mutable_create_time());
  save_.exchange().Describe(view);
  if (save_.phase() == v1::Phase::COMMITTED) return view;
  const std::vector<int> late_ranks = Noteworthy(context).late;
  RankTally tally;
  for (size_t i = 0; i < save_.ranks().size(); ++i) {
    const int index = static_cast<int>(i);
    const SaveRank& rank = save_.ranks()[i];
    const bool late = std::binary_search(late_ranks.begin(), late_ranks.end(), index);
    tally.Add(PhaseOf(rank), rank.state.bytes_done(), rank.state.bytes_total(), late);
    if (!shown.contains(index)) continue;
    v1::RankProgress& progress = *view.add_ranks();
    progress.set_rank(static_cast<uint32_t>(index));
    progress.set_phase(PhaseOf(rank));
    progress.set_bytes_done(rank.state.bytes_done());
    progress.set_bytes_total(rank.state.bytes_total());
    if (const Member* member = context.members.Find(index); member != nullptr) progress.set_node(member->node);
    const absl::Duration idle = context.now - ProgressOf(index, context);
    SetDuration(idle, *progress.mutable_idle());
    progress.set_late(late);
    if (late) {
      progress.set_note(DetailOf(index, context));
    } else if (!rank.begun) {
      if (const auto other = OtherStepOf(context.members.Find(index), save_.step())) {
        progress.set_note(absl::StrCat("saves step ", *other));
      } else if (!save_.ended() && (idle >= kNoteAfter || rank.awaited.trainer_gone() <= context.now)) {
        progress.set_note(DetailOf(index, context));
      }
    } else {
      progress.set_note(AwaitedShards(rank.state, save_.ranks().size()));
    }
  }
  tally.WriteTo(view);
  return view;
}

}  // namespace cairn
