#include "coordinator/membership/step_pace.h"

#include <algorithm>
#include <utility>

namespace cairn {

void StepPace::Moved(int64_t step, absl::Time now) {
  const bool forward = std::exchange(begun_, true) && step > step_;
  if (forward && now - begin_ < kStretch) return;
  if (forward) {
    rates_[count_++ % kStretches] = static_cast<double>(step - step_) / absl::ToDoubleSeconds(now - begin_);
  }
  step_ = step;
  begin_ = now;
}

double StepPace::steps_per_second() const {
  const size_t known = std::min(count_, kStretches);
  return known == 0 ? 0 : *std::min_element(rates_.begin(), rates_.begin() + static_cast<std::ptrdiff_t>(known));
}

}  // namespace cairn
