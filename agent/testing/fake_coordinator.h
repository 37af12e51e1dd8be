// A coordinator whose orders a test gives by hand: a real gRPC server that keeps what agents tell it.
#ifndef CAIRN_AGENT_TESTING_FAKE_COORDINATOR_H_
#define CAIRN_AGENT_TESTING_FAKE_COORDINATOR_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/rpc/testing/loopback_server.h"

namespace cairn::testing {

// Thread-safe.
class FakeCoordinator final : public v1::AgentCoordinationService::Service {
 public:
  FakeCoordinator();
  ~FakeCoordinator() override;

  const std::string& address() const { return server_.address(); }

  // The rank's next answers say this until other orders are given; epochs and revision are filled in.
  void Order(uint32_t rank, v1::SynchronizeAgentResponse orders);
  // The rank's part of a plan.
  void AddPlan(uint32_t rank, const std::string& digest, std::string bytes);
  // Waits until the rank's state is as wanted; the state. Fails the test after ten seconds.
  v1::AgentState Await(uint32_t rank, const std::function<bool(const v1::AgentState&)>& wanted);
  // As after a restart: nobody is registered, and the epoch is another.
  void Restart(uint64_t epoch);
  // Another membership counts from now on.
  void ChangeMembership();
  // The rank counts as absent when agents ask where it is.
  void Hide(uint32_t rank);
  // Refuses registrations by this error. OK: refuses them no more.
  void Refuse(absl::Status error);
  // The next `count` uploads and downloads are refused with this error.
  void RefuseTransfers(int count, absl::Status error);
  // Waits until so many of them have been refused. Fails the test after ten seconds.
  void AwaitRefusals(int count);
  // Waits for so many refused registrations.
  void AwaitRegistrationRefusals(int count);

  v1::RegisterAgentRequest registration(uint32_t rank);
  // Returns what the rank has asked for by GetTransferPeers, call by call.
  std::vector<std::vector<uint32_t>> peer_requests(uint32_t rank);
  std::string layout(const std::string& digest);
  int registrations();
  bool unregistered(uint32_t rank);

  grpc::Status RegisterAgent(grpc::ServerContext*, const v1::RegisterAgentRequest*,
                             v1::RegisterAgentResponse*) override;
  grpc::Status SynchronizeAgent(grpc::ServerContext*, const v1::SynchronizeAgentRequest*,
                                v1::SynchronizeAgentResponse*) override;
  grpc::Status PutLayout(grpc::ServerContext*, const v1::PutLayoutRequest*, v1::PutLayoutResponse*) override;
  grpc::Status GetPlan(grpc::ServerContext*, const v1::GetPlanRequest*, v1::GetPlanResponse*) override;
  grpc::Status GetTransferPeers(grpc::ServerContext*, const v1::GetTransferPeersRequest*,
                                v1::GetTransferPeersResponse*) override;
  grpc::Status UnregisterAgent(grpc::ServerContext*, const v1::UnregisterAgentRequest*,
                               v1::UnregisterAgentResponse*) override;

 private:
  void AwaitCount(const int& counted, int count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The refusal of an upload or download, if one is due.
  absl::Status RefuseTransfer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Rank {
    v1::RegisterAgentRequest registration;
    bool registered = false;
    bool unregistered = false;
    bool hidden = false;
    uint64_t sequence = 0;
    v1::AgentState state;
    bool heard = false;
    v1::SynchronizeAgentResponse orders;
    uint64_t revision = 1;
    std::map<std::string, std::string> plans;
    std::vector<std::vector<uint32_t>> peer_requests;
  };

  Mutex mutex_;
  CondVar changed_;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 5;
  uint64_t membership_epoch_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  absl::Status transfer_refusal_ ABSL_GUARDED_BY(mutex_);
  int transfers_to_refuse_ ABSL_GUARDED_BY(mutex_) = 0;
  int refused_transfers_ ABSL_GUARDED_BY(mutex_) = 0;
  int refused_registrations_ ABSL_GUARDED_BY(mutex_) = 0;
  int registrations_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint32_t, Rank> ranks_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> layouts_ ABSL_GUARDED_BY(mutex_);
  LoopbackServer server_;  // its calls use all of the above
};

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TESTING_FAKE_COORDINATOR_H_
