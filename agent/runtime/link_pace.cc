#include "agent/runtime/link_pace.h"

#include <algorithm>

namespace cairn {
namespace {

// A delay is shorter or longer than the coordinator said by at most this part of it.
constexpr double kJitter = 0.2;

}  // namespace

void LinkPace::OnOverloaded(absl::Duration told, absl::Time now) {
  const absl::Duration wait = std::clamp(told, absl::ZeroDuration(), kLongestWait);
  overloaded_until_ = std::max(overloaded_until_, now + wait * (1 - kJitter + 2 * kJitter * random_()));
}

void LinkPace::OnLost(absl::Duration lease, absl::Time now) {
  absl::Duration spread = lease * std::min(1.0, static_cast<double>(world_size_) / kLargeWorld);
  if (world_size_ < kSmallWorld) spread = std::min(spread, kSmallSpread);
  spread_until_ = now + spread * random_();
}

absl::Time LinkPace::register_from() const { return std::max(overloaded_until_, spread_until_); }

}  // namespace cairn
