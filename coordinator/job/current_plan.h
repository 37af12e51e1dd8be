// The plan of a save that would begin now. Agents learn it before they save, so that a save whose layouts are those of
// the plan needs no round trip before its trainers copy.
#ifndef CAIRN_COORDINATOR_JOB_CURRENT_PLAN_H_
#define CAIRN_COORDINATOR_JOB_CURRENT_PLAN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/decision/job_context.h"

namespace cairn {

// Not thread-safe.
class CurrentPlan {
 public:
  // Says that what the plan is made of may have changed: the members, their layouts, or whether replicas were compared.
  void InputsChanged() { inputs_changed_ = true; }
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
  bool told() const { return !digest_.empty() || !error_.ok(); }
  // Writes the plan into the orders of an agent whose trainer has declared a layout.
  void WriteTo(v1::SynchronizeAgentResponse& response) const;
  // Returns whether the next save compares all replicas. Agents need it with or without a plan.
  bool check_replicas() const { return check_replicas_; }

 private:
  void Request(JobContext& context);
  // Some ranks have declared no layout yet: waits for them, and in the end names them.
  void WaitForLayouts(JobContext& context);

  bool inputs_changed_ = true;  // since Advance looked at them
  bool under_way_ = false;      // was asked for, and its result has not come
  std::string digest_;
  bool check_replicas_ = false;
  absl::Status error_;  // why there is no plan
  // The time since which some ranks have declared a layout and others have not.
  absl::Time partial_since_ = absl::InfiniteFuture();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_CURRENT_PLAN_H_
