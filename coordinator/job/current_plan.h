// The plan of a save that would begin now. Agents learn it before they save, so that a save whose layouts are those of
// the plan needs no round trip before its trainers copy.
//
// Ranks declare a changed layout one after the other. So while some of them have not called `prepare` as often as the
// others (prepare_rounds.h), layouts that contradict each other are no error: the others wait for them, for the phase
// timeout at most. It is an error when all have called it equally often.
#ifndef CAIRN_COORDINATOR_JOB_CURRENT_PLAN_H_
#define CAIRN_COORDINATOR_JOB_CURRENT_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/plan_table.h"
#include "coordinator/job/prepare_rounds.h"
#include "coordinator/membership/membership.h"

namespace cairn {

// Not thread-safe.
class CurrentPlan {
 public:
  // Says that what the plan is made of may have changed: the members, or whether replicas were compared.
  void InputsChanged() { inputs_changed_ = true; }
  // Says the same of a rank's layout, or of its calls of `prepare`.
  void OnReport(const Member& member) {
    inputs_changed_ = true;
    called_ = called_ || rounds_.CallsOf(member) > 0;
  }
  // A plan has come into the table.
  void OnPlanned();
  // Asks for the plan and takes it up, as far as that is possible now. Looks at every rank if the inputs have changed.
  void Advance(JobContext& context);
  // Returns whether time alone may bring a step.
  bool restless(const Membership& members) const;

  // Empty while there is none.
  const std::string& digest() const { return digest_; }
  // Returns whether agents are told something of it that another set of members may take back: the plan, or why there
  // is none.
  bool told() const { return !digest_.empty() || !error_.ok() || !contradiction_.ok(); }
  // Writes the plan into the orders of an agent whose trainer has declared a layout.
  void WriteTo(const Member& member, v1::SynchronizeAgentResponse& response) const;
  // Returns the ranks for whose layouts trainers wait in `prepare`, ascending. It looks at every rank.
  std::vector<int> Awaited(const Membership& members) const;
  // Returns whether the next save compares all replicas. Agents need it with or without a plan.
  bool check_replicas() const { return check_replicas_; }

 private:
  bool Waits() const { return waiting_since_ != absl::InfiniteFuture(); }
  // Finds out anew what plan there is.
  void Look(JobContext& context);
  void Request(JobContext& context);
  // The layouts of all ranks cannot be planned together.
  void Contradict(const absl::Status& error, const Membership& members);
  // Ends the wait for ranks that have not called `prepare`, with an error that names them.
  void GiveUp(JobContext& context);
  // All calls of `prepare` up to now have their answer.
  void CloseRound(const Membership& members);

  PrepareRounds rounds_;
  // A rank may have called `prepare` since the last round was closed. It is kept, because a job whose ranks declare
  // their layouts one after the other cannot look at all of them each time.
  bool called_ = false;
  bool inputs_changed_ = true;  // since Look
  bool under_way_ = false;      // was asked for, and its result has not come
  std::string digest_;
  std::string last_digest_;  // of the last plan that there was; empty if there was none
  bool check_replicas_ = false;
  // Why the calls of `prepare` that were answered last got no plan. Calls that were made since then wait for another
  // one.
  absl::Status error_;
  // Is set while the layouts contradict each other and some ranks are behind: what the planner says, and how many calls
  // of `prepare` the others have made.
  absl::Status contradiction_;
  uint64_t most_calls_ = 0;
  // The time since which trainers wait in `prepare` for ranks that have not called it.
  absl::Time waiting_since_ = absl::InfiniteFuture();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_CURRENT_PLAN_H_
