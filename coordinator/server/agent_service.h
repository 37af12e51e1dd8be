// Serves AgentCoordinationService, in front of the decisions.
#ifndef CAIRN_COORDINATOR_SERVER_AGENT_SERVICE_H_
#define CAIRN_COORDINATOR_SERVER_AGENT_SERVICE_H_

#include <string>

#include "cairn/v1/agent_coordination_service.grpc.pb.h"
#include "coordinator/server/dispatcher.h"
#include "coordinator/server/plan_store.h"
#include "store/plan/layout_store.h"

namespace cairn {

// Thread-safe.
class AgentService final : public v1::AgentCoordinationService::CallbackService {
 public:
  AgentService(const DecisionOptions& options, Dispatcher& dispatcher, LayoutStore& layouts, PlanStore& plans)
      : options_(options), dispatcher_(dispatcher), layouts_(layouts), plans_(plans) {}

  grpc::ServerUnaryReactor* RegisterAgent(grpc::CallbackServerContext* context, const v1::RegisterAgentRequest* request,
                                          v1::RegisterAgentResponse* response) override;
  grpc::ServerUnaryReactor* SynchronizeAgent(grpc::CallbackServerContext* context,
                                             const v1::SynchronizeAgentRequest* request,
                                             v1::SynchronizeAgentResponse* response) override;
  grpc::ServerUnaryReactor* PutLayout(grpc::CallbackServerContext* context, const v1::PutLayoutRequest* request,
                                      v1::PutLayoutResponse* response) override;
  grpc::ServerUnaryReactor* GetPlan(grpc::CallbackServerContext* context, const v1::GetPlanRequest* request,
                                    v1::GetPlanResponse* response) override;
  grpc::ServerUnaryReactor* GetTransferPeers(grpc::CallbackServerContext* context,
                                             const v1::GetTransferPeersRequest* request,
                                             v1::GetTransferPeersResponse* response) override;
  grpc::ServerUnaryReactor* UnregisterAgent(grpc::CallbackServerContext* context,
                                            const v1::UnregisterAgentRequest* request,
                                            v1::UnregisterAgentResponse* response) override;

 private:
  absl::Status CheckEpoch(const v1::AgentIdentity& agent) const;
  // Checks epoch and membership, and extends the lease.
  absl::Status CheckMember(const v1::AgentIdentity& agent, bool uploaded);

  const DecisionOptions options_;
  Dispatcher& dispatcher_;
  LayoutStore& layouts_;
  PlanStore& plans_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_AGENT_SERVICE_H_
