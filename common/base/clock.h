// This is the only door to time. Decisions never read a clock: they are given `now`.
#ifndef CAIRN_COMMON_BASE_CLOCK_H_
#define CAIRN_COMMON_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace cairn {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Returns a monotonic time, which changes of the wall clock do not affect. Only differences mean something.
  virtual absl::Time SteadyNow() const = 0;
  // Returns the time of day, for people: in log lines and as commit times. No decision may use it.
  virtual absl::Time WallNow() const = 0;

  // Returns the machine's clock, which is never destroyed.
  static const Clock& Real();
};

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_CLOCK_H_
