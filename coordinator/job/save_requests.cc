#include "coordinator/job/save_requests.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/timeline/operation_timeline.h"

namespace cairn {
namespace {

constexpr size_t kKept = 64;

bool Waits(const SaveRequest& request) { return request.state == SaveRequest::State::kWaiting; }

// Returns whether a request wants a save of an earlier step than another one. A request without a step wants the next
// one.
bool ComesBefore(const SaveRequest& request, const SaveRequest& other) {
  return other.step.has_value() && request.step.value_or(0) < *other.step;
}

std::string BlockingSave(const SaveRequest& request) {
  return request.blocking_step.has_value() ? absl::StrCat("the save of step ", *request.blocking_step)
                                           : "another step's save";
}

}  // namespace

absl::Status SaveRequests::Add(const v1::CreateCheckpointRequest& request, const Saves& saves,
                               const JobContext& context) {
  SaveRequest entry;
  entry.id = request.request_id();
  if (request.has_timeout()) entry.deadline = context.now + DurationOf(request.timeout());
  entry.progress = entry.created = entry.complete = entry.last_checked = context.now;
  entry.created_wall = context.wall;
  entry.sequence = context.lineage->sequence();
  if (request.has_step()) {
    entry.step = request.step();
    entry.step_given = true;
    std::vector<NamedRank> passed;
    for (const auto& [rank, member] : context.members.members()) {
      if (member.current_step().value_or(-1) < request.step()) continue;
      passed.push_back({rank, v1::Phase::ARMING, absl::StrCat("last reported step ", *member.current_step())});
    }
    if (!passed.empty() && saves.Active(request.step()) == nullptr) {
      return ErrorNaming(Reason::kStepPassed, context, {"save", request.step()},
                         absl::StrCat("passed step ", request.step()), std::move(passed));
    }
  }
  for (const auto& [rank, member] : context.members.members()) {
    const v1::TrainerState& trainer = member.state.trainer();
    if (member.reported && trainer.attached()) entry.trainer[rank] = trainer.incarnation();
  }
  requests_.push_back(std::move(entry));
  std::vector<LogField> fields = {{"request", request.request_id()}};
  if (request.has_step()) fields.emplace_back("step", request.step());
  if (!request.reason().empty()) fields.emplace_back("reason", request.reason());
  fields.emplace_back("state", "PREPARING");
  context.Log(LogLevel::kInfo, "request_state", std::move(fields));
  return absl::OkStatus();
}

void SaveRequests::End(SaveRequest& request, absl::Status error, const JobContext& context) {
  if (request.state == SaveRequest::State::kEnded) return;
  request.state = SaveRequest::State::kEnded;
  request.error = std::move(error);
  request.end_revision = context.revision;
  request.saves_begun = saves_begun_;
  context.Log(LogLevel::kWarn, "request_state",
              {{"request", request.id}, {"state", "ABORTED"}, {"error", request.error}});
  // People look for it among the saves that have ended.
  auto timeline = std::make_shared<OperationTimeline>(v1::Timeline::SAVE, request.created, request.created_wall);
  timeline->Finish({context.job, v1::Timeline::SAVE, request.step, /*attempt=*/0, /*bytes=*/0,
                    static_cast<size_t>(context.members.world_size()), request.error},
                   context.now);
  context.effects.timelines.push_back(std::move(timeline));
}

void SaveRequests::Cancel(const CheckpointKey& key, const JobContext& context) {
  const auto named = std::find_if(requests_.begin(), requests_.end(), [&](const SaveRequest& request) {
    return Waits(request) && key.by_request() && request.id == key.request_id;
  });
  if (key.by_request() && named == requests_.end()) return;
  // Those that have no step yet wait for one save: the ranks' next agreement answers them all.
  const std::optional<int64_t> step = key.by_request() ? named->step : key.step;
  const bool every_step = !key.by_request() && !key.step.has_value();
  for (SaveRequest& request : requests_) {
    if (Waits(request) && (every_step || request.step == step)) {
      End(request, OperationError(Reason::kSaveCancelled, context, {"save", request.step}, "cancelled on request"),
          context);
    }
  }
}

News SaveRequests::OnReport(const Member& member, const JobContext& context) {
  return agreement_.Report(member, context);
}

News SaveRequests::OnMember(int rank, const JobContext& context) {
  const Member* member = context.members.Find(rank);
  return News::Step(std::any_of(requests_.begin(), requests_.end(), [&](SaveRequest& request) {
    return Waits(request) && (member == nullptr || HasLostTrainer(request, *member));
  }));
}

void SaveRequests::OnLost(const std::vector<int>& ranks, const JobContext& context) {
  std::vector<NamedRank> lost;
  for (int rank : ranks) {
    agreement_.OnLost(rank);
    lost.push_back({rank, v1::Phase::ARMING, "its agent is gone"});
  }
  for (SaveRequest& request : requests_) {
    if (!Waits(request)) continue;
    End(request, ErrorNaming(Reason::kRankLost, context, {"save", request.step}, "lost", lost), context);
  }
}

News SaveRequests::OnSaveBegun(Save& save, const JobContext& context) {
  ++saves_begun_;
  save_of_agreement_begun_ = save_of_agreement_begun_ || save.step() == agreement_.step();
  bool wanted = false;
  for (SaveRequest& request : requests_) {
    if (!Waits(request) || request.step != save.step()) continue;
    Attach(request, save);
    wanted = true;
  }
  bool unwanted = false;
  for (SaveRequest& request : requests_) {
    if (request.state != SaveRequest::State::kEnded || !request.agreed || request.step != save.step()) continue;
    unwanted = !wanted;
    if (unwanted) save.Abort(request.error, context);
    request.agreed = false;
  }
  return News::Step(wanted || unwanted);
}

void SaveRequests::Attach(SaveRequest& request, Save& save) {
  save.AddRequest(request.id, request.deadline);
  request.state = SaveRequest::State::kAttached;
}

bool SaveRequests::HasLostTrainer(SaveRequest& request, const Member& member) {
  if (!member.reported) return false;
  const v1::TrainerState& trainer = member.state.trainer();
  const auto known = request.trainer.find(member.rank);
  if (known != request.trainer.end()) return !trainer.attached() || trainer.incarnation() != known->second;
  if (trainer.attached()) request.trainer[member.rank] = trainer.incarnation();
  return false;
}

void SaveRequests::CheckTrainers(SaveRequest& request, const JobContext& context) {
  std::vector<NamedRank> lost;
  for (const auto& [rank, member] : context.members.members()) {
    if (!HasLostTrainer(request, member)) continue;
    lost.push_back({rank, request.agreed ? v1::Phase::WAITING : v1::Phase::ARMING, "its trainer ended"});
  }
  if (lost.empty()) return;
  End(request, ErrorNaming(Reason::kTrainerLost, context, {"save", request.step}, "lost the trainer", std::move(lost)),
      context);
}

void SaveRequests::EndAsIncomplete(SaveRequest& request, const JobContext& context) {
  std::vector<NamedRank> absent;
  for (int rank : context.members.Absent()) {
    absent.push_back({rank, v1::Phase::WAITING, "no agent registered"});
  }
  End(request,
      ErrorNaming(Reason::kWorldIncomplete, context, {"save", request.step}, "not registered", std::move(absent)),
      context);
}

bool SaveRequests::EndAsStalled(SaveRequest& request, const JobContext& context) {
  if (!context.stalled_step.has_value()) return false;
  End(request,
      OperationError(Reason::kStorageStalled, context, {"save", request.step},
                     absl::StrCat("held up by the save of step ", *context.stalled_step,
                                  ", whose commit waits for storage that does not answer")),
      context);
  return true;
}

void SaveRequests::CheckTime(SaveRequest& request, bool blocked, const JobContext& context) {
  const absl::Duration phase_timeout = context.options.phase_timeout;
  if (context.now >= request.deadline && blocked) {
    if (EndAsStalled(request, context)) return;
    End(request,
        OperationError(Reason::kSaveInProgress, context, {"save", request.step},
                       absl::StrCat(BlockingSave(request), " did not end within the request's timeout")),
        context);
    return;
  }
  if (blocked) request.blocked += context.now - request.last_checked;
  request.last_checked = context.now;
  // Saves that the trainers begin may follow each other without end while a rank is absent: they end nothing here.
  if (context.members.complete()) request.complete = context.now;
  if (context.now - request.complete >= phase_timeout) {
    EndAsIncomplete(request, context);
    return;
  }
  if (blocked) request.progress = context.now;
  const Awaited awaited = LookAtRanks(request, context);
  const bool out_of_time = context.now >= request.deadline;
  const bool slow = !request.agreed && context.now - request.progress >= phase_timeout;
  if (!awaited.late.empty() || out_of_time || slow) EndAsLate(request, awaited, context);
}

SaveRequests::Awaited SaveRequests::LookAtRanks(SaveRequest& request, const JobContext& context) const {
  const absl::Duration phase_timeout = context.options.phase_timeout;
  Awaited awaited;
  if (!request.agreed) {
    request.progress = std::max(request.progress, agreement_.progress());
    awaited.ranks = agreement_.Awaited(context);
    if (context.now - request.progress >= phase_timeout) awaited.late = awaited.ranks;
    return awaited;
  }
  for (const auto& [rank, member] : context.members.members()) {
    // A trainer on its way to the step is slow, not late; one that has passed it will not come.
    const bool coming = request.step.has_value() && member.current_step().value_or(-1) <= *request.step;
    const absl::Time progress = coming ? std::max(request.progress, member.stepped) : request.progress;
    const std::string halt = HaltOf(member, context);
    const std::string detail =
        absl::StrCat("no progress for ", DurationText(context.now - progress), ", last reported step ",
                     member.current_step().has_value() ? absl::StrCat(*member.current_step()) : "none",
                     halt.empty() ? "" : ", ", halt);
    awaited.ranks.push_back({rank, v1::Phase::WAITING, detail});
    if (context.now - progress >= phase_timeout) awaited.late.push_back(awaited.ranks.back());
  }
  return awaited;
}

void SaveRequests::EndAsLate(SaveRequest& request, const Awaited& awaited, const JobContext& context) {
  const Operation operation{"save", request.step};
  if (!context.members.complete()) {
    EndAsIncomplete(request, context);
    return;
  }
  if (EndAsStalled(request, context)) return;
  // Who is late may wait for a trainer that was stopped a moment later.
  std::vector<NamedRank> named = HoldingUp(awaited.ranks, context);
  if (!awaited.late.empty() && named.size() == awaited.ranks.size()) named = awaited.late;
  if (awaited.late.empty() && 2 * request.blocked > context.now - request.created) {
    // The ranks had little time left: they are not to blame.
    End(request,
        OperationError(Reason::kSaveInProgress, context, operation,
                       absl::StrCat("did not begin within the request's timeout; ", DurationText(request.blocked),
                                    " of it passed behind ", BlockingSave(request))),
        context);
  } else if (!request.agreed && (!agreeing() || named.empty())) {
    End(request, ErrorNaming(Reason::kStepRefused, context, operation, "did not agree on a step", named), context);
  } else {
    End(request, ErrorNaming(Reason::kRankLate, context, operation, named.size() == 1 ? "is late" : "are late", named),
        context);
  }
}

void SaveRequests::TakeAgreedStep(SaveRequest& request, const Saves& saves, const JobContext& context) {
  if (request.agreed || agreement_.state() != StepAgreement::State::kAgreed || SaveOfAgreementEnded(saves)) return;
  if (!request.step_given) {
    // Somebody has asked for a save of a later step. This one is wanted now.
    if (agreement_.IsFar(context) && IsGiven(agreement_.step())) return;
    request.step = agreement_.step();
  } else if (request.step != agreement_.step()) {
    return;
  }
  request.agreed = true;
  request.progress = context.now;
}

bool SaveRequests::IsGiven(int64_t step) const {
  return std::any_of(requests_.begin(), requests_.end(), [&](const SaveRequest& request) {
    return Waits(request) && request.step_given && request.step == step;
  });
}

bool SaveRequests::SaveOfAgreementEnded(const Saves& saves) const {
  return save_of_agreement_begun_ && saves.Active(agreement_.step()) == nullptr;
}

bool SaveRequests::Settle(SaveRequest& request, Saves& saves, const OutcomeBook& outcomes, const JobContext& context) {
  if (!request.step.has_value()) return false;
  const int64_t step = *request.step;
  if (Save* save = saves.Active(step); save != nullptr) {
    Attach(request, *save);
    return true;
  }
  // The save may have ended within one event.
  const StoredAttempt* outcome = outcomes.Find({step, ""});
  if (outcome == nullptr || !outcome->stands()) return false;
  // Ranks agree only on a step that all have yet to reach. So a checkpoint from before is one that they have left
  // behind, though nothing was committed since by which storage would show that.
  const bool left_behind =
      request.step_given ? context.lineage->superseded().contains(step) : outcome->lineage.sequence <= request.sequence;
  if (left_behind) return false;
  End(request, OutcomeBook::CommittedError(step, context), context);
  return true;
}

News SaveRequests::Advance(Saves& saves, const OutcomeBook& outcomes, const JobContext& context) {
  const auto told = agreement_.told();
  News news;
  if (!agreement_recovered_ && context.members.all_reported()) {
    agreement_recovered_ = true;
    agreement_.Recover(context);
  }
  // One step of the agreement may make the next one possible.
  for (bool moved = true; moved;) {
    const StepAgreement::State before = agreement_.state();
    agreement_.Advance(context);
    SaveRequest* first = nullptr;
    for (SaveRequest& request : requests_) {
      if (!Waits(request)) continue;
      TakeAgreedStep(request, saves, context);
      if (Settle(request, saves, outcomes, context)) {
        news.step = true;
        continue;
      }
      CheckTrainers(request, context);
      if (!Waits(request)) continue;
      const bool blocked = saves.busy() && !request.agreed;
      if (blocked) request.blocking_step = saves.EarliestUndecided();
      CheckTime(request, blocked, context);
      if (Waits(request) && !request.agreed && (first == nullptr || ComesBefore(request, *first))) first = &request;
    }
    AdvanceAgreement(first, saves, outcomes, context);
    moved = agreement_.state() != before;
  }
  if (agreement_.told() != told) news.orders = News::Orders::kUrgent;
  return news;
}

void SaveRequests::AdvanceAgreement(SaveRequest* first, const Saves& saves, const OutcomeBook& outcomes,
                                    const JobContext& context) {
  switch (agreement_.state()) {
    case StepAgreement::State::kIdle:
      if (first != nullptr && !saves.busy()) {
        save_of_agreement_begun_ = false;
        if (absl::Status status = agreement_.Want(first->step, context); !status.ok()) End(*first, status, context);
      }
      break;
    case StepAgreement::State::kArming:
      if (!waiting()) agreement_.Stop(context);
      break;
    case StepAgreement::State::kAgreeing:
    case StepAgreement::State::kAgreed:
      CheckAgreement(first, saves, outcomes, context);
      break;
    case StepAgreement::State::kDisarming:
      break;
  }
}

void SaveRequests::CheckAgreement(const SaveRequest* first, const Saves& saves, const OutcomeBook& outcomes,
                                  const JobContext& context) {
  const int64_t step = agreement_.step();
  // The agreement stands in the control pages until every trainer has acted on it or gone past it.
  const bool over = agreement_.over(context.members);
  // An agreement of an earlier coordinator may have been acted upon before this one knew of it.
  const bool settled = SaveOfAgreementEnded(saves) || (agreement_.inherited() && outcomes.Committed(step));
  const bool needed = std::any_of(requests_.begin(), requests_.end(), [&](const SaveRequest& request) {
    return Waits(request) && (!request.agreed || request.step == step);
  });
  if (over || settled || !context.members.complete()) {
    agreement_.Stop(context);
  } else if (!needed && !agreement_.inherited() && saves.Active(step) == nullptr) {
    agreement_.Revoke(context);
  } else if (first != nullptr && first->step.value_or(0) < step && IsGiven(step) && agreement_.IsFar(context)) {
    // The ranks agree on the later step anew when the earlier save has ended.
    for (SaveRequest& request : requests_) {
      if (Waits(request) && request.step == step) request.agreed = false;
    }
    agreement_.Revoke(context);
  }
}

bool SaveRequests::waiting() const { return std::any_of(requests_.begin(), requests_.end(), Waits); }

bool SaveRequests::Contains(const std::string& id) const {
  return std::any_of(requests_.begin(), requests_.end(), [&](const SaveRequest& request) { return request.id == id; });
}

const SaveRequest* SaveRequests::Find(const CheckpointKey& key) const {
  for (const SaveRequest& request : requests_) {
    if (request.state == SaveRequest::State::kAttached) continue;
    if (key.by_request() ? request.id == key.request_id
                         : key.step.has_value() && request.step == key.step && Waits(request)) {
      return &request;
    }
  }
  return nullptr;
}

const SaveRequest* SaveRequests::Shown() const {
  const auto first = std::find_if(requests_.begin(), requests_.end(), Waits);
  if (first != requests_.end()) return &*first;
  const SaveRequest* failed = nullptr;
  for (const SaveRequest& request : requests_) {
    if (request.state != SaveRequest::State::kEnded || request.saves_begun != saves_begun_) continue;
    if (failed == nullptr || request.end_revision >= failed->end_revision) failed = &request;
  }
  return failed;
}

NoteworthyRanks SaveRequests::Noteworthy(const SaveRequest& request, const JobContext& context) const {
  NoteworthyRanks ranks;
  for (const auto& [rank, member] : context.members.members()) {
    if (Waits(request) && member.halted()) ranks.late.push_back(rank);
  }
  if (request.agreed) return ranks;
  for (const NamedRank& named_rank : agreement_.Awaited(context)) ranks.awaited.push_back(named_rank.rank);
  const bool late = Waits(request) && context.now - request.progress > context.options.phase_timeout / 2;
  if (!late) return ranks;
  ranks.late.insert(ranks.late.end(), ranks.awaited.begin(), ranks.awaited.end());
  std::sort(ranks.late.begin(), ranks.late.end());
  ranks.late.erase(std::unique(ranks.late.begin(), ranks.late.end()), ranks.late.end());
  return ranks;
}

v1::Checkpoint SaveRequests::View(const SaveRequest& request, const JobContext& context) const {
  if (ShownRanks::FitsWhole(static_cast<size_t>(context.members.world_size()))) {
    return View(request, context, ShownRanks::All());
  }
  NoteworthyRanks ranks = Noteworthy(request, context);
  ranks.late.insert(ranks.late.end(), ranks.awaited.begin(), ranks.awaited.end());
  return View(request, context, ShownRanks::Of(ranks.late));
}

v1::Checkpoint SaveRequests::View(const SaveRequest& request, const JobContext& context,
                                  const ShownRanks& shown) const {
  v1::Checkpoint view;
  view.set_job(context.job);
  view.set_request_id(request.id);
  if (request.step.has_value()) view.set_step(*request.step);
  view.set_coordinator_epoch(context.options.coordinator_epoch);
  view.set_revision(request.state == SaveRequest::State::kEnded ? request.end_revision : context.revision);
  view.set_world_size(static_cast<uint32_t>(context.members.world_size()));
  SetTimestamp(request.created_wall, *view.mutable_create_time());
  view.set_state(request.state == SaveRequest::State::kEnded ? v1::Phase::ABORTED : v1::Phase::PREPARING);
  if (!request.error.ok()) *view.mutable_error() = StatusToProto(request.error);
  const std::vector<NamedRank> awaited = request.agreed ? std::vector<NamedRank>() : agreement_.Awaited(context);
  const bool late = context.now - request.progress > context.options.phase_timeout / 2;
  std::map<int, const NamedRank*> awaited_rank;
  for (const NamedRank& named_rank : awaited) awaited_rank.emplace(named_rank.rank, &named_rank);
  RankTally tally;
  for (int rank = 0; rank < context.members.world_size(); ++rank) {
    const auto found = awaited_rank.find(rank);
    const Member* member = context.members.Find(rank);
    const std::string halt = member == nullptr || !Waits(request) ? "" : HaltOf(*member, context);
    const bool is_late = Waits(request) && (!halt.empty() || (late && found != awaited_rank.end()));
    tally.Add(v1::Phase::WAITING, 0, 0, is_late);
    if (!shown.contains(rank)) continue;
    v1::RankProgress& progress = *view.add_ranks();
    progress.set_rank(static_cast<uint32_t>(rank));
    progress.set_phase(v1::Phase::WAITING);
    if (member != nullptr) {
      progress.set_node(member->node);
      SetDuration(context.now - member->stepped, *progress.mutable_idle());
    }
    if (found != awaited_rank.end()) progress.set_note(found->second->detail);
    if (!halt.empty()) progress.set_note(halt);
    progress.set_late(is_late);
  }
  tally.WriteTo(view);
  return view;
}

void SaveRequests::Forget() {
  for (auto request = requests_.begin(); requests_.size() > kKept && request != requests_.end();) {
    request = Waits(*request) ? std::next(request) : requests_.erase(request);
  }
}

}  // namespace cairn
