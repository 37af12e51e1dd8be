#include "coordinator/alarms/find_alarms.h"

#include "absl/strings/str_cat.h"
#include "coordinator/alarms/content_rules.h"
#include "coordinator/alarms/counter_rules.h"
#include "coordinator/alarms/movement_rules.h"
#include "coordinator/alarms/state_pairs.h"
#include "coordinator/alarms/still_rules.h"

namespace cairn {

std::vector<Alarm> FindAlarms(const StateSummary* before, StateSummary& now) {
  if (before == nullptr) return {};
  const StatePairs states = MatchStates(*before, now);
  std::vector<Alarm> alarms;
  FindSameStep(states, alarms);
  if (alarms.empty()) {
    FindStaleState(states, alarms);
    FindStoppedCounters(states, alarms);
  }
  FindZeroMoments(states, alarms);
  FindNonFinite(states, alarms);
  FindJumps(states, alarms);
  FindMisplacedMoments(states, alarms);
  FindDrift(states, alarms);
  FindEqualTensors(states, alarms);
  FindUntied(states, alarms);
  for (Alarm& alarm : alarms) {
    absl::StrAppend(&alarm.message, " (steps ", before->step, " and ", now.step, " compared)");
    now.alarms.push_back(alarm.kind);
  }
  return alarms;
}

}  // namespace cairn
