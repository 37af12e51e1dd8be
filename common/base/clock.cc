#include "common/base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace cairn {
namespace {

class RealClock final : public Clock {
 public:
  absl::Time SteadyNow() const override {
    return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
  absl::Time WallNow() const override { return absl::Now(); }
};

}  // namespace

const Clock& Clock::Real() {
  static const RealClock* const clock = new RealClock();
  return *clock;
}

}  // namespace cairn
