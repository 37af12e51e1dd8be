#include "agent/writer/write_pace.h"

#include <algorithm>

namespace cairn {

WritePace::WritePace(uint64_t bytes_per_second, const Clock& clock)
    : bytes_per_second_(static_cast<double>(bytes_per_second)), clock_(clock) {}

absl::Duration WritePace::Take(uint64_t bytes) {
  const absl::Time now = clock_.SteadyNow();
  MutexLock lock(mutex_);
  const absl::Time begin = std::max(now, next_);
  next_ = begin + absl::Seconds(static_cast<double>(bytes) / bytes_per_second_);
  return begin - now;
}

}  // namespace cairn
