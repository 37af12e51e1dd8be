// The outcomes of this rank's last saves, for trainers that ask later.
#ifndef CAIRN_AGENT_SESSION_ENDED_SAVES_H_
#define CAIRN_AGENT_SESSION_ENDED_SAVES_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "cairn/v1/checkpoint_service.pb.h"

namespace cairn {

// Keeps the last 64. Not thread-safe.
class EndedSaves {
 public:
  struct Ended {
    uint64_t id = 0;
    int64_t step = 0;
    uint64_t trainer = 0;
    // It ended before this trainer had staged and the trainer does not know yet.
    bool untold = false;
    // OK if it was committed.
    absl::Status error;
    v1::Checkpoint checkpoint;
  };

  void Add(Ended ended);
  // Returns how many were added.
  uint64_t count() const { return count_; }

  // Returns whether the last save of this step was committed.
  bool Committed(int64_t step) const;
  // The error of a save of this step whose trainer does not know yet that it ended; then it does.
  std::optional<absl::Status> TakeUntold(int64_t step, uint64_t trainer);
  // Returns how this save of the trainer ended; then the trainer knows.
  std::optional<absl::Status> Tell(uint64_t id, uint64_t trainer);
  // Returns what a trainer that waits for the step may be told; `id`: of this save alone, 0 for any. That a step is
  // committed concerns everybody; why a save of it was aborted, only who called that save. Null if nothing is known.
  const v1::Checkpoint* Outcome(int64_t step, uint64_t id, uint64_t trainer);

 private:
  std::deque<Ended> ended_;  // the newest last
  uint64_t count_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_ENDED_SAVES_H_
