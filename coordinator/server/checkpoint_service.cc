#include "coordinator/server/checkpoint_service.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/time_proto.h"
#include "common/base/version.h"
#include "common/format/checkpoint_path.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "coordinator/job/waiting_caller.h"
#include "coordinator/server/reshard_preview.h"
#include "store/read/listed_checkpoint.h"

namespace cairn {
namespace {

constexpr absl::Duration kMaxWait = absl::Seconds(30);
// A call may wait this long for storage, or for agents that come back after a restart.
constexpr absl::Duration kPatience = absl::Seconds(8);
// After this time a long prune tells what it has done so far.
constexpr absl::Duration kPartInterval = absl::Seconds(1);
constexpr uint32_t kMaxPage = 1000;
constexpr uint32_t kFormatVersion = 1;
constexpr uint64_t kManifestChunkBytes = uint64_t{2} << 20;

absl::Duration MaxWait(bool given, const google::protobuf::Duration& proto) {
  if (!given) return kMaxWait;
  return std::clamp(DurationOf(proto), absl::ZeroDuration(), kMaxWait);
}

template <typename Request>
CheckpointKey KeyOf(const Request& request) {
  CheckpointKey key;
  if (request.has_step()) key.step = request.step();
  key.request_id = request.request_id();
  return key;
}

// The step after which a page begins, -1 for the first one. A page's token is the step of its predecessor's last
// checkpoint; nothing if this one was not given by us.
std::optional<int64_t> PageStart(const v1::ListCheckpointsRequest& request) {
  int64_t after = -1;
  if (request.page_token().empty()) return after;
  if (!absl::SimpleAtoi(request.page_token(), &after) || !CheckStep(after).ok()) return std::nullopt;
  return after;
}

absl::StatusOr<PrunePolicy> PolicyOf(const v1::RetentionPolicy& policy) {
  if (policy.keep_last() < 0 || policy.keep_every() < 0) {
    return MakeError(Reason::kBadRequest, "what is kept is counted from 1");
  }
  PrunePolicy rules{policy.keep_last(), policy.keep_every(), std::nullopt};
  if (policy.has_keep_best()) {
    rules.keep_best = BestRule{policy.keep_best().metric(), policy.keep_best().highest()};
    CAIRN_RETURN_IF_ERROR(ParseBestRule(ToString(*rules.keep_best)).status());
  }
  return rules;
}

v1::RetentionPolicy PolicyToProto(const PrunePolicy& policy) {
  v1::RetentionPolicy proto;
  proto.set_keep_last(policy.keep_last);
  proto.set_keep_every(policy.keep_every);
  if (policy.keep_best.has_value()) {
    proto.mutable_keep_best()->set_metric(policy.keep_best->metric);
    proto.mutable_keep_best()->set_highest(policy.keep_best->highest);
  }
  return proto;
}

absl::Status NoRule(const std::string& job) {
  return MakeError(
      Reason::kBadRequest, absl::StrCat("nothing says which checkpoints of ", job, " to keep"),
      {{"job", job},
       {"next",
        absl::StrCat("Give --keep-last, --keep-every or --keep-best, or set the job's policy: `cairn retention ", job,
                     "`.")}});
}

// Returns the error of a prune that ended early, with the steps that it had deleted in the metadata.
absl::Status WithDeleted(const ChangedSteps& changed) {
  constexpr size_t kMostNamed = 100;  // the metadata of an error must be small
  std::vector<int64_t> steps;
  for (const StoredAttempt& deleted : changed.deleted) steps.push_back(deleted.step);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  const std::string count = absl::StrCat(steps.size());
  if (steps.size() > kMostNamed) steps.resize(kMostNamed);
  return WithMetadata(changed.ended_by, {{"deleted_steps", absl::StrJoin(steps, ",")}, {"deleted", count}});
}

absl::Status NoSuchJob(const std::string& name) {
  return MakeError(Reason::kJobNotFound,
                   absl::StrCat("no agent of job ", name, " is registered, and it has no checkpoint"), {{"job", name}});
}

// OK if there is such a job; nothing while that is not known. `last`: nobody waits any longer.
std::optional<absl::Status> CheckKnown(Job& job, const Moment& moment, bool last) {
  job.EnsureRecovered(moment);
  if (job.known()) return absl::OkStatus();
  if (!job.recovered() && !last) return std::nullopt;
  return NoSuchJob(job.name());
}

// Answers a prune by the job's own rules, which a job may have before it begins.
absl::StatusOr<v1::PruneCheckpointsResponse> PrunedByRules(const Job& job, const Job::Changed& changed, const Moment&) {
  if (!changed.steps.ended_by.ok()) return WithDeleted(changed.steps);
  if (changed.steps.policy.empty()) return NoRule(job.name());
  v1::PruneCheckpointsResponse made;
  for (const PruneChoice& choice : changed.steps.choices) {
    v1::PruneCheckpointsResponse::Choice& entry = *made.add_choices();
    entry.set_step(choice.step);
    entry.set_prune(choice.prune);
    entry.set_why(choice.why);
    const bool left = changed.steps.stopped_after.has_value() && choice.step > *changed.steps.stopped_after;
    if (choice.prune && left) made.set_steps_left(made.steps_left() + 1);
  }
  *made.mutable_policy() = PolicyToProto(changed.steps.policy);
  made.set_files_left(changed.files_left);
  return made;
}

absl::StatusOr<v1::PruneCheckpointsResponse> PrunedByRequest(const Job& job, const Job::Changed& changed,
                                                             const Moment& moment) {
  if (changed.steps.ended_by.ok() && !job.known()) return NoSuchJob(job.name());
  return PrunedByRules(job, changed, moment);
}

// Returns the caller with how long its call has waited. `begun`: when it was first asked, which this notes.
WaitingCaller WaitedSince(WaitingCaller caller, const Moment& moment, absl::Time& begun) {
  begun = std::min(begun, moment.now);
  caller.waited = moment.now - begun;
  return caller;
}

using CheckpointAnswer = std::optional<absl::StatusOr<v1::Checkpoint>>;

}  // namespace

template <typename Request>
absl::Status CheckpointService::CheckStepRequest(const Request& request) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(request.job()));
  if (!request.has_step()) {
    return MakeError(Reason::kBadRequest, absl::StrCat(request.job(), ": the request names no step"),
                     {{"job", request.job()}});
  }
  return CheckStep(request.step());
}

grpc::ServerUnaryReactor* CheckpointService::CreateCheckpoint(grpc::CallbackServerContext* context,
                                                              const v1::CreateCheckpointRequest* request,
                                                              v1::Checkpoint* response) {
  if (draining_) {
    return FinishNow(context, MakeError(Reason::kCoordinatorUnreachable, "the coordinator is ending"));
  }
  if (request->has_timeout() && (request->timeout().seconds() < 0 || request->timeout().nanos() < 0)) {
    return FinishNow(context, MakeError(Reason::kBadRequest, "a timeout must not be negative"));
  }
  const v1::CreateCheckpointRequest create = *request;
  return dispatcher_.Hold(context, {create.job()}, kPatience, response,
                          [create](Job& job, const Moment& moment, bool last) -> CheckpointAnswer {
                            return job.Create(create, /*patient=*/!last, moment);
                          });
}

grpc::ServerUnaryReactor* CheckpointService::GetCheckpoint(grpc::CallbackServerContext* context,
                                                           const v1::GetCheckpointRequest* request,
                                                           v1::Checkpoint* response) {
  return dispatcher_.Hold(context, {request->job()}, kPatience, response,
                          [key = KeyOf(*request)](Job& job, const Moment& moment, bool) -> CheckpointAnswer {
                            return job.Get(key, 0, moment);
                          });
}

grpc::ServerUnaryReactor* CheckpointService::WaitCheckpoint(grpc::CallbackServerContext* context,
                                                            const v1::WaitCheckpointRequest* request,
                                                            v1::Checkpoint* response) {
  const WaitingCaller caller = {request->known_revision(), request->coordinator_epoch()};
  auto begun = std::make_shared<absl::Time>(absl::InfiniteFuture());
  return dispatcher_.Hold(context, {request->job()}, MaxWait(request->has_max_wait(), request->max_wait()), response,
                          [key = KeyOf(*request), caller, epoch = options_.coordinator_epoch, begun](
                              Job& job, const Moment& moment, bool last) -> CheckpointAnswer {
                            auto checkpoint = job.Get(key, caller.known_epoch, moment);
                            if (!checkpoint.has_value() || !checkpoint->ok() || last) return checkpoint;
                            if (!IsAnswered(WaitedSince(caller, moment, *begun), **checkpoint, epoch))
                              return std::nullopt;
                            return checkpoint;
                          });
}

grpc::ServerUnaryReactor* CheckpointService::CancelCheckpoint(grpc::CallbackServerContext* context,
                                                              const v1::CancelCheckpointRequest* request,
                                                              v1::Checkpoint* response) {
  return dispatcher_.Hold(context, {request->job()}, kPatience, response,
                          [key = KeyOf(*request)](Job& job, const Moment& moment, bool) -> CheckpointAnswer {
                            return job.Cancel(key, moment);
                          });
}

template <typename Response>
grpc::ServerUnaryReactor* CheckpointService::HoldChange(grpc::CallbackServerContext* context, const std::string& name,
                                                        const ChangeSteps& change, Response* response,
                                                        ChangeAnswer<Response> answer) {
  auto number = std::make_shared<uint64_t>(0);
  auto begun = std::make_shared<absl::Time>(absl::InfiniteFuture());
  return dispatcher_.Hold(context, {name}, kPatience, response,
                          [change, number, begun, answer](Job& job, const Moment& moment,
                                                          bool last) -> std::optional<absl::StatusOr<Response>> {
                            *begun = std::min(*begun, moment.now);
                            const bool partly = last || moment.now - *begun >= kPartInterval;
                            const auto changed = job.Change(change, *number, /*patient=*/!last, partly, moment);
                            if (!changed.has_value()) return std::nullopt;
                            if (!changed->ok()) return changed->status();
                            return answer(job, **changed, moment);
                          });
}

grpc::ServerUnaryReactor* CheckpointService::DeleteCheckpoint(grpc::CallbackServerContext* context,
                                                              const v1::DeleteCheckpointRequest* request,
                                                              v1::DeleteCheckpointResponse* response) {
  if (absl::Status status = CheckStepRequest(*request); !status.ok()) return FinishNow(context, status);
  return HoldChange<v1::DeleteCheckpointResponse>(
      context, request->job(), {DeleteStep{request->step(), request->cause()}}, response,
      [](const Job& job, const Job::Changed& changed,
         const Moment& moment) -> absl::StatusOr<v1::DeleteCheckpointResponse> {
        v1::DeleteCheckpointResponse made;
        for (const StoredAttempt& deleted : changed.steps.deleted)
          *made.add_deleted_attempts() = job.ViewOf(deleted, moment);
        for (const uint32_t attempt : changed.steps.deleted_before) made.add_previously_deleted_attempts(attempt);
        made.set_files_left(changed.files_left);
        made.set_mirror_follows(changed.steps.mirror_follows);
        return made;
      });
}

grpc::ServerUnaryReactor* CheckpointService::PinCheckpoint(grpc::CallbackServerContext* context,
                                                           const v1::PinCheckpointRequest* request,
                                                           v1::PinCheckpointResponse* response) {
  if (absl::Status status = CheckStepRequest(*request); !status.ok()) return FinishNow(context, status);
  return HoldChange<v1::PinCheckpointResponse>(
      context, request->job(), {PinStep{request->step(), request->pinned(), request->note()}}, response,
      [](const Job&, const Job::Changed&, const Moment&) -> absl::StatusOr<v1::PinCheckpointResponse> {
        return v1::PinCheckpointResponse();
      });
}

grpc::ServerUnaryReactor* CheckpointService::TagCheckpoint(grpc::CallbackServerContext* context,
                                                           const v1::TagCheckpointRequest* request,
                                                           v1::TagCheckpointResponse* response) {
  absl::Status status = request->tagged() ? CheckStepRequest(*request) : absl::OkStatus();
  if (status.ok()) status = CheckJobName(request->job());
  if (status.ok()) status = CheckTag(request->name());
  if (!status.ok()) return FinishNow(context, status);
  TagStep tag{request->name(), std::nullopt};
  if (request->tagged()) tag.step = request->step();
  return HoldChange<v1::TagCheckpointResponse>(
      context, request->job(), {tag}, response,
      [](const Job&, const Job::Changed& changed, const Moment&) -> absl::StatusOr<v1::TagCheckpointResponse> {
        v1::TagCheckpointResponse made;
        for (int64_t step : changed.steps.untagged) made.add_untagged_steps(step);
        return made;
      });
}

grpc::ServerUnaryReactor* CheckpointService::PruneCheckpoints(grpc::CallbackServerContext* context,
                                                              const v1::PruneCheckpointsRequest* request,
                                                              v1::PruneCheckpointsResponse* response) {
  absl::Status status = CheckJobName(request->job());
  PruneSteps prune;
  prune.dry_run = request->dry_run();
  if (status.ok() && request->has_policy()) {
    const auto policy = PolicyOf(request->policy());
    status = policy.status();
    if (policy.ok() && policy->empty()) status = NoRule(request->job());
    if (status.ok()) prune.policy = *policy;
  }
  if (!status.ok()) return FinishNow(context, status);
  return HoldChange<v1::PruneCheckpointsResponse>(context, request->job(), {prune}, response,
                                                  request->has_policy() ? PrunedByRequest : PrunedByRules);
}

grpc::ServerUnaryReactor* CheckpointService::SetRetention(grpc::CallbackServerContext* context,
                                                          const v1::SetRetentionRequest* request,
                                                          v1::SetRetentionResponse* response) {
  absl::Status status = CheckJobName(request->job());
  const auto policy = PolicyOf(request->policy());
  if (status.ok()) status = policy.status();
  if (!status.ok()) return FinishNow(context, status);
  return HoldChange<v1::SetRetentionResponse>(
      context, request->job(), {cairn::SetRetention{*policy}}, response,
      [](const Job&, const Job::Changed&, const Moment&) -> absl::StatusOr<v1::SetRetentionResponse> {
        return v1::SetRetentionResponse();
      });
}

grpc::ServerUnaryReactor* CheckpointService::ListCheckpoints(grpc::CallbackServerContext* context,
                                                             const v1::ListCheckpointsRequest* request,
                                                             v1::ListCheckpointsResponse* response) {
  absl::Status status = CheckJobName(request->job());
  if (status.ok() && !PageStart(*request).has_value()) {
    status = MakeError(Reason::kBadRequest, "the page token was not given by this call", {{"job", request->job()}});
  }
  if (!status.ok()) return FinishNow(context, status);
  return dispatcher_.OnWorker(
      *this, *request, response,
      [](CheckpointService& self,
         const v1::ListCheckpointsRequest& asked) -> absl::StatusOr<v1::ListCheckpointsResponse> {
        const uint32_t size = asked.page_size() == 0 ? kMaxPage : std::min(asked.page_size(), kMaxPage);
        const int64_t after = PageStart(asked).value_or(-1);
        CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, self.checkpoints_.ReadCheckpoints(asked.job()));
        JobLineage lineage = LineageOf(steps);
        if (self.mirror_ != nullptr) lineage = self.mirror_->view().LineageOfBoth(asked.job()).value_or(lineage);
        v1::ListCheckpointsResponse page;
        for (const StepRecord& step : steps) {
          if (step.step <= after) continue;
          if (page.checkpoints_size() == static_cast<int>(size)) {
            page.set_next_page_token(absl::StrCat(page.checkpoints(page.checkpoints_size() - 1).step()));
            break;
          }
          v1::Checkpoint& entry = *page.add_checkpoints();
          entry = ListedCheckpoint(asked.job(), step, lineage);
          entry.set_coordinator_epoch(self.options_.coordinator_epoch);
          entry.set_revision(1);
          if (self.mirror_ != nullptr) *entry.mutable_mirror() = self.mirror_->view().Describe(asked.job(), step.step);
        }
        if (self.mirror_ == nullptr) return page;
        *page.mutable_mirror() = self.mirror_->view().DescribeMirror(asked.job());
        if (!page.next_page_token().empty()) return page;
        for (v1::Checkpoint& checkpoint : self.mirror_->view().OnlyThere(asked.job())) {
          *page.add_mirror_only_checkpoints() = std::move(checkpoint);
        }
        return page;
      });
}

absl::Status CheckpointService::WithMirror(const absl::Status& status, const std::string& job,
                                           std::optional<int64_t> step) const {
  if (mirror_ == nullptr || !HasReason(status, Reason::kNotCommitted)) return status;
  const std::vector<v1::Checkpoint> there = mirror_->view().OnlyThere(job);
  const bool has = std::any_of(there.begin(), there.end(), [&](const v1::Checkpoint& checkpoint) {
    return !step.has_value() || checkpoint.step() == *step;
  });
  if (!has) return status;
  return Annotate(status, "only the mirror has it",
                  {{"next", absl::StrCat("A load takes it from there. To look at it, give --root ", mirror_->address(),
                                         " to the command.")}});
}

grpc::ServerUnaryReactor* CheckpointService::GetManifest(grpc::CallbackServerContext* context,
                                                         const v1::GetManifestRequest* request,
                                                         v1::GetManifestResponse* response) {
  absl::Status status = CheckJobName(request->job());
  if (!status.ok()) return FinishNow(context, status);
  return dispatcher_.OnWorker(
      *this, *request, response,
      [](CheckpointService& self, const v1::GetManifestRequest& asked) -> absl::StatusOr<v1::GetManifestResponse> {
        const std::optional<int64_t> step = asked.has_step() ? std::optional(asked.step()) : std::nullopt;
        const auto read = self.checkpoints_.ReadManifestBytes(asked.job(), step);
        if (!read.ok()) return self.WithMirror(read.status(), asked.job(), step);
        const CheckpointStore::ManifestBytes& found = *read;
        if (asked.offset() > found.bytes->size()) {
          return MakeError(Reason::kBadRequest, absl::StrCat("offset ", asked.offset(), " of a manifest of ",
                                                             found.bytes->size(), " bytes"));
        }
        v1::GetManifestResponse made;
        made.set_chunk(found.bytes->substr(asked.offset(), kManifestChunkBytes));
        made.set_total_bytes(found.bytes->size());
        made.set_step(found.step);
        made.set_attempt(found.attempt);
        return made;
      });
}

grpc::ServerUnaryReactor* CheckpointService::HoldJob(grpc::CallbackServerContext* context, const std::string& name,
                                                     uint64_t known, absl::Duration max_wait, v1::Job* response) {
  auto begun = std::make_shared<absl::Time>(absl::InfiniteFuture());
  return dispatcher_.HoldShared(
      context, {name}, max_wait, response,
      [this, known, begun](Job& job, const Moment& moment,
                           bool last) -> std::optional<absl::StatusOr<std::shared_ptr<const v1::Job>>> {
        const std::optional<absl::Status> is_known = CheckKnown(job, moment, last);
        if (!is_known.has_value()) return std::nullopt;
        if (!is_known->ok()) return *is_known;
        if (!last && !IsAnswered(WaitedSince({known}, moment, *begun), job.revision())) return std::nullopt;
        return job.SharedView(moment, dispatcher_.stalled_calls(), known);
      });
}

grpc::ServerUnaryReactor* CheckpointService::GetJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request, v1::Job* response) {
  const std::string name = request->job();
  if (!request->has_page()) return HoldJob(context, name, 0, kPatience, response);
  return dispatcher_.Hold(context, {name}, kPatience, response,
                          [this, page = request->page()](Job& job, const Moment& moment,
                                                         bool last) -> std::optional<absl::StatusOr<v1::Job>> {
                            const std::optional<absl::Status> is_known = CheckKnown(job, moment, last);
                            if (!is_known.has_value()) return std::nullopt;
                            if (!is_known->ok()) return *is_known;
                            v1::Job view = job.View(moment, page);
                            view.set_stalled_storage_calls(static_cast<uint32_t>(dispatcher_.stalled_calls()));
                            return view;
                          });
}

grpc::ServerUnaryReactor* CheckpointService::WaitJob(grpc::CallbackServerContext* context,
                                                     const v1::WaitJobRequest* request, v1::Job* response) {
  const uint64_t known = request->coordinator_epoch() == options_.coordinator_epoch ? request->known_revision() : 0;
  return HoldJob(context, request->job(), known, MaxWait(request->has_max_wait(), request->max_wait()), response);
}

grpc::ServerUnaryReactor* CheckpointService::PlanReshard(grpc::CallbackServerContext* context,
                                                         const v1::PlanReshardRequest* request,
                                                         v1::PlanReshardResponse* response) {
  absl::Status status;
  const bool from_checkpoint = request->sources_size() == 0;
  if (from_checkpoint) status = CheckJobName(request->job());
  if (status.ok() && request->has_step()) {
    status = from_checkpoint ? CheckStep(request->step())
                             : MakeError(Reason::kBadRequest, "the source is either layouts or a step, not both");
  }
  if (!status.ok()) return FinishNow(context, status);
  return dispatcher_.OnWorker(
      *this, *request, response,
      [](CheckpointService& self, const v1::PlanReshardRequest& asked) -> absl::StatusOr<v1::PlanReshardResponse> {
        std::shared_ptr<const Manifest> manifest;
        if (asked.sources_size() == 0) {
          const auto step = asked.has_step() ? std::optional(asked.step()) : std::nullopt;
          CAIRN_ASSIGN_OR_RETURN(manifest, self.checkpoints_.SharedManifest(asked.job(), step));
        }
        const Computing computing;
        return PreviewReshard(asked, manifest.get());
      });
}

grpc::ServerUnaryReactor* CheckpointService::GetCapabilities(grpc::CallbackServerContext* context,
                                                             const v1::GetCapabilitiesRequest*,
                                                             v1::Capabilities* response) {
  response->set_version(std::string(kVersion));
  response->set_min_protocol(1);
  response->set_max_protocol(kProtocolVersion);
  response->set_format_version(kFormatVersion);
  response->set_max_message_bytes(kMaxMessageBytes);
  response->set_root(root_);
  return FinishNow(context, absl::OkStatus());
}

}  // namespace cairn
