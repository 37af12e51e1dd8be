// Spreads what an agent writes, so that it takes no more than a part of the storage's bandwidth.
#ifndef CAIRN_AGENT_WRITER_WRITE_PACE_H_
#define CAIRN_AGENT_WRITER_WRITE_PACE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace cairn {

// Thread-safe.
class WritePace {
 public:
  // `bytes_per_second` is not 0. `clock` must outlive the object.
  WritePace(uint64_t bytes_per_second, const Clock& clock);

  // Enters a write of so many bytes. Returns how long to wait before it. What was not written in the past is not made
  // up for: after a pause, the first write goes at once and the next one waits for it.
  absl::Duration Take(uint64_t bytes);

 private:
  const double bytes_per_second_;
  const Clock& clock_;
  Mutex mutex_;
  absl::Time next_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // the next write may begin
};

}  // namespace cairn

#endif  // CAIRN_AGENT_WRITER_WRITE_PACE_H_
