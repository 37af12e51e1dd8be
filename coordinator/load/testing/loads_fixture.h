// Tests of loads share a job of a few ranks with the committed steps 3, 5 and 7, what its agents say of their calls,
// and what they are told.
#ifndef CAIRN_COORDINATOR_LOAD_TESTING_LOADS_FIXTURE_H_
#define CAIRN_COORDINATOR_LOAD_TESTING_LOADS_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/job_fixture.h"
#include "planner/load/fingerprint_check.h"

namespace cairn {

class LoadsFixture : public JobFixture {
 protected:
  LoadsFixture() { Start(2); }

  void Start(int ranks) {
    StartJob(Options(), ranks);
    for (int rank = 0; rank < ranks; ++rank) Register(rank);
    StoredAttempts recovered;
    for (int64_t step : {3, 5, 7}) {
      StoredAttempt outcome;
      outcome.step = step;
      outcome.attempt = 1;
      outcome.committed = true;
      recovered.push_back(outcome);
    }
    Recover(recovered);
  }
  // Reports for the rank's agent its trainer (0: none) and its calls.
  void Report(int rank, uint64_t trainer, const std::vector<v1::LoadState>& calls = {}) {
    v1::AgentState state = StateWith(trainer);
    for (const v1::LoadState& call : calls) *state.add_loads() = call;
    Synchronize(rank, state);
  }
  void Report(int rank, const v1::LoadState& call) { Report(rank, call.trainer_incarnation(), {call}); }
  v1::LoadState Call(int rank, uint64_t number, uint64_t trainer = 0) {
    v1::LoadState state;
    state.set_number(number);
    state.set_phase(v1::Phase::PLANNING);
    state.set_layout_digest(Layout(rank));
    state.set_trainer_incarnation(trainer == 0 ? Trainer(rank) : trainer);
    state.set_strict(true);
    state.set_fallback(true);
    return state;
  }
  static v1::LoadState In(v1::LoadState call, v1::Phase::Value phase) {
    call.set_phase(phase);
    if (phase == v1::Phase::READING || phase == v1::Phase::DONE) call.set_plan_digest("plan");
    return call;
  }
  static v1::LoadState Failed(v1::LoadState call, Reason reason, const std::string& what,
                              const ErrorMetadata& metadata = {}) {
    call.set_phase(v1::Phase::FAILED);
    *call.mutable_error() = StatusToProto(MakeError(reason, what, metadata));
    return call;
  }
  v1::LoadOrder Order(int rank, uint64_t number) {
    const v1::SynchronizeAgentResponse orders = job().OrdersFor(rank, At());
    for (const v1::LoadOrder& order : orders.loads()) {
      if (order.number() == number) return order;
    }
    return {};
  }
  v1::Phase::Value Action(int rank, uint64_t number) { return Order(rank, number).phase(); }
  absl::Status Error(int rank, uint64_t number) { return StatusFromProto(Order(rank, number).error()); }
  std::optional<Reason> Why(int rank, uint64_t number) { return ReasonOf(Error(rank, number)); }
  std::string Detail(int rank, uint64_t number, const std::string& key) { return MetadataOf(Error(rank, number))[key]; }

  // Answers the load plan that was asked for; false if none was.
  bool Plan(const std::string& digest = "plan") {
    for (CoreAction& action : core_->TakeActions()) {
      const auto* plan = std::get_if<PlanLoad>(&action);
      if (plan == nullptr) continue;
      PlannedLoad planned;
      planned.step = plan->step.value_or(7);
      planned.world_size = 2;
      planned.plan_digest = digest;
      planned.transfer_token = "token";
      calls_digest_ = plan->calls_digest;
      kept_ = plan->kept;
      planned.passed_over = passed_over_;
      planned.mirror = mirror_;
      if (plan->verify_fingerprints) {
        FaultList faults;
        planned.check = std::make_shared<const FingerprintCheck>(Manifest(), LayoutSet({}, faults), NameMatch());
      }
      if (planned.step > 5) planned.older_step = 5;
      job().OnLoadPlanned(plan->number, plan->ticket, planned, At());
      return true;
    }
    return false;
  }

  std::vector<std::pair<int64_t, absl::Status>> passed_over_;  // by each plan
  std::string mirror_;                                         // the same
  std::string calls_digest_;                                   // of the last plan that was asked for
  std::vector<PlanLoad::Kept> kept_;                           // of the same
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_LOAD_TESTING_LOADS_FIXTURE_H_
