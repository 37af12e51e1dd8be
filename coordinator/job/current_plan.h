// The plan of a save that would begin now. Agents learn it before they save, so that a save whose layouts are those of
// the plan needs no round trip before its trainers copy.
//
// Ranks declare a changed layout one after the other. So while not all of them wait in `prepare`, layouts that
// contradict each other are no error: those that wait do so for the others, for the phase timeout at most. It is an
// error when all wait in it.
#ifndef CAIRN_COORDINATOR_JOB_CURRENT_PLAN_H_
#define CAIRN_COORDINATOR_JOB_CURRENT_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/plan_table.h"
#include "coordinator/job/prepare_answers.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/news.h"

namespace cairn {

// Not thread-safe.
class CurrentPlan {
 public:
  // Says that what the plan is made of may have changed: the members, or whether replicas were compared.
  void InputsChanged() { inputs_changed_ = true; }
  // Says that a rank has another layout (`changed`), or that its trainer has begun or ended a call of `prepare`.
  void OnReport(const Member& member, bool changed);
  // A plan has come into the table.
  void OnPlanned();
  // Asks for the plan and takes it up, as far as that is possible now. Looks at every rank if the inputs have changed.
  News Advance(const JobContext& context);

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
  bool waiting() const { return waiting_since_ != absl::InfiniteFuture(); }
  // Finds out anew what plan there is.
  void Look(const JobContext& context);
  void Request(const JobContext& context);
  // The layouts of all ranks cannot be planned together.
  void Contradict(const absl::Status& error, const Membership& members);
  // Ends the wait for ranks that have not called `prepare`, with an error that names them.
  void GiveUp(const JobContext& context);
  // The calls of `prepare` that wait end with this error.
  void Refuse(const absl::Status& error, const Membership& members);

  PrepareAnswers answers_;
  // Some trainer may wait in `prepare`. It is kept, because a job whose ranks declare their layouts one after the other
  // cannot look at all of them each time.
  bool called_ = false;
  bool inputs_changed_ = true;  // since Look
  bool under_way_ = false;      // was asked for, and its result has not come
  std::string digest_;
  std::string last_digest_;  // of the last plan that there was; empty if there was none
  bool check_replicas_ = false;
  absl::Status error_;  // of the calls of `prepare` that were refused last
  // What the planner says, while the layouts contradict each other and some ranks do not wait in `prepare`.
  absl::Status contradiction_;
  // The time since which trainers wait in `prepare` for ranks that have not called it.
  absl::Time waiting_since_ = absl::InfiniteFuture();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_CURRENT_PLAN_H_
