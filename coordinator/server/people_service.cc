#include "coordinator/server/people_service.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/reason.h"
#include "common/storage/checkpoint_path.h"
#include "common/storage/listed_checkpoint.h"
#include "coordinator/server/reshard_preview.h"

namespace cairn {
namespace {

constexpr absl::Duration kMaxWait = absl::Seconds(30);
// How long a call may wait for storage, or for agents that come back after a restart.
constexpr absl::Duration kPatience = absl::Seconds(8);
constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);
constexpr uint32_t kMaxPage = 1000;
constexpr uint32_t kFormatVersion = 1;
constexpr uint64_t kManifestChunkBytes = uint64_t{2} << 20;

absl::Duration MaxWait(bool given, const google::protobuf::Duration& proto) {
  if (!given) return kMaxWait;
  return std::clamp(absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos()), absl::ZeroDuration(), kMaxWait);
}

template <typename Request>
CheckpointKey KeyOf(const Request& request) {
  CheckpointKey key;
  if (request.has_step()) key.step = request.step();
  key.request_id = request.request_id();
  return key;
}

Dispatcher::Answer AnswerWith(const absl::StatusOr<v1::Checkpoint>& checkpoint, v1::Checkpoint* response) {
  if (!checkpoint.ok()) return {checkpoint.status()};
  auto shared = std::make_shared<v1::Checkpoint>(*checkpoint);
  return {absl::OkStatus(), [response, shared] { response->Swap(shared.get()); }};
}

}  // namespace

grpc::ServerUnaryReactor* PeopleService::CreateCheckpoint(grpc::CallbackServerContext* context,
                                                          const v1::CreateCheckpointRequest* request,
                                                          v1::Checkpoint* response) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) return FinishNow(context, status);
  if (draining_) {
    return FinishNow(context, MakeError(Reason::kCoordinatorUnreachable, "the coordinator is ending"));
  }
  if (request->has_timeout() && (request->timeout().seconds() < 0 || request->timeout().nanos() < 0)) {
    return FinishNow(context, MakeError(Reason::kBadRequest, "a timeout must not be negative"));
  }
  const v1::CreateCheckpointRequest create = *request;
  return dispatcher_.Hold(
      context, "", kPatience,
      [create, response](Core& core, const Environment& environment, bool last) -> std::optional<Dispatcher::Answer> {
        const auto job = core.JobFor(create.job(), environment);
        if (!job.ok()) return Dispatcher::Answer{job.status()};
        const auto checkpoint = (*job)->Create(create, /*patient=*/!last, environment);
        if (!checkpoint.has_value()) return std::nullopt;
        return AnswerWith(*checkpoint, response);
      });
}

grpc::ServerUnaryReactor* PeopleService::GetCheckpoint(grpc::CallbackServerContext* context,
                                                       const v1::GetCheckpointRequest* request,
                                                       v1::Checkpoint* response) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) return FinishNow(context, status);
  const std::string name = request->job();
  const CheckpointKey key = KeyOf(*request);
  return dispatcher_.Hold(context, "", kPatience,
                          [=](Core& core, const Environment& environment, bool) -> std::optional<Dispatcher::Answer> {
                            const auto job = core.JobFor(name, environment);
                            if (!job.ok()) return Dispatcher::Answer{job.status()};
                            const auto checkpoint = (*job)->Get(key, 0, environment);
                            if (!checkpoint.has_value()) return std::nullopt;
                            return AnswerWith(*checkpoint, response);
                          });
}

grpc::ServerUnaryReactor* PeopleService::WaitCheckpoint(grpc::CallbackServerContext* context,
                                                        const v1::WaitCheckpointRequest* request,
                                                        v1::Checkpoint* response) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) return FinishNow(context, status);
  const std::string name = request->job();
  const CheckpointKey key = KeyOf(*request);
  const uint64_t known = request->known_revision();
  const uint64_t known_epoch = request->coordinator_epoch();
  const uint64_t epoch = options_.coordinator_epoch;
  auto begun = std::make_shared<absl::Time>(absl::InfinitePast());
  return dispatcher_.Hold(
      context, "", MaxWait(request->has_max_wait(), request->max_wait()),
      [=](Core& core, const Environment& environment, bool last) -> std::optional<Dispatcher::Answer> {
        const auto job = core.JobFor(name, environment);
        if (!job.ok()) return Dispatcher::Answer{job.status()};
        const auto checkpoint = (*job)->Get(key, known_epoch, environment);
        if (!checkpoint.has_value()) return std::nullopt;
        if (!checkpoint->ok()) return AnswerWith(*checkpoint, response);
        // What came back from before a restart is news only if it says more than "perhaps".
        const bool unsure = (*checkpoint)->state() == v1::Checkpoint::PREPARING && !(*checkpoint)->has_step() &&
                            known_epoch != 0 && known_epoch != epoch;
        const bool news = (known_epoch != epoch && !unsure) || (*checkpoint)->revision() > known;
        const bool ended =
            (*checkpoint)->state() == v1::Checkpoint::COMMITTED || (*checkpoint)->state() == v1::Checkpoint::ABORTED;
        if (*begun == absl::InfinitePast()) *begun = environment.now;
        // Ends are told at once, mere progress at a pace that people can follow.
        const bool soon = known != 0 && !ended && environment.now - *begun < kProgressInterval;
        if (!last && (!news || unsure || soon)) return std::nullopt;
        return AnswerWith(*checkpoint, response);
      });
}

grpc::ServerUnaryReactor* PeopleService::CancelCheckpoint(grpc::CallbackServerContext* context,
                                                          const v1::CancelCheckpointRequest* request,
                                                          v1::Checkpoint* response) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) return FinishNow(context, status);
  const std::string name = request->job();
  const CheckpointKey key = KeyOf(*request);
  return dispatcher_.Hold(context, "", kPatience,
                          [=](Core& core, const Environment& environment, bool) -> std::optional<Dispatcher::Answer> {
                            const auto job = core.JobFor(name, environment);
                            if (!job.ok()) return Dispatcher::Answer{job.status()};
                            const auto checkpoint = (*job)->Cancel(key, environment);
                            if (!checkpoint.has_value()) return std::nullopt;
                            return AnswerWith(*checkpoint, response);
                          });
}

grpc::ServerUnaryReactor* PeopleService::ListCheckpoints(grpc::CallbackServerContext* context,
                                                         const v1::ListCheckpointsRequest* request,
                                                         v1::ListCheckpointsResponse* response) {
  absl::Status status = CheckToken(*context, token_);
  if (status.ok()) status = CheckJobName(request->job());
  // A page's token is the step of its predecessor's last checkpoint.
  int64_t after = -1;
  if (status.ok() && !request->page_token().empty() &&
      (!absl::SimpleAtoi(request->page_token(), &after) || !CheckStep(after).ok())) {
    status = MakeError(Reason::kBadRequest, "the page token was not given by this call", {{"job", request->job()}});
  }
  if (!status.ok()) return FinishNow(context, status);
  const std::string job = request->job();
  const uint32_t size = request->page_size() == 0 ? kMaxPage : std::min(request->page_size(), kMaxPage);
  return dispatcher_.OnWorker([this, job, size, after, response](std::function<void()>& respond) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, catalog_.Checkpoints(job));
    auto page = std::make_shared<v1::ListCheckpointsResponse>();
    for (const StepRecord& step : steps) {
      if (step.step <= after) continue;
      if (page->checkpoint_size() == static_cast<int>(size)) {
        page->set_next_page_token(absl::StrCat(page->checkpoint(page->checkpoint_size() - 1).step()));
        break;
      }
      v1::Checkpoint& entry = *page->add_checkpoint();
      entry = ListedCheckpoint(job, step);
      entry.set_coordinator_epoch(options_.coordinator_epoch);
      entry.set_revision(1);
    }
    respond = [response, page] { response->Swap(page.get()); };
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* PeopleService::GetManifest(grpc::CallbackServerContext* context,
                                                     const v1::GetManifestRequest* request,
                                                     v1::GetManifestResponse* response) {
  absl::Status status = CheckToken(*context, token_);
  if (status.ok()) status = CheckJobName(request->job());
  if (!status.ok()) return FinishNow(context, status);
  const std::string job = request->job();
  const std::optional<int64_t> step = request->has_step() ? std::optional(request->step()) : std::nullopt;
  const uint64_t offset = request->offset();
  return dispatcher_.OnWorker([this, job, step, offset, response](std::function<void()>& respond) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(const Catalog::ManifestBytes found, catalog_.ReadManifestBytes(job, step));
    if (offset > found.bytes->size()) {
      return MakeError(Reason::kBadRequest,
                       absl::StrCat("offset ", offset, " of a manifest of ", found.bytes->size(), " bytes"));
    }
    respond = [response, found, offset] {
      response->set_chunk(found.bytes->substr(offset, kManifestChunkBytes));
      response->set_total_bytes(found.bytes->size());
      response->set_step(found.step);
      response->set_attempt(found.attempt);
    };
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* PeopleService::HoldJob(grpc::CallbackServerContext* context, const std::string& name,
                                                 uint64_t known, absl::Duration max_wait, v1::Job* response) {
  auto begun = std::make_shared<absl::Time>(absl::InfinitePast());
  return dispatcher_.Hold(
      context, "", max_wait,
      [=](Core& core, const Environment& environment, bool last) -> std::optional<Dispatcher::Answer> {
        const auto job = core.JobFor(name, environment);
        if (!job.ok()) return Dispatcher::Answer{job.status()};
        (*job)->EnsureRecovered(environment);
        if (!(*job)->known()) {
          if (!(*job)->recovered() && !last) return std::nullopt;
          return Dispatcher::Answer{MakeError(
              Reason::kJobNotFound, absl::StrCat("no agent of job ", name, " is registered, and it has no checkpoint"),
              {{"job", name}})};
        }
        if (*begun == absl::InfinitePast()) *begun = environment.now;
        const bool soon = known != 0 && environment.now - *begun < kProgressInterval;
        if (!last && ((*job)->revision() <= known || soon)) return std::nullopt;
        auto view = std::make_shared<v1::Job>((*job)->View(environment));
        return Dispatcher::Answer{absl::OkStatus(), [response, view] { response->Swap(view.get()); }};
      });
}

grpc::ServerUnaryReactor* PeopleService::GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                                v1::Job* response) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) return FinishNow(context, status);
  return HoldJob(context, request->job(), 0, kPatience, response);
}

grpc::ServerUnaryReactor* PeopleService::WaitJob(grpc::CallbackServerContext* context,
                                                 const v1::WaitJobRequest* request, v1::Job* response) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) return FinishNow(context, status);
  const uint64_t known = request->coordinator_epoch() == options_.coordinator_epoch ? request->known_revision() : 0;
  return HoldJob(context, request->job(), known, MaxWait(request->has_max_wait(), request->max_wait()), response);
}

grpc::ServerUnaryReactor* PeopleService::PlanReshard(grpc::CallbackServerContext* context,
                                                     const v1::PlanReshardRequest* request,
                                                     v1::PlanReshardResponse* response) {
  absl::Status status = CheckToken(*context, token_);
  const bool from_checkpoint = request->source_size() == 0;
  if (status.ok() && from_checkpoint) status = CheckJobName(request->job());
  if (status.ok() && request->has_step()) {
    status = from_checkpoint ? CheckStep(request->step())
                             : MakeError(Reason::kBadRequest, "the source is either layouts or a step, not both");
  }
  if (!status.ok()) return FinishNow(context, status);
  return dispatcher_.OnWorker(
      [this, from_checkpoint, asked = *request, response](std::function<void()>& respond) -> absl::Status {
        std::shared_ptr<const Manifest> manifest;
        if (from_checkpoint) {
          const auto step = asked.has_step() ? std::optional(asked.step()) : std::nullopt;
          CAIRN_ASSIGN_OR_RETURN(manifest, catalog_.ReadManifest(asked.job(), step));
        }
        CAIRN_ASSIGN_OR_RETURN(v1::PlanReshardResponse made, PreviewReshard(asked, manifest.get()));
        auto kept = std::make_shared<v1::PlanReshardResponse>(std::move(made));
        respond = [response, kept] { response->Swap(kept.get()); };
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* PeopleService::GetCapabilities(grpc::CallbackServerContext* context,
                                                         const v1::GetCapabilitiesRequest*,
                                                         v1::Capabilities* response) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) return FinishNow(context, status);
  response->set_version(std::string(kVersion));
  response->set_min_protocol(1);
  response->set_max_protocol(kProtocolVersion);
  response->set_format_version(kFormatVersion);
  response->set_max_message_bytes(kMaxMessageBytes);
  response->set_root(root_);
  return FinishNow(context, absl::OkStatus());
}

}  // namespace cairn
