// The part of a job that people see: requests for saves, and how they ended.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "common/storage/checkpoint_path.h"
#include "coordinator/job/job.h"

namespace cairn {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;

}  // namespace

void Job::EndRequest(SaveRequest& request, absl::Status error, JobContext& context) {
  if (request.state == SaveRequest::State::kEnded) return;
  request.state = SaveRequest::State::kEnded;
  request.error = std::move(error);
  request.revision = ++revision_;
  request.saves_begun = saves_begun_;
  context.Log("request=", request.id, " state=ABORTED error=\"", request.error.message(), "\"");
}

std::optional<absl::StatusOr<v1::Checkpoint>> Job::Create(const v1::CreateCheckpointRequest& request, bool patient,
                                                          const Moment& moment) {
  EnsureRecovered(moment);
  JobContext& context = Begin(moment);
  last_used_ = context.now;
  if (request.request_id().empty() || request.request_id().size() > kMaxRequestIdBytes) {
    return MakeError(Reason::kBadRequest, absl::StrCat("a request id of 1 to ", kMaxRequestIdBytes, " bytes is needed"),
                     {{"job", name_}});
  }
  if (request.has_step()) {
    if (absl::Status status = CheckStep(request.step()); !status.ok()) return status;
  }
  if (!recovered_) {
    if (!recovery_error_.ok() && !patient) return recovery_error_;
    return std::nullopt;
  }
  const absl::Time deadline =
      request.has_timeout() ? context.now + DurationOf(request.timeout()) : absl::InfiniteFuture();
  const CheckpointKey key{std::nullopt, request.request_id()};
  // The request may be a repeated one: in flight, ended since the start, or ended before.
  for (const SaveRequest& known : requests_) {
    if (known.id == request.request_id()) return Get(key, 0, moment);
  }
  for (const Save& save : saves_) {
    if (save.HasRequest(request.request_id())) return save.View(context);
  }
  if (const VerdictSummary* verdict = FindVerdict(key); verdict != nullptr) return ViewOf(*verdict);
  if (request.has_step()) {
    const auto still = StillCommitted(request.step(), absl::StrCat("request ", request.request_id()), context);
    if (!still.has_value()) return std::nullopt;
    if (*still) return StepCommitted(request.step());
  }
  if (members_.empty()) {
    // After a restart of the coordinator, agents come back by themselves. So the job is not unknown before they have
    // had the time.
    if (patient && context.now - context.started < options_.lease_ttl) return std::nullopt;
    return MakeError(Reason::kJobNotFound, absl::StrCat("no agent of job ", name_, " is registered"), {{"job", name_}});
  }
  SaveRequest entry;
  entry.id = request.request_id();
  entry.deadline = deadline;
  entry.progress = entry.created = entry.complete = entry.last_checked = context.now;
  entry.created_wall = context.wall;
  entry.revision = ++revision_;
  if (request.has_step()) {
    entry.step = request.step();
    entry.step_given = true;
    if (FindSave(request.step(), /*active=*/true) == nullptr) {
      std::vector<NamedRank> passed;
      for (const auto& [rank, member] : members_.members()) {
        if (member.current_step().value_or(-1) >= request.step()) {
          passed.push_back(
              {rank, v1::RankProgress::ARMING, absl::StrCat("last reported step ", *member.current_step())});
        }
      }
      if (!passed.empty()) {
        return ErrorNaming(Reason::kStepPassed, context, {"save", request.step()},
                           absl::StrCat("passed step ", request.step()), std::move(passed));
      }
    }
  }
  for (const auto& [rank, member] : members_.members()) {
    if (member.reported && member.state.trainer().attached())
      entry.trainer[rank] = member.state.trainer().incarnation();
  }
  requests_.push_back(std::move(entry));
  context.Log("request=", request.request_id(), request.has_step() ? absl::StrCat(" step=", request.step()) : "",
              " state=PREPARING");
  ++revision_;
  Advance(context);
  return Get(key, 0, moment);
}

bool Job::HasLostTrainer(SaveRequest& request, const Member& member) {
  if (!member.reported) return false;
  const v1::TrainerState& trainer = member.state.trainer();
  const auto known = request.trainer.find(member.rank);
  if (known != request.trainer.end()) return !trainer.attached() || trainer.incarnation() != known->second;
  if (trainer.attached()) request.trainer[member.rank] = trainer.incarnation();
  return false;
}

void Job::CheckTrainers(SaveRequest& request, JobContext& context) {
  std::vector<NamedRank> lost;
  for (const auto& [rank, member] : members_.members()) {
    if (!HasLostTrainer(request, member)) continue;
    lost.push_back({rank, request.agreed ? v1::RankProgress::WAITING : v1::RankProgress::ARMING, "its trainer ended"});
  }
  if (lost.empty()) return;
  EndRequest(request,
             ErrorNaming(Reason::kTrainerLost, context, {"save", request.step}, "lost the trainer", std::move(lost)),
             context);
}

void Job::EndAsIncomplete(SaveRequest& request, JobContext& context) {
  std::vector<NamedRank> absent;
  for (int rank : members_.Absent()) absent.push_back({rank, v1::RankProgress::WAITING, "no agent registered"});
  const Operation operation{"save", request.step};
  EndRequest(request, ErrorNaming(Reason::kWorldIncomplete, context, operation, "not registered", std::move(absent)),
             context);
}

void Job::CheckRequestTime(SaveRequest& request, bool blocked, JobContext& context) {
  const Operation operation{"save", request.step};
  const auto end_as_stalled = [&] {
    if (!context.stalled_step.has_value()) return false;
    EndRequest(request,
               OperationError(Reason::kStorageStalled, context, operation,
                              absl::StrCat("held up by the save of step ", *context.stalled_step,
                                           ", whose commit waits for storage that does not answer")),
               context);
    return true;
  };
  if (context.now >= request.deadline && blocked) {
    if (end_as_stalled()) return;
    EndRequest(request,
               OperationError(Reason::kSaveInProgress, context, operation,
                              "another step's save did not end within the request's timeout"),
               context);
    return;
  }
  if (blocked) request.blocked += context.now - request.last_checked;
  request.last_checked = context.now;
  // Saves that the trainers begin may follow each other without end while a rank is absent: they end nothing here.
  if (members_.complete()) request.complete = context.now;
  if (context.now - request.complete >= options_.phase_timeout) {
    EndAsIncomplete(request, context);
    return;
  }
  if (blocked) request.progress = context.now;
  std::vector<NamedRank> named_ranks;
  std::vector<NamedRank> late;
  if (request.agreed) {
    for (const auto& [rank, member] : members_.members()) {
      // A trainer on its way to the step is slow, not late; one that has passed it will not come.
      const bool coming = request.step.has_value() && member.current_step().value_or(-1) <= *request.step;
      const absl::Time progress = coming ? std::max(request.progress, member.stepped) : request.progress;
      const std::string detail =
          absl::StrCat("no progress for ", Seconds(context.now - progress), ", last reported step ",
                       member.current_step().has_value() ? absl::StrCat(*member.current_step()) : "none");
      named_ranks.push_back({rank, v1::RankProgress::WAITING, detail});
      if (context.now - progress >= options_.phase_timeout) late.push_back(named_ranks.back());
    }
  } else {
    if (agreement_.progress() > request.progress) request.progress = agreement_.progress();
    named_ranks = agreement_.Awaited(context);
    if (context.now - request.progress >= options_.phase_timeout) late = named_ranks;
  }
  const bool out_of_time = context.now >= request.deadline;
  if (late.empty() && !out_of_time && (request.agreed || context.now - request.progress < options_.phase_timeout)) {
    return;
  }
  if (members_.complete() && end_as_stalled()) return;
  const std::vector<NamedRank>& named = late.empty() ? named_ranks : late;
  if (!members_.complete()) {
    EndAsIncomplete(request, context);
  } else if (late.empty() && 2 * request.blocked > context.now - request.created) {
    // The ranks had little time left: they are not to blame.
    EndRequest(request,
               OperationError(Reason::kSaveInProgress, context, operation,
                              absl::StrCat("did not begin within the request's timeout; ", Seconds(request.blocked),
                                           " of it passed behind another step's save")),
               context);
  } else if (request.agreed) {
    EndRequest(request,
               ErrorNaming(Reason::kRankLate, context, operation, named.size() == 1 ? "is late" : "are late", named),
               context);
  } else if (agreement_.state() == StepAgreement::State::kIdle || named.empty()) {
    EndRequest(request, ErrorNaming(Reason::kStepRefused, context, operation, "did not agree on a step", named),
               context);
  } else {
    EndRequest(request,
               ErrorNaming(Reason::kRankLate, context, operation, named.size() == 1 ? "is late" : "are late", named),
               context);
  }
}

void Job::AdvanceRequests(JobContext& context) {
  agreement_.Advance(context);
  const bool blocked = std::any_of(saves_.begin(), saves_.end(), [](const Save& save) { return !save.ended(); });
  SaveRequest* first = nullptr;
  for (SaveRequest& request : requests_) {
    if (request.state != SaveRequest::State::kWaiting) continue;
    if (!request.step_given && !request.agreed && agreement_.state() == StepAgreement::State::kAgreed) {
      request.step = agreement_.step();
      request.agreed = true;
      request.progress = context.now;
      request.revision = ++revision_;
    } else if (request.step_given && !request.agreed && agreement_.state() == StepAgreement::State::kAgreed &&
               agreement_.step() == *request.step) {
      request.agreed = true;
      request.progress = context.now;
    }
    if (request.step.has_value()) {
      if (Save* save = ActiveSave(*request.step); save != nullptr) {
        save->AddRequest(request.id, request.deadline);
        context.orders_changed = true;
        request.state = SaveRequest::State::kAttached;
        ++revision_;
        continue;
      }
      // The save may have ended within one event.
      if (Committed(*request.step)) {
        EndRequest(request, StepCommitted(*request.step), context);
        continue;
      }
    }
    CheckTrainers(request, context);
    if (request.state == SaveRequest::State::kWaiting) {
      CheckRequestTime(request, blocked && !request.agreed, context);
    }
    if (request.state == SaveRequest::State::kWaiting && !request.agreed && first == nullptr) first = &request;
  }
  const bool wanted = std::any_of(requests_.begin(), requests_.end(), [](const SaveRequest& request) {
    return request.state == SaveRequest::State::kWaiting;
  });
  switch (agreement_.state()) {
    case StepAgreement::State::kIdle:
      if (first != nullptr && !blocked) {
        if (absl::Status status = agreement_.Want(first->step, context); !status.ok()) {
          EndRequest(*first, status, context);
        }
      }
      break;
    case StepAgreement::State::kArming:
      if (!wanted) agreement_.Stop(context);
      break;
    case StepAgreement::State::kAgreeing:
    case StepAgreement::State::kAgreed: {
      // The agreement stands in the control pages until every trainer has acted on it or gone past it.
      bool over = true;
      for (const auto& [rank, member] : members_.members()) {
        const bool begun = std::any_of(member.state.saves().begin(), member.state.saves().end(),
                                       [&](const auto& save) { return save.step() == agreement_.step(); });
        over = over && (begun || member.current_step().value_or(-1) > agreement_.step());
      }
      const bool settled = FindSave(agreement_.step(), /*active=*/false) != nullptr || Committed(agreement_.step());
      const bool needed = std::any_of(requests_.begin(), requests_.end(), [&](const SaveRequest& request) {
        return request.state == SaveRequest::State::kWaiting && (!request.agreed || request.step == agreement_.step());
      });
      if (over || settled || !members_.complete()) {
        agreement_.Stop(context);
      } else if (!needed && !agreement_.inherited() && ActiveSave(agreement_.step()) == nullptr) {
        agreement_.Revoke(context);
      }
      break;
    }
    case StepAgreement::State::kDisarming:
      break;
  }
}

const VerdictSummary* Job::FindVerdict(const CheckpointKey& key) const {
  const VerdictSummary* found = nullptr;
  for (const auto& [at, verdict] : verdicts_) {
    if (key.step.has_value() ? at.first == *key.step
                             : (key.request_id.empty() ? verdict.committed : verdict.request_id == key.request_id)) {
      found = &verdict;
    }
  }
  return found;
}

std::optional<absl::StatusOr<v1::Checkpoint>> Job::Get(const CheckpointKey& key, uint64_t known_epoch,
                                                       const Moment& moment) {
  EnsureRecovered(moment);
  JobContext& context = Begin(moment);
  last_used_ = context.now;
  if (key.step.has_value()) {
    if (absl::Status status = CheckStep(*key.step); !status.ok()) return status;
  }
  const bool by_request = !key.step.has_value() && !key.request_id.empty();
  const auto matches = [&](const Save& save) {
    return key.step.has_value() ? save.step() == *key.step : by_request && save.HasRequest(key.request_id);
  };
  const Save* found = nullptr;
  for (const Save& save : saves_) {
    if (matches(save) && (found == nullptr || found->ended())) found = &save;
  }
  for (const Save& save : saves_) {
    if (matches(save) && found->ended()) found = &save;  // the newest of those that ended
  }
  if (found != nullptr) {
    v1::Checkpoint view = found->View(context);
    if (by_request) view.set_request_id(key.request_id);
    return view;
  }
  for (const SaveRequest& request : requests_) {
    if (request.state == SaveRequest::State::kAttached) continue;
    if (by_request
            ? request.id == key.request_id
            : key.step.has_value() && request.step == key.step && request.state == SaveRequest::State::kWaiting) {
      return ViewOf(request, context);
    }
  }
  if (!recovered_) {
    if (!recovery_error_.ok()) return recovery_error_;
    return std::nullopt;
  }
  if (const VerdictSummary* verdict = FindVerdict(key); verdict != nullptr) return ViewOf(*verdict);
  const bool from_before = by_request && known_epoch != 0 && known_epoch < options_.coordinator_epoch;
  if (from_before) {
    v1::Checkpoint lost;
    lost.set_job(name_);
    lost.set_request_id(key.request_id);
    const bool waiting = context.now - context.started < 2 * options_.lease_ttl;
    // Until it is certain, the answer carries the epoch of the coordinator that the caller knows, so that the caller
    // asks with that epoch again.
    lost.set_coordinator_epoch(waiting ? known_epoch : options_.coordinator_epoch);
    lost.set_revision(waiting ? 1 : 2);
    lost.set_state(waiting ? v1::Checkpoint::PREPARING : v1::Checkpoint::ABORTED);
    if (!waiting) {
      *lost.mutable_error() =
          StatusToProto(OperationError(Reason::kCoordinatorRestarted, context, {"save"},
                                       "no rank had begun the save when the coordinator restarted"));
    }
    return lost;
  }
  const std::string what = key.step.has_value() ? absl::StrCat(name_, "@", *key.step)
                           : by_request         ? absl::StrCat(name_, ": request ", key.request_id)
                                                : name_;
  ErrorMetadata metadata = {{"job", name_}};
  if (key.step.has_value()) metadata.emplace_back("step", absl::StrCat(*key.step));
  return MakeError(Reason::kNotCommitted,
                   absl::StrCat(what, key.step.has_value() || by_request ? " was never saved" : " has no checkpoint"),
                   metadata);
}

std::optional<absl::StatusOr<v1::Checkpoint>> Job::Cancel(const CheckpointKey& key, const Moment& moment) {
  JobContext& context = Begin(moment);
  for (Save& save : saves_) {
    if (save.ended()) continue;
    if (key.step.has_value() ? save.step() == *key.step : key.request_id.empty() || save.HasRequest(key.request_id)) {
      save.Cancel(context);
    }
  }
  for (SaveRequest& request : requests_) {
    if (request.state != SaveRequest::State::kWaiting) continue;
    if (key.step.has_value() ? request.step == key.step : key.request_id.empty() || request.id == key.request_id) {
      EndRequest(request,
                 OperationError(Reason::kSaveCancelled, context, {"save", request.step}, "cancelled on request"),
                 context);
    }
  }
  ++revision_;
  Advance(context);
  return Get(key, 0, moment);
}

v1::Checkpoint Job::ViewOf(const VerdictSummary& verdict) const {
  v1::Checkpoint view;
  view.set_job(name_);
  view.set_step(verdict.step);
  view.set_attempt(verdict.attempt);
  view.set_request_id(verdict.request_id);
  view.set_coordinator_epoch(options_.coordinator_epoch);
  view.set_revision(1);
  view.set_state(verdict.committed ? v1::Checkpoint::COMMITTED
                 : verdict.damaged ? v1::Checkpoint::DAMAGED
                                   : v1::Checkpoint::ABORTED);
  view.set_data_directory(AttemptDirectory(name_, verdict.step, verdict.attempt));
  if (verdict.committed) {
    view.set_bytes(verdict.bytes);
    view.set_world_size(verdict.world_size);
    SetTimestamp(verdict.commit_time, *view.mutable_commit_time());
    // If a save ended before the coordinator's start, only its end is known.
    SetTimestamp(verdict.commit_time, *view.mutable_create_time());
  } else {
    *view.mutable_error() = StatusToProto(verdict.error);
  }
  return view;
}

v1::Checkpoint Job::ViewOf(const SaveRequest& request, const JobContext& context) const {
  v1::Checkpoint view;
  view.set_job(name_);
  view.set_request_id(request.id);
  if (request.step.has_value()) view.set_step(*request.step);
  view.set_coordinator_epoch(options_.coordinator_epoch);
  view.set_revision(request.revision);
  view.set_world_size(static_cast<uint32_t>(members_.world_size()));
  SetTimestamp(request.created_wall, *view.mutable_create_time());
  view.set_state(request.state == SaveRequest::State::kEnded ? v1::Checkpoint::ABORTED : v1::Checkpoint::PREPARING);
  if (!request.error.ok()) *view.mutable_error() = StatusToProto(request.error);
  const std::vector<NamedRank> awaited = request.agreed ? std::vector<NamedRank>() : agreement_.Awaited(context);
  const bool late = context.now - request.progress > options_.phase_timeout / 2;
  for (int rank = 0; rank < members_.world_size(); ++rank) {
    v1::RankProgress& progress = *view.add_ranks();
    progress.set_rank(static_cast<uint32_t>(rank));
    progress.set_phase(v1::RankProgress::WAITING);
    if (const Member* member = members_.Find(rank); member != nullptr) {
      progress.set_node(member->node);
      SetDuration(context.now - member->stepped, *progress.mutable_idle());
    }
    for (const NamedRank& named_rank : awaited) {
      if (named_rank.rank != rank) continue;
      progress.set_note(named_rank.detail);
      progress.set_late(late && request.state == SaveRequest::State::kWaiting);
    }
  }
  return view;
}

v1::Job Job::View(const Moment& moment) const {
  const JobContext context = At(moment);
  v1::Job view;
  view.set_job(name_);
  view.set_world_size(static_cast<uint32_t>(members_.world_size()));
  view.set_coordinator_epoch(options_.coordinator_epoch);
  view.set_membership_epoch(members_.epoch());
  view.set_revision(revision_);
  for (const auto& [rank, member] : members_.members()) {
    v1::JobRank& entry = *view.add_ranks();
    entry.set_rank(static_cast<uint32_t>(rank));
    entry.set_node(member.node);
    entry.set_address(member.transfer_address);
    entry.set_trainer_attached(member.reported && member.state.trainer().attached());
    if (member.current_step().has_value()) entry.set_current_step(*member.current_step());
    SetDuration(context.now - member.heard, *entry.mutable_last_heard());
  }
  const Save* save = nullptr;
  for (const Save& candidate : saves_) {
    if (save == nullptr || save->ended()) save = &candidate;
  }
  const SaveRequest* request = nullptr;
  const SaveRequest* failed = nullptr;  // after the last save had begun
  for (const SaveRequest& candidate : requests_) {
    if (candidate.state == SaveRequest::State::kWaiting && request == nullptr) request = &candidate;
    if (candidate.state != SaveRequest::State::kEnded || candidate.saves_begun != saves_begun_) continue;
    if (failed == nullptr || candidate.revision > failed->revision) failed = &candidate;
  }
  // Takes the first request that waits; else the one that ended last, which an older commit must not hide.
  if (request == nullptr) request = failed;
  if (save != nullptr && (!save->ended() || request == nullptr)) {
    *view.mutable_checkpoint() = save->View(context);
  } else if (request != nullptr) {
    *view.mutable_checkpoint() = ViewOf(*request, context);
  }
  loads_.View(context, view);
  return view;
}

}  // namespace cairn
