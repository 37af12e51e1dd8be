// Computes how long the worker pauses before it polls a group's work again. A process is not notified when work on a
// device has ended, so it must poll: often enough to notice the end of quick work at once, and rarely enough that a
// long wait does not take processor time from the trainer.
#ifndef CAIRN_GPU_SHARE_LOOK_PACE_H_
#define CAIRN_GPU_SHARE_LOOK_PACE_H_

#include <algorithm>

#include "absl/time/time.h"

namespace cairn {

// Depends only on the earlier pauses, not on a clock. Not thread-safe.
class LookPace {
 public:
  // Returns the pause before the next poll: a tenth of the time that this work has taken so far. If the work runs on
  // the device (`under_way`), the first pause is half of the time that the last work took, at most 5 ms, because steps
  // are similar.
  absl::Duration Pause(bool under_way) const {
    const absl::Duration alone = under_way ? std::min(last_ / 2, kLongestAlone) - waited_ : absl::ZeroDuration();
    return std::max(alone, std::clamp(waited_ / 10, kShortest, kLongest));
  }
  // The whole pause has passed, and the work has not ended.
  void Waited(absl::Duration pause) { waited_ += pause; }
  // The work has ended. The next work begins now.
  void Finished() {
    last_ = waited_;
    waited_ = absl::ZeroDuration();
  }
  // There is no work.
  void Idle() { waited_ = absl::ZeroDuration(); }

 private:
  static constexpr absl::Duration kShortest = absl::Microseconds(50);
  static constexpr absl::Duration kLongest = absl::Milliseconds(1);
  static constexpr absl::Duration kLongestAlone = absl::Milliseconds(5);

  absl::Duration last_;    // the time that the last step took
  absl::Duration waited_;  // the time that this step has taken so far
};

}  // namespace cairn

#endif  // CAIRN_GPU_SHARE_LOOK_PACE_H_
