// This is the only door to time. Decisions never read a clock: they are given `now`.
#ifndef CAIRN_COMMON_BASE_CLOCK_H_
#define CAIRN_COMMON_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace cairn {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Monotonic: changes of the wall clock do not move it. Its epoch means nothing, only differences do.
  virtual absl::Time SteadyNow() const = 0;
  // This time is for people: log lines and commit times. No decision may use it.
  virtual absl::Time WallNow() const = 0;

  // Returns the machine's clock, which is never destroyed.
  static const Clock& Real();
};

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_CLOCK_H_
