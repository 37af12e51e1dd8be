// Guesses how fast a trainer steps, from when its reports came.
//
// The guess must not be too high. A step for which all ranks agree to save is chosen ahead of them: if it is chosen too
// near, a rank refuses it and a later one is tried; if it is chosen too far, everybody waits. So two reports that come
// together, of which the first was delayed on its way, must not count as steps that were made within that moment, nor a
// jump to the step of a checkpoint that was loaded: the slowest of the last stretches counts.
#ifndef CAIRN_COORDINATOR_MEMBERSHIP_STEP_PACE_H_
#define CAIRN_COORDINATOR_MEMBERSHIP_STEP_PACE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// Not thread-safe.
class StepPace {
 public:
  // A stretch of steps that is counted takes at least so long.
  static constexpr absl::Duration kStretch = absl::Milliseconds(250);

  // The trainer has reported another step than before. Times ascend.
  void Moved(int64_t step, absl::Time now);
  // 0 while no stretch is over.
  double steps_per_second() const;

 private:
  static constexpr size_t kStretches = 3;

  bool begun_ = false;
  int64_t step_ = 0;  // at which the stretch under way has begun
  absl::Time begin_;
  std::array<double, kStretches> rates_{};  // of the last stretches
  size_t count_ = 0;                        // of stretches, ever
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_MEMBERSHIP_STEP_PACE_H_
