// Everything that a decision about a job may look at.
#ifndef CAIRN_COORDINATOR_DECISION_JOB_CONTEXT_H_
#define CAIRN_COORDINATOR_DECISION_JOB_CONTEXT_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/process/log.h"
#include "coordinator/alarms/alarm_policy.h"
#include "coordinator/decision/core_action.h"
#include "coordinator/exchange/groups.h"
#include "coordinator/membership/layout_table.h"
#include "coordinator/membership/membership.h"
#include "coordinator/timeline/operation_timeline.h"
#include "store/read/lineage.h"

namespace cairn {

enum class ReplicaCheck { kFirst, kAlways, kNever };

struct DecisionOptions {
  uint64_t coordinator_epoch = 1;
  // If a rank makes no progress in a phase for this long, the operation ends.
  absl::Duration phase_timeout = absl::Minutes(10);
  // An agent that is silent for this long is lost.
  absl::Duration lease_ttl = absl::Seconds(10);
  // Storage that has not answered for this long is stalled, and everybody who waits for it is told so.
  absl::Duration storage_timeout = absl::Minutes(2);
  // A question to storage is given up after this time, which is longer because the question may have waited for a
  // thread that another call held up.
  absl::Duration storage_patience() const { return 2 * storage_timeout; }
  ReplicaCheck check_replicas = ReplicaCheck::kFirst;
  AlarmPolicy alarms;
  // The path at which the coordinator sees its checkpoints, for people.
  std::string root;
  // The word that agents must read below their own roots (store/root/root_proof.h). If it is empty, they are not
  // asked.
  std::string root_proof;
  // How many files and connections the coordinator may have open; 0 if that is not known.
  uint64_t open_files = 0;
};

class PlanTable;

// Says when an event comes.
struct Moment {
  absl::Time now;   // never runs backwards, and does not count time during which the coordinator itself was stopped
  absl::Time wall;  // for people
};

// Holds what the decisions about a job leave for the server around them.
struct Effects {
  std::vector<CoreAction> actions;
  // One per change of state.
  std::vector<LogEvent> log;
  // The operations that have ended.
  std::vector<std::shared_ptr<const OperationTimeline>> timelines;
  uint64_t leases_ended = 0;
};

// What the parts of a job are given with an event. It is made for each one, and nobody changes it.
struct JobContext {
  const std::string& job;
  const DecisionOptions& options;
  const Membership& members;
  LayoutTable& layouts;
  PlanTable& plans;
  Effects& effects;
  uint64_t& next_ticket;     // no ticket is given twice
  const absl::Time started;  // when the job was first heard of
  // The job's group for exchanges over NCCL. It is null where nothing is exchanged: in tests of single parts.
  Groups* groups = nullptr;

  absl::Time now;
  absl::Time wall;  // for people
  // The revision of what people see after this event.
  uint64_t revision = 1;
  std::optional<int64_t> last_committed;
  // Say what is committed, and what builds on what.
  const JobLineage* lineage = nullptr;
  std::shared_ptr<const KnownSteps> known_steps;
  // The smallest step whose commit waits for storage that does not answer.
  std::optional<int64_t> stalled_step;

  uint64_t NewTicket() const { return next_ticket++; }
  void Do(CoreAction action) const { effects.actions.push_back(std::move(action)); }
  void Log(LogLevel level, std::string_view event, std::vector<LogField> fields) const {
    fields.insert(fields.begin(), LogField("job", job));
    effects.log.push_back({level, std::string(event), std::move(fields)});
  }
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_DECISION_JOB_CONTEXT_H_
