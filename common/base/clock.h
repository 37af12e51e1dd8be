// The only door to time. Decisions never read a clock: they are given `now`.
#ifndef CAIRN_COMMON_BASE_CLOCK_H_
#define CAIRN_COMMON_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace cairn {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Monotonic, unaffected by changes of the wall clock. Its epoch means nothing: only differences do.
  virtual absl::Time SteadyNow() const = 0;
  // For people: log lines and commit times. Never for a decision.
  virtual absl::Time WallNow() const = 0;

  // The machine's clock. Never destroyed.
  static const Clock& Real();
};

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_CLOCK_H_
