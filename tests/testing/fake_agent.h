// Plays an agent and its trainer in one thread, for tests of the coordinator. It speaks the real protocol, writes real
// bins (fake_state.h), and can be told to stop anywhere.
#ifndef CAIRN_TESTS_TESTING_FAKE_AGENT_H_
#define CAIRN_TESTS_TESTING_FAKE_AGENT_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.grpc.pb.h"
#include "cairn/v1/plan.pb.h"
#include "common/rpc/peer_channel.h"
#include "tests/testing/fake_state.h"

namespace cairn::testing {

// Thread-safe.
class FakeAgent {
 public:
  explicit FakeAgent(FakeAgentOptions options);
  // The destructor says nothing to the coordinator, as a killed agent does not.
  ~FakeAgent();

  // Makes the trainer report a step. It saves there if the job has agreed on that step, as save_requested() would say.
  void ReportStep(int64_t step);
  // Makes the trainer call save(step).
  void Save(int64_t step, bool allow_dropped_names = false);
  // Makes the trainer end.
  void LoseTrainer();
  // Keeps the save from getting further than this phase, until Release.
  void HoldAt(v1::Phase::Value phase);
  void Release();
  // Makes WRITING end with this error instead of WRITTEN.
  void FailWith(absl::Status error);
  void Kill();

  // Returns OK if the step was committed, its error if it was aborted, DEADLINE_EXCEEDED if there is no outcome in
  // time.
  absl::Status WaitOutcome(int64_t step, absl::Duration timeout = absl::Seconds(60));
  // Waits until the coordinator has been told that the save of `step` is in `phase`.
  bool WaitPhase(int64_t step, v1::Phase::Value phase, absl::Duration timeout = absl::Seconds(60));
  // Waits until the coordinator has answered once since the last registration.
  bool WaitRegistered(absl::Duration timeout = absl::Seconds(60));

  // Starts a load whose reading succeeds at once. WaitLoad returns the answer that all ranks get.
  void Load(uint64_t number, std::optional<int64_t> step);
  absl::StatusOr<v1::LoadOrder> WaitLoad(uint64_t number, absl::Duration timeout = absl::Seconds(60));
  // Returns the part of the load plan that this rank got.
  v1::ReadPlan read_plan();
  // Returns the errors of registration, in order.
  std::vector<absl::Status> registration_errors();
  uint64_t epoch();
  // Returns whether the last order to write asked for a check of all replicas.
  bool asked_to_check();

 private:
  void Run();
  bool Register();
  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::AgentCoordinationService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                               Response*),
                    const Request& request, Response& response);
  void Obey(const v1::SynchronizeAgentResponse& response);
  void ObeySave(const v1::SaveOrder& order);
  void PutLayout();
  absl::StatusOr<std::string> GetPlan(const std::string& digest);
  v1::AgentIdentity Identity() const;
  template <typename Predicate>
  bool WaitFor(absl::Duration timeout, Predicate predicate);

  FakeAgentOptions options_;
  const uint64_t incarnation_;
  const FakeState held_;
  std::shared_ptr<PeerChannel> peer_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  bool registered_ = false;
  uint64_t trainer_;
  bool trainer_attached_ = true;
  std::optional<int64_t> step_;
  uint64_t epoch_ = 0;
  bool asked_to_check_ = false;
  uint64_t revision_ = 0;
  v1::ArmState arm_;
  std::map<int64_t, v1::SaveState> saves_;
  std::map<int64_t, v1::Phase::Value> told_;  // as the last answered request told it
  std::map<int64_t, uint64_t> calls_;
  std::map<int64_t, absl::Status> outcomes_;
  v1::Phase::Value hold_ = v1::Phase::PHASE_UNSPECIFIED;
  absl::Status failure_;
  std::map<uint64_t, v1::LoadState> loads_;
  std::map<uint64_t, v1::LoadOrder> load_results_;
  v1::ReadPlan read_plan_;
  std::vector<absl::Status> registration_errors_;

  std::thread thread_;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TESTING_FAKE_AGENT_H_
