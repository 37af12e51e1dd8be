// CheckpointService on the socket of an agent. It forwards the calls of the agent's trainer to the coordinator, so that
// the trainer needs neither the coordinator's address nor its token.
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

// It has every method of the service's proto, and reads only the job's name of a request. A trainer identifies itself
// by kTrainerKey in the metadata of its calls; other processes of its user do not. Errors are those of the method, and:
// * INVALID_ARGUMENT (BAD_REQUEST): the request names another job than the agent's, or the value of kTrainerKey is no
//   number.
// * FAILED_PRECONDITION (NOT_REGISTERED), ABORTED (STALE_INCARNATION): the trainer is not attached, or was replaced.
// * UNAVAILABLE (COORDINATOR_UNREACHABLE), also if the coordinator does not answer before the call's deadline.
class CheckpointRelay final : public grpc::Service {
 public:
  // The metadata key whose value is the trainer's incarnation, in decimal digits.
  static constexpr char kTrainerKey[] = "cairn-trainer";

  // `agent` must outlive the server.
  explicit CheckpointRelay(Agent& agent);

 private:
  grpc::ServerUnaryReactor* Pass(const std::string& path, const google::protobuf::MethodDescriptor& method,
                                 grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response);
  // Checks a call, and sets the fields of the request that only an agent may set.
  absl::Status Prepare(const grpc::CallbackServerContext& context, google::protobuf::Message& request) const;

  Agent& agent_;
  std::deque<std::string> paths_;  // gRPC keeps pointers to them
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRAINER_SERVICE_CHECKPOINT_RELAY_H_
