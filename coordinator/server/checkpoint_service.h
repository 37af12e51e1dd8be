// Serves CheckpointService, in front of the decisions and the catalog.
#ifndef CAIRN_COORDINATOR_SERVER_CHECKPOINT_SERVICE_H_
#define CAIRN_COORDINATOR_SERVER_CHECKPOINT_SERVICE_H_

#include <atomic>
#include <string>

#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "coordinator/server/catalog.h"
#include "coordinator/server/dispatcher.h"

namespace cairn {

// Thread-safe.
class CheckpointService final : public v1::CheckpointService::CallbackService {
 public:
  CheckpointService(const DecisionOptions& options, std::string token, std::string root, Dispatcher& dispatcher,
                    Catalog& catalog)
      : options_(options),
        token_(std::move(token)),
        root_(std::move(root)),
        dispatcher_(dispatcher),
        catalog_(catalog) {}

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
  grpc::ServerUnaryReactor* HoldJob(grpc::CallbackServerContext* context, const std::string& name, uint64_t known,
                                    absl::Duration max_wait, v1::Job* response);

  const DecisionOptions options_;
  const std::string token_;
  const std::string root_;
  Dispatcher& dispatcher_;
  Catalog& catalog_;
  std::atomic<bool> draining_ = false;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_CHECKPOINT_SERVICE_H_
