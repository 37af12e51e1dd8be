// Holds what tests of a whole job share: a coordinator's decisions about a job of a few ranks, to which the test brings
// one event after the other, and a save that goes as far as the test wants it.
#ifndef CAIRN_COORDINATOR_TESTING_JOB_FIXTURE_H_
#define CAIRN_COORDINATOR_TESTING_JOB_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/test_job.h"

namespace cairn {

class JobFixture : public testing::Test {
 protected:
  static constexpr char kJob[] = "demo";
  static constexpr uint64_t kNonce = 7;

  // Phases may take 20 s, and storage 5 s.
  static DecisionOptions Options() {
    DecisionOptions options;
    options.phase_timeout = absl::Seconds(20);
    options.lease_ttl = absl::Minutes(10);  // agents are not what ends here
    options.storage_timeout = absl::Seconds(5);
    return options;
  }
  // A coordinator that has just started. It has the layouts of these ranks, and knows nothing else.
  void StartJob(const DecisionOptions& options, int ranks = 2) {
    ranks_ = ranks;
    core_ = std::make_unique<TestJob>(kJob, options, now_);
    actions_.clear();
    for (int rank = 0; rank < ranks; ++rank) core_->layouts.Add(Layout(rank), 1);
  }
  // Storage has answered what the job has saved.
  void Recover(const StoredAttempts& recovered = {}) {
    Answer<RecoverJob>([&](Job& job, const RecoverJob&, const Moment& at) { job.OnRecovered(recovered, at); });
  }

  static std::string Layout(int rank) { return absl::StrCat("layout", rank); }
  static uint64_t Trainer(int rank) { return 100 + static_cast<uint64_t>(rank); }
  Moment At() { return Moment{now_, now_}; }
  Job& job() { return core_->job; }

  v1::AgentIdentity Identity(int rank) {
    v1::AgentIdentity identity;
    identity.set_job(kJob);
    identity.set_rank(static_cast<uint32_t>(rank));
    identity.set_incarnation(1 + static_cast<uint64_t>(rank) + 100 * static_cast<uint64_t>(restarts_[rank]));
    return identity;
  }
  void Register(int rank) {
    v1::RegisterAgentRequest request;
    *request.mutable_agent() = Identity(rank);
    request.set_world_size(static_cast<uint32_t>(ranks_));
    if (restarts_[rank] > 0) request.add_predecessors(request.agent().incarnation() - 100);
    const auto registered = job().Register(request, At());
    ASSERT_TRUE(registered.ok()) << registered.status();
  }
  void Restart(int rank) {
    ++restarts_[rank];
    Register(rank);
  }
  // Returns what the agent of a rank with this trainer (0: none) says.
  static v1::AgentState StateWith(uint64_t trainer) {
    v1::AgentState state;
    state.mutable_trainer()->set_attached(trainer != 0);
    state.mutable_trainer()->set_incarnation(trainer);
    return state;
  }
  void Synchronize(int rank, const v1::AgentState& state) {
    v1::SynchronizeAgentRequest request;
    *request.mutable_agent() = Identity(rank);
    *request.mutable_state() = state;
    ASSERT_TRUE(job().Synchronize(request, At()).ok());
  }
  // The rank's trainer (0: none) and its saves, which are the trainer's own unless they say otherwise.
  void Report(int rank, uint64_t trainer, const std::vector<v1::SaveState>& saves = {}) {
    v1::AgentState state = StateWith(trainer);
    for (const v1::SaveState& save : saves) {
      v1::SaveState& added = *state.add_saves() = save;
      if (added.trainer_incarnation() == 0) added.set_trainer_incarnation(trainer);
    }
    Synchronize(rank, state);
  }
  void Pass(absl::Duration time) {
    // In steps, as the server's timer does.
    for (const absl::Time end = now_ + time; now_ < end;) {
      now_ += std::min(absl::Duration(absl::Milliseconds(250)), end - now_);
      core_->Tick({now_, now_});
    }
  }

  // The action of this kind that was given; nothing if there was none.
  template <typename What>
  std::optional<What> Take() {
    for (CoreAction& action : core_->TakeActions()) actions_.push_back(std::move(action));
    for (auto action = actions_.begin(); action != actions_.end(); ++action) {
      if (!std::holds_alternative<What>(*action)) continue;
      What found = std::get<What>(std::move(*action));
      actions_.erase(action);
      return found;
    }
    return std::nullopt;
  }
  template <typename What, typename Function>
  void Answer(Function function) {
    const std::optional<What> what = Take<What>();
    ASSERT_TRUE(what.has_value());
    function(job(), *what, At());
  }

  // Saves.

  static v1::SaveState Begun(int rank, int64_t step, uint64_t call = 1) {
    v1::SaveState state;
    state.set_step(step);
    state.set_call(call);
    state.set_phase(v1::Phase::PLANNING);
    state.set_layout_digest(Layout(rank));
    return state;
  }
  // Returns the state of a save in attempt 1 of the step.
  static v1::SaveState InAttempt(int rank, int64_t step, v1::Phase::Value phase, uint64_t call = 1) {
    v1::SaveState state = Begun(rank, step, call);
    state.set_phase(phase);
    state.set_plan_digest("plan");
    state.set_attempt(1);
    state.set_attempt_nonce(kNonce);
    return state;
  }
  static v1::SaveState Written(int rank, int64_t step) { return InAttempt(rank, step, v1::Phase::WRITTEN); }
  // The first order about the step.
  v1::SaveOrder OrderOf(int rank, int64_t step) {
    const v1::SynchronizeAgentResponse orders = job().OrdersFor(rank, At());
    for (const v1::SaveOrder& order : orders.saves()) {
      if (order.step() == step) return order;
    }
    return {};
  }
  static std::optional<Reason> ErrorOf(const v1::SaveOrder& order) { return ReasonOf(StatusFromProto(order.error())); }

  // Two ranks are in the save of `step`, which has its plan.
  void Plan(int64_t step) {
    for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {Begun(rank, step)});
    if (const auto plan = Take<PlanSave>(); plan.has_value()) {
      job().OnSavePlanned(plan->key, PlannedSave{"plan", 1}, At());
    }
  }
  // ... and is attempt 1.
  void Number(int64_t step) {
    Plan(step);
    Answer<ReserveAttempt>([](Job& job, const ReserveAttempt& what, const Moment& at) {
      job.OnReserved(what.step, what.ticket, Reserved{1, kNonce}, at);
    });
  }
  // ... and has all its files; a manifest is made, and handed out.
  PutOutcome BringToCommit(int64_t step) {
    Number(step);
    for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {Written(rank, step)});
    Answer<MakeManifest>([](Job& job, const MakeManifest& what, const Moment& at) {
      job.OnManifest(what.step, what.ticket, MadeManifest{std::make_shared<std::string>("m"), 1}, at);
    });
    return Take<PutOutcome>().value_or(PutOutcome());
  }
  // Returns what stands if the put has taken effect, or another one before it.
  static StoredAttempt Standing(const PutOutcome& put, bool committed) {
    StoredAttempt outcome;
    outcome.step = put.step;
    outcome.attempt = put.attempt;
    outcome.committed = committed;
    outcome.error = put.error;
    outcome.time = absl::FromUnixSeconds(1700000000);
    return outcome;
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  int ranks_ = 0;
  std::map<int, int> restarts_;  // of agents, by rank
  std::unique_ptr<TestJob> core_;
  std::vector<CoreAction> actions_;
};

// The coordinator has recovered, and finds nothing in storage. Both ranks are there with their trainers.
class TwoRankFixture : public JobFixture {
 protected:
  TwoRankFixture() { Start(Options()); }

  void Start(const DecisionOptions& options) {
    StartJob(options);
    for (int rank = 0; rank < 2; ++rank) {
      Register(rank);
      Report(rank, Trainer(rank));
    }
    Recover();
  }
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_TESTING_JOB_FIXTURE_H_
