// Counts the time in which the coordinator could not listen. An overloaded coordinator hears its agents late, and that
// is not their fault: such time counts against no lease.
//
// The server calls itself through its own queues, one call after the other. What such a call takes beyond the usual is
// time in which agents' calls waited as well.
#ifndef CAIRN_COORDINATOR_SERVER_LISTENING_CLOCK_H_
#define CAIRN_COORDINATOR_SERVER_LISTENING_CLOCK_H_

#include <algorithm>

#include "absl/time/time.h"

namespace cairn {

// A function of its calls. `now` must not run backwards. Not thread-safe.
class ListeningClock {
 public:
  // A call that takes no longer tells nothing.
  static constexpr absl::Duration kUsual = absl::Milliseconds(100);
  // The pause between two calls.
  static constexpr absl::Duration kInterval = absl::Milliseconds(250);

  // Whether the next call is to be made now.
  bool Due(absl::Time now) const { return !calling() && now - ended_ >= kInterval; }
  bool calling() const { return begun_ != absl::InfiniteFuture(); }
  void Begin(absl::Time now) { begun_ = now; }
  void End(absl::Time now) {
    deaf_ = deaf(now);
    begun_ = absl::InfiniteFuture();
    ended_ = now;
  }
  // The time in which the coordinator could not listen, since the start; with that of a call under way.
  absl::Duration deaf(absl::Time now) const {
    if (!calling()) return deaf_;
    return deaf_ + std::max(absl::ZeroDuration(), now - begun_ - kUsual);
  }

 private:
  absl::Duration deaf_ = absl::ZeroDuration();
  absl::Time begun_ = absl::InfiniteFuture();
  absl::Time ended_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_LISTENING_CLOCK_H_
