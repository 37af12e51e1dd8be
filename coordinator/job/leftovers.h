// The attempts that nobody finished, that were deleted, or whose files could not be removed. One without an outcome
// gets its abort record when its agents have had the time to come back with it. Then its files are removed, those of a
// deleted one when no load reads them any more. Few are removed at a time: storage has saves to serve before, and
// hundreds may have been deleted at once.
#ifndef CAIRN_COORDINATOR_JOB_LEFTOVERS_H_
#define CAIRN_COORDINATOR_JOB_LEFTOVERS_H_

#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/job/outcome_book.h"
#include "coordinator/load/loads.h"
#include "coordinator/save/saves.h"

namespace cairn {

// Not thread-safe.
class Leftovers {
 public:
  // Its files are not touched before `next_try`.
  void Add(const StoredAttempt& leftover, absl::Time next_try = absl::InfinitePast()) {
    sweeps_.insert({{leftover.step, leftover.attempt}, {leftover, 0, next_try}});
  }
  bool empty() const { return sweeps_.empty(); }
  bool Contains(int64_t step, uint32_t attempt) const { return sweeps_.contains({step, attempt}); }
  // Counts the deleted attempts whose files are still to be removed, and those among them that storage refused.
  struct Due {
    uint32_t attempts = 0;
    uint32_t refused = 0;
    absl::Duration delay;  // none is removed before it has passed
  };
  Due DueRemovals(const JobContext& context) const;
  // Returns whether its files are being removed now.
  bool Removing(int64_t step, uint32_t attempt) const;

  // Takes every step that is possible now. It leaves alone what a save under way or a member speaks of.
  void Advance(const Saves& saves, const Loads& loads, const OutcomeBook& outcomes, const JobContext& context);
  // The results of its actions. Those of others are ignored.
  void OnOutcome(uint64_t ticket, const absl::StatusOr<StoredAttempt>& standing, const JobContext& context);
  void OnRemoved(uint64_t ticket, const absl::Status& status, const JobContext& context);

 private:
  struct Sweep {
    StoredAttempt leftover;
    uint64_t ticket = 0;  // of the action under way
    absl::Time next_try = absl::InfinitePast();
    bool done = false;
    bool refused = false;  // storage did not remove its files when it was asked last
  };

  static void Begin(Sweep& sweep, const JobContext& context);

  std::multimap<std::pair<int64_t, uint32_t>, Sweep> sweeps_;  // by step and attempt
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_LEFTOVERS_H_
