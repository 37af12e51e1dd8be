// Decides when an agent may call a coordinator that has too much to do, or that all agents come back to at once.
#ifndef CAIRN_AGENT_RUNTIME_LINK_PACE_H_
#define CAIRN_AGENT_RUNTIME_LINK_PACE_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/time/time.h"

namespace cairn {

// Heartbeats are never held up: a lease must not end because the coordinator is slow. Uploads, downloads and
// registrations wait, each agent for a slightly different time, so that those which were refused together do not come
// back together.
//
// A function of calls, `now` and `random`. Not thread-safe.
class LinkPace {
 public:
  // The longest wait that an agent keeps, before its share of chance: whatever the coordinator says, it is asked again.
  static constexpr absl::Duration kLongestWait = absl::Minutes(1);
  // Jobs below this size come back at once, within kSmallSpread.
  static constexpr uint32_t kSmallWorld = 256;
  static constexpr absl::Duration kSmallSpread = absl::Milliseconds(50);
  // Jobs from this size on spread their registrations over a whole lease; smaller ones over a proportional part.
  static constexpr uint32_t kLargeWorld = 16384;

  // `random` gives numbers in [0, 1).
  LinkPace(uint32_t world_size, std::function<double()> random) : world_size_(world_size), random_(std::move(random)) {}

  // The coordinator has refused a call because it is overloaded, and named this delay. It is kept within a fifth, but
  // for at most kLongestWait.
  void OnOverloaded(absl::Duration told, absl::Time now);
  // The coordinator that this agent was registered with does not know it any more. If it restarted, it has lost all
  // agents at the same instant.
  void OnLost(absl::Duration lease, absl::Time now);

  // From then on an upload or download may be sent.
  absl::Time transfer_from() const { return overloaded_until_; }
  // From then on the agent may register. An agent that was never registered may do so at once, however many there are:
  // processes do not start in one instant.
  absl::Time register_from() const;

 private:
  const uint32_t world_size_;
  const std::function<double()> random_;
  absl::Time overloaded_until_ = absl::InfinitePast();
  absl::Time spread_until_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_AGENT_RUNTIME_LINK_PACE_H_
