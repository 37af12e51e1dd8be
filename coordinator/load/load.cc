#include "coordinator/load/load.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/base/quantity.h"
#include "common/rpc/reason.h"
#include "common/rpc/status_proto.h"
#include "coordinator/job/transfer_peers.h"

namespace cairn {
namespace {

constexpr absl::Duration kFailureGrace = absl::Milliseconds(500);
// When a job restarts, a trainer may ask for its load while another rank's old one is still seen, or ends. The next one
// has this long to attach.
constexpr absl::Duration kNextTrainerGrace = absl::Seconds(10);

// From the fastest to the slowest: a load took the slowest way that one of its ranks took.
constexpr std::array<std::string_view, 3> kPaths = {"slab", "cached", "direct"};

size_t PathRank(std::string_view path) {
  return static_cast<size_t>(std::find(kPaths.begin(), kPaths.end(), path) - kPaths.begin());
}

bool HasLayouts(const v1::LoadState& state, const Context& context) {
  return context.layouts.contains(state.layout_digest()) &&
         (state.source_layout_digest().empty() || context.layouts.contains(state.source_layout_digest()));
}

bool IsDamage(const absl::Status& error) {
  const auto reason = ReasonOf(error);
  return reason == Reason::kChecksumMismatch || reason == Reason::kFileMissing || reason == Reason::kFileTruncated ||
         reason == Reason::kBadSafetensors;
}

bool Failed(const v1::LoadState& state) {
  return state.phase() == v1::LoadState::FAILED || state.phase() == v1::LoadState::STOPPED;
}

}  // namespace

bool Load::IsReshard() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return !rank.state.source_layout_digest().empty(); });
}

std::optional<int64_t> Load::wanted_step() const {
  if (IsReshard()) return std::nullopt;
  if (has_plan()) return plan_.step;
  for (const Rank& rank : ranks_) {
    if (rank.begun && rank.state.has_step()) return rank.state.step();
  }
  return std::nullopt;
}

bool Load::AllBegun(const Context& context) const {
  return context.members.world_size() > 0 && ranks_.size() == static_cast<size_t>(context.members.world_size()) &&
         std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.begun; });
}

void Load::SetPhase(Phase phase, Context& context) {
  static constexpr std::array<const char*, 4> kNames = {"COLLECTING", "READING", "DONE", "FAILED"};
  if (phase_ == phase) return;
  phase_ = phase;
  if (ended()) Drop();
  context.Log("load=", number_, wanted_step().has_value() ? absl::StrCat(" step=", *wanted_step()) : "",
              " state=", kNames[static_cast<size_t>(phase)],
              error_.ok() ? "" : absl::StrCat(" error=\"", error_.message(), "\""));
}

void Load::Drop() {
  for (Rank& rank : ranks_) {
    // What late calls are known by, and what was loaded.
    v1::LoadState kept;
    kept.set_trainer_incarnation(rank.state.trainer_incarnation());
    kept.set_source_layout_digest(rank.state.source_layout_digest());
    if (rank.state.has_step()) kept.set_step(rank.state.step());
    rank.state = std::move(kept);
  }
  plan_.missing = {};
  plan_.unexpected = {};
  plan_.transfer_token.clear();
}

void Load::Report(const Member& member, const v1::LoadState& state, Context& context) {
  if (ended()) return;
  const size_t size = std::max(static_cast<size_t>(member.rank) + 1, static_cast<size_t>(context.members.world_size()));
  if (ranks_.size() < size) ranks_.resize(size);
  Rank& rank = ranks_[static_cast<size_t>(member.rank)];
  if (rank.begun && rank.state.trainer_incarnation() != state.trainer_incarnation()) {
    ReleaseSuccessors();
    Fail(Blame(Reason::kTrainerLost, context, operation(), "lost the trainer",
               {{member.rank, PhaseOf(rank), "another trainer has begun a load of the same number"}}),
         context);
    return;
  }
  if (rank.begun && rank.agent != member.incarnation) return;  // found by CheckMembers
  const bool moved =
      !rank.begun || rank.state.phase() != state.phase() || rank.state.bytes_done() != state.bytes_done() ||
      rank.state.storage_bytes() != state.storage_bytes() || rank.state.plan_digest() != state.plan_digest() ||
      rank.state.source_staged() != state.source_staged();
  if (!moved) return;
  if (rank.begun && rank.state.phase() == v1::LoadState::DONE && !Failed(state)) return;
  rank.successor = rank.successor || (!rank.begun && IsSuccessor(rank, state.trainer_incarnation()));
  rank.begun = true;
  rank.agent = member.incarnation;
  rank.progress = context.now;
  rank.state = state;
}

std::string Load::PhaseOf(const Rank& rank) const {
  if (!rank.begun) return "waiting";
  switch (rank.state.phase()) {
    case v1::LoadState::READING:
      return !rank.state.source_layout_digest().empty() && !rank.state.source_staged() ? "staging" : "reading";
    case v1::LoadState::DONE:
      return "done";
    default:
      return has_plan() ? "reading" : "planning";
  }
}

absl::Time Load::ProgressOf(int index, const Context& context) const {
  const Rank& rank = ranks_[static_cast<size_t>(index)];
  absl::Time progress = std::max(rank.progress, progress_base_);
  const Member* member = context.members.Find(index);
  if (member != nullptr && rank.begun && !has_plan()) progress = std::max(progress, member->uploaded);
  return progress;
}

std::vector<int> Load::Awaited(const Context& context) const {
  std::vector<int> ranks;
  const bool all_begun = AllBegun(context);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    const bool awaited = !all_begun    ? !rank.begun
                         : !has_plan() ? !HasLayouts(rank.state, context)
                                       : rank.state.phase() != v1::LoadState::DONE;
    if (awaited) ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

std::vector<Culprit> Load::Culprits(const std::vector<int>& ranks, const Context& context) const {
  std::vector<Culprit> culprits;
  for (int index : ranks) {
    const Rank& rank = ranks_[static_cast<size_t>(index)];
    const Member* member = context.members.Find(index);
    std::string detail = absl::StrCat("no progress for ", Seconds(context.now - ProgressOf(index, context)));
    if (member == nullptr) {
      absl::StrAppend(&detail, ", no agent registered");
    } else {
      if (!rank.begun) absl::StrAppend(&detail, ", its trainer has not begun the ", std::string(operation().kind));
      if (rank.state.bytes_total() > 0) {
        absl::StrAppend(&detail, ", ", FormatSize(static_cast<int64_t>(rank.state.bytes_done())), " of ",
                        FormatSize(static_cast<int64_t>(rank.state.bytes_total())));
      }
      const absl::Duration silent = context.now - member->heard;
      if (silent > absl::Seconds(1)) absl::StrAppend(&detail, ", agent last heard ", Seconds(silent), " ago");
      if (!member->node.empty()) absl::StrAppend(&detail, ", node ", member->node);
    }
    culprits.push_back({index, PhaseOf(rank), std::move(detail)});
  }
  return culprits;
}

void Load::Fail(absl::Status error, Context& context) {
  if (ended()) return;
  error_ = std::move(error);
  SetPhase(Phase::kFailed, context);
}

bool Load::CheckMembers(Context& context) {
  const size_t world = static_cast<size_t>(context.members.world_size());
  if (ranks_.size() < world) ranks_.resize(world);
  if (world > 0 && ranks_.size() != world) {
    Fail(OperationError(Reason::kRankLost, context, operation(), "the job's world size changed during the load"),
         context);
    return false;
  }
  std::vector<Culprit> lost;
  std::vector<Culprit> trainers;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const int index = static_cast<int>(i);
    const Member* member = context.members.Find(index);
    if (member == nullptr) {
      // Others may still take bytes from a rank that is done itself.
      if (rank.begun || rank.seen) lost.push_back({index, PhaseOf(rank), "its agent is gone"});
      continue;
    }
    rank.seen = true;
    if (rank.begun && member->incarnation != rank.agent) {
      lost.push_back({index, PhaseOf(rank), "its agent was restarted"});
      continue;
    }
    if (!member->reported) continue;
    const v1::TrainerState& trainer = member->state.trainer();
    if (trainer.attached() && (rank.seen_trainer == 0 || !rank.begun)) {
      rank.successor = rank.successor || IsSuccessor(rank, trainer.incarnation());
      rank.seen_trainer = trainer.incarnation();
    }
    if (!rank.begun) {
      if (trainer.attached()) {
        rank.trainer_gone = absl::InfiniteFuture();
      } else if (rank.seen_trainer != 0) {
        rank.trainer_gone = std::min(rank.trainer_gone, context.now);
        if (context.now - rank.trainer_gone >= kNextTrainerGrace) {
          trainers.push_back({index, PhaseOf(rank), "its trainer ended and none has taken its place"});
        }
      }
      continue;
    }
    // Of a load that has failed the error counts, not that its trainer then ended.
    if (Failed(rank.state) || rank.state.phase() == v1::LoadState::DONE || rank.seen_trainer == 0) continue;
    if (!trainer.attached() || trainer.incarnation() != rank.state.trainer_incarnation()) {
      trainers.push_back({index, PhaseOf(rank), "its trainer ended"});
    }
  }
  if (!lost.empty() || !trainers.empty()) ReleaseSuccessors();
  if (!lost.empty()) {
    Fail(Blame(Reason::kRankLost, context, operation(), "lost", std::move(lost)), context);
  } else if (!trainers.empty()) {
    Fail(Blame(Reason::kTrainerLost, context, operation(), "lost the trainer", std::move(trainers)), context);
  }
  return !ended();
}

bool Load::IsSuccessor(const Rank& rank, uint64_t trainer) {
  return rank.seen_trainer != 0 && rank.seen_trainer != trainer;
}

void Load::ReleaseSuccessors() {
  if (ticket_ != 0) return;  // all have begun it: they are in it together
  for (Rank& rank : ranks_) {
    if (rank.successor) rank = Rank();
  }
}

bool Load::CheckErrors(Context& context) {
  std::vector<RankError> errors;
  bool others_over = true;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (rank.begun && Failed(rank.state)) {
      absl::Status error = StatusFromProto(rank.state.error());
      if (error.ok()) error = MakeError(Reason::kInternal, "the agent gave the load up without a reason");
      errors.push_back({static_cast<int>(i), "reading", std::move(error)});
    } else {
      others_over = others_over && rank.begun && rank.state.phase() == v1::LoadState::DONE;
    }
  }
  if (errors.empty()) return true;
  first_failure_ = std::min(first_failure_, context.now);
  if (!others_over && context.now - first_failure_ < kFailureGrace) return true;
  const bool timed_out = !has_plan() && std::all_of(errors.begin(), errors.end(), [](const RankError& error) {
    return HasReason(error.error, Reason::kTimedOut) || HasReason(error.error, Reason::kRankLate);
  });
  std::vector<int> awaited;
  for (int rank : Awaited(context)) {
    if (!Failed(ranks_[static_cast<size_t>(rank)].state)) awaited.push_back(rank);
  }
  if (timed_out && !awaited.empty()) {
    Fail(Blame(Reason::kRankLate, context, operation(), "held up the others beyond their timeout",
               Culprits(awaited, context)),
         context);
  } else {
    absl::Status error = BlameErrors(context, operation(), errors);
    if (IsDamage(error) && has_plan() && !IsReshard() && !ranks_.front().state.has_step()) {
      // Arrays may be filled in part, so only the trainers can tell what to load instead.
      const auto details = MetadataOf(error);
      error = MakeError(*ReasonOf(error),
                        absl::StrCat(error.message(), "; step ", plan_.step,
                                     " turned out to be damaged while it was read: load an older one by its step"),
                        ErrorMetadata(details.begin(), details.end()));
    }
    Fail(std::move(error), context);
  }
  return false;
}

bool Load::CheckAgreement(Context& context) {
  const v1::LoadState& first = ranks_.front().state;
  for (size_t i = 1; i < ranks_.size(); ++i) {
    const v1::LoadState& other = ranks_[i].state;
    if (first.source_layout_digest().empty() == other.source_layout_digest().empty() &&
        first.has_step() == other.has_step() && first.step() == other.step() && first.strict() == other.strict() &&
        first.fallback() == other.fallback()) {
      continue;
    }
    const auto name = [](const v1::LoadState& state) {
      if (!state.source_layout_digest().empty())
        return absl::StrCat("to reshard", state.strict() ? "" : " (not strict)");
      return absl::StrCat(state.has_step() ? absl::StrCat("step ", state.step()) : "the latest step",
                          state.strict() ? "" : " (not strict)",
                          state.has_step() || state.fallback() ? "" : " (without fallback)");
    };
    Fail(MakeError(Reason::kBadRequest,
                   absl::StrCat(context.job, ": ranks do not load the same: rank 0 wants ", name(first), ", rank ", i,
                                " wants ", name(other)),
                   {{"job", context.job}, {"ranks", absl::StrCat("0, ", i)}}),
         context);
    return false;
  }
  // A load that began under an earlier coordinator goes on if all ranks have its plan; its secret is theirs alone, so a
  // rank without it could not join.
  const size_t planned = static_cast<size_t>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.state.plan_digest().empty(); }));
  const bool same = std::all_of(ranks_.begin(), ranks_.end(),
                                [&](const Rank& rank) { return rank.state.plan_digest() == first.plan_digest(); });
  if (planned == 0 || same) return true;
  Fail(OperationError(Reason::kCoordinatorRestarted, context, operation(),
                      "not all ranks had the plan when the coordinator restarted"),
       context);
  return false;
}

void Load::Advance(Context& context) {
  if (ended() || !CheckMembers(context) || !CheckErrors(context)) return;
  const std::vector<int> awaited = Awaited(context);
  std::vector<int> late;
  for (int rank : awaited) {
    if (context.now - ProgressOf(rank, context) >= context.options.phase_timeout) late.push_back(rank);
  }
  // Who has not staged its source holds up all that take from it.
  std::vector<int> unstaged;
  for (int rank : late) {
    if (has_plan() && IsReshard() && !ranks_[static_cast<size_t>(rank)].state.source_staged()) unstaged.push_back(rank);
  }
  if (!unstaged.empty()) late = std::move(unstaged);
  if (!late.empty()) {
    Fail(Blame(Reason::kRankLate, context, operation(), late.size() == 1 ? "is late" : "are late",
               Culprits(late, context)),
         context);
    return;
  }
  if (ticket_ != 0 && !has_plan() && context.now - progress_base_ >= context.options.storage_patience()) {
    Fail(OperationError(Reason::kStorageStalled, context, operation(),
                        absl::StrCat("the coordinator's storage has not given what the load is planned from within ",
                                     Seconds(context.options.storage_patience()))),
         context);
    return;
  }
  if (!AllBegun(context)) return;
  if (!has_plan()) {
    if (ticket_ != 0 || !awaited.empty() || !CheckAgreement(context)) return;
    PlanLoad make;
    make.number = number_;
    make.step = wanted_step();
    make.strict = ranks_.front().state.strict();
    make.fallback = ranks_.front().state.fallback();
    for (size_t i = 0; i < ranks_.size(); ++i) {
      make.layout.push_back(ranks_[i].state.layout_digest());
      if (IsReshard()) make.source_layout.push_back(ranks_[i].state.source_layout_digest());
      const Member& member = *context.members.Find(static_cast<int>(i));
      make.node.push_back(member.node);
      const uint64_t wish = member.state.round_bytes();
      if (wish != 0) make.round_bytes = make.round_bytes == 0 ? wish : std::min(make.round_bytes, wish);
    }
    ticket_ = make.ticket = context.next_ticket++;
    progress_base_ = context.now;
    context.Do(std::move(make));
    return;
  }
  if (!std::all_of(ranks_.begin(), ranks_.end(),
                   [](const Rank& rank) { return rank.state.phase() == v1::LoadState::DONE; })) {
    return;
  }
  size_t slowest = 0;
  for (const Rank& rank : ranks_) {
    storage_bytes_ += rank.state.storage_bytes();
    if (rank.state.path().empty()) continue;
    const size_t path = PathRank(rank.state.path());
    if (path_.empty() || path >= slowest) {
      path_ = rank.state.path();
      slowest = path;
    }
  }
  SetPhase(Phase::kDone, context);
}

void Load::OnPlanned(uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan, Context& context) {
  if (ticket != ticket_ || ended() || has_plan()) return;
  if (!plan.ok()) {
    if (HasReason(plan.status(), Reason::kPlanUnknown)) {
      ticket_ = 0;  // a layout was evicted meanwhile: it is asked for again
      return;
    }
    Fail(Annotate(plan.status(), absl::StrCat(context.job, " (load)"), {{"job", context.job}, {"phase", "planning"}}),
         context);
    return;
  }
  const std::string& theirs = ranks_.front().state.plan_digest();
  if (!theirs.empty() && theirs != plan->plan_digest) {
    Fail(OperationError(Reason::kCoordinatorRestarted, context, operation(),
                        "the ranks read by a plan that is not today's"),
         context);
    return;
  }
  plan_ = *plan;
  for (const auto& [step, error] : plan_.passed_over) {
    context.Log("load=", number_, " step=", plan_.step, " passed-over=", step, " error=\"", error.message(), "\"");
  }
  progress_base_ = context.now;
  SetPhase(Phase::kReading, context);
}

bool Load::Answers(const Member& member, const v1::LoadState& state) const {
  if (!ended()) return true;
  if (static_cast<size_t>(member.rank) >= ranks_.size()) return false;
  const Rank& rank = ranks_[static_cast<size_t>(member.rank)];
  // A rank that came too late for a failed load is told so, if its trainer is the one that was missed.
  return rank.begun ? rank.state.trainer_incarnation() == state.trainer_incarnation()
                    : rank.seen_trainer == state.trainer_incarnation();
}

v1::LoadOrder Load::OrderFor(const Member& member, const Context& context) const {
  v1::LoadOrder order;
  order.set_number(number_);
  if (wanted_step().has_value()) order.set_step(*wanted_step());
  switch (phase_) {
    case Phase::kCollecting:
      order.set_action(v1::LoadOrder::WAIT);
      break;
    case Phase::kReading:
      order.set_action(v1::LoadOrder::READ);
      order.set_plan_digest(plan_.plan_digest);
      order.set_source_plan_digest(plan_.source_plan_digest);
      order.set_transfer_token(plan_.transfer_token);
      for (const auto& [rank, peer] : context.members.members()) {
        *order.add_peer() = TransferPeerFor(peer, member);
      }
      break;
    case Phase::kDone:
      order.set_action(v1::LoadOrder::DONE);
      order.set_plan_digest(plan_.plan_digest);
      order.set_total_bytes_read(plan_.total_bytes_read);
      order.set_unique_bytes(plan_.unique_bytes);
      order.set_storage_bytes(storage_bytes_);
      order.set_path(path_);
      break;
    case Phase::kFailed:
      order.set_action(v1::LoadOrder::FAILED);
      *order.mutable_error() = StatusToProto(error_);
      break;
  }
  if (has_plan() && !ended()) {
    for (const std::string& name : plan_.missing) order.add_missing(name);
    for (const std::string& name : plan_.unexpected) order.add_unexpected(name);
    order.set_world_size(plan_.world_size);
    for (const auto& [step, error] : plan_.passed_over) {
      v1::PassedOver& passed_over = *order.add_passed_over();
      passed_over.set_step(step);
      *passed_over.mutable_error() = StatusToProto(error);
    }
  }
  return order;
}

v1::Load Load::View(const Context& context) const {
  v1::Load view;
  view.set_number(number_);
  if (wanted_step().has_value()) view.set_step(*wanted_step());
  switch (phase_) {
    case Phase::kCollecting:
      view.set_state(v1::Load::COLLECTING);
      break;
    case Phase::kReading:
      view.set_state(v1::Load::READING);
      break;
    case Phase::kDone:
      view.set_state(v1::Load::DONE);
      break;
    case Phase::kFailed:
      view.set_state(v1::Load::FAILED);
      break;
  }
  if (phase_ == Phase::kFailed) *view.mutable_error() = StatusToProto(error_);
  if (ended()) return view;
  const std::vector<int> awaited = Awaited(context);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int index = static_cast<int>(i);
    const Rank& rank = ranks_[i];
    v1::RankProgress& progress = *view.add_rank();
    progress.set_rank(static_cast<uint32_t>(index));
    progress.set_phase(PhaseOf(rank));
    progress.set_bytes_done(rank.state.bytes_done());
    progress.set_bytes_total(rank.state.bytes_total());
    const absl::Duration idle = context.now - ProgressOf(index, context);
    progress.mutable_idle()->set_seconds(absl::ToInt64Seconds(idle));
    progress.set_late(idle > context.options.phase_timeout / 2 &&
                      std::binary_search(awaited.begin(), awaited.end(), index));
    if (progress.late()) progress.set_note(Culprits({index}, context).front().detail);
    if (const Member* member = context.members.Find(index); member != nullptr) progress.set_node(member->node);
  }
  return view;
}

}  // namespace cairn
