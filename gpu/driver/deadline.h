// The time at which a wait ends.
#ifndef CAIRN_GPU_DRIVER_DEADLINE_H_
#define CAIRN_GPU_DRIVER_DEADLINE_H_

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace cairn {

class Deadline {
 public:
  // The deadline is `seconds` from now, at most 1e8.
  explicit Deadline(double seconds)
      : end_(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                    std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8)))) {}
  // Returns the remaining time; zero when the deadline has passed.
  absl::Duration left() const {
    return std::max(absl::FromChrono(end_ - std::chrono::steady_clock::now()), absl::ZeroDuration());
  }
  bool passed() const { return left() == absl::ZeroDuration(); }

 private:
  const std::chrono::steady_clock::time_point end_;
};

}  // namespace cairn

#endif  // CAIRN_GPU_DRIVER_DEADLINE_H_
