// A clock that a test moves by hand.
#ifndef CAIRN_COMMON_BASE_FAKE_CLOCK_H_
#define CAIRN_COMMON_BASE_FAKE_CLOCK_H_

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace cairn {

// Thread-safe.
class FakeClock final : public Clock {
 public:
  absl::Time SteadyNow() const override {
    MutexLock lock(mutex_);
    return now_;
  }
  absl::Time WallNow() const override { return SteadyNow(); }

  void Advance(absl::Duration by) {
    MutexLock lock(mutex_);
    now_ += by;
  }

 private:
  mutable Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::UnixEpoch() + absl::Hours(1);
};

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_FAKE_CLOCK_H_
