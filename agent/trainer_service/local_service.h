// Implements LocalAgentService: translates between RPCs and the agent. It decides nothing and does not block.
#ifndef CAIRN_AGENT_TRAINER_SERVICE_LOCAL_SERVICE_H_
#define CAIRN_AGENT_TRAINER_SERVICE_LOCAL_SERVICE_H_

#include <functional>
#include <optional>
#include <string>

#include "agent/runtime/agent.h"
#include "agent/sockets/peer.h"
#include "cairn/v1/local_agent_service.grpc.pb.h"

namespace cairn {

class LocalService final : public v1::LocalAgentService::CallbackService {
 public:
  // `agent` must outlive the server.
  explicit LocalService(Agent& agent) : agent_(agent) {}

  // Sets the function that returns the process behind a call, from ServerContext::peer(). Call it first.
  void SetCallerLookup(std::function<std::optional<Caller>(const std::string&)> lookup) { lookup_ = std::move(lookup); }

  grpc::ServerUnaryReactor* Attach(grpc::CallbackServerContext* context, const v1::AttachRequest* request,
                                   v1::AttachResponse* response) override;
  grpc::ServerUnaryReactor* Prepare(grpc::CallbackServerContext* context, const v1::PrepareRequest* request,
                                    v1::PrepareResponse* response) override;
  grpc::ServerUnaryReactor* BeginSave(grpc::CallbackServerContext* context, const v1::BeginSaveRequest* request,
                                      v1::BeginSaveResponse* response) override;
  grpc::ServerUnaryReactor* OfferDeviceMemory(grpc::CallbackServerContext* context,
                                              const v1::OfferDeviceMemoryRequest* request,
                                              v1::OfferDeviceMemoryResponse* response) override;
  grpc::ServerUnaryReactor* CopyFromDevice(grpc::CallbackServerContext* context,
                                           const v1::CopyFromDeviceRequest* request,
                                           v1::CopyFromDeviceResponse* response) override;
  grpc::ServerUnaryReactor* CommitStaging(grpc::CallbackServerContext* context, const v1::CommitStagingRequest* request,
                                          v1::CommitStagingResponse* response) override;
  grpc::ServerUnaryReactor* WaitSave(grpc::CallbackServerContext* context, const v1::WaitSaveRequest* request,
                                     v1::WaitSaveResponse* response) override;
  grpc::ServerUnaryReactor* CancelSave(grpc::CallbackServerContext* context, const v1::CancelSaveRequest* request,
                                       v1::CancelSaveResponse* response) override;
  grpc::ServerUnaryReactor* BeginLoad(grpc::CallbackServerContext* context, const v1::BeginLoadRequest* request,
                                      v1::BeginLoadResponse* response) override;
  grpc::ServerUnaryReactor* CommitSource(grpc::CallbackServerContext* context, const v1::CommitSourceRequest* request,
                                         v1::CommitSourceResponse* response) override;
  grpc::ServerUnaryReactor* ReceiveLoad(grpc::CallbackServerContext* context, const v1::ReceiveLoadRequest* request,
                                        v1::ReceiveLoadResponse* response) override;
  grpc::ServerUnaryReactor* EndLoad(grpc::CallbackServerContext* context, const v1::EndLoadRequest* request,
                                    v1::EndLoadResponse* response) override;
  grpc::ServerUnaryReactor* Detach(grpc::CallbackServerContext* context, const v1::DetachRequest* request,
                                   v1::DetachResponse* response) override;

 private:
  // Gives the agent the layout that comes with a request.
  absl::Status TakeLayout(const v1::LayoutReference& reference);
  // Gives the session a call of its trainer, and returns the answer.
  template <typename Request>
  auto Ask(const Request& request);
  // Answers when the session's answer is not pending, or with what is pending when the time is over.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* LongPoll(grpc::CallbackServerContext* context, const Request& request, Response* response);
  // Says where the trainer gets the memory of this agent, if the response names some.
  template <typename Response>
  void NameSocket(Response& response) const;

  Agent& agent_;
  std::function<std::optional<Caller>(const std::string&)> lookup_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRAINER_SERVICE_LOCAL_SERVICE_H_
