// Decides what ends a save before all ranks have written, and whom its error names.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/format/checkpoint_path.h"
#include "common/rpc/reported_metrics.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/exchange/nccl_advice.h"
#include "coordinator/save/save.h"
#include "coordinator/save/save_view.h"

namespace cairn {

bool Save::CheckMembers(const JobContext& context) {
  const SaveView view(*this);
  if (context.members.world_size() > 0 && ranks_.size() != static_cast<size_t>(context.members.world_size())) {
    Abort(OperationError(Reason::kRankLost, context, operation(), "the job's world size changed during the save"),
          context);
    return false;
  }
  MemberFaults faults;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int index = static_cast<int>(i);
    std::optional<MemberFault> fault = LookAt(index, context);
    if (fault.has_value()) faults.Add(index, view.PhaseOf(ranks_[i]), *std::move(fault));
  }
  if (!faults.empty()) {
    // Those whose attempt has a number have all begun it: they are in it together.
    if (attempt_ == 0 && reserve_ticket_ == 0) ReleaseSuccessors(ranks_, *timeline_);
    Abort(std::move(faults).ToError(context, operation()), context);
    return false;
  }
  return true;
}

std::optional<MemberFault> Save::LookAt(int index, const JobContext& context) {
  const SaveRank& rank = ranks_[static_cast<size_t>(index)];
  const Member* member = context.members.Find(index);
  if (rank.begun) {
    if (Written(rank)) {
      // Its part is durable, so the rank is needed no more, unless others write shards of it that they have not got
      // yet.
      if (member == nullptr || member->incarnation == rank.agent || !OthersWaitFor(index)) return std::nullopt;
    }
    if (member == nullptr) return MemberFault{false, SaveView(*this).DetailOf(index, context)};
    if (member->incarnation != rank.agent) return MemberFault{false, "its agent was restarted"};
    const v1::TrainerState& trainer = member->state.trainer();
    const bool same = trainer.attached() && trainer.incarnation() == rank.trainer;
    if (rank.trainer == 0 || rank.failed() || same) return std::nullopt;
    if (!rank.staged()) return MemberFault{true, SaveView(*this).DetailOf(index, context)};
    // An attempt with a number was begun by all, though not all have come back to a coordinator that restarted. A rank
    // that staged before that did so in an earlier life of the job. Ranks that have not begun would add their part of
    // this one.
    if (ranks_.all(SaveRank::kBegun) || attempt_ > 0 || !trainer.attached()) return std::nullopt;
    return MemberFault{true, "another trainer took its place before all ranks had begun the save"};
  }
  if (member == nullptr) {
    if (rank.awaited.agent_seen()) return MemberFault{false, "its agent is gone"};
    if (!adopted_ || context.now - created_ <= 2 * context.options.lease_ttl) return std::nullopt;
    return MemberFault{false, "its agent did not come back after the coordinator restarted"};
  }
  const bool looks = member->reported && !adopted_;
  ranks_.Change(static_cast<size_t>(index), [&](SaveRank& seen) {
    seen.awaited.SeeAgent();
    if (looks) seen.awaited.SeeTrainer(*member, context.now);
  });
  if (!member->reported) return std::nullopt;
  // An attempt only has a number when all ranks have begun it, and agents report all that they know.
  if (adopted_) return MemberFault{false, "its agent was restarted and knows nothing of the save"};
  // A trainer may begin while another rank's old one is still seen, or ends: the next one has the time to attach.
  const AwaitedRank& awaited = ranks_[static_cast<size_t>(index)].awaited;
  if (context.now - awaited.trainer_gone() < context.options.lease_ttl) return std::nullopt;
  return MemberFault{true, "its trainer ended before it began the save, and none took its place"};
}

bool Save::CheckContents(const JobContext& context) {
  const v1::SaveState& first = ranks_.front().state;
  absl::Status wrong = CheckMetrics(first.metrics());
  if (first.has_resumed_from()) wrong.Update(CheckStep(first.resumed_from().step()));
  if (wrong.ok()) return true;
  const absl::Status error = OperationError(*ReasonOf(wrong), context, operation(),
                                            absl::StrCat("rank 0 reports what no checkpoint has: ", wrong.message()));
  Abort(WithMetadata(error, {{"ranks", "0"}}), context);
  return false;
}

bool Save::OthersWaitFor(int index) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const SaveRank& rank) {
    const auto& others = rank.state.awaited_ranks();
    return rank.begun && !Written(rank) &&
           std::find(others.begin(), others.end(), static_cast<uint32_t>(index)) != others.end();
  });
}

absl::Status Save::WhyHeldUp(const Operation& later, const JobContext& context) const {
  const SaveView view(*this);
  const std::vector<int> awaited = view.AtFault(view.Awaited(context), context);
  if (awaited.empty()) return absl::OkStatus();
  return ErrorNaming(Reason::kSaveInProgress, context, later,
                     absl::StrCat(awaited.size() == 1 ? "holds" : "hold", " up the save of step ", step_,
                                  ", which takes the memory that this save needs,"),
                     view.Named(awaited, context));
}

bool Save::CheckErrors(const Save* earlier, const JobContext& context) {
  const SaveView view(*this);
  std::vector<RankError> errors;
  bool all_done = true;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const SaveRank& rank = ranks_[i];
    if (rank.begun && rank.failed()) {
      absl::Status error = StatusFromProto(rank.state.error());
      if (error.ok()) error = MakeError(Reason::kInternal, "the agent gave the save up without a reason");
      errors.push_back({static_cast<int>(i), view.PhaseOf(rank), std::move(error)});
    } else {
      all_done = all_done && Written(rank);
    }
  }
  if (errors.empty()) return true;
  first_failure_ = std::min(first_failure_, context.now);
  if (!all_done && context.now - first_failure_ < kSaveFailureGrace) return true;
  if (!NameExchangeFault(errors, context)) return true;
  // A rank that gave up waiting for the others is not named: the others are.
  const bool timed_out = !has_plan() && std::all_of(errors.begin(), errors.end(), [](const RankError& error) {
    return HasReason(error.error, Reason::kTimedOut) || HasReason(error.error, Reason::kRankLate);
  });
  const bool held_up = earlier != nullptr && std::all_of(errors.begin(), errors.end(), [](const RankError& error) {
                         return HasReason(error.error, Reason::kSaveInProgress);
                       });
  if (held_up) {
    if (absl::Status named = earlier->WhyHeldUp(operation(), context); !named.ok()) {
      Abort(named, context);
      return false;
    }
  }
  if (timed_out) {
    std::vector<int> awaited;
    for (int rank : view.AllAwaited(context)) {
      if (!ranks_[static_cast<size_t>(rank)].failed()) awaited.push_back(rank);
    }
    if (!awaited.empty()) {
      Abort(ErrorNaming(Reason::kRankLate, context, operation(), "held up the others beyond their timeout",
                        view.Named(view.AtFault(awaited, context), context)),
            context);
      return false;
    }
  }
  absl::Status error = ErrorFromRanks(context, operation(), errors);
  if (SaveExchange::Lacks(error)) {
    error = WithMetadata(error, {{"next", AdviceAfterFailedExchange("Save", true, ExchangeUse::kSaves)}});
  }
  Abort(error, context);
  return false;
}

bool Save::NameExchangeFault(std::vector<RankError>& errors, const JobContext& context) const {
  const auto lacks = [](const RankError& error) { return SaveExchange::Lacks(error.error); };
  const auto first = std::find_if(errors.begin(), errors.end(), lacks);
  if (first == errors.end()) return true;
  const std::optional<GroupFault> fault = exchange_.Fault(context);
  const bool certain = fault.has_value() && fault->certain;
  if (!certain && context.now - first_failure_ < kExchangeFaultGrace) return false;
  if (!fault.has_value() || fault->ranks.empty()) return true;
  RankError named = {
      fault->ranks.front(), first->phase,
      MakeError(Reason::kTransportFailed,
                absl::StrCat("--nccl-saves=require, and the exchange over NCCL has failed: ", fault->why),
                {{"ranks", JoinRanks(fault->ranks)}, {"exchange", "nccl"}})};
  std::erase_if(errors, lacks);
  errors.insert(errors.begin(), std::move(named));
  return true;
}

bool Save::CheckDeadlines(const JobContext& context) {
  const SaveView view(*this);
  const std::vector<int> awaited = view.Awaited(context);
  std::vector<int> late;
  for (int rank : awaited) {
    if (context.now - view.ProgressOf(rank, context) >= context.options.phase_timeout) late.push_back(rank);
  }
  // Who is late may wait for a trainer that was stopped a moment later.
  if (!late.empty() && AnyHalted(awaited, context)) late = view.AtFault(awaited, context);
  if (const auto storage = StorageStall(late, context); !late.empty() && storage.has_value()) {
    Abort(*storage, context);
    return false;
  }
  if (!late.empty()) {
    Abort(ErrorNaming(Reason::kRankLate, context, operation(), absl::StrCat(late.size() == 1 ? "is" : "are", " late"),
                      view.Named(late, context)),
          context);
    return false;
  }
  if (reserve_ticket_ != 0 && context.now - reserve_time_ >= context.options.storage_patience()) {
    Abort(OperationError(Reason::kStorageStalled, context, operation(),
                         absl::StrCat("storage has not given the attempt a directory within ",
                                      DurationText(context.options.storage_patience()))),
          context);
    return false;
  }
  if (awaited.empty() && !has_plan() && context.now - progress_base_ >= context.options.phase_timeout) {
    Abort(OperationError(Reason::kTimedOut, context, operation(),
                         "the coordinator could not plan the save within the phase timeout"),
          context);
    return false;
  }
  if (context.now >= deadline_) {
    const auto storage = StorageStall(awaited, context);
    if (storage.has_value()) {
      Abort(*storage, context);
      return false;
    }
    Abort(!awaited.empty()
              ? ErrorNaming(Reason::kRankLate, context, operation(), "held up the save beyond the request's timeout",
                            view.Named(view.AtFault(awaited, context), context))
              : OperationError(reserve_ticket_ != 0 ? Reason::kStorageStalled : Reason::kTimedOut, context, operation(),
                               reserve_ticket_ != 0
                                   ? "storage has not given the attempt a directory before the request's timeout"
                                   : "the coordinator has not planned the save before the request's timeout"),
          context);
    return false;
  }
  return true;
}

std::optional<absl::Status> Save::StorageStall(const std::vector<int>& late, const JobContext& context) const {
  if (context.stalled_step.value_or(step_) == step_) return std::nullopt;
  // A rank that has its slab is not held up by the save of another step.
  for (int rank : late) {
    const SaveRank& state = ranks_[static_cast<size_t>(rank)];
    if (state.begun && state.state.phase() != v1::Phase::PLANNING) return std::nullopt;
  }
  return OperationError(Reason::kStorageStalled, context, operation(),
                        absl::StrCat("held up by the save of step ", *context.stalled_step,
                                     ", whose commit waits for storage that does not answer"));
}

void Save::CheckAdopted(const JobContext& context) {
  const SaveView view(*this);
  std::vector<NamedRank> other;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const v1::SaveState& state = ranks_[i].state;
    const bool writes = state.phase() == v1::Phase::WRITING || state.phase() == v1::Phase::WRITTEN;
    if (writes && state.plan_digest() != plan_.plan_digest) {
      other.push_back({static_cast<int>(i), view.PhaseOf(ranks_[i]), "it wrote by a plan that is not today's"});
    } else if (state.attempt() == attempt_ && state.attempt_nonce() != attempt_nonce_) {
      other.push_back({static_cast<int>(i), view.PhaseOf(ranks_[i]), "it holds the attempt of another coordinator"});
    }
  }
  if (other.empty()) return;
  Abort(ErrorNaming(Reason::kCoordinatorRestarted, context, operation(), "cannot go on after the coordinator restarted",
                    std::move(other)),
        context);
}

bool Save::CheckReplicasChecked(const JobContext& context) {
  const SaveView view(*this);
  std::vector<NamedRank> unchecked;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].state.all_replicas_checked()) continue;
    unchecked.push_back({static_cast<int>(i), view.PhaseOf(ranks_[i]), "it staged by an earlier plan or order"});
  }
  if (unchecked.empty()) return true;
  Abort(ErrorNaming(Reason::kLayoutChanged, context, operation(), "did not check all replicas; save again",
                    std::move(unchecked)),
        context);
  return false;
}

}  // namespace cairn
