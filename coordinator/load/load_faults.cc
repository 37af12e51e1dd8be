// Decides what ends a load before all ranks are done, and whom its error names.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/base/shell_word.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/load/load.h"

namespace cairn {
namespace {

constexpr absl::Duration kFailureGrace = absl::Milliseconds(500);
// When a job restarts, a trainer may ask for its load while another rank's old one is still seen, or ends. The next one
// has this long to attach.
constexpr absl::Duration kNextTrainerGrace = absl::Seconds(10);
// Damaged steps that an error names.
constexpr size_t kMaxPassedOverNamed = 4;

bool IsDamage(const absl::Status& error) {
  const auto reason = ReasonOf(error);
  return reason == Reason::kChecksumMismatch || reason == Reason::kFileMissing || reason == Reason::kFileTruncated ||
         reason == Reason::kBadSafetensors || reason == Reason::kManifestCorrupt;
}

std::string VerifyText(const JobContext& context, int64_t step) {
  const std::string& root = context.options.root;
  return absl::StrCat("`cairn verify ", context.job, "@", step, " --root ", root.empty() ? "ROOT" : ForShell(root),
                      "`");
}

// Returns the step that the trainer is about to save; nothing if it is in no save.
std::optional<int64_t> SavedStepOf(const Member& member) {
  for (const v1::SaveState& state : member.state.saves()) {
    if (state.phase() == v1::Phase::PLANNING || state.phase() == v1::Phase::STAGING) return state.step();
  }
  return std::nullopt;
}

}  // namespace

std::vector<NamedRank> Load::NamedRanks(const std::vector<int>& ranks, const JobContext& context) const {
  std::vector<NamedRank> named_ranks;
  for (int index : ranks) {
    const Rank& rank = ranks_[static_cast<size_t>(index)];
    const Member* member = context.members.Find(index);
    std::string detail = absl::StrCat("no progress for ", DurationText(context.now - ProgressOf(index, context)));
    if (member == nullptr) {
      absl::StrAppend(&detail, ", no agent registered");
    } else {
      if (rank.begun) {
        // What it does can be seen below.
      } else if (const std::optional<int64_t> saved = SavedStepOf(*member); saved.has_value()) {
        absl::StrAppend(&detail, ", its trainer saves step ", *saved);
      } else if (!IsSilent(*member, context)) {
        absl::StrAppend(&detail, member->reported && !member->state.trainer().attached()
                                     ? std::string(", no trainer attached")
                                     : absl::StrCat(", its trainer has not begun the ", std::string(operation().kind)));
      }
      if (rank.state.bytes_total() > 0) {
        absl::StrAppend(&detail, ", ", BytesText(rank.state.bytes_done(), rank.state.bytes_total()));
      }
      if (const std::string halt = HaltOf(*member, context); !halt.empty() && rank.state.phase() != v1::Phase::DONE) {
        absl::StrAppend(&detail, ", ", halt);
      }
      if (const absl::Duration gone = context.now - rank.awaited.trainer_gone();
          !rank.begun && gone >= absl::ZeroDuration()) {
        absl::StrAppend(&detail, ", its trainer ended ", DurationText(gone), " ago, and the next one has ",
                        DurationText(std::max(kNextTrainerGrace - gone, absl::ZeroDuration())),
                        " left to attach before the load is given up");
      }
      absl::StrAppend(&detail, SilenceOf(*member, context));
      if (!member->node.empty()) absl::StrAppend(&detail, ", node ", member->node);
    }
    named_ranks.push_back({index, PhaseOf(rank), std::move(detail)});
  }
  return named_ranks;
}

bool Load::CheckMembers(const JobContext& context) {
  const size_t world = static_cast<size_t>(context.members.world_size());
  ranks_.Grow(world);
  if (world > 0 && ranks_.size() != world) {
    Fail(OperationError(Reason::kRankLost, context, operation(), "the job's world size changed during the load"),
         context);
    return false;
  }
  MemberFaults faults;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int index = static_cast<int>(i);
    std::optional<MemberFault> fault = LookAt(index, context);
    if (fault.has_value()) faults.Add(index, PhaseOf(ranks_[i]), *std::move(fault));
  }
  if (!faults.empty()) {
    // Those that have a plan have all begun it, and were told so: they are in it together.
    if (!has_plan()) ReleaseSuccessors(ranks_, *timeline_);
    Fail(std::move(faults).ToError(context, operation()), context);
  }
  return !ended();
}

std::optional<MemberFault> Load::LookAt(int index, const JobContext& context) {
  const Member* member = context.members.Find(index);
  if (member == nullptr) {
    const Rank& rank = ranks_[static_cast<size_t>(index)];
    // Others may still take bytes from a rank that is done itself.
    if (!rank.begun && !rank.awaited.agent_seen()) return std::nullopt;
    return MemberFault{false, "its agent is gone"};
  }
  const Rank& rank = ranks_[static_cast<size_t>(index)];
  if (!rank.begun && member->heard < created_) return std::nullopt;
  const bool same_agent = !rank.begun || member->incarnation == rank.agent;
  ranks_.Change(static_cast<size_t>(index), [&](Rank& seen) {
    seen.awaited.SeeAgent();
    const bool looks = same_agent && member->reported && (!seen.begun || seen.awaited.trainer() == 0);
    if (looks) seen.awaited.SeeTrainer(*member, context.now);
  });
  if (!same_agent) return MemberFault{false, "its agent was restarted"};
  if (!member->reported) return std::nullopt;
  const Rank& rank_now = ranks_[static_cast<size_t>(index)];
  const v1::TrainerState& trainer = member->state.trainer();
  if (!rank_now.begun) {
    if (context.now - rank_now.awaited.trainer_gone() < kNextTrainerGrace) return std::nullopt;
    return MemberFault{true, "its trainer ended and none has taken its place"};
  }
  // If the rank's load has failed, its error counts, and not that its trainer then ended.
  if (HasFailed(rank_now.state) || rank_now.state.phase() == v1::Phase::DONE || rank_now.awaited.trainer() == 0)
    return std::nullopt;
  if (trainer.attached() && trainer.incarnation() == rank_now.state.trainer_incarnation()) return std::nullopt;
  return MemberFault{true, "its trainer ended"};
}

bool Load::CheckErrors(const JobContext& context) {
  std::vector<RankError> errors;
  bool others_over = true;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (!rank.begun) continue;
    if (HasFailed(rank.state)) {
      absl::Status error = StatusFromProto(rank.state.error());
      if (error.ok()) error = MakeError(Reason::kInternal, "the agent gave the load up without a reason");
      errors.push_back({static_cast<int>(i), PhaseOf(rank), std::move(error)});
    } else {
      others_over = others_over && rank.state.phase() == v1::Phase::DONE;
    }
  }
  if (errors.empty()) return true;
  first_failure_ = std::min(first_failure_, context.now);
  // Ranks that failed at about the same time are named together; after a restart their agents have to come back first.
  const absl::Duration grace = inherited_plan_.empty() ? kFailureGrace : context.options.lease_ttl;
  const bool all = inherited_plan_.empty() || AllBegun(context);
  if (!(all && others_over) && context.now - first_failure_ < grace && !AnswersAreIn(context)) return true;
  const auto all_are = [&](std::initializer_list<Reason> reasons) {
    return std::all_of(errors.begin(), errors.end(), [&](const RankError& error) {
      return std::any_of(reasons.begin(), reasons.end(), [&](Reason reason) { return HasReason(error.error, reason); });
    });
  };
  if (all_are({Reason::kTrainerLost}) && !has_plan()) ReleaseSuccessors(ranks_, *timeline_);
  // A rank that gave up because its time was over waited for others, unless it owed bytes itself.
  std::vector<int> owing;
  bool owes_itself = false;
  for (int rank : Owing(context)) {
    const Rank& each = ranks_[static_cast<size_t>(rank)];
    if (!each.begun || !HasFailed(each.state)) {
      owing.push_back(rank);
    } else {
      owes_itself = owes_itself || has_plan();
    }
  }
  if (all_are({Reason::kTimedOut, Reason::kRankLate}) && !owing.empty() && !owes_itself) {
    Fail(ErrorNaming(Reason::kRankLate, context, operation(), "held up the others beyond their timeout",
                     NamedRanks(AllBegun(context) ? owing : HoldingUp(owing, context), context)),
         context);
  } else {
    absl::Status error = ErrorFromRanks(context, operation(), errors);
    Fail(has_plan() ? WithOlderStep(std::move(error), context) : std::move(error), context);
  }
  return false;
}

std::optional<int64_t> Load::damaged_step() const {
  const bool found = phase_ == v1::Phase::FAILED && has_plan() && plan_.IsStep() && plan_.mirror.empty();
  return found && IsDamage(error_) ? std::optional(plan_.step) : std::nullopt;
}

absl::Status Load::WithOlderStep(absl::Status error, const JobContext& context) const {
  const std::optional<int64_t> step = wanted_step();
  if (!IsDamage(error) || !step.has_value()) return error;
  if (!plan_.copy.empty()) {
    return Annotate(error,
                    absl::StrCat("step ", *step, " is damaged at the root, and the mirror ", plan_.copy, " has a copy"),
                    {{"step", absl::StrCat(*step)},
                     {"copy", plan_.copy},
                     {"next", "Load it again: it is read from the mirror then."}});
  }
  // Storage said so when the load was planned, or refused. Only in the latter case it has looked whether the files of
  // the older step are there: nobody should wait for that before each load.
  std::optional<int64_t> older = plan_.older_step;
  int64_t told = 0;
  if (!older.has_value() && absl::SimpleAtoi(MetadataOf(error)["older_step"], &told)) older = told;
  ErrorMetadata metadata = {{"job", context.job}, {"step", absl::StrCat(*step)}};
  if (older.has_value()) metadata.emplace_back("older_step", absl::StrCat(*older));
  for (const auto& [key, value] : MetadataOf(error)) {
    if (key != "job" && key != "step" && key != "older_step" && (key != "next" || !older.has_value())) {
      metadata.emplace_back(key, value);
    }
  }
  std::string message = absl::StrCat(error.message(), "; step ", *step, " is damaged: ");
  if (!older.has_value()) {
    absl::StrAppend(&message, "no older step is ", has_plan() ? "committed" : "valid");
  } else if (!has_plan()) {
    absl::StrAppend(&message, "the next older one that is valid is step ", *older);
    metadata.emplace_back("next", absl::StrCat("Load step ", *older, "; ", VerifyText(context, *step),
                                               " names all that is damaged in step ", *step, "."));
  } else {
    absl::StrAppend(&message, "the next older one is step ", *older);
    metadata.emplace_back("next", absl::StrCat("Load step ", *older, "; nobody has looked at its files, and ",
                                               VerifyText(context, *older), " says whether they are whole."));
  }
  // Whoever asked for the latest must not take them for a way out.
  const size_t named = std::min(plan_.passed_over.size(), kMaxPassedOverNamed);
  for (size_t i = 0; i < named; ++i) {
    const auto& [newer, damage] = plan_.passed_over[i];
    absl::StrAppend(&message, i == 0 ? "; damaged too, and passed over: step " : ", ", newer, " (",
                    std::string(InfoOf(ReasonOf(damage).value_or(Reason::kInternal)).name), ")");
  }
  if (named < plan_.passed_over.size()) absl::StrAppend(&message, " and ", plan_.passed_over.size() - named, " more");
  return MakeError(*ReasonOf(error), message, metadata);
}

bool Load::AnswersAreIn(const JobContext& context) const {
  return !inherited_plan_.empty() && context.members.all_reported();
}

bool Load::CheckInherited(const JobContext& context) {
  if (AllBegun(context) || !AnswersAreIn(context)) return true;
  std::vector<NamedRank> gone;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].begun) gone.push_back({static_cast<int>(i), v1::Phase::READING, "it is not in it any more"});
  }
  Fail(ErrorNaming(Reason::kCoordinatorRestarted, context, operation(), "lost the load while the coordinator restarted",
                   std::move(gone)),
       context);
  return false;
}

bool Load::CheckAgreement(const JobContext& context) {
  const v1::LoadState& first = ranks_.front().state;
  for (size_t i = 1; i < ranks_.size(); ++i) {
    const v1::LoadState& other = ranks_[i].state;
    if (first.source_layout_digest().empty() == other.source_layout_digest().empty() &&
        first.has_step() == other.has_step() && first.step() == other.step() && first.strict() == other.strict() &&
        first.fallback() == other.fallback() && first.verify_fingerprints() == other.verify_fingerprints()) {
      continue;
    }
    const auto name = [](const v1::LoadState& state) {
      if (!state.source_layout_digest().empty()) return absl::StrCat("reshard", state.strict() ? "" : " (not strict)");
      return absl::StrCat("load of ", state.has_step() ? absl::StrCat("step ", state.step()) : "the latest step",
                          state.strict() ? "" : " (not strict)",
                          state.has_step() || state.fallback() ? "" : " (without fallback)",
                          state.verify_fingerprints() ? " (to be verified)" : "");
    };
    Fail(MakeError(Reason::kBadRequest,
                   absl::StrCat(context.job, ": ranks do not load the same: rank 0 called ", name(first), ", rank ", i,
                                " called ", name(other), "; let all ranks call the same"),
                   {{"job", context.job},
                    {"ranks", absl::StrCat("0, ", i)},
                    {"phase", "planning"},
                    {"next", "Let every rank call load with the same step, strict, fallback and verify, or reshard."}}),
         context);
    return false;
  }
  return true;
}

}  // namespace cairn
