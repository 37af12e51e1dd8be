// One rank of a simulated job: its agent and its trainer, as far as the coordinator sees them.
#ifndef CAIRN_COORDINATOR_JOB_TESTING_SIMULATED_AGENT_H_
#define CAIRN_COORDINATOR_JOB_TESTING_SIMULATED_AGENT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

struct SimulatedAgent {
  int rank = 0;
  uint64_t incarnation = 0;
  uint64_t predecessor = 0;  // the process before this one
  uint64_t trainer = 0;
  // The coordinator has told it these last.
  uint64_t epoch = 0;
  uint64_t revision = 0;
  uint64_t sequence = 0;  // of its reports
  bool registered = false;
  absl::Time frozen_until = absl::InfinitePast();

  int64_t step = 0;  // of the training
  // The calls of save that have not ended, by step.
  struct Call {
    v1::SaveState state;
    absl::Time begun;
  };
  std::map<int64_t, Call> calls;
  std::map<int64_t, uint64_t> last_call;     // its number, by step
  std::map<int64_t, absl::Time> told_stall;  // when it was last told that storage is stalled, by step

  // The step at which the trainers are to save together.
  v1::ArmState arm;
  int64_t armed_step = -1;
  bool agreed = false;
  int arm_waits = 0;

  // The process was killed and starts again; so is its trainer, which goes on from the same step.
  void Restart(uint64_t new_incarnation, uint64_t new_trainer);

  std::string Layout() const;
  v1::AgentIdentity Identity(const std::string& job) const;
  // The next report, with everything that the agent knows.
  v1::SynchronizeAgentRequest Report(const std::string& job);

  // Obeys an order about the step at which all save. Returns true if the agent agreed to it.
  bool Obey(const v1::ArmOrder& order);
  // The trainer goes on by a step. Returns false if it waits to hear whether the others agree to save there; it gives
  // that up after a while.
  bool TryStep();
  // Returns whether the trainer has come to the step at which all agreed to save.
  bool IsAtAgreedStep() const { return agreed && armed_step == step; }
  void BeginSave(int64_t at, bool overwrite, absl::Time now);
  void EndSave(int64_t at) { calls.erase(at); }
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_TESTING_SIMULATED_AGENT_H_
