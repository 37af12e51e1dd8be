#include "agent/trainer_service/checkpoint_relay.h"

#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/reactor.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;
using RequestBytes = grpc::SerializationTraits<Message>;

// The wait for the coordinator as a part of the caller's time, so that the caller still gets the error.
constexpr double kShareOfPatience = 0.9;
// The coordinator holds no call of the service longer than this.
constexpr absl::Duration kLongestWait = absl::Seconds(40);

// A call to the coordinator. The held call and gRPC's callback share it.
struct PassedCall {
  grpc::ClientContext context;
  grpc::ByteBuffer request;
  grpc::ByteBuffer response;
};

}  // namespace

CheckpointRelay::CheckpointRelay(Agent& agent) : agent_(agent) {
  const auto* service = v1::Checkpoint::descriptor()->file()->FindServiceByName("CheckpointService");
  for (int i = 0; i < service->method_count(); ++i) {
    const MethodDescriptor& method = *service->method(i);
    const std::string& path = paths_.emplace_back(absl::StrCat("/", service->full_name(), "/", method.name()));
    // gRPC's generated code does the same for methods whose messages stay bytes (WithRawCallbackMethod).
    AddMethod(
        new grpc::internal::RpcServiceMethod(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC, /*handler=*/nullptr));
    MarkMethodRawCallback(i, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                                 [this, &path, &method](grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
                                   return Pass(path, method, context, request, response);
                                 }));
  }
}

absl::Status CheckpointRelay::Prepare(const grpc::CallbackServerContext& context, Message& request) const {
  const auto* field = request.GetDescriptor()->FindFieldByName("job");
  const std::string job = field == nullptr ? "" : request.GetReflection()->GetString(request, field);
  const std::string& own = agent_.options().job;
  if (!job.empty() && job != own) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("this is an agent of job ", own, ", and it was asked about ", job),
                     {{"job", job}, {"agent_job", own}});
  }
  const auto named = context.client_metadata().find(kTrainerKey);
  if (named == context.client_metadata().end()) return absl::OkStatus();
  uint64_t trainer = 0;
  if (!absl::SimpleAtoi(absl::string_view(named->second.data(), named->second.size()), &trainer)) {
    return MakeError(Reason::kBadRequest, absl::StrCat(kTrainerKey, " in a call's metadata is no number"));
  }
  if (auto* create = google::protobuf::DynamicCastToGenerated<v1::CreateCheckpointRequest>(&request)) {
    create->set_for_trainer(true);
  }
  return agent_.host().Do([&](Session& session, absl::Time) { return session.CheckAttached(trainer); });
}

grpc::ServerUnaryReactor* CheckpointRelay::Pass(const std::string& path, const MethodDescriptor& method,
                                                grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  const std::unique_ptr<Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(method.input_type())->New());
  grpc::ByteBuffer received = *request;
  if (!RequestBytes::Deserialize(&received, message.get()).ok()) {
    return FinishNow(context, MakeError(Reason::kBadRequest, absl::StrCat(path, ": the request cannot be read")));
  }
  if (const absl::Status refused = Prepare(*context, *message); !refused.ok()) return FinishNow(context, refused);
  const auto passed = std::make_shared<PassedCall>();
  bool own_buffer = false;
  if (!RequestBytes::Serialize(*message, &passed->request, &own_buffer).ok()) {
    return FinishNow(context, MakeError(Reason::kInternal, absl::StrCat(path, ": the request cannot be written")));
  }
  const absl::Duration patience =
      std::min(kLongestWait, (absl::FromChrono(context->deadline()) - absl::Now()) * kShareOfPatience);
  PrepareCall(passed->context, patience);
  const auto error_of = [coordinator = agent_.options().coordinator](const grpc::Status& status) {
    return CallError(status, ServerRole::kCoordinator, coordinator);
  };
  const auto call = HeldCall::Start(patience, [passed, error_of](HeldCall& held, bool timer) {
    // Answers first: otherwise the end of the cancelled call could answer instead, and say INTERRUPTED.
    if (timer) held.Answer(error_of(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no answer in time")));
    passed->context.TryCancel();
  });
  grpc::ServerUnaryReactor* reactor = call->reactor();
  agent_.link().peer()->Get([=, &path](absl::StatusOr<PeerChannel::Channel> channel) {
    if (!channel.ok()) {
      call->Answer(channel.status());
      return;
    }
    const auto stub = std::make_shared<grpc::GenericStub>(*channel);
    stub->UnaryCall(&passed->context, path, {}, &passed->request, &passed->response,
                    [call, passed, stub, error_of, response](const grpc::Status& status) {
                      if (!call->Claim()) return;
                      if (status.ok()) response->Swap(&passed->response);
                      call->AnswerClaimed(error_of(status));
                    });
  });
  return reactor;
}

}  // namespace cairn
