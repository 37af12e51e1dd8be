// The save plans of a job's recent sets of layouts.
#ifndef CAIRN_COORDINATOR_DECISION_PLAN_TABLE_H_
#define CAIRN_COORDINATOR_DECISION_PLAN_TABLE_H_

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/decision/job_context.h"

namespace cairn {

struct SavePlanEntry {
  enum class State { kPending, kReady, kFailed };
  std::string key;
  std::vector<LayoutHold> layouts;
  State state = State::kPending;
  PlannedSave plan;    // when kReady
  absl::Status error;  // when kFailed: what is wrong with the layouts
  // True if the replicas of a save under this plan were compared and were equal.
  bool replicas_checked = false;
};

// Not thread-safe. Entries stay where they are until kCapacity newer ones were asked for, or room is needed.
class PlanTable {
 public:
  // Returns the entry of these layouts (by rank). If there is none yet, makes it and asks for its plan. Null while the
  // bytes of a layout are missing.
  SavePlanEntry* Request(const std::vector<std::string>& layout, const JobContext& context);
  void OnPlanned(const std::string& key, const absl::StatusOr<PlannedSave>& plan);
  // The newest entry with this plan digest, if any.
  SavePlanEntry* Find(const std::string& plan_digest);
  // The entry with this key; null if it is not kept any more.
  SavePlanEntry* FindByKey(const std::string& key);
  // Lets go of the oldest entry whose plan is not being made, with the layouts that it holds. A save that goes by its
  // plan holds what it needs, and a later one asks for the plan anew. Returns false if there is none.
  bool ReleaseOldest();
  // Returns how many keys were made of the layouts and nodes of all ranks.
  uint64_t keys_made() const { return keys_made_; }

 private:
  static constexpr size_t kCapacity = 8;
  std::list<SavePlanEntry> entries_;  // newest first
  uint64_t keys_made_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_DECISION_PLAN_TABLE_H_
