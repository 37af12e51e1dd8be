// Compares each step that is about to be committed with the one on which it builds, and adds what looks wrong to its
// manifest (coordinator/alarms).
#ifndef CAIRN_COORDINATOR_SERVER_STATE_WATCH_H_
#define CAIRN_COORDINATOR_SERVER_STATE_WATCH_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/format/manifest.h"
#include "coordinator/alarms/alarm_policy.h"
#include "coordinator/alarms/state_summary.h"
#include "store/read/checkpoint_store.h"

namespace cairn {

// Thread-safe. It keeps what it needs of the newest step of the 64 jobs that saved last; of others it reads the
// manifest of the step before.
class StateWatch {
 public:
  // `checkpoints` must outlive the object.
  explicit StateWatch(CheckpointStore& checkpoints) : checkpoints_(checkpoints) {}

  // Sets the histories of `manifest` and appends the alarms whose kind is wanted. `builds_on` is the newest committed
  // step on which the training builds. `zero_shards` says by shard whether its writer has told that all elements are
  // zeros, of either sign: its checksum knows those without one alone. It may be empty. Nothing happens if the manifest
  // has no summaries. If the step before cannot be read, the log says so, and the histories begin anew.
  void Look(const std::string& job, const AlarmPolicy& policy, std::optional<int64_t> builds_on,
            const std::vector<bool>& zero_shards, Manifest& manifest);

 private:
  using SummaryPtr = std::shared_ptr<const StateSummary>;
  SummaryPtr Find(const std::string& job, int64_t step);
  void Keep(const std::string& job, SummaryPtr summary);

  CheckpointStore& checkpoints_;
  Mutex mutex_;
  std::list<std::pair<std::string, SummaryPtr>> kept_ ABSL_GUARDED_BY(mutex_);  // by job, the last one first
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_STATE_WATCH_H_
