// CheckpointService on the socket of an agent: passes the calls of its trainer on to the coordinator, so that a trainer
// needs neither the coordinator's address nor its token.
#ifndef CAIRN_AGENT_TRAINER_SERVICE_CHECKPOINT_RELAY_H_
#define CAIRN_AGENT_TRAINER_SERVICE_CHECKPOINT_RELAY_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <string>

#include "absl/status/status.h"
#include "agent/runtime/agent.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace cairn {

// It has every method that the service's proto has, and knows no more of a request than which job it names. Errors are
// those of the method, and:
// * INVALID_ARGUMENT (BAD_REQUEST): the request names another job than the agent's.
// * FAILED_PRECONDITION (NOT_REGISTERED): CreateCheckpoint, while no trainer is attached for which the agent may ask.
// * UNAVAILABLE (COORDINATOR_UNREACHABLE), also when it does not answer while the caller still listens.
class CheckpointRelay final : public grpc::Service {
 public:
  // `agent` must outlive the server.
  explicit CheckpointRelay(Agent& agent);

 private:
  grpc::ServerUnaryReactor* Pass(const std::string& path, const google::protobuf::MethodDescriptor& method,
                                 grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response);
  // Checks a request, and says in it what the coordinator hears from an agent alone.
  absl::Status Prepare(google::protobuf::Message& request) const;

  Agent& agent_;
  std::deque<std::string> paths_;  // gRPC keeps pointers to them
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRAINER_SERVICE_CHECKPOINT_RELAY_H_
