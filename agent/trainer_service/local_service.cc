#include "agent/trainer_service/local_service.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/digest.h"
#include "common/base/time_proto.h"
#include "common/format/metric.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/reactor.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr absl::Duration kDefaultWait = absl::Seconds(10);
constexpr absl::Duration kLongestWait = absl::Seconds(30);
// The part of the trainer's own deadline for which the coordinator is waited for.
constexpr double kShareOfPatience = 0.9;
constexpr absl::Duration kStartWait = absl::Milliseconds(5);

template <typename Request>
absl::Duration MaxWait(const Request& request) {
  if (!request.has_max_wait()) return kDefaultWait;
  return std::clamp(DurationOf(request.max_wait()), absl::ZeroDuration(), kLongestWait);
}

// Holds a call while the coordinator is asked. The calls to the coordinator have deadlines of their own; this bounds
// several of them together, and answers while the trainer still listens.
std::shared_ptr<HeldCall> HoldForCoordinator(const grpc::CallbackServerContext& context, std::string coordinator) {
  const absl::Duration patience = absl::FromChrono(context.deadline()) - absl::Now();
  return HeldCall::Start(std::min(kLongestWait, patience * kShareOfPatience),
                         [coordinator = std::move(coordinator)](HeldCall& held, bool timer) {
                           if (!timer) return;
                           const grpc::Status late(grpc::StatusCode::DEADLINE_EXCEEDED, "no answer in time");
                           held.Answer(CallError(late, ServerRole::kCoordinator, coordinator));
                         });
}

absl::Status CheckMetrics(const v1::BeginSaveRequest& request) {
  if (static_cast<size_t>(request.metrics_size()) > kMaxMetrics) {
    return MakeError(Reason::kBadRequest, absl::StrCat("more than ", kMaxMetrics, " metrics"));
  }
  std::set<std::string> names;
  for (const v1::Metric& metric : request.metrics()) {
    if (!IsMetricName(metric.name()) || !names.insert(metric.name()).second) {
      return MakeError(
          Reason::kBadRequest,
          "a metric's name is used twice, or is not up to 100 letters, digits, and characters of \"._/-\"");
    }
  }
  return absl::OkStatus();
}

// Moves what was answered to `response`, or returns the error.
template <typename Response>
absl::Status Take(absl::StatusOr<Response> answer, Response* response) {
  if (!answer.ok()) return answer.status();
  *response = *std::move(answer);
  return absl::OkStatus();
}

// Answers by `ask`, when it says something that is not pending, or with what is pending when the time is over.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* LongPoll(SessionHost& host, grpc::CallbackServerContext* context, Request request,
                                   Response* response,
                                   std::function<absl::StatusOr<Response>(Session&, const Request&, absl::Time)> ask) {
  auto now_or_later = host.Do([&](Session& session, absl::Time now) { return ask(session, request, now); });
  const absl::Duration max_wait = MaxWait(request);
  if (!now_or_later.ok() || !now_or_later->pending() || max_wait <= absl::ZeroDuration()) {
    return FinishNow(context, Take(std::move(now_or_later), response));
  }
  auto waiter = std::make_shared<SessionHost::Waiter>();
  const auto call = HeldCall::Start(max_wait, [&host, weak = std::weak_ptr<SessionHost::Waiter>(waiter), request,
                                               response, ask](HeldCall& held, bool timer) {
    // An answer that is on its way is the one that is given: the session tells some of them once.
    const auto alive = weak.lock();
    if (alive == nullptr || !host.Forget(alive)) return;
    if (!timer || !held.Claim()) return;
    // A pending answer may say what it waits for.
    auto last = host.Do([&](Session& session, absl::Time now) { return ask(session, request, now); });
    held.AnswerClaimed(Take(std::move(last), response));
  });
  auto answer = std::make_shared<absl::StatusOr<Response>>(absl::UnknownError(""));
  waiter->poll = [request = std::move(request), ask = std::move(ask), answer](Session& session, absl::Time now) {
    auto asked = ask(session, request, now);
    if (asked.ok() && asked->pending()) return false;
    *answer = std::move(asked);
    return true;
  };
  waiter->finish = [call, answer, response] {
    if (!call->Claim()) return;
    call->AnswerClaimed(Take(std::move(*answer), response));
  };
  waiter->over = [call] { return call->finished(); };
  grpc::ServerUnaryReactor* reactor = call->reactor();
  host.Wait(std::move(waiter));
  return reactor;
}

}  // namespace

absl::Status LocalService::TakeLayout(const v1::LayoutReference& reference) {
  // A rank that declares nothing has a layout of no bytes: it is given by its digest alone.
  if (reference.layout().empty() && reference.digest() != Digest("")) return absl::OkStatus();
  const bool known =
      agent_.host().Do([&](Session& session, absl::Time) { return session.KnowsLayout(reference.digest()); });
  if (known) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(RankLayoutPtr layout,
                         ParseRankLayout(reference.digest(), reference.layout(), agent_.options().rank));
  agent_.host().Do([&](Session& session, absl::Time) { session.AddLayout(std::move(layout)); });
  return absl::OkStatus();
}

void LocalService::NameSocket(v1::SlabReference& memory) const {
  memory.set_descriptor_socket(agent_.descriptor_socket());
  memory.set_agent_incarnation(agent_.incarnation());
  memory.set_agent_rank(agent_.options().rank);
}

grpc::ServerUnaryReactor* LocalService::Attach(grpc::CallbackServerContext* context, const v1::AttachRequest* request,
                                               v1::AttachResponse* response) {
  Caller caller;
  if (lookup_) caller = lookup_(context->peer()).value_or(Caller());
  return FinishNow(context, Take(agent_.Attach(*request, caller.peer, caller.end), response));
}

grpc::ServerUnaryReactor* LocalService::Prepare(grpc::CallbackServerContext* context, const v1::PrepareRequest* request,
                                                v1::PrepareResponse* response) {
  if (const absl::Status taken = TakeLayout(request->layout()); !taken.ok()) return FinishNow(context, taken);
  v1::PrepareRequest kept = *request;
  kept.mutable_layout()->clear_layout();
  return LongPoll<v1::PrepareRequest, v1::PrepareResponse>(
      agent_.host(), context, std::move(kept), response,
      [this](Session& session, const v1::PrepareRequest& asked, absl::Time) {
        auto answer = session.Prepare(asked);
        if (answer.ok() && answer->has_slab()) NameSocket(*answer->mutable_slab());
        return answer;
      });
}

grpc::ServerUnaryReactor* LocalService::BeginSave(grpc::CallbackServerContext* context,
                                                  const v1::BeginSaveRequest* request,
                                                  v1::BeginSaveResponse* response) {
  if (const absl::Status taken = TakeLayout(request->layout()); !taken.ok()) return FinishNow(context, taken);
  if (absl::Status metrics = CheckMetrics(*request); !metrics.ok()) return FinishNow(context, metrics);
  v1::BeginSaveRequest kept = *request;
  kept.mutable_layout()->clear_layout();
  return LongPoll<v1::BeginSaveRequest, v1::BeginSaveResponse>(
      agent_.host(), context, std::move(kept), response,
      [this](Session& session, const v1::BeginSaveRequest& asked, absl::Time now) {
        auto answer = session.BeginSave(asked, now);
        if (answer.ok() && answer->has_slab()) NameSocket(*answer->mutable_slab());
        return answer;
      });
}

grpc::ServerUnaryReactor* LocalService::OfferDeviceMemory(grpc::CallbackServerContext* context,
                                                          const v1::OfferDeviceMemoryRequest* request,
                                                          v1::OfferDeviceMemoryResponse* response) {
  return LongPoll<v1::OfferDeviceMemoryRequest, v1::OfferDeviceMemoryResponse>(
      agent_.host(), context, *request, response,
      [](Session& session, const v1::OfferDeviceMemoryRequest& asked, absl::Time) {
        return session.OfferDeviceMemory(asked);
      });
}

grpc::ServerUnaryReactor* LocalService::CopyFromDevice(grpc::CallbackServerContext* context,
                                                       const v1::CopyFromDeviceRequest* request,
                                                       v1::CopyFromDeviceResponse* response) {
  return LongPoll<v1::CopyFromDeviceRequest, v1::CopyFromDeviceResponse>(
      agent_.host(), context, *request, response,
      [](Session& session, const v1::CopyFromDeviceRequest& asked, absl::Time) {
        return session.CopyFromDevice(asked);
      });
}

grpc::ServerUnaryReactor* LocalService::CommitStaging(grpc::CallbackServerContext* context,
                                                      const v1::CommitStagingRequest* request,
                                                      v1::CommitStagingResponse*) {
  return FinishNow(context,
                   agent_.host().Do([&](Session& session, absl::Time) { return session.CommitStaging(*request); }));
}

grpc::ServerUnaryReactor* LocalService::WaitSave(grpc::CallbackServerContext* context,
                                                 const v1::WaitSaveRequest* request, v1::WaitSaveResponse* response) {
  return LongPoll<v1::WaitSaveRequest, v1::WaitSaveResponse>(
      agent_.host(), context, *request, response,
      [](Session& session, const v1::WaitSaveRequest& asked, absl::Time) { return session.WaitSave(asked); });
}

grpc::ServerUnaryReactor* LocalService::CancelSave(grpc::CallbackServerContext* context,
                                                   const v1::CancelSaveRequest* request, v1::CancelSaveResponse*) {
  return FinishNow(context,
                   agent_.host().Do([&](Session& session, absl::Time) { return session.CancelSave(*request); }));
}

grpc::ServerUnaryReactor* LocalService::BeginLoad(grpc::CallbackServerContext* context,
                                                  const v1::BeginLoadRequest* request,
                                                  v1::BeginLoadResponse* response) {
  if (const absl::Status taken = TakeLayout(request->layout()); !taken.ok()) return FinishNow(context, taken);
  v1::BeginLoadRequest kept = *request;
  kept.mutable_layout()->clear_layout();
  if (request->has_source()) {
    if (const absl::Status taken = TakeLayout(request->source()); !taken.ok()) return FinishNow(context, taken);
    kept.mutable_source()->clear_layout();
  }
  return LongPoll<v1::BeginLoadRequest, v1::BeginLoadResponse>(
      agent_.host(), context, std::move(kept), response,
      [this](Session& session, const v1::BeginLoadRequest& asked, absl::Time) {
        auto answer = session.BeginLoad(asked);
        if (answer.ok() && answer->has_source_memory()) NameSocket(*answer->mutable_source_memory());
        return answer;
      });
}

grpc::ServerUnaryReactor* LocalService::CommitSource(grpc::CallbackServerContext* context,
                                                     const v1::CommitSourceRequest* request,
                                                     v1::CommitSourceResponse*) {
  return FinishNow(context,
                   agent_.host().Do([&](Session& session, absl::Time) { return session.CommitSource(*request); }));
}

grpc::ServerUnaryReactor* LocalService::ReceiveLoad(grpc::CallbackServerContext* context,
                                                    const v1::ReceiveLoadRequest* request,
                                                    v1::ReceiveLoadResponse* response) {
  const auto check = [this, trainer = request->trainer_incarnation(), number = request->number()] {
    return agent_.host().Do([&](Session& session, absl::Time) { return session.CheckLoad(trainer, number); });
  };
  if (const absl::Status status = check(); !status.ok()) return FinishNow(context, status);
  const std::shared_ptr<LoadConsumer> load = agent_.loads().Find(request->number(), request->trainer_incarnation());
  if (load == nullptr &&
      agent_.host().Do([&](Session& session, absl::Time) { return session.loads().HasEnded(request->number()); })) {
    response->set_complete(true);
    return FinishNow(context, absl::OkStatus());
  }
  const auto call = HeldCall::Start(load == nullptr ? std::min(MaxWait(*request), kStartWait) : MaxWait(*request),
                                    [](HeldCall& held, bool timer) {
                                      if (timer) held.Answer(absl::OkStatus());  // nothing yet
                                    });
  grpc::ServerUnaryReactor* reactor = call->reactor();
  // Its plan has just come: called again, the load is there.
  if (load == nullptr) return reactor;
  load->Receive({request->released_batches().begin(), request->released_batches().end()},
                [call, response, check](absl::StatusOr<LoadConsumer::Received>& now) {
                  // A load that others ended has their reason.
                  absl::Status status = now.status();
                  if (HasReason(status, Reason::kInterrupted)) {
                    if (const absl::Status reason = check(); !reason.ok()) status = reason;
                  }
                  if (!call->Claim()) return false;
                  if (now.ok()) {
                    response->set_complete(now->complete);
                    for (v1::LoadBatch& batch : now->batches) *response->add_batches() = std::move(batch);
                  }
                  call->AnswerClaimed(status);
                  return true;
                });
  return reactor;
}

grpc::ServerUnaryReactor* LocalService::EndLoad(grpc::CallbackServerContext* context, const v1::EndLoadRequest* request,
                                                v1::EndLoadResponse* response) {
  const absl::Status attached = agent_.host().Do([&](Session& session, absl::Time) {
    return session.CheckLoad(request->trainer_incarnation(), request->number());
  });
  if (attached.ok() && !request->has_error()) {
    if (const auto load = agent_.loads().Find(request->number(), request->trainer_incarnation())) {
      load->ReleaseAll();
    }
    agent_.loads().Report(request->number());  // what the load ends with is complete
  }
  return LongPoll<v1::EndLoadRequest, v1::EndLoadResponse>(
      agent_.host(), context, *request, response,
      [](Session& session, const v1::EndLoadRequest& asked, absl::Time) { return session.EndLoad(asked); });
}

absl::Status LocalService::CheckAttached(uint64_t trainer) {
  return agent_.host().Do([&](Session& session, absl::Time) { return session.CheckAttached(trainer); });
}

grpc::ServerUnaryReactor* LocalService::ListLocalCheckpoints(grpc::CallbackServerContext* context,
                                                             const v1::ListLocalCheckpointsRequest* request,
                                                             v1::ListLocalCheckpointsResponse* response) {
  if (absl::Status attached = CheckAttached(request->trainer_incarnation()); !attached.ok()) {
    return FinishNow(context, attached);
  }
  const auto call = HoldForCoordinator(*context, agent_.options().coordinator);
  struct Pages : std::enable_shared_from_this<Pages> {
    Agent* agent = nullptr;
    std::shared_ptr<HeldCall> call;
    v1::ListCheckpointsRequest request;
    v1::ListLocalCheckpointsResponse gathered;
    v1::ListLocalCheckpointsResponse* response = nullptr;

    void Next() {
      agent->link().ListCheckpoints(request, [self = this->shared_from_this()](auto page) {
        if (!page.ok()) {
          self->call->Answer(page.status());
          return;
        }
        self->gathered.mutable_checkpoints()->MergeFrom(page->checkpoints());
        self->request.set_page_token(page->next_page_token());
        if (!page->next_page_token().empty() && !self->call->finished()) return self->Next();
        if (!self->call->Claim()) return;
        self->response->Swap(&self->gathered);
        self->call->AnswerClaimed(absl::OkStatus());
      });
    }
  };
  auto pages = std::make_shared<Pages>();
  pages->agent = &agent_;
  pages->call = call;
  pages->request.set_job(agent_.options().job);
  pages->response = response;
  grpc::ServerUnaryReactor* reactor = call->reactor();
  pages->Next();
  return reactor;
}

grpc::ServerUnaryReactor* LocalService::RequestLocalSave(grpc::CallbackServerContext* context,
                                                         const v1::RequestLocalSaveRequest* request,
                                                         v1::RequestLocalSaveResponse* response) {
  if (absl::Status attached = CheckAttached(request->trainer_incarnation()); !attached.ok()) {
    return FinishNow(context, attached);
  }
  const auto call = HoldForCoordinator(*context, agent_.options().coordinator);
  v1::CreateCheckpointRequest asked;
  asked.set_job(agent_.options().job);
  asked.set_request_id(request->request_id());
  if (request->has_timeout()) *asked.mutable_timeout() = request->timeout();
  asked.set_reason(request->reason());
  asked.set_for_trainer(true);
  grpc::ServerUnaryReactor* reactor = call->reactor();
  agent_.link().CreateCheckpoint(std::move(asked), [call, response](absl::StatusOr<v1::Checkpoint> checkpoint) {
    if (!call->Claim()) return;
    call->AnswerClaimed(Take(std::move(checkpoint), response->mutable_checkpoint()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* LocalService::SetLocalRetention(grpc::CallbackServerContext* context,
                                                          const v1::SetLocalRetentionRequest* request,
                                                          v1::SetLocalRetentionResponse*) {
  if (absl::Status attached = CheckAttached(request->trainer_incarnation()); !attached.ok()) {
    return FinishNow(context, attached);
  }
  const auto call = HoldForCoordinator(*context, agent_.options().coordinator);
  v1::SetRetentionRequest asked;
  asked.set_job(agent_.options().job);
  *asked.mutable_policy() = request->policy();
  grpc::ServerUnaryReactor* reactor = call->reactor();
  agent_.link().SetRetention(std::move(asked), [call](const absl::StatusOr<v1::SetRetentionResponse>& answer) {
    call->Answer(answer.status());
  });
  return reactor;
}

template <typename Request, typename Response, typename Asked, typename Answer>
grpc::ServerUnaryReactor* LocalService::Change(
    grpc::CallbackServerContext* context, const Request& request, Response* response,
    void (CoordinatorLink::*ask)(Asked, std::function<void(absl::StatusOr<Answer>)> done)) {
  if (absl::Status attached = CheckAttached(request.trainer_incarnation()); !attached.ok()) {
    return FinishNow(context, attached);
  }
  const auto call = HoldForCoordinator(*context, agent_.options().coordinator);
  Asked asked = request.request();
  asked.set_job(agent_.options().job);
  grpc::ServerUnaryReactor* reactor = call->reactor();
  (agent_.link().*ask)(std::move(asked), [call, response](absl::StatusOr<Answer> answer) {
    if (!call->Claim()) return;
    call->AnswerClaimed(Take(std::move(answer), response->mutable_response()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* LocalService::DeleteLocalCheckpoint(grpc::CallbackServerContext* context,
                                                              const v1::DeleteLocalCheckpointRequest* request,
                                                              v1::DeleteLocalCheckpointResponse* response) {
  return Change(context, *request, response, &CoordinatorLink::Delete);
}

grpc::ServerUnaryReactor* LocalService::PruneLocalCheckpoints(grpc::CallbackServerContext* context,
                                                              const v1::PruneLocalCheckpointsRequest* request,
                                                              v1::PruneLocalCheckpointsResponse* response) {
  return Change(context, *request, response, &CoordinatorLink::Prune);
}

grpc::ServerUnaryReactor* LocalService::PinLocalCheckpoint(grpc::CallbackServerContext* context,
                                                           const v1::PinLocalCheckpointRequest* request,
                                                           v1::PinLocalCheckpointResponse* response) {
  return Change(context, *request, response, &CoordinatorLink::Pin);
}

grpc::ServerUnaryReactor* LocalService::TagLocalCheckpoint(grpc::CallbackServerContext* context,
                                                           const v1::TagLocalCheckpointRequest* request,
                                                           v1::TagLocalCheckpointResponse* response) {
  return Change(context, *request, response, &CoordinatorLink::Tag);
}

grpc::ServerUnaryReactor* LocalService::GetLocalJob(grpc::CallbackServerContext* context,
                                                    const v1::GetLocalJobRequest* request,
                                                    v1::GetLocalJobResponse* response) {
  if (absl::Status attached = CheckAttached(request->trainer_incarnation()); !attached.ok()) {
    return FinishNow(context, attached);
  }
  v1::GetJobRequest get;
  get.set_job(agent_.options().job);
  const auto call = HoldForCoordinator(*context, agent_.options().coordinator);
  grpc::ServerUnaryReactor* reactor = call->reactor();
  agent_.link().GetJob(std::move(get), [call, response](absl::StatusOr<v1::Job> job) {
    if (!call->Claim()) return;
    call->AnswerClaimed(Take(std::move(job), response->mutable_job()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* LocalService::Detach(grpc::CallbackServerContext* context, const v1::DetachRequest* request,
                                               v1::DetachResponse*) {
  agent_.TrainerGone(request->trainer_incarnation(),
                     request->unmapped() ? TrainerEnd::kUnmapped : TrainerEnd::kDetached);
  return FinishNow(context, absl::OkStatus());
}

}  // namespace cairn
