// Counts the time in which the coordinator could not listen. A coordinator that is stopped, throttled or overloaded
// hears its agents late, and that is not their fault: such time counts against no lease.
//
// There are two kinds. While the process does not run at all (SIGSTOP, a suspended machine, a container that is
// throttled), nothing passes here: each gap between two passes that is longer than usual was such a stop. While it runs
// but is busy, the calls that it makes to itself through its own socket take long, and those of agents wait as well.
#ifndef CAIRN_COORDINATOR_DECISION_LISTENING_CLOCK_H_
#define CAIRN_COORDINATOR_DECISION_LISTENING_CLOCK_H_

#include <algorithm>

#include "absl/time/time.h"

namespace cairn {

// A function of its calls. Not thread-safe.
class ListeningClock {
 public:
  // The caller passes at least this often, with every event and with a timer, while the process runs.
  static constexpr absl::Duration kPass = absl::Milliseconds(100);
  // A timer may come so much later without meaning anything.
  static constexpr absl::Duration kSlack = absl::Milliseconds(100);
  // A call to itself that takes no longer tells nothing.
  static constexpr absl::Duration kUsual = absl::Milliseconds(100);
  // The pause between two calls.
  static constexpr absl::Duration kInterval = absl::Milliseconds(250);

  // Time has passed. A `now` before that of an earlier call is ignored: threads may come in another order than they
  // looked at the clock.
  void Pass(absl::Time now) {
    if (now <= last_) return;
    const absl::Duration gap = now - last_;
    // A part of each gap, kPass, counts as time in which the process ran: time always goes on.
    const absl::Duration stop =
        last_ != absl::InfinitePast() && gap > kPass + kSlack ? gap - kPass : absl::ZeroDuration();
    stopped_ += stop;
    const absl::Time busy_since = std::max(last_ + stop, begun_ + kUsual);
    if (calling() && now > busy_since) deaf_ += now - busy_since;
    last_ = now;
  }

  // Returns whether the next call to itself is to be made now.
  bool Due(absl::Time now) const { return !calling() && now - ended_ >= kInterval; }
  bool calling() const { return begun_ != absl::InfiniteFuture(); }
  void Begin(absl::Time now) {
    Pass(now);
    begun_ = now;
  }
  void End(absl::Time now) {
    Pass(now);
    begun_ = absl::InfiniteFuture();
    ended_ = now;
  }

  // Returns how long in all the process did not run, until the last pass.
  absl::Duration stopped() const { return stopped_; }
  // Returns how long in all it ran and was too busy to listen, until the last pass.
  absl::Duration deaf() const { return deaf_; }
  // `now` on a clock that stands still while the process does not run. Decisions are made by this one.
  absl::Time Running(absl::Time now) const { return now - stopped_; }

 private:
  absl::Duration stopped_ = absl::ZeroDuration();
  absl::Duration deaf_ = absl::ZeroDuration();
  absl::Time last_ = absl::InfinitePast();
  absl::Time begun_ = absl::InfiniteFuture();
  absl::Time ended_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_DECISION_LISTENING_CLOCK_H_
