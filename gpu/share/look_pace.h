// Says how soon a group that is at work is looked at again. Nobody tells a process that work on a device has ended, so
// it must ask: soon enough that what is quick is seen at once, and seldom enough that a long wait does not take a
// processor from the trainer.
#ifndef CAIRN_GPU_SHARE_LOOK_PACE_H_
#define CAIRN_GPU_SHARE_LOOK_PACE_H_

#include <algorithm>

#include "absl/time/time.h"

namespace cairn {

// A function of the pauses that were made before. Not thread-safe.
class LookPace {
 public:
  // Returns the pause before the next look: a tenth of the time that was waited already. If the work is under way in
  // the device, it is first left alone for half of the time that the last one took, because steps are much alike.
  absl::Duration Pause(bool under_way) const {
    const absl::Duration alone = under_way ? std::min(last_ / 2, kLongestAlone) - waited_ : absl::ZeroDuration();
    return std::max(alone, std::clamp(waited_ / 10, kShortest, kLongest));
  }
  // A pause has passed whole.
  void Waited(absl::Duration pause) { waited_ += pause; }
  // The work has ended; what comes now is next.
  void Finished() {
    last_ = waited_;
    waited_ = absl::ZeroDuration();
  }
  // Nothing is at work.
  void Idle() { waited_ = absl::ZeroDuration(); }

 private:
  static constexpr absl::Duration kShortest = absl::Microseconds(50);
  static constexpr absl::Duration kLongest = absl::Milliseconds(1);
  static constexpr absl::Duration kLongestAlone = absl::Milliseconds(5);

  absl::Duration last_;    // that the last step took
  absl::Duration waited_;  // for this one so far
};

}  // namespace cairn

#endif  // CAIRN_GPU_SHARE_LOOK_PACE_H_
