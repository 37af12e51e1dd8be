#include "agent/trainer_service/local_service.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/transport/load_consumer.h"
#include "common/base/digest.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/rpc/reactor.h"
#include "common/rpc/reported_metrics.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr absl::Duration kDefaultWait = absl::Seconds(10);
constexpr absl::Duration kLongestWait = absl::Seconds(30);
constexpr absl::Duration kStartWait = absl::Milliseconds(5);

template <typename Request>
absl::Duration MaxWait(const Request& request) {
  if (!request.has_max_wait()) return kDefaultWait;
  return std::clamp(DurationOf(request.max_wait()), absl::ZeroDuration(), kLongestWait);
}

// Checks what becomes part of the manifest.
absl::Status CheckContents(const v1::BeginSaveRequest& request) {
  if (request.has_resumed_from()) CAIRN_RETURN_IF_ERROR(CheckStep(request.resumed_from().step()));
  return CheckMetrics(request.metrics());
}

// Moves the answer to `response`, or returns the error.
template <typename Response>
absl::Status Take(absl::StatusOr<Response> answer, Response* response) {
  if (!answer.ok()) return answer.status();
  *response = *std::move(answer);
  return absl::OkStatus();
}

}  // namespace

absl::Status LocalService::TakeLayout(const v1::LayoutReference& reference) {
  // A rank that declares nothing has an empty layout, and the reference has only its digest.
  if (reference.layout().empty() && reference.digest() != Digest("")) return absl::OkStatus();
  const bool known =
      agent_.host().Do([&](Session& session, absl::Time) { return session.KnowsLayout(reference.digest()); });
  if (known) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(RankLayoutPtr layout,
                         ParseRankLayout(reference.digest(), reference.layout(), agent_.options().rank));
  agent_.host().Do([&](Session& session, absl::Time) { session.AddLayout(std::move(layout)); });
  return absl::OkStatus();
}

template <typename Request>
auto LocalService::Ask(const Request& request) {
  return agent_.host().Do([&](Session& session, absl::Time now) { return session.Ask(request, now); });
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* LocalService::LongPoll(grpc::CallbackServerContext* context, const Request& request,
                                                 Response* response) {
  using Answer = absl::StatusOr<Response>;
  SessionHost& host = agent_.host();
  const auto take = [this, response](Answer answer) {
    if (answer.ok()) NameSocket(*answer);
    return Take(std::move(answer), response);
  };
  Answer now_or_later = Ask(request);
  const absl::Duration max_wait = MaxWait(request);
  if (!now_or_later.ok() || !now_or_later->pending() || max_wait <= absl::ZeroDuration()) {
    return FinishNow(context, take(std::move(now_or_later)));
  }
  auto waiter = std::make_shared<SessionHost::Waiter>();
  const auto call = HeldCall::Start(max_wait, [this, &host, take, weak = std::weak_ptr<SessionHost::Waiter>(waiter),
                                               request](HeldCall& held, bool timer) {
    // An answer that is on its way is the one that is given: the session tells some of them once.
    const auto alive = weak.lock();
    if (alive == nullptr || !host.Forget(alive)) return;
    if (!timer || !held.Claim()) return;
    held.AnswerClaimed(take(Ask(request)));  // a pending answer may say what it waits for
  });
  auto answer = std::make_shared<Answer>(absl::UnknownError(""));
  waiter->poll = [request, answer](Session& session, absl::Time now) {
    Answer asked = session.Ask(request, now);
    if (asked.ok() && asked->pending()) return false;
    *answer = std::move(asked);
    return true;
  };
  waiter->finish = [call, answer, take] {
    if (call->Claim()) call->AnswerClaimed(take(std::move(*answer)));
  };
  waiter->over = [call] { return call->finished(); };
  grpc::ServerUnaryReactor* reactor = call->reactor();
  host.Wait(std::move(waiter));
  return reactor;
}

template <typename Response>
void LocalService::NameSocket(Response& response) const {
  v1::SlabReference* memory = nullptr;
  if constexpr (requires { response.has_slab(); }) {
    if (response.has_slab()) memory = response.mutable_slab();
  } else if constexpr (requires { response.has_source_memory(); }) {
    if (response.has_source_memory()) memory = response.mutable_source_memory();
  }
  if (memory == nullptr) return;
  memory->set_descriptor_socket(agent_.descriptor_socket());
  memory->set_agent_incarnation(agent_.incarnation());
  memory->set_agent_rank(agent_.options().rank);
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
  return LongPoll(context, kept, response);
}

grpc::ServerUnaryReactor* LocalService::BeginSave(grpc::CallbackServerContext* context,
                                                  const v1::BeginSaveRequest* request,
                                                  v1::BeginSaveResponse* response) {
  if (const absl::Status taken = TakeLayout(request->layout()); !taken.ok()) return FinishNow(context, taken);
  if (absl::Status contents = CheckContents(*request); !contents.ok()) return FinishNow(context, contents);
  v1::BeginSaveRequest kept = *request;
  kept.mutable_layout()->clear_layout();
  return LongPoll(context, kept, response);
}

grpc::ServerUnaryReactor* LocalService::OfferDeviceMemory(grpc::CallbackServerContext* context,
                                                          const v1::OfferDeviceMemoryRequest* request,
                                                          v1::OfferDeviceMemoryResponse* response) {
  return LongPoll(context, *request, response);
}

grpc::ServerUnaryReactor* LocalService::CopyFromDevice(grpc::CallbackServerContext* context,
                                                       const v1::CopyFromDeviceRequest* request,
                                                       v1::CopyFromDeviceResponse* response) {
  return LongPoll(context, *request, response);
}

grpc::ServerUnaryReactor* LocalService::CommitStaging(grpc::CallbackServerContext* context,
                                                      const v1::CommitStagingRequest* request,
                                                      v1::CommitStagingResponse*) {
  return FinishNow(context, Ask(*request));
}

grpc::ServerUnaryReactor* LocalService::WaitSave(grpc::CallbackServerContext* context,
                                                 const v1::WaitSaveRequest* request, v1::WaitSaveResponse* response) {
  return LongPoll(context, *request, response);
}

grpc::ServerUnaryReactor* LocalService::CancelSave(grpc::CallbackServerContext* context,
                                                   const v1::CancelSaveRequest* request, v1::CancelSaveResponse*) {
  return FinishNow(context, Ask(*request));
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
  return LongPoll(context, kept, response);
}

grpc::ServerUnaryReactor* LocalService::CommitSource(grpc::CallbackServerContext* context,
                                                     const v1::CommitSourceRequest* request,
                                                     v1::CommitSourceResponse*) {
  return FinishNow(context, Ask(*request));
}

grpc::ServerUnaryReactor* LocalService::ReceiveLoad(grpc::CallbackServerContext* context,
                                                    const v1::ReceiveLoadRequest* request,
                                                    v1::ReceiveLoadResponse* response) {
  const auto look = [this, kept = *request] { return Ask(kept); };
  const auto load = look();
  if (!load.ok() || load->complete) {
    response->set_complete(load.ok());
    return FinishNow(context, load.status());
  }
  const bool begun = load->consumer != nullptr;
  const auto call = HeldCall::Start(begun ? MaxWait(*request) : std::min(MaxWait(*request), kStartWait),
                                    [](HeldCall& held, bool timer) {
                                      if (timer) held.Answer(absl::OkStatus());  // no bytes yet
                                    });
  grpc::ServerUnaryReactor* reactor = call->reactor();
  // The load's plan has just come. The trainer calls again, and then the load has a consumer.
  if (!begun) return reactor;
  for (const v1::ReadBatch& read : request->read_batches()) load->consumer->TakeRead(read);
  load->consumer->Receive({request->released_batches().begin(), request->released_batches().end()},
                          [call, response, look](absl::StatusOr<LoadConsumer::Received>& now) {
                            // If the load was ended by another rank or the coordinator, returns their reason.
                            absl::Status status = now.status();
                            if (HasReason(status, Reason::kInterrupted)) {
                              if (const absl::Status reason = look().status(); !reason.ok()) status = reason;
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
  if (!request->has_error()) {
    v1::ReceiveLoadRequest looked;
    looked.set_trainer_incarnation(request->trainer_incarnation());
    looked.set_number(request->number());
    const auto load = Ask(looked);
    if (load.ok() && load->consumer != nullptr) load->consumer->ReleaseAll();
  }
  return LongPoll(context, *request, response);
}

grpc::ServerUnaryReactor* LocalService::Detach(grpc::CallbackServerContext* context, const v1::DetachRequest* request,
                                               v1::DetachResponse*) {
  agent_.TrainerGone(request->trainer_incarnation(),
                     request->unmapped() ? TrainerEnd::kUnmapped : TrainerEnd::kDetached);
  return FinishNow(context, absl::OkStatus());
}

}  // namespace cairn
