// Serves CheckpointService, in front of the decisions and the checkpoints.
#ifndef CAIRN_COORDINATOR_SERVER_CHECKPOINT_SERVICE_H_
#define CAIRN_COORDINATOR_SERVER_CHECKPOINT_SERVICE_H_

#include <atomic>
#include <string>

#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "coordinator/server/dispatcher.h"
#include "store/mirror/mirror.h"
#include "store/read/checkpoint_store.h"

namespace cairn {

// Thread-safe.
class CheckpointService final : public v1::CheckpointService::CallbackService {
 public:
  // `mirror`: null if there is none.
  CheckpointService(const DecisionOptions& options, std::string root, Dispatcher& dispatcher,
                    CheckpointStore& checkpoints, Mirror* mirror)
      : options_(options),
        root_(std::move(root)),
        dispatcher_(dispatcher),
        checkpoints_(checkpoints),
        mirror_(mirror) {}

  // Refuses new saves from now on.
  void Drain() { draining_ = true; }

  grpc::ServerUnaryReactor* CreateCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::CreateCheckpointRequest* request,
                                             v1::Checkpoint* response) override;
  grpc::ServerUnaryReactor* GetCheckpoint(grpc::CallbackServerContext* context, const v1::GetCheckpointRequest* request,
                                          v1::Checkpoint* response) override;
  grpc::ServerUnaryReactor* DeleteCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::DeleteCheckpointRequest* request,
                                             v1::DeleteCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* PinCheckpoint(grpc::CallbackServerContext* context, const v1::PinCheckpointRequest* request,
                                          v1::PinCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* TagCheckpoint(grpc::CallbackServerContext* context, const v1::TagCheckpointRequest* request,
                                          v1::TagCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* PruneCheckpoints(grpc::CallbackServerContext* context,
                                             const v1::PruneCheckpointsRequest* request,
                                             v1::PruneCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* SetRetention(grpc::CallbackServerContext* context, const v1::SetRetentionRequest* request,
                                         v1::SetRetentionResponse* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* WaitCheckpoint(grpc::CallbackServerContext* context,
                                           const v1::WaitCheckpointRequest* request, v1::Checkpoint* response) override;
  grpc::ServerUnaryReactor* GetManifest(grpc::CallbackServerContext* context, const v1::GetManifestRequest* request,
                                        v1::GetManifestResponse* response) override;
  grpc::ServerUnaryReactor* CancelCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::CancelCheckpointRequest* request,
                                             v1::Checkpoint* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::Job* response) override;
  grpc::ServerUnaryReactor* WaitJob(grpc::CallbackServerContext* context, const v1::WaitJobRequest* request,
                                    v1::Job* response) override;
  grpc::ServerUnaryReactor* PlanReshard(grpc::CallbackServerContext* context, const v1::PlanReshardRequest* request,
                                        v1::PlanReshardResponse* response) override;
  grpc::ServerUnaryReactor* GetCapabilities(grpc::CallbackServerContext* context,
                                            const v1::GetCapabilitiesRequest* request,
                                            v1::Capabilities* response) override;

 private:
  // Adds to NOT_COMMITTED that only the mirror has the step, if that was seen.
  absl::Status WithMirror(const absl::Status& status, const std::string& job, std::optional<int64_t> step) const;
  template <typename Response>
  using ChangeAnswer = absl::StatusOr<Response> (*)(const Job& job, const Job::Changed& changed, const Moment& moment);
  // Asks the job for a change of its steps, and answers by `answer` when it has ended.
  template <typename Response>
  grpc::ServerUnaryReactor* HoldChange(grpc::CallbackServerContext* context, const std::string& name,
                                       const ChangeSteps& change, Response* response, ChangeAnswer<Response> answer);
  // OK if the caller may ask, and names a job and a step.
  template <typename Request>
  absl::Status CheckStepRequest(const Request& request);
  grpc::ServerUnaryReactor* HoldJob(grpc::CallbackServerContext* context, const std::string& name, uint64_t known,
                                    absl::Duration max_wait, v1::Job* response);

  const DecisionOptions options_;
  const std::string root_;
  Dispatcher& dispatcher_;
  CheckpointStore& checkpoints_;
  Mirror* const mirror_;
  std::atomic<bool> draining_ = false;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_CHECKPOINT_SERVICE_H_
